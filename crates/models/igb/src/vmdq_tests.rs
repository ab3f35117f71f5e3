//! Pools of a PF without VFs: who gets what, and who may send.

use std::sync::atomic::Ordering::Relaxed;

use crate::bits::rctl;
use crate::desc::cmd;
use crate::irq::cause;
use crate::office::pools::{vmolr, vt_ctl};
use crate::regs as r;
use crate::regs::QUEUES;
use crate::rules::bits;
use crate::stats::Stat;
use crate::testing::{Guest, Wire, packet};

const WHOLE: u32 = 1 << 25;
const US: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0x40, 0x30, 0x20];
const BROADCAST: [u8; 6] = [0xff; 6];
/// RCTL.VFE.
const VFE: u32 = 1 << 18;
/// Untagged frames, and broadcasts.
const USUAL: u32 = vmolr::STRCRC | vmolr::AUPE | vmolr::BAM | 0x2600;

/// A PF with pools 0 to 3 as a driver of VMDq has them.
fn guest() -> Guest {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::MRQC, 3);
    file.set(r::VT_CTL, vt_ctl::REPLICATE | 1 << vt_ctl::DEFAULT_SHIFT);
    for pool in 0..4 {
        file.set_at(r::VMOLR, pool, USUAL);
        guest.start_rx(pool, 8, WHOLE | 2);
    }
    guest
}

/// Gives an address to pools.
fn assign(guest: &Guest, at: u32, [a, b, c, d, e, f]: [u8; 6], pools: u32) {
    let file = &guest.function.file;
    file.set_at(r::RAL, at, u32::from_le_bytes([a, b, c, d]));
    let high = u32::from_le_bytes([e, f, 0, 0]) | 1 << 31 | pools << 18;
    file.set_at(r::RAH, at, high);
}

fn frame(dst: [u8; 6], payload: usize) -> Vec<u8> {
    let mut bytes = packet::v4_with([1; 4], [2; 4], true, 5, 6, payload);
    bytes[..6].copy_from_slice(&dst);
    bytes
}

fn tagged(dst: [u8; 6], tci: u16) -> Vec<u8> {
    let mut bytes = frame(dst, 100);
    let [high, low] = tci.to_be_bytes();
    bytes.splice(12..12, [0x81, 0, high, low]);
    bytes
}

/// How many descriptors a frame takes of the rings of pools 0 to 3.
fn taken(guest: &Guest, frame: &[u8]) -> [u32; 4] {
    let heads = || [0, 1, 2, 3].map(|queue| guest.get(QUEUES.rdh, queue));
    let before = heads();
    assert_eq!(guest.receive(&[frame.to_vec()]), 1);
    let after = heads();
    [0, 1, 2, 3].map(|i| (after[i] + 8 - before[i]) % 8)
}

#[test]
fn each_pool_has_what_is_for_its_addresses() {
    let guest = guest();
    assign(&guest, 0, US, 1 << 2);
    assign(&guest, 1, GROUP, 1 << 3 | 1 << 1);
    assert_eq!(taken(&guest, &frame(US, 100)), [0, 0, 1, 0]);
    assert_eq!(taken(&guest, &frame(GROUP, 100)), [0, 1, 0, 1]);
    assert_eq!(taken(&guest, &frame(BROADCAST, 100)), [1, 1, 1, 1]);
    // What is for nobody is for the default pool, unless there is none; a group is for nobody.
    let other = [2, 0, 0, 0, 0, 7];
    assert_eq!(taken(&guest, &frame(other, 100)), [0, 1, 0, 0]);
    assert_eq!(taken(&guest, &frame([1, 0, 0, 0, 0, 7], 100)), [0; 4]);
    let file = &guest.function.file;
    file.set(r::VT_CTL, vt_ctl::REPLICATE | vt_ctl::NO_DEFAULT);
    assert_eq!(taken(&guest, &frame(other, 100)), [0; 4]);
    assert_eq!(guest.counter("rx_filtered"), 2);
    // A pool's multicasts are no broadcasts.
    let queue = &guest.function.queues[1];
    let own = [&queue.counts.rx_packets, &queue.counts.rx_multicast];
    assert_eq!(own.map(|count| count.load(Relaxed)), [3, 1]);
    // The copies are the guest's, the frame is the wire's.
    let tally = |stat| guest.function.stats.total(stat);
    assert_eq!(tally(Stat::Gprc), 4);
    assert_eq!(guest.counter("rx_frames"), 8);
}

