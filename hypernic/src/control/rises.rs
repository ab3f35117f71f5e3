//! When losses rose last, as far as somebody looked: counters have no time of their own, so two looks tell between what times
//! it was.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::explain;
use crate::report::Section;

type Key = (&'static str, String, &'static str);

/// Between which times a counter rose last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rise {
    pub after: Instant,
    pub before: Instant,
}

/// What was seen of a counter.
#[derive(Clone, Copy)]
struct Seen {
    value: u64,
    rose: Rise,
}

/// Remembers each loss between two looks.
pub(super) struct Rises(Mutex<Book>);

struct Book {
    /// The look before. The first was when the daemon began, with nothing lost.
    looked: Instant,
    of: HashMap<Key, Seen>,
}

impl Rises {
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(Book {
            looked: now,
            of: HashMap::new(),
        }))
    }

    /// Begins a look: each counter is compared with the look before. Those that are not shown by its end are forgotten.
    pub fn look(&self, now: Instant) -> Looking<'_> {
        let mut book = self.0.lock();
        Looking {
            after: std::mem::replace(&mut book.looked, now),
            now,
            old: std::mem::take(&mut book.of),
            book,
        }
    }

    /// When a loss rose last.
    pub fn of(&self, kind: &'static str, name: &str, counter: &'static str) -> Option<Rise> {
        let key = (kind, name.to_owned(), counter);
        self.0.lock().of.get(&key).map(|seen| seen.rose)
    }
}

/// A look at all counters.
pub(super) struct Looking<'r> {
    after: Instant,
    now: Instant,
    old: HashMap<Key, Seen>,
    book: MutexGuard<'r, Book>,
}

impl Looking<'_> {
    /// Compares those of one thing.
    pub fn see(&mut self, section: &Section) {
        for (name, value) in section.values.iter().filter(|(_, value)| *value > 0) {
            if explain::find_loss(section.kind, name).is_none() {
                continue;
            }
            let key = (section.kind, section.name.clone(), *name);
            let seen = self.old.remove(&key).filter(|seen| seen.value == *value);
            let rose = Rise {
                after: self.after,
                before: self.now,
            };
            let new = Seen {
                value: *value,
                rose,
            };
            self.book.of.insert(key, seen.unwrap_or(new));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_loss_rose_last_between_the_looks_that_differ() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let rises = Rises::new(begin);
        let look = |seconds, storms| {
            let section = Section {
                kind: "switch-port",
                name: "lan/a".into(),
                values: vec![("drop_storm", storms), ("rx_frames", storms)],
            };
            rises.look(at(seconds)).see(&section);
            rises.of("switch-port", "lan/a", "drop_storm")
        };
        let rise = |after, before| {
            Some(Rise {
                after: at(after),
                before: at(before),
            })
        };
        assert_eq!(look(10, 0), None);
        assert_eq!(look(20, 3), rise(10, 20));
        assert_eq!(look(30, 3), rise(10, 20));
        assert_eq!(look(31, 4), rise(30, 31));
        // What was made anew counts from zero.
        assert_eq!(look(40, 2), rise(31, 40));
        // Frames that arrive are no loss, and what has gone is forgotten.
        assert_eq!(rises.of("switch-port", "lan/a", "rx_frames"), None);
        drop(rises.look(at(50)));
        assert_eq!(rises.of("switch-port", "lan/a", "drop_storm"), None);
    }
}
