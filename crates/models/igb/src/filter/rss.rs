//! What kind of packet a frame is, and which queue it is for (§7.1.1.5, §7.1.1.7, §7.1.4.2).

use std::ops::Range;

use datapath::{INPUT, KEY, toeplitz};
use frame::Frame;
use regs::File;
use wire::{ETHERNET_HEADER, EtherType, Fragment, L3Kind, L4Kind, Layers, SimpleV4};

use crate::filter::ether_type::ethernet_type;
use crate::filter::headers::{Headers, is_sctp};
use crate::filter::tuple::Filters;
use crate::regs as r;
use crate::regs::bits::{etqf, mrqc, reta, rfctl};
use crate::regs::pools;

/// Packet types as descriptors report them (§7.1.5).
pub(crate) mod ptype {
    pub const IPV4: u16 = 1 << 4;
    pub const IPV6: u16 = 1 << 6;
    /// IPv6 with extension headers.
    pub const IPV6E: u16 = 1 << 7;
    pub const TCP: u16 = 1 << 8;
    pub const UDP: u16 = 1 << 9;
    pub const SCTP: u16 = 1 << 10;
    /// An Ethernet type filter has matched; its number is at bit 4.
    pub const ETQF: u16 = 1 << 15;
    pub const ETQF_SHIFT: u32 = 4;
    /// Below is the type of the hash.
    pub const RSS_TYPE: u16 = 0xf;
}

/// Types of hash as descriptors report them (§7.1.5).
mod rss_type {
    pub const TCP4: u8 = 1;
    pub const IPV4: u8 = 2;
    pub const TCP6: u8 = 3;
    pub const IPV6_EX: u8 = 4;
    pub const IPV6: u8 = 5;
    pub const TCP6_EX: u8 = 6;
    pub const UDP4: u8 = 7;
    pub const UDP6: u8 = 8;
    pub const UDP6_EX: u8 = 9;
}

/// Source and destination in an IPv4 header (RFC 791 §3.1).
const ADDRESSES_V4: Range<usize> = 12..20;
/// The same in one of IPv6 (RFC 8200 §3), and its length without extension headers.
const ADDRESSES_V6: Range<usize> = 8..40;
const IPV6_HEADER: usize = 40;
/// Bytes of source and destination port.
const PORTS: usize = 4;

/// The class of a frame: its queue, types and hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    pub queue: u32,
    /// Bits 3:0 the type of the hash, above it that of the packet.
    pub info: u16,
    pub hash: u32,
    /// Its interrupt does not wait for moderation.
    pub immediate: bool,
}

/// The type of a packet, as descriptors report it.
fn packet_type(layers: &Layers, rfctl: u32) -> u16 {
    let Some(l3) = layers.l3 else {
        return 0;
    };
    let ip = match l3.kind {
        L3Kind::V4 => ptype::IPV4,
        L3Kind::V6 if rfctl & rfctl::IPV6_DIS != 0 => return 0,
        L3Kind::V6 if l3.len > IPV6_HEADER => ptype::IPV6E,
        L3Kind::V6 => ptype::IPV6,
    };
    let whole = l3.fragment == Fragment::Whole;
    ip | match layers.l4.map(|l4| l4.kind).filter(|_| whole) {
        Some(L4Kind::Tcp) => ptype::TCP,
        Some(L4Kind::Udp) => ptype::UDP,
        Some(kind) if is_sctp(kind) => ptype::SCTP,
        _ => 0,
    }
}

/// The class of a frame of a VF: all of them are for its first queue.
pub(crate) fn plain(headers: &Headers, rfctl: u32) -> Class {
    Class {
        info: headers.layers.map_or(0, |l| packet_type(&l, rfctl)),
        ..Class::default()
    }
}

