//! What is sent: sizes, flows, and frames made of them in place.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use drivers::e1000::TxOffload;
use drivers::e1000::poll::{Buffer, Offload, TxFrame};

use wire::Sum;

use crate::check::Depth;
use crate::stamp::{self, Stamp};

/// The shortest frame, without CRC.
pub const SHORTEST: u32 = 60;

/// The longest frame the chip sends whole.
pub const LONGEST: u32 = 16128;

/// The longest frame it segments.
pub const LONGEST_SEGMENTED: u32 = 14 + 65535;

/// Headers of any of our frames: Ethernet, tag, IPv6, TCP.
const HEAD: usize = 14 + 4 + 40 + 20;

/// Lengths of frames, without CRC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// One after the other, again and again.
    List(Vec<u32>),
    /// Any from the first to the second, at random.
    Range(u32, u32),
}

/// The simple Internet mix: seven of 60, four of 590, one of 1514.
const IMIX: [u32; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

impl Sizes {
    /// The longest.
    pub fn longest(&self) -> u32 {
        match self {
            Self::List(list) => list.iter().copied().max().unwrap_or(SHORTEST),
            Self::Range(_, last) => *last,
        }
    }

    /// The shortest.
    pub fn shortest(&self) -> u32 {
        match self {
            Self::List(list) => list.iter().copied().min().unwrap_or(SHORTEST),
            Self::Range(first, _) => *first,
        }
    }

    /// Mean length in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Self::List(list) => f64::from(list.iter().sum::<u32>()) / list.len().max(1) as f64,
            Self::Range(first, last) => f64::from(first + last) / 2.0,
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| {
            let n: u32 = word
                .trim()
                .parse()
                .map_err(|_| format!("\"{word}\" is not a length: give bytes, such as 60"))?;
            if !(SHORTEST..=LONGEST_SEGMENTED).contains(&n) {
                return Err(format!(
                    "a frame has {SHORTEST} to {LONGEST} bytes without its CRC \
                     (to {LONGEST_SEGMENTED} with --tso), not {n}"
                ));
            }
            Ok(n)
        };
        if text == "imix" {
            return Ok(Self::List(IMIX.into()));
        }
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!(
                    "{first} is more than {last}: write the smaller one first"
                ));
            }
            return Ok(Self::Range(first, last));
        }
        Ok(Self::List(
            text.split(',').map(number).collect::<Result<_, _>>()?,
        ))
    }
}

/// So many addresses, ports or tags from a first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<T> {
    /// The first.
    pub first: T,
    /// How many, at least 1.
    pub count: u32,
}

impl<T> Span<T> {
    /// Just this.
    pub fn one(first: T) -> Self {
        Self { first, count: 1 }
    }
}

fn ends(text: &str) -> (&str, Option<&str>) {
    match text.split_once('-') {
        Some((first, last)) => (first, Some(last)),
        None => (text, None),
    }
}

impl FromStr for Span<u16> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| word.parse::<u16>().map_err(|e| format!("\"{word}\": {e}"));
        let (first, last) = ends(text);
        let first = number(first)?;
        let last = last.map_or(Ok(first), number)?;
        if last < first {
            return Err(format!(
                "{first} is more than {last}: write the smaller one first"
            ));
        }
        let count = u32::from(last - first) + 1;
        Ok(Self { first, count })
    }
}

impl FromStr for Span<Ipv4Addr> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = |word: &str| {
            word.parse::<Ipv4Addr>()
                .map_err(|e| format!("\"{word}\": {e}"))
        };
        let (first, last) = ends(text);
        let first = address(first)?;
        let last = last.map_or(Ok(first), address)?;
        let count = u32::from(last)
            .checked_sub(first.into())
            .and_then(|n| n.checked_add(1))
            .ok_or_else(|| format!("{first} is more than {last}: write the smaller one first"))?;
        Ok(Self { first, count })
    }
}

impl FromStr for Span<[u8; 6]> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // MAC/COUNT, since a MAC may be written with dashes elsewhere.
        let (mac, count) = match text.split_once('/') {
            Some((mac, count)) => (mac, count.parse().map_err(|e| format!("\"{count}\": {e}"))?),
            None => (text, 1),
        };
        let first = any_mac(mac)?;
        if count == 0 {
            return Err("the count of addresses must be at least 1".into());
        }
        Ok(Self { first, count })
    }
}

/// Any address, those of groups too.
fn any_mac(text: &str) -> Result<[u8; 6], String> {
    let mut mac = [0; 6];
    let mut words = text.split(':');
    for byte in &mut mac {
        let word = words.next().unwrap_or_default();
        *byte = u8::from_str_radix(word, 16).map_err(|_| {
            format!("\"{text}\" is not a MAC address: write it as 52:54:00:12:34:56")
        })?;
    }
    match words.next() {
        None => Ok(mac),
        Some(_) => Err(format!("\"{text}\" is too long for a MAC address")),
    }
}

