//! A PF's frames by the dozen end up as one by one, whatever its filters say.

use std::sync::atomic::Ordering::Relaxed;

use frame::Batch;
use guest_mem::ReadSlice;
use proptest::prelude::*;
use wire::{Csum, Offload};

use crate::core::irq::Way;
use crate::core::stats::Stat;
use crate::regs as r;
use crate::regs::bits::{rctl, rfctl, rxcsum};
use crate::testing::{APART, Guest, MEMORY, RX_RINGS, packet, packet_buffer};

const RING: u32 = 16;
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SECOND: [u8; 6] = [2, 0, 0, 0, 0, 7];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];
/// That of pause frames.
const CONTROL: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 1];
/// Queues that run. Filters and the table of RSS name others too.
const RUNNING: [u32; 6] = [0, 1, 2, 3, 8, 9];
/// SRRCTL: one buffer of 2048 bytes for the whole frame.
const WHOLE: u32 = 1 << 25 | 2;

#[derive(Clone, Debug)]
struct Come {
    kind: u8,
    flow: u16,
    len: usize,
    dst: [u8; 6],
    /// Vouched for, a tag, a sum to be computed; most often nothing.
    notes: u8,
    /// A sum is wrong, or a pause is an end of one.
    spoilt: bool,
}

impl Come {
    fn bytes(&self) -> Vec<u8> {
        let v4 = |tcp| {
            let ([src, dst], [sport, dport]) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [7, 80]);
            packet::v4_with(src, dst, tcp, sport + self.flow, dport, self.len)
        };
        let plain = |kind: [u8; 2]| {
            let mut bytes = vec![0; self.len.max(18)];
            bytes[12..14].copy_from_slice(&kind);
            bytes
        };
        let mut bytes = match self.kind {
            0 => plain([0x88, 0xb5]),
            1 => v4(true),
            2 => v4(false),
            3 => packet::v6_tcp(1.into(), 2.into(), self.flow, 8),
            4 => {
                // Fragments, the first ones among them.
                let mut bytes = v4(false);
                bytes[20..22].copy_from_slice(&[0x20, self.flow as u8 & 1]);
                bytes
            }
            5 => {
                let mut bytes = v4(true);
                bytes.splice(12..12, [0x81, 0, 0xe0, self.flow as u8]);
                bytes
            }
            6 => {
                let mut bytes = plain([0x88, 8]);
                bytes[14..18].copy_from_slice(&[0, 1, 0, u8::from(self.spoilt)]);
                bytes
            }
            7 => {
                // A message of IEEE 1588.
                let mut bytes = plain([0x88, 0xf7]);
                bytes.resize(60, 2);
                bytes
            }
            8 => {
                // Flags: SYN.
                let mut bytes = v4(true);
                bytes[47] = 2;
                bytes
            }
            _ => return vec![1; self.len % 14],
        };
        bytes[..6].copy_from_slice(&self.dst);
        if self.spoilt && (1..6).contains(&self.kind) {
            let last = bytes.len() - 1;
            bytes[last] ^= 0x55;
        }
        bytes
    }

    fn notes(&self) -> Offload {
        let mut notes = Offload::NONE;
        match self.notes {
            1 => notes.csum_valid = true,
            2 => notes.vlan = Some(0xe123),
            3 => {
                let (start, offset) = match self.kind {
                    1 => (34, 16),
                    2 => (34, 6),
                    3 => (54, 16),
                    // Wherever, in the frame or not.
                    _ => (self.len as u16, self.flow * 6),
                };
                notes.csum = Some(Csum { start, offset });
            }
            _ => {}
        }
        notes
    }
}

fn come() -> impl Strategy<Value = Come> {
    let kind = prop_oneof![6 => 0..3u8, 2 => 0..10u8];
    let dst = prop_oneof![
        6 => Just(STATION),
        2 => Just(SECOND),
        1 => Just([2, 0, 0, 0, 0, 9]),
        1 => Just([0xff; 6]),
        1 => Just(GROUP),
        1 => Just(CONTROL),
    ];
    let len = prop_oneof![4 => 0..120usize, 2 => 1000..1540usize];
    let notes = prop_oneof![5 => Just(0), 1 => Just(3u8), 1 => 0..4u8];
    let spoilt = proptest::bool::weighted(0.2);
    (kind, 0..4u16, len, dst, notes, spoilt).prop_map(|(kind, flow, len, dst, notes, spoilt)| {
        Come {
            kind,
            flow,
            len,
            dst,
            notes,
            spoilt,
        }
    })
}

/// Frames as they come: some alike in a row.
fn coming() -> impl Strategy<Value = Vec<Come>> {
    let runs = proptest::collection::vec((come(), 1..12usize), 0..8);
    runs.prop_map(|runs| {
        let each = runs.into_iter();
        each.flat_map(|(come, n)| std::iter::repeat_n(come, n))
            .collect()
    })
}

