//! Commands that ask a running daemon.

pub mod bug;
pub mod capture;
pub mod config;
mod exposition;
pub mod inside;
pub mod inspect;
mod layout;
pub mod metrics;
pub mod monitor;
pub mod nic;
pub(crate) mod place;
pub mod port;
pub mod switch;
pub mod trace;
pub mod upgrade;

pub use self::exposition::Exposition;
pub(crate) use self::exposition::{Families, Kind};
pub(crate) use self::metrics::Scraper;
pub(crate) use self::place::with;
pub use self::place::{Place, Printed, Terms};
