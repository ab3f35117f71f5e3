//! What the NIC is made of: its queues, their contexts, enables and counters.

pub(crate) mod chip;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod csb;
pub(crate) mod fifo;
pub(crate) mod flow;
pub(crate) mod irq;
pub(crate) mod kept;
pub(crate) mod packet_buffer;
pub(crate) mod rx_queue;
pub(crate) mod stats;
pub(crate) mod tx_queue;
