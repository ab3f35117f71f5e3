//! A fixed set of named counters.

use std::sync::atomic::{AtomicU64, Ordering};

use frame::Counted;

/// Counters by index, with their names beside them.
#[derive(Debug)]
pub struct Tally<const N: usize> {
    names: [&'static str; N],
    values: [AtomicU64; N],
}

impl<const N: usize> Tally<N> {
    /// All zero.
    pub const fn new(names: [&'static str; N]) -> Self {
        Self {
            names,
            values: [const { AtomicU64::new(0) }; N],
        }
    }

    /// Adds `n` to counter `index`.
    pub fn add(&self, index: usize, n: u64) {
        if n > 0 {
            self.values[index].fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Counter `index` now.
    pub fn get(&self, index: usize) -> u64 {
        self.values[index].load(Ordering::Relaxed)
    }
}

impl<const N: usize> Counted for Tally<N> {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        for (name, value) in self.names.iter().zip(&self.values) {
            visit(name, value.load(Ordering::Relaxed));
        }
    }
}

/// The value of one named counter; `None` if there is none of that name.
pub fn counter(of: &dyn Counted, name: &str) -> Option<u64> {
    let mut found = None;
    of.counters(&mut |n, value| {
        if n == name {
            found = Some(value);
        }
    });
    found
}
