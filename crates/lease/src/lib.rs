//! Leases: several senders fill parts of one ring at the same time, and what they filled is
//! published in the order in which the parts were given out (VALE's `nkr_hwlease`, in the form that
//! guest memory allows).
//!
//! The protocol, of which this module knows neither rings nor frames:
//!
//! 1. Under the lock a sender reserves what it needs and opens a lease ([`Guard::open`]).
//! 2. Without the lock it fills what it reserved, looking now and then whether that is still wanted
//!    ([`Lessor::wants`]).
//! 3. Under the lock it closes the lease ([`Guard::close`]) and publishes whatever is complete at
//!    the front ([`Guard::take`]): its own lease, those of others, or nothing, when an older one is
//!    still open; then the owner of that one publishes for it. No sender waits for another.
//!
//! A thread that changes what leases stand on (reset, another ring, a saved state) waits until none is out
//! ([`Lessor::settle`]), which is bounded: no lease is opened meanwhile, and filling never waits.
//! [`Guard::revoke`] makes those that are out void, so that they also end early.
//!
//! While there is one sender nothing of this is needed: it fills under the lock it holds, and pays
//! for one lock. That there are others is noticed when one of them finds the lock taken, and
//! believed for a while ([`Guard::crowded`]).
#![forbid(unsafe_code)]

mod bounded;
mod sync;

use std::ops::{Deref, DerefMut};

pub use crate::bounded::{BoundedGuard, BoundedLock, HeldUp, PATIENCE};
use crate::sync::{
    AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, Ordering, lock, try_lock, wait,
};

/// Most leases given out and not published. The next sender finds no room.
pub const MAX_LEASES: usize = if cfg!(loom) { 2 } else { 16 };

/// Leases in a row that met no other before a crowd is taken to be gone.
const CALM: u32 = 64;

/// A state behind a lock, and the leases on it. `D` is what a closed lease has to publish.
///
/// In this order, here and in the lock: what every sender looks at is before what the state has first.
#[derive(Debug)]
#[repr(C)]
pub struct Lessor<S, D> {
    /// Changes when what was leased is not wanted any more.
    epoch: AtomicU32,
    /// A sender found the lock taken.
    crowd: AtomicBool,
    held_up: HeldUp,
    inner: Mutex<Inner<S, D>>,
    quiet: Condvar,
}

#[derive(Debug)]
#[repr(C)]
struct Inner<S, D> {
    /// Number of the oldest lease that is out, and of the next to be given.
    first: u32,
    next: u32,
    own: S,
    /// By number: what closed leases have to publish, and the epoch they are of.
    closed: [Option<(u32, D)>; MAX_LEASES],
    /// A sender found no room because of leases.
    short: bool,
    /// How many wait until no lease is out.
    settling: u32,
    /// Leases closed in a row without meeting another.
    calm: u32,
}

/// An open lease. It must be closed.
#[must_use]
#[derive(Debug)]
pub struct Ticket {
    number: u32,
    epoch: u32,
}

/// What a lease that is published had to say, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<D> {
    /// To be published.
    Wanted(D),
    /// Of an old epoch: to be counted and forgotten.
    Void(D),
}

/// The lock, held.
pub struct Guard<'a, S, D> {
    of: &'a Lessor<S, D>,
    inner: MutexGuard<'a, Inner<S, D>>,
}

impl<S, D> Inner<S, D> {
    fn full(&self) -> bool {
        let out = self.next.wrapping_sub(self.first);
        out as usize >= MAX_LEASES || (out > 0 && self.settling > 0)
    }
}

impl<S, D> Lessor<S, D> {
    /// A state without leases.
    pub fn new(own: S) -> Self {
        Self {
            inner: Mutex::new(Inner {
                own,
                first: 0,
                next: 0,
                closed: std::array::from_fn(|_| None),
                short: false,
                settling: 0,
                calm: 0,
            }),
            quiet: Condvar::new(),
            epoch: AtomicU32::new(0),
            crowd: AtomicBool::new(false),
            held_up: HeldUp::new(),
        }
    }

    /// Takes the lock, whether or not leases are out.
    pub fn lock(&self) -> Guard<'_, S, D> {
        let inner = try_lock(&self.inner).unwrap_or_else(|| {
            self.crowd.store(true, Ordering::Relaxed);
            lock(&self.inner)
        });
        Guard { of: self, inner }
    }

    /// As [`Lessor::lock`], but waits [`PATIENCE`] at most. `None`: somebody else has it for long, and will find out by
    /// [`Lessor::relieve`] that the caller wanted it.
    #[inline]
    pub fn reach(&self) -> Option<Guard<'_, S, D>> {
        let inner = try_lock(&self.inner).or_else(|| {
            self.crowd.store(true, Ordering::Relaxed);
            self.held_up.reach(&self.inner)
        })?;
        Some(Guard { of: self, inner })
    }

    /// To be called by a holder that has let go: whether it has turned somebody away meanwhile. Says so once.
    #[inline]
    pub fn relieve(&self) -> bool {
        self.held_up.relieve()
    }

    /// Takes the lock when no lease is out. Waits for those that are, not for new ones.
    pub fn settle(&self) -> Guard<'_, S, D> {
        self.lock().settled()
    }

    /// Whether what `ticket` stands for is still wanted. Reads one word.
    pub fn wants(&self, ticket: &Ticket) -> bool {
        self.epoch.load(Ordering::Relaxed) == ticket.epoch
    }
}

