//! What Intel's NICs have in common, as parts of their models.
//!
//! [`Ring`] and [`Fetcher`] are rings of 16-byte descriptors as the guest places them, and [`verdict()`]
//! what a receiver says about checksums. [`phy`] is the PHY, [`mdio`] the command register that leads to
//! it; [`window`] and [`io`] are the ways into the registers. [`wake`] is what wakes a sleeping guest,
//! [`flow`] what pause frames are. [`rx`] puts frames into the buffers of a ring, [`tx`]
//! makes frames of its descriptors. [`kept`] is what of rings outlives the process, [`doorbell`] what may be memory of the guest's.
#![forbid(unsafe_code)]

pub mod bits;
mod counters;
pub mod doorbell;
pub mod filter;
pub mod flow;
pub mod io;
pub mod kept;
pub mod link;
pub mod mdio;
pub mod nvm;
pub mod phy;
mod planned;
mod ring;
pub mod rx;
pub mod saved;
pub mod stats;
mod table;
pub mod tx;
pub mod verdict;
pub mod wake;
pub mod window;

pub use counters::Counters;
pub use planned::{Planned, RingPlace};
#[doc(hidden)]
pub use regs;
pub use ring::{DD, Fetcher, Ring, RingIds, SIZE};
pub use verdict::{verdict, verdict_of, verdict_of_segment, verdict_of_type};
