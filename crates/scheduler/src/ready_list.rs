//! The items that want a turn, and their worker's sleep.

use crate::sync::{AtomicBool, Mutex, Ordering, fence, lock};

/// The list of one worker.
#[derive(Debug)]
pub struct ReadyList<T> {
    list: Mutex<Vec<T>>,
    /// The list is not empty. Changed under its lock only.
    some: AtomicBool,
    asleep: AtomicBool,
}

impl<T> Default for ReadyList<T> {
    fn default() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            some: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        }
    }
}

impl<T> ReadyList<T> {
    /// No item is listed, and the worker is awake.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists an item. `true`: the worker sleeps, and the caller must wake it.
    #[must_use]
    pub fn add(&self, item: T) -> bool {
        {
            let mut list = lock(&self.list);
            list.push(item);
            self.some.store(true, Ordering::Release);
        }
        self.call()
    }

    /// To be called after anything else was changed that the worker looks at before it sleeps.
    /// `true`: the worker sleeps, and the caller must wake it.
    #[must_use]
    pub fn call(&self) -> bool {
        // Between what was changed and the look at `asleep`: the other half is in `doze`.
        fence(Ordering::SeqCst);
        // Of many callers one wakes.
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel)
    }

    /// Moves what is listed to the end of `into`. For the worker alone.
    pub fn take(&self, into: &mut Vec<T>) {
        if !self.some.load(Ordering::Acquire) {
            return;
        }
        let mut list = lock(&self.list);
        self.some.store(false, Ordering::Relaxed);
        into.append(&mut list);
    }

    /// The worker is about to sleep. It may (`true`) when nothing is listed and `idle`, which looks
    /// at everything else that a [`call`](Self::call) can be about, says so too.
    pub fn doze(&self, idle: impl FnOnce() -> bool) -> bool {
        // A swap and not a store: it stands after a caller's swap that came before it in one order
        // for all, and not only in this thread's.
        self.asleep.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let may = !self.some.load(Ordering::Relaxed) && idle();
        if !may {
            self.rise();
        }
        may
    }

    /// The worker is awake again, whatever woke it.
    pub fn rise(&self) {
        self.asleep.swap(false, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken_once_and_one_awake_never() {
        let ready_list = ReadyList::new();
        assert!(!ready_list.add(1));
        assert!(!ready_list.doze(|| true), "something is listed");
        let mut got = Vec::new();
        ready_list.take(&mut got);
        assert_eq!(got, [1]);
        assert!(!ready_list.doze(|| false), "something else is there");
        assert!(!ready_list.call(), "it is awake");
        assert!(ready_list.doze(|| true));
        assert!(ready_list.add(2) && !ready_list.add(3) && !ready_list.call());
        ready_list.rise();
        ready_list.take(&mut got);
        assert_eq!(got, [1, 2, 3]);
    }
}
