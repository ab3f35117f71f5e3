//! The way in, and the life of the connection.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frame::Sink;
use peer::dial::{Attempt, Source};
use peer::{EventFd, PeerFd, SharedMem};
use port::{Inlet, InletStatus, Interest, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::count;
use crate::crossing::Broken;
use crate::greeting::{Greeted, Greeting, Heard, Met, Wire};
use crate::kept::Keeps;
use crate::out::Out;
use crate::receive::In;
use crate::shared::Shared;

/// Turns of a busy connection between two looks at its socket.
const TURNS: u32 = 32;

/// While the sink has no room, nobody hears the peer ring. So it is looked every so often whether the peer has made room for
/// those who send to it: the two directions do not wait for each other.
const LOOK: Duration = Duration::from_millis(10);
/// The same while somebody is known to wait.
const LOOK_SOON: Duration = Duration::from_millis(1);

enum Link {
    Connected(Box<Connected>),
    Greeting(Box<Greeting>),
    /// The listener will say.
    Listening,
    /// Not before then.
    Waiting(Instant),
}

struct Connected {
    receive: In,
    wire: Wire,
    /// What the peer rings.
    event: EventFd,
    /// Open for as long as the connection, for those who keep it.
    _files: (SharedMem, PeerFd),
    since: Instant,
    /// Frames have come.
    good: bool,
}

pub struct RingInlet {
    link: Link,
    source: Source,
    /// Bytes of our ring.
    bytes: u32,
    shared: Arc<Shared>,
    retry: (Duration, Duration),
    /// The next pause.
    pause: Duration,
    turns: u32,
    /// The sink had no room.
    blocked: bool,
    keeps: Option<Arc<dyn Keeps>>,
}

impl RingInlet {
    pub fn new(
        source: Source,
        bytes: u32,
        retry: (Duration, Duration),
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            link: Link::Waiting(Instant::now()),
            source,
            bytes,
            shared,
            retry,
            pause: retry.0,
            turns: 0,
            blocked: false,
            keeps: None,
        }
    }

    /// One whose connections are kept for the next process, and that goes on with the last one's.
    pub fn kept(mut self, keeps: Option<Arc<dyn Keeps>>, met: Option<Met>) -> Self {
        self.keeps = keeps;
        if let Some(met) = met {
            self.go_on(met);
        }
        self
    }

    fn go_on(&mut self, met: Met) {
        let crossing = Arc::new(met.crossing);
        let (Ok(out), Ok((receive, unsure))) = (
            Out::resume(Arc::clone(&crossing)),
            In::resume(Arc::clone(&crossing)),
        ) else {
            self.shared.fail(&crossing);
            self.keeps.iter().for_each(|keeps| keeps.over());
            // The peer is told, though others may have it open.
            let _ = rustix::net::shutdown(met.wire.as_fd(), rustix::net::Shutdown::Both);
            return;
        };
        self.shared.tally.add(count::LOST, unsure);
        self.begin(out, receive, met.wire, (met.event, met.files));
        // What came meanwhile, and who hung up.
        self.shared.bell.ring();
    }

    fn begin(
        &mut self,
        out: Out,
        receive: In,
        wire: Wire,
        (event, files): (EventFd, (SharedMem, PeerFd)),
    ) {
        let crossing = out.crossing();
        if let Some(keeps) = &self.keeps {
            let fds = [
                wire.as_fd(),
                files.0.as_fd(),
                event.as_fd(),
                files.1.as_fd(),
                crossing.their_event(),
            ];
            keeps.begun(fds, [crossing.ours, crossing.theirs]);
        }
        self.shared.replace(Some(out));
        self.link = Link::Connected(Box::new(Connected {
            receive,
            wire,
            event,
            _files: files,
            since: Instant::now(),
            good: false,
        }));
    }

    /// Gets as far towards a connection as is possible now.
    fn connect(&mut self) {
        match std::mem::replace(&mut self.link, Link::Listening) {
            link @ Link::Connected(_) => {
                self.link = link;
                return;
            }
            Link::Waiting(until) if Instant::now() < until => {
                self.link = Link::Waiting(until);
                return;
            }
            Link::Greeting(greeting) => return self.greet(*greeting),
            Link::Listening | Link::Waiting(_) => {}
        }
        match self.source.attempt() {
            Attempt::Connected(socket) => match Greeting::begin(socket, self.bytes) {
                // Its answer may be there.
                Ok(greeting) => self.greet(greeting),
                Err(_) => {
                    self.shared.tally.add(count::FAILED_GREETINGS, 1);
                    self.back_off();
                }
            },
            Attempt::NobodyYet => self.link = Link::Listening,
            Attempt::Failed => self.back_off(),
        }
    }

    fn greet(&mut self, greeting: Greeting) {
        let (greeted, rest) = greeting.advance();
        match greeted {
            Greeted::Met(met) => return self.connected(*met),
            Greeted::Waiting => {}
            Greeted::Gone => self.shared.tally.add(count::FAILED_GREETINGS, 1),
            Greeted::Bad => self.shared.tally.add(count::BAD_PEER, 1),
        }
        match rest {
            Some(greeting) => self.link = Link::Greeting(Box::new(greeting)),
            None => self.back_off(),
        }
    }

    fn back_off(&mut self) {
        // One who listens keeps nobody waiting for what others did; a little, so that it is no load on the process.
        let pause = match self.source {
            Source::Listen(_) => self.retry.0,
            Source::Connect(_) => self.pause,
        };
        self.link = Link::Waiting(Instant::now() + pause);
        self.pause = (self.pause * 2).min(self.retry.1);
    }

    fn connected(&mut self, met: Met) {
        let crossing = Arc::new(met.crossing);
        self.shared.tally.add(count::CONNECTS, 1);
        let out = Out::new(Arc::clone(&crossing));
        self.begin(out, In::new(crossing), met.wire, (met.event, met.files));
    }

    fn disconnect(&mut self) {
        let Link::Connected(old) = std::mem::replace(&mut self.link, Link::Listening) else {
            return;
        };
        if let Some(keeps) = &self.keeps {
            keeps.over();
        }
        let out = self.shared.replace(None);
        let unsent = out.map_or(0, |mut out| out.left());
        let unread = old.receive.left();
        self.shared.tally.add(count::LOST, unsent + unread);
        self.shared.tally.add(count::DISCONNECTS, 1);
        self.blocked = false;
        // Only a peer that sends or stays is a good one; others are called again more slowly.
        if old.good || old.since.elapsed() > self.retry.1 {
            self.pause = self.retry.0;
        }
        self.back_off();
    }

    /// Passes on what has come; `None`: the peer did what cannot be.
    fn receive(&mut self, to: &dyn Sink, budget: usize) -> Option<InletStatus> {
        let Link::Connected(connected) = &mut self.link else {
            return Some(InletStatus::Idle);
        };
        let before = self.shared.tally.get(count::FRAMES_IN);
        let status = connected.receive.run(&self.shared, to, budget);
        connected.good |= self.shared.tally.get(count::FRAMES_IN) != before;
        match status {
            Ok(_) if connected.receive.crossing().is_broken() => None,
            Ok(status) => Some(status),
            Err(Broken) => {
                self.shared.fail(connected.receive.crossing());
                None
            }
        }
    }

    /// Looks whether the peer has hung up, and who else calls. `false`: the connection is over.
    fn look_around(&mut self, to: &dyn Sink, budget: usize) -> bool {
        let Link::Connected(connected) = &mut self.link else {
            return true;
        };
        let listener = self.source.listener();
        let (spoken, called) = ready(connected.wire.as_fd(), listener);
        let heard = if spoken {
            connected.wire.hear()
        } else {
            Heard::Nothing
        };
        match heard {
            Heard::Nothing => {}
            Heard::Words => {
                self.shared.fail(connected.receive.crossing());
                return false;
            }
            Heard::End => {
                // What it sent before it left is there.
                self.receive(to, budget);
                return false;
            }
        }
        if called && let Attempt::Connected(newcomer) = self.source.attempt() {
            self.shared.tally.add(count::REFUSED, 1);
            drop(newcomer);
        }
        true
    }
}

