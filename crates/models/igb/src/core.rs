//! What a function is made of: its queues, counters, enables and all that is kept from call to call.

pub(crate) mod context;
pub(crate) mod flow;
pub(crate) mod function;
pub(crate) mod inside;
pub(crate) mod irq;
pub(crate) mod kept;
pub(crate) mod ptp;
pub(crate) mod queue;
pub(crate) mod stats;
