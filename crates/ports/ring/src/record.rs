//! What stands in a ring: records, one behind the other.
//!
//! | Bytes  | What                                                       |
//! |--------|------------------------------------------------------------|
//! | 0..4   | length of the frame                                        |
//! | 4..8   | 1: a frame; 2: nothing more before the end of the ring      |
//! | 8..20  | its notes, as a virtio-net has them ([`port::vnet`])        |
//! | 20..22 | its VLAN tag                                               |
//! | 22..24 | 1: it has one                                              |
//! | 24..32 | zeros                                                      |
//!
//! All little-endian. The frame follows in one piece, then what is left to the next multiple of [`ALIGN`].

use port::vnet;
use wire::Offload;

use crate::config::MAX_FRAME;

/// Bytes of a record before its frame.
pub const HEADER: usize = 32;
/// Records begin at multiples of it, so that a header fits wherever there is room at all.
pub const ALIGN: u32 = 32;

const FRAME: u32 = 1;
const SKIP: u32 = 2;
const ETH_HLEN: usize = 14;

/// Bytes that a frame takes in a ring.
pub fn size(len: usize) -> u32 {
    (HEADER + len).next_multiple_of(ALIGN as usize) as u32
}

/// Whether a frame of this length can cross.
pub fn is_long_enough(len: usize) -> bool {
    len >= ETH_HLEN
}

/// The header of a frame.
pub fn frame(len: usize, notes: &Offload) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&(len as u32).to_le_bytes());
    header[4..8].copy_from_slice(&FRAME.to_le_bytes());
    if *notes != Offload::NONE {
        header[8..20].copy_from_slice(&vnet::encode(notes));
        if let Some(tag) = notes.vlan {
            header[20..22].copy_from_slice(&tag.to_le_bytes());
            header[22] = 1;
        }
    }
    header
}

/// The header of what is skipped.
pub fn skip() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&SKIP.to_le_bytes());
    header
}

/// What a header says, of the copy that was taken of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    Frame(usize),
    Skip,
}

/// Reads a header; `None` if no peer of ours writes such a one.
pub fn read(header: &[u8; HEADER]) -> Option<Record> {
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
    let len = word(0) as usize;
    match word(4) {
        FRAME if len > 0 && len <= MAX_FRAME => Some(Record::Frame(len)),
        SKIP => Some(Record::Skip),
        _ => None,
    }
}

/// Whether it has no notes. Most frames have none.
pub fn is_plain(header: &[u8; HEADER]) -> bool {
    header[8..24] == [0; 16]
}

/// The notes of a frame of `len` bytes that begins with `head`; `None` if they contradict it.
pub fn notes(header: &[u8; HEADER], head: &[u8], len: usize) -> Option<Offload> {
    let notes = vnet::decode(&header[8..20], head, len)?;
    let vlan = match header[22..24] {
        [0, 0] => None,
        [1, 0] => Some(u16::from_le_bytes([header[20], header[21]])),
        _ => return None,
    };
    Some(Offload { vlan, ..notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for len in [1, 14, 60, 1514, MAX_FRAME] {
            let header = frame(len, &Offload::NONE);
            assert_eq!(read(&header), Some(Record::Frame(len)));
            assert!(is_plain(&header));
            assert!(size(len).is_multiple_of(ALIGN) && size(len) as usize >= HEADER + len);
        }
        assert_eq!(read(&skip()), Some(Record::Skip));
        for tag in [0, 5, 0xffff] {
            let tagged = Offload {
                vlan: Some(tag),
                ..Offload::NONE
            };
            let header = frame(60, &tagged);
            assert!(!is_plain(&header));
            assert_eq!(notes(&header, &[0; 60], 60), Some(tagged));
        }
        let mut header = frame(60, &Offload::NONE);
        header[23] = 1;
        assert_eq!(notes(&header, &[0; 60], 60), None);
        for len in [0, MAX_FRAME + 1] {
            assert_eq!(read(&frame(len, &Offload::NONE)), None);
        }
        for kind in [0, 3, 7, 0x100] {
            let mut header = skip();
            header[4..8].copy_from_slice(&u32::to_le_bytes(kind));
            assert_eq!(read(&header), None, "{kind}");
        }
    }
}
