//! Packets made by hand, and answers put together again.

use std::collections::{BTreeMap, HashMap};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv4Message, Icmpv4Packet,
    Icmpv4Repr, IpProtocol, Ipv4Address, Ipv4Packet, UdpPacket, UdpRepr,
};

use super::inspect::{tag, untagged};
use super::target::{MAC, Target, address};

/// The protocol number of UDP in an IPv4 header, for [`fragments`].
pub const UDP: IpProtocol = IpProtocol::Udp;

/// Marks our pings.
const IDENT: u16 = 0x4859;

const ETHERNET: usize = 14;
const IPV4: usize = 20;

/// A frame with a tag put in: priority, CFI and VLAN as the tag control information has them.
#[must_use]
pub fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let [a, b] = tci.to_be_bytes();
    [&frame[..12], &[0x81, 0x00, a, b], &frame[12..]].concat()
}

/// A UDP packet for a guest's discard port, in one frame.
#[must_use]
pub fn udp(target: Target, payload: &[u8]) -> Vec<u8> {
    let (from, to) = ends(target);
    let repr = UdpRepr {
        src_port: 9,
        dst_port: 9,
    };
    let mut body = vec![0; repr.header_len() + payload.len()];
    repr.emit(
        &mut UdpPacket::new_unchecked(&mut body),
        &from.into(),
        &to.into(),
        payload.len(),
        |to| to.copy_from_slice(payload),
        &ChecksumCapabilities::default(),
    );
    frame(target, &ipv4(target, IpProtocol::Udp, 0, &body, 0, false))
}

/// A ping for a guest, in as many frames as the MTU asks for.
#[must_use]
pub fn echo_request(target: Target, number: u16, payload: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let repr = Icmpv4Repr::EchoRequest {
        ident: IDENT,
        seq_no: number,
        data: payload,
    };
    let mut body = vec![0; repr.buffer_len()];
    repr.emit(
        &mut Icmpv4Packet::new_unchecked(&mut body),
        &ChecksumCapabilities::default(),
    );
    fragments(target, IpProtocol::Icmp, number, &body, mtu)
}

/// An IPv4 packet for a guest, in as many frames as the MTU asks for.
#[must_use]
pub fn fragments(
    target: Target,
    protocol: IpProtocol,
    ident: u16,
    body: &[u8],
    mtu: usize,
) -> Vec<Vec<u8>> {
    let most = if IPV4 + body.len() <= mtu {
        body.len().max(1)
    } else {
        (mtu - IPV4) / 8 * 8
    };
    let count = body.len().div_ceil(most).max(1);
    (0..count)
        .map(|i| {
            let at = i * most;
            let part = &body[at..body.len().min(at + most)];
            let packet = ipv4(target, protocol, ident, part, at, i + 1 < count);
            frame(target, &packet)
        })
        .collect()
}

fn ends(target: Target) -> (Ipv4Address, Ipv4Address) {
    let at = |host| Ipv4Address::from(address(target.tag, host));
    (at(1), at(target.host))
}

fn ipv4(
    target: Target,
    protocol: IpProtocol,
    ident: u16,
    body: &[u8],
    offset: usize,
    more: bool,
) -> Vec<u8> {
    let (from, to) = ends(target);
    let mut bytes = vec![0; IPV4 + body.len()];
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes);
    packet.set_version(4);
    packet.set_header_len(IPV4 as u8);
    packet.set_total_len(length);
    packet.set_ident(ident);
    packet.set_more_frags(more);
    packet.set_frag_offset(offset as u16);
    packet.set_hop_limit(64);
    packet.set_next_header(protocol);
    packet.set_src_addr(from);
    packet.set_dst_addr(to);
    packet.fill_checksum();
    packet.payload_mut().copy_from_slice(body);
    bytes
}

fn frame(target: Target, packet: &[u8]) -> Vec<u8> {
    let repr = EthernetRepr {
        src_addr: EthernetAddress(MAC),
        dst_addr: EthernetAddress(target.mac),
        ethertype: EthernetProtocol::Ipv4,
    };
    let mut bytes = vec![0; ETHERNET + packet.len()];
    repr.emit(&mut EthernetFrame::new_unchecked(&mut bytes));
    bytes[ETHERNET..].copy_from_slice(packet);
    match target.tag {
        Some(tag) => tagged(&bytes, tag),
        None => bytes,
    }
}

/// Answers to pings, which may come in fragments.
#[derive(Default)]
pub(super) struct Reassembly {
    /// By the packet's number.
    packets: HashMap<u16, Parts>,
}

/// A packet that is not whole yet.
#[derive(Default)]
struct Parts {
    /// By their place.
    parts: BTreeMap<usize, Vec<u8>>,
    /// Once known.
    length: Option<usize>,
}

impl Reassembly {
    /// The number and payload of the answer that this frame completes.
    pub(super) fn answer(&mut self, frame: &[u8], from: Target) -> Option<(u16, Vec<u8>)> {
        if tag(frame).map(|t| t & 0xfff) != from.tag {
            return None;
        }
        let plain = untagged(frame);
        let eth = EthernetFrame::new_checked(plain.as_slice()).ok()?;
        if eth.ethertype() != EthernetProtocol::Ipv4 || eth.dst_addr().0 != MAC {
            return None;
        }
        let ip = Ipv4Packet::new_checked(eth.payload()).ok()?;
        let (to, source) = ends(from);
        let ours = ip.src_addr() == source && ip.dst_addr() == to;
        if !ours || ip.next_header() != IpProtocol::Icmp {
            return None;
        }
        let body = self.whole(&ip)?;
        let icmp = Icmpv4Packet::new_checked(body.as_slice()).ok()?;
        let answers = icmp.msg_type() == Icmpv4Message::EchoReply && icmp.echo_ident() == IDENT;
        (answers && icmp.verify_checksum()).then(|| (icmp.echo_seq_no(), icmp.data().to_vec()))
    }

    fn whole(&mut self, ip: &Ipv4Packet<&[u8]>) -> Option<Vec<u8>> {
        let at = usize::from(ip.frag_offset());
        if at == 0 && !ip.more_frags() {
            return Some(ip.payload().to_vec());
        }
        let packet = self.packets.entry(ip.ident()).or_default();
        packet.parts.insert(at, ip.payload().to_vec());
        if !ip.more_frags() {
            packet.length = Some(at + ip.payload().len());
        }
        let have: usize = packet.parts.values().map(Vec::len).sum();
        if Some(have) != packet.length {
            return None;
        }
        let packet = self.packets.remove(&ip.ident())?;
        Some(packet.parts.into_values().flatten().collect())
    }
}