/// The `n`th address from `first` on.
fn mac_at(first: [u8; 6], n: u32) -> [u8; 6] {
    let mut wide = [0; 8];
    wide[2..].copy_from_slice(&first);
    let next = (u64::from_be_bytes(wide) + u64::from(n)).to_be_bytes();
    let mut mac = [0; 6];
    mac.copy_from_slice(&next[2..]);
    mac
}

/// Flows and what their frames look like.
#[derive(Clone, Debug)]
pub struct Flows {
    /// How many.
    pub count: u32,
    /// The flow of a frame is picked at random rather than in turn.
    pub random: bool,
    /// Source addresses; the NIC's own when absent.
    pub src_mac: Option<Span<[u8; 6]>>,
    /// Destination addresses; the receiving NIC's in the same process, else broadcast.
    pub dst_mac: Option<Span<[u8; 6]>>,
    /// Source addresses.
    pub src_ip: Span<Ipv4Addr>,
    /// Destination addresses.
    pub dst_ip: Span<Ipv4Addr>,
    /// IPv6 instead, with the IPv4 addresses in its low bits.
    pub ipv6: bool,
    /// Source ports.
    pub src_port: Span<u16>,
    /// Destination ports.
    pub dst_port: Span<u16>,
    /// 802.1Q tags, in turn by flow.
    pub vlans: Option<Span<u16>>,
    /// The NIC inserts and strips the tags.
    pub vlan_offload: bool,
    /// The NIC computes checksums.
    pub checksum: bool,
    /// TCP, cut by the NIC into segments of so many bytes of payload.
    pub tso: Option<u16>,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            count: 1,
            random: false,
            src_mac: None,
            dst_mac: None,
            src_ip: Span::one(Ipv4Addr::new(10, 0, 0, 1)),
            dst_ip: Span::one(Ipv4Addr::new(10, 1, 0, 1)),
            ipv6: false,
            src_port: Span::one(4096),
            dst_port: Span::one(stamp::PORT),
            vlans: None,
            vlan_offload: false,
            checksum: false,
            tso: None,
        }
    }
}

impl Flows {
    /// Bytes of headers, without stamp.
    pub fn headers(&self) -> u32 {
        let tag = if self.vlans.is_some() && !self.vlan_offload {
            4
        } else {
            0
        };
        let ip = if self.ipv6 { 40 } else { 20 };
        let l4 = if self.tso.is_some() { 20 } else { 8 };
        14 + tag + ip + l4
    }

    /// The shortest frame that holds what it must.
    pub fn shortest(&self) -> u32 {
        let stamp = if self.tso.is_some() {
            1
        } else {
            stamp::LEN as u32
        };
        (self.headers() + stamp).max(SHORTEST)
    }
}

/// The headers of a flow, but for lengths and checksums.
#[derive(Clone)]
struct Template {
    head: [u8; HEAD],
    vlan: Option<u16>,
}

