//! Finishing a frame for a sink that cannot take it with its notes.

use thiserror::Error;
use wire::{Csum, ETHERNET_HEADER, EtherType, Gso, MAX_HEADERS, NotesError, Offload};
use wire::{SegmentError, Segments, VLAN_TAG};

use crate::alike::{HEAD, SHORTEST};
use crate::batch::{Batch, Frame};
use crate::cursor::Cursor;
use crate::sink::Caps;
use crate::sum::add_slice;

/// Where a tag goes: behind the two addresses.
const TAG_AT: usize = 12;

/// Why a frame cannot be finished. Its notes or headers are at fault, never the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExpandError {
    /// Too short for an Ethernet header.
    #[error("frame too short for an Ethernet header")]
    Runt,
    /// The notes contradict themselves or the frame.
    #[error("offload notes: {0}")]
    Notes(#[from] NotesError),
    /// The checksum field is further into the frame than headers reach ([`MAX_HEADERS`]).
    #[error("checksum field beyond the first {MAX_HEADERS} bytes")]
    HeadersTooLong,
    /// It cannot be segmented.
    #[error("segmentation: {0}")]
    Segment(#[from] SegmentError),
}

/// Adds `frame` to `out` as frames that a sink with `caps` takes, and returns how many they are.
///
/// A VLAN tag is put into the frame when the sink has no `vlan`, the checksum is written when it has no
/// `csum`, the frame is segmented when it has no `tso4`, `tso6`, `uso4` or `uso6`, or no `ecn` for a frame that
/// needs it. Headers are copied into the arena of `out`; the payload stays where it is and is only read where it must be summed. Notes
/// that the sink accepts are kept, moved along with an inserted tag. Where the checksum is computed
/// here the result is marked `csum_valid`.
///
/// On an error nothing has been added. At most [`wire::MAX_SEGMENTS`] frames are, none shorter than
/// the wire allows.
pub fn expand<'b>(
    frame: &Frame<'b>,
    caps: Caps,
    out: &mut Batch<'b>,
) -> Result<usize, ExpandError> {
    let notes = *frame.notes();
    if frame.len() < ETHERNET_HEADER {
        return Err(ExpandError::Runt);
    }
    notes.check(frame.len())?;
    if caps.accepts(&notes) {
        frame.slices().for_each(|slice| out.push_slice(slice));
        out.end(notes);
        return Ok(1);
    }
    let tag = if caps.vlan { None } else { notes.vlan };
    // Segments go out with what is left of the notes once tag and segmentation are dealt with.
    let mut left = Offload {
        vlan: if caps.vlan { notes.vlan } else { None },
        ..notes
    };
    let whole = match notes.gso {
        Gso::None => true,
        Gso::Tcp4 => caps.csum && caps.tso4 && (caps.ecn || !notes.ecn),
        Gso::Tcp6 => caps.csum && caps.tso6 && (caps.ecn || !notes.ecn),
        Gso::Udp4 => caps.csum && caps.uso4,
        Gso::Udp6 => caps.csum && caps.uso6,
    };
    if !caps.csum && notes.csum.is_some() {
        left.csum = None;
        left.csum_valid = true;
    } else if tag.is_some() {
        left.csum = left.csum.map(behind_tag).transpose()?;
    }
    if whole {
        if tag.is_some() && left.gso != Gso::None {
            left.hdr_len = left
                .hdr_len
                .checked_add(VLAN_TAG as u16)
                .ok_or(NotesError::HeaderLength)?;
        }
        one(frame, notes.csum.filter(|_| !caps.csum), tag, left, out)?;
        Ok(1)
    } else {
        left.gso = Gso::None;
        left.gso_size = 0;
        left.hdr_len = 0;
        left.ecn = false;
        many(frame, !caps.csum, tag, left, out)
    }
}

