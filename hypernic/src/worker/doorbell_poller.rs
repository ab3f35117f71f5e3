//! Which NICs' doorbells in memory to poll, and when.
//!
//! No event tells the daemon when a guest writes memory, so a worker that would sleep wakes up now and
//! then and polls. It polls a NIC that was busy a moment ago every 50 us, and half as often after some
//! polls in vain, down to one poll in a millisecond or more. It polls NICs of equal frequency
//! together: a thousand idle NICs cost one wake-up, not a thousand.
//!
//! Polls are bounded: those of one frequency may take one part in [`SHARE`] of the time, and the worker
//! polls many NICs less often.

use std::collections::HashMap;

use model::Nanos;

/// The time between two looks at those who were busy a moment ago.
const FIRST: Nanos = 50_000;
/// How often that is doubled.
const LEVELS: usize = 6;
/// Looks in vain before it is doubled.
const VAIN: u32 = 16;
/// What it costs to wake up and fall asleep again, about.
const WAKE: Nanos = 5_000;
/// Looks may take one part in so many of the time, for each of the levels.
const SHARE: Nanos = 100;
/// The time between two looks at those who have long been idle is within this, whatever a look takes.
const IDLE: std::ops::RangeInclusive<Nanos> = 1_000_000..=20_000_000;

/// What is looked at.
pub(super) trait Looked {
    /// Whether it can ring at all.
    fn is_live(&self) -> bool;
    /// Whether it has rung.
    fn rung(&self) -> bool;
    /// Whether both are the same.
    fn same(&self, other: &Self) -> bool;
}

impl Looked for vfio_user::MappedDoorbells {
    fn is_live(&self) -> bool {
        vfio_user::MappedDoorbells::is_live(self)
    }
    fn rung(&self) -> bool {
        vfio_user::MappedDoorbells::rung(self)
    }
    fn same(&self, other: &Self) -> bool {
        vfio_user::MappedDoorbells::same(self, other)
    }
}

struct Entry<B> {
    id: u64,
    bell: B,
    /// Where it is looked at; `None` while it cannot ring.
    level: Option<usize>,
    /// The lists that name it, bit by bit.
    listed: u8,
    vain: u32,
}

#[derive(Default)]
struct Level {
    slots: Vec<usize>,
    due: Nanos,
    gap: Nanos,
}

/// The bells of one worker.
pub(super) struct DoorbellPoller<B> {
    entries: Vec<Option<Entry<B>>>,
    free: Vec<usize>,
    slots: HashMap<u64, usize>,
    levels: [Level; LEVELS],
}

