//! Commands that ask a running daemon.

pub mod config;
mod exposition;
pub mod inspect;
mod layout;
pub mod metrics;
pub mod monitor;
pub mod nic;
pub(crate) mod place;
pub mod port;
pub mod switch;
pub mod upgrade;

pub use self::place::{Place, Printed, Terms};
