//! The frames that are sent.

use crate::spec::Spec;

/// The address of a guest.
pub(super) fn mac(number: u16) -> [u8; 6] {
    let [a, b] = number.to_be_bytes();
    [0x52, 0x54, 0, 0, a, b]
}

/// A frame of `size` bytes.
pub(super) fn frame(from: u16, to: u16, size: usize, spec: &Spec) -> Vec<u8> {
    let mut bytes = vec![0x5a; size];
    bytes[..6].copy_from_slice(&mac(to));
    bytes[6..12].copy_from_slice(&mac(from));
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    if spec.udp {
        udp_headers(&mut bytes);
    }
    bytes
}

/// IPv4 and TCP, with the sums a driver leaves for segmentation.
pub(super) fn tcp_headers(bytes: &mut [u8]) {
    let ip = [
        0x08, 0x00, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    bytes[12..34].copy_from_slice(&ip);
    let tcp = [
        0x13, 0x88, 0x13, 0x89, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff,
    ];
    bytes[34..50].copy_from_slice(&tcp);
    let mut sum = wire::Sum::ZERO;
    sum.add(&ip[14..22]);
    sum.add_word(6);
    bytes[50..52].copy_from_slice(&sum.value().to_be_bytes());
    bytes[52..54].copy_from_slice(&[0, 0]);
}

/// IPv4 and UDP, their sums right.
pub(super) fn udp_headers(bytes: &mut [u8]) {
    let [a, b] = ((bytes.len() - 14) as u16).to_be_bytes();
    let [c, d] = ((bytes.len() - 34) as u16).to_be_bytes();
    let ip = [
        0x08, 0x00, 0x45, 0, a, b, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    bytes[12..34].copy_from_slice(&ip);
    bytes[34..42].copy_from_slice(&[0, 7, 0, 9, c, d, 0, 0]);
    let sum = wire::Sum::of(&bytes[14..34]).finish();
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut sum = wire::Sum::of(&bytes[26..]);
    sum.add_word(17);
    sum.add_word(u16::from_be_bytes([c, d]));
    bytes[40..42].copy_from_slice(&sum.finish().to_be_bytes());
}
