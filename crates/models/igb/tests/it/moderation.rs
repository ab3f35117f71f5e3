//! The three kinds of moderation, vector by vector: how many messages a guest gets under which load, on
//! a fake clock, and that nothing but their timing depends on it.

use std::num::NonZeroU32;

use crate::common::*;
use hypernic_igb::{Config, Grant, Moderation};
use intel_offsets::igb::long::{RDBAL, RDH, RDLEN, RDT, TDBAL, TDH, TDLEN, TDT};
use model::Through;
use model_testkit::scripts::moderation::{Hearing, choose_while_frames_come};
use proptest::prelude::*;

const RING: u32 = 256;
const RAM: u64 = 0x10_0000;
const RX: u64 = RAM;
const TX: u64 = RAM + 0x2000;
/// One buffer is enough for all: the test does not look at what comes.
const BUFFER: u64 = RAM + 0x4000;
const RAM_LEN: u64 = 0x6000;
/// What Linux begins with, about 20000 a second: 49 us.
const EITR: u32 = 196;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

const VALID: u32 = 0x80;

fn fixed(rate: u32) -> Moderation {
    Moderation::Fixed(NonZeroU32::new(rate).expect("a rate"))
}

/// A PF with one queue in each direction, both at vector 1, as Linux sets it up. `auto`: what its
/// message clears and masks by itself.
fn machine(moderation: Moderation, auto: bool) -> Machine {
    let config = Config {
        moderation,
        ..Config::new(MAC)
    };
    let mut m = Machine::new(&config);
    m.env.memory = memory(RAM, RAM_LEN);
    m.pci(false, true);
    m.w(reg::CTRL, 1 << 6);
    m.w(reg::GPIE, 1 << 31 | 1 << 30 | 1 << 4 | 1);
    m.w(reg::IVAR, VALID | 1 | (VALID | 1) << 8);
    m.w(reg::IVAR_MISC, VALID << 8);
    m.w(reg::EITR + 4, EITR);
    if auto {
        m.w(reg::EIAC, 2);
        m.w(reg::EIAM, 2);
    }
    for i in 0..u64::from(RING) {
        let view = m.env.memory.view();
        view.write(RX + 16 * i, &BUFFER.to_le_bytes()).expect("RAM");
    }
    m.w(RDBAL, RX as u32);
    m.w(RDLEN, RING * 16);
    m.w(reg::RXDCTL, 1 << 25);
    m.w(RDT, RING - 1);
    m.w(TDBAL, TX as u32);
    m.w(TDLEN, RING * 16);
    m.w(reg::TXDCTL, 1 << 25);
    m.w(reg::RCTL, 1 << 1 | 1 << 15);
    m.w(reg::TCTL, 1 << 1);
    m.sleep(20 * MS);
    m.r(reg::ICR);
    m.w(reg::EIMS, 2);
    m.vectors();
    m
}

fn offer(m: &Machine, count: usize) -> usize {
    offer_of(m, 0, count)
}

fn offer_of(m: &Machine, ether_type: u16, count: usize) -> usize {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&MAC);
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    m.offer(&vec![&frame[..]; count])
}

/// Writes a packet at `tail` and has it sent.
fn send(m: &mut Machine, tail: u32) -> usize {
    let low = BUFFER.to_le_bytes();
    // A legacy descriptor: EOP, IFCS, RS.
    let high = (60u64 | (1 | 2 | 8) << 24).to_le_bytes();
    let view = m.env.memory.view();
    let at = TX + 16 * u64::from(tail);
    view.write(at, &low).expect("RAM");
    view.write(at + 8, &high).expect("RAM");
    drop(view);
    m.w(TDT, (tail + 1) % RING);
    m.wire.take().len()
}

/// The driver's poll: takes all there is, gives the buffers back, opens the mask.
fn poll(m: &mut Machine) {
    let head = m.r(RDH);
    m.w(RDT, (head + RING - 1) % RING);
    m.w(reg::EIMS, 2);
}

#[test]
fn what_waits_for_its_time_is_told_once_by_its_vector() {
    let mut m = machine(fixed(1_000), true);
    offer(&m, 1);
    assert_eq!(m.vectors(), [1]);
    assert!(m.pin.take_delayed().is_empty());
    for _ in 0..3 {
        poll(&mut m);
        for _ in 0..3 {
            offer(&m, 1);
            m.sleep(US);
        }
        assert!(m.vectors().is_empty());
        assert_eq!(m.pin.take_delayed(), [Through::Msix(1)]);
        m.sleep(MS);
        assert_eq!(m.vectors(), [1]);
        assert!(m.pin.take_delayed().is_empty());
    }
}