impl<'a, S, D> Guard<'a, S, D> {
    /// Gives the lock up until no lease is out.
    pub fn settled(mut self) -> Self {
        self.inner.settling += 1;
        let Guard { of, mut inner } = self;
        while inner.first != inner.next {
            inner = wait(&of.quiet, inner);
        }
        inner.settling -= 1;
        Guard { of, inner }
    }

    /// Makes all leases that are out void, and waits until none is out: then what they stood on may
    /// be changed.
    pub fn revoke(mut self) -> Self {
        self.void();
        self.settled()
    }

    /// Makes all leases that are out void, and waits for none: one of them will never be filled.
    pub fn void(&mut self) {
        // Only here, under the lock; a filling sender may see it late, by one frame.
        self.of.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether others were about lately, so that it is worth not filling under the lock.
    pub fn crowded(&self) -> bool {
        self.is_out() || self.of.crowd.load(Ordering::Relaxed)
    }

    /// Whether leases are out.
    pub fn is_out(&self) -> bool {
        self.inner.first != self.inner.next
    }

    /// Whether no further lease can be given out: there are too many, or a caller of
    /// [`Guard::settled`] waits for them to end. If so, the sender that asks counts as short of
    /// leases, until [`Guard::relieved`] reports that it need not be.
    pub fn is_full(&mut self) -> bool {
        let full = self.inner.full();
        self.inner.short |= full;
        full
    }

    /// Whether a sender was short of leases and need not be now. Says so once.
    pub fn relieved(&mut self) -> bool {
        let full = self.inner.full();
        let short = &mut self.inner.short;
        !full && std::mem::take(short)
    }

    /// Opens a lease on what the caller has just reserved, behind all others. `None` when it has to
    /// be filled under this lock.
    pub fn open(&mut self) -> Option<Ticket> {
        let inner = &mut *self.inner;
        let out = inner.next.wrapping_sub(inner.first);
        if out as usize >= MAX_LEASES || inner.settling > 0 {
            return None;
        }
        let number = inner.next;
        inner.next = number.wrapping_add(1);
        Some(Ticket {
            number,
            // Changes only under the lock.
            epoch: self.of.epoch.load(Ordering::Relaxed),
        })
    }

    /// Closes a lease. What it has to publish comes out of [`Guard::take`] in its turn.
    pub fn close(&mut self, ticket: Ticket, done: D) {
        let inner = &mut *self.inner;
        let met = inner.next.wrapping_sub(inner.first) > 1;
        inner.calm = if met { 0 } else { inner.calm + 1 };
        if inner.calm >= CALM {
            inner.calm = 0;
            self.of.crowd.store(false, Ordering::Relaxed);
        }
        inner.closed[ticket.number as usize % MAX_LEASES] = Some((ticket.epoch, done));
    }

    /// Puts what was filled under this lock behind the leases that are out.
    ///
    /// # Errors
    /// When they are [full](Guard::is_full) it comes back.
    pub fn append(&mut self, done: D) -> Result<(), D> {
        if self.is_full() {
            return Err(done);
        }
        let epoch = self.of.epoch.load(Ordering::Relaxed);
        let inner = &mut *self.inner;
        inner.closed[inner.next as usize % MAX_LEASES] = Some((epoch, done));
        inner.next = inner.next.wrapping_add(1);
        Ok(())
    }

    /// The next lease to be published; `None` while the oldest is open. Call until then.
    pub fn take(&mut self) -> Option<Taken<D>> {
        let inner = &mut *self.inner;
        let (epoch, done) = inner.closed[inner.first as usize % MAX_LEASES].take()?;
        inner.first = inner.first.wrapping_add(1);
        if inner.first == inner.next && inner.settling > 0 {
            self.of.quiet.notify_all();
        }
        if epoch == self.of.epoch.load(Ordering::Relaxed) {
            Some(Taken::Wanted(done))
        } else {
            Some(Taken::Void(done))
        }
    }

    /// Has the next ones lease, as if others were about; for tests.
    pub fn crowd(&mut self) {
        self.inner.calm = 0;
        self.of.crowd.store(true, Ordering::Relaxed);
    }
}

impl<S, D> Deref for Guard<'_, S, D> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.inner.own
    }
}

impl<S, D> DerefMut for Guard<'_, S, D> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.inner.own
    }
}
