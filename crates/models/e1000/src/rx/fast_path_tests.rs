//! The fast path against the general way, and leases against the lock: the same frames and registers
//! leave the same memory, registers, counters and interrupts.

use std::sync::Arc;

use intel::Ring;
use proptest::prelude::*;

use frame::{Batch, Run, Wake};
use guest_mem::ReadSlice;
use model::PciState;
use wire::{Csum, Offload};

use self::common::*;
use crate::core::chip::Chip;
use crate::rx::call::Rx;
use crate::rx::write_back::Filling;
use crate::{Config, rx};
use model_testkit::{CountedWake, Finished, in_groups, packet};

mod cuts;

#[path = "../../tests/it/common.rs"]
#[allow(dead_code, unused_imports, reason = "the tests outside use the rest")]
mod common;

/// How frames take their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    General,
    FastPath,
    Leases,
    /// Frames that are alike are offered as runs first.
    Runs,
    /// The general way, offered the same frames at once.
    Grouped,
    /// Large frames are offered as cuts, or as batches of their segments.
    Cuts,
    Segments,
}

/// What the guest, its host or the switch changes between two batches.
#[derive(Clone, Debug)]
enum Change {
    Register(u64, u32),
    Link(bool),
    BusMaster(bool),
    Reset(bool),
    /// The state in which it began.
    Load,
}

fn change() -> impl Strategy<Value = Change> {
    let bits = prop::sample::select(vec![2u32, 0x1a, 0x801a, 0x0400_8002, 0x0404_801a, 0xc2, 0]);
    let register = prop_oneof![
        3 => bits.prop_map(|rctl| (reg::RCTL, rctl)),
        1 => prop::sample::select(vec![0u32, 0x100, 0x200, 0x300]).prop_map(|v| (reg::RXCSUM, v)),
        1 => prop::sample::select(vec![0x40u32, 0x4000_0040, 0x0800_0040, 0]).prop_map(|v| (reg::CTRL, v)),
        1 => prop::sample::select(vec![0x8100u32, 0x88b5, 0x800]).prop_map(|v| (reg::VET, v)),
        1 => prop::sample::select(vec![0x8808u32, 0x88b5]).prop_map(|v| (0x30, v)),
        1 => any::<bool>().prop_map(|on| (reg::RAL + 4, u32::from(on) << 31 | 0x5634)),
        1 => any::<u32>().prop_map(|low| (reg::RAL, low)),
        1 => prop::sample::select(vec![0u32, 64, 128]).prop_map(|v| (0x2c00, v)),
        1 => prop::sample::select(vec![0u32, 128, 256, 1024]).prop_map(|v| (reg::RDLEN, v)),
        1 => (0u32..70).prop_map(|v| (reg::RDH, v)),
        1 => prop::sample::select(vec![RX_RING as u32, RX_RING as u32 + 256]).prop_map(|v| (reg::RDBAL, v)),
        1 => any::<u32>().prop_map(|bits| (0x5200, bits)),
    ];
    prop_oneof![
        8 => register.prop_map(|(at, value)| Change::Register(at, value)),
        1 => any::<bool>().prop_map(Change::Link),
        1 => any::<bool>().prop_map(Change::BusMaster),
        1 => any::<bool>().prop_map(Change::Reset),
        3 => Just(Change::Load),
    ]
}

/// Batches with changes between them. Most are the same frames again, so that what was worked out for them still holds,
/// or does not.
fn changing() -> impl Strategy<Value = Steps> {
    let usual = (0u8..6, 0u8..8, 1u8..70).prop_map(|(dst, kind, n)| {
        let number = |number| Sent {
            dst,
            len: 60,
            kind,
            notes: 9,
            seed: 1,
            number,
            mss: 0,
        };
        (0..n).map(number).collect::<Vec<_>>()
    });
    let frames = prop_oneof![1 => batch(), 4 => usual];
    let step = (frames, any::<u8>(), prop::option::of(change()), 0u8..4);
    prop::collection::vec(step, 1..16).prop_map(repeated)
}

type Steps = Vec<(Vec<Sent>, u8, Option<Change>)>;

/// Most steps have the frames of the one before.
fn repeated(steps: Vec<(Vec<Sent>, u8, Option<Change>, u8)>) -> Steps {
    let mut last = Vec::new();
    let mut all = Vec::new();
    for (frames, give, change, again) in steps {
        if again == 0 || last.is_empty() {
            last = frames;
        }
        all.push((last.clone(), give, change));
    }
    all
}