impl<B: Looked + Clone> DoorbellPoller<B> {
    pub fn new() -> Self {
        let level = |level| Level {
            gap: FIRST << level,
            ..Level::default()
        };
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            slots: HashMap::new(),
            levels: std::array::from_fn(level),
        }
    }

    /// `id` had a turn. `busy` when there was something to do: it is looked at often from now on.
    pub fn stir(&mut self, id: u64, bell: &B, busy: bool, now: Nanos) {
        let at = self.slots.get(&id).copied();
        let at = at.unwrap_or_else(|| self.add(id, bell));
        let Some(entry) = &mut self.entries[at] else {
            return;
        };
        if !entry.bell.same(bell) {
            entry.bell = bell.clone();
        }
        if !bell.is_live() {
            entry.level = None;
        } else if busy || entry.level.is_none() {
            entry.vain = 0;
            self.put(at, 0, now);
        }
    }

    fn add(&mut self, id: u64, bell: &B) -> usize {
        let entry = Entry {
            id,
            bell: bell.clone(),
            level: None,
            listed: 0,
            vain: 0,
        };
        let at = self.free.pop().unwrap_or(self.entries.len());
        if at == self.entries.len() {
            self.entries.push(Some(entry));
        } else {
            self.entries[at] = Some(entry);
        }
        self.slots.insert(id, at);
        at
    }

    fn put(&mut self, at: usize, to: usize, now: Nanos) {
        let Some(entry) = &mut self.entries[at] else {
            return;
        };
        entry.level = Some(to);
        if entry.listed >> to & 1 == 0 {
            entry.listed |= 1 << to;
            let level = &mut self.levels[to];
            if level.slots.is_empty() {
                level.due = now + level.gap;
            }
            level.slots.push(at);
        }
    }

    /// `id` is gone, or its bell is.
    pub fn forget(&mut self, id: u64) {
        if let Some(at) = self.slots.remove(&id) {
            self.entries[at] = None;
            for level in &mut self.levels {
                level.slots.retain(|slot| *slot != at);
            }
            self.free.push(at);
        }
    }

    /// Whether `id` has rung, wherever it is to be looked at.
    pub fn has_rung(&self, id: u64) -> bool {
        let at = self.slots.get(&id);
        let entry = at.and_then(|at| self.entries[*at].as_ref());
        entry.is_some_and(|entry| entry.bell.rung())
    }

    /// When to look next.
    pub fn due(&self) -> Option<Nanos> {
        let waiting = self.levels.iter().filter(|level| !level.slots.is_empty());
        waiting.map(|level| level.due).min()
    }

    /// Polls those whose time has come, and puts those that have rung into `rung`. `clock` measures
    /// what it takes.
    pub fn look(&mut self, now: Nanos, clock: impl Fn() -> Nanos, rung: &mut Vec<u64>) {
        for at in 0..LEVELS {
            if self.levels[at].slots.is_empty() || now < self.levels[at].due {
                continue;
            }
            let before = clock();
            self.look_at(at, before, rung);
            let after = clock();
            let took = after.saturating_sub(before).min(super::spent::MOST);
            let level = &mut self.levels[at];
            level.gap = (FIRST << at).max(took * SHARE);
            if at == LEVELS - 1 {
                let gap = (WAKE + took) * SHARE;
                level.gap = gap.clamp(*IDLE.start(), *IDLE.end());
            }
            level.due = after + level.gap;
        }
    }

    fn look_at(&mut self, at: usize, now: Nanos, rung: &mut Vec<u64>) {
        let mut slots = std::mem::take(&mut self.levels[at].slots);
        slots.retain(|&slot| {
            let Some(entry) = &mut self.entries[slot] else {
                return false;
            };
            let mut to = entry.level.filter(|_| entry.bell.is_live());
            if to == Some(at) {
                if entry.bell.rung() {
                    rung.push(entry.id);
                    entry.vain = 0;
                    to = Some(0);
                } else {
                    entry.vain += 1;
                    if entry.vain >= VAIN && at + 1 < LEVELS {
                        entry.vain = 0;
                        to = Some(at + 1);
                    }
                }
            }
            entry.level = to;
            if to == Some(at) {
                return true;
            }
            entry.listed &= !(1 << at);
            if let Some(to) = to {
                self.put(slot, to, now);
            }
            false
        });
        // Nothing was added here meanwhile: an entry that moves goes to another level.
        self.levels[at].slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Fake(Rc<(Cell<bool>, Cell<bool>, Cell<u64>)>);

    impl Fake {
        fn new() -> Self {
            let fake = Self::default();
            fake.0.0.set(true);
            fake
        }
        fn ring(&self) {
            self.0.1.set(true);
        }
        fn looks(&self) -> u64 {
            self.0.2.get()
        }
    }

    impl Looked for Fake {
        fn is_live(&self) -> bool {
            self.0.0.get()
        }
        fn rung(&self) -> bool {
            self.0.2.set(self.0.2.get() + 1);
            self.0.1.take()
        }
        fn same(&self, other: &Self) -> bool {
            Rc::ptr_eq(&self.0, &other.0)
        }
    }

    /// Sleeps from look to look until `end`; says who rang and how often it woke. A look takes
    /// `cost`.
    fn run(
        doorbell_poller: &mut DoorbellPoller<Fake>,
        now: &mut Nanos,
        end: Nanos,
        cost: Nanos,
    ) -> (Vec<u64>, u64) {
        let (mut rung, mut wakes) = (Vec::new(), 0);
        while let Some(due) = doorbell_poller.due().filter(|due| *due < end) {
            *now = due.max(*now);
            wakes += 1;
            let calls = Cell::new(0u32);
            let clock = || {
                calls.set(calls.get() + 1);
                *now + if calls.get().is_multiple_of(2) {
                    cost
                } else {
                    0
                }
            };
            doorbell_poller.look(*now, clock, &mut rung);
            *now += cost;
        }
        *now = end;
        (rung, wakes)
    }

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn one_that_was_busy_is_looked_at_often_and_then_ever_less() {
        let (mut doorbell_poller, fake) = (DoorbellPoller::new(), Fake::new());
        doorbell_poller.stir(7, &fake, true, 0);
        assert_eq!(doorbell_poller.due(), Some(FIRST));
        let mut now = 0;
        run(&mut doorbell_poller, &mut now, 1_000_000, 100);
        assert!((16..=20).contains(&fake.looks()), "{}", fake.looks());
        run(&mut doorbell_poller, &mut now, SECOND, 100);
        let before = fake.looks();
        let (_, wakes) = run(&mut doorbell_poller, &mut now, 2 * SECOND, 100);
        assert!(fake.looks() - before <= 1000, "long idle");
        assert!(fake.looks() - before >= 500);
        assert_eq!(wakes, fake.looks() - before);
        // It rings: it is often looked at again.
        fake.ring();
        let (rung, _) = run(&mut doorbell_poller, &mut now, 2 * SECOND + 3_000_000, 100);
        assert_eq!(rung, [7]);
        assert!(
            doorbell_poller
                .due()
                .is_some_and(|due| due < now + 2 * FIRST)
        );
    }

    #[test]
    fn a_thousand_idle_ones_are_looked_at_together_and_within_bounds() {
        let mut doorbell_poller = DoorbellPoller::new();
        let fakes: Vec<_> = (0..1000).map(|_| Fake::new()).collect();
        let mut now = 0;
        for (id, fake) in (0..).zip(&fakes) {
            now += 37_000;
            doorbell_poller.stir(id, fake, true, now);
            doorbell_poller.look(now, || now, &mut Vec::new());
        }
        // A look at all takes 100 us.
        let start = now;
        run(&mut doorbell_poller, &mut now, start + 5 * SECOND, 100_000);
        let before: u64 = fakes.iter().map(Fake::looks).sum();
        let from = now;
        let (_, wakes) = run(&mut doorbell_poller, &mut now, from + 5 * SECOND, 100_000);
        let looks = fakes.iter().map(Fake::looks).sum::<u64>() - before;
        assert_eq!(looks, wakes * 1000, "all of them at each wake-up");
        assert!(wakes * 100_000 <= 5 * SECOND / 90, "{wakes} wake-ups");
        assert!(wakes >= 5 * SECOND / *IDLE.end());
        // And each is heard.
        for (id, fake) in (0..).zip(&fakes).step_by(97) {
            fake.ring();
            let end = now + 2 * *IDLE.end();
            assert_eq!(run(&mut doorbell_poller, &mut now, end, 100_000).0, [id]);
        }
    }

    #[test]
    fn those_that_cannot_ring_are_not_looked_at() {
        let (mut doorbell_poller, fake) = (DoorbellPoller::new(), Fake::default());
        doorbell_poller.stir(1, &fake, true, 0);
        assert_eq!(doorbell_poller.due(), None, "no queue is on");
        fake.0.0.set(true);
        doorbell_poller.stir(1, &fake, false, 0);
        assert!(doorbell_poller.due().is_some());
        fake.0.0.set(false);
        let mut now = 0;
        let (rung, wakes) = run(&mut doorbell_poller, &mut now, SECOND, 100);
        assert_eq!((rung, wakes, doorbell_poller.due()), (vec![], 1, None));
        // Gone, and another in its place.
        fake.0.0.set(true);
        doorbell_poller.stir(1, &fake, true, now);
        doorbell_poller.forget(1);
        assert_eq!(doorbell_poller.due(), None);
        let other = Fake::new();
        other.ring();
        doorbell_poller.stir(2, &other, true, now);
        let end = now + SECOND;
        assert_eq!(run(&mut doorbell_poller, &mut now, end, 100).0, [2]);
        assert_eq!(fake.looks(), 0);
    }

    #[test]
    fn another_client_has_another_bell() {
        let (mut doorbell_poller, old, new) = (DoorbellPoller::new(), Fake::new(), Fake::new());
        doorbell_poller.stir(1, &old, true, 0);
        doorbell_poller.stir(1, &new, false, 0);
        old.ring();
        let mut now = 0;
        assert!(run(&mut doorbell_poller, &mut now, SECOND, 0).0.is_empty());
        new.ring();
        assert_eq!(run(&mut doorbell_poller, &mut now, 2 * SECOND, 0).0, [1]);
        assert_eq!(old.looks(), 0);
    }
}