/// Messages in 40 ms in which frames come at `pps` to a guest that polls `cost` after its message;
/// and the longest that a frame was there before a message.
fn stream(m: &mut Machine, cost: u64, pps: u64) -> (u64, u64) {
    let (mut now, mut next, mut count, mut waited) = (0, 0, 0, 0);
    let (mut told, mut since): (Option<u64>, Option<u64>) = (None, None);
    poll(m);
    while now < 40 * MS {
        while next <= now {
            assert_eq!(offer(m, 1), 1);
            since.get_or_insert(now);
            next += 1_000_000_000 / pps;
        }
        if !m.vectors().is_empty() {
            count += 1;
            told = Some(now);
            waited = waited.max(since.map_or(0, |since| now - since));
        }
        if told.is_some_and(|told| now >= told + cost) {
            (told, since) = (None, None);
            poll(m);
        }
        m.sleep(US);
        now += US;
    }
    m.sleep(cost);
    m.w(reg::EIMC, 2);
    m.w(reg::EICR, 2);
    m.vectors();
    (count, waited)
}

/// Messages a second that a load leads to: by arithmetic, not by experience.
#[test]
fn how_often_a_guest_is_interrupted() {
    let adaptive = Moderation::Adaptive;
    // moderation, microseconds to the poll, frames a second, messages a second
    for (moderation, cost, pps, expected) in [
        (fixed(10_000), 5, 200_000, 10_000),
        (fixed(2_000), 5, 200_000, 2_000),
        (fixed(1_000), 5, 200_000, 1_000),
        (fixed(1_000), 5, 500, 500),
        (Moderation::Guest, 5, 200_000, 20_000),
        // A gap of six times the way to the poll, or 1 ms.
        (adaptive, 50, 50_000, 3_333),
        (adaptive, 100, 50_000, 1_667),
        (adaptive, 300, 50_000, 1_000),
        // 92 · 5/6 frames after the guest has looked: at 200 kpps 385 µs, and 100 µs for the look.
        (adaptive, 100, 200_000, 2_062),
        (adaptive, 100, 1_000_000, 5_000),
        (adaptive, 100, 500, 500),
    ] {
        let mut m = machine(moderation, true);
        // The way to the poll is known after a while.
        stream(&mut m, cost * US, pps);
        m.sleep(50 * MS);
        let (count, waited) = stream(&mut m, cost * US, pps);
        let rate = count * 25;
        assert!(
            rate.abs_diff(expected) * 100 <= expected * 8,
            "{moderation:?}, {cost} us, {pps}: {rate} for {expected}"
        );
        if pps == 500 {
            assert_eq!(waited, 0, "{moderation:?}");
        }
    }
}

/// Requests, each 130 µs after the answer to the last, of a guest that polls 80 µs after its message
/// and answers 20 later. Says how many there were in 100 ms.
fn transactions(moderation: Moderation) -> u64 {
    let mut m = machine(moderation, true);
    let (mut count, mut tail) = (0, 0);
    let (mut now, mut request, mut told, mut seen) = (0, Some(0), None, 0);
    while now < 100 * MS {
        if request.is_some_and(|at| now >= at) {
            offer(&m, 1);
            request = None;
        }
        if !m.vectors().is_empty() {
            told = Some(now);
        }
        if told.is_some_and(|told| now >= told + 80 * US) {
            told = None;
            let head = m.r(RDH);
            poll(&mut m);
            if head != seen {
                seen = head;
                m.sleep(20 * US);
                now += 20 * US;
                assert_eq!(send(&mut m, tail), 1);
                tail = (tail + 1) % RING;
                count += 1;
                request = Some(now + 130 * US);
            }
        }
        m.sleep(US);
        now += US;
    }
    count
}

#[test]
fn request_and_response_are_as_fast_as_without_moderation() {
    let (guest, adaptive) = (
        transactions(Moderation::Guest),
        transactions(Moderation::Adaptive),
    );
    assert!(guest > 300, "{guest}");
    assert!(adaptive * 100 >= guest * 95, "{adaptive} for {guest}");
    assert!(transactions(fixed(1_000)) < guest, "what is bypassed");
}

