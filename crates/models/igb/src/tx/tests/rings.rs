//! Rings, write-back and the turns of queues.

use std::sync::atomic::Ordering;

use frame::Caps;
use model::{Progress, Transmit};
use model_testkit::Hole;
use proptest::prelude::*;

use crate::core::stats::Stat;
use crate::regs::QUEUES;
use crate::testing::{APART, Guest, TX_RINGS, Wire, packet};
use crate::tx::desc::cmd;
use crate::tx::tests::descs::*;

#[test]
fn legacy_and_advanced_descriptors_are_sent_and_written_back() {
    let mut guest = Guest::pf();
    guest.start_tx(3, 8);
    let frames: Vec<_> = (0..3)
        .map(|i| packet::v4([1, 2, 3, i], [4; 4], true, 5, 6))
        .collect();
    for (i, frame) in (0..).zip(&frames) {
        guest.write(BUFFER + i * 0x1000, frame);
    }
    let len = frames[0].len();
    guest.send(
        3,
        &[
            legacy(BUFFER, len, ALL),
            data(BUFFER + 0x1000, 10, cmd::IFCS, 0, len),
            data(BUFFER + 0x100a, len - 10, ALL, 0, len),
            data(BUFFER + 0x2000, len, cmd::EOP | cmd::IFCS, 0, len),
        ],
    );
    let wire = Wire::default();
    assert_eq!(guest.run(&wire), Progress::Idle);
    assert_eq!(wire.take(), frames);
    let ring = TX_RINGS + 3 * APART;
    let done: Vec<_> = (0..4)
        .map(|i| guest.word(ring + 16 * i + 8) >> 32 & 1)
        .collect();
    assert_eq!(done, [1, 0, 1, 0], "only where it was asked for");
    assert_eq!(guest.get(QUEUES.tdh, 3), 4);
    let sent = guest.function.queues[3]
        .counts
        .tx_packets
        .load(Ordering::Relaxed);
    assert_eq!((sent, guest.function.stats.total(Stat::Gptc)), (3, 3));
    // Nothing more is said to be there.
    assert_eq!(guest.run(&wire), Progress::Idle);
    assert!(wire.take().is_empty());
}

#[test]
fn the_head_is_written_where_it_is_asked_for_and_descriptors_are_not() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    guest.set(QUEUES.tdwbal, 0, 0x9001);
    guest.send(
        0,
        &[
            legacy(BUFFER, 60, cmd::EOP | cmd::IFCS),
            legacy(BUFFER, 60, ALL),
        ],
    );
    guest.run(&Wire::default());
    assert_eq!(guest.word(0x9000) as u32, 2);
    assert_eq!(guest.word(TX_RINGS + 24) >> 32 & 1, 0);
}

#[test]
fn sending_allocates_nothing() {
    let mut guest = Guest::pf();
    let bytes = unsegmented(true, 3000);
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 1000,
        vlan: 5,
        kind: TCP4,
        slot: 0,
    };
    let all = [
        ctx.desc(),
        data(
            BUFFER,
            bytes.len(),
            cmd::TSE | ALL | cmd::VLE,
            IXSM | TXSM,
            3000,
        ),
        data(BUFFER, 100, ALL, 0, 100),
        legacy(BUFFER, 60, ALL),
    ];
    for queue in 0..3 {
        guest.start_tx(queue, 8);
    }
    let round = |guest: &mut Guest| {
        for queue in 0..3 {
            guest.send(queue, &all);
        }
        guest.sender.run(&guest.env, &Hole::default(), 256);
    };
    round(&mut guest);
    let again = || (0..10).for_each(|_| round(&mut guest));
    assert_eq!(allocation_counter::measure(again).count_total, 0);
    assert_eq!(guest.counter("tx_frames"), 11 * 3 * 5);
}

#[test]
fn queues_take_turns() {
    let mut guest = Guest::pf();
    let len = 256;
    for queue in [0, 5, 15] {
        guest.start_tx(queue, len);
        guest.write(BUFFER + u64::from(queue) * 0x1000, &[queue as u8; 60]);
        let desc = legacy(BUFFER + u64::from(queue) * 0x1000, 60, ALL);
        guest.send(queue, &vec![desc; len as usize - 1]);
    }
    let wire = Wire::default();
    assert_eq!(guest.run_some(&wire, 192), Progress::More);
    let frames = wire.take();
    for queue in [0, 5, 15] {
        let n = frames.iter().filter(|f| f[0] == queue).count();
        assert_eq!(n, 64, "queue {queue}");
    }
    while guest.run(&wire) == Progress::More {}
    assert_eq!(wire.take().len(), 3 * 255 - 192);
}

#[test]
fn what_the_sink_has_no_room_for_is_sent_later_and_once() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 16);
    let bytes = unsegmented(true, 1000);
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let desc = data(BUFFER, bytes.len(), cmd::TSE | ALL, IXSM | TXSM, 1000);
    guest.send(0, &[ctx.desc(), desc, desc]);
    let wire = Wire::default();
    let mut frames = Vec::new();
    for room in [3, 0, 9, 1, 100] {
        wire.set_room(room);
        let want = if room == 100 {
            Progress::Idle
        } else {
            Progress::Blocked
        };
        assert_eq!(guest.run(&wire), want, "room for {room}");
        frames.extend(wire.take());
        let head = guest.get(QUEUES.tdh, 0);
        assert_eq!(head as usize, [1, 2, 3][frames.len() / 10].min(3));
    }
    let seqs: Vec<_> = frames
        .iter()
        .map(|f| u32::from_be_bytes([f[38], f[39], f[40], f[41]]) / 100)
        .collect();
    assert_eq!(seqs, (0..10).chain(0..10).collect::<Vec<_>>());
}

