//! The way in, and the life of the connection.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frame::Sink;
use peer::EventFd;
use peer::dial::{Attempt, Source};
use port::{Inlet, InletStatus, Interest, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost_user::Client;

use crate::count;
use crate::dial::Dialing;
use crate::receive::In;
use crate::ring::Broken;
use crate::session::{Session, Wanted};
use crate::shared::{Out, Shared};

/// Between two lines for the log.
const QUIET: Duration = Duration::from_secs(20);

enum Link {
    Connected(Box<Connected>),
    /// Another thread sets a session up.
    Dialing(Dialing),
    /// The listener will say.
    Listening,
    /// Not before then.
    Waiting(Instant),
}

struct Connected {
    /// One of each pair.
    receives: Vec<In>,
    client: Client,
    /// The transmit rings'.
    tx_calls: Vec<Arc<EventFd>>,
    since: Instant,
}

pub struct VhostInlet {
    link: Link,
    source: Source,
    shared: Arc<Shared>,
    retry: (Duration, Duration),
    wanted: Wanted,
    /// As many of the pairs as the back end did not refuse before.
    pairs: usize,
    /// The next pause.
    pause: Duration,
    /// When senders that wait for room are to be told that there will be none.
    give_up: Option<Instant>,
    note: Option<String>,
    /// Until then nothing is said of back ends that fail: they are called again and again.
    silent_until: Option<Instant>,
    /// The sink had no room: calls of the transmit ring are not listened to.
    blocked: bool,
}

impl VhostInlet {
    pub fn new(
        source: Source,
        retry: (Duration, Duration),
        wanted: Wanted,
        shared: Arc<Shared>,
    ) -> std::io::Result<Self> {
        peer::event::can_tell()?;
        Ok(Self {
            link: Link::Waiting(Instant::now()),
            source,
            shared,
            retry,
            wanted,
            pairs: wanted.pairs,
            pause: retry.0,
            give_up: None,
            note: None,
            silent_until: None,
            blocked: false,
        })
    }

    /// Gets as far towards a session as is possible now.
    fn connect(&mut self) {
        match &self.link {
            Link::Connected(_) => return,
            Link::Waiting(until) if Instant::now() < *until => return,
            Link::Dialing(dialing) => {
                match dialing.take() {
                    None => {}
                    Some(Ok(session)) => self.connected(session),
                    Some(Err(failed)) => {
                        self.shared.tally.add(count::REFUSED, 1);
                        self.say(&format!("no session with the back end: {}", failed.why));
                        // What it said may have been rings, not pairs: the next time with those that were good.
                        self.pairs = match failed.pairs {
                            0 => self.wanted.pairs,
                            good => good,
                        };
                        self.back_off();
                    }
                }
                return;
            }
            Link::Listening | Link::Waiting(_) => {}
        }
        match self.source.attempt() {
            Attempt::Connected(socket) => match Dialing::start(socket, self.wanted()) {
                Ok(dialing) => self.link = Link::Dialing(dialing),
                Err(_) => self.back_off(),
            },
            Attempt::NobodyYet => self.link = Link::Listening,
            Attempt::Failed => self.back_off(),
        }
    }

    /// What the next session is to be.
    fn wanted(&self) -> Wanted {
        let pairs = self.pairs;
        Wanted {
            pairs,
            ..self.wanted
        }
    }

    fn say(&mut self, what: &str) {
        let now = Instant::now();
        if self.silent_until.is_none_or(|until| until <= now) {
            self.note = Some(what.to_owned());
            self.silent_until = Some(now + QUIET);
        }
    }

    fn back_off(&mut self) {
        self.link = Link::Waiting(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(self.retry.1);
    }

    fn connected(&mut self, session: Session) {
        let (mut receives, mut tx_calls, mut outs) = (Vec::new(), Vec::new(), Vec::new());
        for pair in session.pairs {
            receives.push(In::new(pair.rx, session.merges));
            tx_calls.push(Arc::clone(&pair.tx.call));
            outs.push(Out::new(pair.tx, session.caps));
        }
        let begun = receives
            .iter_mut()
            .try_for_each(|receive| receive.begin(&self.shared));
        if begun.is_err() {
            self.shared.tally.add(count::REFUSED, 1);
            self.back_off();
            return;
        }
        let fewer = outs.len() < self.wanted.pairs;
        self.shared.tally.add(count::FEWER_PAIRS, fewer.into());
        self.shared.replace(outs);
        self.shared.tally.add(count::CONNECTS, 1);
        self.pause = self.retry.0;
        self.link = Link::Connected(Box::new(Connected {
            receives,
            client: session.client,
            tx_calls,
            since: Instant::now(),
        }));
    }

    fn disconnect(&mut self) {
        let unsent = self.shared.replace(Vec::new());
        self.shared.tally.add(count::UNSENT, unsent);
        self.shared.tally.add(count::DISCONNECTS, 1);
        if let Link::Connected(connected) = &self.link {
            let lost: usize = connected.receives.iter().map(In::held).sum();
            self.shared.tally.add(count::LOST, lost as u64);
            // Only one that stays is a good one; others are called again more slowly.
            if connected.since.elapsed() > self.retry.1 {
                self.pause = self.retry.0;
            }
        }
        // The next one may have more.
        self.pairs = self.wanted.pairs;
        self.give_up = None;
        self.blocked = false;
        self.back_off();
    }

    /// Takes back transmit buffers for senders that wait. `Err`: a ring is broken.
    fn make_room(&mut self) -> Result<(), Broken> {
        let mut moved = false;
        let mut full_since = None;
        for out in &*self.shared.outs.read() {
            let mut out = out.lock();
            moved |= out.make_room()?;
            let earlier = [full_since, out.full_since].into_iter().flatten().min();
            full_since = earlier;
        }
        self.give_up = full_since.map(|since| since + self.shared.patience);
        let given_up = self.give_up.is_some_and(|end| end <= Instant::now());
        if given_up {
            self.give_up = None;
        }
        if moved || given_up {
            self.shared.waiters.wake_all();
        }
        Ok(())
    }

    fn serve(&mut self, to: &dyn Sink, budget: usize) -> Result<InletStatus, Broken> {
        self.make_room()?;
        let Link::Connected(connected) = &mut self.link else {
            return Ok(InletStatus::Idle);
        };
        let mut all = InletStatus::Idle;
        for receive in &mut connected.receives {
            let status = receive.run(&self.shared, to, budget)?;
            // What waits for room says so for all.
            if all != InletStatus::Blocked && status != InletStatus::Idle {
                all = status;
            }
        }
        Ok(all)
    }
}

impl Connected {
    /// Takes calls, and says whether the back end has left, or says what nobody asked for.
    fn has_left(&self, shared: &Shared) -> bool {
        let rx = self.receives.iter().map(|receive| &receive.side.call);
        let calls = rx.chain(&self.tx_calls);
        let calls = calls.map(|call| peer::event::take(call.as_fd()).min(1 << 32));
        shared.tally.add(count::CALLS, calls.sum());
        let mut fds = [PollFd::new(&self.client, PollFlags::IN | PollFlags::RDHUP)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }
}

impl Inlet for VhostInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        let mut read = |fd: BorrowedFd<'a>| {
            add(Interest {
                fd,
                read: true,
                write: false,
            });
        };
        read(self.shared.bell.as_fd());
        match &self.link {
            Link::Connected(connected) => {
                for receive in &connected.receives {
                    read(receive.side.call.as_fd());
                }
                for call in &connected.tx_calls {
                    read(call.as_fd());
                }
                read(connected.client.as_fd());
            }
            Link::Dialing(dialing) => read(dialing.as_fd()),
            Link::Listening => self.source.listener().into_iter().for_each(read),
            Link::Waiting(_) => {}
        }
    }

    fn kind(&self) -> Kind {
        Kind::Network
    }

    fn peer(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::Connected(connected) => Some(connected.client.as_fd()),
            _ => None,
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let until = match self.link {
            Link::Waiting(until) => Some(until),
            // Output does not wait for the other direction.
            _ if self.blocked => self.give_up.map(|_| Instant::now()),
            _ => self.give_up,
        };
        // One more millisecond, so that waiting is over when we look.
        let left = until?.saturating_duration_since(Instant::now());
        Some(left + Duration::from_millis(1))
    }

    fn link_up(&self) -> bool {
        matches!(self.link, Link::Connected(_))
    }

    fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        self.shared.bell.clear();
        self.connect();
        let Link::Connected(connected) = &self.link else {
            return InletStatus::Idle;
        };
        let left = connected.has_left(&self.shared);
        // What it sent before it left is passed on.
        let served = self.serve(to, budget);
        self.shared
            .tally
            .add(count::BROKEN_RING, served.is_err().into());
        if served.is_err() {
            self.say("the back end has broken a ring; the connection ends");
        }
        self.blocked = served == Ok(InletStatus::Blocked);
        match served {
            Ok(status) if !left => status,
            Ok(InletStatus::More) => InletStatus::More,
            _ => {
                self.disconnect();
                InletStatus::Idle
            }
        }
    }
}
