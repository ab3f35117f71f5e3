//! From a packet as the guest wrote it to frames as they go on the wire: checksum insertion,
//! segmentation, tags, padding (manual §3.3.6–3.3.10, §3.5, §9.2.1).
//!
//! Where a packet is plain TCP or UDP over IP and its descriptors say what its headers say, the
//! work is left to the sink as a note, if it wants it. In every other case exactly what the
//! hardware would do is done here.
//!
//! Sections are those of Intel's manual 317453; later chips do the same and know SCTP too.

use frame::{Batch, Caps};
use wire::{Crc32c, Csum, Fragment, Gso, L3Kind, L4Kind, Layers, MAX_SEGMENTS, Offload, Sum};

use crate::gather::{Cursor, Gather};

/// Longest frame the chip sends without segmentation (manual §3.3.3: 16288 bytes).
pub const MAX_FRAME: usize = 16288;
/// Longest packet for segmentation: PAYLEN has 20 bits, HDRLEN 8.
pub const MAX_TSO: usize = 0xf_ffff + 0xff;
/// Shortest frame on the wire, without FCS; what TCTL.PSP pads to.
pub const MIN_FRAME: usize = 60;
/// Segmentation into smaller segments is done here, not left to the sink: each is a frame then, counted and limited
/// as such wherever it goes. No network is so narrow (RFC 791 wants 576 bytes), and thousands of segments in one
/// frame would cost each receiver of a flood as many copies at once.
const LEAST_LEFT_MSS: u16 = 256;
const TAG_AT: usize = 12;
const ETHERNET_HEADER: usize = 14;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Which checksum the transport has, and which of its fields change from segment to segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L4 {
    /// A length and a 16-bit checksum.
    #[default]
    Udp,
    /// Sequence number, flags and a 16-bit checksum.
    Tcp,
    /// CRC32c; never segmented.
    Sctp,
}

/// Where headers and their checksums are, as descriptors give it. Offsets are from the start of the
/// packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// First byte of what is called IP.
    pub ipcss: u16,
    /// Its checksum field.
    pub ipcso: u16,
    /// Its last byte; 0 for the end of the packet.
    pub ipcse: u16,
    /// First byte of the transport.
    pub tucss: u16,
    /// Its checksum field.
    pub tucso: u16,
    /// Its last byte; 0 for the end of the packet.
    pub tucse: u16,
    /// Bytes of all headers of a packet to be segmented.
    pub hdrlen: u16,
    /// Bytes behind the headers in each segment.
    pub mss: u16,
    /// Bytes behind the headers as announced.
    pub paylen: u32,
    /// The transport.
    pub l4: L4,
    /// IPv4 rather than IPv6.
    pub ipv4: bool,
}

/// What the first descriptor of a packet asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// TSE: cut into segments.
    pub segment: bool,
    /// POPTS.IXSM: insert the checksum that the context calls IP.
    pub ip_sum: bool,
    /// POPTS.TXSM: insert the checksum that the context calls TCP/UDP.
    pub l4_sum: bool,
    /// Offsets of both; of a legacy descriptor with IC, CSS and CSO stand as TUCSS and TUCSO.
    pub places: Places,
    /// The tag to insert: type and control information.
    pub tag: Option<(u16, u16)>,
    /// Pad to the minimum length.
    pub pad: bool,
    /// Only the first segment keeps the flag CWR, as RFC 3168 §6.1.2 wants it.
    pub cwr_once: bool,
}

/// Why a packet is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Too short for an Ethernet header.
    Runt,
    /// Longer than the chip can send.
    TooLong,
    /// Segmentation without headers, size or payload, or into too many frames.
    BadTso,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The batch was full before the last segment.
    pub cut_short: bool,
    /// A checksum insertion fell outside of the packet and was left out.
    pub bad_checksum: bool,
}

/// Adds the frames of a packet to `batch`, without the first `skip` of them. `ROOM` bytes of a packet
/// that needs work are copied: as many as offsets reach, and no headers may be longer.
///
/// # Errors
/// A packet that cannot be sent, and of which nothing is.
pub fn make<'v, const ROOM: usize>(
    packet: &Gather<'_, 'v>,
    request: &Request,
    caps: Caps,
    skip: usize,
    batch: &mut Batch<'v>,
) -> Result<Made, Refused> {
    if request.segment {
        if packet.len() > MAX_TSO {
            return Err(Refused::TooLong);
        }
        return segment::<ROOM>(packet, request, caps, skip, batch);
    }
    let padded = request.pad && !packet.is_empty();
    if packet.len() < ETHERNET_HEADER && !padded {
        return Err(Refused::Runt);
    }
    if packet.len() > MAX_FRAME {
        return Err(Refused::TooLong);
    }
    Ok(single::<ROOM>(packet, request, caps, batch))
}

