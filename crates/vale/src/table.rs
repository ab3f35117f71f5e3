//! Which address was last seen on which port.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wire::MacAddr;

use crate::config::{Nanos, PortConfig};

/// Full sweeps for aged entries are at least this far apart, however often there is no place.
const SWEEP_GAP: Nanos = 1_000_000_000;
/// An entry seen again within this time is not written to, which spares its cache line.
const TOUCH_GAP: Nanos = 10_000_000;

/// Number of a port, never used again.
pub(crate) type PortId = u32;

/// The VLAN of every frame while the switch is one domain.
pub(crate) const ONE_DOMAIN: u16 = 0;

/// Address and VLAN in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// `vlan` is the 12-bit identifier; one domain for all uses 0.
    pub(crate) fn new(mac: MacAddr, vlan: u16) -> Key {
        Key(mac.to_u64() | u64::from(vlan & 0xfff) << 48)
    }

    pub(crate) fn mac(self) -> MacAddr {
        MacAddr::from_u64(self.0)
    }

    pub(crate) fn vlan(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

#[derive(Debug)]
struct Entry {
    port: PortId,
    seen: AtomicU64,
    /// Said by the operator rather than learned: no age, no place taken, and no other port's.
    fixed: bool,
}

#[derive(Debug)]
struct Quota {
    used: usize,
    max: usize,
}

/// What became of a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learn {
    /// It was known here.
    Known,
    /// It was new.
    New,
    /// It was on another port.
    Moved,
    /// There was no place for it.
    Full,
    /// It is fixed to another port.
    Foreign,
}

#[derive(Debug)]
pub(crate) struct Table {
    entries: HashMap<Key, Entry, Seed>,
    ports: HashMap<PortId, Quota>,
    ageing: Nanos,
    guaranteed: usize,
    /// Places beyond the guaranteed ones: how many are taken, and how many there are.
    common: usize,
    common_max: usize,
    last_sweep: Nanos,
}

impl Table {
    pub(crate) fn new(ageing: Nanos, guaranteed: usize, common_max: usize) -> Table {
        Table {
            entries: HashMap::with_hasher(Seed::default()),
            ports: HashMap::new(),
            ageing,
            guaranteed,
            common: 0,
            common_max,
            last_sweep: 0,
        }
    }

    pub(crate) fn add_port(&mut self, port: PortId, max: usize) {
        self.ports.insert(port, Quota { used: 0, max });
    }

    /// A port may have so many addresses from now on, and these are fixed to it. If it is free, it may have others too.
    pub(crate) fn set_port(
        &mut self,
        port: PortId,
        max: usize,
        (fixed, is_free): (&[Key], bool),
        now: Nanos,
    ) {
        let before = self.entries.iter();
        let before = before.filter(|(_, entry)| entry.fixed && entry.port == port);
        let before: Vec<Key> = before.map(|(key, _)| *key).collect();
        let used = self.ports.get(&port).map_or(0, |quota| quota.used);
        if used > max || !is_free {
            let learned = self.entries.iter();
            let learned = learned.filter(|(_, entry)| !entry.fixed && entry.port == port);
            let learned: Vec<Key> = learned.map(|(key, _)| *key).collect();
            for key in learned {
                self.remove(key);
            }
        }
        if let Some(quota) = self.ports.get_mut(&port) {
            quota.max = max;
        }
        let stay: HashSet<Key> = fixed.iter().copied().collect();
        for key in before.into_iter().filter(|key| !stay.contains(key)) {
            self.remove(key);
            // Frames for it still find their way.
            if is_free && self.take_place(port) {
                self.put(key, port, now);
            }
        }
        for key in fixed {
            self.fix(*key, port);
        }
    }

    /// Addresses are known for so long from now on.
    pub(crate) fn set_ageing(&mut self, ageing: Nanos) {
        self.ageing = ageing;
    }

    pub(crate) fn remove_port(&mut self, port: PortId) {
        self.entries.retain(|_, entry| entry.port != port);
        if let Some(quota) = self.ports.remove(&port) {
            self.common -= quota.used.saturating_sub(self.guaranteed);
        }
    }

    /// Forgets every address of a port, which stays: learned ones and fixed ones.
    pub(crate) fn forget_port(&mut self, port: PortId) {
        self.entries.retain(|_, entry| entry.port != port);
        if let Some(quota) = self.ports.get_mut(&port) {
            self.common -= quota.used.saturating_sub(self.guaranteed);
            quota.used = 0;
        }
    }

