//! Pools of a PF without VFs: who gets what, and who may send.

use std::sync::atomic::Ordering::Relaxed;

use crate::core::stats::Stat;
use crate::regs as r;
use crate::regs::QUEUES;
use crate::regs::bits::{icr, rctl, vmolr, vt_ctl};
use crate::testing::{Guest, Wire, packet};
use crate::tx::desc::cmd;

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
    // A frame that no pool asks for is for the default pool, if there is one; a group frame is for none.
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
    file.set(r::RCTL, file.get(r::RCTL) | rctl::LPE);
    file.set(r::RLPML, 9728);
    file.set_at(r::VMOLR, 1, USUAL & !0x3fff | vmolr::LPE | 1800);
    assert_eq!(taken(&guest, &frame(US, 1600)), [0, 1, 0, 0]);
    assert_eq!(guest.function.stats.total(Stat::Roc), 0);
    assert_eq!(taken(&guest, &frame(US, 1800)), [0; 4]);
    assert_eq!(guest.function.stats.total(Stat::Roc), 1);
    // A tag counts.
    let mut longest = frame(US, 1796);
    longest.truncate(1796);
    assert_eq!(taken(&guest, &longest), [0, 1, 0, 0]);
    longest.splice(12..12, [0x81, 0, 0x20, 5]);
    assert_eq!(taken(&guest, &longest), [0; 4]);
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
    // Queues that drop do not wait.
    let file = &guest.function.file;
    file.set(r::QDE, 0b1011);
    assert_eq!(guest.receive(&many[..1]), 1);
    let heads = [0, 1, 2, 3].map(|queue| guest.get(QUEUES.rdh, queue));
    assert_eq!(heads, [7, 7, 0, 7]);
    assert_eq!(guest.counter("rx_dropped"), 3);
    assert_eq!(guest.function.stats.total(Stat::Gprc), 8);
    let raised = guest.function.irq.lock().causes();
    assert_eq!(raised & icr::RXO, 0);
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
        assert_eq!(wire.take().len(), sent, "queue {queue}");
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

const LOOPBACK: u32 = 1 << 31;
const OTHER: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];
const WIRES: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// Sends these from a queue: how many came to pools 0 to 3, and what went out.
fn sent(
    guest: &mut Guest,
    queue: u32,
    frames: &[Vec<u8>],
    wire: &Wire,
) -> ([u32; 4], Vec<Vec<u8>>) {
    let heads = |guest: &Guest| [0, 1, 2, 3].map(|queue| guest.get(QUEUES.rdh, queue));
    let before = heads(guest);
    let at = |i: usize| 0x100_0000 + 0x1_0000 * i as u64;
    let command = u64::from(cmd::EOP | cmd::IFCS | cmd::RS) << 24;
    let descs: Vec<_> = (0..frames.len())
        .map(|i| {
            guest.write(at(i), &frames[i]);
            (at(i), frames[i].len() as u64 | command)
        })
        .collect();
    guest.send(queue, &descs);
    guest.run(wire);
    let after = heads(guest);
    let taken = [0, 1, 2, 3].map(|i| (after[i] + 8 - before[i]) % 8);
    (taken, wire.take())
}

/// Pools 0 to 3 with a station for each of the first two, whose frames reach others.
fn switching() -> Guest {
    let guest = guest();
    assign(&guest, 0, US, 1);
    assign(&guest, 1, OTHER, 2);
    guest.function.file.set(r::DTXSWC, LOOPBACK);
    for queue in [0, 1, 9] {
        guest.start_tx(queue, 16);
    }
    guest
}

#[test]
fn what_a_pool_sends_to_another_stays_inside_where_that_is_asked_for() {
    let mut guest = switching();
    let wire = Wire::default();
    let all = [OTHER, WIRES, BROADCAST, US, OTHER].map(|dst| frame(dst, 100));
    let one = |guest: &mut Guest, queue, of: &[usize]| {
        let frames: Vec<_> = of.iter().map(|i| all[*i].clone()).collect();
        let (taken, out) = sent(guest, queue, &frames, &wire);
        let out: Vec<_> = out
            .iter()
            .map(|frame| {
                all.iter()
                    .position(|sent| sent == frame)
                    .expect("one of them")
            })
            .collect();
        (taken, out)
    };
    assert_eq!(one(&mut guest, 0, &[0]), ([0, 1, 0, 0], vec![]));
    assert_eq!(
        one(&mut guest, 9, &[3]),
        ([1, 0, 0, 0], vec![]),
        "its other queue"
    );
    assert_eq!(
        one(&mut guest, 0, &[1]),
        ([0; 4], vec![1]),
        "not the default's"
    );
    assert_eq!(one(&mut guest, 0, &[2]), ([0, 1, 1, 1], vec![2]));
    assert_eq!(one(&mut guest, 0, &[3]), ([0; 4], vec![]), "its own");
    // In the order of the ring, each to where it belongs.
    assert_eq!(
        one(&mut guest, 0, &[1, 1, 0, 2, 1, 0]),
        ([0, 3, 1, 1], vec![1, 1, 2, 1])
    );
    // Also to itself, where that is asked for pool by pool.
    guest.set_of_all(r::DTXSWC, LOOPBACK | 1 << 16);
    assert_eq!(one(&mut guest, 0, &[3, 2]), ([2, 1, 1, 1], vec![2]));
    guest.set_of_all(r::DTXSWC, 1 << 16);
    assert_eq!(one(&mut guest, 0, &[0, 3, 2]), ([0; 4], vec![0, 3, 2]));
    assert_eq!(guest.function.stats.total(Stat::Mpc), 0);
}

