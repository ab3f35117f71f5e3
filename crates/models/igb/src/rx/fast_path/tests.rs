//! The fast paths do what the general ways do: the same rings, frames and registers through both.

use frame::{Batch, Caps};
use guest_mem::ReadSlice;
use proptest::prelude::*;
use wire::{Csum, Offload};

use crate::regs as r;
use crate::regs::QUEUES;
use crate::regs::settings::Settings;
use crate::testing::{APART, Guest, MEMORY, RX_RINGS, TX_RINGS, Wire, packet, packet_buffer};
use crate::tx::desc::cmd;

const RING: u32 = 16;
const WHOLE: u32 = 1 << 25;

/// Two guests alike, with fast paths and without.
fn both(settings: Settings) -> [Guest; 2] {
    [true, false].map(|fast_path| Guest::vf_with(settings, fast_path))
}

const OPEN: Settings = Settings {
    rx_on: true,
    tx_on: true,
    ..Settings::VF
};

/// All counters, statistics and heads of a guest. How far descriptors were read ahead is each way's own.
fn counted(guest: &Guest) -> Vec<(&'static str, u64)> {
    let mut all = Vec::new();
    guest.function.counters.visit(&mut |n, v| all.push((n, v)));
    all.retain(|(name, _)| !name.ends_with("_desc_fetched"));
    for (name, id) in [("rdh", QUEUES.rdh), ("tdh", QUEUES.tdh)] {
        all.push((name, guest.get(id, 0).into()));
    }
    let own = &guest.function.queues[0].counts;
    for count in [
        &own.rx_packets,
        &own.rx_octets,
        &own.rx_multicast,
        &own.tx_packets,
        &own.tx_octets,
    ] {
        let value = count.load(std::sync::atomic::Ordering::Relaxed);
        all.push(("of the queue", value));
    }
    all
}

#[derive(Clone, Debug)]
struct Arriving {
    kind: u8,
    len: usize,
    dst: [u8; 6],
    /// Nothing, vouched for, a tag, a sum to be computed.
    notes: u8,
    byte: u8,
}

impl Arriving {
    fn bytes(&self) -> Vec<u8> {
        let v4 = |tcp| packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], tcp, 7, 8, self.len);
        let mut bytes = match self.kind {
            0..4 => vec![self.byte; self.len.max(14)],
            4 => v4(true),
            5 => v4(false),
            6 => packet::v6_tcp(1.into(), 2.into(), 7, 8),
            _ => return vec![self.byte; self.len % 14],
        };
        let ether_type: Option<[u8; 2]> = match self.kind {
            0 | 1 => Some([0x88, 0xb5]),
            2 => Some([0x81, 0]),
            3 => Some([8, 0]),
            _ => None,
        };
        bytes[..6].copy_from_slice(&self.dst);
        if let Some(kind) = ether_type {
            bytes[12..14].copy_from_slice(&kind);
        } else if self.byte & 1 == 1 {
            // A sum that is wrong.
            let last = bytes.len() - 1;
            bytes[last] ^= 0x55;
        }
        bytes
    }

    fn notes(&self) -> Offload {
        let mut notes = Offload::NONE;
        match self.notes {
            1 => notes.csum_valid = true,
            2 => notes.vlan = Some(0x123),
            3 => {
                let (start, offset) = match self.kind {
                    4 => (34, 16),
                    5 => (34, 6),
                    6 => (54, 16),
                    // Wherever, in the frame or not.
                    _ => (self.byte.into(), u16::from(self.dst[0])),
                };
                notes.csum = Some(Csum { start, offset });
                notes.csum_valid = self.byte & 2 != 0;
            }
            _ => {}
        }
        notes
    }
}

