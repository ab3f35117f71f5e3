//! The receive side as the transmit side of the same function sees it.

use frame::{Batch, Frame};
use model::Env;

/// Takes what does not leave by the wire.
pub(crate) trait Inside: Send + Sync {
    /// Frames in loopback. What there is no room for is missed, as on a wire.
    fn looped_back(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]);
    /// A frame that a pool has sent, for these other pools. What they have no room for is missed.
    fn pool_sent(&self, env: &Env, frame: &Frame<'_>, pools: u32);
}