    /// The port of an address seen recently enough.
    pub(crate) fn lookup(&self, key: Key, now: Nanos) -> Option<PortId> {
        let entry = self.entries.get(&key)?;
        self.fresh(entry, now).then_some(entry.port)
    }

    fn fresh(&self, entry: &Entry, now: Nanos) -> bool {
        entry.fixed || now.saturating_sub(entry.seen.load(Relaxed)) < self.ageing
    }

    /// Whether an address is fixed to another port than this.
    pub(crate) fn is_foreign(&self, key: Key, port: PortId) -> bool {
        let entry = self.entries.get(&key);
        entry.is_some_and(|entry| entry.fixed && entry.port != port)
    }

    /// Fixes an address to a port for as long as that is there.
    pub(crate) fn fix(&mut self, key: Key, port: PortId) {
        self.remove(key);
        let entry = Entry {
            port,
            seen: AtomicU64::new(0),
            fixed: true,
        };
        self.entries.insert(key, entry);
    }

    /// Until when an address, which is known now, is known if it is not seen again.
    pub(crate) fn known_until(&self, key: Key) -> Nanos {
        match self.entries.get(&key) {
            Some(entry) if entry.fixed => Nanos::MAX,
            Some(entry) => entry.seen.load(Relaxed).saturating_add(self.ageing),
            None => 0,
        }
    }

    /// Notes that a known address was seen again; `false` when it must be learned.
    pub(crate) fn touch(&self, key: Key, port: PortId, now: Nanos) -> bool {
        self.touched_until(key, port, now).is_some()
    }

    /// As [`Table::touch`]. Returns until when to note it once more would change nothing.
    pub(crate) fn touched_until(&self, key: Key, port: PortId, now: Nanos) -> Option<Nanos> {
        let entry = self.entries.get(&key)?;
        if entry.port != port || !self.fresh(entry, now) {
            return None;
        }
        let gap = TOUCH_GAP.min(self.ageing / 8);
        let mut seen = entry.seen.load(Relaxed);
        if now.saturating_sub(seen) >= gap {
            entry.seen.store(now, Relaxed);
            seen = now;
        }
        Some(seen.saturating_add(gap))
    }

    /// Notes where an address was seen.
    pub(crate) fn learn(&mut self, key: Key, port: PortId, now: Nanos) -> Learn {
        if self.touch(key, port, now) {
            return Learn::Known;
        }
        if self.is_foreign(key, port) {
            return Learn::Foreign;
        }
        // Whatever is there is of another port or too old to count.
        let old = self.remove(key);
        if !self.take_place(port) {
            let swept = now.saturating_sub(self.last_sweep) >= SWEEP_GAP;
            if swept {
                self.sweep(now);
            }
            if !swept || !self.take_place(port) {
                // A port without a place for it cannot take an address away from another.
                if let Some((old_port, seen)) = old
                    && old_port != port
                    && self.take_place(old_port)
                {
                    self.put(key, old_port, seen);
                }
                return Learn::Full;
            }
        }
        self.put(key, port, now);
        match old {
            Some((old_port, seen)) if old_port != port => {
                if now.saturating_sub(seen) < self.ageing {
                    Learn::Moved
                } else {
                    Learn::New
                }
            }
            _ => Learn::New,
        }
    }

    /// Notes where an address was seen some time ago, unless something is known of it. Whether it did.
    pub(crate) fn remember(&mut self, key: Key, port: PortId, seen: Nanos) -> bool {
        let is_new = !self.entries.contains_key(&key) && self.take_place(port);
        if is_new {
            self.put(key, port, seen);
        }
        is_new
    }

    fn put(&mut self, key: Key, port: PortId, seen: Nanos) {
        let seen = AtomicU64::new(seen);
        let entry = Entry {
            port,
            seen,
            fixed: false,
        };
        self.entries.insert(key, entry);
    }

    fn take_place(&mut self, port: PortId) -> bool {
        let Some(quota) = self.ports.get_mut(&port) else {
            return false;
        };
        if quota.used >= quota.max {
            return false;
        }
        if quota.used >= self.guaranteed {
            if self.common >= self.common_max {
                return false;
            }
            self.common += 1;
        }
        quota.used += 1;
        true
    }

    fn remove(&mut self, key: Key) -> Option<(PortId, Nanos)> {
        let entry = self.entries.remove(&key)?;
        if !entry.fixed {
            self.give_place(entry.port);
        }
        Some((entry.port, entry.seen.into_inner()))
    }

    fn give_place(&mut self, port: PortId) {
        if let Some(quota) = self.ports.get_mut(&port) {
            if quota.used > self.guaranteed {
                self.common -= 1;
            }
            quota.used -= 1;
        }
    }

