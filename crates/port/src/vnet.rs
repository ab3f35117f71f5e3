//! `struct virtio_net_hdr` (virtio 1.4 §5.1.6) to and from our notes: what stands before a frame in a TAP, and in a
//! ring of a virtio-net.

use wire::{Csum, Gso, L3Kind, Layers, Offload};

/// With `num_buffers`, as virtio 1 has it.
pub const LONG: usize = 12;
/// Without.
pub const SHORT: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Offset of the checksum in a TCP header.
const TCP_CSUM: u16 = 16;
/// The same in a UDP header, and that header's length.
const UDP_CSUM: u16 = 6;
const UDP_HLEN: usize = 8;
const ETH_HLEN: usize = 14;

/// The header before a frame with these notes.
pub fn encode(notes: &Offload) -> [u8; LONG] {
    let mut out = [0u8; LONG];
    if let Some(csum) = notes.csum {
        out[0] = NEEDS_CSUM;
        out[6..8].copy_from_slice(&csum.start.to_le_bytes());
        out[8..10].copy_from_slice(&csum.offset.to_le_bytes());
    } else if notes.csum_valid {
        out[0] = DATA_VALID;
    }
    let gso = match notes.gso {
        Gso::None => return out,
        Gso::Tcp4 => GSO_TCPV4,
        Gso::Tcp6 => GSO_TCPV6,
        Gso::Udp4 | Gso::Udp6 => GSO_UDP_L4,
    };
    out[1] = gso | if notes.ecn { GSO_ECN } else { 0 };
    out[2..4].copy_from_slice(&notes.hdr_len.to_le_bytes());
    out[4..6].copy_from_slice(&notes.gso_size.to_le_bytes());
    out
}

/// Bytes at the start of a frame within which all headers lie that [`decode`] looks at.
pub const HEADERS: usize = 192;