#[test]
fn tables_count_beside_addresses_for_pools_that_want_them() {
    let guest = guest();
    let file = &guest.function.file;
    assign(&guest, 0, GROUP, 1);
    // RCTL.MO 0: bits 47:36.
    let index = 0x203;
    file.set_at(r::MTA, index / 32, 1 << (index % 32));
    file.set_at(r::VMOLR, 2, USUAL | vmolr::ROMPE);
    assert_eq!(taken(&guest, &frame(GROUP, 100)), [1, 0, 1, 0]);
    file.set_at(r::VMOLR, 3, USUAL | vmolr::MPME);
    assert_eq!(taken(&guest, &frame(GROUP, 100)), [1, 0, 1, 1]);
    // Of stations the other table.
    let station = [2, 0, 0, 0, 0x30, 0x20];
    file.set_at(r::UTA, index / 32, 1 << (index % 32));
    file.set_at(r::VMOLR, 2, USUAL | vmolr::ROPE);
    assert_eq!(taken(&guest, &frame(station, 100)), [0, 0, 1, 0]);
    file.set(r::VT_CTL, vt_ctl::REPLICATE | vt_ctl::IGNORE_MAC);
    assert_eq!(taken(&guest, &frame(station, 100)), [1; 4]);
}

#[test]
fn without_replication_one_pool_gets_a_frame() {
    let guest = guest();
    assign(&guest, 0, US, 1 << 3 | 1 << 2);
    let file = &guest.function.file;
    file.set(r::VT_CTL, 1 << vt_ctl::DEFAULT_SHIFT);
    assert_eq!(taken(&guest, &frame(US, 100)), [0, 0, 1, 0]);
    assert_eq!(taken(&guest, &frame(BROADCAST, 100)), [0, 1, 0, 0]);
}

#[test]
fn vlans_have_pools() {
    let guest = guest();
    let file = &guest.function.file;
    file.set(r::RCTL, file.get(r::RCTL) | VFE);
    assign(&guest, 0, US, 0xf);
    let default_off = vt_ctl::REPLICATE | vt_ctl::NO_DEFAULT;
    file.set(r::VT_CTL, default_off);
    file.set_at(r::VLVF, 3, 1 << 31 | (1 << 1 | 1 << 2) << 12 | 5);
    file.set_at(r::VFTA, 0, 1 << 5 | 1 << 6);
    assert_eq!(taken(&guest, &tagged(US, 0x2005)), [0, 1, 1, 0]);
    assert_eq!(taken(&guest, &tagged(US, 6)), [0; 4], "of no pool");
    file.set_at(r::VLVF, 4, 1 << 31 | 1 << 12 | 7);
    assert_eq!(taken(&guest, &tagged(US, 7)), [0; 4], "not in the table");
    file.set_at(r::VMOLR, 1, USUAL & !vmolr::AUPE);
    assert_eq!(taken(&guest, &frame(US, 100)), [1, 0, 1, 1]);
}

#[test]
fn tags_and_lengths_are_each_pools_own() {
    let guest = guest();
    let file = &guest.function.file;
    assign(&guest, 0, US, 0b11);
    assign(&guest, 1, GROUP, 0b11);
    file.set_at(r::VMOLR, 1, USUAL | vmolr::STRVLAN);
    let of = |index| [0, 1].map(|pool| guest.rx_desc(pool, index).1);
    let reported = |high: u64| {
        (
            high as u32 >> 3 & 1,
            (high >> 48) as u16,
            (high >> 32) as u16,
        )
    };
    let len = (tagged(US, 5).len()) as u16;
    assert_eq!(taken(&guest, &tagged(US, 0x2005)), [1, 1, 0, 0]);
    assert_eq!(of(0).map(reported), [(0, 0, len), (1, 0x2005, len - 4)]);
    // What is replicated is treated alike.
    assert_eq!(taken(&guest, &tagged(GROUP, 0x2005)), [1, 1, 0, 0]);
    assert_eq!(of(1).map(reported), [(0, 0, len), (0, 0, len)]);
    file.set(r::RPLOLR, vmolr::STRCRC | vmolr::STRVLAN);
    assert_eq!(taken(&guest, &tagged(GROUP, 0x2005)), [1, 1, 0, 0]);
    assert_eq!(of(2).map(reported), [(1, 0x2005, len - 4); 2]);
    // Longer ones only for pools that want them.
    file.set(r::RCTL, file.get(r::RCTL) | bits::rctl::LPE);
    file.set(r::RLPML, 9728);
    file.set_at(r::VMOLR, 1, USUAL & !0x3fff | vmolr::LPE | 1800);
    assert_eq!(taken(&guest, &frame(US, 1600)), [0, 1, 0, 0]);
    assert_eq!(guest.function.stats.total(Stat::Roc), 0);
    assert_eq!(taken(&guest, &frame(US, 1800)), [0; 4]);
    assert_eq!(guest.function.stats.total(Stat::Roc), 1);
}