/// Makes the frames of one sender.
pub struct Maker {
    flows: Flows,
    sizes: Sizes,
    run: u16,
    sender: u32,
    depth: Depth,
    l3: usize,
    l4: usize,
    end: usize,
    templates: Vec<Template>,
    /// What comes next in each flow: a number, or a byte of the stream.
    next: Vec<u64>,
    flow: u32,
    size: usize,
    random: u64,
    /// What each of the NIC's buffers holds.
    written: Vec<Written>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Written {
    flow: u32,
    /// 0: nothing yet.
    len: u32,
    offload: Option<Offload>,
}

impl Maker {
    /// For the NIC with address `own`, sending to `peer`.
    pub fn new(
        flows: &Flows,
        sizes: &Sizes,
        (run, sender): (u16, u32),
        depth: Depth,
        (own, peer): ([u8; 6], [u8; 6]),
        seed: u64,
    ) -> Self {
        let tag = flows.vlans.is_some() && !flows.vlan_offload;
        let l3 = if tag { 18 } else { 14 };
        let l4 = l3 + if flows.ipv6 { 40 } else { 20 };
        let end = flows.headers() as usize;
        let places = (l3, l4);
        let id = |n: u32| sender << stamp::FLOW_BITS | n;
        let templates = (0..flows.count)
            .map(|n| template(flows, n, id(n), run, (own, peer), places))
            .collect();
        Self {
            flows: flows.clone(),
            sizes: sizes.clone(),
            run,
            sender,
            depth,
            l3,
            l4,
            end,
            templates,
            next: vec![0; flows.count as usize],
            flow: flows.count - 1,
            size: 0,
            random: seed,
            written: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Which sender it is.
    pub fn sender(&self) -> u32 {
        self.sender
    }

    /// What was sent in each flow: frames, or bytes of the stream.
    pub fn sent(&self) -> &[u64] {
        &self.next
    }

    #[inline]
    fn draw(&mut self, below: u32) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let wide = stamp::mix(self.random) >> 32;
        ((wide * u64::from(below)) >> 32) as u32
    }

    #[inline]
    fn pick(&mut self) -> (u32, u32) {
        if self.templates.len() > 1 {
            self.flow = if self.flows.random {
                self.draw(self.flows.count)
            } else if self.flow + 1 == self.flows.count {
                0
            } else {
                self.flow + 1
            };
        }
        let len = match &self.sizes {
            Sizes::List(list) => {
                let len = list[self.size];
                self.size = if self.size + 1 == list.len() {
                    0
                } else {
                    self.size + 1
                };
                len
            }
            &Sizes::Range(first, last) => first + self.draw(last - first + 1),
        };
        (self.flow, len)
    }

    /// Makes the next frame, leaving at `time` (of a stamp).
    #[inline]
    pub fn make(&mut self, buffer: &Buffer<'_>, time: u32) -> TxFrame {
        let (flow, len) = self.pick();
        let number = buffer.number() as usize;
        let known = self.written.get(number).copied().unwrap_or_default();
        let written = if known.flow == flow && known.len == len {
            known
        } else {
            self.rewrite(buffer, flow, len)
        };
        let at = self.end;
        let next = self.next[flow as usize];
        if self.flows.tso.is_some() {
            let payload = len - at as u32;
            buffer.put(self.l4 + 4, (next as u32).to_be_bytes());
            if self.depth == Depth::Full {
                let key = stamp::mix((self.sender << stamp::FLOW_BITS | flow).into());
                self.fill(buffer, at, len, key, next);
            }
            self.next[flow as usize] = next + u64::from(payload);
        } else {
            let stamp = Stamp {
                run: self.run,
                flow: self.sender << stamp::FLOW_BITS | flow,
                number: next as u32,
                time,
            };
            buffer.put(at, stamp.bytes(len));
            if self.depth == Depth::Full {
                self.fill(buffer, at + stamp::LEN, len, stamp.key(), 0);
            }
            self.next[flow as usize] = next + 1;
        }
        TxFrame {
            len,
            vlan: self.templates[flow as usize].vlan,
            offload: written.offload,
        }
    }

    fn fill(&mut self, buffer: &Buffer<'_>, at: usize, len: u32, key: u64, position: u64) {
        let payload = &mut self.scratch[at..len as usize];
        stamp::fill(key, position, payload);
        buffer.write(at, payload);
    }

    /// Writes the headers of a flow, for frames of a length, into a buffer.
    fn rewrite(&mut self, buffer: &Buffer<'_>, flow: u32, len: u32) -> Written {
        let (l3, l4, end) = (self.l3, self.l4, self.end);
        let mut head = self.templates[flow as usize].head;
        let total = (len as usize - l3) as u16;
        let behind = (len as usize - l4) as u16;
        if self.flows.ipv6 {
            head[l3 + 4..l3 + 6].copy_from_slice(&behind.to_be_bytes());
        } else {
            head[l3 + 2..l3 + 4].copy_from_slice(&total.to_be_bytes());
            let sum = Sum::of(&head[l3..l4]).finish();
            head[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let offload = match self.flows.tso {
            Some(mss) => Some(TxOffload::Tso { mss }),
            None => {
                head[l4 + 4..l4 + 6].copy_from_slice(&behind.to_be_bytes());
                let wanted = TxOffload::Sums {
                    ip: !self.flows.ipv6,
                    l4: true,
                };
                (self.flows.checksum || self.flows.ipv6).then_some(wanted)
            }
        };
        let offload = offload.map(|offload| {
            Offload::of(&mut head[..end], len, offload).expect("our own headers are TCP or UDP")
        });
        buffer.write(0, &head[..end]);
        let written = Written { flow, len, offload };
        let number = buffer.number() as usize;
        if number >= self.written.len() {
            self.written.resize(number + 1, Written::default());
        }
        self.written[number] = written;
        if self.scratch.len() < len as usize {
            self.scratch.resize(len as usize, 0);
        }
        written
    }
}

fn template(
    flows: &Flows,
    n: u32,
    id: u32,
    run: u16,
    (own, peer): ([u8; 6], [u8; 6]),
    (l3, l4): (usize, usize),
) -> Template {
    let mut head = [0; HEAD];
    let mac = |span: Option<Span<[u8; 6]>>, default| {
        span.map_or(default, |s| mac_at(s.first, n % s.count))
    };
    head[0..6].copy_from_slice(&mac(flows.dst_mac, peer));
    head[6..12].copy_from_slice(&mac(flows.src_mac, own));
    let tag = flows
        .vlans
        .map(|s| s.first.wrapping_add((n % s.count) as u16));
    if let Some(tag) = tag.filter(|_| !flows.vlan_offload) {
        head[12..14].copy_from_slice(&[0x81, 0]);
        head[14..16].copy_from_slice(&tag.to_be_bytes());
    }
    let protocol = if flows.tso.is_some() { 6 } else { 17 };
    let ip = |s: Span<Ipv4Addr>| Ipv4Addr::from(u32::from(s.first).wrapping_add(n % s.count));
    let (src, dst) = (ip(flows.src_ip), ip(flows.dst_ip));
    if flows.ipv6 {
        head[l3 - 2..l3].copy_from_slice(&[0x86, 0xdd]);
        head[l3] = 0x60;
        head[l3 + 6] = protocol;
        head[l3 + 7] = 64;
        // A unique local prefix (RFC 4193), the IPv4 address below it.
        let wide = |low: Ipv4Addr| {
            let mut octets = Ipv6Addr::new(0xfd68, 0x7970, 0, 0, 0, 0, 0, 0).octets();
            octets[12..].copy_from_slice(&low.octets());
            octets
        };
        head[l3 + 8..l3 + 24].copy_from_slice(&wide(src));
        head[l3 + 24..l3 + 40].copy_from_slice(&wide(dst));
    } else {
        head[l3 - 2..l3].copy_from_slice(&[8, 0]);
        head[l3] = 0x45;
        head[l3 + 6] = 0x40;
        head[l3 + 8] = 64;
        head[l3 + 9] = protocol;
        head[l3 + 12..l3 + 16].copy_from_slice(&src.octets());
        head[l3 + 16..l3 + 20].copy_from_slice(&dst.octets());
    }
    let port = |s: Span<u16>| s.first.wrapping_add((n % s.count) as u16).to_be_bytes();
    head[l4..l4 + 2].copy_from_slice(&port(flows.src_port));
    head[l4 + 2..l4 + 4].copy_from_slice(&port(flows.dst_port));
    if flows.tso.is_some() {
        // What segmentation repeats in every segment and means nothing without its flag.
        head[l4 + 8..l4 + 12].copy_from_slice(&id.to_be_bytes());
        head[l4 + 12] = 5 << 4;
        head[l4 + 14] = 0xff;
        head[l4 + 15] = 0xff;
        head[l4 + 18..l4 + 20].copy_from_slice(&run.to_be_bytes());
    }
    let vlan = tag.filter(|_| flows.vlan_offload);
    Template { head, vlan }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!("60".parse(), Ok(Sizes::List(vec![60])));
        assert_eq!("60,256, 1514".parse(), Ok(Sizes::List(vec![60, 256, 1514])));
        assert_eq!("60-1514".parse(), Ok(Sizes::Range(60, 1514)));
        let imix: Sizes = "imix".parse().expect("a mix");
        assert_eq!((imix.shortest(), imix.longest()), (60, 1514));
        assert_eq!(imix.mean(), (7 * 60 + 4 * 590 + 1514) as f64 / 12.0);
        for (text, why) in [
            ("59", "60 to"),
            ("70000", "60 to"),
            ("1514-60", "smaller one first"),
            ("big", "not a length"),
        ] {
            let error = text.parse::<Sizes>().expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn spans_are_read_and_counted() {
        let ports: Span<u16> = "1000-1003".parse().expect("ports");
        assert_eq!((ports.first, ports.count), (1000, 4));
        let ips: Span<Ipv4Addr> = "10.0.0.250-10.0.1.5".parse().expect("addresses");
        assert_eq!(ips.count, 12);
        let macs: Span<[u8; 6]> = "52:54:00:00:00:ff/3".parse().expect("addresses");
        assert_eq!(mac_at(macs.first, 2), [0x52, 0x54, 0, 0, 1, 1]);
        let all: Span<[u8; 6]> = "ff:ff:ff:ff:ff:ff".parse().expect("broadcast");
        assert_eq!(all.first, [0xff; 6]);
        assert!("10.0.0.2-10.0.0.1".parse::<Span<Ipv4Addr>>().is_err());
        assert!("01:00:5e:00:00:01".parse::<Span<[u8; 6]>>().is_ok());
        assert!("01:00:5e:00:00".parse::<Span<[u8; 6]>>().is_err());
    }
}
