//! Frames, buffers and rings of any kind.

use proptest::prelude::*;

use crate::regs as r;
use crate::regs::QUEUES;
use crate::regs::bits::{ctrl, rctl};
use crate::rx::tests::{ALWAYS, LEGACY, SPLIT, WHOLE, upper};
use crate::testing::{Guest, header_buffer, packet, packet_buffer};

/// Frames in earnest and otherwise.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let sane = (
        any::<bool>(),
        0..3000usize,
        any::<u16>(),
        0..60usize,
        any::<u8>(),
    )
        .prop_map(|(tcp, len, port, at, noise)| {
            let mut frame = packet::v4_with([1; 4], [2; 4], tcp, port, 80, len);
            if let Some(byte) = frame.get_mut(at).filter(|_| at >= 12) {
                *byte = noise;
            }
            frame
        });
    let wild = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![3 => sane, 1 => wild]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 60 }))]
    /// Whatever shape the driver chooses: what stands in header and packet buffers of a frame's
    /// descriptors, put together, is the frame.
    #[test]
    fn buffers_put_together_are_the_frame(
        frames in proptest::collection::vec(any_frame(), 1..12),
        kind in prop_oneof![Just(LEGACY), Just(WHOLE), Just(SPLIT), Just(ALWAYS)],
        size in 0..3u32,
        header in 0..8u32,
        types: u32,
        rxcsum: u32,
        keep_tags: bool,
    ) {
        let guest = Guest::pf();
        let file = &guest.function.file;
        let rctl = rctl::EN | rctl::UPE | rctl::MPE | rctl::SECRC
            | rctl::LPE | 3 << rctl::BSIZE_SHIFT;
        file.set(r::RCTL, rctl);
        file.set(r::RLPML, 0x3fff);
        file.set(r::CTRL, if keep_tags { 0 } else { ctrl::VME });
        file.set(r::RXCSUM, rxcsum & 0x3bff);
        file.set_at(r::PSRTYPE, 0, types);
        guest.start_rx(0, 256, kind | header << 8 | size);
        prop_assert_eq!(guest.receive(&frames), frames.len());
        let mut index = 0;
        for frame in frames.iter().filter(|frame| frame.len() >= 14) {
            let mut bytes = Vec::new();
            let mut tag = None;
            loop {
                let (low, high) = guest.rx_desc(0, index);
                let (status, len, special) = if kind == LEGACY {
                    ((high >> 32) as u32 & 0xff, usize::from(high as u16), (high >> 48) as u16)
                } else {
                    let (status, len, tag) = upper(high);
                    if kind != WHOLE {
                        let in_header = (low as u32 >> 21 & 0x3ff) as usize;
                        let room = header as usize * 64;
                        // That a header did not fit (HBO) is said in the last descriptor of a frame.
                        let there = match kind {
                            SPLIT if in_header > room => 0,
                            _ => in_header.min(room),
                        };
                        bytes.extend(guest.read(header_buffer(0, index), there));
                    }
                    (status, len, tag)
                };
                prop_assert_eq!(status & 1, 1, "descriptor {} is done", index);
                bytes.extend(guest.read(packet_buffer(0, index), len));
                index += 1;
                if status & 2 != 0 {
                    if status & 8 != 0 {
                        tag = Some(special);
                    }
                    break;
                }
            }
            if let Some(tag) = tag {
                let [a, b] = tag.to_be_bytes();
                bytes.splice(12..12, [0x81, 0, a, b]);
            }
            let mut want = frame.clone();
            want.resize(want.len().max(60), 0);
            prop_assert_eq!(bytes, want);
        }
        prop_assert_eq!(guest.get(QUEUES.rdh, 0), index);
    }

    /// Whatever registers and descriptors hold: a call ends, and heads stay inside of their rings.
    #[test]
    fn any_ring_comes_to_an_end(
        frames in proptest::collection::vec(any_frame(), 1..20),
        srrctl: u32,
        rings in proptest::collection::vec((any::<u32>(), 0..0x400u32, 0..0x60u32, 0..0x60u32), 16),
        wild in proptest::collection::vec((0..512u64, any::<u64>()), 0..40),
        mrqc: u32,
        reta: u32,
        rctl: u32,
        rxcsum: u32,
    ) {
        let guest = Guest::pf();
        let file = &guest.function.file;
        file.set(r::RCTL, rctl | rctl::EN | rctl::UPE);
        file.set(r::MRQC, mrqc);
        file.set(r::RXCSUM, rxcsum);
        for i in 0..32 {
            file.set_at(r::RETA, i, reta.rotate_left(i));
        }
        for (queue, (base, len, head, tail)) in (0..).zip(&rings) {
            guest.start_rx(queue, 32, srrctl.rotate_left(queue));
            guest.set(QUEUES.rdbal, queue, if base & 1 == 0 { base & 0x1ff_ff80 } else { *base });
            guest.set(QUEUES.rdlen, queue, len & !0x7f);
            guest.set(QUEUES.rdh, queue, *head);
            guest.set(QUEUES.rdt, queue, *tail);
        }
        for (at, word) in wild {
            guest.write(crate::testing::RX_RINGS + at * 16, &word.to_le_bytes());
        }
        for _ in 0..3 {
            prop_assert!(guest.receive(&frames) <= frames.len());
        }
        for (queue, (_, len, head, _)) in (0..).zip(&rings) {
            let now = guest.get(QUEUES.rdh, queue);
            prop_assert!(now == *head || now < (len & !0x7f) / 16);
        }
    }
}