#[test]
fn all_pools_get_a_frame_or_none() {
    let guest = guest();
    let many = vec![frame(BROADCAST, 100); 9];
    // The ring of each has seven buffers.
    assert_eq!(guest.receive(&many), 7);
    guest.set(QUEUES.rdt, 2, 1);
    assert_eq!(guest.receive(&many[..1]), 0);
    let heads = [0, 1, 2, 3].map(|queue| guest.get(QUEUES.rdh, queue));
    assert_eq!(heads, [7; 4]);
    // Those that drop wait for nobody.
    let file = &guest.function.file;
    file.set(r::QDE, 0b1011);
    assert_eq!(guest.receive(&many[..1]), 1);
    let heads = [0, 1, 2, 3].map(|queue| guest.get(QUEUES.rdh, queue));
    assert_eq!(heads, [7, 7, 0, 7]);
    assert_eq!(guest.counter("rx_dropped"), 3);
    assert_eq!(guest.function.stats.total(Stat::Gprc), 8);
    let raised = guest.function.irq.lock().causes();
    assert_eq!(raised & cause::RXO, 0);
}

#[test]
fn pools_that_are_off_neither_receive_nor_send() {
    let mut guest = guest();
    let file = &guest.function.file;
    file.set(r::VFRE, 0b0111);
    assert_eq!(taken(&guest, &frame(BROADCAST, 100)), [1, 1, 1, 0]);
    assert_eq!(file.get(r::RCTL) & rctl::EN, rctl::EN);
    file.set(r::VFTE, 0b1101);
    let bytes = frame(US, 100);
    let wire = Wire::default();
    for (queue, sent) in [(0, 1), (1, 0), (9, 0), (8, 1)] {
        guest.start_tx(queue, 8);
        guest.write(0x100_0000, &bytes);
        let command = u64::from(cmd::EOP | cmd::IFCS | cmd::RS) << 24;
        guest.send(queue, &[(0x100_0000, bytes.len() as u64 | command)]);
        guest.run(&wire);
        assert_eq!(wire.drain().len(), sent, "queue {queue}");
    }
}

#[test]
fn a_filters_queue_is_the_only_one() {
    let guest = guest();
    let file = &guest.function.file;
    file.set_at(r::ETQF, 0, 1 << 31 | 3 << 16 | 1 << 26 | 0x0800);
    assert_eq!(taken(&guest, &frame(BROADCAST, 100)), [0, 0, 0, 1]);
    // Pools that are spread over two queues.
    file.set_at(r::ETQF, 0, 0);
    file.set(r::MRQC, 5 | 1 << 16);
    file.set_at(r::VMOLR, 2, USUAL | vmolr::RSSE);
    for entry in 0..32 {
        file.set_at(r::RETA, entry, 0x0101_0101);
    }
    guest.start_rx(10, 8, WHOLE | 2);
    assert_eq!(taken(&guest, &frame(BROADCAST, 100)), [1, 1, 0, 1]);
    assert_eq!(guest.get(QUEUES.rdh, 10), 1);
}

#[test]
fn a_message_has_one_time_in_all_pools() {
    let guest = guest();
    let file = &guest.function.file;
    file.set(r::TSYNCRXCTL, 1 << 4 | 5 << 1);
    file.set_at(r::ETQF, 3, 1 << 26 | 1 << 30 | 0x88f7);
    let mut sync = vec![0xff; 60];
    sync[12..16].copy_from_slice(&[0x88, 0xf7, 0, 2]);
    assert_eq!(taken(&guest, &sync), [1; 4]);
    let timed = |index| [0, 1, 2, 3].map(|pool| guest.rx_desc(pool, index).1 >> 16 & 1);
    assert_eq!(timed(0), [1; 4]);
    // It has not been read.
    assert_eq!(taken(&guest, &sync), [1; 4]);
    assert_eq!(timed(1), [0; 4]);
}
