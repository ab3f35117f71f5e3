//! The process of a network: what a port says goes to libslirp, and what that says to the port.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Sink, Wake};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::config::{UserConfig, UserError};
use crate::count::{REFUSED_CALLS, SYSCALLS, Told};
use crate::engine::Engine;
use crate::message::{self, Frames, MAX, Start};
use crate::socket;

/// Frames of the port's that are worked on in one turn, or as many more as a message has: each may be answered by a few.
const FRAMES: usize = 1024;
/// What was counted is told so often, where no frame takes it along.
const TELL: Duration = Duration::from_millis(100);

/// Is the network that the port at the other end of `socket` asks for, until that is closed. Before frames pass,
/// `confine` gives up what the process does not need any more; `refused` says how often it has tried since.
///
/// What cannot be is said to the port.
pub fn serve(
    socket: OwnedFd,
    confine: impl FnOnce(&UserConfig) -> Result<(), String>,
    refused: impl Fn() -> u64,
) {
    let begun = match begin(&socket, confine) {
        Ok(Some(engine)) => engine,
        Ok(None) => return,
        Err(why) => {
            let _ = socket::send(&socket, &message::refused(&why));
            return;
        }
    };
    if socket::send(&socket, &message::ready()).is_ok() {
        Network::new(begun, socket).run(&refused);
    }
}

/// `None`: the port has gone.
fn begin(
    socket: &OwnedFd,
    confine: impl FnOnce(&UserConfig) -> Result<(), String>,
) -> Result<Option<Engine>, String> {
    let mut room = vec![0; MAX];
    let said = |error: UserError| error.to_string();
    let came = socket::receive(socket, &mut room, true).map_err(|errno| errno.to_string())?;
    if came == 0 {
        return Ok(None);
    }
    let start: Start = serde_json::from_slice(&room[..came]).map_err(|error| error.to_string())?;
    // What needs more than a network that runs: ports of the host below 1024, its folder, its first sockets.
    let engine = Engine::new(&start.config, start.patient).map_err(said)?;
    confine(&start.config).map_err(|why| format!("sandbox: {why}"))?;
    Ok(Some(engine))
}

struct Network {
    engine: Engine,
    to: ToPort,
    room: Vec<u8>,
    /// What was told last that is worth a message of its own, and when.
    told: (Told, Instant),
}

impl Network {
    fn new(engine: Engine, socket: OwnedFd) -> Self {
        let out = Mutex::new(Out {
            message: Vec::with_capacity(MAX),
            told: Told::default(),
            sent: 0,
            calls: 0,
            broken: false,
        });
        Self {
            engine,
            to: ToPort { socket, out },
            room: vec![0; MAX],
            told: (Told::default(), Instant::now()),
        }
    }

    /// Until the port has gone.
    fn run(&mut self, refused: &dyn Fn() -> u64) {
        while !self.to.out.lock().broken {
            // While the guests take nothing, nothing is read from the host either: its senders wait.
            let mut moves = self.flush();
            if moves {
                self.engine.turn();
                if !self.take() {
                    return;
                }
                self.engine.follow();
                self.engine.told().set(REFUSED_CALLS, refused());
                moves = self.flush();
            }
            let tells = self.tell();
            self.wait(moves, tells);
        }
    }

    /// Whether the port has taken all that is for the guests.
    fn flush(&mut self) -> bool {
        self.to.out.lock().told = *self.engine.told();
        let out = self.engine.out();
        out.flush(&self.to);
        let empty = out.is_empty();
        let calls = std::mem::take(&mut self.to.out.lock().calls);
        self.engine.told().add(SYSCALLS, calls);
        empty
    }

    /// Gives libslirp what the guests sent. `false`: the port has gone.
    fn take(&mut self) -> bool {
        let mut count = 0;
        while count < FRAMES {
            self.engine.told().add(SYSCALLS, 1);
            match socket::receive(&self.to.socket, &mut self.room, false) {
                Ok(0) => return false,
                Ok(came) => {
                    let frames = Frames(&self.room[..came]);
                    for frame in frames.flatten() {
                        self.engine.input(frame);
                        count += 1;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Tells what was counted where no frame has taken it along. `Some`: after so long.
    fn tell(&mut self) -> Option<Duration> {
        let mut now = *self.engine.told();
        // Calls alone are not worth another.
        now.set(SYSCALLS, 0);
        let mut out = self.to.out.lock();
        let mut sent = out.told;
        sent.set(SYSCALLS, 0);
        if out.sent > 0 {
            (self.told, out.sent) = ((sent, Instant::now()), 0);
        }
        if now == self.told.0 {
            return None;
        }
        let wait = TELL.saturating_sub(self.told.1.elapsed());
        if wait.is_zero() {
            out.told = *self.engine.told();
            out.message.clear();
            let told = out.told;
            message::head(&mut out.message, &told);
            // Without room, later.
            if socket::send(&self.to.socket, &out.message).is_ok() {
                self.told.0 = now;
                return None;
            }
            self.told.1 = Instant::now();
            return Some(TELL);
        }
        Some(wait)
    }

    fn wait(&mut self, moves: bool, tells: Option<Duration>) {
        let timeout = match moves {
            true => self.engine.timeout(),
            // libslirp is left alone until its frames are taken.
            false => crate::engine::IDLE,
        };
        let timeout = tells.map_or(timeout, |tells| tells.min(timeout));
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        self.engine.told().add(SYSCALLS, 1);
        let wanted = match moves {
            true => PollFlags::IN,
            false => PollFlags::OUT,
        };
        let mut fds = vec![PollFd::new(&self.to.socket, wanted)];
        if moves {
            fds.push(PollFd::from_borrowed_fd(self.engine.as_fd(), PollFlags::IN));
        }
        // Interrupted is the same as nothing ready.
        let _ = poll(&mut fds, Some(&timeout));
        let gone = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if gone && !moves {
            self.to.out.lock().broken = true;
        }
    }
}

/// The way to the port.
struct ToPort {
    socket: OwnedFd,
    out: Mutex<Out>,
}

struct Out {
    message: Vec<u8>,
    /// What goes along with frames.
    told: Told,
    /// Messages since last asked.
    sent: u64,
    calls: u64,
    broken: bool,
}

impl Sink for ToPort {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut out = self.out.lock();
        let out = &mut *out;
        let mut rest = picks;
        let mut done = 0;
        while !rest.is_empty() && !out.broken {
            out.message.clear();
            message::head(&mut out.message, &out.told);
            let mut count = 0;
            for pick in rest {
                let frame = batch.get(usize::from(*pick));
                let len = frame.as_ref().map_or(0, |frame| frame.len());
                // One goes alone, however long it is; a longer one than there can be is cut by nobody but us.
                if count > 0 && out.message.len() + 2 + len > MAX {
                    break;
                }
                if let Some(frame) = frame.filter(|_| len <= MAX / 2) {
                    message::push(&mut out.message, len, |room| frame.copy_to(0, room));
                }
                count += 1;
            }
            out.calls += 1;
            match socket::send(&self.socket, &out.message) {
                Ok(()) => out.sent += 1,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => break,
                Err(_) => out.broken = true,
            }
            done += count;
            rest = &rest[count..];
        }
        if out.broken { picks.len() } else { done }
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}