/// Where a checksum goes and what it covers; offsets are validated against the packet.
struct Insertion {
    start: usize,
    end: usize,
    field: usize,
}

impl Insertion {
    fn new(css: u16, cso: u16, cse: u16, len: usize) -> Option<Insertion> {
        let start = usize::from(css);
        let field = usize::from(cso);
        let end = match cse {
            0 => len,
            last => len.min(usize::from(last) + 1),
        };
        (start < end && field + 2 <= len).then_some(Insertion { start, end, field })
    }

    fn ip(c: &Places, len: usize) -> Option<Insertion> {
        Self::new(c.ipcss, c.ipcso, c.ipcse, len)
    }

    fn l4(c: &Places, len: usize) -> Option<Insertion> {
        Self::new(c.tucss, c.tucso, c.tucse, len)
    }
}

/// The sum over `start..end`, of which the part inside `head` is read from there (it may have been
/// changed) and the rest from the packet at `body`, the cursor of byte `head.len()`.
fn sum_over(head: &[u8], packet: &Gather<'_, '_>, body: Cursor, at: &Insertion) -> Sum {
    let mut sum = Sum::ZERO;
    let inside = at.end.min(head.len());
    // The copy is as long as offsets reach, so the start is always in it.
    sum.add(head.get(at.start..inside).unwrap_or(&[]));
    packet.sum(body, at.end - inside, &mut sum);
    sum
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

fn get16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(field) => u16::from_be_bytes([field[0], field[1]]),
        None => 0,
    }
}

/// Pushes the headers with the tag put in, unless the sink takes it beside the frame.
fn push_head(head: &[u8], tag: Option<(u16, u16)>, batch: &mut Batch<'_>) {
    match tag {
        Some((tpid, tci)) if head.len() >= TAG_AT => {
            let [t0, t1] = tpid.to_be_bytes();
            let [c0, c1] = tci.to_be_bytes();
            batch.push_bytes(&head[..TAG_AT]);
            batch.push_bytes(&[t0, t1, c0, c1]);
            batch.push_bytes(&head[TAG_AT..]);
        }
        _ => batch.push_bytes(head),
    }
}

/// Splits the tag into what is inserted here and what goes as a note.
fn place_tag(request: &Request, caps: Caps) -> (Option<(u16, u16)>, Option<u16>) {
    match request.tag {
        Some((0x8100, tci)) if caps.vlan => (None, Some(tci)),
        other => (other, None),
    }
}

fn single<'v, const ROOM: usize>(
    packet: &Gather<'_, 'v>,
    request: &Request,
    caps: Caps,
    batch: &mut Batch<'v>,
) -> Made {
    let places = &request.places;
    let mut made = Made::default();
    let work = request.ip_sum || request.l4_sum;
    let (tag, vlan) = place_tag(request, caps);
    let mut notes = Offload {
        vlan,
        ..Offload::NONE
    };
    if !work && tag.is_none() {
        packet.push(&mut Cursor::default(), packet.len(), batch);
        if request.pad {
            batch.pad(MIN_FRAME);
        }
        batch.end(notes);
        return made;
    }
    let mut copy = [0u8; ROOM];
    let n = packet.copy_head(&mut copy);
    let head = &mut copy[..n];
    let mut body = packet.cursor(n);
    if request.ip_sum {
        match Insertion::ip(places, packet.len()) {
            Some(at) => {
                let sum = sum_over(head, packet, body, &at);
                put16(head, at.field, sum.finish());
            }
            None => made.bad_checksum = true,
        }
    }
    if request.l4_sum {
        match Insertion::l4(places, packet.len()) {
            Some(at) if places.l4 == L4::Sctp => {
                made.bad_checksum |= !put_crc(head, packet, body, at);
            }
            Some(at) if caps.csum && leaves_checksum(head, packet.len(), &at) => {
                let shift = if tag.is_some() { 4 } else { 0 };
                notes.csum = Some(Csum {
                    start: (at.start + shift) as u16,
                    offset: (at.field - at.start) as u16,
                });
            }
            Some(at) => {
                let sum = sum_over(head, packet, body, &at);
                put16(head, at.field, sum.finish_nonzero());
            }
            None => made.bad_checksum = true,
        }
    }
    push_head(head, tag, batch);
    packet.push(&mut body, packet.len() - n, batch);
    if request.pad {
        batch.pad(MIN_FRAME);
    }
    batch.end(notes);
    made
}