/// Whether there is something to read, of a socket and of a listener.
fn ready(socket: BorrowedFd<'_>, listener: Option<BorrowedFd<'_>>) -> (bool, bool) {
    let one = PollFd::from_borrowed_fd(socket, PollFlags::IN | PollFlags::RDHUP);
    let other = PollFd::from_borrowed_fd(listener.unwrap_or(socket), PollFlags::IN);
    let mut fds = [one, other];
    let fds = &mut fds[..1 + usize::from(listener.is_some())];
    if poll(fds, Some(&Timespec::default())).is_err() {
        return (false, false);
    }
    let some = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
    (some(fds.first()), some(fds.get(1)))
}

impl Drop for RingInlet {
    fn drop(&mut self) {
        let Some(keeps) = self.keeps.as_ref() else {
            return;
        };
        if !keeps.leaves() {
            return keeps.over();
        }
        // Another process goes on with what is open.
        let link = std::mem::replace(&mut self.link, Link::Listening);
        Box::leak(Box::new(link));
    }
}

impl Inlet for RingInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        let mut want = |fd| {
            add(Interest {
                fd,
                read: true,
                write: false,
            });
        };
        want(self.shared.bell.as_fd());
        match &self.link {
            Link::Connected(connected) => {
                want(connected.event.as_fd());
                want(connected.wire.as_fd());
            }
            Link::Greeting(greeting) => want(greeting.as_fd()),
            Link::Listening | Link::Waiting(_) => {}
        }
        if matches!(self.link, Link::Connected(_) | Link::Listening) {
            self.source.listener().into_iter().for_each(want);
        }
    }

    fn kind(&self) -> Kind {
        Kind::Network
    }

    fn peer(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::Connected(connected) => Some(connected.wire.as_fd()),
            _ => None,
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let until = match &self.link {
            Link::Waiting(until) => *until,
            Link::Greeting(greeting) => greeting.until,
            Link::Connected(_) if self.blocked && self.shared.is_wanting() => {
                return Some(LOOK_SOON);
            }
            Link::Connected(_) if self.blocked => return Some(LOOK),
            _ => return None,
        };
        // One more millisecond, so that waiting is over when we look.
        let left = until.saturating_duration_since(Instant::now());
        Some(left + Duration::from_millis(1))
    }

    fn link_up(&self) -> bool {
        matches!(self.link, Link::Connected(_))
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        self.shared.bell.clear();
        self.connect();
        let Link::Connected(connected) = &mut self.link else {
            return InletStatus::Idle;
        };
        if connected.receive.is_asleep() {
            connected.event.take();
        }
        self.shared.look_for_room();
        let status = self.receive(to, budget);
        self.turns = self.turns.wrapping_add(1);
        let quiet = status != Some(InletStatus::More) || self.turns.is_multiple_of(TURNS);
        match status {
            Some(status) if !quiet || self.look_around(to, budget) => {
                self.blocked = status == InletStatus::Blocked;
                status
            }
            _ => {
                self.disconnect();
                InletStatus::Idle
            }
        }
    }
}
