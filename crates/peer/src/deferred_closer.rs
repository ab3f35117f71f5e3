//! Ends what a peer gave us, where no worker waits for it.
//!
//! To close a descriptor is to run its last owner's code in the kernel, and what a peer sends may
//! be anything: a TCP socket that lingers over unsent data for hours, a file of a FUSE server that
//! does not answer, a Unix socket with more such descriptors in its queue. To unmap a peer's memory
//! may be to free all of it. The thread that serves a peer serves others too, so another one does
//! this, for each server its own: what does not end holds up nothing but its like. Writes to eventfds that take long are
//! made there too.
//!
//! A thread that has ended everything stays for a moment and serves whichever server needs one
//! next: a driver that exchanges its eventfds one by one would make and end a thread for each.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

use guest_mem::quota::Tenant;
use parking_lot::Mutex;

/// Things of one peer that have not ended; a device with more is out of order until they have.
pub const MOST: usize = 2048;

/// How long a thread without work stays.
const STAY: Duration = Duration::from_millis(500);
/// Threads without work that stay.
const MOST_IDLE: usize = 4;

type Thing = Box<dyn Send>;

/// Threads without work, of the whole process. A thread taken out is its taker's alone.
static IDLE: Mutex<Vec<(ThreadId, Sender<DeferredCloser>)>> = Mutex::new(Vec::new());

#[derive(Default)]
struct State {
    waiting: Vec<Thing>,
    /// There is a thread, and it will look again.
    at_work: bool,
    /// All that has not ended, the one being ended included.
    left: usize,
    /// What comes waits until it is let go.
    holds: bool,
    held: Vec<Thing>,
}

/// Ends the things of one server's peers. Clones are the same.
#[derive(Clone, Default)]
pub struct DeferredCloser {
    state: Arc<Mutex<State>>,
    tenant: Option<Arc<Tenant>>,
}

impl DeferredCloser {
    /// What has not ended counts as this tenant's descriptors.
    pub fn of_tenant(tenant: Option<Arc<Tenant>>) -> Self {
        Self {
            state: Arc::default(),
            tenant,
        }
    }

    fn note(&self, one_more: bool) {
        match &self.tenant {
            Some(tenant) if one_more => tenant.descriptors.note(1),
            Some(tenant) => tenant.descriptors.give(1),
            None => {}
        }
    }

    /// The tenant has as many open descriptors as it may have.
    pub fn is_used_up(&self) -> bool {
        let tenant = self.tenant.as_ref();
        tenant.is_some_and(|tenant| tenant.descriptors.is_used_up())
    }

    /// Ends a thing soon, on another thread.
    pub fn bury(&self, thing: impl Send + 'static) {
        self.put(Box::new(thing), true);
    }

    fn put(&self, thing: Thing, may_be_held: bool) {
        self.note(true);
        {
            let mut state = self.state.lock();
            state.left += 1;
            if state.holds && may_be_held {
                state.held.push(thing);
                return;
            }
            state.waiting.push(thing);
            if std::mem::replace(&mut state.at_work, true) {
                return;
            }
        }
        self.begin();
    }

    /// Ends these soon.
    pub fn bury_all(&self, fds: Vec<OwnedFd>) {
        for fd in fds {
            self.bury(fd);
        }
    }

    /// From now on nothing ends before [`Self::let_go`]: the number of a descriptor that is closed may be another's at once, and
    /// who looks for what this process had would take that for it.
    pub fn hold(&self, holds: bool) {
        self.state.lock().holds = holds;
    }

    /// Ends what has come so far.
    pub fn let_go(&self) {
        {
            let mut state = self.state.lock();
            if state.held.is_empty() {
                return;
            }
            let held = std::mem::take(&mut state.held);
            state.waiting.extend(held);
            if std::mem::replace(&mut state.at_work, true) {
                return;
            }
        }
        self.begin();
    }

    /// Has a thread do it.
    fn begin(&self) {
        let idle = IDLE.lock().pop();
        if idle.is_some_and(|(_, idle)| idle.send(self.clone()).is_ok()) {
            return;
        }
        let this = self.clone();
        if threads::spawn("deferred_closer", move || this.serve()).is_err() {
            // Better late than never.
            self.work();
        }
    }

