//! The thread side: what the network's process says, and its life.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frame::Sink;
use port::{Backlog, Inlet, InletStatus, Interest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wire::Offload;

use crate::config::{MTU, UserConfig, UserError};
use crate::count::{self, Told};
use crate::launcher::Launcher;
use crate::lives::{Lives, Next};
use crate::message::{self, MAX, Said};
use crate::sink::PATIENCE;
use crate::{link::Link, socket};

const ETH_HLEN: usize = 14;
/// What is for the guests and waits, in bytes.
const BACKLOG: usize = 512 * 1024;
/// Longest frame for a guest.
const LONGEST: usize = MTU + 64;
/// How long a process may take until its network is there.
const START: Duration = Duration::from_secs(10);

enum State {
    /// It was asked for, and has until then.
    Starting(OwnedFd, Instant),
    Up(Arc<OwnedFd>),
    /// The next one is started then.
    Waiting(Instant),
    /// There will be none.
    Over(String),
}

pub struct UserInlet {
    state: State,
    launcher: Launcher,
    config: UserConfig,
    link: Arc<Link>,
    lives: Lives,
    /// What it has told so far.
    told: Told,
    room: Vec<u8>,
    backlog: Backlog,
    /// What is to be said in the log.
    note: Option<String>,
    /// Output waits for the socket to become writable.
    want_write: bool,
    /// When senders that wait for room are to be told that there will be none.
    give_up: Option<Instant>,
    /// The process has gone, and frames that it sent before are still to be passed on.
    left: bool,
}

impl UserInlet {
    /// Starts the first process, and waits until its network is there.
    pub fn new(
        launcher: Launcher,
        config: UserConfig,
        patient: bool,
        link: Arc<Link>,
    ) -> Result<Self, UserError> {
        let started = launcher.start(&config, patient);
        let fd = started.map_err(UserError::Launcher)?;
        let mut room = vec![0; MAX];
        await_first(&fd, &mut room)?;
        let fd = Arc::new(fd);
        link.replace(Some(Arc::clone(&fd)));
        Ok(Self {
            state: State::Up(fd),
            launcher,
            config,
            link,
            lives: Lives::new(Instant::now()),
            told: Told::default(),
            room,
            backlog: Backlog::new(BACKLOG, LONGEST),
            note: None,
            want_write: false,
            give_up: None,
            left: false,
        })
    }

    /// Gets as far towards a process as is possible now.
    fn start(&mut self) {
        match &self.state {
            State::Waiting(until) if *until <= Instant::now() => {
                // The ports of the host of the one before are free: it has been waited for.
                match self.launcher.start(&self.config, false) {
                    Ok(fd) => self.state = State::Starting(fd, Instant::now() + START),
                    Err(error) => {
                        let why = UserError::Launcher(error).to_string();
                        self.state = State::Over(why);
                    }
                }
            }
            State::Starting(fd, until) => match socket::receive(fd, &mut self.room, false) {
                Err(Errno::AGAIN) if Instant::now() < *until => {}
                Err(Errno::AGAIN) => self.died("was not there in time"),
                Ok(came) => match message::parse(&self.room[..came]) {
                    Some(Said::Ready) => self.ready(),
                    Some(Said::Refused(why) | Said::Ended(why)) => {
                        let why = format!("could not be started anew: {why}");
                        self.died(&why);
                    }
                    _ => self.died("could not be started anew"),
                },
                Err(_) => self.died("could not be started anew"),
            },
            _ => {}
        }
    }

    fn ready(&mut self) {
        let later = State::Waiting(Instant::now());
        if let State::Starting(fd, _) = std::mem::replace(&mut self.state, later) {
            let fd = Arc::new(fd);
            self.told = Told::default();
            self.lives.begin(Instant::now());
            self.link.replace(Some(Arc::clone(&fd)));
            self.state = State::Up(fd);
        }
    }

    /// Nothing more goes to this process.
    fn part(&mut self) {
        self.link.replace(None);
        self.want_write = false;
        self.give_up = None;
    }

    /// It has gone, so.
    fn died(&mut self, how: &str) {
        self.link.tally.add(count::DEATHS, 1);
        if !std::mem::take(&mut self.left) {
            self.part();
        }
        self.state = match self.lives.next(Instant::now()) {
            Next::In(pause) => {
                self.note = Some(format!("its process {how}; another one is started"));
                State::Waiting(Instant::now() + pause)
            }
            Next::GiveUp(lives) => State::Over(format!(
                "its process {how}, as {} before it did within a minute each; make the port anew when you know why",
                lives - 1
            )),
        };
    }

    /// Sends what waits.
    fn send(&mut self) {
        let mut calls = 0;
        let mut out = self.link.out.lock();
        let moved = out.send(&mut calls);
        self.want_write = out.watch();
        let full_since = out.full_since;
        drop(out);
        self.link.tally.add(count::SYSCALLS, calls);
        self.give_up = full_since.map(|since| since + PATIENCE);
        let given_up = self.give_up.is_some_and(|end| end <= Instant::now());
        if given_up {
            self.give_up = None;
        }
        if moved || given_up {
            self.link.waiters.wake_all();
        }
    }

    /// Whether everything has been taken by the guests.
    fn flush(&mut self, to: &dyn Sink) -> bool {
        let done = self.backlog.flush(to);
        let tally = &self.link.tally;
        tally.add(count::FRAMES_IN, done.frames);
        tally.add(count::BYTES_IN, done.bytes);
        tally.add(count::SINK_CANNOT_TAKE, done.unfinished);
        let empty = self.backlog.is_empty();
        self.link.stalled.store(!empty, Ordering::Release);
        if !empty {
            // Who waits for room need not any more.
            self.link.waiters.wake_all();
        }
        empty
    }

    /// Takes one message, whose frames go to the backlog. `None`: there is none now.
    fn message(&mut self) -> Result<Option<usize>, String> {
        let State::Up(fd) = &self.state else {
            return Ok(None);
        };
        self.link.tally.add(count::SYSCALLS, 1);
        let came = match socket::receive(fd, &mut self.room, false) {
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::MSGSIZE) => MAX + 1,
            Ok(0) | Err(_) => return Err("has ended".into()),
            Ok(came) => came,
        };
        let said = self.room.get(..came).and_then(message::parse);
        let (told, frames) = match said {
            Some(Said::Frames(told, frames)) => (told, frames),
            Some(Said::Ended(how)) => return Err(how.to_owned()),
            _ => {
                self.link.tally.add(count::BAD_MESSAGE, 1);
                return Err("said what is no message".into());
            }
        };
        for ((place, now), before) in count::TOLD.iter().zip(told.0).zip(self.told.0) {
            self.link.tally.add(*place, now.saturating_sub(before));
        }
        self.told = told;
        // Its checksums are right: they were made there.
        let notes = Offload {
            csum_valid: true,
            ..Offload::NONE
        };
        let mut count = 0;
        for frame in frames.flatten() {
            let taken = frame.len() >= ETH_HLEN && self.backlog.push(frame, notes);
            if !taken {
                self.link.tally.add(count::OUT_FULL, 1);
            }
            count += 1;
        }
        Ok(Some(count.max(1)))
    }

    /// Passes on until the socket is empty, or the process is gone.
    fn receive(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        let mut left = budget.max(1);
        loop {
            match self.message() {
                Ok(None) => return InletStatus::Idle,
                Ok(Some(count)) => left = left.saturating_sub(count),
                Err(how) => {
                    self.died(&how);
                    return InletStatus::More;
                }
            }
            if !self.flush(to) {
                return InletStatus::Blocked;
            }
            if left == 0 {
                return InletStatus::More;
            }
        }
    }

    /// Whether the process will say nothing more, however much it has said.
    fn has_left(&self) -> bool {
        let Some(fd) = self.peer() else {
            return false;
        };
        let mut fds = [PollFd::new(&fd, PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
            && fds[0].revents().intersects(gone)
    }
}

/// Waits for a process to say that its network is there.
fn await_first(fd: &OwnedFd, room: &mut [u8]) -> Result<(), UserError> {
    let until = Instant::now() + START;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&limit));
        let gone = || UserError::Refused("its process ended before it was there".into());
        match socket::receive(fd, room, false) {
            Err(Errno::AGAIN) if Instant::now() < until => {}
            Err(Errno::AGAIN) => {
                return Err(UserError::Refused(
                    "its process was not there in time".into(),
                ));
            }
            Ok(came) => {
                return match message::parse(&room[..came]) {
                    Some(Said::Ready) => Ok(()),
                    Some(Said::Refused(why)) => Err(UserError::Refused(why.to_owned())),
                    Some(Said::Ended(how)) => Err(UserError::Refused(format!("its process {how}"))),
                    _ => Err(gone()),
                };
            }
            Err(_) => return Err(gone()),
        }
    }
}

