//! Commands that ask a running daemon.

pub mod bug;
pub mod capture;
pub mod cell;
pub mod chip;
pub mod config;
mod exposition;
pub mod inside;
pub mod inspect;
mod layout;
pub mod metrics;
pub mod metrics_page;
pub mod migrate;
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

/// Reads a time between two looks, of an hour at most.
pub(crate) fn seconds(least: f64) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |word| {
        let seconds = word.parse().ok().filter(|s| (least..=3600.0).contains(s));
        seconds.ok_or_else(|| format!("write a number of seconds, {least} to 3600"))
    }
}
