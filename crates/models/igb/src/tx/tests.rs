//! What the transmit side does with rings in earnest and in malice.

pub(crate) mod descs;
mod hostile;
mod offloads;
mod rings;
