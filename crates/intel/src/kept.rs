//! What of a NIC's rings is in memory that outlives its process ([`model::Kept`]). `docs/design/survival.md` says why it is enough.
//!
//! A batch is under way from one store of its ring's word to the next. Before the first, a *mark* is put where the batch will be
//! published: into the first of its descriptors, which the guest does not look at until then. Publishing overwrites the mark, and
//! is done with that descriptor last. So who finds a batch under way knows by the mark whether the guest has been given it.

pub mod rx;
pub mod tx;

use datapath::kept::OPEN;
pub use datapath::kept::{Nowhere, Step, put};
