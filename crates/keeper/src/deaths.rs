//! What becomes of a worker's death: another life, a NIC in quarantine, or the end.

use std::time::Duration;

use crate::turns::{in_turn, turn};

/// A life that was shorter did not help.
pub(crate) const LIFE: Duration = Duration::from_secs(1);
/// So many short lives in a row, and there is no next one.
pub(crate) const SHORT_LIVES: u32 = 5;
/// A NIC in whose turn the worker has died so often is not served any more.
pub(crate) const STRIKES: u32 = 2;
/// A death so long after the one before is the first again.
pub(crate) const FORGIVEN: Duration = Duration::from_secs(3600);

/// Why a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It left, with this exit code.
    Exit(i32),
    /// It was killed by a signal.
    Signal(i32),
    /// It was killed because a turn did not end.
    Hang,
}

impl End {
    /// Whether a NIC whose turn it was may be to blame: not if somebody else killed the worker.
    pub(crate) fn is_a_fault(self) -> bool {
        match self {
            End::Exit(_) => false,
            End::Hang => true,
            End::Signal(signal) => matches!(
                signal,
                libc::SIGSEGV
                    | libc::SIGBUS
                    | libc::SIGILL
                    | libc::SIGFPE
                    | libc::SIGABRT
                    | libc::SIGTRAP
                    | libc::SIGSYS
            ),
        }
    }
}

/// What the exit code of Rust's programs is after a panic of their first thread.
const PANICKED: i32 = 101;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Start another worker.
    Again,
    /// Leave as the worker did.
    Leave(i32),
    /// Starting does not help.
    GiveUp,
}

/// The deaths so far.
#[derive(Debug)]
pub(crate) struct Deaths {
    life: Duration,
    short: u32,
    /// There was one that served: VMMs may be there.
    has_served: bool,
}

impl Deaths {
    /// A life shorter than `life` does not help. `has_served`: another keeper's worker has.
    pub(crate) fn new(life: Duration, has_served: bool) -> Self {
        Self {
            life,
            short: 0,
            has_served,
        }
    }

    /// Short lives in a row, fewer than are too many.
    pub(crate) fn short(&self) -> u32 {
        self.short
    }

    /// A worker ended that had lived for so long (`None`: it never came to serve). `stopping`: it was asked to. `helps`: that
    /// brought a NIC nearer to quarantine.
    pub(crate) fn next(
        &mut self,
        end: End,
        served: Option<Duration>,
        stopping: bool,
        helps: bool,
    ) -> Next {
        // What the first cannot have is the operator's to see; a later one may have it in a moment.
        let is_unready = served.is_none() && self.has_served;
        self.has_served |= served.is_some();
        match end {
            End::Exit(code) if stopping || code == 0 => return Next::Leave(code),
            End::Exit(code) if code != PANICKED && !is_unready => return Next::Leave(code),
            // It was asked before it listened to signals.
            End::Signal(libc::SIGTERM | libc::SIGINT) if stopping && served.is_none() => {
                return Next::Leave(0);
            }
            _ if stopping => return Next::Leave(1),
            _ => {}
        }
        if served.unwrap_or_default() >= self.life {
            self.short = 0;
            return Next::Again;
        }
        // There are not many of these, and the others would lose their NICs for the sake of those who kill.
        if helps {
            return Next::Again;
        }
        self.short += 1;
        if self.short >= SHORT_LIVES {
            return Next::GiveUp;
        }
        Next::Again
    }
}

#[cfg(test)]
impl Deaths {
    /// After so many short lives in a row.
    pub(crate) fn of(life: Duration, short: u32) -> Self {
        Self {
            life,
            short,
            has_served: true,
        }
    }
}

/// Turns that do not end: a thread whose word says for so many looks that it is in the same turn.
pub(crate) struct Hangs {
    seen: Vec<(u64, u32)>,
    looks: u32,
}

impl Hangs {
    /// For so many threads; that many looks without a change are too many.
    pub(crate) fn new(threads: usize, looks: u32) -> Self {
        Self {
            seen: vec![(0, 0); threads],
            looks,
        }
    }

    /// Looks at all words. `Some`: the thread of that number hangs.
    pub(crate) fn look(&mut self, words: impl Iterator<Item = u64>) -> Option<usize> {
        let mut hangs = None;
        for (at, ((last, same), word)) in self.seen.iter_mut().zip(words).enumerate() {
            let word = turn(word);
            if in_turn(word).is_some() && *last == word {
                *same += 1;
                if *same >= self.looks {
                    hangs = Some(at);
                }
            } else {
                *same = 0;
            }
            *last = word;
        }
        hangs
    }