fn arriving() -> impl Strategy<Value = Arriving> {
    let dst = prop_oneof![
        4 => Just([2, 0, 0, 0, 0, 1]),
        1 => Just([0xff; 6]),
        1 => Just([1, 0, 0x5e, 0, 0, 1]),
    ];
    let len = prop_oneof![4 => 0..120usize, 2 => 1000..1540usize, 1 => 1470..1530usize];
    let notes = prop_oneof![5 => Just(0), 1 => Just(3u8), 1 => 0..4u8];
    let kind = prop_oneof![4 => Just(0), 2 => 4..6u8, 1 => 0..8u8];
    (kind, len, dst, notes, any::<u8>()).prop_map(|(kind, len, dst, notes, byte)| Arriving {
        kind,
        len,
        dst,
        notes,
        byte,
    })
}

#[derive(Clone, Debug)]
struct Given {
    frames: Vec<Arriving>,
    /// Buffers given back before.
    tail: u32,
    /// A descriptor, and what its address becomes: null, out of memory, at its end.
    odd: Option<(u32, u64)>,
}

fn given() -> impl Strategy<Value = Given> {
    let odd = (
        0..RING,
        prop_oneof![Just(0), Just(MEMORY + 5), Just(MEMORY - 70)],
    );
    (
        proptest::collection::vec(arriving(), 0..50),
        0..RING,
        proptest::option::weighted(0.3, odd),
    )
        .prop_map(|(frames, tail, odd)| Given { frames, tail, odd })
}

#[derive(Clone, Debug)]
struct Sent {
    descs: Vec<(u64, u64)>,
    tail: u32,
    room: usize,
    budget: usize,
}