/// The class of a frame of `len` bytes, by a PF's registers and `filters`. If the PF has pools, `pools` is its
/// first one and the one that the frame is for; `last` is the hash computed last.
pub(crate) fn classify(
    file: &File,
    (rfctl, filters): (u32, &Filters),
    (headers, len): (&Headers, usize),
    pools: Option<(u32, u32)>,
    last: &mut Hashed,
) -> Class {
    let mrqc = file.get(r::MRQC);
    let mut class = plain(headers, rfctl);
    let pool = pools.map(|(_, pool)| pool);
    class.queue = pool.unwrap_or(mrqc >> mrqc::DEF_Q_SHIFT & mrqc::DEF_Q);
    let Some(layers) = headers.layers else {
        return class;
    };
    if let Some((at, filter)) = ethernet_type(file, &layers) {
        class.info = ptype::ETQF | at << ptype::ETQF_SHIFT;
        class.immediate = filter & etqf::IMMEDIATE != 0;
        if filter & etqf::QUEUE != 0 {
            class.queue = filter >> etqf::QUEUE_SHIFT & etqf::QUEUES;
            return class;
        }
    }
    let verdict = filters.find(headers, rfctl, len, pool);
    class.immediate |= verdict.immediate;
    // The PF does not fill the queues of VFs.
    let own = |queue: &u32| pools.is_none_or(|(first, _)| queue % pools::POOLS >= first);
    if let Some(queue) = verdict.queue.filter(own) {
        class.queue = queue;
        return class;
    }
    if spreads(file, mrqc, pool)
        && let Some(input) = Input::of(mrqc, headers.bytes(), &layers)
    {
        class.spread(file, pool, input, last);
    }
    class
}

/// As [`classify`] where no filter is on, for the most frequent packets: whole TCP or UDP over IPv4
/// without options or tag, and what is not IP. `None` for all else.
#[inline]
pub(crate) fn at_a_glance(
    file: &File,
    frame: &Frame<'_>,
    pool: Option<u32>,
    last: &mut Hashed,
) -> Option<Class> {
    let mrqc = file.get(r::MRQC);
    let mut class = Class {
        queue: pool.unwrap_or(mrqc >> mrqc::DEF_Q_SHIFT & mrqc::DEF_Q),
        ..Class::default()
    };
    let head: &[u8; ETHERNET_HEADER] = frame.head().first_chunk()?;
    let ether_type = EtherType(u16::from_be_bytes([head[12], head[13]]));
    if ether_type == EtherType::IPV6 || ether_type.is_tag() {
        return None;
    }
    if ether_type != EtherType::IPV4 {
        return Some(class);
    }
    let (kind, packet) = simple_v4(frame)?;
    class.info = ptype::IPV4 | kind;
    if spreads(file, mrqc, pool)
        && let Some(input) = Input::of_simple(mrqc, &packet)
    {
        class.spread(file, pool, input, last);
    }
    Some(class)
}

/// The packet type and the headers of whole TCP or UDP over IPv4 without options or tag.
#[inline]
pub(crate) fn simple_v4<'f>(frame: &'f Frame<'_>) -> Option<(u16, SimpleV4<'f>)> {
    let packet = SimpleV4::of(frame.head().first_chunk()?, frame.len())?;
    Some((kind_of(&packet), packet))
}

/// The packet type of the transport.
#[inline]
pub(crate) fn kind_of(packet: &SimpleV4<'_>) -> u16 {
    if packet.kind == L4Kind::Tcp {
        ptype::TCP
    } else {
        ptype::UDP
    }
}

/// Whether frames are spread over queues by their hash.
pub(crate) fn spreads(file: &File, mrqc: u32, pool: Option<u32>) -> bool {
    match pool {
        Some(pool) => pools::spreads(file, pool),
        None => mrqc & mrqc::MODE == mrqc::RSS,
    }
}

impl Class {
    fn spread(&mut self, file: &File, pool: Option<u32>, input: Input, last: &mut Hashed) {
        self.info |= u16::from(input.kind);
        self.hash = last.hash(file, input);
        let entry = self.hash & reta::INDEX;
        let row = file.get_at(r::RETA, entry / reta::ENTRIES);
        let entry = row >> (reta::BITS * (entry % reta::ENTRIES));
        let chosen = entry & reta::QUEUE;
        // Pool n has queues n and n + 8.
        let second = entry & reta::POOL_QUEUE;
        self.queue = pool.map_or(chosen, |pool| pool + pools::POOLS * second);
    }
}

