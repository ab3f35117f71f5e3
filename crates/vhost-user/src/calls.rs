//! How a device calls its driver.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use peer::PeerFd;
use peer::poke;
use peer::signal::{Line, SLOW, Signaller, count};

#[derive(Default)]
struct Slot {
    call: Option<Arc<Line>>,
    err: Option<Arc<Line>>,
    /// A call that no eventfd was there for.
    pending: bool,
    /// The driver polls.
    polled: bool,
}

struct Shared {
    slots: Box<[Mutex<Slot>]>,
    signaller: Signaller,
}

/// A device's calls to its driver, one eventfd for each ring. Clones are the same; any thread may
/// call.
///
/// One call is one write to an eventfd, which never waits for the front end. Whether the driver wants
/// to be called is the device's question: the ring says so.
#[derive(Clone)]
pub struct Calls(Arc<Shared>);

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls")
            .field("queues", &self.0.slots.len())
            .finish_non_exhaustive()
    }
}

impl Calls {
    pub(crate) fn new(queues: usize) -> Self {
        poke::prepare();
        Self(Arc::new(Shared {
            slots: (0..queues).map(|_| Mutex::default()).collect(),
            signaller: Signaller::new(SLOW),
        }))
    }

    /// Tells the driver that a ring has something for it. Without an eventfd the call waits for one,
    /// unless the driver polls.
    pub fn call(&self, queue: u16) {
        let Some(slot) = self.0.slots.get(usize::from(queue)) else {
            return;
        };
        let mut slot = slot.lock();
        match &slot.call {
            Some(line) => self.0.signaller.signal(line),
            None if !slot.polled => {
                if !slot.pending {
                    count(&self.0.signaller.latched);
                }
                slot.pending = true;
            }
            None => {}
        }
    }

    /// Tells the front end that a ring is broken.
    pub fn error(&self, queue: u16) {
        if let Some(slot) = self.0.slots.get(usize::from(queue))
            && let Some(line) = &slot.lock().err
        {
            self.0.signaller.signal(line);
        }
    }

    /// The eventfd of a ring, or that its driver polls.
    pub(crate) fn set_call(&self, queue: u16, fd: Option<PeerFd>) {
        let mut slot = self.0.slots[usize::from(queue)].lock();
        take_back(&mut slot.call);
        slot.polled = fd.is_none();
        let pending = std::mem::take(&mut slot.pending);
        if let Some(fd) = fd {
            let line = slot.call.insert(Line::new(fd));
            if pending {
                self.0.signaller.signal(line);
            }
        }
    }

    /// The eventfd that says that a ring is broken.
    pub(crate) fn set_err(&self, queue: u16, fd: Option<PeerFd>) {
        let mut slot = self.0.slots[usize::from(queue)].lock();
        take_back(&mut slot.err);
        slot.err = fd.map(Line::new);
    }

    /// A ring has ended: nothing is called any more, and its eventfds go.
    pub(crate) fn forget(&self, queue: u16) {
        let mut slot = self.0.slots[usize::from(queue)].lock();
        take_back(&mut slot.call);
        take_back(&mut slot.err);
        *slot = Slot::default();
    }

    pub(crate) fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let s = &self.0.signaller;
        visit("calls", load(&s.triggers));
        visit("calls_suppressed", load(&s.suppressed));
        visit("calls_latched", load(&s.latched));
        visit("calls_failed", load(&s.failed));
        visit("calls_deferred", load(&s.deferred));
    }
}

fn take_back(line: &mut Option<Arc<Line>>) {
    if let Some(line) = line.take() {
        line.take_back();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use peer::{DeferredCloser, EventFd};

    use super::*;

    fn fd(event: &EventFd) -> Option<PeerFd> {
        let fd = event.as_fd().try_clone_to_owned().expect("a descriptor");
        Some(PeerFd::new(fd, &DeferredCloser::default()))
    }

    #[test]
    fn a_call_waits_for_its_eventfd_unless_the_driver_polls() {
        let (calls, event) = (Calls::new(2), EventFd::new().expect("an eventfd"));
        calls.call(1);
        calls.call(1);
        calls.set_call(1, fd(&event));
        assert_eq!(event.take(), 1, "two that waited are one");
        calls.call(1);
        assert_eq!(event.take(), 1);
        calls.set_call(1, None);
        calls.call(1);
        calls.set_call(1, fd(&event));
        assert_eq!(event.take(), 0, "it polled");
        calls.forget(1);
        calls.call(1);
        calls.error(1);
        assert_eq!(event.take(), 0);
        calls.call(2);
        calls.error(99);
    }

    #[test]
    fn a_broken_ring_is_told_by_its_own_eventfd() {
        let (calls, event) = (Calls::new(1), EventFd::new().expect("an eventfd"));
        calls.error(0);
        calls.set_err(0, fd(&event));
        assert_eq!(event.take(), 0);
        calls.error(0);
        assert_eq!(event.take(), 1);
    }
}
