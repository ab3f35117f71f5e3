//! What a frame costs: no allocation, and one copy into the guest's memory.

use crate::common::*;
use frame::Batch;
use model::Progress;
use model_testkit::Hole;
use wire::Offload;

const LEN: u64 = 1000;
/// Status and length of a descriptor, in one write.
const WRITE_BACK: u64 = 8;

fn batch(frame: &[u8], count: usize) -> (Batch<'static>, Vec<u16>) {
    let mut batch = Batch::new();
    for _ in 0..count {
        batch.push_bytes(frame);
        batch.end(Offload::NONE);
    }
    let mut picks = Vec::new();
    batch.all_picks(&mut picks);
    (batch, picks)
}

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

/// Bytes written into guest memory by `work`.
fn written(m: &mut Machine, work: impl FnOnce(&mut Machine)) -> u64 {
    let before = m.env.memory.meter().totals().write_bytes;
    work(m);
    m.env.memory.meter().totals().write_bytes - before
}

#[test]
fn receiving_allocates_nothing_and_copies_once() {
    for fcs in [false, true] {
        let mut m = Machine::default();
        m.rx_on(128, 0x8000 | u32::from(!fcs) << 26);
        let (batch, picks) = batch(&plain(MAC, LEN as usize), 64);
        let round = |m: &mut Machine| {
            assert_eq!(m.nic.receive.deliver(&m.env, &batch, &picks), 64);
            let head = m.r(reg::RDH);
            m.w(reg::RDT, (head + 127) % 128);
        };
        round(&mut m);
        assert_eq!(allocations(|| (0..20).for_each(|_| round(&mut m))), 0);
        let frame = LEN + if fcs { 4 } else { 0 } + WRITE_BACK;
        assert_eq!(written(&mut m, round), 64 * frame);
    }
}

#[test]
fn the_fifo_allocates_nothing_and_writes_a_frame_once() {
    let mut m = Machine::default();
    m.rx_on(8, 0x8000 | 1 << 26);
    let (batch, picks) = batch(&plain(MAC, LEN as usize), 47);
    let round = |m: &mut Machine| {
        // 7 into the ring, 40 into the FIFO, and from there 7 at a time.
        assert_eq!(m.nic.receive.deliver(&m.env, &batch, &picks), 47);
        assert_eq!(m.r(0x2430), 40);
        while m.r(0x2430) > 0 {
            let head = m.r(reg::RDH);
            m.w(reg::RDT, (head + 7) % 8);
        }
        let head = m.r(reg::RDH);
        m.w(reg::RDT, (head + 7) % 8);
    };
    round(&mut m);
    assert_eq!(allocations(|| (0..20).for_each(|_| round(&mut m))), 0);
    assert_eq!(written(&mut m, round), 47 * (LEN + WRITE_BACK));
}

#[test]
fn sending_allocates_nothing_and_writes_only_status() {
    let mut m = Machine::default();
    m.tx_on(128);
    m.poke(TX_BUFFERS, &plain(PEER, LEN as usize));
    for i in 0..128 {
        m.tx_desc(i, TX_BUFFERS, legacy(LEN as u16, EOP | IFCS | RS));
    }
    let hole = Hole::default();
    let round = |m: &mut Machine| {
        let tail = (m.r(reg::TDH) + 100) % 128;
        m.nic
            .control
            .write(&m.env, 0, reg::TDT, &tail.to_le_bytes());
        m.nic.control.take_work();
        assert_eq!(m.nic.transmit.run(&m.env, &hole, 256), Progress::Idle);
    };
    round(&mut m);
    assert_eq!(allocations(|| (0..20).for_each(|_| round(&mut m))), 0);
    assert_eq!(written(&mut m, round), 100);
    assert_eq!(hole.frames(), 2200);
}
