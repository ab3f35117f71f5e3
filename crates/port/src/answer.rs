//! Answers that come while a frame is written.
//!
//! A host's own stack answers a frame on a TAP before the write returns: echo replies, acknowledgements. The thread of
//! the port's [`Inlet`](crate::Inlet) would bring the answer to the guest once it is awake, which takes longer than all
//! else that is done for it, and a guest that has been interrupted for its sent frame by then is interrupted twice. So
//! the thread that wrote looks for the answer itself, when it is done with its turn: a sink *expects* an answer
//! ([`Answers::expect`]), and the thread *takes* it ([`take`]).

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Looks in vain after which a port is looked at less and less, and how many it is left out at most.
const MOST_SKIPPED: u32 = 64;

/// What runs an inlet on any thread.
pub(crate) trait Run: Send + Sync {
    /// Passes on what is there, a batch at most. `true`: there was something.
    fn answer(&self) -> bool;
}

thread_local! {
    /// The port that this thread wrote to last, since it took answers.
    static EXPECTED: Cell<Option<Expected>> = const { Cell::new(None) };
}

struct Expected {
    run: Weak<dyn Run>,
    /// Its looks: as a share of them is in vain, fewer are made.
    luck: Arc<Luck>,
}

/// How many writes pass until the next look.
#[derive(Debug, Default)]
struct Luck {
    left: AtomicU32,
    /// How many were left out last time.
    skipped: AtomicU32,
}

impl Luck {
    /// Whether it is time for a look. Threads that ask at once may both look, or leave one out more.
    fn may_look(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    fn found(&self, some: bool) {
        let skipped = self.skipped.load(Ordering::Relaxed);
        let skip = if some {
            0
        } else {
            (2 * skipped + 1).min(MOST_SKIPPED)
        };
        self.skipped.store(skip, Ordering::Relaxed);
        self.left.store(skip, Ordering::Relaxed);
    }
}

/// What the way out and the way in of a port share, for its answers.
#[derive(Default)]
pub struct Answers {
    run: OnceLock<Weak<dyn Run>>,
    luck: Arc<Luck>,
}

impl Answers {
    /// None expected.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The thread of the way in has started.
    pub(crate) fn come_from(&self, run: Weak<dyn Run>) {
        // An inlet is started once.
        let _ = self.run.set(run);
    }

    /// This thread has written to the port: an answer may be there.
    pub fn expect(&self) {
        let Some(run) = self.run.get().filter(|_| self.luck.may_look()) else {
            return;
        };
        EXPECTED.set(Some(Expected {
            run: Weak::clone(run),
            luck: Arc::clone(&self.luck),
        }));
    }
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

/// Passes on the answer of the port that this thread wrote to last, if one is there. Not to be called from a sink.
#[inline]
pub fn take() {
    if let Some(expected) = EXPECTED.take() {
        look(&expected);
    }
}

#[cold]
fn look(expected: &Expected) {
    if let Some(run) = expected.run.upgrade() {
        expected.luck.found(run.answer());
    }
}

/// A port whose way in has one descriptor, always the same, and no timer, so that it can be waited for without the
/// inlet.
pub trait Prompt: AsFd + Send + Sync {
    /// What its sink calls.
    fn answers(&self) -> &Answers;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Counting {
        asked: AtomicUsize,
        has: bool,
    }

    impl Run for Counting {
        fn answer(&self) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.has
        }
    }

    fn looks(has: bool, writes: usize) -> usize {
        let run = Arc::new(Counting {
            asked: AtomicUsize::new(0),
            has,
        });
        let answers = Answers::new();
        let weak = Arc::downgrade(&run);
        answers.come_from(weak);
        for _ in 0..writes {
            answers.expect();
            take();
            take();
        }
        run.asked.load(Ordering::Relaxed)
    }

    #[test]
    fn where_answers_come_each_write_is_followed_by_one_look() {
        assert_eq!(looks(true, 1000), 1000);
    }

    #[test]
    fn where_none_come_looks_become_rare() {
        // After 1, 3, 7, 15, 31, 63 and then 64 writes each time.
        let rare = looks(false, 10_000);
        assert!((7 + 9_870 / 65..8 + 10_000 / 65).contains(&rare), "{rare}");
    }

    #[test]
    fn nothing_is_expected_of_a_port_that_is_gone_or_has_no_thread() {
        let answers = Answers::new();
        answers.expect();
        take();
        {
            let run = Arc::new(Counting {
                asked: AtomicUsize::new(0),
                has: true,
            });
            let weak = Arc::downgrade(&run);
            answers.come_from(weak);
            answers.expect();
        }
        take();
    }
}
