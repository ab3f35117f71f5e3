//! Looks at every frame that a NIC sends, as a strict receiver would.

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Packet, IpProtocol, Ipv4Packet,
    Ipv6Packet, TcpPacket, UdpPacket,
};

/// Bytes of a frame check sequence, which a NIC's statistics count and a port does not carry.
const FCS: usize = 4;

/// The shortest frame without its check sequence (IEEE 802.3 §4A.2.3.2.4).
pub(super) const SHORTEST: usize = 60;

/// What went one way, in the categories of a NIC's statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames.
    pub frames: u64,
    /// Their bytes with check sequences.
    pub bytes: u64,
    /// Frames to everybody.
    pub broadcast: u64,
    /// Frames to a group.
    pub multicast: u64,
    /// Frames by length with check sequence: to 64, 127, 255, 511, 1023, and longer.
    pub by_size: [u64; 6],
    /// Frames with a VLAN tag.
    pub tagged: u64,
    /// TCP segments with data.
    pub tcp_data: u64,
    /// The longest frame, without check sequence.
    pub longest: usize,
}

impl Traffic {
    pub(super) fn add(&mut self, frame: &[u8]) {
        let length = frame.len().max(SHORTEST) + FCS;
        self.frames += 1;
        self.bytes += length as u64;
        if frame.starts_with(&[0xff; 6]) {
            self.broadcast += 1;
        } else if frame.first().is_some_and(|b| b & 1 == 1) {
            self.multicast += 1;
        }
        let bin = match length {
            0..=64 => 0,
            65..=127 => 1,
            128..=255 => 2,
            256..=511 => 3,
            512..=1023 => 4,
            _ => 5,
        };
        self.by_size[bin] += 1;
        self.tagged += u64::from(tag(frame).is_some());
        self.tcp_data += u64::from(has_tcp_data(frame));
        self.longest = self.longest.max(frame.len());
    }

    /// What was added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut by_size = self.by_size;
        for (now, then) in by_size.iter_mut().zip(before.by_size) {
            *now -= then;
        }
        Self {
            frames: self.frames - before.frames,
            bytes: self.bytes - before.bytes,
            broadcast: self.broadcast - before.broadcast,
            multicast: self.multicast - before.multicast,
            by_size,
            tagged: self.tagged - before.tagged,
            tcp_data: self.tcp_data - before.tcp_data,
            longest: self.longest,
        }
    }
}

/// The tag control information of a tagged frame.
#[must_use]
pub fn tag(frame: &[u8]) -> Option<u16> {
    match frame.get(12..16)? {
        &[0x81, 0x00, a, b] => Some(u16::from_be_bytes([a, b])),
        _ => None,
    }
}

/// The frame without its VLAN tag, if it has one.
#[must_use]
pub fn untagged(frame: &[u8]) -> Vec<u8> {
    if tag(frame).is_none() {
        return frame.to_vec();
    }
    [&frame[..12], &frame[16..]].concat()
}

fn has_tcp_data(frame: &[u8]) -> bool {
    let plain = untagged(frame);
    let Ok(frame) = EthernetFrame::new_checked(plain.as_slice()) else {
        return false;
    };
    let segment = match frame.ethertype() {
        EthernetProtocol::Ipv4 => Ipv4Packet::new_checked(frame.payload())
            .ok()
            .filter(|ip| ip.next_header() == IpProtocol::Tcp)
            .map(|ip| ip.payload().to_vec()),
        EthernetProtocol::Ipv6 => Ipv6Packet::new_checked(frame.payload())
            .ok()
            .filter(|ip| ip.next_header() == IpProtocol::Tcp)
            .map(|ip| ip.payload().to_vec()),
        _ => None,
    };
    let segment = segment.and_then(|bytes| {
        TcpPacket::new_checked(bytes.as_slice())
            .map(|tcp| !tcp.payload().is_empty())
            .ok()
    });
    segment.unwrap_or(false)
}

/// What is wrong with a frame, in words.
///
/// # Errors
/// The first fault.
pub fn inspect(frame: &[u8]) -> Result<(), String> {
    if frame.len() < SHORTEST {
        return Err(format!("{} bytes is too short for the wire", frame.len()));
    }
    let plain = untagged(frame);
    let eth = EthernetFrame::new_checked(plain.as_slice()).map_err(|_| "no header")?;
    if eth.src_addr() == EthernetAddress([0; 6]) || eth.src_addr().is_multicast() {
        return Err(format!("sent by {}", eth.src_addr()));
    }
    match eth.ethertype() {
        EthernetProtocol::Ipv4 => ipv4(eth.payload()),
        EthernetProtocol::Ipv6 => ipv6(eth.payload()),
        _ => Ok(()),
    }
}

/// Bytes behind the packet are padding: zero, and only where the frame would be too short.
fn padding(payload: &[u8], used: usize) -> Result<(), String> {
    let rest = payload.get(used..).ok_or("cut off")?;
    if rest.iter().any(|b| *b != 0) {
        return Err(format!("padding that is not zero: {rest:02x?}"));
    }
    if !rest.is_empty() && payload.len() > SHORTEST - 14 {
        return Err(format!("{} bytes too long", rest.len()));
    }
    Ok(())
}

fn ipv4(payload: &[u8]) -> Result<(), String> {
    let ip = Ipv4Packet::new_checked(payload).map_err(|_| "a bad IPv4 header")?;
    if !ip.verify_checksum() {
        return Err(format!("a wrong IPv4 header checksum: {ip}"));
    }
    padding(payload, usize::from(ip.total_len()))?;
    if ip.more_frags() || ip.frag_offset() != 0 {
        return Ok(());
    }
    let (from, to) = (ip.src_addr().into(), ip.dst_addr().into());
    let body = ip.payload();
    let good = match ip.next_header() {
        IpProtocol::Tcp => TcpPacket::new_checked(body).map(|p| p.verify_checksum(&from, &to)),
        IpProtocol::Udp => UdpPacket::new_checked(body).map(|p| p.verify_checksum(&from, &to)),
        IpProtocol::Icmp => Icmpv4Packet::new_checked(body).map(|p| p.verify_checksum()),
        _ => Ok(true),
    };
    verdict(good, &ip.to_string())
}

fn ipv6(payload: &[u8]) -> Result<(), String> {
    let ip = Ipv6Packet::new_checked(payload).map_err(|_| "a bad IPv6 header")?;
    padding(payload, ip.total_len())?;
    let (from, to) = (ip.src_addr().into(), ip.dst_addr().into());
    let body = ip.payload();
    let good = match ip.next_header() {
        IpProtocol::Tcp => TcpPacket::new_checked(body).map(|p| p.verify_checksum(&from, &to)),
        IpProtocol::Udp => UdpPacket::new_checked(body).map(|p| p.verify_checksum(&from, &to)),
        _ => Ok(true),
    };
    verdict(good, &ip.to_string())
}

fn verdict(good: Result<bool, smoltcp::wire::Error>, packet: &str) -> Result<(), String> {
    match good {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("a wrong checksum: {packet}")),
        Err(_) => Err(format!("a bad header behind: {packet}")),
    }
}