impl Inlet for UserInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        let mut want = |fd, read, write| add(Interest { fd, read, write });
        want(self.link.bell.as_fd(), true, false);
        match &self.state {
            State::Up(fd) if !self.left => want(fd.as_fd(), true, self.want_write),
            State::Starting(fd, _) => want(fd.as_fd(), true, false),
            _ => {}
        }
    }

    fn peer(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Up(fd) if !self.left => Some(fd.as_fd()),
            _ => None,
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let until = match self.state {
            State::Waiting(until) | State::Starting(_, until) => Some(until),
            _ => self.give_up,
        };
        // One more millisecond, so that waiting is over when we look.
        let left = until?.saturating_duration_since(Instant::now());
        Some(left + Duration::from_millis(1))
    }

    fn link_up(&self) -> bool {
        matches!(self.state, State::Up(_)) && !self.left
    }

    fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        self.link.bell.clear();
        self.start();
        // Output does not wait for the other direction.
        if self.link_up() {
            self.send();
        }
        if !self.flush(to) {
            if self.has_left() {
                self.part();
                self.left = true;
            }
            return InletStatus::Blocked;
        }
        if let State::Over(why) = &self.state {
            return InletStatus::Closed(why.clone());
        }
        self.receive(to, budget)
    }
}

impl Drop for UserInlet {
    fn drop(&mut self) {
        self.link.closed.store(true, Ordering::Release);
        self.link.replace(None);
    }
}
