//! Frames and their notes, made of input.

use wire::Offload;

use crate::input::Input;

pub(crate) const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
pub(crate) const PEER: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];

/// A frame for the receiver, made of a few bytes of input.
pub(crate) fn some_frame(input: &mut Input<'_>, room: &mut Vec<u8>) -> Offload {
    room.clear();
    let shape = input.u8();
    let len = match shape >> 6 {
        0 => usize::from(shape & 0x3f),
        1 => 60 + usize::from(input.u8()),
        2 => usize::from(input.u16() % 1600),
        _ => usize::from(input.u16() % 17_000),
    };
    match shape & 3 {
        0 => room.extend_from_slice(&MAC),
        1 => room.extend_from_slice(&[0xff; 6]),
        2 => room.extend_from_slice(&[1, 0, 0x5e, 0, 0, input.u8()]),
        _ => room.extend_from_slice(&PEER),
    }
    room.extend_from_slice(&PEER);
    match shape >> 2 & 3 {
        0 => room.extend_from_slice(&[0x08, 0x00, 0x45]),
        1 => room.extend_from_slice(&[0x81, 0x00, input.u8(), input.u8(), 0x08, 0x00]),
        2 => room.extend_from_slice(&[0x86, 0xdd, 0x60]),
        _ => room.extend_from_slice(&[0x88, 0xb5]),
    }
    let n = usize::from(input.u8() % 80);
    room.extend_from_slice(input.bytes(n));
    room.resize(len, 0x5a);
    if shape & 0x10 == 0 {
        return Offload::NONE;
    }
    some_notes(input)
}

/// Notes as a careless peer might make them.
pub(crate) fn some_notes(input: &mut Input<'_>) -> Offload {
    let bits = input.u8();
    Offload {
        csum: (bits & 1 != 0).then(|| wire::Csum {
            start: u16::from(input.u8()),
            offset: u16::from(input.u8()),
        }),
        gso: match bits >> 1 & 3 {
            1 => wire::Gso::Tcp4,
            2 => wire::Gso::Tcp6,
            3 if bits & 64 != 0 => wire::Gso::Udp6,
            3 => wire::Gso::Udp4,
            _ => wire::Gso::None,
        },
        gso_size: if bits & 6 != 0 { input.u16() } else { 0 },
        hdr_len: if bits & 6 != 0 { input.u8().into() } else { 0 },
        ecn: bits & 8 != 0,
        csum_valid: bits & 16 != 0,
        vlan: (bits & 32 != 0).then(|| input.u16()),
    }
}
