//! Frames out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::common::*;
use frame::{Batch, Caps, Sink, Wake};
use guest_mem::Memory;
use model::Progress;
use proptest::prelude::*;

#[test]
fn a_frame_leaves_and_its_descriptor_comes_back() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.w16(reg::IMR, TOK);
    let frame = plain(PEER, 200);
    m.send(0, &frame, BOTH, 0);
    assert_eq!(m.wire.take(), [frame]);
    assert_eq!(m.tx_words(0), (BOTH | 200, 0), "only OWN is cleared");
    assert!(m.line());
    assert_eq!(m.take_isr(), TOK | TDU);
    assert!(!m.line());
    assert_eq!(m.r8(reg::TX_POLL), 0);
}

#[test]
fn a_short_frame_is_padded() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    let frame = plain(PEER, 20);
    m.send(0, &frame, BOTH, 0);
    let sent = m.wire.take().remove(0);
    assert_eq!(sent.len(), 60);
    assert_eq!((&sent[..20], &sent[20..]), (&frame[..], &[0; 40][..]));
}

#[test]
fn pieces_make_a_frame_across_the_end_of_the_ring() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    for i in 0..3 {
        m.send(i, &plain(PEER, 100), BOTH, 0);
    }
    m.wire.take();
    let frame = plain(PEER, 300);
    m.poke(TX_BUFFERS, &frame);
    // The first one gets OWN last.
    m.tx_desc(0, OWN | LS | 200, 0, TX_BUFFERS + 100);
    m.w8(reg::TX_POLL, 0x40);
    assert!(m.wire.take().is_empty(), "not complete");
    assert_eq!(m.tx_words(0).0, OWN | LS | 200);
    m.tx_desc(3, OWN | EOR | FS | 100, 0, TX_BUFFERS);
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take(), [frame]);
    assert_eq!(m.tx_words(3).0, EOR | FS | 100);
    assert_eq!(m.tx_words(0).0, LS | 200);
    // It goes on behind.
    let frame = plain(PEER, 64);
    m.send(1, &frame, BOTH, 0);
    assert_eq!(m.wire.take(), [frame]);
}

#[test]
fn a_chain_that_is_not_complete_waits() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.poke(TX_BUFFERS, &plain(PEER, 300));
    m.tx_desc(0, OWN | FS | 100, 0, TX_BUFFERS);
    m.tx_desc(2, OWN | LS | 100, 0, TX_BUFFERS + 200);
    m.w8(reg::TX_POLL, 0x40);
    assert!(m.wire.take().is_empty());
    assert_eq!(m.r16(reg::ISR), 0);
    m.tx_desc(1, OWN | 100, 0, TX_BUFFERS + 100);
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take(), [plain(PEER, 300)]);
}

/// U-Boot has one descriptor, which is the last, too.
#[test]
fn a_ring_of_one_goes_round() {
    let mut m = Machine::new();
    m.rings(1, 1536);
    for len in 60..70 {
        m.send(0, &plain(PEER, len), BOTH, 0);
        assert_eq!(m.wire.take(), [plain(PEER, len)]);
        assert_eq!(m.tx_words(0).0, EOR | BOTH | len as u32);
    }
}

