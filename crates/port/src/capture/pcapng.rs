//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng), in this machine's byte order.

use frame::Frame;
use wire::{Csum, Sum};

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const ETHERNET: u16 = 1;

const END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_APPLICATION: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TIMESTAMP_RESOLUTION: u16 = 9;
const EPB_FLAGS: u16 = 2;
const EPB_DROPS: u16 = 4;
const ISB_START: u16 = 2;
const ISB_END: u16 = 3;
const ISB_RECEIVED: u16 = 4;
const ISB_DROPPED: u16 = 5;

/// Which way a frame went, as `epb_flags` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the outside to the guest.
    Inbound = 1,
    /// From the guest to the outside.
    Outbound = 2,
}

/// Most bytes of a packet block around the packet.
pub const PACKET_OVERHEAD: usize = 28 + 3 + 8 + 12 + 4 + COMMENT + 4 + 4;
/// Most bytes of a comment.
const COMMENT: usize = 96;

/// What is noted beside a packet.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// Frames before it that could not be kept.
    pub missed: u64,
    /// A word for people.
    pub comment: Option<&'a str>,
}

/// Appends one block: type, length, what `body` writes, length.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_ne_bytes());
    out.extend([0; 4]);
    body(out);
    let len = ((out.len() - start + 4) as u32).to_ne_bytes();
    out[start + 4..start + 8].copy_from_slice(&len);
    out.extend(len);
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(&[0; 3][..len.next_multiple_of(4) - len]);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX.into())];
    out.extend(code.to_ne_bytes());
    out.extend((value.len() as u16).to_ne_bytes());
    out.extend(value);
    pad(out, value.len());
}

fn timestamp(nanos: u64) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&((nanos >> 32) as u32).to_ne_bytes());
    out[4..].copy_from_slice(&(nanos as u32).to_ne_bytes());
    out
}

/// Section header: the file's first block.
pub fn section(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION, |out| {
        out.extend(BYTE_ORDER.to_ne_bytes());
        out.extend(1u16.to_ne_bytes());
        out.extend(0u16.to_ne_bytes());
        out.extend(u64::MAX.to_ne_bytes());
        option(out, SHB_APPLICATION, application.as_bytes());
        option(out, END, &[]);
    });
}

/// Interface description, with timestamps in nanoseconds. `snaplen` 0 is no limit.
pub fn interface(out: &mut Vec<u8>, name: &str, snaplen: u32) {
    block(out, INTERFACE, |out| {
        out.extend(ETHERNET.to_ne_bytes());
        out.extend(0u16.to_ne_bytes());
        out.extend(snaplen.to_ne_bytes());
        option(out, IF_NAME, name.as_bytes());
        option(out, IF_TIMESTAMP_RESOLUTION, &[9]);
        option(out, END, &[]);
    });
}

/// One frame on interface `id`; a VLAN tag beside it is put where the wire has it.
pub fn packet(
    out: &mut Vec<u8>,
    id: u32,
    nanos: u64,
    beside: Beside<'_>,
    frame: &Frame<'_>,
    snaplen: usize,
) {
    let tag = frame.notes().vlan.filter(|_| frame.len() >= 12);
    let len = frame.len() + if tag.is_some() { 4 } else { 0 };
    let kept = len.min(snaplen);
    block(out, PACKET, |out| {
        out.extend(id.to_ne_bytes());
        out.extend(timestamp(nanos));
        out.extend((kept as u32).to_ne_bytes());
        out.extend((len as u32).to_ne_bytes());
        let start = out.len();
        out.resize(start + kept, 0);
        let data = &mut out[start..];
        match tag {
            Some(tci) if kept > 16 => {
                frame.copy_to(0, &mut data[..12]);
                data[12..14].copy_from_slice(&[0x81, 0]);
                data[14..16].copy_from_slice(&tci.to_be_bytes());
                frame.copy_to(12, &mut data[16..]);
            }
            _ => {
                frame.copy_to(0, data);
            }
        }
        // The file cannot say that a sum is still to be written. In a cut frame no reader can check it.
        if let Some(csum) = frame.notes().csum.filter(|_| kept == len) {
            finish(data, csum, tag.is_some());
        }
        pad(out, kept);
        if let Some(comment) = beside.comment {
            let comment = comment.as_bytes();
            option(out, OPT_COMMENT, &comment[..comment.len().min(COMMENT)]);
        }
        option(out, EPB_FLAGS, &(beside.direction as u32).to_ne_bytes());
        if beside.missed > 0 {
            option(out, EPB_DROPS, &beside.missed.to_ne_bytes());
        }
        option(out, END, &[]);
    });
}

/// Writes the checksum that is noted for a frame into a copy of it, in which a tag may stand now.
fn finish(data: &mut [u8], csum: Csum, tagged: bool) {
    let start = usize::from(csum.start);
    let start = start + if tagged && start >= 12 { 4 } else { 0 };
    let field = start + usize::from(csum.offset);
    let sum = Sum::of(data.get(start..).unwrap_or(&[])).finish_nonzero();
    if let Some(field) = data.get_mut(field..field + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Statistics of interface `id` at the end: from when to when, frames seen and frames missed.
pub fn statistics(out: &mut Vec<u8>, id: u32, from: u64, to: u64, seen: u64, missed: u64) {
    block(out, STATISTICS, |out| {
        out.extend(id.to_ne_bytes());
        out.extend(timestamp(to));
        option(out, ISB_START, &timestamp(from));
        option(out, ISB_END, &timestamp(to));
        option(out, ISB_RECEIVED, &seen.to_ne_bytes());
        option(out, ISB_DROPPED, &missed.to_ne_bytes());
        option(out, END, &[]);
    });
}

/// How many of the first `written` bytes of these blocks are whole blocks.
pub fn whole_blocks(blocks: &[u8], written: usize) -> usize {
    let mut end = 0;
    while let Some(len) = blocks.get(end + 4..end + 8) {
        let len = u32::from_ne_bytes([len[0], len[1], len[2], len[3]]) as usize;
        if len == 0 || end + len > written {
            break;
        }
        end += len;
    }
    end
}