    /// Forgets what is too old.
    pub(crate) fn sweep(&mut self, now: Nanos) {
        self.last_sweep = now;
        let ageing = self.ageing;
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|_, entry| {
            let fresh = entry.fixed || now.saturating_sub(entry.seen.load(Relaxed)) < ageing;
            if !fresh {
                self.give_place(entry.port);
            }
            fresh
        });
        self.entries = entries;
    }

    /// Addresses seen recently enough, with port and age.
    pub(crate) fn iter(&self, now: Nanos) -> impl Iterator<Item = (Key, PortId, Nanos)> {
        self.entries
            .iter()
            .filter(move |(_, entry)| self.fresh(entry, now))
            .map(move |(key, entry)| {
                let age = now.saturating_sub(entry.seen.load(Relaxed));
                (*key, entry.port, age)
            })
    }

    #[cfg(test)]
    fn check(&self) {
        let mut used: HashMap<PortId, usize> = HashMap::new();
        for entry in self.entries.values().filter(|entry| !entry.fixed) {
            *used.entry(entry.port).or_default() += 1;
        }
        let mut common = 0;
        for (port, quota) in &self.ports {
            assert_eq!(used.remove(port).unwrap_or(0), quota.used);
            assert!(quota.used <= quota.max);
            common += quota.used.saturating_sub(self.guaranteed);
        }
        assert!(used.is_empty(), "entries of ports that are gone");
        assert_eq!(common, self.common);
        assert!(common <= self.common_max);
    }
}

/// Hashing of keys that a guest cannot aim at: one multiplication, keyed by two secrets.
#[derive(Clone, Debug)]
pub(crate) struct Seed(u64, u64);

impl Default for Seed {
    fn default() -> Self {
        let random = RandomState::new();
        Seed(random.hash_one(0), random.hash_one(1))
    }
}

impl BuildHasher for Seed {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix {
            seed: self.clone(),
            hash: 0,
        }
    }
}

