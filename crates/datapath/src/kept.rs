//! What models share that keep words in memory that outlives their process ([`model::Kept`]). `docs/design/survival.md` says what is
//! in the words, and why it is enough.

mod nowhere;

use model::Kept;

pub use nowhere::Nowhere;

/// In a word of a ring: a batch is under way.
pub const OPEN: u64 = 1 << 63;

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
