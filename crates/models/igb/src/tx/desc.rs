//! Descriptors (§7.1.4, §7.1.5, §7.2.2).

use datapath::offload::L4;
use intel::SIZE;

use crate::core::context::Context;

/// Command bits of transmit descriptors.
pub(crate) mod cmd {
    pub const EOP: u8 = 1;
    pub const IFCS: u8 = 1 << 1;
    /// Legacy descriptors: insert a checksum.
    pub const IC: u8 = 1 << 2;
    pub const RS: u8 = 1 << 3;
    pub const DEXT: u8 = 1 << 5;
    pub const VLE: u8 = 1 << 6;
    /// Advanced descriptors: segment.
    pub const TSE: u8 = 1 << 7;
}

/// Types of extended transmit descriptors (DTYP).
const CONTEXT: u8 = 2;
pub(crate) const DATA: u8 = 3;
/// MAC field of a data descriptor: take the time at which it leaves.
pub(crate) const STAMP: u8 = 1 << 3;

/// A transmit descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxDesc {
    pub cmd: u8,
    pub body: TxBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxBody {
    Legacy {
        addr: u64,
        len: u32,
        cso: u8,
        css: u8,
        special: u16,
    },
    /// The slot, and what it shall hold.
    Context(usize, Context),
    Data {
        addr: u64,
        len: u32,
        /// The slot of the context it means.
        slot: usize,
        ip_sum: bool,
        l4_sum: bool,
        paylen: u32,
        /// The time at which it leaves is wanted.
        stamp: bool,
    },
    /// An extended descriptor of a type the chip does not have.
    Unknown,
}

impl TxDesc {
    pub(crate) fn parse(raw: &[u8; SIZE as usize]) -> TxDesc {
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let addr = u64::from(word(4)) << 32 | u64::from(word(0));
        let len = word(8) & 0xffff;
        let cmd = raw[11];
        let last = word(12);
        // IDX has three bits; the chip has two contexts.
        let slot = (last >> 4 & 1) as usize;
        let body = match (cmd & cmd::DEXT != 0, raw[10] >> 4) {
            (false, _) => TxBody::Legacy {
                addr,
                len,
                cso: raw[10],
                css: raw[13],
                special: (last >> 16) as u16,
            },
            (true, CONTEXT) => {
                let first = word(0);
                let context = Context {
                    maclen: (first >> 9 & 0x7f) as u8,
                    iplen: (first & 0x1ff) as u16,
                    l4len: (last >> 8) as u8,
                    mss: (last >> 16) as u16,
                    vlan: (first >> 16) as u16,
                    l4: match word(8) >> 11 & 3 {
                        1 => L4::Tcp,
                        2 => L4::Sctp,
                        _ => L4::Udp,
                    },
                    ipv4: word(8) >> 10 & 1 == 1,
                };
                TxBody::Context(slot, context)
            }
            (true, DATA) => TxBody::Data {
                addr,
                len,
                slot,
                ip_sum: last >> 8 & 1 == 1,
                l4_sum: last >> 9 & 1 == 1,
                paylen: last >> 14,
                stamp: raw[10] & STAMP != 0,
            },
            _ => TxBody::Unknown,
        };
        TxDesc { cmd, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(low: u64, high: u64) -> [u8; 16] {
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }

    #[test]
    fn a_context_is_where_its_fields_are() {
        // As Linux's igb builds it for TSO: MACLEN 18, IPLEN 20, VLAN 5; TCP over IPv4; L4LEN 32,
        // MSS 1448, slot 1.
        let low = 5 << 16 | 18 << 9 | 20;
        let high = (0x2020_0000u64 | 0x800 | 0x400) | (1448u64 << 16 | 32 << 8 | 1 << 4) << 32;
        let TxBody::Context(slot, context) = TxDesc::parse(&raw(low, high)).body else {
            panic!("a context");
        };
        let places = context.places(4000);
        assert_eq!((slot, context.vlan), (1, 5));
        assert_eq!((places.ipcss, places.ipcso, places.ipcse), (18, 28, 37));
        assert_eq!((places.tucss, places.tucso), (38, 54));
        assert_eq!((places.hdrlen, places.mss, places.paylen), (70, 1448, 4000));
        assert_eq!((places.l4, places.ipv4), (L4::Tcp, true));
    }

    #[test]
    fn a_data_descriptor_is_where_its_fields_are() {
        let high = 0x2b38_1234u64 | (70_000u64 << 14 | 0x300 | 0x10) << 32;
        let desc = TxDesc::parse(&raw(0x1_2345_6789, high));
        let want = TxBody::Data {
            addr: 0x1_2345_6789,
            len: 0x1234,
            slot: 1,
            ip_sum: true,
            l4_sum: true,
            paylen: 70_000,
            stamp: true,
        };
        assert_eq!(desc.body, want);
        assert_eq!(desc.cmd, cmd::EOP | cmd::IFCS | cmd::RS | cmd::DEXT);
        for kind in [0, 1, 4, 15] {
            let high = u64::from(cmd::DEXT) << 24 | kind << 20;
            assert_eq!(TxDesc::parse(&raw(0, high)).body, TxBody::Unknown);
        }
    }

    #[test]
    fn the_largest_lengths_do_not_overflow() {
        let all = TxDesc::parse(&raw(u64::MAX, !(0xd0 << 16)));
        let TxBody::Context(_, context) = all.body else {
            panic!("a context");
        };
        assert_eq!(context.places(u32::MAX).hdrlen, 127 + 511 + 255);
    }
}
