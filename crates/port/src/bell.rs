//! Waking a thread that waits in `poll`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use frame::Wake;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::sync::{AtomicBool, Ordering};

/// Whether a thread has rung: the rule of a [`Bell`] without its descriptor.
///
/// A ringer sets the flag; the one that changes it from clear to set signals. The sleeper takes the
/// signal first and the flag after it. `make loom` tries all orders of these steps.
#[derive(Debug, Default)]
pub struct Rung(AtomicBool);

impl Rung {
    /// Not rung.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Rings: `signal` wakes the sleeper, and is left out where a signal is under way already.
    pub fn ring(&self, signal: impl FnOnce()) {
        if !self.0.swap(true, Ordering::AcqRel) {
            signal();
        }
    }

    /// Silences it; says whether it rang. `take` takes the signal and says whether there was one.
    /// Look for work *after* this call.
    pub fn clear(&self, take: impl FnOnce() -> bool) -> bool {
        if !self.0.load(Ordering::Acquire) {
            return false;
        }
        if !take() {
            // Another thread is between setting the flag and signalling. The signal will wake us once
            // more; until then the flag has to stay, or that wake would find nothing to clear.
            return true;
        }
        // Only after the signal was taken: a ring between the two would be taken with it and then
        // thought to be pending for ever.
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// An eventfd that one thread waits for and any thread rings.
///
/// Ringing a bell that already rings is one atomic operation, so a busy receiver costs its senders
/// no system call.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    rung: Rung,
    syscalls: AtomicU64,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: threads::apart(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?,
            rung: Rung::new(),
            syscalls: AtomicU64::new(0),
        })
    }

    /// Makes the descriptor readable until [`Bell::clear`].
    pub fn ring(&self) {
        self.rung.ring(|| {
            self.syscalls.fetch_add(1, Ordering::Relaxed);
            // A full counter (EAGAIN) is readable too, which is all that is wanted.
            let _ = rustix::io::writev(&self.fd, &[IoSlice::new(&1u64.to_ne_bytes())]);
        });
    }

    /// Silences it; says whether it rang. Look for work *after* this call: what was queued before
    /// a ring that came too early for `clear` is there by then.
    pub fn clear(&self) -> bool {
        self.rung.clear(|| {
            self.syscalls.fetch_add(1, Ordering::Relaxed);
            let mut count = [0; 8];
            let mut into = [IoSliceMut::new(&mut count)];
            // From where the descriptor stands, by the call that a port's thread reads all by.
            preadv2(&self.fd, &mut into, u64::MAX, ReadWriteFlags::empty()).is_ok()
        })
    }

    /// System calls made so far.
    pub fn syscalls(&self) -> u64 {
        self.syscalls.load(Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(&self) {
        self.ring();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(bell: &Bell) -> bool {
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("poll") == 1
    }

    #[test]
    fn rings_once_however_often_it_is_rung() {
        let bell = Bell::new().expect("eventfd");
        assert!(!readable(&bell) && !bell.clear());
        bell.ring();
        bell.ring();
        assert_eq!(bell.syscalls(), 1);
        assert!(readable(&bell));
        assert!(bell.clear() && !readable(&bell) && !bell.clear());
        bell.ring();
        assert!(readable(&bell));
    }

    #[test]
    fn no_ring_is_lost_between_two_threads() {
        let bell = Bell::new().expect("eventfd");
        let sent = AtomicU64::new(0);
        const ROUNDS: u64 = 20_000;
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..ROUNDS {
                    sent.fetch_add(1, Ordering::Release);
                    bell.ring();
                }
            });
            while sent.load(Ordering::Acquire) < ROUNDS {
                let mut fds = [PollFd::new(&bell, PollFlags::IN)];
                let patience = Timespec {
                    tv_sec: 20,
                    tv_nsec: 0,
                };
                let n = poll(&mut fds, Some(&patience)).expect("poll");
                assert!(
                    n == 1 || sent.load(Ordering::Acquire) == ROUNDS,
                    "a ring was lost"
                );
                bell.clear();
            }
        });
    }
}
