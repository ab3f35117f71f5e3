//! The thread side: libslirp, its sockets, and what it has to say to the guests.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frame::Sink;
use port::{Inlet, InletStatus, Interest, Kind};

use crate::count;
use crate::flows::Flows;
use crate::poller::Poller;
use crate::queue::{Queue, UserQueue};
use crate::sys::Stack;

/// libslirp names this when it has no timer running.
const NO_TIMER: u32 = 1000;
/// Look in now and then all the same.
const IDLE: Duration = Duration::from_secs(30);

pub struct UserInlet {
    stack: Stack,
    poller: Poller,
    shared: Arc<UserQueue>,
    /// Our half of the queue; swapped with the senders'.
    taken: Queue,
    flows: Flows,
    /// What libslirp said last.
    timeout_ms: u32,
}

impl UserInlet {
    pub fn new(mut stack: Stack, shared: Arc<UserQueue>, mut flows: Flows) -> io::Result<Self> {
        let mut poller = Poller::new()?;
        let timeout_ms = poller.follow(&mut stack, &mut |change| flows.changed(change, None));
        Ok(Self {
            stack,
            poller,
            shared,
            taken: Queue::default(),
            flows,
            timeout_ms,
        })
    }

    /// Whether everything for the guests has been taken.
    fn flush(&mut self, to: &dyn Sink) -> bool {
        let out = self.stack.out();
        let done = out.flush(to);
        let empty = out.is_empty();
        let tally = &self.shared.tally;
        tally.add(count::FRAMES_IN, done.frames);
        tally.add(count::BYTES_IN, done.bytes);
        tally.add(count::SINK_CANNOT_TAKE, done.unfinished);
        self.shared.stalled.store(!empty, Ordering::Release);
        empty
    }

    /// Gives libslirp what the guests sent.
    fn take_from_guests(&mut self) {
        self.shared.bell.clear();
        self.taken.bytes.clear();
        self.taken.lens.clear();
        std::mem::swap(&mut *self.shared.queue.lock(), &mut self.taken);
        self.shared.waiters.wake_all();
        let mut rest = &self.taken.bytes[..];
        for &len in &self.taken.lens {
            let (frame, behind) = rest.split_at(len.into());
            rest = behind;
            let by = match self.flows.admit(frame) {
                Ok(by) => by,
                Err(refused) => {
                    self.shared.tally.add(refused as usize, 1);
                    continue;
                }
            };
            self.stack.input(frame);
            let (poller, flows) = (&mut self.poller, &mut self.flows);
            self.stack.take_changes(&mut |change| {
                poller.forget(change.fd());
                flows.changed(change, Some(by));
            });
        }
    }

    /// Follows what libslirp opened and closed by itself, and what it waits for.
    fn follow(&mut self) {
        let flows = &mut self.flows;
        let changed = &mut |change| flows.changed(change, None);
        self.timeout_ms = self.poller.follow(&mut self.stack, changed);
    }
}

impl Inlet for UserInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        for fd in [self.shared.bell.as_fd(), self.poller.as_fd()] {
            add(Interest {
                fd,
                read: true,
                write: false,
            });
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.shared.stalled.load(Ordering::Acquire) {
            // libslirp is left alone until its frames are taken.
            return Some(IDLE);
        }
        let socket_timers = match self.timeout_ms {
            NO_TIMER.. => IDLE,
            ms => Duration::from_millis(ms.into()),
        };
        let timer = self.stack.next_timer().map(Duration::from_millis);
        Some(timer.map_or(socket_timers, |t| t.min(socket_timers)))
    }

    fn kind(&self) -> Kind {
        Kind::Network
    }

    fn run(&mut self, to: &dyn Sink, _: usize) -> InletStatus {
        // While the guests take nothing, nothing is read from the host either: its senders wait.
        if !self.flush(to) {
            return InletStatus::Blocked;
        }
        self.stack.run_timers();
        self.stack.poll(self.poller.ready());
        self.take_from_guests();
        self.follow();
        let (dropped, errors) = self.stack.take_counts();
        let tally = &self.shared.tally;
        tally.add(count::OUT_FULL, dropped);
        tally.add(count::GUEST_ERRORS, errors);
        tally.add(count::SYSCALLS, std::mem::take(&mut self.poller.syscalls));
        if self.flush(to) {
            InletStatus::Idle
        } else {
            InletStatus::Blocked
        }
    }
}

impl Drop for UserInlet {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.waiters.wake_all();
    }
}