/// Writes the CRC32c of an SCTP packet (RFC 9260 §6.8, appendix A). Returns whether its field is
/// inside.
fn put_crc(head: &mut [u8], packet: &Gather<'_, '_>, mut body: Cursor, at: Insertion) -> bool {
    let Some(field) = head.get_mut(at.field..at.field + 4) else {
        return false;
    };
    field.fill(0);
    let mut crc = Crc32c::new();
    crc.add(head.get(at.start..at.end.min(head.len())).unwrap_or(&[]));
    let mut copy = [0; 512];
    packet.take(&mut body, at.end.saturating_sub(head.len()), &mut |part| {
        let mut done = 0;
        while done < part.len() {
            let n = part.copy_to(done, &mut copy);
            crc.add(&copy[..n]);
            done += n;
        }
    });
    if let Some(field) = head.get_mut(at.field..at.field + 4) {
        field.copy_from_slice(&crc.finish().to_le_bytes());
    }
    true
}

/// Whether the checksum that is asked for is that of the TCP or UDP header, seeded as it should be
/// and over the whole packet, so that a note says the same.
fn leaves_checksum(head: &[u8], len: usize, at: &Insertion) -> bool {
    let Some(layers) = Layers::parse(head) else {
        return false;
    };
    let Some(l4) = layers.l4 else {
        return false;
    };
    at.start == l4.offset
        && l4.kind.checksum_offset() == Some(at.field - at.start.min(at.field))
        && at.end == len
        && len >= MIN_FRAME
        && layers.l4_span(len) == Some(len - l4.offset)
        && layers
            .pseudo_sum(head, len - l4.offset)
            .is_some_and(|sum| sum.value() == get16(head, at.field))
}

fn segment<'v, const ROOM: usize>(
    packet: &Gather<'_, 'v>,
    request: &Request,
    caps: Caps,
    skip: usize,
    batch: &mut Batch<'v>,
) -> Result<Made, Refused> {
    let places = &request.places;
    let (hdr, mss) = (usize::from(places.hdrlen), usize::from(places.mss));
    if places.l4 == L4::Sctp {
        return Err(Refused::BadTso);
    }
    if !(ETHERNET_HEADER..=ROOM).contains(&hdr) || mss == 0 || packet.len() <= hdr {
        return Err(Refused::BadTso);
    }
    let payload = packet.len() - hdr;
    let count = payload.div_ceil(mss);
    // Each segment must be a frame the chip can send.
    if count > MAX_SEGMENTS || hdr + mss.min(payload) > MAX_FRAME {
        return Err(Refused::BadTso);
    }
    let mut copy = [0u8; ROOM];
    let n = packet.copy_head(&mut copy[..hdr]);
    let head = &mut copy[..n];
    let (tag, vlan) = place_tag(request, caps);
    if skip == 0
        && let Some(notes) = leaves_segmentation(head, packet.len(), request, caps, tag, count)
    {
        push_head(head, tag, batch);
        let mut body = packet.cursor(hdr);
        packet.push(&mut body, payload, batch);
        batch.end(Offload { vlan, ..notes });
        return Ok(Made::default());
    }
    let mut made = Made::default();
    let mut body = packet.cursor(hdr + (skip * mss).min(payload));
    for index in skip..count {
        if batch.is_full() {
            made.cut_short = true;
            break;
        }
        let size = mss.min(payload - index * mss);
        let mut own = [0u8; ROOM];
        own[..hdr].copy_from_slice(head);
        let own = &mut own[..hdr];
        made.bad_checksum |= segment_headers(own, request, index, size, index + 1 == count);
        made.bad_checksum |= segment_sums(own, packet, body, request, size);
        push_head(own, tag, batch);
        packet.push(&mut body, size, batch);
        if request.pad {
            batch.pad(MIN_FRAME);
        }
        batch.end(Offload {
            vlan,
            ..Offload::NONE
        });
    }
    Ok(made)
}

/// Lengths, identification, sequence number and flags of segment `index` (manual §3.5.7). Returns
/// whether a field fell outside of the headers.
fn segment_headers(
    own: &mut [u8],
    request: &Request,
    index: usize,
    size: usize,
    last: bool,
) -> bool {
    let places = &request.places;
    let (ip, l4) = (usize::from(places.ipcss), usize::from(places.tucss));
    let hdr = own.len();
    if ip + 6 > hdr || l4 + 6 > hdr || (places.l4 == L4::Tcp && l4 + 14 > hdr) {
        return true;
    }
    let ip_len = size + hdr - ip;
    if places.ipv4 {
        put16(own, ip + 2, ip_len as u16);
        let id = get16(own, ip + 4).wrapping_add(index as u16);
        put16(own, ip + 4, id);
    } else {
        put16(own, ip + 4, ip_len.saturating_sub(40) as u16);
    }
    if places.l4 == L4::Tcp {
        let field: [u8; 4] = [own[l4 + 4], own[l4 + 5], own[l4 + 6], own[l4 + 7]];
        let done = (index * usize::from(places.mss)) as u32;
        let seq = u32::from_be_bytes(field).wrapping_add(done);
        own[l4 + 4..l4 + 8].copy_from_slice(&seq.to_be_bytes());
        if !last {
            own[l4 + 13] &= !FIN_PSH;
        }
        if request.cwr_once && index > 0 {
            own[l4 + 13] &= !CWR;
        }
    } else {
        put16(own, l4 + 4, (size + hdr - l4) as u16);
    }
    false
}

