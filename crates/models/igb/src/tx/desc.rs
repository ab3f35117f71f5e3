//! Transmit descriptors (§7.2.2).

use datapath::offload::{self, L4, Request};
use intel::SIZE;
use intel::tx::{Body, Format, Make};

use crate::core::context::Context;

/// Command bits of transmit descriptors.
pub(crate) mod cmd {
    pub use intel::tx::cmd::*;

    /// Data descriptors: segment.
    pub const TSE: u8 = 1 << 7;
}

/// Types of extended transmit descriptors (DTYP).
mod dtyp {
    pub const CONTEXT: u8 = 2;
    pub const DATA: u8 = 3;
}

/// Fields of a context descriptor (§7.2.2.2).
mod context {
    /// First word: IPLEN, MACLEN, VLAN.
    pub const IPLEN: u32 = 0x1ff;
    pub const MACLEN_AT: u32 = 9;
    pub const MACLEN: u32 = 0x7f;
    pub const VLAN_AT: u32 = 16;
    /// Third word: IPV4 and L4T of TUCMD.
    pub const IPV4: u32 = 1 << 10;
    pub const L4T_AT: u32 = 11;
    pub const L4T: u32 = 3;
    pub const L4T_TCP: u32 = 1;
    pub const L4T_SCTP: u32 = 2;
    /// Last word: L4LEN, MSS.
    pub const L4LEN_AT: u32 = 8;
    pub const MSS_AT: u32 = 16;
}

/// Fields of a data descriptor (§7.2.2.3).
mod data {
    /// Third word: DTALEN.
    pub const DTALEN: u32 = 0xffff;
    /// MAC field: take the time at which it leaves.
    pub const TSTAMP: u8 = 1 << 3;
    /// Last word: POPTS, PAYLEN.
    pub const IXSM: u32 = 1 << 8;
    pub const TXSM: u32 = 1 << 9;
    pub const PAYLEN_AT: u32 = 14;
}

/// IDX, in the last word of both: it has three bits, the chip two contexts.
const IDX_AT: u32 = 4;

/// Bytes copied of a packet that needs work: all that MACLEN, IPLEN and L4LEN reach, and a checksum
/// field behind them.
const HEADERS: usize = 127 + 511 + 256;

/// The descriptors of the 82576.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descs;

/// What a data descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asks {
    /// The slot of the context it means.
    pub slot: usize,
    pub ip_sum: bool,
    pub l4_sum: bool,
    pub paylen: u32,
    /// The time at which it leaves is wanted.
    pub stamp: bool,
}

/// The two contexts of a queue.
pub(crate) type Contexts = [Context; 2];

impl Format for Descs {
    /// The slot, and what it shall hold.
    type Context = (usize, Context);
    type Asks = Asks;
    type Contexts = Contexts;

    const REPORT: u8 = cmd::RS;
    const DELAY: u8 = 0;
    const TSE: u8 = cmd::TSE;
    const LAST_DECIDES: bool = false;
    const PAYLEN_CUTS: bool = true;
    const MAKE: Make = offload::make::<HEADERS>;

    fn extended(raw: &[u8; SIZE as usize]) -> (u64, u32, Body<(usize, Context), Asks>) {
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let addr = u64::from(word(4)) << 32 | u64::from(word(0));
        let last = word(12);
        let slot = (last >> IDX_AT & 1) as usize;
        match raw[10] >> 4 {
            dtyp::CONTEXT => {
                let (first, third) = (word(0), word(8));
                let context = Context {
                    maclen: (first >> context::MACLEN_AT & context::MACLEN) as u8,
                    iplen: (first & context::IPLEN) as u16,
                    l4len: (last >> context::L4LEN_AT) as u8,
                    mss: (last >> context::MSS_AT) as u16,
                    vlan: (first >> context::VLAN_AT) as u16,
                    l4: match third >> context::L4T_AT & context::L4T {
                        context::L4T_TCP => L4::Tcp,
                        context::L4T_SCTP => L4::Sctp,
                        _ => L4::Udp,
                    },
                    ipv4: third & context::IPV4 != 0,
                };
                (0, 0, Body::Context((slot, context)))
            }
            dtyp::DATA => {
                let asks = Asks {
                    slot,
                    ip_sum: last & data::IXSM != 0,
                    l4_sum: last & data::TXSM != 0,
                    paylen: last >> data::PAYLEN_AT,
                    stamp: raw[10] & data::TSTAMP != 0,
                };
                (addr, word(8) & data::DTALEN, Body::Data(asks))
            }
            _ => (0, 0, Body::Unknown),
        }
    }

    #[inline]
    fn plain(second: u64) -> Option<u32> {
        let kind = (second >> 16) as u8;
        let asks = (second >> 32) as u32 & (data::IXSM | data::TXSM);
        let plain = kind >> 4 == dtyp::DATA && kind & data::TSTAMP == 0 && asks == 0;
        plain.then_some(second as u32 & data::DTALEN)
    }

    fn keep(contexts: &mut Contexts, _: u8, (slot, context): (usize, Context)) {
        contexts[slot] = context;
    }

    fn request(contexts: &Contexts, cmd: u8, asks: &Asks) -> (Request, u16) {
        let context = &contexts[asks.slot];
        let request = Request {
            segment: cmd & cmd::TSE != 0,
            ip_sum: asks.ip_sum,
            l4_sum: asks.l4_sum,
            places: context.places(asks.paylen),
            cwr_once: true,
            ..Request::default()
        };
        (request, context.vlan)
    }

    fn stamped(asks: &Asks) -> bool {
        asks.stamp
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
        let (_, _, Body::Context((slot, context))) = Descs::extended(&raw(low, high)) else {
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
        let want = Asks {
            slot: 1,
            ip_sum: true,
            l4_sum: true,
            paylen: 70_000,
            stamp: true,
        };
        let got = Descs::extended(&raw(0x1_2345_6789, high));
        assert_eq!(got, (0x1_2345_6789, 0x1234, Body::Data(want)));
        for kind in [0, 1, 4, 15] {
            let high = u64::from(cmd::DEXT) << 24 | kind << 20;
            assert_eq!(Descs::extended(&raw(0, high)).2, Body::Unknown);
        }
    }

    #[test]
    fn the_largest_lengths_do_not_overflow() {
        let all = Descs::extended(&raw(u64::MAX, !(0xd0 << 16)));
        let (_, _, Body::Context((_, context))) = all else {
            panic!("a context");
        };
        assert_eq!(context.places(u32::MAX).hdrlen, 127 + 511 + 255);
    }
}
