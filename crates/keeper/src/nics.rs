//! The NICs in the page that keeper and worker share: which ones a worker died of, and which are not to be served.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::turns::{NicId, in_turn, served};

/// NICs that can be told apart; of more, the keeper cannot say which one a worker died of.
const NICS: usize = if cfg!(test) { 16 } else { 4096 };

/// FNV-1a; 0 stands for "none", so it is not a value.
pub(crate) fn key(name: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

/// A NIC, known by the hash of its name.
pub(crate) struct Record {
    key: AtomicU64,
    pub(crate) strikes: AtomicU32,
    /// Seconds of the keeper's clock.
    pub(crate) last: AtomicU64,
    pub(crate) quarantined: AtomicU32,
}

impl Record {
    /// A worker died that served it. It is the first death again if the last was so many seconds ago.
    fn strike(&self, now: u64, forgiven: u64) {
        let last = self.last.swap(now, Ordering::Relaxed);
        let old = self.strikes.load(Ordering::Relaxed);
        let again = now.saturating_sub(last) < forgiven;
        let new = if again { old.saturating_add(1) } else { 1 };
        self.strikes.store(new, Ordering::Relaxed);
    }
}

/// NICs, all of atomic integers.
pub struct Nics {
    quarantines: AtomicU64,
    records: [Record; NICS],
}

impl Nics {
    /// A NIC's place, the same in every life. `None`: there are too many.
    pub fn place(&self, name: &str) -> Option<NicId> {
        let key = key(name.as_bytes());
        for (at, record) in self.records.iter().enumerate() {
            let won = record
                .key
                .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            if won.is_ok() || won == Err(key) {
                return u16::try_from(at).ok().map(NicId);
            }
        }
        None
    }

    /// Whether a NIC is not to be served.
    pub fn is_quarantined(&self, nic: NicId) -> bool {
        let record = self.records.get(usize::from(nic.0));
        record.is_some_and(|record| record.quarantined.load(Ordering::Relaxed) != 0)
    }

    /// The NIC was taken off by its owner: another of its name begins anew.
    pub fn pardon(&self, nic: NicId) {
        if let Some(record) = self.records.get(usize::from(nic.0)) {
            record.strikes.store(0, Ordering::Relaxed);
            record.quarantined.store(0, Ordering::Relaxed);
        }
    }

    /// NICs that were put into quarantine so far.
    pub fn quarantines(&self) -> u64 {
        self.quarantines.load(Ordering::Relaxed)
    }

    /// A worker died of a fault in one of these threads, whose words they are. Each NIC in whose turn that was, and each that got
    /// frames then, may be to blame. Where a NIC's turn gave another one frames, it is the one of more deaths: a receiver
    /// dies with several senders, and a sender with several receivers. Where they are equal it is the sender, who chose the
    /// frames. `now` is in seconds.
    ///
    /// True: that brought a NIC nearer to quarantine, or into it.
    pub(crate) fn blame(
        &self,
        words: impl Iterator<Item = u64>,
        now: u64,
        strikes: u32,
        forgiven: u64,
    ) -> bool {
        let pairs: Vec<_> = words.map(|word| (in_turn(word), served(word))).collect();
        let suspects = pairs.iter().flat_map(|(turn, to)| [*turn, *to]);
        let suspects: HashSet<usize> = suspects.flatten().collect();
        let records = suspects.into_iter().filter_map(|nic| self.records.get(nic));
        records.for_each(|record| record.strike(now, forgiven));
        let deaths = |nic: usize| {
            let record = self.records.get(nic);
            record.map_or(0, |record| record.strikes.load(Ordering::Relaxed))
        };
        let of_most: Vec<_> = pairs
            .into_iter()
            .filter_map(|pair| match pair {
                (Some(turn), Some(to)) if deaths(to) > deaths(turn) => Some(to),
                (turn, to) => turn.or(to),
            })
            .collect();
        // What the page does not know has no deaths.
        let mut helps = of_most
            .iter()
            .any(|nic| (1..strikes).contains(&deaths(*nic)));
        for nic in of_most.into_iter().filter(|nic| deaths(*nic) >= strikes) {
            let record = self.records.get(nic);
            let is_new = record.is_some_and(|nic| nic.quarantined.swap(1, Ordering::Relaxed) == 0);
            self.quarantines.fetch_add(is_new.into(), Ordering::Relaxed);
            helps |= is_new;
        }
        helps
    }
}

#[cfg(test)]
impl Nics {
    pub(crate) fn for_tests() -> Self {
        let record = || Record {
            key: AtomicU64::new(0),
            strikes: AtomicU32::new(0),
            last: AtomicU64::new(0),
            quarantined: AtomicU32::new(0),
        };
        Nics {
            quarantines: AtomicU64::new(0),
            records: std::array::from_fn(|_| record()),
        }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::{begun, giving};

    const STRIKES: u32 = 2;
    const FORGIVEN: u64 = 100;

    /// NICs that workers die of, and whom that brings into quarantine.
    struct Lab {
        nics: Nics,
        now: u64,
    }

    impl Lab {
        fn new() -> Self {
            let nics = Nics::for_tests();
            Self { nics, now: 1 }
        }

        fn nic(&self, name: &str) -> NicId {
            self.nics.place(name).expect("a place")
        }

        /// A worker dies in these turns of its threads: of whom, and to whom each gives frames; of nobody where that is empty.
        fn die(&mut self, turns: &[(&str, &str)]) {
            self.now += 1;
            let words = turns.iter().map(|(turn, to)| {
                let mut word = 5 << 32;
                if !turn.is_empty() {
                    word = begun(word, Some(self.nic(turn)));
                }
                if !to.is_empty() {
                    word = giving(word, self.nic(to));
                }
                word
            });
            self.nics.blame(words, self.now, STRIKES, FORGIVEN);
        }

        fn away(&self) -> Vec<&'static str> {
            let all = ["a", "b", "c", "d", "e"];
            let away = |name: &&str| self.nics.is_quarantined(self.nic(name));
            all.into_iter().filter(away).collect()
        }
    }

    #[test]
    fn who_kills_in_others_turns_is_found_and_they_are_spared() {
        let mut lab = Lab::new();
        lab.die(&[("a", "b")]);
        assert!(lab.away().is_empty());
        lab.die(&[("c", "b")]);
        assert_eq!(lab.away(), ["b"]);
        assert_eq!(lab.nics.quarantines(), 1);
    }

    #[test]
    fn who_kills_with_its_frames_is_found_and_who_gets_them_is_spared() {
        let mut lab = Lab::new();
        lab.die(&[("a", "b")]);
        lab.die(&[("a", "b")]);
        assert_eq!(lab.away(), ["a"]);
        // If it was the other one, that shows the next time.
        lab.die(&[("c", "b")]);
        assert_eq!(lab.away(), ["a", "b"]);
    }

    #[test]
    fn who_kills_in_nobodys_turn_is_found() {
        let mut lab = Lab::new();
        lab.die(&[("", "b"), ("", "")]);
        lab.die(&[("", "b")]);
        assert_eq!(lab.away(), ["b"]);
    }

    #[test]
    fn old_deaths_are_forgiven_and_who_is_new_begins_anew() {
        let mut lab = Lab::new();
        lab.die(&[("a", "")]);
        lab.now += FORGIVEN;
        lab.die(&[("a", "")]);
        assert!(lab.away().is_empty());
        lab.die(&[("a", "")]);
        assert_eq!(lab.away(), ["a"]);
        lab.nics.pardon(lab.nic("a"));
        assert!(lab.away().is_empty());
    }
}
