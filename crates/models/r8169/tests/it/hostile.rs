//! Rings that no driver in earnest makes. Each is refused under a name of its own, and a good one works afterwards.

use crate::common::*;
use model::Progress;
use proptest::prelude::*;

/// After a reset the NIC sends and receives.
fn works(m: &mut Machine) {
    m.wire.take();
    m.w8(reg::CHIP_CMD, 0x10);
    m.rings(4, 1536);
    m.w16(reg::CPLUS_CMD, 0);
    m.w16(reg::MITIGATE, 0);
    let frame = plain(PEER, 100);
    m.send(0, &frame, BOTH, 0);
    assert_eq!(m.wire.take(), [frame]);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    assert_eq!(m.rx_words(0).0, BOTH | 1 << 26 | 104);
}

#[test]
fn a_ring_outside_of_memory_stops() {
    let mut m = Machine::new();
    for at in [0, RAM + RAM_LEN, !0xff] {
        m.rings(4, 1536);
        m.take_isr();
        let before = ["tx_dma_fault", "rx_dma_fault"].map(|name| m.counter(name));
        m.w32(reg::TX_HIGH, (at >> 32) as u32);
        m.w32(reg::TX_LOW, at as u32);
        m.w32(reg::RX_HIGH, (at >> 32) as u32);
        m.w32(reg::RX_LOW, at as u32);
        m.w8(reg::TX_POLL, 0x40);
        assert_eq!(m.take_isr(), SYS_ERR);
        assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
        assert_eq!(m.take_isr(), SYS_ERR);
        let after = ["tx_dma_fault", "rx_dma_fault"].map(|name| m.counter(name));
        assert_eq!(after, before.map(|n| n + 1));
    }
    works(&mut m);
}

#[test]
fn buffers_outside_of_memory_cost_their_frame_and_not_the_ring() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.tx_desc(0, OWN | BOTH | 100, 0, u64::MAX - 50);
    m.send(1, &plain(PEER, 100), BOTH, 0);
    assert_eq!(m.wire.take().len(), 1);
    assert_eq!(m.tx_words(0).0 & OWN, 0);
    assert_eq!(m.counter("tx_dma_fault"), 1);
    assert_eq!(m.take_isr() & (TOK | TER), TOK | TER);
    m.rx_desc(0, OWN | 1536, RAM + RAM_LEN - 10);
    assert_eq!(m.offer(&[&plain(MAC, 100), &plain(MAC, 100)]), 2);
    let (bad, good) = (m.rx_words(0).0, m.rx_words(1).0);
    assert_eq!(bad, BOTH | 1 << 26 | 1 << 21 | 104, "RES");
    assert_eq!(good, BOTH | 1 << 26 | 104);
    assert_eq!(m.counter("rx_dma_fault"), 1);
    works(&mut m);
}

#[test]
fn a_packet_without_an_end_is_never_sent() {
    let mut m = Machine::new();
    for len in [1, 4, 1024] {
        m.w8(reg::CHIP_CMD, 0x10);
        m.rings(len, 1536);
        for i in 0..len {
            let end = if i + 1 == len { EOR } else { 0 };
            let begin = if i == 0 { FS } else { 0 };
            m.tx_desc(i, OWN | end | begin | 60, 0, TX_BUFFERS);
        }
        let before = m.counter("tx_endless");
        m.w8(reg::TX_POLL, 0x40);
        assert!(m.wire.take().is_empty());
        assert_eq!(m.counter("tx_endless"), before + 1);
    }
    works(&mut m);
}

/// A packet without its end before the ring begins anew: what was taken in the same turn is no part of it.
#[test]
fn a_chain_does_not_go_on_in_what_was_taken() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    for (i, bits) in [BOTH, BOTH, FS, 0].into_iter().enumerate() {
        let i = i as u32;
        let end = if i == 3 { EOR } else { 0 };
        m.poke(TX_BUFFERS, &plain(PEER, 60));
        m.tx_desc(i, OWN | end | bits | 60, 0, TX_BUFFERS);
    }
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take().len(), 2);
    assert_eq!([0, 1, 2, 3].map(|i| m.tx_words(i).0 >> 31), [0, 0, 1, 1]);
    assert_eq!(m.counter("tx_bad_chain"), 0);
    // Its end comes.
    m.tx_desc(0, OWN | LS | 60, 0, TX_BUFFERS);
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take()[0].len(), 180);
    works(&mut m);
}

/// 1025 descriptors and no EOR: the chip begins anew behind 1024.
#[test]
fn a_ring_without_an_end_has_1024_descriptors() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    for i in 0..1100 {
        m.tx_desc(i, OWN | BOTH | 60, 0, TX_BUFFERS);
        m.rx_desc(i, OWN | 1536, RX_BUFFERS);
    }
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take().len(), 1024);
    assert_eq!(
        (m.tx_words(1023).0 & OWN, m.tx_words(1024).0 & OWN),
        (0, OWN)
    );
    for _ in 0..1024 {
        assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
    }
    assert_eq!(m.offer(&[&plain(MAC, 60)]), 0);
    assert_eq!(m.rx_words(1024).0, OWN | 1536);
    works(&mut m);
}

