//! The vocabulary of a switch between functions: what an 82576's registers, the software PF and the
//! switch that forwards all mean by a pool, a mirror, a VLAN set, a rate or a storm limit.
//!
//! The models and the software PF produce these types, the switch consumes them, and nothing is
//! translated in between. They are plain data, with the little logic that all three need: which hash
//! an address has, whether a set holds a VLAN, when a token bucket is open again.
//!
//! - [`Pool`]: what one function receives and may send (82576 datasheet §7.10.3).
//! - [`FunctionPolicy`]: a pool with its [`Rate`] and its [`Storm`] limits.
//! - [`Fabric`] and [`Mirror`]: what holds for all functions together.
//! - [`StormWindows`]: storm control of the chip (§8.14).
//! - [`VlanSet`]: membership in VLANs (IEEE 802.1Q).
//! - [`Bucket`]: the token bucket behind every rate.
//!
//! ```
//! use hypernic_eswitch::{Fabric, Mirror, Owner, Pool, VlanSet};
//!
//! let pool = Pool { vlans: VlanSet::none().with(7).with_bare(), ..Pool::default() };
//! assert!(pool.in_vlan(7) && pool.in_vlan(0) && !pool.in_vlan(8));
//!
//! // Registers speak of functions, a switch of its ports.
//! let fabric = Fabric {
//!     mirrors: vec![Mirror { incoming: true, ..Mirror::to(Owner::Vf(2)) }],
//!     ..Fabric::default()
//! };
//! let at_switch = fabric.resolve(|owner| (*owner == Owner::Vf(2)).then_some("p0vf2"));
//! assert_eq!(at_switch.mirrors[0].to, "p0vf2");
//! ```
#![forbid(unsafe_code)]

mod bucket;
mod fabric;
mod limits;
mod pool;
mod time;
mod vlans;

pub use bucket::{Bucket, Limit};
pub use fabric::{Fabric, Mirror, Owner};
pub use limits::{DEFAULT_BURST_MS, FunctionPolicy, Rate, Storm, StormWindow, StormWindows};
pub use pool::{AddressFilter, HashSet12, Pool};
pub use time::Nanos;
pub use vlans::{BadVlan, VlanSet, tag_of, vlan_of};
