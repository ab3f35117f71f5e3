//! Descriptors (§7.1.4, §7.1.5, §7.2.2).

use datapath::offload::{L4, Places};
use intel::SIZE;

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

/// What a context descriptor says (§7.2.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// Bytes of the Ethernet header with tags in the packet, 7 bits.
    pub maclen: u8,
    /// Bytes from there to the transport, 9 bits.
    pub iplen: u16,
    /// Bytes of the transport's header.
    pub l4len: u8,
    pub mss: u16,
    /// Tag of packets with VLE.
    pub vlan: u16,
    pub l4: L4,
    pub ipv4: bool,
}

impl Context {
    /// Where headers and checksums of a packet with `paylen` bytes behind its headers are. Nothing of
    /// it is looked up in the packet.
    pub(crate) fn places(&self, paylen: u32) -> Places {
        let ip = u16::from(self.maclen);
        let l4 = ip + self.iplen;
        Places {
            ipcss: ip,
            ipcso: ip + 10,
            ipcse: l4.saturating_sub(1),
            tucss: l4,
            tucso: l4
                + match self.l4 {
                    L4::Tcp => 16,
                    L4::Udp => 6,
                    L4::Sctp => 8,
                },
            tucse: 0,
            hdrlen: l4 + u16::from(self.l4len),
            mss: self.mss,
            paylen,
            l4: self.l4,
            ipv4: self.ipv4,
        }
    }
}

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

/// How received frames go into buffers (SRRCTL, §8.10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub kind: ShapeKind,
    /// Bytes of a packet buffer.
    pub packet: usize,
    /// Bytes of a header buffer.
    pub header: usize,
    /// Descriptors of which, once only so many are left, an interrupt tells (RDMTS).
    pub threshold: u32,
    /// What finds no descriptor is dropped, and does not wait.
    pub drop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShapeKind {
    Legacy,
    /// Advanced, one buffer.
    Whole,
    /// Advanced, the header apart where there is one of the types asked for.
    Split,
    /// As before, and the header buffer is used for other packets too.
    SplitAlways,
}

impl Shape {
    /// As SRRCTL says; `default` bytes where it leaves the size to RCTL. `None`: of a reserved type.
    pub(crate) fn of(srrctl: u32, default: usize) -> Option<Shape> {
        let kind = match srrctl >> 25 & 7 {
            0 => ShapeKind::Legacy,
            1 => ShapeKind::Whole,
            2 => ShapeKind::Split,
            5 => ShapeKind::SplitAlways,
            _ => return None,
        };
        let packet = match (srrctl & 0x7f) as usize * 1024 {
            0 => default,
            size => size,
        };
        Some(Shape {
            kind,
            packet,
            // HDR_LEN has ten bits.
            header: ((srrctl >> 8 & 0x3f) as usize * 64).min(1023),
            threshold: (srrctl >> 20 & 0x1f) * 16,
            drop: srrctl >> 31 == 1,
        })
    }

    /// Whether there is a header buffer.
    pub(crate) fn splits(&self) -> bool {
        matches!(self.kind, ShapeKind::Split | ShapeKind::SplitAlways)
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

    #[test]
    fn shapes() {
        let of = |srrctl| Shape::of(srrctl, 2048);
        // As igb and igbvf write it: 2 KiB, header 256, always split, drop.
        let shape = of(0x8a00_0402).expect("known");
        assert_eq!(shape.kind, ShapeKind::SplitAlways);
        assert_eq!((shape.packet, shape.header, shape.drop), (2048, 256, true));
        assert_eq!(of(0).map(|s| s.packet), Some(2048));
        assert_eq!(
            of(0x0210_0010).map(|s| (s.packet, s.threshold)),
            Some((16384, 16))
        );
        for kind in [3, 4, 6, 7] {
            assert_eq!(of(kind << 25), None);
        }
    }
}
