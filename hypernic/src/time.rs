//! The real clock, and the timer a worker sleeps by.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use model::{Clock, Nanos};
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// The clock of a switch: in a worker's turn, when that began, by the reading that the worker has made anyway.
pub(crate) fn of_turns(clock: Arc<dyn Clock>) -> Arc<dyn Fn() -> Nanos + Send + Sync> {
    Arc::new(move || frame::turn::began().unwrap_or_else(|| clock.now()))
}

/// A timerfd that a worker waits for.
#[derive(Debug)]
pub(crate) struct TimerFd {
    fd: OwnedFd,
    /// What is armed now, so that arming the same again costs no system call.
    armed: Option<Nanos>,
    calls: u64,
}

/// Reads an eventfd or a timer of ours; `true` when there was something. It is the call by which a worker reads others'
/// eventfds too: it may make no other.
pub(crate) fn take(fd: BorrowedFd<'_>) -> bool {
    let mut count = [0; 8];
    let mut into = [IoSliceMut::new(&mut count)];
    // From where the descriptor stands.
    preadv2(fd, &mut into, u64::MAX, ReadWriteFlags::empty()).is_ok()
}

impl TimerFd {
    /// A timer that is not armed.
    ///
    /// # Errors
    /// When the host has no descriptor left.
    pub fn new() -> rustix::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self {
            fd,
            armed: None,
            calls: 0,
        })
    }

    /// Takes an expiry; `true` when the deadline has come.
    pub fn expired(&mut self) -> bool {
        self.calls += 1;
        let gone = take(self.fd.as_fd());
        if gone {
            self.armed = None;
        }
        gone
    }

    /// Makes the descriptor readable at `deadline`; `None` calls it off.
    pub fn arm(&mut self, deadline: Option<Nanos>) {
        if self.armed == deadline {
            return;
        }
        self.armed = deadline;
        self.calls += 1;
        // Zero disarms, so a deadline at the epoch becomes its first nanosecond.
        let nanos = deadline.map_or(0, |d| d.max(1));
        let it_value = Timespec {
            tv_sec: (nanos / 1_000_000_000).min(i64::MAX as u64) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let it_interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = Itimerspec {
            it_interval,
            it_value,
        };
        // Only a bad descriptor or a bad time could fail, and both are ours.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec);
    }

    /// System calls made so far.
    pub fn syscalls(&self) -> u64 {
        self.calls
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn readable(timer: &TimerFd, seconds: i64) -> bool {
        let mut fds = [PollFd::new(timer, PollFlags::IN)];
        let wait = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&wait)).expect("poll") == 1
    }

    #[test]
    fn a_deadline_comes_once_and_can_be_called_off() {
        let mut timer = TimerFd::new().expect("timer");
        timer.arm(Some(MonotonicClock.now()));
        assert!(readable(&timer, 10));
        assert!(timer.expired());
        assert!(!timer.expired());
        timer.arm(Some(MonotonicClock.now() + 3_600_000_000_000));
        let calls = timer.syscalls();
        timer.arm(None);
        timer.arm(None);
        assert_eq!(timer.syscalls(), calls + 1, "arming the same again is free");
        assert!(!readable(&timer, 0));
    }
}
