//! Which pair receives a frame, and the hash of its flow (virtio 1.4 §5.1.6.4.3, §5.1.6.5.6, §5.1.6.5.7).

use datapath::{INPUT, KEY, Toeplitz};
use frame::Frame;
use serde::{Deserialize, Serialize};
use wire::{ETHERNET_HEADER, EtherType, Fragment, L3Kind, L4Kind, Layers, SimpleV4, VLAN_TAG};

use crate::regs::hash;

/// Entries of an indirection table at most.
pub const TABLE: usize = 128;
/// Bytes in which headers are looked for, if those of a frame's head do not end there.
const FAR: usize = 256;
/// Where addresses and ports are from their headers on, and how long they are.
const ADDRESSES_V4: (usize, usize) = (12, 8);
const ADDRESSES_V6: (usize, usize) = (8, 32);
const PORTS: usize = 4;

/// TCP and UDP.
const WITH_PORTS: [u8; 2] = [6, 17];

/// How flows are spread over pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// The pair of what has no hash.
    pub unclassified: u16,
    /// The pair of a hash, by its lowest bits: a power of two of them.
    pub table: Vec<u16>,
}

/// What the driver has said of hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rss {
    /// Types of hash that are on.
    pub types: u32,
    /// The key, as long as the driver gave it.
    pub key: Vec<u8>,
    /// By what flows are spread; `None`: as the device likes.
    pub spread: Option<Spread>,
}

impl Rss {
    /// Whether a device with so many pairs can do it.
    pub fn is_possible(&self, pairs: u16) -> bool {
        let spread = self.spread.as_ref().is_none_or(|spread| {
            let len = spread.table.len();
            let there = |pair: &u16| *pair < pairs;
            len.is_power_of_two()
                && len <= TABLE
                && spread.table.iter().all(there)
                && there(&spread.unclassified)
        });
        self.types & !hash::TYPES == 0 && self.key.len() <= KEY && spread
    }
}

/// The hash of a frame's flow; the default is that of a frame without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashed {
    /// The hash.
    pub value: u32,
    /// What it is of, as headers say it.
    pub report: u16,
}

/// Which pair receives a frame.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    rss: Rss,
    /// Ready where a type of hash is on.
    by_key: Option<Toeplitz>,
}

impl Steering {
    /// By what the driver has said, which is possible.
    pub fn new(rss: Rss) -> Self {
        let mut key = [0; KEY];
        for (to, from) in key.iter_mut().zip(&rss.key) {
            *to = *from;
        }
        let by_key = (rss.types != 0).then(|| Toeplitz::new(&key));
        Self { rss, by_key }
    }

    /// What the driver has said.
    pub fn rss(&self) -> &Rss {
        &self.rss
    }

    /// Whether the driver says which pair is for which flow.
    pub fn is_spread(&self) -> bool {
        self.rss.spread.is_some()
    }

    /// Whether where a frame goes, and what is said of it, depends on more than its Ethernet header, `report`: hashes are
    /// reported. The pair of all, if not.
    pub fn plain(
        &self,
        header: &[u8; ETHERNET_HEADER],
        pairs: usize,
        report: bool,
    ) -> Option<usize> {
        let kind = EtherType(u16::from_be_bytes([header[12], header[13]]));
        let ip = kind == EtherType::IPV4 || kind == EtherType::IPV6 || kind.is_tag();
        match &self.rss.spread {
            None if pairs <= 1 && !(report && ip && self.by_key.is_some()) => Some(0),
            None if ip => None,
            None => Some(pair(header, pairs)),
            Some(_) if ip => None,
            Some(spread) => Some(spread.unclassified.into()),
        }
    }

    /// The pair of a frame, of so many that are used, and its hash if it is to be reported.
    #[inline]
    pub fn place(&self, frame: &Frame<'_>, pairs: usize, report: bool) -> (usize, Hashed) {
        let far = |to: &mut [u8]| frame.copy_to(0, to);
        self.place_by((frame.head(), frame.len()), far, pairs, report)
    }

    /// The same of a frame of `len` bytes that begins with `head`; `far` copies more of it.
    #[inline]
    pub fn place_by(
        &self,
        (head, len): (&[u8], usize),
        far: impl FnOnce(&mut [u8]) -> usize,
        pairs: usize,
        report: bool,
    ) -> (usize, Hashed) {
        let hashed = if report || self.is_spread() {
            self.hash((head, len), far)
        } else {
            None
        };
        let to = match &self.rss.spread {
            None => pair(head, pairs),
            Some(spread) => {
                let last = spread.table.len() - 1;
                let entry = hashed.map(|hashed| spread.table[hashed.value as usize & last]);
                entry.unwrap_or(spread.unclassified).into()
            }
        };
        (to, hashed.unwrap_or_default())
    }