    /// A thread waits for what is not its fault: begins anew.
    pub(crate) fn excuse(&mut self, at: usize) {
        if let Some(seen) = self.seen.get_mut(at) {
            *seen = (0, 0);
        }
    }

    /// The process did not run: begins anew.
    pub(crate) fn forget(&mut self) {
        self.seen.fill((0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(2));
    const SHORT: Option<Duration> = Some(Duration::from_millis(900));

    #[test]
    fn who_leaves_has_left_and_who_is_killed_comes_again() {
        let mut deaths = Deaths::new(LIFE, false);
        assert_eq!(
            deaths.next(End::Exit(4), None, false, false),
            Next::Leave(4)
        );
        assert_eq!(deaths.next(End::Exit(0), LONG, true, false), Next::Leave(0));
        for _ in 0..100 {
            assert_eq!(deaths.next(End::Signal(9), LONG, false, false), Next::Again);
            assert_eq!(deaths.next(End::Hang, LONG, false, false), Next::Again);
            assert_eq!(deaths.next(End::Exit(101), LONG, false, false), Next::Again);
        }
        // Asked to end, it was killed in the end.
        assert_eq!(
            deaths.next(End::Signal(9), LONG, true, false),
            Next::Leave(1)
        );
        // It did not listen to signals yet, and ended as it was asked to.
        for signal in [libc::SIGTERM, libc::SIGINT] {
            let end = End::Signal(signal);
            assert_eq!(deaths.next(end, None, true, false), Next::Leave(0));
            assert_eq!(deaths.next(end, LONG, true, false), Next::Leave(1));
            assert_eq!(deaths.next(end, None, false, false), Next::Again);
        }
    }

    #[test]
    fn short_lives_in_a_row_are_the_end() {
        let mut deaths = Deaths::new(LIFE, false);
        for served in [None, SHORT, None, SHORT] {
            assert_eq!(
                deaths.next(End::Signal(11), served, false, false),
                Next::Again
            );
        }
        // Those that help do not count.
        for _ in 0..SHORT_LIVES {
            assert_eq!(
                deaths.next(End::Signal(11), SHORT, false, true),
                Next::Again
            );
        }
        assert_eq!(
            deaths.next(End::Signal(11), LONG, false, false),
            Next::Again
        );
        for _ in 1..SHORT_LIVES {
            assert_eq!(
                deaths.next(End::Signal(11), SHORT, false, false),
                Next::Again
            );
        }
        assert_eq!(
            deaths.next(End::Signal(11), SHORT, false, false),
            Next::GiveUp
        );
    }

    #[test]
    fn one_that_cannot_begin_is_tried_again_if_another_has_served() {
        for mut deaths in [Deaths::new(LIFE, true), {
            let mut first = Deaths::new(LIFE, false);
            assert_eq!(first.next(End::Signal(9), LONG, false, false), Next::Again);
            first
        }] {
            for _ in 1..SHORT_LIVES {
                assert_eq!(deaths.next(End::Exit(1), None, false, false), Next::Again);
            }
            assert_eq!(deaths.next(End::Exit(1), None, true, false), Next::Leave(1));
            assert_eq!(deaths.next(End::Exit(1), None, false, false), Next::GiveUp);
            // Who has served and leaves has left.
            assert_eq!(
                deaths.next(End::Exit(3), LONG, false, false),
                Next::Leave(3)
            );
            assert_eq!(
                deaths.next(End::Exit(0), None, false, false),
                Next::Leave(0)
            );
        }
    }

    #[test]
    fn only_faults_are_a_nics_doing() {
        assert!(End::Signal(libc::SIGSEGV).is_a_fault() && End::Hang.is_a_fault());
        assert!(!End::Signal(libc::SIGKILL).is_a_fault() && !End::Exit(101).is_a_fault());
    }

    #[test]
    fn the_same_turn_for_long_is_a_hang_and_sleep_is_none() {
        let (turn, idle) = (7 << 16 | 3, 7 << 16);
        let mut hangs = Hangs::new(2, 3);
        for n in 0..20 {
            assert_eq!(hangs.look([idle, 0].into_iter()), None);
            assert_eq!(hangs.look([(n << 16) | 3, idle].into_iter()), None);
        }
        let looks = |hangs: &mut Hangs| [(); 4].map(|()| hangs.look([idle, turn].into_iter()));
        assert_eq!(looks(&mut hangs), [None, None, None, Some(1)]);
        hangs.forget();
        assert_eq!(looks(&mut hangs), [None, None, None, Some(1)]);
        hangs.excuse(1);
        assert_eq!(looks(&mut hangs), [None, None, None, Some(1)]);
    }
}
