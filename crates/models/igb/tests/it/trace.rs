//! What is told of a frame is what the receiver then does: each offer of the machine asks first, and compares.

use crate::common::*;
use intel_offsets::igb::long::{RDBAL, RDLEN, RDT, SRRCTL};

const RAM: u64 = 0x10_0000;
const BUFFER: u64 = RAM + 0x1000;
const RING: u32 = 16;
const ON: u32 = 1 << 25;
const RXEN: u32 = 1 << 1;
const UPE: u32 = 1 << 3;
const LPE: u32 = 1 << 5;
const BAM: u32 = 1 << 15;

fn started() -> Machine {
    let mut m = Machine::default();
    m.env.memory = memory(RAM, 0x8000);
    m.pci(false, false);
    m.w(reg::CTRL, 1 << 6);
    for i in 0..u64::from(RING) {
        m.poke(RAM + 16 * i, &BUFFER.to_le_bytes());
    }
    m.w(RDBAL, RAM as u32);
    m.w(RDLEN, RING * 16);
    m.w(reg::RXDCTL, ON);
    m.w(RDT, RING - 1);
    m.w(reg::RCTL, RXEN | BAM);
    m.sleep(20_000_000);
    m
}

#[test]
fn what_is_told_of_a_frame_is_what_becomes_of_it() {
    type Set = fn(&mut Machine);
    let cases: &[(Set, [u8; 6], usize, bool, &str)] = &[
        (|_| {}, MAC, 60, true, "rx_frames"),
        (|_| {}, [0xff; 6], 60, true, "rx_frames"),
        (
            |m| m.w(reg::RCTL, RXEN),
            [0xff; 6],
            60,
            false,
            "rx_filtered",
        ),
        (|_| {}, PEER, 60, false, "rx_filtered"),
        (|m| m.w(reg::RCTL, RXEN | UPE), PEER, 60, true, "rx_frames"),
        (|m| m.w(reg::RCTL, BAM), MAC, 60, false, "rx_disabled"),
        (|m| m.w(reg::RXDCTL, 0), MAC, 60, false, "rx_disabled"),
        (|m| m.w(SRRCTL, 7 << 25), MAC, 60, false, "rx_bad_type"),
        (|m| m.w(RDLEN, 0), MAC, 60, false, "rx_bad_ring"),
        (|_| {}, MAC, 1600, false, "rx_oversize"),
        (|m| m.w(reg::RCTL, RXEN | LPE), MAC, 1600, true, "rx_frames"),
        (|m| m.w(RDT, 0), MAC, 60, false, "rx_missed"),
        (
            |m| {
                m.w(SRRCTL, 1 << 31);
                m.w(RDT, 0);
            },
            MAC,
            60,
            false,
            "rx_dropped",
        ),
    ];
    for (i, (set, dst, len, gets, counter)) in cases.iter().enumerate() {
        let mut m = started();
        set(&mut m);
        let frame = plain(*dst, *len);
        let before = m.counter(counter);
        assert_eq!(m.trace(&frame), Some(*gets), "case {i}");
        assert_eq!(m.counter(counter), before, "case {i}: nothing comes of it");
        let dealt = m.offer(&[&frame]);
        let rose = m.counter(counter) - before;
        match *counter {
            "rx_missed" => assert_eq!((dealt, rose), (0, 0), "case {i}"),
            _ => assert_eq!((dealt, rose), (1, 1), "case {i}"),
        }
    }
}
