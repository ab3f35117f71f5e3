//! What a peer must be able to do.

use crate::error::Result;
use crate::stats::Reading;

/// Something that carries frames between two ends.
pub trait Peer {
    /// Millions of frames a second that came through, over some seconds.
    ///
    /// # Errors
    /// When it is gone.
    fn sample(&mut self, seconds: f64) -> Result<Reading>;
}

/// One of those that are compared, ready to be sampled.
pub type Contender = Box<dyn Peer>;
