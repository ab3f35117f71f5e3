//! Descriptors and packets as drivers make them.

use wire::{Layers, Sum};

use crate::testing::{Guest, packet};
use crate::tx::desc::cmd;

pub(crate) const BUFFER: u64 = 0x100_0000;

/// A legacy descriptor.
pub(crate) fn legacy(at: u64, len: usize, cmd: u8) -> (u64, u64) {
    (at, len as u64 | u64::from(cmd) << 24)
}

/// An advanced data descriptor; `olinfo` without PAYLEN.
pub(crate) fn data(at: u64, len: usize, cmd: u8, olinfo: u32, paylen: usize) -> (u64, u64) {
    let low = len as u64 | 3 << 20 | u64::from(cmd | cmd::DEXT) << 24;
    (at, low | u64::from(olinfo | (paylen as u32) << 14) << 32)
}

/// A context descriptor.
pub(crate) struct Ctx {
    pub mac: u64,
    pub ip: u64,
    pub l4: u64,
    pub mss: u64,
    pub vlan: u64,
    /// L4T and the bit of IPv4.
    pub kind: u64,
    pub slot: u64,
}

pub(crate) const TCP4: u64 = 1 << 11 | 1 << 10;
pub(crate) const UDP4: u64 = 1 << 10;
pub(crate) const SCTP4: u64 = 2 << 11 | 1 << 10;
pub(crate) const IXSM: u32 = 1 << 8;
pub(crate) const TXSM: u32 = 1 << 9;

impl Ctx {
    pub fn desc(&self) -> (u64, u64) {
        let low = self.vlan << 16 | self.mac << 9 | self.ip;
        let high = 2 << 20 | u64::from(cmd::DEXT) << 24 | self.kind;
        let last = self.slot << 4 | self.l4 << 8 | self.mss << 16;
        (low, high | last << 32)
    }
}

pub(crate) const ALL: u8 = cmd::EOP | cmd::IFCS | cmd::RS;

/// A packet as a driver leaves it for segmentation: lengths zero, the checksum seeded without one.
pub(crate) fn unsegmented(tcp: bool, payload: usize) -> Vec<u8> {
    let mut bytes = packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], tcp, 1000, 2000, payload);
    let layers = Layers::parse(&bytes).expect("headers");
    let l4 = layers.l4.expect("transport");
    let seed = layers.pseudo_sum(&bytes, 0).expect("IP").value();
    let field = l4.offset + l4.kind.checksum_offset().expect("TCP or UDP");
    bytes[field..field + 2].copy_from_slice(&seed.to_be_bytes());
    bytes[16..18].fill(0);
    bytes[24..26].fill(0);
    bytes
}

/// Segments of [`send_tso`].
pub(crate) const TSO_SEGMENTS: usize = 10;

/// Starts a queue and hands it one packet to be cut into [`TSO_SEGMENTS`] of 100 bytes.
pub(crate) fn send_tso(guest: &Guest, queue: u32) {
    guest.start_tx(queue, 16);
    let bytes = unsegmented(true, 1000);
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 1,
    };
    let olinfo = IXSM | TXSM | 1 << 4;
    let desc = data(BUFFER, bytes.len(), cmd::TSE | ALL, olinfo, 1000);
    guest.send(queue, &[ctx.desc(), desc]);
}

pub(crate) fn intact(frame: &[u8]) -> bool {
    let layers = Layers::parse(frame).expect("headers");
    let l3 = layers.l3.expect("IP");
    let ip =
        l3.kind == wire::L3Kind::V6 || Sum::of(&frame[l3.offset..l3.offset + l3.len]).is_intact();
    ip && layers.l4_intact(frame) == Some(true)
}