#[test]
fn a_stopped_queue_sends_when_it_is_started() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    guest.set(QUEUES.txdctl, 0, 0);
    guest.send(0, &[legacy(BUFFER, 60, ALL)]);
    let wire = Wire::default();
    assert_eq!(guest.run(&wire), Progress::Idle);
    assert!(wire.take().is_empty());
    guest.set(QUEUES.txdctl, 0, crate::regs::bits::xdctl::ENABLE);
    guest.run(&wire);
    assert_eq!(wire.take().len(), 1);
}

#[test]
fn looped_back_frames_come_to_our_own_receiver() {
    let mut guest = Guest::pf();
    guest.function.loopback.store(true, Ordering::Relaxed);
    guest.function.link_up.store(false, Ordering::Relaxed);
    guest.start_tx(0, 8);
    guest.start_rx(0, 8, 0);
    let frame = packet::v4([1; 4], [2; 4], true, 3, 4);
    guest.write(BUFFER, &frame);
    guest.send(0, &[legacy(BUFFER, frame.len(), ALL); 7]);
    let wire = Wire::default();
    guest.run(&wire);
    assert!(wire.take().is_empty());
    assert_eq!(guest.get(QUEUES.rdh, 0), 7);
    assert_eq!(
        guest.read(crate::testing::packet_buffer(0, 6), frame.len()),
        frame
    );
    // From the wire nothing comes in.
    assert_eq!(guest.receive(&[frame]), 1);
    assert_eq!(guest.counter("rx_disabled"), 1);
}

/// A packet of one descriptor: its length, which of four headers it has, and its command.
fn plain() -> impl Strategy<Value = (usize, u64, u8)> {
    let len = prop_oneof![4 => 60..200usize, 2 => 1000..1500usize, 1 => 20..70usize];
    let header = prop_oneof![6 => Just(0), 1 => 0..4u64];
    let plain = cmd::EOP | cmd::IFCS;
    let command = prop_oneof![3 => Just(plain), 3 => Just(plain | cmd::RS), 1 => Just(cmd::EOP)];
    (len, header, command)
}

#[test]
fn a_full_sink_is_offered_runs_again_once_it_has_room() {
    let mut guest = Guest::pf_with(true);
    let wire = Wire::with(Caps::ALL);
    guest.start_tx(0, 64);
    guest.write(BUFFER, &[2; 64]);
    let packet = data(BUFFER, 60, cmd::EOP | cmd::IFCS, 0, 60);
    for _ in 0..20 {
        wire.set_room(0);
        guest.send(0, &vec![packet; 16]);
        for room in [0, 16] {
            wire.set_room(room);
            guest.run(&wire);
        }
    }
    assert_eq!(wire.in_runs.load(Ordering::Relaxed), 20 * 16);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 40 }))]
    /// Packets of any lengths and headers go the short way as they go through the parser.
    #[test]
    fn mixes_and_batches_are_the_same(
        calls in proptest::collection::vec(
            (proptest::collection::vec(plain(), 1..30), 0..40usize, any::<bool>()),
            1..8,
        ),
        one in any::<bool>(),
    ) {
        let mut guests = [true, false].map(Guest::pf_with);
        let wires = [Wire::with(Caps::ALL), Wire::with(Caps::ALL)];
        for (guest, wire) in guests.iter_mut().zip(&wires) {
            wire.set_room(0);
            guest.start_tx(0, 64);
            // Four headers, and then what tells the packets apart.
            for at in 0..256u64 {
                let header = if one { 0 } else { at % 4 };
                guest.write(BUFFER + at * 0x800, &[header as u8; 14]);
                guest.write(BUFFER + at * 0x800 + 14, &[at as u8; 0x700]);
            }
        }
        let mut n = 0;
        for (packets, room, legacy_too) in &calls {
            let descs: Vec<_> = packets.iter().map(|(len, header, command)| {
                n += 1;
                let at = BUFFER + (4 * (n % 64) + header) * 0x800;
                match *legacy_too && n % 7 == 0 {
                    true => legacy(at, *len, *command),
                    false => data(at, *len, *command, 0, *len),
                }
            }).collect();
            for (guest, wire) in guests.iter_mut().zip(&wires) {
                let used = guest.get(QUEUES.tdt, 0).wrapping_sub(guest.get(QUEUES.tdh, 0)) % 64;
                guest.send(0, &descs[..descs.len().min(63 - used as usize)]);
                wire.set_room(wire.room.load(Ordering::Relaxed) + room);
                guest.run(wire);
            }
        }
        let [a, b] = &guests;
        prop_assert_eq!(wires[0].take(), wires[1].take());
        let in_the_short_way = |wire: &Wire| {
            wire.in_mixes.load(Ordering::Relaxed) + wire.in_runs.load(Ordering::Relaxed)
        };
        prop_assert_eq!(in_the_short_way(&wires[1]), 0);
        for stat in Stat::ALL {
            prop_assert_eq!(a.function.stats.total(stat), b.function.stats.total(stat), "{:?}", stat);
        }
        for name in ["tx_frames", "tx_bytes"] {
            prop_assert_eq!(a.counter(name), b.counter(name));
        }
        prop_assert_eq!(a.get(QUEUES.tdh, 0), b.get(QUEUES.tdh, 0));
        prop_assert_eq!(a.read(TX_RINGS, 64 * 16), b.read(TX_RINGS, 64 * 16));
    }
}