/// The note for a frame that has grown by a tag.
fn behind_tag(csum: Csum) -> Result<Csum, NotesError> {
    // A sum from inside the addresses keeps its start; no sender in earnest has one.
    let shift = if usize::from(csum.start) >= TAG_AT {
        VLAN_TAG as u16
    } else {
        0
    };
    let start = csum.start.checked_add(shift);
    Ok(Csum {
        start: start.ok_or(NotesError::CsumOutside)?,
        ..csum
    })
}

/// One frame with its tag and its checksum put in.
fn one<'b>(
    frame: &Frame<'b>,
    csum: Option<Csum>,
    tag: Option<u16>,
    left: Offload,
    out: &mut Batch<'b>,
) -> Result<(), ExpandError> {
    let field = csum.map(|c| usize::from(c.start) + usize::from(c.offset));
    let copied = field.map_or(ETHERNET_HEADER, |at| (at + 2).max(ETHERNET_HEADER));
    let mut header = [0; MAX_HEADERS];
    let header = header
        .get_mut(..copied)
        .ok_or(ExpandError::HeadersTooLong)?;
    frame.copy_to(0, header);
    if let (Some(csum), Some(field)) = (csum, field) {
        let start = usize::from(csum.start).min(copied);
        let mut sum = wire::Sum::of(&header[start..]);
        let mut rest = Cursor::new(frame.slices(), copied);
        rest.take(frame.len() - copied, |slice| add_slice(&mut sum, slice));
        header[field..field + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
    }
    push_header(out, header, tag);
    let mut rest = Cursor::new(frame.slices(), copied);
    rest.take(frame.len() - copied, |slice| out.push_slice(slice));
    out.end(left);
    Ok(())
}

/// The segments of a frame, each with its tag and, if wanted, its checksum; the last may be short, and
/// is padded: the receiver does not know that it has to be.
fn many<'b>(
    frame: &Frame<'b>,
    sum_it: bool,
    tag: Option<u16>,
    left: Offload,
    out: &mut Batch<'b>,
) -> Result<usize, ExpandError> {
    let mut headers = [0; MAX_HEADERS];
    let copied = frame.copy_to(0, &mut headers);
    let segments = Segments::new(&headers[..copied], frame.len(), frame.notes())?;
    let len = segments.header_len();
    let (l4, field) = (segments.l4_offset(), segments.checksum_at());
    let mut payload = Cursor::new(frame.slices(), len);
    let mut header = [0; MAX_HEADERS];
    let short = len <= HEAD && tag.is_none();
    let tagged = len + tag.map_or(0, |_| VLAN_TAG);
    for index in 0..segments.count() {
        let Some(part) = segments.segment(index, &mut header) else {
            break;
        };
        if sum_it {
            let mut sum = wire::Sum::of(&header[l4..len]);
            payload
                .clone()
                .take(part.len(), |slice| add_slice(&mut sum, slice));
            header[field..field + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
        }
        // The first tells the others their notes.
        if index > 0
            && short
            && tagged + part.len() >= SHORTEST
            && let Some(head) = header.first_chunk()
            && let Some(run) = payload.run(part.len())
        {
            out.push_alike(head, len, run);
            continue;
        }
        push_header(out, &header[..len], tag);
        payload.take(part.len(), |slice| out.push_slice(slice));
        out.pad(SHORTEST);
        if index == 0 {
            out.end(left);
        } else {
            out.end_alike();
        }
    }
    Ok(segments.count())
}

fn push_header(out: &mut Batch<'_>, header: &[u8], tag: Option<u16>) {
    let Some(tci) = tag else {
        return out.push_bytes(header);
    };
    let mut tagged = [0; MAX_HEADERS + VLAN_TAG];
    let tagged = &mut tagged[..header.len() + VLAN_TAG];
    tagged[..TAG_AT].copy_from_slice(&header[..TAG_AT]);
    tagged[TAG_AT..TAG_AT + 2].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
    tagged[TAG_AT + 2..TAG_AT + 4].copy_from_slice(&tci.to_be_bytes());
    tagged[TAG_AT + 4..].copy_from_slice(&header[TAG_AT..]);
    out.push_bytes(tagged);
}
