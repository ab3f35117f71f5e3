//! The three kinds of moderation: how many interrupts a guest gets under which load, on a fake clock,
//! and that nothing but their timing depends on it.

use std::num::NonZeroU32;

use crate::common::*;
use hypernic_e1000::{Config, Moderation};
use model::Through;
use model_testkit::scripts::moderation::{Hearing, choose_while_frames_come};
use proptest::prelude::*;

const TXDW: u32 = 1;
const RXT0: u32 = 0x80;
const RING: u32 = 256;
/// What Linux sets by default: 20000 a second at most.
const ITR: u32 = 195;
const US: u64 = 1000;
const MS: u64 = 1_000_000;

fn fixed(rate: u32) -> Moderation {
    Moderation::Fixed(NonZeroU32::new(rate).expect("a rate"))
}

fn machine(moderation: Moderation) -> Machine {
    with(moderation, false)
}

fn with(moderation: Moderation, throttling: bool) -> Machine {
    let mut config = Config::new(MAC);
    config.negotiation = std::time::Duration::from_millis(10);
    config.moderation = moderation;
    config.receive_throttling = throttling;
    let mut m = Machine::with(config, Wire::default());
    m.tx_on(RING);
    m.rx_on(RING, 0x8000);
    m.sleep(20 * MS);
    m.r(reg::ICR);
    m.w(reg::ITR, ITR);
    m
}

/// What a guest met in a while.
#[derive(Debug)]
struct Seen {
    interrupts: u64,
    /// The longest that a frame was there before the line was up, in nanoseconds.
    waited: u64,
    /// The most that had come when the guest looked.
    most: u32,
}

/// A guest that reads ICR `cost` after the line went up and then takes all there is, while frames
/// come at `pps` for 40 ms.
fn stream(m: &mut Machine, cost: u64, pps: u64) -> Seen {
    m.w(reg::IMS, RXT0 | TXDW);
    let before = m.rises();
    let (mut now, mut next) = (0, 0);
    let (mut up, mut since): (Option<u64>, Option<u64>) = (None, None);
    let (mut there, mut seen) = (
        0,
        Seen {
            interrupts: 0,
            waited: 0,
            most: 0,
        },
    );
    while now < 40 * MS {
        while next <= now {
            assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
            there += 1;
            since.get_or_insert(now);
            next += 1_000_000_000 / pps;
        }
        if m.line() && up.is_none() {
            up = Some(now);
            seen.waited = seen.waited.max(since.map_or(0, |since| now - since));
        }
        if up.is_some_and(|up| now >= up + cost) {
            m.r(reg::ICR);
            let head = m.r(reg::RDH);
            m.w(reg::RDT, (head + RING - 1) % RING);
            seen.most = seen.most.max(there);
            (up, since, there) = (None, None, 0);
        }
        m.sleep(US);
        now += US;
    }
    seen.interrupts = m.rises() - before;
    if let Some(up) = up {
        m.sleep((up + cost).saturating_sub(now));
    }
    m.r(reg::ICR);
    m.w(reg::IMC, !0);
    seen
}

#[test]
fn what_waits_for_its_time_is_told_once() {
    let mut m = machine(fixed(1_000));
    m.w(reg::IMS, RXT0);
    m.offer(&[&plain(MAC, 60)]);
    assert!(m.line() && m.pin.take_delayed().is_empty());
    for _ in 0..3 {
        m.r(reg::ICR);
        for _ in 0..3 {
            m.offer(&[&plain(MAC, 60)]);
            m.sleep(US);
        }
        assert!(!m.line());
        assert_eq!(m.pin.take_delayed(), [Through::Pin]);
        m.sleep(MS);
        assert!(m.line() && m.pin.take_delayed().is_empty());
    }
    // What the chip's own timer holds, too.
    m.r(reg::ICR);
    m.sleep(2 * MS);
    m.w(reg::RDTR, 100);
    for _ in 0..3 {
        m.offer(&[&plain(MAC, 60)]);
    }
    assert!(!m.line());
    assert_eq!(m.pin.take_delayed(), [Through::Pin]);
    m.sleep(MS);
    assert!(m.line() && m.pin.take_delayed().is_empty());
}