#[test]
fn vlans_part_pools_that_send_to_each_other() {
    let mut guest = switching();
    let wire = Wire::default();
    let file = &guest.function.file;
    file.set(r::RCTL, file.get(r::RCTL) | VFE);
    file.set_at(r::VFTA, 0, 1 << 5 | 1 << 6);
    file.set_at(r::VLVF, 0, 1 << 31 | 1 << 13 | 5);
    let mut one = |dst, tci| {
        let (taken, out) = sent(&mut guest, 0, &[tagged(dst, tci)], &wire);
        (taken, out.len())
    };
    assert_eq!(one(OTHER, 5), ([0, 1, 0, 0], 0));
    assert_eq!(one(OTHER, 6), ([0; 4], 0), "of a VLAN that it is not in");
    assert_eq!(one(OTHER, 7), ([0; 4], 1), "an unknown one");
    assert_eq!(one(BROADCAST, 5), ([0, 1, 0, 0], 1));
}

#[test]
fn what_finds_no_room_on_the_wire_is_not_inside_either() {
    let mut guest = switching();
    let wire = Wire::default();
    wire.set_room(1);
    let frames = [OTHER, WIRES, OTHER, BROADCAST, OTHER].map(|dst| frame(dst, 100));
    let (taken, out) = sent(&mut guest, 0, &frames, &wire);
    assert_eq!((taken, out.len()), ([0, 2, 0, 0], 1));
    assert_eq!(guest.get(QUEUES.tdh, 0), 3);
    wire.set_room(1);
    let (taken, out) = sent(&mut guest, 0, &[], &wire);
    assert_eq!((taken, out), ([0, 2, 1, 1], vec![frames[3].clone()]));
    // But a queue without buffers delays no other.
    let many = vec![frame(OTHER, 100); 5];
    let (taken, _) = sent(&mut guest, 0, &many, &wire);
    assert_eq!(taken, [0, 3, 0, 0]);
    assert_eq!(guest.get(QUEUES.tdh, 0), 10);
    assert_eq!(guest.function.stats.total(Stat::Mpc), 2);
    assert_eq!(guest.counter("rx_missed"), 2);
}

/// A PF with pools of its own beside those of VFs: the switch knows it as one, what is among its own it
/// finds out itself.
#[test]
fn several_pools_beside_vfs_reach_each_other_too() {
    let mut guest = switching();
    let wire = Wire::default();
    guest.function.vfs.store(1, Relaxed);
    // The first pool is a VF's.
    assign(&guest, 2, [2, 0, 0, 0, 0, 3], 1 << 3);
    let mine = frame([2, 0, 0, 0, 0, 3], 100);
    assert_eq!(
        sent(&mut guest, 1, std::slice::from_ref(&mine), &wire),
        ([0, 0, 0, 1], vec![])
    );
    let theirs = frame(US, 100);
    assert_eq!(
        sent(&mut guest, 1, std::slice::from_ref(&theirs), &wire),
        ([0; 4], vec![theirs])
    );
    let all = frame(BROADCAST, 100);
    assert_eq!(
        sent(&mut guest, 1, std::slice::from_ref(&all), &wire),
        ([0, 0, 1, 1], vec![all.clone()])
    );
    assert_eq!(taken(&guest, &mine), [0, 0, 0, 1]);
    assert_eq!(taken(&guest, &all), [0, 1, 1, 1]);
    // A copy of what is for others.
    guest
        .function
        .file
        .set(r::VT_CTL, vt_ctl::REPLICATE | vt_ctl::NO_DEFAULT);
    assert_eq!(taken(&guest, &frame(WIRES, 100)), [0, 1, 0, 0]);
}
