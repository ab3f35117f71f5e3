//! Memory that is not in our address space, and who is asked for it.

use std::sync::Arc;

/// Guest memory that is reached by asking: a simulator without shared memory, or a VMM
/// that gave no descriptor.
///
/// Called while a [`View`](crate::view::View) is held: an implementation must not map or unmap.
pub trait Remote: Send + Sync {
    /// Reads `out.len()` bytes at `iova`. `false`: out of reach (master abort).
    fn read(&self, iova: u64, out: &mut [u8]) -> bool;
    /// Writes `bytes` at `iova`. `false`: out of reach.
    fn write(&self, iova: u64, bytes: &[u8]) -> bool;
}

/// The [`Remote`] that is asked for what is not mapped.
pub(crate) struct Asked(pub(crate) Arc<dyn Remote>);

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote")
    }
}