/// One vector's debt is not another's.
#[test]
fn each_vector_is_moderated_by_itself() {
    for moderation in [Moderation::Adaptive, fixed(1_000)] {
        let mut m = machine(moderation, true);
        m.w(reg::EITR + 8, EITR);
        m.w(reg::EIAC, 6);
        m.w(reg::EIAM, 6);
        m.w(reg::EIMS, 6);
        // Vector 1 costs 100 us each time, until it is held back.
        let mut spoke = 0;
        for _ in 0..8 {
            m.w(reg::EICS, 2);
            spoke += m.vectors().len();
            m.sleep(100 * US);
            m.w(reg::EIMS, 2);
        }
        assert!(spoke < 8, "{moderation:?}: it was not held back");
        m.w(reg::EICS, 4);
        assert_eq!(m.vectors(), [2], "{moderation:?}");
    }
}

/// A PF's limit is a VF's most, whatever its operator and its driver say.
#[test]
fn a_pfs_gap_holds_with_every_moderation() {
    use crate::vf_common::{GRANT, reg as vf};
    for moderation in [Moderation::Guest, Moderation::Adaptive, fixed(100_000)] {
        let mut m = crate::vf_common::Machine::up_with(&Config {
            moderation,
            ..Config::new(MAC)
        });
        m.channel.set_grant(Grant {
            interrupt_gap: MS,
            ..GRANT
        });
        m.attend();
        m.w(vf::VTEITR, 40);
        m.w(vf::VTEIAC, 1);
        m.vectors();
        let mut count = 0;
        for _ in 0..1000 {
            m.w(vf::VTEICS, 1);
            m.pass(10 * US);
            count += m.vectors().len();
        }
        assert!((9..=11).contains(&count), "{moderation:?}: {count}");
    }
}