/// Interrupts a second that a load leads to: by arithmetic, not by experience.
#[test]
fn how_often_a_guest_is_interrupted() {
    let adaptive = Moderation::Adaptive;
    // moderation, microseconds to ICR, frames a second, interrupts a second
    for (moderation, cost, pps, expected) in [
        // The policies of thesis 002, figure 8, and what they do to a sparse stream: nothing.
        (fixed(20_000), 5, 200_000, 20_000),
        (fixed(2_000), 5, 200_000, 2_000),
        (fixed(1_000), 5, 200_000, 1_000),
        (fixed(1_000), 5, 500, 500),
        // As the driver has set ITR, and a guest that is too slow for it.
        (Moderation::Guest, 5, 200_000, 20_000),
        (Moderation::Guest, 150, 200_000, 6_500),
        // Slow enough that buffers are no concern: a gap of six times the way to ICR, or 1 ms.
        (adaptive, 50, 50_000, 3_333),
        (adaptive, 100, 50_000, 1_667),
        (adaptive, 300, 50_000, 1_000),
        // 92 · 5/6 frames after the guest has looked: at 200 kpps 385 µs, and 100 µs for the look.
        (adaptive, 100, 200_000, 2_062),
        (adaptive, 100, 400_000, 3_419),
        // It can do no more than that: half of its time is its own.
        (adaptive, 100, 1_000_000, 5_000),
        // Sparse and not answered: each at once.
        (adaptive, 100, 500, 500),
    ] {
        let mut m = machine(moderation);
        // The way to ICR is known after a while.
        stream(&mut m, cost * US, pps);
        m.sleep(50 * MS);
        m.r(reg::ICR);
        let seen = stream(&mut m, cost * US, pps);
        let rate = seen.interrupts * 25;
        let near = rate.abs_diff(expected) * 100 <= expected * 8;
        assert!(
            near,
            "{moderation:?}, {cost} us, {pps}: {rate} for {expected}, {seen:?}"
        );
        if pps == 500 {
            assert_eq!(seen.waited, 0, "{moderation:?}");
        }
    }
}

#[test]
fn the_operator_may_choose_anew_while_frames_come_and_each_is_told() {
    let mut m = machine(Moderation::Guest);
    m.w(reg::IMS, RXT0);
    choose_while_frames_come(
        &mut m,
        &Hearing {
            machine: |m| m,
            comes: |m| assert_eq!(m.offer(&[&plain(MAC, 60)]), 1),
            told: |m| m.line(),
            answers: |m| {
                m.r(reg::ICR);
                let head = m.r(reg::RDH);
                m.w(reg::RDT, (head + RING - 1) % RING);
            },
            // ITR's gap.
            longest: 51 * US,
        },
    );
}

#[test]
fn no_buffer_is_wanting_where_the_guest_is_quick_enough_to_empty_them() {
    for pps in [20_000, 100_000, 300_000, 600_000] {
        let mut m = machine(Moderation::Adaptive);
        for _ in 0..3 {
            let seen = stream(&mut m, 100 * US, pps);
            // 77 until the interrupt, and what comes until the guest looks.
            let most = 77 + 1 + 101 * pps as u32 / 10_000;
            assert!(seen.most <= most, "{pps}: {seen:?}");
        }
        assert_eq!(m.counter("rx_no_buffer"), 0, "{pps}");
    }
}

