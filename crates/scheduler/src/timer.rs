//! One deadline per item, and the earliest of a worker's.

use std::collections::BTreeMap;

use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The deadline of one item, in nanoseconds. Any thread may set it.
#[derive(Debug)]
pub struct TaskTimer {
    /// Tells items apart.
    id: u64,
    deadline: AtomicU64,
    /// The time under which the item stands in a worker's list, no later than the deadline; written
    /// under that list's lock.
    noted: AtomicU64,
}

impl TaskTimer {
    /// Not set. `id` must be the item's alone.
    pub fn new(id: u64) -> Self {
        Self {
            id,
            deadline: AtomicU64::new(NEVER),
            noted: AtomicU64::new(NEVER),
        }
    }

    /// Takes a deadline that has come; `true` once for each.
    pub fn take_due(&self, now: u64) -> bool {
        let at = self.deadline.load(Ordering::Acquire);
        at <= now
            && at != NEVER
            && self
                .deadline
                .compare_exchange(at, NEVER, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

/// Whatever has an timer.
pub trait HasTimer {
    /// It.
    fn timer(&self) -> &TaskTimer;
}

/// The timers of one worker.
#[derive(Debug)]
pub struct TimerQueue<T> {
    /// Each item at most once, under a time no later than its deadline: one that has become later
    /// is found out when that time comes.
    list: Mutex<BTreeMap<(u64, u64), T>>,
    /// The first time in the list.
    soonest: AtomicU64,
}

impl<T> Default for TimerQueue<T> {
    fn default() -> Self {
        Self {
            list: Mutex::new(BTreeMap::new()),
            soonest: AtomicU64::new(NEVER),
        }
    }
}

impl<T: HasTimer> TimerQueue<T> {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an item's timer, or calls it off. WakeFlags for one item must not overlap.
    ///
    /// `true`: this is now the worker's first, and the worker is to be told ([`ReadyList::call`]).
    ///
    /// [`ReadyList::call`]: crate::ReadyList::call
    #[must_use]
    pub fn set(&self, item: &T, at: Option<u64>) -> bool
    where
        T: Clone,
    {
        let timer = item.timer();
        let at = at.map_or(NEVER, |at| at.min(NEVER - 1));
        timer.deadline.swap(at, Ordering::AcqRel);
        // Between the deadline and the look at `noted`; the other half is in `due`.
        fence(Ordering::SeqCst);
        if timer.noted.load(Ordering::Relaxed) <= at {
            return false;
        }
        let mut list = lock(&self.list);
        let noted = timer.noted.load(Ordering::Relaxed);
        if noted <= at {
            return false;
        }
        list.remove(&(noted, timer.id));
        list.insert((at, timer.id), item.clone());
        timer.noted.store(at, Ordering::Relaxed);
        let first = at < self.soonest.load(Ordering::Relaxed);
        if first {
            self.soonest.store(at, Ordering::Release);
        }
        first
    }

    /// Appends the items whose deadline may have come; each looks itself ([`TaskTimer::take_due`]).
    pub fn due(&self, now: u64, into: &mut Vec<T>) {
        if self.soonest.load(Ordering::Acquire) > now {
            return;
        }
        let mut list = lock(&self.list);
        while let Some(first) = list.first_entry()
            && first.key().0 <= now
        {
            let ((noted, id), item) = first.remove_entry();
            let timer = item.timer();
            if timer.noted.load(Ordering::Relaxed) != noted {
                // Left behind by an item that has moved to another worker.
                continue;
            }
            timer.noted.store(NEVER, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let at = timer.deadline.load(Ordering::Acquire);
            if at <= now {
                into.push(item);
            } else if at != NEVER {
                timer.noted.store(at, Ordering::Relaxed);
                list.insert((at, id), item);
            }
        }
        let soonest = list.first_key_value().map_or(NEVER, |(key, _)| key.0);
        self.soonest.store(soonest, Ordering::Release);
    }

    /// Forgets an item that goes.
    pub fn forget(&self, item: &T) {
        let timer = item.timer();
        timer.deadline.store(NEVER, Ordering::Release);
        let mut list = lock(&self.list);
        let noted = timer.noted.load(Ordering::Relaxed);
        if list.remove(&(noted, timer.id)).is_some() {
            timer.noted.store(NEVER, Ordering::Relaxed);
        }
        let soonest = list.first_key_value().map_or(NEVER, |(key, _)| key.0);
        self.soonest.store(soonest, Ordering::Release);
    }

    /// When [`due`](Self::due) is to be called next.
    pub fn soonest(&self) -> Option<u64> {
        Some(self.soonest.load(Ordering::Acquire)).filter(|at| *at != NEVER)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Debug)]
    struct Item(Arc<TaskTimer>);

    impl HasTimer for Item {
        fn timer(&self) -> &TaskTimer {
            &self.0
        }
    }

    fn item(id: u64) -> Item {
        Item(Arc::new(TaskTimer::new(id)))
    }

    fn due(timers: &TimerQueue<Item>, now: u64) -> Vec<u64> {
        let mut into = Vec::new();
        timers.due(now, &mut into);
        into.retain(|i| i.0.take_due(now));
        into.iter().map(|i| i.0.id).collect()
    }

    #[test]
    fn deadlines_come_in_order_once_and_can_be_called_off() {
        let timers = TimerQueue::new();
        let items: Vec<_> = (0..4).map(item).collect();
        assert!(timers.set(&items[0], Some(30)));
        assert!(timers.set(&items[1], Some(10)));
        assert!(!timers.set(&items[2], Some(20)));
        assert!(!timers.set(&items[3], Some(20)));
        assert!(!timers.set(&items[2], None));
        assert_eq!(due(&timers, 9), []);
        assert_eq!(due(&timers, 20), [1, 3]);
        assert_eq!(timers.soonest(), Some(30));
        timers.forget(&items[0]);
        assert_eq!(timers.soonest(), None);
        assert_eq!(due(&timers, 1000), []);
    }

    #[test]
    fn a_later_deadline_moves_nothing_until_the_old_one_comes() {
        let timers = TimerQueue::new();
        let one = item(1);
        assert!(timers.set(&one, Some(10)));
        for at in 11..1000 {
            assert!(!timers.set(&one, Some(at)));
        }
        assert_eq!(timers.soonest(), Some(10));
        assert_eq!(due(&timers, 500), []);
        assert_eq!(timers.soonest(), Some(999));
        assert_eq!(due(&timers, 999), [1]);
    }

    #[test]
    fn an_item_stands_there_at_most_once_whatever_is_set() {
        let timers = TimerQueue::new();
        let one = item(1);
        for round in 0..1000u64 {
            let _ = timers.set(&one, Some(1_000_000 + round));
            let _ = timers.set(&one, Some(round));
            due(&timers, round);
            assert!(lock(&timers.list).len() <= 1);
        }
    }

    #[test]
    fn an_item_that_moved_is_due_with_its_new_worker_only() {
        let (old, new) = (TimerQueue::new(), TimerQueue::new());
        let one = item(1);
        assert!(old.set(&one, Some(50)));
        assert!(new.set(&one, Some(20)));
        assert_eq!(due(&new, 20), [1]);
        assert!(new.set(&one, Some(60)));
        assert_eq!(due(&old, 50), []);
        assert_eq!(due(&new, 60), [1]);
    }
}
