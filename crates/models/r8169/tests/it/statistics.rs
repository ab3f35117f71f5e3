//! DTCCR.

use crate::common::*;

fn dump(m: &mut Machine) -> Vec<u8> {
    m.w32(reg::COUNTER_HIGH, (STATS >> 32) as u32);
    m.w32(reg::COUNTER_LOW, STATS as u32);
    m.w32(reg::COUNTER_LOW, STATS as u32 | 8);
    assert_eq!(m.r32(reg::COUNTER_LOW), STATS as u32, "done");
    m.peek(STATS, 64)
}

fn at(bytes: &[u8], from: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[from..from + len]);
    u64::from_le_bytes(word)
}

#[test]
fn they_are_written_where_they_are_asked_for() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    m.send(1, &plain(PEER, 100), BOTH, 0);
    m.send(2, &[1; 10], BOTH, 0);
    m.w16(reg::RX_MAX_SIZE, 1518);
    let frames = [MAC, MAC, MAC, [0xff; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
    m.offer(&frames.map(|dst| plain(dst, 60)).each_ref().map(|f| &f[..]));
    m.offer(&[&plain(MAC, 2000)]);
    let mut batch = frame::Batch::new();
    batch.push_bytes(&plain(MAC, 100));
    batch.end(wire::Offload::NONE);
    m.nic.receive.give_up(&m.env, &batch, &[0]);
    let bytes = dump(&mut m);
    assert_eq!([0, 8, 16].map(|from| at(&bytes, from, 8)), [2, 6, 1]);
    assert_eq!((at(&bytes, 24, 4), at(&bytes, 28, 2)), (1, 1));
    assert_eq!([40, 48].map(|from| at(&bytes, from, 8)), [3, 2]);
    assert_eq!(at(&bytes, 56, 4), 1);
    assert_eq!([30, 32, 36, 60, 62].map(|from| at(&bytes, from, 2)), [0; 5]);
    assert_eq!(m.counter("stats_dumps"), 1);
    // Reset.
    m.w32(reg::COUNTER_LOW, STATS as u32 | 1);
    assert_eq!(m.r32(reg::COUNTER_LOW), STATS as u32);
    assert_eq!(dump(&mut m), [0; 64]);
}

/// DPDK's driver asks for the next dump before anything can have been done for it, first the address alone.
#[test]
fn a_reset_is_done_at_once() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
    for low in [1, 0, 8] {
        let low = (STATS as u32 | low).to_le_bytes();
        m.nic.control.write(&m.env, 2, reg::COUNTER_LOW, &low);
    }
    m.work();
    assert_eq!(m.peek(STATS, 64), [0; 64]);
    m.send(1, &plain(PEER, 100), BOTH, 0);
    assert_eq!(at(&dump(&mut m), 0, 8), 1);
}

/// The access only notes it: the memory is written after the answer.
#[test]
fn no_access_touches_memory() {
    let mut m = Machine::new();
    m.poke(STATS, &[0xee; 64]);
    m.w32(reg::COUNTER_LOW, STATS as u32);
    let low = (STATS as u32 | 8).to_le_bytes();
    m.nic.control.write(&m.env, 2, reg::COUNTER_LOW, &low);
    let mut data = [0; 4];
    m.nic.control.read(&m.env, 2, reg::COUNTER_LOW, &mut data);
    assert_eq!(data, low, "under way");
    assert_eq!(m.peek(STATS, 64), [0xee; 64]);
    m.work();
    assert_eq!(m.r32(reg::COUNTER_LOW), STATS as u32);
    assert_eq!(m.peek(STATS, 64), [0; 64]);
}

#[test]
fn statistics_that_go_nowhere_end_too() {
    let mut m = Machine::new();
    m.w32(reg::COUNTER_HIGH, 0xffff_ffff);
    m.w32(reg::COUNTER_LOW, 0xffff_ffc8);
    assert_eq!(m.r32(reg::COUNTER_LOW), 0xffff_ffc0);
    // Nor does a chip that may not master the bus.
    m.set_pci(Default::default());
    m.w32(reg::COUNTER_HIGH, 0);
    m.poke(STATS, &[0xee; 64]);
    m.w32(reg::COUNTER_LOW, STATS as u32 | 8);
    assert_eq!(m.r32(reg::COUNTER_LOW), STATS as u32);
    assert_eq!(m.peek(STATS, 64), [0xee; 64]);
    assert_eq!(m.counter("stats_dma_fault"), 2);
}