/// Registers that say what becomes of frames: id, element, value.
type Words = Vec<(regs::Id, u32, u32)>;

/// Now and then this value, and 0 otherwise.
fn seldom(value: impl Strategy<Value = u32>) -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0), 1 => value]
}

fn words() -> impl Strategy<Value = (u32, Words)> {
    const OPEN: u32 = rctl::EN | rctl::SECRC;
    let some = rctl::UPE | rctl::MPE | rctl::BAM | rctl::VFE | rctl::SBP | rctl::LPE;
    let rctl = any::<u32>().prop_map(move |bits| OPEN | bits & (some | 3 << 22));
    let strips = proptest::bool::weighted(0.9);
    // By RSS, by the default queue, or by pools behind those of VFs.
    let fields = any::<u32>().prop_map(|bits| bits & 0x01ff_0000);
    let mode = prop_oneof![
        4 => fields.clone().prop_map(|fields| (0, 2 | fields)),
        2 => (0..8u32).prop_map(|queue| (0, queue << 3)),
        2 => (1..3u32, fields).prop_map(|(vfs, fields)| (vfs, 5 | fields)),
        1 => (1..3u32).prop_map(|vfs| (vfs, 3)),
    ];
    let classified = rxcsum::IPOFL | rxcsum::TUOFL;
    let rxcsum = prop_oneof![
        6 => Just(classified | rxcsum::PCSD),
        2 => Just(classified),
        1 => any::<u32>().prop_map(|bits| bits & 0x3b00),
    ];
    let filters = (
        // Ethernet types: 88b5h and IPv4, to a queue or not, at once or not.
        seldom(any::<u32>().prop_map(|bits| 1 << 26 | bits & 0xa007_0000 | 0x88b5)),
        seldom(any::<u32>().prop_map(|bits| 1 << 26 | bits & 0xa007_0000 | 0x0800)),
        // FTQF: any packet of a protocol, to a queue; IMIR: at once, with any port.
        seldom(any::<u32>().prop_map(|bits| 0xe000_8000 | bits & 0x000f_0100 | 6)),
        seldom(any::<u32>().prop_map(|bits| 1 << 17 | bits & 1 << 16)),
        seldom(0..32u32),
        seldom(8..16u32),
    );
    let rest = (
        seldom(Just(rfctl::IPV6_DIS)),
        // CTRL.RFCE; TSYNCRXCTL.
        prop_oneof![Just(0), Just(1u32 << 27)],
        prop_oneof![7 => Just(0), 1 => Just(1u32 << 4)],
        any::<u32>(),
    );
    (rctl, strips, mode, rxcsum, filters, rest).prop_map(
        |(rctl, strips, (vfs, mrqc), rxcsum, filters, (rfctl, rfce, tsync, table))| {
            let rctl = if strips { rctl } else { rctl & !rctl::SECRC };
            let (arp, ip, ftqf, imir, syn, hurried) = filters;
            let mut words: Words = vec![
                (r::RCTL, 0, rctl),
                (r::MRQC, 0, mrqc),
                (r::RXCSUM, 0, rxcsum),
                (r::ETQF, 2, arp),
                (r::ETQF, 5, ip),
                (r::FTQF, 1, ftqf),
                (r::IMIR, 1, imir),
                (r::IMIREXT, 1, 1 << 12 | 1 << 19),
                (r::SYNQF, 0, syn),
                (r::IMIRVP, 0, hurried),
                (r::RFCTL, 0, rfctl),
                (r::CTRL, 0, 1 << 30 | rfce),
                (r::TSYNCRXCTL, 0, tsync),
                (r::VT_CTL, 0, 1 << 30),
                // Pools 1 and 2 have an address each.
                (r::RAL, 0, 0x0000_0002),
                (r::RAH, 0, 0x8000_0100 | 1 << 19),
                (r::RAL, 1, 0x0000_0002),
                (r::RAH, 1, 0x8000_0700 | 1 << 20),
            ];
            // The group's bit, sometimes.
            words.push((r::MTA, 0, table << 16));
            for i in 0..10 {
                words.push((r::RSSRK, i, table.rotate_left(3 * i) ^ 0x6d5a_56da));
            }
            for i in 0..32 {
                words.push((r::RETA, i, table.rotate_right(i) & 0x0303_0303));
            }
            for pool in 0..8 {
                // FCS and tags taken out, spread over both queues.
                words.push((r::VMOLR, pool, 0xc102_2600));
            }
            (vfs, words)
        },
    )
}

