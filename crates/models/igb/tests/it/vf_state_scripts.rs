//! Running a VF, saving it, loading it elsewhere and going on is the same as never stopping, at any
//! point of any script, where its PF goes on too.

use std::collections::BTreeSet;

use crate::common::MAC;
use crate::vf_common::*;
use hypernic_igb::Grant;
use proptest::prelude::*;

/// What is done to a VF.
#[derive(Clone, Debug)]
enum Op {
    Read(u64, usize),
    Write(u64, Vec<u8>),
    /// A data descriptor at the tail.
    Send {
        queue: u64,
        at: u16,
        len: u16,
        flags: u8,
    },
    Segments(u64),
    Any(u64, u64, u64),
    Offer(u16, usize, u8),
    Give(u64, u32),
    RxOn(u64, u32),
    TxOn(u64),
    Room(usize),
    Budget(usize),
    Pass(u64),
    /// The PF's part.
    Grant(Grant),
    Put(u32),
    Acknowledge,
    PfWrites(u32),
    PfReset(bool),
    Attend,
    Pci(bool, bool),
    Reset,
}

/// Every register, and two places where there is none.
const PLACES: [u64; 62] = [
    0x0000, 0x0008, 0x1048, 0x0800, 0x0804, 0x083c, 0x0c40, 0x0f04, 0x0f0c, 0x0f10, 0x0f14, 0x0f18,
    0x0f34, 0x0f3c, 0x0f40, 0x1520, 0x1524, 0x1528, 0x152c, 0x1530, 0x1580, 0x1680, 0x1684, 0x1688,
    0x1700, 0x1740, 0x2800, 0x2804, 0x2808, 0x280c, 0x2810, 0x2814, 0x2818, 0x2828, 0x2900, 0x2904,
    0x2908, 0x290c, 0x2910, 0x2914, 0x2918, 0x2928, 0x3800, 0x3804, 0x3808, 0x3810, 0x3814, 0x3818,
    0x3828, 0x3838, 0x383c, 0x3900, 0x3904, 0x3908, 0x3910, 0x3914, 0x3918, 0x3928, 0x3938, 0x393c,
    0x2a00, 0x0c44,
];

/// VTEICS to VTEIAM.
const INTERRUPTS: [u64; 5] = [0x1520, 0x1524, 0x1528, 0x152c, 0x1530];

fn place() -> impl Strategy<Value = u64> {
    prop::sample::select(PLACES.to_vec())
}

fn value() -> impl Strategy<Value = u32> {
    let known = [
        0,
        1,
        2,
        4,
        7,
        8,
        0x80,
        0x180,
        0x8180_8180,
        1 << 25,
        1 << 26,
        u32::MAX,
    ];
    prop_oneof![
        4 => prop::sample::select(known.to_vec()),
        2 => (0..32u32).prop_map(|bit| 1 << bit),
        2 => (0..RAM_LEN as u32).prop_map(|at| (RAM as u32 + at) & !0x7f),
        1 => any::<u32>(),
        1 => (0..2000u32).prop_map(|us| us << 2),
    ]
}

fn grant() -> impl Strategy<Value = Grant> {
    let gap = prop::sample::select(vec![0, 50_000, 2_000_000]);
    let tag = prop_oneof![Just(None), any::<u16>().prop_map(Some)];
    let flags = (prop::bool::weighted(0.8), prop::bool::weighted(0.8));
    (flags, 64..9728u16, tag, gap).prop_map(|((enabled, link), max_frame, tag, interrupt_gap)| {
        Grant {
            enabled,
            link,
            max_frame,
            tag,
            interrupt_gap,
        }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let queue = || 0..2u64;
    prop_oneof![
        2 => (place(), prop::sample::select(vec![1, 2, 4, 4, 4, 8])).prop_map(|(at, len)| Op::Read(at, len)),
        3 => (place(), value()).prop_map(|(at, value)| Op::Write(at, value.to_le_bytes().to_vec())),
        3 => (prop::sample::select(INTERRUPTS.to_vec()), 0..8u32)
            .prop_map(|(at, value)| Op::Write(at, value.to_le_bytes().to_vec())),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..9), 0..4u64)
            .prop_map(|(at, bytes, off)| Op::Write(at + off, bytes)),
        3 => (queue(), any::<u16>(), 0..1600u16, any::<u8>())
            .prop_map(|(queue, at, len, flags)| Op::Send { queue, at, len, flags }),
        2 => queue().prop_map(Op::Segments),
        1 => (queue(), any::<u64>(), any::<u64>()).prop_map(|(q, low, high)| Op::Any(q, low, high)),
        3 => (0..1700u16, 1..6usize, any::<u8>()).prop_map(|(len, n, byte)| Op::Offer(len, n, byte)),
        2 => (queue(), 1..RING).prop_map(|(queue, n)| Op::Give(queue, n)),
        1 => (queue(), prop_oneof![
            Just(0x101u32), Just(2 << 25 | 0x101), Just(4 << 25 | 0x101), Just(10 << 25 | 0x201), any::<u32>()
        ]).prop_map(|(queue, srrctl)| Op::RxOn(queue, srrctl)),
        1 => queue().prop_map(Op::TxOn),
        2 => prop_oneof![Just(usize::MAX), 0..6usize].prop_map(Op::Room),
        1 => prop::sample::select(vec![1, 2, 256]).prop_map(Op::Budget),
        3 => prop_oneof![0..100_000u64, 0..5_000_000_000u64].prop_map(Op::Pass),
        1 => grant().prop_map(Op::Grant),
        1 => any::<u32>().prop_map(Op::Put),
        1 => Just(Op::Acknowledge),
        1 => (0..32u32).prop_map(Op::PfWrites),
        1 => any::<bool>().prop_map(Op::PfReset),
        1 => Just(Op::Attend),
        1 => (prop::bool::weighted(0.8), prop::bool::weighted(0.8)).prop_map(|(m, x)| Op::Pci(m, x)),
        1 => Just(Op::Reset),
    ]
}

