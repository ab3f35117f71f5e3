//! What a running hypernic can be asked, and how.
//!
//! The protocol is [Varlink](https://varlink.org) over a Unix stream socket: a call is a JSON object with a method and
//! its parameters, a reply one with parameters or an error, each ended by a NUL. The types here say what there is to
//! call ([`Call`]) and describe themselves in Varlink's interface language ([`INTERFACES`]); [`ask`] and [`Client`]
//! are a client for programs in Rust. Words of an unknown name are refused, so that a mistyped limit is not taken for
//! none.
//!
//! ```no_run
//! use hypernic_control::{VfChange, VfSet, ask};
//!
//! let change = VfChange { max_tx_rate: Some(100), ..VfChange::default() };
//! ask("/run/hypernic.sock".as_ref(), &VfSet { nic: "p0vf3".into(), change, ..VfSet::default() })?;
//! # Ok::<(), hypernic_control::AskError>(())
//! ```
#![forbid(unsafe_code)]

mod api;
mod client;
mod counts;
mod failure;
mod idl;
mod message;
#[cfg(test)]
mod tests;
mod types;

pub use api::{Call, INTERFACES, Interface, Method, Role};
pub use client::{AskError, Client, PATIENCE, Reply, ask};
pub use counts::{Counts, CountsOf};
pub use failure::Failure;
pub use message::{
    MAX_FDS, MAX_OWNERS_REQUEST, MAX_REPLY, MAX_REQUEST, Messages, Request, TooLong, refusal,
    reply, reply_written, without_nulls,
};
pub use types::cell::*;
pub use types::chip::*;
pub use types::config::*;
pub use types::inside::*;
pub use types::migrate::*;
pub use types::set::*;
pub use types::upgrade::*;
pub use types::vf::*;
pub use types::*;
