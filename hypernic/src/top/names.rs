//! The counters that are looked at, besides losses and how long messages waited.

pub(super) const NAMES: &[&str] = &[
    "rx_frames",
    "rx_bytes",
    "tx_frames",
    "tx_bytes",
    "tx_flooded",
    "reg_reads",
    "reg_writes",
    "kicks",
    "irq_triggers",
    "calls",
    "tasks",
    "work_ns",
    "looking_ns",
    "turns",
    "worker",
    "longest_turn_ns",
    "sleeps",
    "replies_later",
];