/// What is hashed of a packet: addresses, and ports if both are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Input {
    bytes: [u8; INPUT],
    len: u8,
    /// As descriptors report it.
    kind: u8,
}

impl Input {
    fn of(mrqc: u32, head: &[u8], layers: &Layers) -> Option<Input> {
        let on = |bit| mrqc & bit != 0;
        let l3 = layers.l3?;
        let whole = l3.fragment == Fragment::Whole;
        let l4 = layers.l4.filter(|_| whole);
        let kind = l4.map(|l4| l4.kind);
        let extended = l3.len > IPV6_HEADER;
        let (addresses, of_l4, of_ip) = match l3.kind {
            L3Kind::V4 => {
                let of_l4 = match kind {
                    Some(L4Kind::Tcp) if on(mrqc::TCP4) => Some(rss_type::TCP4),
                    Some(L4Kind::Udp) if on(mrqc::UDP4) => Some(rss_type::UDP4),
                    _ => None,
                };
                (
                    ADDRESSES_V4,
                    of_l4,
                    on(mrqc::IPV4).then_some(rss_type::IPV4),
                )
            }
            L3Kind::V6 => {
                // If both types are enabled, the one with extensions is for packets that have
                // some.
                let either = |ex, ex_kind, plain, plain_kind| match (on(ex), on(plain)) {
                    (true, true) if extended => Some(ex_kind),
                    (_, true) => Some(plain_kind),
                    (true, false) => Some(ex_kind),
                    (false, false) => None,
                };
                let of_l4 = match kind {
                    Some(L4Kind::Tcp) => {
                        either(mrqc::TCP6_EX, rss_type::TCP6_EX, mrqc::TCP6, rss_type::TCP6)
                    }
                    Some(L4Kind::Udp) => {
                        either(mrqc::UDP6_EX, rss_type::UDP6_EX, mrqc::UDP6, rss_type::UDP6)
                    }
                    _ => None,
                };
                (
                    ADDRESSES_V6,
                    of_l4,
                    either(mrqc::IPV6_EX, rss_type::IPV6_EX, mrqc::IPV6, rss_type::IPV6),
                )
            }
        };
        let mut input = Input {
            bytes: [0; INPUT],
            len: 0,
            kind: of_l4.or(of_ip)?,
        };
        let n = addresses.len();
        let from = l3.offset + addresses.start;
        input.bytes[..n].copy_from_slice(head.get(from..from + n)?);
        input.len = n as u8;
        if let Some(l4) = l4.filter(|_| of_l4.is_some()) {
            let ports = head.get(l4.offset..l4.offset + PORTS)?;
            input.bytes[n..n + PORTS].copy_from_slice(ports);
            input.len += PORTS as u8;
        }
        Some(input)
    }

    /// The same of what [`simple_v4`] has found.
    fn of_simple(mrqc: u32, packet: &SimpleV4<'_>) -> Option<Input> {
        let on = |bit| mrqc & bit != 0;
        let (kind, hashed) = match packet.kind {
            L4Kind::Tcp if on(mrqc::TCP4) => (rss_type::TCP4, packet.addresses_and_ports()),
            L4Kind::Udp if on(mrqc::UDP4) => (rss_type::UDP4, packet.addresses_and_ports()),
            _ if on(mrqc::IPV4) => (rss_type::IPV4, packet.addresses()),
            _ => return None,
        };
        let mut bytes = [0; INPUT];
        bytes[..hashed.len()].copy_from_slice(hashed);
        Some(Input {
            bytes,
            len: hashed.len() as u8,
            kind,
        })
    }
}

/// The hash of the last packet: most often it is that of the next one too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hashed {
    last: Option<(Input, u32)>,
}

