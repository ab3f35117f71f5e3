//! A clock moved by hand, and a timer that is held.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use model::{Clock, Nanos, Timer};

/// A clock that only its owner moves, and the deadline of one NIC.
#[derive(Debug, Default)]
pub struct Time {
    /// Now.
    pub now: AtomicU64,
    deadline: Mutex<Option<Nanos>>,
}

impl Time {
    /// A clock that shows `now`, without a deadline.
    pub fn at(now: Nanos) -> Self {
        Self {
            now: AtomicU64::new(now),
            deadline: Mutex::default(),
        }
    }

    /// The deadline, if one is armed.
    pub fn deadline(&self) -> Option<Nanos> {
        *self.deadline.lock().expect("deadline")
    }

    /// Whether a deadline has come by `now`; it is then armed no longer.
    pub fn take_due(&self, now: Nanos) -> bool {
        let mut deadline = self.deadline.lock().expect("deadline");
        let due = deadline.is_some_and(|at| at <= now);
        if due {
            *deadline = None;
        }
        due
    }

    /// Moves the clock to the next deadline if there is one up to `end`, else to `end`. True: a deadline
    /// has come, and the caller ticks its model and calls again.
    pub fn step_to(&self, end: Nanos) -> bool {
        let stop = self.deadline().filter(|at| *at <= end);
        let due = stop.is_some_and(|at| self.take_due(at));
        let now = stop.filter(|_| due).unwrap_or(end);
        self.now.fetch_max(now, SeqCst);
        due
    }
}

impl Clock for Time {
    fn now(&self) -> Nanos {
        self.now.load(SeqCst)
    }
}

impl Timer for Time {
    fn arm(&self, deadline: Option<Nanos>) {
        *self.deadline.lock().expect("deadline") = deadline;
    }
}
