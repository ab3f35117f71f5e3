//! Writes to a client's eventfds, and who makes them.
//!
//! The kernel wakes all that wait for an eventfd within the write, and a client may have any number of them wait: a
//! quarter of a million take 40 ms of the thread that raises the interrupt, which serves other clients too. So a client
//! whose eventfds are slow gets its interrupts from another thread for a while, several of one vector as one.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::deferred_closer::PeerFd;
use crate::poke::{poke, poke_slowly};

/// What a write may take. It takes some microseconds; but the thread may be interrupted, so twice in a row is slow.
pub const SLOW: Duration = Duration::from_millis(1);
const IN_A_ROW: u32 = 2;
/// How long another thread does it, at first. The time doubles for a client that is found slow again.
const AWAY: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 8;

/// The eventfd of a vector.
pub struct Line {
    fd: PeerFd,
    /// Another thread is about to write to it.
    queued: AtomicBool,
    /// The client has taken it back.
    gone: AtomicBool,
}

impl Line {
    /// A descriptor that [`adopt`](crate::event::adopt) has let pass.
    pub fn new(fd: PeerFd) -> Arc<Self> {
        Arc::new(Self {
            fd,
            queued: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    /// The eventfd.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What is not written yet never will be.
    pub fn take_back(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

/// A write that is made when this is dropped.
struct Write(Arc<Line>);

impl Drop for Write {
    fn drop(&mut self) {
        // Before the write: a trigger that comes meanwhile gets a write of its own.
        self.0.queued.store(false, Ordering::Release);
        if !self.0.gone.load(Ordering::Acquire) {
            let _ = poke_slowly(self.0.fd.as_fd());
        }
    }
}

/// Writes to the eventfds of one device's clients, and counts.
pub struct Signaller {
    slow: Duration,
    began: Instant,
    /// Nanoseconds since then, until which another thread writes.
    away_until: AtomicU64,
    in_a_row: AtomicU32,
    /// Times the client was found slow, one after the other.
    found: AtomicU32,
    /// Writes made.
    pub triggers: AtomicU64,
    /// Writes that found the count at its most.
    pub suppressed: AtomicU64,
    /// For the owner: interrupts that waited because nothing was armed.
    pub latched: AtomicU64,
    /// Writes that failed.
    pub failed: AtomicU64,
    /// Interrupts that another thread was asked to raise.
    pub deferred: AtomicU64,
}

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Signaller {
    /// `slow` is what a write may take.
    pub fn new(slow: Duration) -> Self {
        Self {
            slow,
            began: Instant::now(),
            away_until: AtomicU64::new(0),
            in_a_row: AtomicU32::new(0),
            found: AtomicU32::new(0),
            triggers: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
            latched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
        }
    }

    /// Raises an interrupt, now or soon.
    pub fn signal(&self, line: &Arc<Line>) {
        let start = self.began.elapsed();
        if nanos(start) < self.away_until.load(Ordering::Relaxed) {
            count(&self.deferred);
            if !line.queued.swap(true, Ordering::AcqRel) {
                line.fd.later(Write(Arc::clone(line)));
            }
            return;
        }
        self.write(line.fd.as_fd());
        let end = self.began.elapsed();
        if end - start <= self.slow {
            if self.in_a_row.load(Ordering::Relaxed) != 0 {
                self.in_a_row.store(0, Ordering::Relaxed);
            }
        } else if self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= IN_A_ROW {
            self.send_away(end);
        }
    }

    fn write(&self, fd: BorrowedFd<'_>) {
        match poke(fd) {
            Ok(()) => count(&self.triggers),
            // Its counter is full: the client has not looked at it for 2^64 triggers.
            Err(Errno::AGAIN) => count(&self.suppressed),
            Err(_) => count(&self.failed),
        }
    }

    #[cold]
    fn send_away(&self, now: Duration) {
        self.in_a_row.store(0, Ordering::Relaxed);
        let before = Duration::from_nanos(self.away_until.load(Ordering::Relaxed));
        let last = self.found.load(Ordering::Relaxed);
        // A client that behaved for as long as it was away starts anew.
        let again = !before.is_zero() && now < before + away(last);
        let found = if again { last + 1 } else { 0 };
        self.found.store(found, Ordering::Relaxed);
        let until = now + away(found);
        self.away_until.store(nanos(until), Ordering::Relaxed);
    }
}

fn away(found: u32) -> Duration {
    AWAY * (1 << found.min(MOST_DOUBLINGS))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventFd;
    use crate::deferred_closer::DeferredCloser;

    fn line(event: &EventFd) -> Arc<Line> {
        let fd = event.as_fd().try_clone_to_owned().expect("a descriptor");
        Line::new(PeerFd::new(fd, &DeferredCloser::default()))
    }

    fn deferred(signaller: &Signaller) -> u64 {
        signaller.deferred.load(Ordering::Relaxed)
    }

    #[test]
    fn slow_eventfds_are_another_threads() {
        let event = EventFd::new().expect("an eventfd");
        let line = line(&event);
        let signaller = Signaller::new(Duration::ZERO);
        for n in 0..u64::from(IN_A_ROW) {
            signaller.signal(&line);
            assert_eq!((event.take(), deferred(&signaller)), (1, 0), "{n}");
        }
        for n in 1..=3 {
            signaller.signal(&line);
            assert_eq!(deferred(&signaller), n);
            assert!(event.wait(Duration::from_secs(20)).is_some());
        }
    }

    #[test]
    fn what_is_taken_back_is_not_written_to() {
        let event = EventFd::new().expect("an eventfd");
        let line = line(&event);
        line.take_back();
        drop(Write(line));
        assert_eq!(event.take(), 0);
    }

    #[test]
    fn one_slow_write_is_an_accident_and_many_are_a_habit() {
        let event = EventFd::new().expect("an eventfd");
        let line = line(&event);
        let quick = Signaller::new(Duration::from_secs(60));
        for _ in 0..1000 {
            quick.in_a_row.store(IN_A_ROW - 1, Ordering::Relaxed);
            quick.signal(&line);
        }
        assert_eq!(deferred(&quick), 0);
        let second = Duration::from_secs(1);
        let until = |s: &Signaller| Duration::from_nanos(s.away_until.load(Ordering::Relaxed));
        quick.send_away(10 * second);
        assert_eq!(until(&quick), 11 * second);
        quick.send_away(11 * second);
        assert_eq!(until(&quick), 13 * second);
        quick.send_away(14 * second);
        assert_eq!(until(&quick), 18 * second);
        quick.send_away(60 * second);
        assert_eq!(until(&quick), 61 * second);
        for _ in 0..100 {
            quick.send_away(until(&quick));
        }
        assert_eq!(away(100), AWAY * 256);
    }
}