fn apply(m: &mut Machine, change: &Change, begun: &[u8]) {
    match *change {
        Change::Register(at, value) => m.w(at, value),
        Change::Link(up) => m.nic.control.set_link(&m.env, up),
        Change::BusMaster(bus_master) => m.set_pci(PciState {
            bus_master,
            ..PciState::default()
        }),
        Change::Reset(all) => {
            let ctrl = m.r(reg::CTRL);
            match all {
                true => m.nic.control.reset(&m.env, model::ResetKind::Bus),
                false => m.w(reg::CTRL, ctrl | 1 << 26),
            }
        }
        Change::Load => m.nic.control.load(&m.env, begun).expect("its own state"),
    }
    m.work();
}

#[derive(Clone, Debug)]
struct Sent {
    dst: u8,
    len: usize,
    kind: u8,
    notes: u8,
    seed: u8,
    /// Of frames alike in all else.
    number: u8,
    /// Bytes of a segment of a large frame; 0: it is none.
    mss: u16,
}

#[derive(Clone, Debug)]
struct Setting {
    rctl: u32,
    ctrl: u32,
    rxcsum: u32,
    rsrpd: u32,
    rdtr: u32,
    pba: u32,
    ring: u32,
    /// Descriptors with a null or an unreachable buffer, or one that crosses regions.
    odd: Vec<(u8, u8)>,
    true_fcs: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let len = prop_oneof![
        6 => Just(60usize),
        3 => 14usize..70,
        2 => 60usize..300,
        2 => 1400usize..1530,
        1 => 0usize..14,
        1 => 2000usize..5000,
    ];
    (0u8..6, len, 0u8..8, 0u8..10, any::<u8>()).prop_map(|(dst, len, kind, notes, seed)| Sent {
        dst,
        len,
        kind,
        notes,
        seed,
        number: 0,
        mss: 0,
    })
}

/// Frames of all kinds, or many of one.
fn batch() -> impl Strategy<Value = Vec<Sent>> {
    let alike = (sent(), 0u8..80).prop_map(|(one, n)| {
        let number = |number| Sent {
            number,
            ..one.clone()
        };
        (0..n).map(number).collect()
    });
    prop_oneof![3 => prop::collection::vec(sent(), 0..40), 1 => alike]
}

fn setting() -> impl Strategy<Value = Setting> {
    let flags = prop::sample::subsequence(
        vec![
            1u32 << 2,
            1 << 3,
            1 << 4,
            1 << 5,
            1 << 15,
            1 << 18,
            1 << 22,
            1 << 23,
            1 << 26,
        ],
        0..=9,
    );
    let size = prop::sample::select(vec![0u32, 0, 0, 1, 2, 3, 1 << 9 | 3]);
    let rctl = (flags, size, 0u32..3)
        .prop_map(|(flags, size, low)| flags.iter().sum::<u32>() | size << 16 | low << 8);
    let ctrl = prop::sample::select(vec![0u32, 0, 1 << 27, 1 << 30, 1 << 27 | 1 << 30]);
    let rxcsum = prop::sample::select(vec![0u32, 0, 0x100, 0x200, 0x300, 0x300, 0x30e]);
    (
        rctl,
        ctrl,
        rxcsum,
        prop::sample::select(vec![0u32, 0, 64, 128]),
        prop::sample::select(vec![0u32, 0, 8]),
        prop::sample::select(vec![0u32, 4, 48]),
        prop::sample::select(vec![8u32, 16, 64, 128]),
        prop::collection::vec((any::<u8>(), 0u8..3), 0..3),
        any::<bool>(),
    )
        .prop_map(
            |(rctl, ctrl, rxcsum, rsrpd, rdtr, pba, ring, odd, true_fcs)| Setting {
                rctl,
                ctrl,
                rxcsum,
                rsrpd,
                rdtr,
                pba,
                ring,
                odd,
                true_fcs,
            },
        )
}

fn dst(sent: &Sent) -> [u8; 6] {
    match sent.dst {
        0 => PEER,
        1 => [0xff; 6],
        2 => [1, 0, 0x5e, 0, 0, sent.seed & 1],
        3 => [1, 0x80, 0xc2, 0, 0, 1],
        _ => MAC,
    }
}

/// A large frame, with a tag beside it now and then.
fn large(sent: &Sent) -> (Vec<u8>, Offload) {
    let options = sent.seed % 11;
    let v6 = sent.kind & 1 == 0;
    let (bytes, notes) = packet::large(dst(sent), v6, options, sent.len, sent.mss);
    let vlan = (sent.notes == 0).then_some(5);
    (bytes, Offload { vlan, ..notes })
}