fn desc() -> impl Strategy<Value = (u64, u64)> {
    const BUFFERS: u64 = 0x100_0000;
    let addr = prop_oneof![
        12 => (0..0x10_0000u64).prop_map(|at| BUFFERS + at),
        1 => Just(0),
        1 => Just(MEMORY - 70),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![6 => 60..200u64, 2 => 1000..1600u64, 1 => 0..70u64, 1 => any::<u64>()];
    let kind = prop_oneof![3 => Just(None), 6 => Just(Some(3u8)), 1 => (0..16u8).prop_map(Some)];
    let plain = prop_oneof![
        Just(cmd::EOP | cmd::IFCS),
        Just(cmd::EOP | cmd::IFCS | cmd::RS)
    ];
    let command = prop_oneof![6 => plain, 2 => any::<u8>()];
    let mac = prop_oneof![5 => Just(0u8), 1 => 0..16u8];
    let last = prop_oneof![6 => Just(0u32), 1 => any::<u32>()];
    (addr, len, kind, command, mac, last).prop_map(|(addr, len, kind, command, mac, last)| {
        let (kind, extended) = match kind {
            Some(kind) => (kind, cmd::DEXT),
            None => (0, 0),
        };
        let command = command & !cmd::DEXT | extended;
        let low = len & 0xffff | u64::from(mac) << 16 | u64::from(kind) << 20;
        let high = u64::from(last) << 32;
        (addr, low | u64::from(command) << 24 | high)
    })
}

/// Descriptors that are alike, most of whose frames begin with the same bytes: those of the buffers repeat.
fn alike() -> impl Strategy<Value = Vec<(u64, u64)>> {
    (desc(), 0..2u64).prop_map(|((addr, rest), shift)| {
        let each = |i: u64| {
            let far = i * (7 * 256) + if i % 11 == 10 { shift * 7 } else { 0 };
            let rs = if i.is_multiple_of(3) {
                u64::from(cmd::RS) << 24
            } else {
                0
            };
            (
                if addr == 0 { 0 } else { addr.wrapping_add(far) },
                rest | rs,
            )
        };
        (0..u64::from(RING)).map(each).collect()
    })
}

fn sent() -> impl Strategy<Value = Sent> {
    let room = prop_oneof![3 => Just(1000), 1 => 0..10usize];
    let budget = prop_oneof![3 => Just(256usize), 1 => 1..10usize];
    let descs = proptest::collection::vec(desc(), RING as usize);
    let descs = prop_oneof![2 => descs, 1 => alike()];
    (descs, 0..RING, room, budget).prop_map(|(descs, tail, room, budget)| Sent {
        descs,
        tail,
        room,
        budget,
    })
}

proptest! {
    // Each has two guests with all their memory.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        ..ProptestConfig::default()
    })]

    #[test]
    fn frames_end_up_as_without_the_fast_path(
        steps in proptest::collection::vec(given(), 1..8),
        srrctl in prop_oneof![6 => Just(WHOLE | 2), 1 => Just(WHOLE | 1), 1 => Just(2), 1 => Just(5 << 25 | 2 << 8 | 2)],
        strip in any::<bool>(),
        drop in any::<bool>(),
        rxcsum in prop_oneof![1 => Just(OPEN.rxcsum), 1 => any::<u32>().prop_map(|bits| bits & 0x3b00)],
    ) {
        let guests = both(Settings { strip_crc: strip || srrctl != WHOLE | 2, rxcsum, ..OPEN });
        let drop = u32::from(drop) << 31;
        guests.iter().for_each(|guest| guest.start_rx(0, RING, srrctl | drop));
        for step in &steps {
            let bytes: Vec<_> = step.frames.iter().map(Arriving::bytes).collect();
            let mut batch = Batch::new();
            for (frame, bytes) in step.frames.iter().zip(&bytes) {
                batch.push_slice(ReadSlice::from_bytes(bytes));
                batch.end(frame.notes());
            }
            let dealt = [0, 1].map(|i| {
                let guest = &guests[i];
                guest.set(QUEUES.rdt, 0, step.tail);
                if let Some((at, addr)) = step.odd {
                    guest.write(RX_RINGS + u64::from(at) * 16, &addr.to_le_bytes());
                }
                guest.receive_grouped(&batch, i == 0)
            });
            prop_assert_eq!(dealt[0], dealt[1]);
            let [a, b] = &guests;
            prop_assert_eq!(counted(a), counted(b));
            let ring = |guest: &Guest| guest.read(RX_RINGS, RING as usize * 16);
            prop_assert_eq!(ring(a), ring(b));
            for i in 0..RING {
                let buffer = |guest: &Guest| guest.read(packet_buffer(0, i), 0x1000);
                prop_assert_eq!(buffer(a), buffer(b));
            }
            // As the driver gives them back.
            for guest in &guests {
                for i in 0..RING {
                    let at = RX_RINGS + u64::from(i) * 16;
                    guest.write(at, &packet_buffer(0, i).to_le_bytes());
                    guest.write(at + 8, &[0; 8]);
                }
            }
        }
    }

    #[test]
    fn packets_leave_as_without_the_fast_path(
        steps in proptest::collection::vec(sent(), 1..8),
        tag in proptest::option::weighted(0.2, any::<u16>()),
        pad in any::<bool>(),
    ) {
        let mut guests = both(Settings { tag, pad, ..OPEN });
        let wires = [0, 1].map(|_| Wire { caps: Caps::ALL, ..Wire::default() });
        let noise: Vec<u8> = (0..0x20_0000u32).map(|i| (i / 7) as u8).collect();
        for guest in &guests {
            guest.write(0x100_0000, &noise);
            guest.start_tx(0, RING);
        }
        for step in &steps {
            let mut ends = Vec::new();
            for (guest, wire) in guests.iter_mut().zip(&wires) {
                for (i, (low, high)) in step.descs.iter().enumerate() {
                    let at = TX_RINGS + i as u64 * 16;
                    guest.write(at, &low.to_le_bytes());
                    guest.write(at + 8, &high.to_le_bytes());
                }
                wire.set_room(step.room);
                guest.set(QUEUES.tdt, 0, step.tail);
                let end = guest.run_some(wire, step.budget);
                ends.push((format!("{end:?}"), wire.take(), counted(guest)));
                ends.last_mut().unwrap().2.push(("room", wire.room.load(std::sync::atomic::Ordering::Relaxed) as u64));
            }
            prop_assert_eq!(&ends[0], &ends[1]);
            let [a, b] = &guests;
            let ring = |guest: &Guest| guest.read(TX_RINGS, APART as usize);
            prop_assert_eq!(ring(a), ring(b));
            prop_assert_eq!(a.get(r::TDH, 0), b.get(r::TDH, 0));
        }
    }
}