/// The checksums of a segment. The seed in the packet is a pseudo-header without the length, which
/// the hardware adds. Returns whether one fell outside of the headers.
fn segment_sums(
    own: &mut [u8],
    packet: &Gather<'_, '_>,
    body: Cursor,
    request: &Request,
    size: usize,
) -> bool {
    let places = &request.places;
    let (hdr, len) = (own.len(), own.len() + size);
    let inside = |at: &Insertion| at.field + 2 <= hdr && at.start <= hdr;
    let mut bad = false;
    let mut insert = |at: Option<Insertion>, extra: Option<u16>, own: &mut [u8]| match at {
        Some(at) if inside(&at) => {
            let mut sum = Sum::ZERO;
            let edge = at.end.min(hdr);
            sum.add(own.get(at.start..edge).unwrap_or(&[]));
            packet.sum(body, at.end.saturating_sub(hdr).min(size), &mut sum);
            let value = match extra {
                None => sum.finish(),
                Some(len) => {
                    sum.add_word(len);
                    sum.finish_nonzero()
                }
            };
            put16(own, at.field, value);
        }
        _ => bad = true,
    };
    if request.ip_sum {
        insert(Insertion::ip(places, len), None, own);
    }
    if request.l4_sum {
        let l4_len = len.saturating_sub(usize::from(places.tucss));
        insert(Insertion::l4(places, len), Some(l4_len as u16), own);
    }
    bad
}

/// If the whole packet can go to the sink as it is, makes its headers describe the whole and
/// returns the note.
fn leaves_segmentation(
    head: &mut [u8],
    len: usize,
    request: &Request,
    caps: Caps,
    tag: Option<(u16, u16)>,
    count: usize,
) -> Option<Offload> {
    let places = &request.places;
    if count > 1 && places.mss < LEAST_LEFT_MSS {
        return None;
    }
    let layers = Layers::parse(head)?;
    let (l3, l4) = (layers.l3?, layers.l4?);
    let (gso, can) = match l3.kind {
        L3Kind::V4 => (Gso::Tcp4, caps.tso4),
        L3Kind::V6 => (Gso::Tcp6, caps.tso6),
    };
    let ip_fits = match l3.kind {
        L3Kind::V4 => {
            places.ipv4
                && request.ip_sum
                && usize::from(places.ipcso) == l3.offset + 10
                && usize::from(places.ipcse) + 1 == l3.offset + l3.len
                && len - l3.offset <= 0xffff
        }
        L3Kind::V6 => !places.ipv4 && !request.ip_sum && len - l3.offset - 40 <= 0xffff,
    };
    let field = l4.offset + 16;
    // Headers of UDP are shorter.
    let flags = head.get(l4.offset + 13);
    let cwr = flags.is_some_and(|flags| flags & CWR != 0);
    let fits = caps.csum
        && (can && (caps.ecn || !cwr) || count == 1)
        && ip_fits
        && l4.kind == L4Kind::Tcp
        && l3.fragment == Fragment::Whole
        && places.l4 == L4::Tcp
        && request.l4_sum
        && usize::from(places.ipcss) == l3.offset
        && usize::from(places.tucss) == l4.offset
        && usize::from(places.tucso) == field
        && places.tucse == 0
        && l4.offset + l4.len == head.len()
        && len >= MIN_FRAME
        && (request.cwr_once || !cwr)
        && layers.pseudo_sum(head, 0)?.value() == get16(head, field);
    if !fits {
        return None;
    }
    match l3.kind {
        L3Kind::V4 => {
            put16(head, l3.offset + 2, (len - l3.offset) as u16);
            put16(head, l3.offset + 10, 0);
            let sum = Sum::of(&head[l3.offset..l3.offset + l3.len]).finish();
            put16(head, l3.offset + 10, sum);
        }
        L3Kind::V6 => put16(head, l3.offset + 4, (len - l3.offset - 40) as u16),
    }
    let seed = layers.pseudo_sum(head, len - l4.offset)?.value();
    put16(head, field, seed);
    let shift = if tag.is_some() { 4 } else { 0 };
    let csum = Some(Csum {
        start: (l4.offset + shift) as u16,
        offset: 16,
    });
    let mut notes = Offload {
        csum,
        ..Offload::NONE
    };
    if count > 1 {
        notes.gso = gso;
        notes.ecn = cwr;
        notes.gso_size = places.mss;
        notes.hdr_len = (head.len() + shift) as u16;
    }
    Some(notes)
}