impl Hashed {
    fn hash(&mut self, file: &File, input: Input) -> u32 {
        match self.last {
            Some((last, hash)) if last == input => hash,
            _ => {
                let mut key = [0; KEY];
                let (words, _) = key.as_chunks_mut::<4>();
                for (i, word) in (0..).zip(words) {
                    *word = file.get_at(r::RSSRK, i).to_le_bytes();
                }
                let hash = toeplitz(&key, &input.bytes[..input.len.into()]);
                self.last = Some((input, hash));
                hash
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use frame::Batch;
    use wire::Offload;

    use super::*;
    use crate::testing::packet;

    /// The key of Microsoft's verification suite.
    const SUITE: [u8; KEY] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn file(mrqc: u32) -> File {
        let file = File::new(r::table());
        let (words, _) = SUITE.as_chunks::<4>();
        for (i, word) in (0..).zip(words) {
            file.set_at(r::RSSRK, i, u32::from_le_bytes(*word));
        }
        file.set(r::MRQC, mrqc);
        file
    }

    fn class(file: &File, bytes: &[u8]) -> Class {
        let mut batch = Batch::new();
        batch.push_bytes(bytes);
        batch.end(Offload::NONE);
        let headers = Headers::of(&batch.get(0).expect("there"));
        let filters = Filters::of(file, file.get(r::RFCTL));
        let last = &mut Hashed::default();
        classify(file, (0, &filters), (&headers, bytes.len()), None, last)
    }

    #[test]
    fn hashes_are_those_of_the_verification_suite() {
        let v4 = |tcp| packet::v4([66, 9, 149, 187], [161, 142, 100, 80], tcp, 2794, 1766);
        let all = class(&file(0x0037_0002), &v4(true));
        assert_eq!((all.hash, all.info), (0x51cc_c178, 0x111));
        let ip = class(&file(mrqc::IPV4 | 2), &v4(true));
        assert_eq!((ip.hash, ip.info), (0x323e_8fc2, 0x112));
        // UDP has the hash of the same ports.
        let udp = class(&file(mrqc::UDP4 | 2), &v4(false));
        assert_eq!((udp.hash, udp.info), (0x51cc_c178, 0x217));
        let src = "3ffe:2501:200:1fff::7".parse().expect("an address");
        let dst = "3ffe:2501:200:3::1".parse().expect("an address");
        let v6 = packet::v6_tcp(src, dst, 2794, 1766);
        let six = class(&file(mrqc::TCP6 | mrqc::IPV6 | 2), &v6);
        assert_eq!((six.hash, six.info), (0x4020_7d3d, 0x143));
        let six = class(&file(mrqc::IPV6 | 2), &v6);
        assert_eq!((six.hash, six.info), (0x2cc1_8cd5, 0x145));
    }

    #[test]
    fn without_rss_the_default_queue_takes_all() {
        let v4 = packet::v4([1, 2, 3, 4], [5, 6, 7, 8], true, 9, 10);
        let none = class(&file(mrqc::TCP4 | 5 << 3), &v4);
        assert_eq!((none.queue, none.hash, none.info), (5, 0, 0x110));
        // ARP is not hashed.
        let mut arp = v4.clone();
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(class(&file(0x0037_0002), &arp), Class::default());
    }

    #[test]
    fn a_fragment_has_the_hash_of_its_addresses() {
        let mut v4 = packet::v4([66, 9, 149, 187], [161, 142, 100, 80], true, 2794, 1766);
        v4[20] = 0x20;
        let fragment = class(&file(0x0037_0002), &v4);
        assert_eq!((fragment.hash, fragment.info), (0x323e_8fc2, 0x12));
    }

    #[test]
    fn the_table_gives_the_queue_by_seven_bits() {
        let file = file(0x0037_0002);
        // 0x51ccc178: entry 0x78, the first byte of word 30.
        file.set_at(r::RETA, 30, 0x0d0c_0bfa);
        let v4 = packet::v4([66, 9, 149, 187], [161, 142, 100, 80], true, 2794, 1766);
        assert_eq!(class(&file, &v4).queue, 10);
    }

    #[test]
    fn an_ethernet_type_can_have_its_queue() {
        let file = file(0x0037_0002);
        file.set_at(r::ETQF, 3, etqf::FILTER | etqf::QUEUE | 6 << 16 | 0x88f7);
        let mut ptp = packet::v4([1, 2, 3, 4], [5, 6, 7, 8], true, 9, 10);
        ptp[12..14].copy_from_slice(&[0x88, 0xf7]);
        let class = class(&file, &ptp);
        assert_eq!((class.queue, class.info), (6, 0x8030));
    }
}
