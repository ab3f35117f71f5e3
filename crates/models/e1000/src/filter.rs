//! Which frames get in, and which wake the guest.

pub(crate) mod address;
mod wake;
