//! The way in, and the life of the connection.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frame::Sink;
use port::{Backlog, Inlet, InletStatus, Interest, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wire::Offload;

use crate::config::MAX_FRAME;
use crate::connection::Connection;
use crate::count;
use crate::endpoint::{Attempt, Source, end, finish};
use crate::kept::Keeps;
use crate::memory::{self, In, Memory};

const ETH_HLEN: usize = 14;
const BACKLOG: usize = 512 * 1024;

enum Link {
    Connected(Arc<OwnedFd>),
    /// By TCP, until writable.
    Connecting(OwnedFd),
    /// The listener will say.
    Listening,
    /// Not before then.
    Waiting(Instant),
}

pub struct StreamInlet {
    link: Link,
    source: Source,
    shared: Arc<Connection>,
    retry: (Duration, Duration),
    /// The next pause.
    pause: Duration,
    /// What of a connection outlives the process.
    memory: Memory,
    /// Framed bytes as they came.
    inward: Option<In>,
    backlog: Backlog,
    /// Where the stream stands behind each frame of the backlog.
    ends: VecDeque<u64>,
    /// Output waits for the socket to become writable.
    want_write: bool,
    /// When senders that wait for room are to be told that there will be none.
    give_up: Option<Instant>,
    /// The peer has left, and frames that it sent before are still to be passed on.
    left: bool,
    keeps: Option<Arc<dyn Keeps>>,
}

impl StreamInlet {
    pub fn new(
        source: Source,
        memory: Memory,
        retry: (Duration, Duration),
        shared: Arc<Connection>,
    ) -> Self {
        Self {
            link: Link::Waiting(Instant::now()),
            source,
            shared,
            retry,
            pause: retry.0,
            memory,
            inward: None,
            backlog: Backlog::new(BACKLOG, MAX_FRAME),
            ends: VecDeque::new(),
            want_write: false,
            give_up: None,
            left: false,
            keeps: None,
        }
    }

    /// Its connections are kept for the next process, and it goes on with the last one's.
    pub fn kept(
        &mut self,
        keeps: Option<Arc<dyn Keeps>>,
        met: Option<(OwnedFd, (In, memory::Out, u64))>,
    ) {
        self.keeps = keeps;
        if let Some((fd, (inward, outward, unsure))) = met {
            self.shared.tally.add(count::UNSURE, unsure);
            self.begin(fd, inward, outward);
        }
    }

    /// Gets as far towards a connection as is possible now. `false` when there will be none.
    fn connect(&mut self) -> bool {
        match &self.link {
            Link::Connected(_) => return true,
            Link::Waiting(until) if Instant::now() < *until => return true,
            Link::Connecting(fd) => {
                if !ready(fd, PollFlags::OUT) {
                    return true;
                }
                let late = Link::Waiting(Instant::now() + self.pause);
                let Link::Connecting(fd) = std::mem::replace(&mut self.link, late) else {
                    return true;
                };
                if finish(&fd) {
                    self.connected(fd);
                } else {
                    self.back_off();
                }
                return true;
            }
            Link::Listening | Link::Waiting(_) => {}
        }
        self.shared.tally.add(count::SYSCALLS, 1);
        match self.source.attempt() {
            Attempt::Connected(fd) => self.connected(fd),
            Attempt::UnderWay(fd) => self.link = Link::Connecting(fd),
            Attempt::NobodyYet => self.link = Link::Listening,
            Attempt::Failed => self.back_off(),
            Attempt::Spent => return false,
        }
        true
    }

    fn back_off(&mut self) {
        self.link = Link::Waiting(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(self.retry.1);
    }

    fn connected(&mut self, fd: OwnedFd) {
        let (inward, outward) = self.memory.begin();
        self.begin(fd, inward, outward);
        self.shared.tally.add(count::CONNECTS, 1);
    }

    fn begin(&mut self, fd: OwnedFd, inward: In, outward: memory::Out) {
        let fd = Arc::new(fd);
        // Frames of the connection before are no part of this one.
        self.ends.iter_mut().for_each(|end| *end = inward.done());
        self.inward = Some(inward);
        if let Some(keeps) = &self.keeps {
            keeps.begun(fd.as_fd());
        }
        self.memory.note_begun();
        let mut out = self.shared.out.lock();
        out.replace(Some((Arc::clone(&fd), outward)));
        drop(out);
        self.shared.waiters.wake_all();
        self.link = Link::Connected(fd);
    }

    /// Nothing more goes to this peer.
    fn part(&mut self) {
        let lost = self.shared.out.lock().replace(None);
        self.shared.tally.add(count::UNSENT, lost as u64);
        self.shared.tally.add(count::DISCONNECTS, 1);
        self.want_write = false;
        self.give_up = None;
        self.shared.waiters.wake_all();
    }

    fn disconnect(&mut self) {
        if !std::mem::take(&mut self.left) {
            self.part();
        }
        self.inward = None;
        if let Some(keeps) = &self.keeps {
            keeps.over();
        }
        if let Link::Connected(fd) = &self.link
            && self.source.is_single()
        {
            end(fd.as_fd());
        }
        self.back_off();
    }

    /// Whether the peer will send nothing more, however much it has sent.
    fn peer_has_left(&self) -> bool {
        let Some(fd) = self.peer() else {
            return false;
        };
        self.shared.tally.add(count::SYSCALLS, 1);
        ready(fd, PollFlags::RDHUP | PollFlags::HUP)
    }

    /// Sends what waits. `false` when the connection is broken.
    fn send(&mut self) -> bool {
        let mut calls = 0;
        let mut out = self.shared.out.lock();
        let moved = out.send(&mut calls);
        self.want_write = out.watch();
        let (broken, full_since) = (out.is_broken(), out.full_since());
        drop(out);
        self.shared.tally.add(count::SYSCALLS, calls);
        let now = Instant::now();
        self.give_up = full_since.map(|since| since + self.shared.patience);
        let given_up = self.give_up.is_some_and(|end| end <= now);
        if given_up {
            self.give_up = None;
        }
        if moved || given_up {
            self.shared.waiters.wake_all();
        }
        !broken
    }

    /// Moves whole frames from the bytes read to the backlog, at most `max`. `None` when the
    /// peer does not speak our language.
    fn parse(&mut self, max: usize) -> Option<usize> {
        let mut n = 0;
        let Some(inward) = &mut self.inward else {
            return Some(0);
        };
        while n < max {
            let mut head = [0; 4];
            if !inward.copy(0, &mut head) {
                break;
            }
            let len = u32::from_be_bytes(head) as usize;
            if len > MAX_FRAME {
                self.shared.tally.add(count::BAD_LENGTH, 1);
                return None;
            }
            let Some(room) = self.backlog.room() else {
                break;
            };
            if !inward.copy(4, &mut room[..len]) {
                break;
            }
            inward.parsed += 4 + len as u64;
            if len < ETH_HLEN {
                self.shared.tally.add(count::RUNT, 1);
            } else {
                self.backlog.commit(0, len, Offload::NONE);
                self.ends.push_back(inward.parsed);
            }
            n += 1;
        }
        Some(n)
    }

    /// Reads once. `Ok(0)` when there is nothing, `Err` when the peer is gone.
    fn read(&mut self) -> Result<usize, ()> {
        let (Link::Connected(fd), Some(inward)) = (&self.link, &mut self.inward) else {
            return Err(());
        };
        self.shared.tally.add(count::SYSCALLS, 1);
        match inward.fill(&**fd) {
            Ok(0) => Err(()),
            Ok(n) => {
                // Only a peer that talks is a good one; others are called again more slowly.
                self.pause = self.retry.0;
                Ok(n)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(_) => Err(()),
        }
    }

    /// Whether everything parsed has been taken.
    fn flush(&mut self, to: &dyn Sink) -> bool {
        if let Some(inward) = &mut self.inward {
            inward.claim();
        }
        let done = self.backlog.flush(to);
        let dealt = self.ends.len() - self.backlog.len();
        let last = self.ends.drain(..dealt).next_back();
        if let Some(inward) = &mut self.inward {
            // Behind the last frame are perhaps some that were too short.
            let all = self.backlog.is_empty();
            let behind = last.unwrap_or(inward.done());
            inward.settle(if all { inward.parsed } else { behind });
        }
        self.shared.tally.add(count::FRAMES_IN, done.frames);
        self.shared.tally.add(count::BYTES_IN, done.bytes);
        self.backlog.is_empty()
    }

    /// Reads and passes on until the socket is empty (`Some(Idle)`), or the peer is gone (`None`).
    fn receive(&mut self, to: &dyn Sink, budget: usize) -> Option<InletStatus> {
        let mut left = budget.max(1);
        loop {
            let Some(parsed) = self.parse(left) else {
                self.flush(to);
                return None;
            };
            if !self.flush(to) {
                return Some(InletStatus::Blocked);
            }
            left -= parsed;
            if left == 0 {
                return Some(InletStatus::More);
            }
            // Whole frames are dealt with now, so there is room for one more.
            if parsed == 0 && self.read().ok()? == 0 {
                return Some(InletStatus::Idle);
            }
        }
    }
}

fn ready(fd: impl AsFd, how: PollFlags) -> bool {
    let mut fds = [PollFd::new(&fd, how)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
}

impl Drop for StreamInlet {
    fn drop(&mut self) {
        let Some(keeps) = self.keeps.as_ref() else {
            return;
        };
        if !keeps.leaves() {
            return keeps.gone();
        }
        // Another process goes on with what is open.
        let link = std::mem::replace(&mut self.link, Link::Listening);
        let source = std::mem::replace(&mut self.source, Source::Single(None));
        Box::leak(Box::new((link, source)));
    }
}

impl Inlet for StreamInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        let mut want = |fd, read, write| add(Interest { fd, read, write });
        want(self.shared.bell.as_fd(), true, false);
        match (&self.link, &self.source) {
            (Link::Connected(fd), _) if !self.left => want(fd.as_fd(), true, self.want_write),
            (Link::Connecting(fd), _) => want(fd.as_fd(), false, true),
            (Link::Listening, Source::Listener { fd, .. }) => want(fd.as_fd(), true, false),
            _ => {}
        }
    }

    fn kind(&self) -> Kind {
        Kind::Network
    }

    fn peer(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::Connected(fd) if !self.left => Some(fd.as_fd()),
            _ => None,
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let until = match self.link {
            Link::Waiting(until) => Some(until),
            _ => self.give_up,
        };
        // One more millisecond, so that waiting is over when we look.
        let left = until?.saturating_duration_since(Instant::now());
        Some(left + Duration::from_millis(1))
    }

    fn link_up(&self) -> bool {
        matches!(self.link, Link::Connected(_)) && !self.left
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        self.shared.bell.clear();
        let alive = self.connect();
        // Output does not wait for the other direction.
        if self.link_up() && !self.send() {
            self.disconnect();
        }
        if !self.flush(to) {
            if self.peer_has_left() {
                self.part();
                self.left = true;
            }
            return InletStatus::Blocked;
        }
        if !alive {
            return InletStatus::Closed("the peer has closed its end".into());
        }
        if !matches!(self.link, Link::Connected(_)) {
            return InletStatus::Idle;
        }
        self.receive(to, budget).unwrap_or_else(|| {
            self.disconnect();
            InletStatus::Idle
        })
    }
}