    /// The hash of a frame; `None` if no type that is on is of its kind.
    fn hash(
        &self,
        (head, whole): (&[u8], usize),
        far: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<Hashed> {
        let by_key = self.by_key.as_ref()?;
        let types = self.rss.types;
        if let Some(packet) = head
            .first_chunk()
            .and_then(|head| SimpleV4::of(head, whole))
        {
            let (of_l4, report) = match packet.kind {
                L4Kind::Tcp => (hash::TCP4, hash::report::TCP4),
                _ => (hash::UDP4, hash::report::UDP4),
            };
            let (input, report) = if types & of_l4 != 0 {
                (packet.addresses_and_ports(), report)
            } else if types & hash::IP4 != 0 {
                (packet.addresses(), hash::report::IP4)
            } else {
                return None;
            };
            let value = by_key.hash(input);
            return Some(Hashed { value, report });
        }
        let layers = Layers::parse(head)?;
        layers.l3?;
        if layers.l4.is_some() || head.len() == whole {
            return hash_of(by_key, types, head, &layers);
        }
        // Behind extension headers.
        let mut more = [0; FAR];
        let len = far(&mut more);
        hash_of(by_key, types, &more[..len], &Layers::parse(&more[..len])?)
    }
}

fn hash_of(by_key: &Toeplitz, types: u32, head: &[u8], layers: &Layers) -> Option<Hashed> {
    let l3 = layers.l3?;
    let whole = l3.fragment == Fragment::Whole;
    let l4 = layers.l4.filter(|_| whole);
    let kind = l4.map(|l4| l4.kind);
    let ((from, len), of_l4, of_ip) = match l3.kind {
        L3Kind::V4 => {
            let of_l4 = match kind {
                Some(L4Kind::Tcp) => (hash::TCP4, hash::report::TCP4),
                Some(L4Kind::Udp) => (hash::UDP4, hash::report::UDP4),
                _ => (0, 0),
            };
            (ADDRESSES_V4, of_l4, (hash::IP4, hash::report::IP4))
        }
        L3Kind::V6 => {
            let of_l4 = match kind {
                Some(L4Kind::Tcp) => (hash::TCP6, hash::report::TCP6),
                Some(L4Kind::Udp) => (hash::UDP6, hash::report::UDP6),
                _ => (0, 0),
            };
            (ADDRESSES_V6, of_l4, (hash::IP6, hash::report::IP6))
        }
    };
    let from = l3.offset + from;
    let mut input = [0; INPUT];
    input[..len].copy_from_slice(head.get(from..from + len)?);
    if let Some(l4) = l4.filter(|_| types & of_l4.0 != 0) {
        input[len..len + PORTS].copy_from_slice(head.get(l4.offset..l4.offset + PORTS)?);
        let value = by_key.hash(&input[..len + PORTS]);
        let report = of_l4.1;
        return Some(Hashed { value, report });
    }
    let value = by_key.hash(&input[..len]);
    let report = of_ip.1;
    (types & of_ip.0 != 0).then_some(Hashed { value, report })
}

/// The pair, of so many that are used, for a frame that begins like this: one flow, one pair.
#[inline]
fn pair(head: &[u8], pairs: usize) -> usize {
    if pairs <= 1 {
        return 0;
    }
    let hash = flow(head).unwrap_or(0);
    // The upper half of the product: every bit of the hash counts.
    ((u64::from(hash) * pairs as u64) >> 32) as usize
}

/// A hash of addresses, and of ports where there are some; `None` if it is not IP.
fn flow(head: &[u8]) -> Option<u32> {
    let ether_type = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let mut at = ETHERNET_HEADER;
    let mut kind = ether_type(at - 2)?;
    if kind == EtherType::VLAN.0 {
        at += VLAN_TAG;
        kind = ether_type(at - 2)?;
    }
    let (addresses, protocol, ports) = if kind == EtherType::IPV4.0 {
        let [first, .., flags, fragment] = *head.get(at..at + 8)? else {
            return None;
        };
        let whole = u16::from_be_bytes([flags, fragment]) & 0x3fff == 0;
        let ports = whole.then_some(at + 4 * usize::from(first & 15));
        (head.get(at + 12..at + 20)?, *head.get(at + 9)?, ports)
    } else if kind == EtherType::IPV6.0 {
        let next = *head.get(at + 6)?;
        (head.get(at + 8..at + 40)?, next, Some(at + 40))
    } else {
        return None;
    };
    let mut hash = addresses
        .as_chunks()
        .0
        .iter()
        .fold(0, |hash, word| mix(hash, *word));
    if WITH_PORTS.contains(&protocol)
        && let Some(at) = ports
        && let Some(ports) = head.get(at..).and_then(|rest| rest.first_chunk())
    {
        hash = mix(hash, *ports);
    }
    Some(finish(hash))
}

fn mix(hash: u32, word: [u8; 4]) -> u32 {
    (hash ^ u32::from_le_bytes(word))
        .wrapping_mul(0x9e37_79b1)
        .rotate_left(13)
}

fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 15).wrapping_mul(0x85eb_ca77);
    hash ^ hash >> 13
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP over IPv4 or IPv6 from this port.
    fn segment(v6: bool, tagged: bool, port: u16) -> Vec<u8> {
        let mut head = vec![2; 12];
        if tagged {
            head.extend([0x81, 0, 0, 7]);
        }
        if v6 {
            head.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            head.extend([7; 32]);
        } else {
            head.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
            head.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        head.extend(port.to_be_bytes());
        head.extend([0, 80]);
        head
    }

    #[test]
    fn flows_spread_over_all_pairs_and_each_keeps_to_its_own() {
        for (v6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
            for pairs in 1..=16 {
                let mut hits = vec![0; pairs];
                for port in 0..1600 {
                    let head = segment(v6, tagged, port);
                    hits[pair(&head, pairs)] += 1;
                    assert_eq!(pair(&head, pairs), pair(&head, pairs));
                }
                let even = 1600 / pairs;
                assert!(
                    hits.iter().all(|h| *h > even / 2),
                    "{v6} {tagged}: {hits:?}"
                );
            }
        }
    }

    #[test]
    fn fragments_of_a_datagram_go_where_their_addresses_say() {
        let mut first = segment(false, false, 1);
        first[20] = 0x20;
        let mut second = segment(false, false, 2);
        second[20] = 0;
        second[21] = 100;
        assert_eq!(flow(&first), flow(&second));
        assert_ne!(
            flow(&segment(false, false, 1)),
            flow(&segment(false, false, 2))
        );
    }

    fn hashed(types: u32, bytes: &[u8]) -> Hashed {
        let mut batch = frame::Batch::new();
        batch.push_bytes(bytes);
        batch.end(wire::Offload::NONE);
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        let steering = Steering::new(Rss {
            types,
            key: key.to_vec(),
            spread: None,
        });
        let frame = batch.get(0).expect("pushed");
        steering.place(&frame, 1, true).1
    }

    #[test]
    fn hashes_are_those_of_microsofts_suite_whatever_is_in_front_of_them() {
        use hash::report as r;
        let of = |value, report| Hashed { value, report };
        for tagged in [false, true] {
            let mut v4 = segment(false, tagged, 2794);
            let ip = if tagged { 18 } else { 14 };
            v4[ip + 12..ip + 20].copy_from_slice(&[66, 9, 149, 187, 161, 142, 100, 80]);
            v4[ip + 22..ip + 24].copy_from_slice(&1766u16.to_be_bytes());
            v4.extend([0; 40]);
            v4[ip + 32] = 0x50;
            assert_eq!(hashed(hash::TYPES, &v4), of(0x51cc_c178, r::TCP4));
            assert_eq!(hashed(hash::IP4 | hash::UDP4, &v4), of(0x323e_8fc2, r::IP4));
            assert_eq!(hashed(hash::UDP4 | hash::TCP6, &v4), Hashed::default());
            v4[ip + 6] = 0x20;
            assert_eq!(
                hashed(hash::TYPES, &v4),
                of(0x323e_8fc2, r::IP4),
                "a fragment"
            );
            v4[ip + 6] = 0;
            v4[ip + 9] = 17;
            assert_eq!(hashed(hash::TYPES, &v4), of(0x51cc_c178, r::UDP4));
            let mut v6 = segment(true, tagged, 2794);
            v6.truncate(ip + 8);
            let [src, dst] = ["3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1"]
                .map(|a| a.parse::<std::net::Ipv6Addr>().expect("an address"));
            v6.extend([src.octets(), dst.octets()].concat());
            let mut tcp = [2794u16.to_be_bytes(), 1766u16.to_be_bytes()].concat();
            tcp.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
            let plain = [&v6[..], &tcp].concat();
            assert_eq!(hashed(hash::TYPES, &plain), of(0x4020_7d3d, r::TCP6));
            assert_eq!(hashed(hash::IP6, &plain), of(0x2cc1_8cd5, r::IP6));
            // Options in front of TCP, longer than what a frame carries as its head.
            v6[ip + 6] = 60;
            let mut options = vec![6, 7];
            options.resize(64, 0);
            let far = [&v6[..], &options, &tcp].concat();
            assert_eq!(hashed(hash::TYPES, &far), of(0x4020_7d3d, r::TCP6));
            let short = &far[..far.len() - 20];
            assert_eq!(hashed(hash::TYPES, short), of(0x2cc1_8cd5, r::IP6));
        }
        assert_eq!(hashed(hash::TYPES, &[0x11; 60]), Hashed::default());
    }

    #[test]
    fn whatever_is_cut_short_or_no_ip_has_a_pair() {
        for head in [segment(false, true, 1), segment(true, true, 1)] {
            for len in 0..head.len() {
                assert!(pair(&head[..len], 16) < 16);
            }
        }
        assert_eq!(pair(&[0xff; 64], 16), 0);
    }
}
