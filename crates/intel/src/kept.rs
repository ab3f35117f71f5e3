//! What of a NIC's rings is in memory that outlives its process ([`model::Kept`]). `docs/design/survival.md` says why it is enough.
//!
//! A batch is under way from one store of its ring's word to the next. Before the first, a *mark* is put where the batch will be
//! published: into the first of its descriptors, which the guest does not look at until then. Publishing overwrites the mark, and
//! is done with that descriptor last. So who finds a batch under way knows by the mark whether the guest has been given it.

mod nowhere;
pub mod rx;
pub mod tx;

use model::Kept;

pub use nowhere::Nowhere;

/// In a word of a ring: a batch is under way.
const OPEN: u64 = 1 << 63;

/// Where a test lets the process die: before and after each store that another process can see. `()` does nothing.
pub trait Step {
    /// A step.
    fn step();
}

impl Step for () {
    #[inline(always)]
    fn step() {}
}

/// Stores a word.
#[inline]
pub fn put<S: Step>(kept: &Kept, at: usize, value: u64) {
    S::step();
    kept.put(at, value);
    S::step();
}