/// The notes in `hdr` (at least [`SHORT`] bytes) for a frame of `len` bytes that begins with `head`, which has
/// [`HEADERS`] bytes of it or all; `None` if they contradict it.
///
/// The sender's `hdr_len` is only a hint how much to keep in one piece, so ours is read off the
/// TCP header. Over which IP a UDP datagram goes is read off the frame.
pub fn decode(hdr: &[u8], head: &[u8], len: usize) -> Option<Offload> {
    let word = |at: usize| Some(u16::from_le_bytes([*hdr.get(at)?, *hdr.get(at + 1)?]));
    let (flags, gso_type) = (*hdr.first()?, *hdr.get(1)?);
    let mut notes = Offload {
        // What needs a checksum comes from this host's memory, so it cannot be wrong.
        csum_valid: flags & (NEEDS_CSUM | DATA_VALID) != 0,
        ..Offload::NONE
    };
    if len < ETH_HLEN {
        return None;
    }
    if flags & NEEDS_CSUM != 0 {
        let csum = Csum {
            start: word(6)?,
            offset: word(8)?,
        };
        let field = usize::from(csum.start) + usize::from(csum.offset);
        if usize::from(csum.start) < ETH_HLEN || field + 2 > len {
            return None;
        }
        notes.csum = Some(csum);
    }
    notes.gso = match gso_type & !GSO_ECN {
        GSO_NONE => return Some(notes),
        GSO_TCPV4 => Gso::Tcp4,
        GSO_TCPV6 => Gso::Tcp6,
        // Congestion is TCP's to tell.
        GSO_UDP_L4 if gso_type & GSO_ECN == 0 => match Layers::parse(head)?.l3?.kind {
            L3Kind::V4 => Gso::Udp4,
            L3Kind::V6 => Gso::Udp6,
        },
        _ => return None,
    };
    notes.ecn = gso_type & GSO_ECN != 0;
    notes.gso_size = word(4)?;
    let csum = notes.csum?;
    let start = usize::from(csum.start);
    let (field, header) = match notes.gso {
        Gso::Udp4 | Gso::Udp6 => (UDP_CSUM, UDP_HLEN),
        _ => (TCP_CSUM, usize::from(*head.get(start + 12)? >> 4) * 4),
    };
    let hdr_len = start + header;
    let whole = field == UDP_CSUM || header >= 20;
    if csum.offset != field || notes.gso_size == 0 || !whole || hdr_len >= len {
        return None;
    }
    notes.hdr_len = u16::try_from(hdr_len).ok()?;
    Some(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(hdr: &[u8], frame: &[u8]) -> Option<Offload> {
        let head = &frame[..frame.len().min(HEADERS)];
        super::decode(hdr, head, frame.len())
    }

    fn tcp_frame(len: usize) -> Vec<u8> {
        let mut frame = vec![0u8; len];
        frame[34 + 12] = 8 << 4;
        frame
    }

    fn tso(gso: Gso) -> Offload {
        Offload {
            csum: Some(Csum {
                start: 34,
                offset: 16,
            }),
            gso,
            gso_size: 1448,
            hdr_len: 66,
            ecn: true,
            csum_valid: true,
            vlan: None,
        }
    }

    #[test]
    fn notes_survive_the_way_through_the_header() {
        let frame = tcp_frame(9000);
        for gso in [Gso::Tcp4, Gso::Tcp6] {
            assert_eq!(decode(&encode(&tso(gso)), &frame), Some(tso(gso)));
        }
        let csum = Offload {
            gso: Gso::None,
            gso_size: 0,
            hdr_len: 0,
            ecn: false,
            ..tso(Gso::None)
        };
        assert_eq!(decode(&encode(&csum), &frame), Some(csum));
        assert_eq!(decode(&encode(&Offload::NONE), &frame), Some(Offload::NONE));
        let valid = Offload {
            csum_valid: true,
            ..Offload::NONE
        };
        assert_eq!(decode(&encode(&valid), &frame), Some(valid));
    }

    /// UDP over IP of that version, behind an Ethernet header or a tag as well.
    fn udp_frame(v6: bool, tag: bool, len: usize) -> (Vec<u8>, Offload) {
        let mut frame = vec![0u8; len];
        let mut l3 = 14;
        if tag {
            frame[12..16].copy_from_slice(&[0x81, 0, 0, 5]);
            l3 = 18;
        }
        let (ethertype, first, next, l4) = if v6 {
            ([0x86, 0xdd], 0x60, 6, l3 + 40)
        } else {
            ([8, 0], 0x45, 9, l3 + 20)
        };
        frame[l3 - 2..l3].copy_from_slice(&ethertype);
        frame[l3] = first;
        frame[l3 + next] = 17;
        let payload = (len - l3 - if v6 { 40 } else { 0 }) as u16;
        let at = l3 + if v6 { 4 } else { 2 };
        frame[at..at + 2].copy_from_slice(&payload.to_be_bytes());
        let notes = Offload {
            csum: Some(Csum {
                start: l4 as u16,
                offset: 6,
            }),
            gso: if v6 { Gso::Udp6 } else { Gso::Udp4 },
            gso_size: 1200,
            hdr_len: l4 as u16 + 8,
            ecn: false,
            csum_valid: true,
            vlan: None,
        };
        (frame, notes)
    }

    #[test]
    fn datagrams_to_be_cut_survive_the_way_through_the_header_over_both_ips() {
        for (v6, tag) in [(false, false), (false, true), (true, false), (true, true)] {
            let (frame, notes) = udp_frame(v6, tag, 9000);
            assert_eq!(decode(&encode(&notes), &frame), Some(notes), "{v6} {tag}");
        }
        let (frame, notes) = udp_frame(false, false, 9000);
        let with = |at: usize, value: u8| {
            let mut hdr = encode(&notes);
            hdr[at] = value;
            decode(&hdr, &frame)
        };
        assert_eq!(with(1, GSO_UDP_L4 | GSO_ECN), None, "ECN is TCP's");
        assert_eq!(with(8, 16), None, "the checksum of TCP");
        assert_eq!(with(0, 0), None, "segmentation without checksum");
        assert_eq!(
            with(4, 0xb0),
            Some(Offload {
                gso_size: 0x4b0,
                ..notes
            })
        );
        let (headers, notes) = udp_frame(false, false, 42);
        assert_eq!(decode(&encode(&notes), &headers), None, "no payload to cut");
        assert_eq!(decode(&encode(&notes), &[0; 200]), None, "not IP");
    }

    #[test]
    fn the_senders_header_length_is_not_believed() {
        let mut hdr = encode(&tso(Gso::Tcp4));
        hdr[2..4].copy_from_slice(&4000u16.to_le_bytes());
        let notes = decode(&hdr, &tcp_frame(9000)).expect("good otherwise");
        assert_eq!(notes.hdr_len, 66);
    }

    #[test]
    fn headers_that_contradict_the_frame_are_refused() {
        let good = encode(&tso(Gso::Tcp4));
        let with = |at: usize, value: u16| {
            let mut hdr = good;
            hdr[at..at + 2].copy_from_slice(&value.to_le_bytes());
            decode(&hdr, &tcp_frame(200))
        };
        assert!(with(4, 1448).is_some());
        assert_eq!(with(4, 0), None, "no segment size");
        assert_eq!(with(6, 184), None, "checksum field beyond the end");
        assert_eq!(with(6, 13), None, "sum starts in the Ethernet header");
        assert_eq!(with(8, 6), None, "segmentation of something other than TCP");
        assert_eq!(with(0, 0x0300), None, "UDP fragmentation without checksum");
        assert_eq!(with(0, 0x0100), None, "segmentation without checksum");
        assert_eq!(decode(&good, &tcp_frame(66)), None, "no payload to cut");
        assert_eq!(decode(&good[..9], &tcp_frame(200)), None, "short header");
        assert_eq!(decode(&encode(&Offload::NONE), &[0; 13]), None);
        let mut small_tcp = tcp_frame(200);
        small_tcp[34 + 12] = 4 << 4;
        assert_eq!(decode(&good, &small_tcp), None, "TCP header below 20 bytes");
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_lies_inside_the_frame(
            hdr in proptest::collection::vec(any::<u8>(), 0..16),
            frame in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Some(notes) = decode(&hdr, &frame) {
                if let Some(c) = notes.csum {
                    prop_assert!(usize::from(c.start) + usize::from(c.offset) + 2 <= frame.len());
                }
                if notes.gso != Gso::None {
                    prop_assert!(notes.gso_size > 0 && notes.csum.is_some());
                    prop_assert!(usize::from(notes.hdr_len) < frame.len());
                }
            }
        }
    }
}
