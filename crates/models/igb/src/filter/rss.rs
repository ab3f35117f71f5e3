//! What kind of packet a frame is, and which queue it is for (§7.1.1.5, §7.1.1.7, §7.1.4.2).

use frame::Frame;
use regs::File;
use wire::{ETHERNET_HEADER, EtherType, Fragment, L3Kind, L4Kind, Layers};

use crate::filter::ether_type::ethernet_type;
use crate::filter::headers::{Headers, is_sctp};
use crate::filter::tuple::Filters;
use crate::regs as r;
use crate::regs::bits::{etqf, mrqc, reta, rfctl};
use crate::regs::pools;

/// Packet types as descriptors report them.
pub(crate) mod ptype {
    pub const IPV4: u16 = 1 << 4;
    pub const IPV6: u16 = 1 << 6;
    /// IPv6 with extension headers.
    pub const IPV6E: u16 = 1 << 7;
    pub const TCP: u16 = 1 << 8;
    pub const UDP: u16 = 1 << 9;
    pub const SCTP: u16 = 1 << 10;
    /// An Ethernet type filter has matched; its number stands above bit 4.
    pub const ETQF: u16 = 1 << 15;
}

/// What a frame is to the receiver.
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
        L3Kind::V6 if l3.len > 40 => ptype::IPV6E,
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

/// As a VF has it: all for its first queue.
pub(crate) fn plain(headers: &Headers, rfctl: u32) -> Class {
    Class {
        info: headers.layers.map_or(0, |l| packet_type(&l, rfctl)),
        ..Class::default()
    }
}

/// As a PF's registers and its filters say, of a frame of `len` bytes. Of one that has pools `pools` is
/// its first, and the one that the frame is for; `last` is the hash computed last.
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
        class.info = ptype::ETQF | at << 4;
        class.immediate = filter & etqf::IMMEDIATE != 0;
        if filter & etqf::QUEUE != 0 {
            class.queue = filter >> etqf::QUEUE_SHIFT & etqf::QUEUES;
            return class;
        }
    }
    let verdict = filters.find(headers, rfctl, len, pool);
    class.immediate |= verdict.immediate;
    // The queues of VFs are not the PF's to fill.
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

/// As [`classify`] where no filter is on, of what comes by the dozen: whole TCP or UDP over IPv4
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
    let (kind, head) = simple_v4(frame)?;
    class.info = ptype::IPV4 | kind;
    if spreads(file, mrqc, pool)
        && let Some(input) = Input::of_simple(mrqc, kind, head)
    {
        class.spread(file, pool, input, last);
    }
    Some(class)
}

/// The packet type and the headers of whole TCP or UDP over IPv4 without options or tag.
#[inline]
pub(crate) fn simple_v4<'f>(frame: &'f Frame<'_>) -> Option<(u16, &'f [u8; 54])> {
    let head = frame.head().first_chunk::<54>()?;
    let fragment = u16::from_be_bytes([head[20], head[21]]) & 0x3fff != 0;
    if fragment || head[12..15] != [8, 0, 0x45] {
        return None;
    }
    let (kind, len) = match (head[23], usize::from(head[46] >> 4) * 4) {
        (6, len) if len >= 20 => (ptype::TCP, len),
        (17, _) => (ptype::UDP, 8),
        _ => return None,
    };
    (34 + len <= frame.len()).then_some((kind, head))
}

/// Whether frames are spread over queues by their hash.
fn spreads(file: &File, mrqc: u32, pool: Option<u32>) -> bool {
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
        let chosen = file.get_at(r::RETA, entry / 4) >> (8 * (entry % 4)) & reta::QUEUE;
        // A pool has queues n and n + 8.
        self.queue = pool.map_or(chosen, |pool| pool + 8 * (chosen & 1));
    }
}

/// What is hashed of a packet: addresses, and ports if both are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Input {
    bytes: [u8; 36],
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
        let extended = l3.len > 40;
        let (addresses, of_l4, of_ip) = match l3.kind {
            L3Kind::V4 => {
                let of_l4 = match kind {
                    Some(L4Kind::Tcp) if on(mrqc::TCP4) => Some(1),
                    Some(L4Kind::Udp) if on(mrqc::UDP4) => Some(7),
                    _ => None,
                };
                (12..20, of_l4, on(mrqc::IPV4).then_some(2))
            }
            L3Kind::V6 => {
                // The types with extensions are those of packets that have some, where both are
                // asked for.
                let either = |ex, ex_kind, plain, plain_kind| match (on(ex), on(plain)) {
                    (true, true) if extended => Some(ex_kind),
                    (_, true) => Some(plain_kind),
                    (true, false) => Some(ex_kind),
                    (false, false) => None,
                };
                let of_l4 = match kind {
                    Some(L4Kind::Tcp) => either(mrqc::TCP6_EX, 6, mrqc::TCP6, 3),
                    Some(L4Kind::Udp) => either(mrqc::UDP6_EX, 9, mrqc::UDP6, 8),
                    _ => None,
                };
                (8..40, of_l4, either(mrqc::IPV6_EX, 4, mrqc::IPV6, 5))
            }
        };
        let mut input = Input {
            bytes: [0; 36],
            len: 0,
            kind: of_l4.or(of_ip)?,
        };
        let n = addresses.len();
        let from = l3.offset + addresses.start;
        input.bytes[..n].copy_from_slice(head.get(from..from + n)?);
        input.len = n as u8;
        if let Some(l4) = l4.filter(|_| of_l4.is_some()) {
            let ports = head.get(l4.offset..l4.offset + 4)?;
            input.bytes[n..n + 4].copy_from_slice(ports);
            input.len += 4;
        }
        Some(input)
    }

    /// The same of what [`simple_v4`] has found.
    fn of_simple(mrqc: u32, kind: u16, head: &[u8; 54]) -> Option<Input> {
        let on = |bit| mrqc & bit != 0;
        let (kind, len) = match kind {
            ptype::TCP if on(mrqc::TCP4) => (1, 12),
            ptype::UDP if on(mrqc::UDP4) => (7, 12),
            _ if on(mrqc::IPV4) => (2, 8),
            _ => return None,
        };
        let mut bytes = [0; 36];
        // The ports follow the addresses.
        bytes[..len].copy_from_slice(&head[26..26 + len]);
        Some(Input {
            bytes,
            len: len as u8,
            kind,
        })
    }
}

/// The hash of the packet before: most often that of the next one too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hashed {
    last: Option<(Input, u32)>,
}

impl Hashed {
    fn hash(&mut self, file: &File, input: Input) -> u32 {
        match self.last {
            Some((last, hash)) if last == input => hash,
            _ => {
                let mut key = [0; 40];
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

/// The hash that Microsoft's RSS specifies.
fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (byte, next) in input.iter().zip(&key[4..]) {
        for bit in (0..8).rev() {
            // All ones where the bit is set.
            hash ^= window & 0u32.wrapping_sub(u32::from(byte >> bit & 1));
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use frame::Batch;
    use wire::Offload;

    use super::*;
    use crate::testing::packet;

    /// The key of Microsoft's verification suite.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn file(mrqc: u32) -> File {
        let file = File::new(r::table());
        let (words, _) = KEY.as_chunks::<4>();
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
        // ARP has nothing to hash.
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