#[test]
fn nothing_leaves_while_the_transmitter_is_off() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.w8(reg::CHIP_CMD, 0x08);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    assert!(m.wire.take().is_empty());
    // Enabled, it begins by itself.
    m.w8(reg::CHIP_CMD, 0x0c);
    assert_eq!(m.wire.take().len(), 1);
    // StopReq, no link, no bus.
    m.w8(reg::CHIP_CMD, 0x8c);
    m.send(1, &plain(PEER, 100), BOTH, 0);
    assert!(m.wire.take().is_empty());
    m.w8(reg::CHIP_CMD, 0x0c);
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take().len(), 1);
    m.nic.control.set_link(&m.env, false);
    m.send(2, &plain(PEER, 100), BOTH, 0);
    assert!(m.wire.take().is_empty());
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    assert_eq!(m.wire.take().len(), 1);
    m.set_pci(Default::default());
    m.send(3, &plain(PEER, 100), BOTH, 0);
    assert!(m.wire.take().is_empty());
    m.pci(false, false);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn what_finds_no_room_stays_in_the_ring() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.wire.set_room(1);
    for i in 0..3 {
        m.poke(TX_BUFFERS, &plain(PEER, 100));
        m.tx_desc(i, OWN | BOTH | 100, 0, TX_BUFFERS);
    }
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take().len(), 1);
    assert_eq!([0, 1, 2].map(|i| m.tx_words(i).0 >> 31), [0, 1, 1]);
    assert_eq!(m.take_isr(), TOK);
    assert_eq!(m.run(), Progress::Blocked);
    m.wire.unlimit();
    assert_eq!(m.run(), Progress::Idle);
    assert_eq!(m.wire.take().len(), 2);
    assert_eq!(m.take_isr(), TOK | TDU);
}

/// A guest that gives each descriptor again at once is served a ring at a time.
#[test]
fn one_call_walks_a_ring_once() {
    for len in [1, 4, 64] {
        let mut m = Machine::new();
        m.rings(len, 1536);
        m.poke(TX_BUFFERS, &plain(PEER, 60));
        let sink = Again {
            memory: m.env.memory.clone(),
            len,
            sent: AtomicU32::new(0),
        };
        sink.give();
        assert_eq!(m.nic.transmit.run(&m.env, &sink, 10_000), Progress::More);
        let sent = sink.sent.into_inner();
        assert!((len..=2 * len).contains(&sent), "{sent} of {len}");
    }
}

/// Gives all descriptors again with each frame.
struct Again {
    memory: Memory,
    len: u32,
    sent: AtomicU32,
}

impl Again {
    fn give(&self) {
        let view = self.memory.view();
        for i in 0..self.len {
            let end = if i + 1 == self.len { EOR } else { 0 };
            let word = (OWN | end | BOTH | 60).to_le_bytes();
            let at = TX_RING + u64::from(i) * 16;
            view.write(at + 8, &TX_BUFFERS.to_le_bytes()).expect("RAM");
            view.write(at, &word).expect("RAM");
        }
    }
}

impl Sink for Again {
    fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
        self.sent.fetch_add(picks.len() as u32, Relaxed);
        self.give();
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]
    /// However frames are cut into descriptors, and whatever the ring's length.
    #[test]
    fn every_frame_leaves_once_and_in_order(
        ring in 3u32..20,
        frames in proptest::collection::vec((14usize..2000, proptest::collection::vec(any::<usize>(), 0..2)), 1..30),
        room in 1usize..5,
    ) {
        let mut m = Machine::new();
        m.rings(ring, 1536);
        let mut at = 0;
        let mut want = Vec::new();
        let mut got = Vec::new();
        for (n, (len, cuts)) in frames.into_iter().enumerate() {
            let mut frame = plain(PEER, len.max(14));
            if len > 15 {
                frame[15] = n as u8;
            }
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut % (len + 1)).collect();
            cuts.extend([0, len]);
            cuts.sort_unstable();
            m.poke(TX_BUFFERS, &frame);
            let last = cuts.len() - 2;
            for (i, pair) in cuts.windows(2).enumerate() {
                let end = if at + 1 == ring { EOR } else { 0 };
                let bits = if i == 0 { FS } else { 0 } | if i == last { LS } else { 0 };
                let size = (pair[1] - pair[0]) as u32;
                m.tx_desc(at, OWN | end | bits | size, 0, TX_BUFFERS + pair[0] as u64);
                at = (at + 1) % ring;
            }
            m.wire.set_room(n % room);
            m.w8(reg::TX_POLL, 0x40);
            m.wire.unlimit();
            m.run();
            frame.resize(frame.len().max(60), 0);
            want.push(frame);
            got.extend(m.wire.take());
        }
        prop_assert_eq!(got, want);
        for i in 0..ring {
            prop_assert_eq!(m.tx_words(i).0 & OWN, 0);
        }
    }
}
