//! A packet as its descriptors give it, and the frame that becomes of it.
//!
//! Linux says where the transport header is, FreeBSD does not: the headers are looked through instead, in a private copy
//! that is sent too. What a checksum field holds is never used: each driver leaves something else there.

use datapath::Gather;
use datapath::counters::count_alone;
use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::Batch;
use guest_mem::{ReadSlice, View};
use wire::{
    Csum, ETHERNET_HEADER, Fragment, Gso, L3Kind, L4Kind, Layers, MAX_HEADERS, Offload, Segments,
    Sum,
};

use crate::core::chip::Chip;
use crate::core::queues::{Bad, Desc, Fate};
use crate::regs::bits::{desc, tx};
use crate::regs::variant::Variant;

/// Longest packet to be segmented: a datagram of 64 KiB, an IPv6 header and an Ethernet header with tags.
const MAX_LARGE: usize = 0x1_0000 + 64;
/// Segmentation into smaller segments is done here, not left to the sink: each is a frame then, and limited as such
/// wherever it goes.
const LEAST_LEFT_MSS: u16 = 256;
const CWR: u8 = 0x80;
const IPV6_HEADER: usize = 40;

/// What the first descriptor asks for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Segments of so many bytes.
    mss: Option<u16>,
    ip: bool,
    tcp: bool,
    udp: bool,
    tag: Option<u16>,
}

impl Asked {
    /// As the first descriptor of a packet says it in version 1 or 2.
    fn of(variant: Variant, first: &Desc) -> Self {
        if variant.is_first() {
            Self::of_v1(first)
        } else {
            Self::of_v2(first)
        }
    }

    /// All but the tag is in the first word.
    fn of_v1(&Desc { opts1, opts2, .. }: &Desc) -> Self {
        let large = opts1 & tx::LARGE != 0;
        let on = |bit| !large && opts1 & bit != 0;
        Asked {
            mss: large.then_some((opts1 >> tx::v1::MSS_SHIFT & tx::MSS) as u16),
            ip: on(tx::v1::IPV4),
            tcp: on(tx::v1::TCP),
            udp: on(tx::v1::UDP),
            tag: tag(opts2),
        }
    }

    fn of_v2(first: &Desc) -> Self {
        let Desc { opts1, opts2, .. } = *first;
        let large = opts1 & (tx::LARGE | tx::LARGE_V4 | tx::LARGE_V6) != 0;
        let on = |bit| !large && opts2 & bit != 0;
        Asked {
            mss: large.then_some((opts2 >> tx::MSS_SHIFT & tx::MSS) as u16),
            ip: on(tx::IPV4),
            tcp: on(tx::TCP),
            udp: on(tx::UDP),
            tag: tag(opts2),
        }
    }

    fn is_plain(&self) -> bool {
        self.mss.is_none() && !self.ip && !self.tcp && !self.udp
    }
}

fn tag(opts2: u32) -> Option<u16> {
    (opts2 & tx::TAG != 0).then(|| (opts2 as u16).swap_bytes())
}

/// Adds the packet of these descriptors to the batch, unless it is dropped.
pub(crate) fn add<'v>(
    (chip, view): (&Chip, &'v View<'_>),
    descs: &[Desc],
    pieces: &mut Vec<ReadSlice<'v>>,
    batch: &mut Batch<'v>,
) -> Fate {
    match try_add((chip, view), descs, pieces, batch) {
        Ok(fate) => fate,
        Err(why) => Fate::Dropped(why),
    }
}

fn try_add<'v>(
    (chip, view): (&Chip, &'v View<'_>),
    descs: &[Desc],
    pieces: &mut Vec<ReadSlice<'v>>,
    batch: &mut Batch<'v>,
) -> Result<Fate, Bad> {
    let (first, others) = descs.split_first().ok_or(Bad::Chain)?;
    if !first.is(desc::FS) || others.iter().any(|desc| desc.is(desc::FS)) {
        return Err(Bad::Chain);
    }
    let asked = Asked::of(chip.variant, first);
    let most = if asked.mss.is_some() {
        MAX_LARGE
    } else {
        MAX_FRAME
    };
    let mut total = 0;
    for desc in descs {
        // Of a thousand descriptors, too: no overflow.
        total += (desc.opts1 & tx::LENGTH) as usize;
    }
    if total > most {
        return Err(Bad::TooLong);
    }
    if total < ETHERNET_HEADER {
        return Err(Bad::Runt);
    }
    pieces.clear();
    for desc in descs {
        let len = desc.opts1 & tx::LENGTH;
        if len > 0 {
            let whole = view.read_slices(desc.addr, len.into(), &mut |run| pieces.push(run));
            whole.map_err(|_| Bad::Fault)?;
        }
    }
    let packet = Gather::new(pieces, total);
    let notes = Offload {
        vlan: asked.tag,
        ..Offload::NONE
    };
    if asked.is_plain() {
        packet.push(&mut Default::default(), total, batch);
        batch.pad(MIN_FRAME);
        batch.end(notes);
        return Ok(frame(total, 1, false));
    }
    // The headers are copied once: what is measured here is what is sent.
    let mut copy = [0; MAX_HEADERS];
    let copied = packet.copy_head(&mut copy);
    let head = &mut copy[..copied];
    let (notes, segments) = match asked.mss {
        Some(mss) => large(head, total, mss, notes)?,
        None => (checksums(chip, head, &packet, asked, notes), 1),
    };
    batch.push_bytes(head);
    let mut body = packet.cursor(copied);
    packet.push(&mut body, total - copied, batch);
    batch.pad(MIN_FRAME);
    batch.end(notes);
    let narrow = notes.gso != Gso::None && notes.gso_size < LEAST_LEFT_MSS;
    Ok(frame(total, segments, narrow))
}