/// Immediate interrupts cost credits where EITR.LLI_EN says so: one each, and GPIE says how fast new ones
/// come. Without one they wait for it, or for the end of the gap.
#[test]
fn immediate_interrupts_are_moderated_by_credits() {
    const LLI_EN: u32 = 1 << 15;
    const CNT_INGR: u32 = 1 << 31;
    const EITR1: u64 = reg::EITR + 4;
    let machine = |eitr: u32| {
        let mut m = machine(Moderation::Guest, true);
        // A gap of 1 ms, a credit each 40 us; every frame is in a hurry.
        m.w(reg::GPIE, 1 << 31 | 1 << 30 | 1 << 4 | 1 | 10 << 7);
        m.w(EITR1, 1000 << 2 | eitr);
        m.w(0x5cb0, 1 << 26 | 1 << 29 | 0x88b5);
        m
    };
    let told = |m: &mut Machine| {
        offer_of(m, 0x88b5, 1);
        let told = m.vectors().len();
        poll(m);
        told
    };
    // The first is regular: no gap holds it back, but it is paid for if there is a credit.
    let mut m = machine(LLI_EN | 2 << 16);
    assert_eq!(m.r(EITR1), 1000 << 2 | LLI_EN | 2 << 16);
    let now = [told(&mut m), told(&mut m), told(&mut m)];
    assert_eq!(now, [1, 1, 0], "as many as there are credits");
    assert_eq!(m.r(EITR1) >> 16 & 0x1f, 0);
    m.sleep(39 * US);
    assert_eq!(m.vectors(), []);
    m.sleep(US);
    assert_eq!(m.vectors(), [1], "with the next credit");
    poll(&mut m);
    // 31 are the most, a write with CNT_INGR leaves them, and another rate does.
    m.sleep(10 * MS);
    m.w(EITR1, 1000 << 2 | LLI_EN | CNT_INGR);
    m.w(reg::GPIE, 1 << 31 | 1 << 30 | 1 << 4 | 1 | 31 << 7);
    assert_eq!(m.r(EITR1) >> 16, 31);
    let blob = m.nic.control.save(&m.env);
    m.nic.control.load(&m.env, &blob).expect("its own state");
    assert_eq!(m.r(EITR1) >> 16, 31, "saved and loaded");
    m.w(EITR1, 1000 << 2 | LLI_EN);
    assert_eq!(m.r(EITR1) >> 16, 0, "written");
    // The gap's end may come first.
    m.w(EITR1, 100 << 2 | LLI_EN);
    m.w(reg::EICS, 2);
    m.sleep(MS);
    m.vectors();
    poll(&mut m);
    m.w(reg::EICS, 2);
    assert_eq!(m.vectors(), [1]);
    poll(&mut m);
    m.w(EITR1, 100 << 2 | LLI_EN);
    offer_of(&m, 0x88b5, 1);
    m.sleep(99 * US);
    assert_eq!(m.vectors(), []);
    m.sleep(US);
    assert_eq!(m.vectors(), [1]);
    // Without LLI_EN, or without a rate, they cost nothing.
    let mut m = machine(0);
    assert!((0..100).all(|_| told(&mut m) == 1));
    assert_eq!(m.r(EITR1), 1000 << 2);
    let mut m = machine(LLI_EN);
    m.w(reg::GPIE, 1 << 31 | 1 << 30 | 1 << 4 | 1);
    assert!((0..100).all(|_| told(&mut m) == 1));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u32),
    Read(u64),
    Receive(u8),
    Send,
    Sleep(u64),
    /// As long as anything may be held back.
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let shown = prop::sample::select(vec![
        reg::ICR,
        reg::ICS,
        reg::IMS,
        reg::EICR,
        reg::EIMS,
        reg::STATUS,
        reg::EITR + 4,
        RDH,
        TDH,
        0x4074,
    ]);
    prop_oneof![
        (0u32..8).prop_map(|v| Step::Write(reg::EIMS, v)),
        (0u32..8).prop_map(|v| Step::Write(reg::EIMC, v)),
        (0u32..8).prop_map(|v| Step::Write(reg::EICS, v)),
        (0u32..8).prop_map(|v| Step::Write(reg::EICR, v)),
        (0u32..0x8000).prop_map(|v| Step::Write(reg::EITR + 4, v)),
        Just(Step::Write(reg::ICS, 4)),
        (0u32..RING).prop_map(|v| Step::Write(RDT, v)),
        Just(Step::Write(reg::CTRL, 1 << 26 | 1 << 6)),
        shown.prop_map(Step::Read),
        (1u8..100).prop_map(Step::Receive),
        Just(Step::Send),
        (0u64..600 * US).prop_map(Step::Sleep),
        Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The same guest on NICs of each kind: whatever it reads, whenever, is the same, and what comes
    /// and goes is. Only what a message itself clears and masks (EIAC, EIAM) follows the message, as
    /// it does on the chip.
    #[test]
    fn nothing_but_the_timing_of_interrupts_depends_on_it(
        steps in prop::collection::vec(step(), 1..80),
        rate in 200u32..50_000,
        auto: bool,
    ) {
        let kinds = [Moderation::Guest, Moderation::Adaptive, fixed(rate)];
        let mut machines = kinds.map(|kind| machine(kind, auto));
        let mut tail = 0;
        let mut auto = auto;
        for step in steps {
            if let Step::Write(reg::CTRL, _) = step {
                (tail, auto) = (0, false);
            }
            let skip = auto && matches!(step, Step::Read(reg::EICR | reg::EIMS) | Step::Write(reg::EICR, _));
            if skip {
                continue;
            }
            let answers: Vec<(u32, usize)> = machines.iter_mut().map(|m| {
                let mut answer = (0, 0);
                match step {
                    Step::Write(at, value) => m.w(at, value),
                    Step::Read(at) => answer.0 = m.r(at),
                    Step::Receive(n) => answer.1 = offer(m, n.into()),
                    Step::Send => answer.1 = send(m, tail),
                    Step::Sleep(ns) => m.sleep(ns),
                    // EITR reaches 8.2 ms, 200 a second are 5 ms.
                    Step::Settle => {
                        m.sleep(20 * MS);
                        assert_eq!(m.armed(), None);
                    }
                }
                answer
            }).collect();
            if matches!(step, Step::Send) {
                tail = (tail + 1) % RING;
            }
            prop_assert_eq!(answers[0], answers[1], "{:?}", step);
            prop_assert_eq!(answers[0], answers[2], "{:?}", step);
        }
        let memory = |m: &Machine| {
            let mut bytes = vec![0; RAM_LEN as usize];
            m.env.memory.view().read(RAM, &mut bytes).expect("RAM");
            bytes
        };
        prop_assert!(memory(&machines[0]) == memory(&machines[1]));
        prop_assert!(memory(&machines[0]) == memory(&machines[2]));
    }
}

#[test]
fn the_operator_may_choose_anew_while_frames_come_and_each_is_told() {
    for auto in [false, true] {
        let mut m = machine(Moderation::Guest, auto);
        choose_while_frames_come(
            &mut m,
            &Hearing {
                machine: |m| m,
                comes: |m| assert_eq!(offer(m, 1), 1),
                told: |m| !m.vectors().is_empty(),
                answers: |m| {
                    m.w(reg::EICR, 2);
                    poll(m);
                },
                // EITR's gap.
                longest: 50 * US,
            },
        );
    }
}
