//! A packet as the driver gave it: the header, then the frame (virtio 1.4 §5.1.6.2).

use datapath::Gather;
use frame::Batch;
use guest_mem::{ReadSlice, View};
use wire::{Csum, ETHERNET_HEADER, Gso, L3Kind, Layers, MAX_HEADERS, Offload, Segments};

use crate::core::chain::{self, Chain};
use crate::core::fate::{Bad, Fate};
use crate::core::ring::Broken;
use crate::regs::{feature, header};

/// Longest frame: a datagram of 64 KiB, an IPv6 header and an Ethernet header with tags.
const MAX_FRAME: u64 = 0x1_0000 + 64;

/// Segmentation into smaller segments is done here, not left to the sink: each is a frame then, and limited as such
/// wherever it goes.
const LEAST_LEFT_MSS: u16 = 256;

/// The header of a packet.
#[derive(Clone, Copy, Debug)]
struct Header {
    flags: u8,
    gso: u8,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl Header {
    fn of(bytes: [u8; header::LEN]) -> Self {
        // The driver's `hdr_len` is a hint; headers are measured.
        let [flags, gso, _, _, s0, s1, c0, c1, o0, o1, _, _] = bytes;
        Header {
            flags,
            gso,
            gso_size: u16::from_le_bytes([s0, s1]),
            csum_start: u16::from_le_bytes([c0, c1]),
            csum_offset: u16::from_le_bytes([o0, o1]),
        }
    }
}

/// Frames that the packet of `chain` is at most.
pub fn most_frames(view: &View<'_>, chain: &Chain) -> u64 {
    let mut bytes = [0; header::LEN];
    let mut rest = &mut bytes[..];
    for part in chain.readable() {
        let (now, later) = rest.split_at_mut(rest.len().min(part.len as usize));
        if view.read(part.at, now).is_err() {
            return 1;
        }
        rest = later;
    }
    let Header { gso, gso_size, .. } = Header::of(bytes);
    match u64::from(gso_size) {
        mss if mss > 0 && gso != 0 => chain::len(chain.readable()).div_ceil(mss),
        _ => 1,
    }
}

/// Adds the packet of `chain` to the batch, unless it is dropped.
///
/// # Errors
/// The buffer breaks the ring.
pub fn add<'v>(
    view: &'v View<'_>,
    chain: &Chain,
    features: u64,
    pieces: &mut Vec<ReadSlice<'v>>,
    batch: &mut Batch<'v>,
) -> Result<Fate, Broken> {
    if !chain.writable().is_empty() {
        return Err(Broken::Direction);
    }
    let front = if features & feature::HASH_REPORT != 0 {
        header::LONG
    } else {
        header::LEN
    };
    let total = chain::len(chain.readable());
    if total < (front + ETHERNET_HEADER) as u64 {
        return Ok(Fate::Dropped(Bad::Runt));
    }
    if total > front as u64 + MAX_FRAME {
        return Ok(Fate::Dropped(Bad::TooLong));
    }
    pieces.clear();
    for part in chain.readable().iter().filter(|part| part.len > 0) {
        view.read_slices(part.at, part.len.into(), &mut |run| pieces.push(run))?;
    }
    let packet = Gather::new(pieces, total as usize);
    let mut bytes = [0; header::LEN];
    packet.copy_head(&mut bytes);
    let len = packet.len() - front;
    Ok(
        match frame((&packet, front), Header::of(bytes), features, batch) {
            Ok(notes) if notes.gso == Gso::None => Fate::Frame {
                len: len as u32,
                csum: notes.csum.is_some(),
            },
            Ok(notes) => Fate::Segments {
                len: len as u32,
                segments: notes.segments(len) as u32,
                narrow: notes.gso_size < LEAST_LEFT_MSS,
            },
            Err(why) => Fate::Dropped(why),
        },
    )
}

fn frame<'v>(
    (packet, front): (&Gather<'_, 'v>, usize),
    asked: Header,
    features: u64,
    batch: &mut Batch<'v>,
) -> Result<Offload, Bad> {
    let len = packet.len() - front;
    let mut body = packet.cursor(front);
    let mut notes = Offload::NONE;
    if asked.flags & header::NEEDS_CSUM != 0 {
        if features & feature::CSUM == 0 {
            return Err(Bad::NotAgreed);
        }
        let csum = Csum {
            start: asked.csum_start,
            offset: asked.csum_offset,
        };
        notes.csum = Some(csum);
        if notes.check(len).is_err() {
            return Err(Bad::Csum);
        }
    }
    if asked.gso == 0 {
        packet.push(&mut body, len, batch);
        batch.end(notes);
        return Ok(notes);
    }
    notes.ecn = asked.gso & header::GSO_ECN != 0;
    let needed = match asked.gso & !header::GSO_ECN {
        header::GSO_TCPV4 => feature::HOST_TSO4,
        header::GSO_TCPV6 => feature::HOST_TSO6,
        // Congestion is TCP's to tell.
        header::GSO_UDP_L4 if !notes.ecn => feature::HOST_USO,
        _ => return Err(Bad::Gso),
    };
    if features & needed == 0 || notes.ecn && features & feature::HOST_ECN == 0 {
        return Err(Bad::NotAgreed);
    }
    notes.gso_size = asked.gso_size;
    // The headers are copied once: what is measured here is what is sent.
    let mut copy = [0; MAX_HEADERS];
    let mut copied = 0;
    let mut from = body;
    packet.take(&mut from, MAX_HEADERS, &mut |part| {
        copied += part.copy_to(0, &mut copy[copied..]);
    });
    let layers = Layers::parse(&copy[..copied]).ok_or(Bad::Gso)?;
    notes.gso = match (needed, layers.l3.map(|l3| l3.kind)) {
        (feature::HOST_TSO4, _) => Gso::Tcp4,
        (feature::HOST_TSO6, _) => Gso::Tcp6,
        // The header does not say over which IP.
        (_, Some(L3Kind::V6)) => Gso::Udp6,
        _ => Gso::Udp4,
    };
    let headers = layers.headers_len();
    notes.hdr_len = u16::try_from(headers).map_err(|_| Bad::Gso)?;
    if Segments::new(&copy[..copied], len, &notes).is_err() {
        return Err(Bad::Gso);
    }
    batch.push_bytes(&copy[..headers]);
    packet.take(&mut body, headers, &mut |_| ());
    packet.push(&mut body, len - headers, batch);
    batch.end(notes);
    Ok(notes)
}