fn frame(len: usize, segments: usize, narrow: bool) -> Fate {
    Fate::Frame {
        len: len as u32,
        segments: segments as u32,
        narrow,
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes the checksum of an IPv4 header.
fn sum_ip(head: &mut [u8], at: usize, len: usize) {
    put(head, at + 10, 0);
    let sum = Sum::of(head.get(at..at + len).unwrap_or(&[])).finish();
    put(head, at + 10, sum);
}

/// Has the checksums written that are asked for. That of the transport is left to the sink, unless something follows the
/// datagram that it does not cover.
fn checksums(
    chip: &Chip,
    head: &mut [u8],
    packet: &Gather<'_, '_>,
    asked: Asked,
    mut notes: Offload,
) -> Offload {
    let bad = || count_alone(&chip.counters.tx_bad_csum, 1);
    let Some((layers, l3)) = Layers::parse(head).and_then(|all| Some((all, all.l3?))) else {
        bad();
        return notes;
    };
    if asked.ip && l3.kind == L3Kind::V4 {
        sum_ip(head, l3.offset, l3.len);
    }
    if !asked.tcp && !asked.udp {
        return notes;
    }
    let l4 = layers.l4.filter(|l4| match l4.kind {
        L4Kind::Tcp => asked.tcp,
        L4Kind::Udp => asked.udp,
        L4Kind::Other(_) => false,
    });
    let found = l4.and_then(|l4| {
        let span = layers.l4_span(packet.len())?;
        let seed = layers.pseudo_sum(head, span)?;
        Some((l4, l4.kind.checksum_offset()?, span, seed))
    });
    let Some((l4, offset, span, seed)) = found.filter(|_| l3.fragment == Fragment::Whole) else {
        bad();
        return notes;
    };
    let field = l4.offset + offset;
    put(head, field, seed.value());
    if l4.offset + span == packet.len() {
        notes.csum = Some(Csum {
            start: l4.offset as u16,
            offset: offset as u16,
        });
        return notes;
    }
    // The seed in the field is summed with the rest.
    let mut sum = Sum::ZERO;
    let inside = head.len().min(l4.offset + span);
    sum.add(head.get(l4.offset..inside).unwrap_or(&[]));
    let behind = l4.offset + span - inside;
    packet.sum(packet.cursor(inside), behind, &mut sum);
    put(head, field, sum.finish_nonzero());
    notes.csum_valid = true;
    notes
}

/// Makes the headers those of the whole, and notes how it is to be cut, and into how many.
fn large(
    head: &mut [u8],
    total: usize,
    mss: u16,
    mut notes: Offload,
) -> Result<(Offload, usize), Bad> {
    let layers = Layers::parse(head).ok_or(Bad::Gso)?;
    let (l3, l4) = (layers.l3.ok_or(Bad::Gso)?, layers.l4.ok_or(Bad::Gso)?);
    let headers = l4.offset + l4.len;
    let right = l4.kind == L4Kind::Tcp && l3.fragment == Fragment::Whole && mss > 0;
    if !right || total <= headers {
        return Err(Bad::Gso);
    }
    match l3.kind {
        L3Kind::V4 => {
            let len = u16::try_from(total - l3.offset).map_err(|_| Bad::Gso)?;
            put(head, l3.offset + 2, len);
            sum_ip(head, l3.offset, l3.len);
        }
        L3Kind::V6 => {
            let len = u16::try_from(total - l3.offset - IPV6_HEADER).map_err(|_| Bad::Gso)?;
            put(head, l3.offset + 4, len);
        }
    }
    let seed = layers.pseudo_sum(head, total - l4.offset).ok_or(Bad::Gso)?;
    put(head, l4.offset + 16, seed.value());
    notes.csum = Some(Csum {
        start: l4.offset as u16,
        offset: 16,
    });
    let segments = (total - headers).div_ceil(mss.into());
    if segments == 1 {
        return Ok((notes, 1));
    }
    notes.gso = match l3.kind {
        L3Kind::V4 => Gso::Tcp4,
        L3Kind::V6 => Gso::Tcp6,
    };
    notes.gso_size = mss;
    notes.hdr_len = headers as u16;
    notes.ecn = head
        .get(l4.offset + 13)
        .is_some_and(|flags| flags & CWR != 0);
    if Segments::new(head, total, &notes).is_err() {
        return Err(Bad::Gso);
    }
    Ok((notes, segments))
}