#[test]
fn chains_that_begin_wrongly_are_dropped_and_counted() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.poke(TX_BUFFERS, &plain(PEER, 600));
    m.tx_desc(0, OWN | LS | 100, 0, TX_BUFFERS);
    m.tx_desc(1, OWN | FS | 100, 0, TX_BUFFERS);
    m.tx_desc(2, OWN | BOTH | 100, 0, TX_BUFFERS);
    m.wire.look_at_unsent();
    m.send(3, &plain(PEER, 100), BOTH, 0);
    assert_eq!(m.wire.take(), [plain(PEER, 100)]);
    assert_eq!(m.counter("tx_bad_chain"), 2);
    // Who looks is shown their descriptors.
    let unsent = m.wire.take_unsent();
    let [(counter, alone), (second, two)] = &unsent[..] else {
        panic!("{unsent:?}");
    };
    assert_eq!((*counter, *second), ("tx_bad_chain", "tx_bad_chain"));
    assert_eq!((alone.len(), two.len()), (16, 32));
    assert_eq!(alone[..4], (OWN | LS | 100).to_le_bytes());
    assert_eq!(two[..4], (OWN | FS | 100).to_le_bytes());
    assert_eq!(two[24..], TX_BUFFERS.to_le_bytes());
    assert!((0..4).all(|i| m.tx_words(i).0 & OWN == 0));
    works(&mut m);
}

#[test]
fn lengths_that_no_frame_has_are_refused() {
    let mut m = Machine::new();
    m.rings(1024, 1536);
    for len in [0, 1, 13] {
        m.w8(reg::CHIP_CMD, 0x10);
        m.rings(4, 1536);
        m.send(0, &vec![1; len], BOTH, 0);
    }
    assert_eq!(m.counter("tx_runt"), 3);
    m.w8(reg::CHIP_CMD, 0x10);
    m.rings(1024, 1536);
    // 16 KiB and more, and the same a thousand times.
    m.tx_desc(0, OWN | BOTH | 0xffff, 0, TX_BUFFERS);
    for i in 1..1000 {
        let begin = if i == 1 { FS } else { 0 };
        let end = if i == 999 { LS } else { 0 };
        m.tx_desc(
            i,
            OWN | begin | end | 1 << 26 | 0xffff,
            1000 << 18,
            TX_BUFFERS,
        );
    }
    m.w8(reg::TX_POLL, 0x40);
    assert!(m.wire.take().is_empty());
    assert_eq!(m.counter("tx_too_long"), 2);
    assert_eq!(m.tx_words(999).0 & OWN, 0);
    works(&mut m);
}

#[test]
fn buffers_without_bytes_hold_nothing() {
    let mut m = Machine::new();
    m.rings(4, 0);
    assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
    assert_eq!(m.counter("rx_too_long"), 1);
    assert_eq!(m.counter("rx_empty_buffer"), 4);
    assert_eq!(m.rx_words(0).0 & OWN, OWN);
    works(&mut m);
}

/// Each frame walks all of them, so its sender is charged for that.
#[test]
fn buffers_without_bytes_cost_their_sender_of_its_turn() {
    let mut m = Machine::new();
    m.rings(40, 0);
    frame::work::take_turn();
    assert_eq!(m.offer(&[&plain(MAC, 60), &plain(MAC, 60)]), 2);
    assert_eq!(frame::work::take_turn(), 2 * 40 / 8);
}

#[test]
fn commands_that_no_driver_gives_do_no_harm() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.w8(reg::TX_POLL, 0xff);
    assert_eq!(m.counter("tx_high_priority"), 1);
    for at in 0..256 {
        m.w8(at, 0xff);
    }
    for at in 0..256 {
        m.w32(at, u32::MAX);
    }
    m.sleep(100_000_000_000);
    m.w16(reg::IMR, 0);
    m.w32(reg::RX_CONFIG, 0);
    m.w8(reg::CFG9346, 0x40);
    m.w32(reg::PHYAR, 0x801f_0000);
    m.w32(reg::PHYAR, 0x8000_8000);
    m.sleep(10_000_000);
    works(&mut m);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]
    /// Any descriptors at all, with any registers: every call ends, and the NIC works after a reset.
    #[test]
    fn any_ring_is_survived(
        tx in proptest::collection::vec((any::<u32>(), any::<u32>(), 0..RAM_LEN * 2), 1..24),
        rx in proptest::collection::vec((any::<u32>(), 0..RAM_LEN * 2), 1..24),
        frames in proptest::collection::vec(14usize..5000, 1..8),
        cplus: u16, rms: u16, mitigate: u16, own: bool,
    ) {
        let mut m = Machine::new();
        m.rings(1, 1536);
        let own = if own { OWN } else { 0 };
        for (i, (opts1, opts2, addr)) in tx.iter().enumerate() {
            m.tx_desc(i as u32, opts1 | own, *opts2, RAM + addr);
        }
        for (i, (opts1, addr)) in rx.iter().enumerate() {
            m.rx_desc(i as u32, opts1 | own, RAM + addr);
        }
        m.w16(reg::CPLUS_CMD, cplus);
        m.w16(reg::RX_MAX_SIZE, rms);
        m.w16(reg::MITIGATE, mitigate);
        m.w16(reg::IMR, 0xffff);
        m.w8(reg::TX_POLL, 0x40);
        for len in frames {
            m.offer(&[&plain(MAC, len)]);
        }
        m.sleep(30_000_000);
        prop_assert_ne!(m.run(), Progress::Blocked);
        works(&mut m);
    }
}