fn bytes(sent: &Sent) -> Vec<u8> {
    if sent.mss > 0 {
        return large(sent).0;
    }
    let mut bytes: Vec<u8> = (0..sent.len)
        .map(|i| (i as u8).wrapping_mul(sent.seed | 1))
        .collect();
    let dst = dst(sent);
    let kind: &[u8] = match sent.kind {
        0 => &[0x81, 0, 0, 5, 8, 0],
        1 => &[0x88, 8, 0, 1, 0, 9],
        // IPv4 with a right or a wrong sum, UDP or TCP, long enough or not.
        2..=4 => &[
            8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x26, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1,
        ],
        5 => &[8, 0, 0x45, 0, 0, 46, 0, 0, 0x20, 0, 64, 6, 1, 2],
        _ => &[0x88, 0xb5],
    };
    for (at, part) in [(0, &dst[..]), (12, kind)] {
        for (to, from) in bytes.iter_mut().skip(at).zip(part) {
            *to = *from;
        }
    }
    // Behind all headers.
    if let Some(last) = bytes[sent.len.min(54)..].last_mut() {
        *last ^= sent.number;
    }
    bytes
}

fn notes(sent: &Sent) -> Offload {
    match sent.notes {
        _ if sent.mss > 0 => large(sent).1,
        0 => Offload {
            vlan: Some(u16::from(sent.seed)),
            ..Offload::NONE
        },
        1 => Offload {
            csum_valid: true,
            ..Offload::NONE
        },
        2 | 3 => Offload {
            csum: Some(match sent.seed % 3 {
                // Wherever, in the frame or not.
                0 => Csum {
                    start: u16::from(sent.seed),
                    offset: u16::from(sent.dst) * 5,
                },
                _ => Csum {
                    start: 34,
                    offset: 6,
                },
            }),
            csum_valid: sent.seed & 1 == 0,
            ..Offload::NONE
        },
        _ => Offload::NONE,
    }
}

/// Everything that can be told of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    dealt: Vec<usize>,
    memory: Vec<u8>,
    registers: Vec<u32>,
    counters: Vec<(&'static str, u64)>,
    interrupts: Vec<(bool, u64, Option<u64>)>,
    /// Segments that came in cuts.
    in_cuts: u64,
}

fn machine(setting: &Setting, way: Way) -> (Machine, Arc<Chip>) {
    let mut config = Config::new(MAC);
    config.true_fcs = setting.true_fcs;
    let mut chip = Chip::new(&config);
    chip.fast_path = !matches!(way, Way::General | Way::Grouped | Way::Segments);
    let chip = Arc::new(chip);
    let nic = crate::with(&config, Arc::clone(&chip));
    (Machine::around(nic, Wire::default()), chip)
}