/// All that a guest or its operator can see.
fn visible(guest: &Guest) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    let function = &guest.function;
    function.counters.visit(&mut |n, v| {
        // How far descriptors were read ahead is each way's own.
        if !n.ends_with("_desc_fetched") {
            all.push((n.to_owned(), v));
        }
    });
    for stat in Stat::ALL {
        all.push((format!("{stat:?}"), function.stats.total(stat)));
    }
    for (at, queue) in (0u32..).zip(&function.queues) {
        let c = &queue.counts;
        for count in [&c.rx_packets, &c.rx_octets, &c.rx_multicast, &c.rx_dropped] {
            all.push((format!("of queue {at}"), count.load(Relaxed)));
        }
        all.push((format!("head {at}"), guest.get(r::RDH, at).into()));
    }
    let mut irq = function.irq.lock();
    // Which vectors have spoken: at once, or as their gap lets them.
    let sent = irq.save(guest.env.clock.now()).sent;
    all.push(("sent".to_owned(), sent.into()));
    all.push(("ICR".to_owned(), irq.read_icr(&guest.env).into()));
    all.push(("EICR".to_owned(), irq.read_eicr(&guest.env).into()));
    let until = function.flow.silence.until();
    all.push(("silent".to_owned(), until.unwrap_or(0)));
    all
}

fn start(fast_path: bool, vfs: u32, words: &Words, srrctl: u32) -> Guest {
    let guest = Guest::pf_with(fast_path);
    guest.function.vfs.store(vfs, Relaxed);
    for (id, element, value) in words {
        guest.function.file.set_at(*id, *element, *value);
    }
    for queue in RUNNING {
        guest.start_rx(queue, RING, srrctl);
    }
    let mut irq = guest.function.irq.lock();
    // GPIE: a message for each vector, and a read of ICR clears it. Queue n at vector n, which keeps
    // a gap.
    irq.set_way(&guest.env, Way::Msix);
    irq.set_gpie(&guest.env, 1 << 4 | 1);
    irq.set_eims(&guest.env, 0xffff);
    for i in 0..8 {
        irq.set_ivar(i, 0x0080_0080 | i | (i + 8) << 16);
    }
    for vector in 0..16 {
        irq.set_eitr(&guest.env, vector, 0x7ffc);
    }
    drop(irq);
    guest
}

proptest! {
    // Each has two guests with all their memory.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 2,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_pfs_frames_end_up_as_one_by_one(
        (vfs, words) in words(),
        steps in proptest::collection::vec((coming(), 0..RING), 1..5),
        srrctl in prop_oneof![
            6 => Just(WHOLE),
            1 => Just(WHOLE | 1 << 31),
            1 => Just(2),
            1 => Just(5 << 25 | 2 << 8 | 2),
        ],
        odd in proptest::option::weighted(0.2, (0..RING, prop_oneof![Just(0), Just(MEMORY - 70)])),
        apart: bool,
    ) {
        let guests = [true, false].map(|fast_path| start(fast_path, vfs, &words, srrctl));
        for (coming, tail) in &steps {
            let bytes: Vec<_> = coming.iter().map(Come::bytes).collect();
            let batch_of = |range: std::ops::Range<usize>| {
                let mut batch = Batch::new();
                for (come, bytes) in coming[range.clone()].iter().zip(&bytes[range]) {
                    batch.push_slice(ReadSlice::from_bytes(bytes));
                    batch.end(come.notes());
                }
                batch
            };
            for guest in &guests {
                for queue in RUNNING {
                    guest.set(r::RDT, queue, *tail);
                    if let Some((at, addr)) = odd {
                        let at = RX_RINGS + APART * u64::from(queue) + u64::from(at) * 16;
                        guest.write(at, &u64::to_le_bytes(addr));
                    }
                }
            }
            let dealt = guests[0].receive_batch(&batch_of(0..coming.len()));
            let general = if apart {
                let one = |i: &usize| guests[1].receive_batch(&batch_of(*i..i + 1)) == 1;
                (0..coming.len()).take_while(one).count()
            } else {
                guests[1].receive_batch(&batch_of(0..coming.len()))
            };
            prop_assert_eq!(dealt, general);
            let [a, b] = &guests;
            for (a, b) in visible(a).into_iter().zip(visible(b)) {
                prop_assert_eq!(a, b);
            }
            for queue in RUNNING {
                let ring = RX_RINGS + APART * u64::from(queue);
                let read = |guest: &Guest| guest.read(ring, RING as usize * 16);
                prop_assert_eq!(read(a), read(b), "ring {}", queue);
                let buffers = |guest: &Guest| guest.read(packet_buffer(queue, 0), RING as usize * 0x1000);
                prop_assert!(buffers(a) == buffers(b), "buffers of {}", queue);
            }
            // As the driver gives them back.
            for guest in &guests {
                for (queue, i) in RUNNING.into_iter().flat_map(|q| (0..RING).map(move |i| (q, i))) {
                    let at = RX_RINGS + APART * u64::from(queue) + u64::from(i) * 16;
                    guest.write(at, &packet_buffer(queue, i).to_le_bytes());
                    guest.write(at + 8, &[0; 8]);
                }
            }
        }
    }
}