pub(crate) struct Mix {
    seed: Seed,
    hash: u64,
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = u128::from(word ^ self.hash ^ self.seed.0) * u128::from(self.seed.1 | 1);
        self.hash = (mixed >> 64) as u64 ^ mixed as u64;
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

/// What is fixed to a port that is like this.
pub(crate) fn fixed_keys(config: &PortConfig) -> Vec<Key> {
    let all = config.only.iter().chain(&config.fixed);
    all.map(|mac| Key::new(*mac, ONE_DOMAIN)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(n: u64) -> Key {
        Key::new(MacAddr::from_u64(0x0200_0000_0000 | n), 0)
    }

    #[test]
    fn one_port_cannot_crowd_out_the_others() {
        let mut table = Table::new(100, 2, 6);
        for port in 0..3 {
            table.add_port(port, 20);
        }
        let learned = (0..1000).filter(|n| table.learn(key(*n), 0, 0) == Learn::New);
        assert_eq!(learned.count(), 8);
        // Full for the greedy one, not for the others' guaranteed part.
        for port in 1..3u32 {
            for n in 0..2 {
                let n = 2000 + u64::from(port) * 10 + n;
                assert_eq!(table.learn(key(n), port, 0), Learn::New);
            }
            let n = 3000 + u64::from(port);
            assert_eq!(table.learn(key(n), port, 0), Learn::Full);
        }
        // A full port cannot take an address away, nor does it lose its own.
        assert_eq!(table.learn(key(2010), 0, 0), Learn::Full);
        assert_eq!(table.lookup(key(2010), 0), Some(1));
        table.check();
        // When its port goes, the common stock is back.
        table.remove_port(0);
        assert_eq!(table.lookup(key(0), 0), None);
        assert_eq!(table.learn(key(2010), 2, 0), Learn::Moved);
        table.check();
    }

    #[test]
    fn a_fixed_address_is_nobody_elses_and_takes_no_place() {
        let mut table = Table::new(100, 1, 0);
        table.add_port(0, 1);
        table.add_port(1, 1);
        // Learned elsewhere before, then fixed.
        assert_eq!(table.learn(key(1), 1, 0), Learn::New);
        table.fix(key(1), 0);
        table.check();
        assert_eq!(table.learn(key(1), 1, 0), Learn::Foreign);
        assert_eq!(table.learn(key(1), 0, 0), Learn::Known);
        assert_eq!(table.lookup(key(1), 1_000_000), Some(0));
        table.sweep(1_000_000);
        assert!(table.is_foreign(key(1), 1) && !table.is_foreign(key(1), 0));
        // The place of its port is still free.
        assert_eq!(table.learn(key(2), 0, 0), Learn::New);
        table.check();
        table.remove_port(0);
        table.check();
        assert_eq!(table.learn(key(1), 1, 0), Learn::New);
    }

    #[test]
    fn a_port_that_stays_can_forget_all_its_addresses() {
        let mut table = Table::new(100, 1, 1);
        table.add_port(0, 3);
        table.add_port(1, 3);
        table.fix(key(1), 0);
        assert_eq!(table.learn(key(2), 0, 0), Learn::New);
        assert_eq!(table.learn(key(3), 0, 0), Learn::New);
        assert_eq!(table.learn(key(4), 1, 0), Learn::New);
        table.forget_port(0);
        table.check();
        assert_eq!(
            [1, 2, 3, 4].map(|n| table.lookup(key(n), 0)),
            [None, None, None, Some(1)]
        );
        // It may be learned elsewhere, and the common place is free again.
        assert_eq!(table.learn(key(1), 1, 0), Learn::New);
        table.check();
        // What is fixed to it comes back with its configuration.
        table.set_port(0, 3, (&[key(1)], false), 0);
        assert_eq!(table.lookup(key(1), 0), Some(0));
        table.check();
    }

    #[test]
    fn what_is_fixed_no_more_stays_known_where_it_may_still_be() {
        let mut table = Table::new(100, 1, 3);
        table.add_port(0, 3);
        table.fix(key(1), 0);
        assert_eq!(table.learn(key(2), 0, 0), Learn::New);
        // Another fixed address takes nothing away from a port that is free.
        table.set_port(0, 3, (&[key(3)], true), 50);
        let known = |table: &Table, now| [1, 2, 3].map(|n| table.lookup(key(n), now).is_some());
        assert_eq!(known(&table, 99), [true; 3]);
        assert_eq!(known(&table, 149), [true, false, true]);
        table.check();
        // One that is not keeps what is fixed alone.
        table.set_port(0, 3, (&[key(3)], false), 60);
        assert_eq!(known(&table, 60), [false, false, true]);
        table.set_port(0, 3, (&[], false), 60);
        assert_eq!(known(&table, 60), [false; 3]);
        table.check();
    }

    #[test]
    fn what_another_table_knew_goes_on_ageing_and_replaces_nothing() {
        let mut table = Table::new(100, 1, 1);
        table.add_port(0, 2);
        table.add_port(1, 9);
        assert_eq!(table.learn(key(1), 0, 1000), Learn::New);
        assert!(!table.remember(key(1), 1, 999), "something newer is known");
        assert!(table.remember(key(2), 0, 950));
        assert!(!table.remember(key(3), 0, 950), "its port is full");
        assert!(!table.remember(key(4), 7, 950), "there is no such port");
        table.check();
        assert_eq!(table.lookup(key(1), 1000), Some(0));
        assert_eq!(table.lookup(key(2), 1049), Some(0));
        assert_eq!(table.lookup(key(2), 1050), None);
    }

    #[test]
    fn entries_age_and_are_kept_alive() {
        let mut table = Table::new(SWEEP_GAP, 0, 1);
        table.add_port(1, 9);
        assert_eq!(table.learn(key(1), 1, 5), Learn::New);
        assert_eq!(table.lookup(key(1), SWEEP_GAP + 4), Some(1));
        assert!(table.touch(key(1), 1, SWEEP_GAP + 4));
        assert_eq!(table.lookup(key(1), SWEEP_GAP + 6), Some(1));
        assert_eq!(table.lookup(key(1), 2 * SWEEP_GAP + 4), None);
        // The only place is taken by an aged entry: it is swept.
        assert_eq!(table.learn(key(2), 1, 3 * SWEEP_GAP), Learn::New);
        assert_eq!(table.iter(3 * SWEEP_GAP).count(), 1);
        table.check();
    }

    proptest! {
        #[test]
        fn the_books_always_balance(
            steps in proptest::collection::vec((0..6u8, 0..12u64, 0..4u32), 0..200)
        ) {
            let mut table = Table::new(5 * SWEEP_GAP, 2, 3);
            let mut now = 0;
            for (what, n, port) in steps {
                match what {
                    0 if !table.ports.contains_key(&port) => table.add_port(port, 4),
                    1 if n < 2 => table.remove_port(port),
                    1 if n < 4 => table.forget_port(port),
                    2 => now += SWEEP_GAP / 2,
                    _ => {
                        let learned = table.learn(key(n), port, now);
                        if learned != Learn::Full {
                            prop_assert_eq!(table.lookup(key(n), now), Some(port));
                        }
                    }
                }
                table.check();
            }
        }
    }
}
