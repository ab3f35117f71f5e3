//! What every counter means: one table for `hypernic explain`, docs/drops.md and the help of metrics.
//!
//! A test starts one of everything and fails when a counter has no row here.

mod command;
mod frames;
mod outside;
mod page;
mod protocol;
mod realtek;
mod reason;
mod rest;
mod switch;
mod table;
mod virtio;

pub use self::command::ExplainCommand;
pub use self::page::page;
pub use self::reason::{Class, Reason};
pub use self::table::{all, find, find_loss, named};
