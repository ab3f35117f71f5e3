//! What a function is made of: its queues, counters, enables and all that is kept from call to call.

pub(crate) mod function;
pub(crate) mod queue;
pub(crate) mod stats;
