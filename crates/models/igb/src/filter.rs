//! Which frames a PF takes, and which queue each of them is for.

pub(crate) mod address;
pub(crate) mod ether_type;
pub(crate) mod headers;
pub(crate) mod pools;
pub(crate) mod rss;
pub(crate) mod tuple;
pub(crate) mod wake;