    /// The life of a thread: one server's work after the other.
    fn serve(self) {
        let me = std::thread::current().id();
        let mut next = self;
        loop {
            next.work();
            let (ours, calls) = channel();
            {
                let mut idle = IDLE.lock();
                if idle.len() >= MOST_IDLE {
                    return;
                }
                idle.push((me, ours));
            }
            // It belongs to no server meanwhile: a server's last things end with it.
            drop(next);
            let called = calls.recv_timeout(STAY).or_else(|_| {
                let mut idle = IDLE.lock();
                let place = idle.iter().position(|(thread, _)| *thread == me);
                let forgotten = place.map(|place| idle.swap_remove(place));
                drop(idle);
                // The server that has taken it out meanwhile is about to call.
                drop(forgotten);
                calls.recv()
            });
            match called {
                Ok(deferred_closer) => next = deferred_closer,
                Err(_) => return,
            }
        }
    }

    fn work(&self) {
        loop {
            let things = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    state.at_work = false;
                    return;
                }
                std::mem::take(&mut state.waiting)
            };
            for thing in things {
                drop(thing);
                self.state.lock().left -= 1;
                self.note(false);
            }
        }
    }

    /// Things that have not ended.
    pub fn left(&self) -> usize {
        self.state.lock().left
    }
}

/// A descriptor that came from a peer.
pub struct PeerFd {
    fd: Option<OwnedFd>,
    deferred_closer: DeferredCloser,
}

impl PeerFd {
    /// Takes it over: when this is dropped, another thread closes it.
    pub fn new(fd: OwnedFd, deferred_closer: &DeferredCloser) -> Self {
        deferred_closer.note(true);
        Self {
            fd: Some(fd),
            deferred_closer: deferred_closer.clone(),
        }
    }

    /// Does what dropping `work` does, soon, where the descriptor would be closed. It is not held: it closes nothing, and an
    /// interrupt may be in it that nothing else would bring.
    pub fn later(&self, work: impl Send + 'static) {
        self.deferred_closer.put(Box::new(work), false);
    }
}

impl AsFd for PeerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref().expect("taken by drop only");
        fd.as_fd()
    }
}

impl Drop for PeerFd {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.deferred_closer.bury(fd);
            self.deferred_closer.note(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Ends when it is told to.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn a_thread_serves_one_server_after_the_other_and_none_waits_for_another() {
        // More servers than threads may stay, each with something that lasts, then all again.
        for _ in 0..50 {
            let closers: Vec<_> = (0..2 * MOST_IDLE)
                .map(|_| {
                    let (deferred_closer, (go, wait)) =
                        (DeferredCloser::default(), mpsc::channel());
                    deferred_closer.bury(Slow(wait));
                    (deferred_closer, go)
                })
                .collect();
            for (deferred_closer, go) in closers.into_iter().rev() {
                assert_eq!(deferred_closer.left(), 1);
                go.send(()).expect("it waits");
                while deferred_closer.left() > 0 {
                    std::thread::yield_now();
                }
            }
            assert!(IDLE.lock().len() <= MOST_IDLE);
        }
    }

    #[test]
    fn what_is_to_be_done_is_not_held_with_what_is_to_be_closed() {
        struct Done(mpsc::Sender<()>);
        impl Drop for Done {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let deferred_closer = DeferredCloser::default();
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        let fd = PeerFd::new(write, &deferred_closer);
        deferred_closer.hold(true);
        let (done, is_done) = mpsc::channel();
        fd.later(Done(done));
        let long = Duration::from_secs(60);
        is_done.recv_timeout(long).expect("an interrupt is raised");
        drop(fd);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(deferred_closer.left(), 1, "it is not closed yet");
        deferred_closer.let_go();
        assert_eq!(rustix::io::read(&read, &mut [0u8; 1]), Ok(0));
    }

    #[test]
    fn a_thread_without_work_holds_on_to_nothing() {
        let deferred_closer = DeferredCloser::default();
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        deferred_closer.bury((read, write));
        while deferred_closer.left() > 0 || Arc::strong_count(&deferred_closer.state) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_does_not_end_holds_up_nobody_and_the_rest_ends_after_it() {
        let deferred_closer = DeferredCloser::default();
        let (go, wait) = mpsc::channel();
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        deferred_closer.bury(Slow(wait));
        drop(PeerFd::new(write, &deferred_closer));
        assert_eq!(deferred_closer.left(), 2);
        go.send(()).expect("it waits");
        // The end of the last writer.
        assert_eq!(rustix::io::read(&read, &mut [0u8; 1]), Ok(0));
        while deferred_closer.left() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