/// Offers a batch in one of the ways.
fn offer(
    (m, chip): (&Machine, &Chip),
    finished: &mut Finished,
    batch: &Batch<'_>,
    way: Way,
) -> Vec<usize> {
    let mut room = Vec::new();
    let picks = batch.all_picks(&mut room);
    let excess = match picks.len() % 2 {
        0 => rx::Excess::Left,
        _ => rx::Excess::IntoFifo,
    };
    let deliver = |picks: &[u16]| rx::deliver(chip, &m.env, batch, picks, excess);
    match way {
        Way::Runs | Way::Grouped => {
            let run = |run: &Run<'_>| m.nic.receive.deliver_run(&m.env, run);
            let run: &dyn Fn(&Run<'_>) -> Option<usize> = &run;
            vec![in_groups(batch, deliver, (way == Way::Runs).then_some(run))]
        }
        Way::Cuts | Way::Segments => {
            let (dealt, moved) = finished.deliver(&m.nic.receive, &m.env, batch, picks);
            vec![dealt, moved]
        }
        _ => vec![deliver(picks)],
    }
}

fn run(setting: &Setting, batches: &[(Vec<Sent>, u8, Option<Change>)], way: Way) -> Seen {
    let mut finished = Finished::new(way == Way::Cuts);
    let (mut m, chip) = machine(setting, way);
    m.w(reg::RXCSUM, setting.rxcsum);
    m.w(0x2c00, setting.rsrpd);
    m.w(reg::RDTR, setting.rdtr);
    m.w(0x1000, setting.pba);
    m.w(0x30, 0x8808);
    m.w(0x28, 0x00c2_8001);
    m.w(0x2c, 0x0100);
    m.w(reg::VET, 0x8100);
    m.w(reg::VFTA, 0x21);
    m.w(reg::IMS, 0x1_ffff);
    m.w(reg::CTRL, setting.ctrl | 0x40);
    m.rx_on(setting.ring, setting.rctl);
    for (at, what) in &setting.odd {
        let addr = match what {
            0 => 0,
            1 => 0xdead_0000_0000,
            _ => RAM + RAM_LEN - 30,
        };
        m.rx_desc(u32::from(*at) % setting.ring, addr);
    }
    let begun = m.save();
    let mut seen = Seen {
        dealt: Vec::new(),
        memory: Vec::new(),
        registers: Vec::new(),
        counters: Vec::new(),
        interrupts: Vec::new(),
        in_cuts: 0,
    };
    for (frames, give, change) in batches {
        if let Some(change) = change {
            apply(&mut m, change, &begun);
        }
        let all: Vec<_> = frames.iter().map(bytes).collect();
        let mut batch = Batch::new();
        for (sent, bytes) in frames.iter().zip(&all) {
            // One run or several.
            let cut = usize::from(sent.seed) * 7 % (bytes.len() + 1);
            let (a, b) = bytes.split_at(if sent.seed & 2 == 0 { 0 } else { cut });
            batch.push_slice(ReadSlice::from_bytes(a));
            batch.push_slice(ReadSlice::from_bytes(b));
            batch.end(notes(sent));
        }
        if way == Way::Leases {
            chip.rx.lock().crowd();
        }
        let dealt = offer((&m, &chip), &mut finished, &batch, way);
        seen.dealt.extend(dealt);
        seen.interrupts.push((
            m.line(),
            if way == Way::Leases { 0 } else { m.rises() },
            m.armed(),
        ));
        assert!(!chip.rx.lock().is_out() && chip.rx.lock().leased == 0);
        if give & 1 != 0 {
            seen.registers.push(m.r(reg::ICR));
        }
        let head = m.r(reg::RDH);
        let back = u32::from(*give) % setting.ring;
        m.w(
            reg::RDT,
            (head + setting.ring - 1 - back.min(3)) % setting.ring,
        );
        m.sleep(u64::from(*give) * 1000);
    }
    seen.in_cuts = finished.in_cuts();
    seen.memory = m.peek(RAM, RAM_LEN as usize);
    for register in crate::regs::REGISTERS {
        if register.access != regs::Access::Memory {
            seen.registers.push(m.r(register.offset.into()));
        }
    }
    m.nic.control.counters(&mut |name, value| {
        // How far descriptors are read ahead is free; leases may tell of frames one by one.
        if name != "rx_desc_fetched" && name != "irq_raised" {
            seen.counters.push((name, value));
        }
    });
    seen
}

const PLAIN: Setting = Setting {
    rctl: 1 << 15,
    ctrl: 0,
    rxcsum: 0,
    rsrpd: 0,
    rdtr: 0,
    pba: 48,
    ring: 16,
    odd: Vec::new(),
    true_fcs: false,
};

/// A ring that takes everything, with buffers of 2 KiB.
fn open_ring(way: Way, ring: u32) -> (Machine, Arc<Chip>) {
    let setting = Setting { ring, ..PLAIN };
    let (mut m, chip) = machine(&setting, way);
    m.w(reg::CTRL, 0x40);
    m.rx_on(setting.ring, setting.rctl);
    (m, chip)
}

/// Frames for us that are alike.
fn alike(n: usize) -> Batch<'static> {
    let mut batch = Batch::new();
    for _ in 0..n {
        let mut frame = [7; 60];
        frame[..6].copy_from_slice(&MAC);
        batch.push_bytes(&frame);
        batch.end(Offload::NONE);
    }
    batch
}

/// The copy of the one that holds the lock may wait for memory.
#[test]
fn a_ring_that_another_sender_holds_for_long_is_not_waited_for() {
    let (mut m, chip) = open_ring(Way::FastPath, 16);
    let batch = alike(3);
    let picks = [0, 1, 2];
    let offer = |m: &Machine| m.nic.receive.deliver(&m.env, &batch, &picks);
    // Three more than there are descriptors wait in the FIFO.
    for _ in 0..6 {
        assert_eq!(offer(&m), 3);
    }
    assert_eq!(m.r(reg::RDH), 15);
    let woken = Arc::new(CountedWake::default());
    let wake: Arc<dyn Wake> = woken.clone();
    let lock = chip.rx.lock();
    assert_eq!(offer(&m), 0);
    m.nic.receive.want_room(&wake);
    assert_eq!(offer(&m), 0);
    m.nic.receive.give_up(&m.env, &batch, &picks);
    assert_eq!(m.counter("rx_held_up"), 9);
    // Nor does the guest wait that gives buffers; they are used when the lock is free.
    m.w(reg::RDT, 10);
    m.work();
    assert_eq!((m.r(reg::RDH), woken.rung()), (15, 0));
    drop(lock);
    rx::poll::let_go(&chip, &m.env);
    assert_eq!((m.r(reg::RDH), woken.rung()), (2, 1));
    assert_eq!(offer(&m), 3);
    assert_eq!((m.r(reg::RDH), woken.rung()), (5, 1));
}

