use proofs::proofs;

use super::{MAX_SEGMENTS, SegmentError, Segments};
use crate::layers::MAX_HEADERS;
use crate::offload::{Csum, Gso, Offload};

/// Ethernet, IPv4 and TCP.
const HEADERS: [u8; 54] = {
    let mut headers = [0; 54];
    headers[12] = 0x08;
    headers[14] = 0x45;
    headers[23] = 6;
    headers[14 + 20 + 12] = 5 << 4;
    headers
};

/// What a sender notes that has such headers.
fn notes(size: u16) -> Offload {
    Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: size,
        hdr_len: 54,
        ..Offload::default()
    }
}

proofs! {
    // The checksum over the header goes through its words.
    #[cfg_attr(kani, kani::unwind(24))]
    fn segments_make_up_their_payload(frame_len: usize, size: u16, index: usize) {
        let segments = match Segments::new(&HEADERS, frame_len, &notes(size)) {
            Ok(segments) => segments,
            Err(SegmentError::ZeroSize) => return assert_eq!(size, 0),
            Err(SegmentError::HeaderLength) => return assert!(frame_len < HEADERS.len()),
            Err(SegmentError::TooMany) => {
                let payload = frame_len - HEADERS.len();
                return assert!(payload.div_ceil(size.into()) > MAX_SEGMENTS);
            }
            Err(SegmentError::TooLong) => {
                return assert!(HEADERS.len() - 14 + usize::from(size) > 0xffff);
            }
            Err(other) => panic!("{other}"),
        };
        let (payload, size) = (frame_len - HEADERS.len(), usize::from(size));
        let count = segments.count();
        assert!((1..=MAX_SEGMENTS).contains(&count));
        let index = index % count;
        let mut out = [0; MAX_HEADERS];
        let part = segments.segment(index, &mut out).expect("there is such a segment");
        assert_eq!(part.start, index * size);
        assert!(part.start <= part.end && part.end <= payload);
        // Each is full but the last, which ends the payload.
        let last = index + 1 == count;
        assert_eq!(part.end, if last { payload } else { part.start + size });
        assert_eq!(segments.segment(count, &mut out), None);
        let total = u16::from_be_bytes([out[16], out[17]]);
        assert_eq!(usize::from(total), HEADERS.len() - 14 + part.len());
    }
}
