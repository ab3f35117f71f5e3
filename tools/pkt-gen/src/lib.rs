//! A packet generator and its receiver, in the manner of netmap's `pkt-gen`: the guest side of a
//! NIC without a guest.
//!
//! It connects to NICs' sockets as a VMM does and drives them in poll mode
//! ([`drivers::e1000::poll`]). Every frame carries a stamp with which the receiver tells loss,
//! doubles, wrong order and wrong bytes apart, per flow, and measures how long frames take.

#![forbid(unsafe_code)]

pub mod args;
pub mod check;
pub mod error;
pub mod flows;
pub mod hist;
pub mod pace;
mod plan;
mod run;
pub mod stamp;
mod station;
mod table;

pub use error::Error;
pub use plan::{Function, Plan};
pub use run::{connect, run};
pub use station::{Outcome, Progress, now};
pub use table::Report;
