//! The control socket: what operators ask of a running daemon.
//!
//! One thread serves all clients, each a message at a time and each within its time: a client can make others wait for
//! what it asks for, never for itself, and never a NIC. Users have roles, by the identity that the kernel reports; who
//! has none is refused.

mod cells;
mod changes;
mod chips;
pub(crate) mod config;
mod connection;
mod counters;
mod dispatch;
mod far_moves;
pub(crate) mod follow;
mod handed;
mod insight;
mod lists;
mod live;
mod metrics;
mod migrate;
mod monitor;
mod moved_vfs;
mod reach;
mod rises;
mod server;
mod set;
mod told;
mod upgrade;
mod vfs;

pub use self::config::reload;
pub use self::server::Server;
pub use self::vfs::changes;