/// Requests, each 130 µs after the answer to the last, so that the report of what was sent is over
/// by then; the guest takes 80 µs to ICR and 20 more to the answer. Says how many there were in
/// 100 ms.
fn transactions(moderation: Moderation) -> u64 {
    let mut m = machine(moderation);
    m.w(reg::TIDV, 8);
    m.w(reg::TADV, 32);
    m.w(reg::IMS, RXT0 | TXDW);
    let (mut count, mut sent) = (0, 0);
    let (mut now, mut request, mut up) = (0, Some(0), None);
    while now < 100 * MS {
        if request.is_some_and(|at| now >= at) {
            m.offer(&[&plain(MAC, 60)]);
            request = None;
        }
        if m.line() && up.is_none() {
            up = Some(now);
        }
        if up.is_some_and(|up| now >= up + 80 * US) {
            up = None;
            if m.r(reg::ICR) & RXT0 != 0 {
                m.sleep(20 * US);
                now += 20 * US;
                let head = m.r(reg::RDH);
                m.w(reg::RDT, (head + RING - 1) % RING);
                m.tx_desc(sent, TX_BUFFERS, legacy(60, EOP | RS | IDE));
                sent = (sent + 1) % RING;
                m.w(reg::TDT, sent);
                assert_eq!(m.wire.take().len(), 1);
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
    assert!(guest > 400, "{guest}");
    assert!(adaptive * 100 >= guest * 95, "{adaptive} for {guest}");
    assert!(
        transactions(fixed(1_000)) * 100 < guest * 80,
        "what is bypassed"
    );
}

/// Frames a second that a program gets of those offered, in a guest whose kernel takes 1 µs for each and comes
/// first, whose program takes 2, and between them a socket; and those that its kernel took. `answers`: the program sends something for each.
fn received(m: &mut Machine, pps: u64, answers: bool) -> (u64, u64) {
    const SOCKET: u64 = 277;
    m.w(reg::IMS, RXT0);
    let end = 40 * MS;
    let (mut now, mut due, mut backlog) = (0, 0, 0);
    let (mut polling, mut next, mut socket, mut count) = (false, m.r(reg::RDH), 0, 0);
    let mut taken = 0;
    let frame = plain(MAC, 60);
    while now < end {
        while due <= now {
            backlog = (backlog + 1).min(100);
            due += 1_000_000_000 / pps;
        }
        backlog -= m.offer(&vec![&frame[..]; backlog]);
        if !polling && m.line() {
            polling = true;
            m.r(reg::ICR);
            m.w(reg::IMC, !0);
        }
        if polling && m.r(reg::RDH) != next {
            next = (next + 1) % RING;
            socket = (socket + 1).min(SOCKET);
            taken += 1;
            if next.is_multiple_of(16) {
                m.w(reg::RDT, (next + RING - 1) % RING);
            }
        } else if polling {
            m.w(reg::RDT, (next + RING - 1) % RING);
            polling = false;
            m.w(reg::IMS, RXT0);
        } else if socket > 0 {
            socket -= 1;
            count += 1;
            if answers {
                let tail = m.r(reg::TDT);
                m.tx_desc(tail, TX_BUFFERS, legacy(60, EOP | RS));
                m.w(reg::TDT, (tail + 1) % RING);
            }
            m.sleep(US);
            now += US;
        }
        m.sleep(US);
        now += US;
    }
    let per_second = |n: u64| n * 1_000_000_000 / end;
    (per_second(count), per_second(taken))
}

#[test]
fn a_guest_that_is_offered_ten_times_too_much_receives_as_ever() {
    for moderation in [Moderation::Adaptive, Moderation::Guest] {
        let rates = [100_000, 200_000, 250_000, 300_000];
        let each = rates.map(|pps| received(&mut with(moderation, true), pps, false).0);
        let best = each.into_iter().max().unwrap_or(0);
        let overload = |throttling| {
            let mut m = with(moderation, throttling);
            let (got, taken) = received(&mut m, 3_000_000, false);
            (got, taken, m.counter("rx_rationed"))
        };
        let (got, _, rationed) = overload(true);
        assert!(best > 200_000, "{best}");
        assert!(got * 10 >= best * 8, "{got} of {best}");
        assert!(rationed > 0);
        // Without, its kernel takes them all, and its program gets none.
        let (got, taken, rationed) = overload(false);
        assert!(got * 10 < best, "{got} of {best}");
        assert!(rationed == 0 && taken > 900_000, "{rationed}, {taken}");
    }
    // Nothing waits for a guest that answers.
    let mut m = with(Moderation::Adaptive, true);
    received(&mut m, 100_000, true);
    assert_eq!(m.counter("rx_rationed"), 0);
}

#[test]
fn what_was_kept_back_comes_when_the_guest_has_had_its_time() {
    let mut m = with(Moderation::Adaptive, true);
    let frame = plain(MAC, 60);
    let turn = |m: &mut Machine| {
        m.r(reg::ICR);
        m.w(reg::IMC, !0);
        m.sleep(100 * US);
        let head = m.r(reg::RDH);
        m.w(reg::RDT, (head + RING - 1) % RING);
        m.w(reg::IMS, RXT0);
    };
    m.w(reg::IMS, RXT0);
    for _ in 0..6 {
        assert_eq!(m.offer(&vec![&frame[..]; 90]), 90);
        m.sleep(MS);
        assert!(m.line());
        turn(&mut m);
    }
    // 540 without an answer.
    let before = m.r(reg::RDH);
    assert_eq!(m.offer(&vec![&frame[..]; 200]), 200);
    let given = |m: &mut Machine| (m.r(reg::RDH) + RING - before) % RING;
    assert_eq!(given(&mut m), 92);
    assert_eq!(m.counter("rx_rationed"), 108);
    assert_eq!(m.counter("rx_no_buffer"), 0);
    m.sleep(MS);
    turn(&mut m);
    m.sleep(149 * US);
    assert_eq!(given(&mut m), 92, "after a poll of 100 us");
    m.sleep(US);
    assert_eq!(given(&mut m), 184);
    assert!(m.armed().is_some());
    // The NIC does not wait for the guest for ever.
    m.sleep(3 * MS);
    assert_eq!(given(&mut m), 200);
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
    let causes = prop::sample::select(vec![RXT0, TXDW, RXT0 | TXDW, 0x10, 0x1_ffff]);
    let delays = prop::sample::select(vec![reg::RDTR, reg::RADV, reg::TIDV, reg::TADV]);
    let shown = prop::sample::select(vec![
        reg::ICR,
        reg::ICS,
        reg::IMS,
        reg::ITR,
        reg::RDH,
        reg::TDH,
        reg::STATUS,
        0x4074,
    ]);
    prop_oneof![
        causes.clone().prop_map(|v| Step::Write(reg::IMS, v)),
        causes.clone().prop_map(|v| Step::Write(reg::IMC, v)),
        causes.prop_map(|v| Step::Write(reg::ICS, v)),
        (0u32..4000).prop_map(|v| Step::Write(reg::ITR, v)),
        (delays, 0u32..200).prop_map(|(at, v)| Step::Write(at, v)),
        (0u32..RING).prop_map(|v| Step::Write(reg::RDT, v)),
        Just(Step::Write(reg::CTRL, 1 << 26 | 1 << 6)),
        shown.prop_map(Step::Read),
        Just(Step::Read(reg::ICR)),
        (1u8..100).prop_map(Step::Receive),
        Just(Step::Send),
        (0u64..600 * US).prop_map(Step::Sleep),
        Just(Step::Settle),
    ]
}

/// The longest that a pending, unmasked cause waits: one gap, or what adaptive moderation adds.
fn bound(moderation: Moderation, itr: u32) -> u64 {
    match moderation {
        Moderation::Fixed(rate) => 1_000_000_000 / u64::from(rate.get()),
        Moderation::Guest => u64::from(itr) * 256,
        Moderation::Adaptive => (u64::from(itr) * 256).max(2 * MS),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The same guest on NICs of each kind: whatever it reads, whenever, is the same, and what comes
    /// and goes is; only the line differs, and it is up in time.
    #[test]
    fn nothing_but_the_timing_of_interrupts_depends_on_it(
        steps in prop::collection::vec(step(), 1..80),
        rate in 100u32..50_000,
    ) {
        let kinds = [Moderation::Guest, Moderation::Adaptive, fixed(rate)];
        let mut machines = kinds.map(machine);
        let (mut itr, mut tail) = (ITR, 0);
        for step in steps {
            match step {
                Step::Write(reg::ITR, value) => itr = value,
                Step::Write(reg::CTRL, _) => (itr, tail) = (0, 0),
                _ => {}
            }
            let answers: Vec<(u32, usize)> = machines.iter_mut().zip(kinds).map(|(m, kind)| {
                let mut answer = (0, 0);
                match step {
                    Step::Write(at, value) => m.w(at, value),
                    Step::Read(at) => answer.0 = m.r(at),
                    Step::Receive(n) => {
                        answer.1 = m.offer(&vec![&plain(MAC, 60)[..]; n.into()]);
                    }
                    Step::Send => {
                        m.tx_desc(tail, TX_BUFFERS, legacy(60, EOP | RS));
                        m.w(reg::TDT, (tail + 1) % RING);
                        answer.1 = m.wire.take().len();
                    }
                    Step::Sleep(ns) => m.sleep(ns),
                    Step::Settle => {
                        let pending = m.r(reg::ICS) & m.r(reg::IMS) != 0;
                        m.sleep(bound(kind, itr));
                        assert!(!pending || m.line(), "{kind:?}: held back for too long");
                        // The same time passes for all.
                        m.sleep(20 * MS - bound(kind, itr));
                    }
                }
                let pending = m.r(reg::ICS) & m.r(reg::IMS) != 0;
                assert!(!m.line() || pending, "{kind:?}: line up without a cause");
                assert!(!pending || m.line() || m.armed().is_some(), "{kind:?}: cause lost");
                answer
            }).collect();
            if matches!(step, Step::Send) {
                tail = (tail + 1) % RING;
            }
            prop_assert_eq!(answers[0], answers[1], "{:?}", step);
            prop_assert_eq!(answers[0], answers[2], "{:?}", step);
        }
        let [a, b, c] = &machines;
        let rings = |m: &Machine| (m.peek(RX_RING, 16 * RING as usize), m.peek(TX_RING, 16 * RING as usize));
        prop_assert_eq!(rings(a), rings(b));
        prop_assert_eq!(rings(a), rings(c));
    }
}
