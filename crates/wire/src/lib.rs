//! What is on the wire, and what a frame may still ask for before it gets there.
//!
//! Addresses, header location, the Internet checksum, TCP segmentation. No I/O, no allocation, no
//! `unsafe`; any input is answered, none panics. Those who work on memory that others can write
//! copy the headers first and look only at the copy.
#![forbid(unsafe_code)]

mod checksum;
mod crc32c;
mod ethernet;
mod layers;
mod mac;
mod offload;
mod segment;
mod simple;
mod template;
#[cfg(test)]
mod tests;

pub use checksum::{Sum, ipv4_header_intact, update};
pub use crc32c::Crc32c;
pub use ethernet::{ETHERNET_HEADER, EtherType, Ethernet, Truncated, VLAN_TAG, tci};
pub use layers::{Fragment, L3, L3Kind, L4, L4Kind, Layers, MAX_HEADERS};
pub use mac::{MacAddr, MacParseError};
pub use offload::{Csum, Gso, NotesError, Offload};
pub use segment::{MAX_SEGMENTS, SegmentError, Segments};
pub use simple::{SIMPLE, SimpleV4};
pub use template::{TEMPLATE, Template};
