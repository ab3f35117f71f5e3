//! Packets as a guest writes them, and what is right on the wire.

use super::common::{MAC, PEER};

pub const SRC4: [u8; 4] = [10, 0, 0, 1];
pub const DST4: [u8; 4] = [10, 0, 0, 2];

/// The one's complement sum, the slow and obvious way.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn fold(a: u16, b: u16) -> u16 {
    let total = u32::from(a) + u32::from(b);
    (total & 0xffff) as u16 + (total >> 16) as u16
}

pub fn ethernet(kind: u16) -> Vec<u8> {
    let mut out = PEER.to_vec();
    out.extend(MAC);
    out.extend(kind.to_be_bytes());
    out
}

/// IPv4 header with a zero checksum.
pub fn ipv4(protocol: u8, total: u16) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    out.extend(total.to_be_bytes());
    out.extend([0x12, 0xfe, 0x40, 0, 64, protocol, 0, 0]);
    out.extend(SRC4);
    out.extend(DST4);
    out
}

pub fn ipv6(next: u8, payload: u16) -> Vec<u8> {
    let mut out = vec![0x60, 0, 0, 0];
    out.extend(payload.to_be_bytes());
    out.extend([next, 64]);
    out.extend([0xfd; 16]);
    out.extend([0xfe; 16]);
    out
}

pub fn pseudo4(protocol: u8, len: u16) -> u16 {
    let mut bytes = SRC4.to_vec();
    bytes.extend(DST4);
    bytes.extend([0, protocol]);
    bytes.extend(len.to_be_bytes());
    sum(&bytes)
}

pub fn pseudo6(next: u8, len: u16) -> u16 {
    let mut bytes = vec![0xfd; 16];
    bytes.extend([0xfe; 16]);
    bytes.extend([0, 0]);
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0, 0, next]);
    sum(&bytes)
}

/// TCP header of 20 bytes with this seed in its checksum field.
pub fn tcp(flags: u8, seed: u16) -> Vec<u8> {
    let mut out = vec![0x1f, 0x90, 0x00, 0x50];
    out.extend(0xffff_ff00u32.to_be_bytes());
    out.extend([0, 0, 0, 1, 0x50, flags, 0x10, 0]);
    out.extend(seed.to_be_bytes());
    out.extend([0, 0]);
    out
}

pub fn udp(len: u16, seed: u16) -> Vec<u8> {
    let mut out = vec![0x1f, 0x90, 0x00, 0x35];
    out.extend(len.to_be_bytes());
    out.extend(seed.to_be_bytes());
    out
}

pub fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

/// A whole TCP/IPv4 frame with right checksums.
pub fn tcp4(data: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(0x0800);
    frame.extend(ipv4(6, 40 + data.len() as u16));
    frame.extend(tcp(0x18, 0));
    frame.extend(data);
    finish4(&mut frame);
    frame
}

/// Writes the IPv4 and TCP or UDP checksums of an untagged frame.
pub fn finish4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let ip = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    let field = if frame[23] == 6 { 50 } else { 40 };
    frame[field..field + 2].fill(0);
    let seed = pseudo4(frame[23], (frame.len() - 34) as u16);
    let l4 = !fold(seed, sum(&frame[34..]));
    frame[field..field + 2].copy_from_slice(&l4.to_be_bytes());
}

/// Checks lengths and checksums of an untagged TCP or UDP frame over IPv4 or IPv6.
#[track_caller]
pub fn assert_right(frame: &[u8]) {
    let (l4, protocol, seed) = if frame[12..14] == [8, 0] {
        let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        assert_eq!(total, frame.len() - 14, "IP total length");
        assert_eq!(sum(&frame[14..34]), 0xffff, "IP checksum");
        (34, frame[23], pseudo4(frame[23], (frame.len() - 34) as u16))
    } else {
        let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
        assert_eq!(len, frame.len() - 54, "IPv6 payload length");
        (54, frame[20], pseudo6(frame[20], (frame.len() - 54) as u16))
    };
    if protocol == 17 {
        let len = usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]));
        assert_eq!(len, frame.len() - l4, "UDP length");
    }
    assert_eq!(fold(seed, sum(&frame[l4..])), 0xffff, "L4 checksum");
}