/// Does it, and returns what the guest or a peer sees of it at once.
fn apply(m: &mut Machine, op: &Op) -> Vec<u8> {
    match *op {
        Op::Read(at, len) => {
            let mut bytes = vec![0; len];
            m.nic.control.read(&m.env, 0, at, &mut bytes);
            return bytes;
        }
        Op::Write(at, ref bytes) => m.nic.control.write(&m.env, 0, at, bytes),
        Op::Send {
            queue,
            at,
            len,
            flags,
        } => {
            let at = TX_DATA + u64::from(at) % 0x2000;
            let cmd = u64::from(flags & 0x4f) << 24 | 1 << 29;
            let high = u64::from(len) | 3 << 20 | cmd | u64::from(len) << 46;
            let tail = m.tx_desc(queue, 0, at, high);
            if flags & 0x10 == 0 {
                m.w(reg::TDT + queue * 0x100, tail);
            }
        }
        Op::Segments(queue) => m.send_tso(queue),
        Op::Any(queue, low, high) => {
            let tail = m.tx_desc(queue, 0, low, high);
            m.w(reg::TDT + queue * 0x100, tail);
        }
        Op::Offer(len, count, byte) => {
            let mut frame = vec![byte; len.into()];
            for (to, from) in frame.iter_mut().zip(MAC) {
                *to = from | byte & 1;
            }
            return vec![m.offer(&frame, count) as u8];
        }
        Op::Give(queue, count) => {
            let tail = m.r(reg::RDT + queue * 0x100) + count;
            for i in 0..u64::from(RING) {
                if byte_of(m, queue, i) & 1 != 0 {
                    m.rx_desc(queue, i);
                }
            }
            m.w(reg::RDT + queue * 0x100, tail % RING);
        }
        Op::RxOn(queue, srrctl) => m.rx_on(queue, srrctl),
        Op::TxOn(queue) => m.tx_on(queue),
        Op::Room(frames) => {
            m.wire.set_room(frames);
            m.turns();
        }
        Op::Budget(frames) => m.budget = frames,
        Op::Pass(nanos) => m.pass(nanos),
        Op::Grant(grant) => m.channel.set_grant(grant),
        Op::Put(word) => {
            let put = m.channel.mailbox(|mailbox| mailbox.put(&[word, 5]));
            return vec![put.into()];
        }
        Op::Acknowledge => m.channel.mailbox(|mailbox| mailbox.acknowledge()),
        Op::PfWrites(value) => m.channel.mailbox(|mailbox| mailbox.pf_write(value)),
        Op::PfReset(active) => m.channel.mailbox(|mailbox| mailbox.set_pf_reset(active)),
        Op::Attend => m.attend(),
        Op::Pci(bus_master, msix) => m.set_pci(bus_master, msix),
        Op::Reset => {
            m.nic.control.reset(&m.env, model::ResetKind::Bus);
            m.set_pci(true, true);
        }
    }
    m.work();
    Vec::new()
}

/// The byte with DD of a receive descriptor.
fn byte_of(m: &Machine, queue: u64, index: u64) -> u8 {
    m.peek(RX + queue * APART + index * 16 + 8, 1)[0]
}

/// Runs the script on two VFs, one of which moves before the steps named.
fn compare(script: &[Op], moves: &BTreeSet<usize>) -> Result<(), String> {
    let mut stays = Machine::up();
    let mut goes = Machine::up();
    for (step, op) in script.iter().enumerate() {
        if moves.contains(&step) {
            // Clocks before and behind the first.
            let now = [1_000_000_000, 77_000_000_000_000, u64::MAX >> 2][step % 3];
            goes = goes.move_to(now);
            stays.stay();
            // What was heard of before is history.
            stays.clerk.heard.lock().expect("clerk").clear();
            goes.clerk.heard.lock().expect("clerk").clear();
        }
        let differs = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
            Err(format!(
                "step {step}, {op:x?}: {what} differs:\n{a:x?}\n{b:x?}"
            ))
        };
        let (a, b) = (apply(&mut stays, op), apply(&mut goes, op));
        if a != b {
            return differs("what is seen", &a, &b);
        }
        let (a, b) = (stays.vectors(), goes.vectors());
        if a != b {
            return differs("messages", &a, &b);
        }
        let (a, b) = (stays.armed(), goes.armed());
        if a != b {
            return differs("timer", &a, &b);
        }
        let (a, b) = (stays.wire.take(), goes.wire.take());
        if a != b {
            return differs("wire", &a, &b);
        }
        let all = |m: &Machine| m.peek(RAM, RAM_LEN as usize);
        let (a, b) = (all(&stays), all(&goes));
        if let Some(at) = (0..a.len()).find(|at| a[*at] != b[*at]) {
            return differs(&format!("memory at {at:x}"), &a[at], &b[at]);
        }
        let (a, b) = (stays.hub(), goes.hub());
        if a != b {
            return differs("channel", &a, &b);
        }
        let (a, b) = (stays.saved(), goes.saved());
        if a != b {
            return differs("state", &a, &b);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn saving_and_loading_anywhere_changes_nothing(
        script in prop::collection::vec(op(), 1..60),
        moves in prop::collection::btree_set(0..60usize, 1..4),
    ) {
        compare(&script, &moves).map_err(TestCaseError::fail)?;
    }
}
