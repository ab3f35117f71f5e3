//! What the device is made of: rings, queues, what was agreed upon, counters.

pub mod chain;
pub mod coalesce;
pub mod config;
pub mod counters;
pub mod device;
pub mod fate;
pub mod journal;
mod keeping;
pub mod kept;
pub mod packed;
pub mod place;
pub mod queues;
pub mod ring;
pub mod split;
pub mod station;
pub mod stats;
pub mod steering;
pub mod unsaved;
pub mod words;
pub mod write_log;

#[cfg(test)]
mod tests;
