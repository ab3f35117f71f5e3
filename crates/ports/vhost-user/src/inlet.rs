//! The way in, and the life of the connection.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frame::Sink;
use peer::EventFd;
use port::{Inlet, InletStatus, Interest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost_user::Client;

use crate::count;
use crate::dial::{Attempt, Dialing, Source};
use crate::receive::In;
use crate::ring::Broken;
use crate::session::Session;
use crate::shared::{Out, Shared};

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
    receive: In,
    client: Client,
    /// The transmit ring's.
    tx_call: Arc<EventFd>,
    since: Instant,
}

pub struct VhostInlet {
    link: Link,
    source: Source,
    shared: Arc<Shared>,
    retry: (Duration, Duration),
    /// The next pause.
    pause: Duration,
    /// When senders that wait for room are to be told that there will be none.
    give_up: Option<Instant>,
    /// The sink had no room: calls of the transmit ring are not listened to.
    blocked: bool,
}

impl VhostInlet {
    pub fn new(
        source: Source,
        retry: (Duration, Duration),
        shared: Arc<Shared>,
    ) -> std::io::Result<Self> {
        peer::event::can_tell()?;
        Ok(Self {
            link: Link::Waiting(Instant::now()),
            source,
            shared,
            retry,
            pause: retry.0,
            give_up: None,
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
                    Some(Err(_)) => {
                        self.shared.tally.add(count::REFUSED, 1);
                        self.back_off();
                    }
                }
                return;
            }
            Link::Listening | Link::Waiting(_) => {}
        }
        match self.source.attempt() {
            Attempt::Connected(socket) => match Dialing::start(socket) {
                Ok(dialing) => self.link = Link::Dialing(dialing),
                Err(_) => self.back_off(),
            },
            Attempt::NobodyYet => self.link = Link::Listening,
            Attempt::Failed => self.back_off(),
        }
    }

    fn back_off(&mut self) {
        self.link = Link::Waiting(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(self.retry.1);
    }

    fn connected(&mut self, session: Session) {
        let mut receive = In::new(session.rx, session.merges);
        if receive.begin(&self.shared).is_err() {
            self.shared.tally.add(count::REFUSED, 1);
            self.back_off();
            return;
        }
        let tx_call = Arc::clone(&session.tx.call);
        self.shared
            .replace(Some(Out::new(session.tx, session.caps)));
        self.shared.tally.add(count::CONNECTS, 1);
        self.pause = self.retry.0;
        self.link = Link::Connected(Box::new(Connected {
            receive,
            client: session.client,
            tx_call,
            since: Instant::now(),
        }));
    }

    fn disconnect(&mut self) {
        let unsent = self.shared.replace(None);
        self.shared.tally.add(count::UNSENT, unsent);
        self.shared.tally.add(count::DISCONNECTS, 1);
        if let Link::Connected(connected) = &self.link {
            let lost = connected.receive.held() as u64;
            self.shared.tally.add(count::LOST, lost);
            // Only one that stays is a good one; others are called again more slowly.
            if connected.since.elapsed() > self.retry.1 {
                self.pause = self.retry.0;
            }
        }
        self.give_up = None;
        self.blocked = false;
        self.back_off();
    }

    /// Takes back transmit buffers for senders that wait. `Err`: the ring is broken.
    fn make_room(&mut self) -> Result<(), Broken> {
        let mut slot = self.shared.out.lock();
        let Some(out) = &mut *slot else {
            return Ok(());
        };
        if out.broken {
            return Err(Broken);
        }
        if out.full_since.is_none() {
            self.give_up = None;
            return Ok(());
        }
        let memory = out.side.memory.clone();
        let view = memory.view();
        let moved = out.reap(&view)?;
        if moved {
            out.side.ring.no_call(&view)?;
        }
        drop(view);
        self.give_up = out.full_since.map(|since| since + self.shared.patience);
        drop(slot);
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
        connected.receive.run(&self.shared, to, budget)
    }
}

impl Connected {
    /// Takes calls, and says whether the back end has left, or says what nobody asked for.
    fn has_left(&self, shared: &Shared) -> bool {
        let calls = peer::event::take(self.receive.side.call.as_fd());
        let calls = calls + peer::event::take(self.tx_call.as_fd());
        shared.tally.add(count::CALLS, calls.min(1 << 32));
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
                read(connected.receive.side.call.as_fd());
                read(connected.tx_call.as_fd());
                read(connected.client.as_fd());
            }
            Link::Dialing(dialing) => read(dialing.as_fd()),
            Link::Listening => self.source.listener().into_iter().for_each(read),
            Link::Waiting(_) => {}
        }
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
