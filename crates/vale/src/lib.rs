//! A learning switch in the manner of VALE (CoNEXT 2012). It has no thread of its own on the data path:
//! the sender's thread forwards the frames, batch by batch, in stages.
//!
//! 1. The header of every frame is copied once and classified.
//! 2. Sources are learned and destinations looked up under one lock for the whole batch.
//! 3. Frames are listed per destination, and each destination is called once with its list, in
//!    the order of the source. No lock of the switch is held meanwhile.
//!
//! [`Switch::attach`] takes the sink that frames leave through (a NIC's receive side, a TAP) and
//! returns the [`SwitchPort`] they enter by. Offload notes travel with the frame; it is finished
//! only for destinations that cannot take it as it is.
//!
//! # When a destination is full
//!
//! A frame for one destination that has no room is left with the sender ([`frame::Sink::deliver`]
//! returns short), unless frames behind it have already gone elsewhere: a slow destination must not
//! hold up traffic to others, and a frame must not be delivered twice. Then, and for copies of
//! flooded frames, it is dropped and counted. A destination for which senders have waited
//! [`SwitchConfig::stall_bound`] holds up no sender until it takes frames again. Each frame taken
//! buys it a tenth of that bound: senders do not wait for one that takes a frame now and then. A timer
//! must enforce the bound: a [`Keeper`], or a loop of the caller's that calls [`Switch::tick`].
//! Without either, nothing is left with senders, nor ever with a port that shall not wait
//! ([`PortConfig::waits`]).
//!
//! # On a chip
//!
//! [`Switch::on_chip`] is the same switch with another look-up: it learns nothing, and each port
//! gets the addresses, groups and VLANs of its [`eswitch::Pool`], as the functions of an 82576 do. An
//! address of no pool is out on the wire, behind an uplink.
//!
//! # The table
//!
//! It is bounded, and no port can crowd out others: each may always have
//! [`SwitchConfig::guaranteed_macs`], may take no more than [`PortConfig::max_macs`], and what lies
//! between comes out of a common stock. Nothing is evicted to make room; addresses leave by
//! ageing, or with their port.
//!
//! ```
//! use std::sync::Arc;
//! use frame::{Batch, Caps, Sink, Wake};
//! use hypernic_vale::{PortConfig, Switch, SwitchConfig};
//!
//! struct Nobody;
//! impl Sink for Nobody {
//!     fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
//!         picks.len()
//!     }
//!     fn caps(&self) -> Caps {
//!         Caps::NONE
//!     }
//!     fn want_room(&self, _: &Arc<dyn Wake>) {}
//! }
//!
//! let switch = Switch::new(SwitchConfig::default(), Arc::new(|| 0));
//! let a = switch.attach("a", Arc::new(Nobody), PortConfig::default())?;
//! let b = switch.attach("b", Arc::new(Nobody), PortConfig::default())?;
//! let mut batch = Batch::new();
//! batch.push_bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, 0, 0]);
//! batch.end(wire::Offload::NONE);
//! assert_eq!(a.deliver(&batch, &[0]), 1);
//! assert_eq!(switch.macs()[0].port, "a");
//! # Ok::<(), hypernic_vale::AttachError>(())
//! ```
#![forbid(unsafe_code)]

mod config;
mod counters;
mod direct;
mod forward;
mod guard;
mod keeper;
mod mix;
mod patience;
mod pools;
mod port;
mod state;
mod switch;
mod switch_port;
mod table;
#[cfg(test)]
mod testing;
mod witness;

pub use config::{AttachError, Clock, MacInfo, Nanos, PortConfig, PortInfo, SwitchConfig};
pub use keeper::Keeper;
pub use switch::Switch;
pub use switch_port::SwitchPort;
pub use witness::{Witness, Witnesses};
