//! What the peers of one tenant may take of things that the whole process has only so many of.
//!
//! Half of each is divided among the tenants, and what one does not use stays free for it. The other half is a pool for
//! those who need more than their part, first come, first served. So a tenant that takes all it can get leaves every
//! other one its part, and the next VMM of another tenant can always connect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What a process has of one thing.
#[derive(Debug)]
pub struct Pool {
    /// Each tenant's own part.
    part: u64,
    /// For those who need more.
    common: u64,
    taken: AtomicU64,
}

impl Pool {
    /// So much in all, for so many tenants; each has `least` in any case.
    pub fn new(all: u64, tenants: u64, least: u64) -> Arc<Self> {
        Arc::new(Self {
            part: (all / 2 / tenants.max(1)).max(least),
            common: all / 2,
            taken: AtomicU64::new(0),
        })
    }

    fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.common
    }
}

/// One tenant's share of a [`Pool`].
#[derive(Debug)]
pub struct Share {
    pool: Arc<Pool>,
    used: Mutex<u64>,
}

impl Share {
    /// Of a new tenant.
    pub fn of(pool: &Arc<Pool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            used: Mutex::new(0),
        }
    }

    /// Takes so much, if the tenant may have it.
    pub fn take(&self, amount: u64) -> bool {
        let mut used = self.used.lock();
        let Some(more) = used.checked_add(amount) else {
            return false;
        };
        let common = self.beyond(more) - self.beyond(*used);
        if common > 0 {
            let taken = &self.pool.taken;
            if taken.fetch_add(common, Ordering::Relaxed) + common > self.pool.common {
                taken.fetch_sub(common, Ordering::Relaxed);
                return false;
            }
        }
        *used = more;
        true
    }

    /// Takes so much although the tenant may not have it, because it has it already.
    pub fn note(&self, amount: u64) {
        let mut used = self.used.lock();
        let more = used.saturating_add(amount);
        let common = self.beyond(more) - self.beyond(*used);
        self.pool.taken.fetch_add(common, Ordering::Relaxed);
        *used = more;
    }

    /// Gives so much back.
    pub fn give(&self, amount: u64) {
        let mut used = self.used.lock();
        let less = used.saturating_sub(amount);
        let common = self.beyond(*used) - self.beyond(less);
        self.pool.taken.fetch_sub(common, Ordering::Relaxed);
        *used = less;
    }

    /// It has all it may have.
    pub fn is_used_up(&self) -> bool {
        *self.used.lock() >= self.pool.part && self.pool.is_empty()
    }

    /// What it has.
    pub fn used(&self) -> u64 {
        *self.used.lock()
    }

    fn beyond(&self, used: u64) -> u64 {
        used.saturating_sub(self.pool.part)
    }
}

/// What a process has for all its peers.
#[derive(Debug)]
pub struct Pools {
    /// Mapped memory files; [`MAX_MAPPINGS`](crate::MAX_MAPPINGS) at most.
    pub files: Arc<Pool>,
    /// Their bytes of address space.
    pub bytes: Arc<Pool>,
    /// Descriptors that peers have sent and that are still open here, their connections included.
    pub descriptors: Arc<Pool>,
}

/// What one tenant has of it.
#[derive(Debug)]
pub struct Tenant {
    /// Mapped memory files.
    pub files: Share,
    /// Their bytes.
    pub bytes: Share,
    /// Open descriptors.
    pub descriptors: Share,
}

impl Tenant {
    /// A new one.
    pub fn of(pools: &Pools) -> Arc<Self> {
        Arc::new(Self {
            files: Share::of(&pools.files),
            bytes: Share::of(&pools.bytes),
            descriptors: Share::of(&pools.descriptors),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_greedy_tenant_leaves_each_other_its_part() {
        let pool = Pool::new(1000, 5, 10);
        let greedy = Share::of(&pool);
        let got = (0..).take_while(|_| greedy.take(1)).count();
        assert_eq!(got, 100 + 500);
        assert!(greedy.is_used_up());
        for _ in 0..4 {
            let modest = Share::of(&pool);
            assert!(modest.take(100) && modest.is_used_up() && !modest.take(1));
        }
        greedy.give(1);
        assert!(!greedy.is_used_up() && greedy.take(1) && !greedy.take(1));
    }

    #[test]
    fn what_is_noted_counts_as_if_it_were_taken() {
        let pool = Pool::new(20, 1, 0);
        let share = Share::of(&pool);
        share.note(100);
        assert!(share.is_used_up() && share.used() == 100 && !share.take(1));
        share.give(90);
        assert!(!share.is_used_up() && share.take(10) && !share.take(1));
        assert!(!share.take(u64::MAX));
    }

    proptest! {
        /// What tenants hold is what was taken, and never more than there is.
        #[test]
        fn nothing_is_lost_or_made(ops in prop::collection::vec((0..4usize, 0..40u64, any::<bool>()), 0..200)) {
            let pool = Pool::new(100, 4, 0);
            let shares = [0; 4].map(|_| Share::of(&pool));
            let mut held = [0; 4];
            for (at, amount, give) in ops {
                if give {
                    let amount = amount.min(held[at]);
                    shares[at].give(amount);
                    held[at] -= amount;
                } else if shares[at].take(amount) {
                    held[at] += amount;
                } else {
                    prop_assert!(held[at] + amount > pool.part);
                }
                prop_assert_eq!(shares[at].used(), held[at]);
                let beyond: u64 = held.iter().map(|n| n.saturating_sub(pool.part)).sum();
                prop_assert_eq!(pool.taken.load(Ordering::Relaxed), beyond);
                prop_assert!(beyond <= pool.common);
            }
        }
    }
}