/// A lease is open on some buffers when its owner dies; another's is out behind it.
#[test]
fn a_sender_that_dies_leaves_no_lease_behind() {
    let (mut m, chip) = open_ring(Way::Leases, 16);
    let batch = alike(3);
    {
        let view = m.env.memory.view();
        let open = || {
            let mut rx = Rx::new(&chip, &view, None);
            let mut state = chip.rx.lock();
            let ring = Ring::read(&chip.file, &rx::RING).expect("a ring");
            rx.begin(&mut state, ring);
            assert_eq!(rx.plan_run(&state, &batch, &[0, 1, 2], 64), 3);
            let ticket = rx.lease(&mut state).expect("few are out");
            Filling::new(&rx, ticket)
        };
        let (first, second) = (open(), open());
        assert_eq!((chip.rx.lock().leased, m.counter("rx_leased")), (6, 6));
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _first = first;
            panic!("as a bug would");
        }));
        assert!(died.is_err() && !second.is_wanted());
        assert!(chip.rx.lock().is_out());
        drop(second);
    }
    assert!(!chip.rx.lock().is_out() && chip.rx.lock().leased == 0);
    assert_eq!(m.r(reg::RDH), 0);
    assert_eq!(m.counter("rx_disabled"), 6);
    // Which would wait for them.
    chip.stop_receiving();
    assert_eq!(
        rx::deliver(&chip, &m.env, &batch, &[0, 1, 2], rx::Excess::IntoFifo),
        3
    );
    assert_eq!(m.r(reg::RDH), 3);
}

fn without_rises(mut seen: Seen) -> Seen {
    for (_, rises, _) in &mut seen.interrupts {
        *rises = 0;
    }
    seen
}

/// Without the count of what came under leases, which it gives.
fn without_leased(mut seen: Seen) -> (Seen, u64) {
    let leased = seen.counters.iter_mut().find(|(n, _)| *n == "rx_leased");
    let count = leased.map(|(_, count)| std::mem::take(count));
    (seen, count.expect("it is counted"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    #[cfg_attr(miri, ignore = "takes hours; tests/ goes the same ways")]
    fn all_ways_lead_to_the_same(
        setting in setting(),
        batches in prop::collection::vec((batch(), any::<u8>(), Just(None)), 1..6),
    ) {
        let general = run(&setting, &batches, Way::General);
        let fast_path = run(&setting, &batches, Way::FastPath);
        prop_assert!(general.memory == fast_path.memory, "memory differs");
        prop_assert_eq!(&general.interrupts, &fast_path.interrupts);
        prop_assert_eq!(&general.counters, &fast_path.counters);
        prop_assert_eq!(&general.registers, &fast_path.registers);
        prop_assert_eq!(&general.dealt, &fast_path.dealt);
        // Leases tell of frames one lease after the other, which delays see.
        let setting = Setting { rdtr: 0, ..setting };
        let fast_path = without_rises(run(&setting, &batches, Way::FastPath));
        let (leases, _) = without_leased(run(&setting, &batches, Way::Leases));
        let (fast_path, leased) = without_leased(fast_path);
        prop_assert_eq!(leased, 0);
        prop_assert!(leases.memory == fast_path.memory, "memory differs with leases");
        prop_assert_eq!(&leases.interrupts, &fast_path.interrupts);
        prop_assert_eq!(&leases.counters, &fast_path.counters);
        prop_assert_eq!(&leases.registers, &fast_path.registers);
        prop_assert_eq!(&leases.dealt, &fast_path.dealt);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes hours; tests/ goes the same ways")]
    fn runs_are_received_as_batches_are_whatever_changes_between_them(
        setting in setting(),
        batches in changing(),
    ) {
        // A run that ends early is told of before the rest, which delays see.
        let setting = Setting { rdtr: 0, ..setting };
        let grouped = run(&setting, &batches, Way::Grouped);
        let runs = run(&setting, &batches, Way::Runs);
        prop_assert!(grouped.memory == runs.memory, "memory differs");
        prop_assert_eq!(&grouped.interrupts, &runs.interrupts);
        prop_assert_eq!(&grouped.counters, &runs.counters);
        prop_assert_eq!(&grouped.registers, &runs.registers);
        prop_assert_eq!(&grouped.dealt, &runs.dealt);
    }
}
