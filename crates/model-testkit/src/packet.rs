//! Packets.

use std::net::Ipv6Addr;

use wire::{Csum, Gso, Layers, Offload, Sum};

/// The station address of a NIC in tests.
pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// The station at the other end of its wire.
pub const PEER: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];
/// Where pause frames go (IEEE 802.3 annex 31B).
pub const PAUSE_GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 1];

/// `len` bytes from [`PEER`], of a type that nothing looks into.
pub fn plain(dst: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| i as u8).collect();
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&PEER);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// A frame of this type, padded to 60 bytes.
pub fn typed(dst: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = plain(dst, 14);
    frame.truncate(12);
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// The frame with a tag of VLAN 5.
pub fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0, 0, 5]);
    frame
}

/// A MAC control frame.
pub fn control(dst: [u8; 6], opcode: u16, quanta: u16) -> Vec<u8> {
    let [a, b] = opcode.to_be_bytes();
    let [c, d] = quanta.to_be_bytes();
    typed(dst, 0x8808, &[a, b, c, d])
}

/// A pause frame.
pub fn pause(quanta: u16) -> Vec<u8> {
    control(PAUSE_GROUP, 1, quanta)
}

/// `before` bytes, then what wakes the station `mac`: six times 0xff and sixteen times its address.
pub fn magic(dst: [u8; 6], mac: [u8; 6], before: usize) -> Vec<u8> {
    let mut frame = plain(dst, 14 + before);
    frame.extend([0xff; 6]);
    for _ in 0..16 {
        frame.extend(mac);
    }
    frame
}

/// TCP or UDP over IPv4 with 20 bytes behind it, all checksums right.
pub fn v4(src: [u8; 4], dst: [u8; 4], tcp: bool, sport: u16, dport: u16) -> Vec<u8> {
    v4_with(src, dst, tcp, sport, dport, 20)
}

/// As [`v4`], with `len` bytes behind it.
pub fn v4_with(
    src: [u8; 4],
    dst: [u8; 4],
    tcp: bool,
    sport: u16,
    dport: u16,
    len: usize,
) -> Vec<u8> {
    let l4 = if tcp { 20 } else { 8 };
    let mut bytes = vec![0; 34 + l4 + len];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&((20 + l4 + len) as u16).to_be_bytes());
    bytes[18..20].copy_from_slice(&[0x12, 0x34]);
    bytes[22..24].copy_from_slice(&[64, if tcp { 6 } else { 17 }]);
    bytes[26..30].copy_from_slice(&src);
    bytes[30..34].copy_from_slice(&dst);
    transport(&mut bytes, 34, tcp, sport, dport);
    sums(&mut bytes);
    bytes
}

/// TCP over IPv6 with 20 bytes behind it, its checksum right.
pub fn v6_tcp(src: Ipv6Addr, dst: Ipv6Addr, sport: u16, dport: u16) -> Vec<u8> {
    let mut bytes = vec![0; 54 + 20 + 20];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd]);
    bytes[14] = 0x60;
    bytes[18..22].copy_from_slice(&[0, 40, 6, 64]);
    bytes[22..38].copy_from_slice(&src.octets());
    bytes[38..54].copy_from_slice(&dst.octets());
    transport(&mut bytes, 54, true, sport, dport);
    sums(&mut bytes);
    bytes
}

/// TCP from [`PEER`] with `options` words of options and so many bytes behind them, and the note that has it cut into
/// segments of `mss` bytes.
pub fn large(dst: [u8; 6], v6: bool, options: u8, payload: usize, mss: u16) -> (Vec<u8>, Offload) {
    let mut bytes = match v6 {
        true => v6_tcp([0xfd; 16].into(), [0xfe; 16].into(), 7, 9),
        false => v4([10, 0, 0, 1], [10, 0, 0, 2], true, 7, 9),
    };
    let l4 = if v6 { 54 } else { 34 };
    bytes.truncate(l4 + 20);
    bytes[l4 + 12] = (5 + options) << 4;
    bytes.resize(l4 + 20 + 4 * usize::from(options), 1);
    let hdr_len = bytes.len() as u16;
    bytes.extend((0..payload).map(|i| (i / 251 + i) as u8));
    bytes[..6].copy_from_slice(&dst);
    bytes[6..12].copy_from_slice(&PEER);
    let len = bytes.len() - l4;
    let total = if v6 { (18, len) } else { (16, len + 20) };
    bytes[total.0..total.0 + 2].copy_from_slice(&(total.1 as u16).to_be_bytes());
    sums(&mut bytes);
    let layers = Layers::parse(&bytes).expect("headers");
    let seed = layers.pseudo_sum(&bytes, len).expect("TCP").value();
    bytes[l4 + 16..l4 + 18].copy_from_slice(&seed.to_be_bytes());
    let notes = Offload {
        csum: Some(Csum {
            start: l4 as u16,
            offset: 16,
        }),
        gso: if v6 { Gso::Tcp6 } else { Gso::Tcp4 },
        gso_size: mss,
        hdr_len,
        ..Offload::NONE
    };
    (bytes, notes)
}

/// The same as a driver of the 8254x hands it to its chip, to be cut into segments of `mss` bytes; the sequence number says which it
/// is. Of every other one the sum has the length, which only the chip itself can cut.
pub fn numbered(dst: [u8; 6], n: u32, payload: usize, mss: u16) -> Vec<u8> {
    let (mut bytes, _) = large(dst, false, 0, payload, mss);
    bytes[38..42].copy_from_slice(&(n << 16).to_be_bytes());
    if n % 2 == 1 {
        let layers = Layers::parse(&bytes).expect("headers");
        let seed = layers.pseudo_sum(&bytes, 0).expect("TCP").value();
        bytes[50..52].copy_from_slice(&seed.to_be_bytes());
    }
    bytes
}

fn transport(bytes: &mut [u8], at: usize, tcp: bool, sport: u16, dport: u16) {
    bytes[at..at + 2].copy_from_slice(&sport.to_be_bytes());
    bytes[at + 2..at + 4].copy_from_slice(&dport.to_be_bytes());
    if tcp {
        bytes[at + 12] = 0x50;
        bytes[at + 13] = 0x18;
    } else {
        let len = (bytes.len() - at) as u16;
        bytes[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
    }
    let head = at + if tcp { 20 } else { 8 };
    for (i, byte) in bytes[head..].iter_mut().enumerate() {
        *byte = i as u8;
    }
}

/// Writes the checksums of IPv4 and transport.
pub fn sums(bytes: &mut [u8]) {
    let layers = Layers::parse(bytes).expect("headers");
    let (l3, l4) = (layers.l3.expect("IP"), layers.l4.expect("transport"));
    if l3.kind == wire::L3Kind::V4 {
        bytes[l3.offset + 10..l3.offset + 12].fill(0);
        let sum = Sum::of(&bytes[l3.offset..l3.offset + l3.len]).finish();
        bytes[l3.offset + 10..l3.offset + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let field = l4.offset + l4.kind.checksum_offset().expect("a checksum");
    bytes[field..field + 2].fill(0);
    let mut sum = layers
        .pseudo_sum(bytes, bytes.len() - l4.offset)
        .expect("IP");
    sum.add(&bytes[l4.offset..]);
    bytes[field..field + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
}
