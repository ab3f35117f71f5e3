//! Large frames that come in one piece and find no room: each segment is counted as the frame that
//! it would have been on the wire.

use crate::common::*;
use crate::packet::*;
use frame::Batch;
use hypernic_e1000::{Config, FullFifo};
use intel_offsets::e1000::long::{MPC, PBA, RDFPC, RNBC, TORL};
use wire::{Csum, Gso, Offload};

/// A TCP segment of `len` bytes, to be cut at 1000.
fn large(len: usize) -> (Vec<u8>, Offload) {
    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
    let mut frame = ethernet(0x0800);
    frame[..6].copy_from_slice(&MAC);
    frame.extend(ipv4(6, (40 + len) as u16));
    frame.extend(tcp(0x10, pseudo4(6, 20 + len as u16)));
    frame.extend(payload);
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: 1000,
        hdr_len: 54,
        ..Offload::NONE
    };
    (frame, notes)
}

/// A FIFO of 1 KiB, too small for a segment.
fn machine(ring: u32, full_fifo: FullFifo) -> Machine {
    let mut config = Config::new(MAC);
    config.full_fifo = full_fifo;
    let mut m = Machine::with(config, Wire::default());
    m.w(PBA, 1);
    m.rx_on(ring, 0x8000);
    m
}

#[test]
fn without_back_pressure_all_segments_of_a_refused_frame_are_missed() {
    let (frame, notes) = large(5500);
    let mut m = machine(8, FullFifo::Drop);
    assert_eq!(m.offer_notes(&[(&frame, notes), (&frame, notes)]), 2);
    assert_eq!(m.r(reg::RDH), 6, "the first one found room");
    assert_eq!((m.r(MPC), m.r(RNBC)), (6, 6));
}

#[test]
fn what_ring_and_fifo_can_never_hold_is_missed_from_where_they_end() {
    let (frame, notes) = large(20_000);
    for (full_fifo, too_large) in [(FullFifo::Wait, 13), (FullFifo::Drop, 0)] {
        let mut m = machine(8, full_fifo);
        assert_eq!(m.offer_notes(&[(&frame, notes)]), 1, "it blocks nobody");
        assert_eq!(m.r(reg::RDH), 7);
        assert_eq!(m.r(MPC), 13);
        assert_eq!(m.counter("rx_too_large"), too_large);
    }
}

#[test]
fn a_large_frame_that_its_sender_gives_up_counts_as_its_segments() {
    let (frame, notes) = large(5500);
    let mut m = machine(8, FullFifo::Wait);
    let mut batch = Batch::new();
    batch.push_bytes(&frame);
    batch.end(notes);
    m.nic.receive.give_up(&m.env, &batch, &[0]);
    assert_eq!((m.r(MPC), m.r(RNBC)), (6, 6));
    assert_eq!(m.r(TORL), 5 * (54 + 1000 + 4) + (54 + 500 + 4));
}

/// More segments than the ring ever holds: what the FIFO holds of them is not lost, whoever sends them.
#[test]
fn segments_beyond_the_ring_go_into_the_fifo_of_a_sender_that_keeps_frames_too() {
    let (frame, notes) = large(20_000);
    let mut m = machine(8, FullFifo::Wait);
    m.w(PBA, 48);
    let mut batch = Batch::new();
    batch.push_bytes(&frame);
    batch.end(notes);
    assert_eq!(m.nic.receive.deliver_or_leave(&m.env, &batch, &[0]), 1);
    assert_eq!((m.r(reg::RDH), m.r(RDFPC), m.r(MPC)), (7, 13, 0));
    assert_eq!(m.counter("rx_too_large"), 0);
}
