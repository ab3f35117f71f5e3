//! Timelines of the interrupt line, and what may never happen to it.

use crate::common::*;
use hypernic_e1000::{Config, Moderation};
use proptest::prelude::*;

const TXDW: u32 = 1;
const RXT0: u32 = 0x80;

#[test]
fn the_line_follows_causes_and_mask() {
    let mut m = Machine::default();
    m.w(reg::ICS, 0x10);
    assert!(!m.line());
    // Unmasking looks at what is pending.
    m.w(reg::IMS, 0x10);
    assert!(m.line());
    m.w(reg::IMC, 0x10);
    assert!(!m.line());
    assert_eq!(m.r(reg::ICS), 0x10, "ICS reads without clearing");
    m.w(reg::IMS, 0x14);
    m.w(reg::ICS, 0x4);
    m.w(reg::ICR, 0x10);
    assert!(m.line(), "the other cause is still there");
    assert_eq!(m.r(reg::ICR), 0x4);
    assert!(!m.line());
    assert_eq!(m.r(reg::ICR), 0);
}

/// The drivers' self-test raises bits 0 to 9 one by one.
#[test]
fn every_cause_can_be_raised_by_hand() {
    let mut m = Machine::default();
    for bit in 0..17 {
        m.w(reg::IMC, 0xffff_ffff);
        m.w(reg::ICS, 1 << bit);
        assert!(!m.line());
        assert_eq!(m.r(reg::ICR), 1 << bit);
        m.w(reg::IMS, 1 << bit);
        m.w(reg::ICS, 1 << bit);
        assert!(m.line());
        assert_eq!(m.r(reg::ICR), 1 << bit);
        m.w(reg::IMC, 1 << bit);
        m.w(reg::ICS, !(1 << bit));
        assert!(!m.line());
        m.r(reg::ICR);
    }
}

#[test]
fn more_causes_while_the_line_is_up_raise_it_once() {
    let mut m = Machine::default();
    m.rx_on(64, 0x8000);
    m.r(reg::ICR);
    m.w(reg::IMS, 0xffff);
    for _ in 0..10 {
        m.offer(&[&plain(MAC, 60)]);
    }
    assert_eq!(m.rises(), 1);
    assert_eq!(m.counter("irq_raised"), 1);
}

#[test]
fn itr_keeps_a_gap_between_interrupts() {
    let mut m = Machine::default();
    m.w(reg::ITR, 500); // 128 us
    m.w(reg::IMS, 0x4);
    m.w(reg::ICS, 0x4);
    assert!(m.line(), "the first is not delayed");
    m.r(reg::ICR);
    m.sleep(100_000);
    m.w(reg::ICS, 0x4);
    assert!(!m.line());
    m.sleep(27_999);
    assert!(!m.line());
    m.sleep(1);
    assert!(m.line());
    m.r(reg::ICR);
    m.sleep(200_000);
    m.w(reg::ICS, 0x4);
    assert!(m.line(), "the gap is long over");
    // A cause that goes away while it waits leaves nothing behind.
    m.r(reg::ICR);
    m.w(reg::ICS, 0x4);
    assert!(!m.line());
    m.r(reg::ICR);
    assert_eq!(m.armed(), None);
    // Turning it off lets a waiting one out.
    m.w(reg::ICS, 0x4);
    assert!(!m.line());
    m.w(reg::ITR, 0);
    assert!(m.line());
}

fn receive_one(m: &mut Machine) {
    assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
}

#[test]
fn rdtr_restarts_per_packet_and_radv_caps_it() {
    let mut m = Machine::default();
    m.rx_on(64, 0x8000);
    m.r(reg::ICR);
    m.w(reg::IMS, RXT0);
    m.w(reg::RDTR, 100); // 102.4 us
    m.w(reg::RADV, 150); // 153.6 us
    receive_one(&mut m);
    assert!(!m.line());
    m.sleep(102_399);
    assert!(!m.line());
    m.sleep(1);
    assert!(m.line());
    assert_eq!(m.r(reg::ICR), RXT0);
    m.sleep(1_000_000);
    assert!(!m.line(), "RADV was called off");
    // A packet every 60 us keeps RDTR from running out; RADV ends it.
    receive_one(&mut m);
    m.sleep(60_000);
    receive_one(&mut m);
    m.sleep(60_000);
    receive_one(&mut m);
    m.sleep(33_599);
    assert!(!m.line());
    m.sleep(1);
    assert!(m.line());
    m.r(reg::ICR);
    m.sleep(1_000_000);
    assert!(!m.line());
    // FPD: now.
    receive_one(&mut m);
    m.w(reg::RDTR, 100 | 1 << 31);
    assert!(m.line());
    assert_eq!(m.r(reg::RDTR), 100);
    m.r(reg::ICR);
    m.sleep(1_000_000);
    assert!(!m.line());
    // RDTR 0: at once, whatever RADV says.
    m.w(reg::RDTR, 0);
    receive_one(&mut m);
    assert!(m.line());
}

fn send_one(m: &mut Machine, index: u32, cmd: u8) {
    m.tx_desc(index, TX_BUFFERS, legacy(60, EOP | cmd));
    m.w(reg::TDT, index + 1);
}

#[test]
fn tidv_delays_and_tadv_caps() {
    let mut m = Machine::default();
    m.tx_on(64);
    m.r(reg::ICR);
    m.w(reg::IMS, TXDW);
    m.w(reg::TIDV, 8); // 8.192 us
    m.w(reg::TADV, 16);
    send_one(&mut m, 0, RS | IDE);
    assert!(m.tx_done(0), "write-back is not delayed");
    assert!(!m.line());
    m.sleep(8_192);
    assert!(m.line());
    m.r(reg::ICR);
    for i in 1..4 {
        send_one(&mut m, i, RS | IDE);
        m.sleep(6_000);
    }
    assert!(m.line(), "TADV at 16.384 us");
    m.r(reg::ICR);
    // Without IDE: at once, and the timers are off.
    send_one(&mut m, 4, RS | IDE);
    send_one(&mut m, 5, RS);
    assert!(m.line());
    m.r(reg::ICR);
    m.sleep(1_000_000);
    assert!(!m.line());
    // Without RS: no write-back, no TXDW.
    send_one(&mut m, 6, 0);
    assert!(!m.tx_done(6));
    assert_eq!(m.r(reg::ICR) & TXDW, 0);
    // TIDV 0 is no delay.
    m.w(reg::TIDV, 0);
    send_one(&mut m, 7, RS | IDE);
    assert!(m.line());
}

#[test]
fn delay_and_gap_add_up() {
    let mut m = Machine::default();
    m.rx_on(64, 0x8000);
    m.r(reg::ICR);
    m.w(reg::IMS, RXT0);
    m.w(reg::ITR, 1000); // 256 us
    m.w(reg::RDTR, 10); // 10.24 us
    receive_one(&mut m);
    m.sleep(10_240);
    assert!(m.line());
    m.r(reg::ICR);
    receive_one(&mut m);
    m.sleep(10_240);
    assert!(!m.line());
    assert_eq!(m.r(reg::ICS), RXT0, "the cause shows before the line");
    m.sleep(245_759);
    assert!(!m.line());
    m.sleep(1);
    assert!(m.line());
}

#[test]
fn reset_calls_the_timers_off() {
    let mut m = Machine::default();
    m.rx_on(8, 0x8000);
    m.r(reg::ICR);
    m.w(reg::RDTR, 1000);
    receive_one(&mut m);
    assert!(m.armed().is_some());
    m.w(reg::CTRL, 1 << 26);
    assert_eq!(m.armed(), None);
    m.w(reg::IMS, 0xffff);
    m.sleep(10_000_000);
    assert!(!m.line());
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u32),
    ReadIcr,
    Receive,
    Pause(u16),
    Send(u8),
    Sleep(u64),
    /// Waits as long as any interrupt may be held back, then looks.
    Settle,
    Cable(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let bits = 0u32..0x2_0000;
    prop_oneof![
        bits.clone().prop_map(|v| Step::Write(reg::IMS, v)),
        bits.clone().prop_map(|v| Step::Write(reg::IMC, v)),
        bits.clone().prop_map(|v| Step::Write(reg::ICS, v)),
        bits.prop_map(|v| Step::Write(reg::ICR, v)),
        (0u32..2000).prop_map(|v| Step::Write(reg::ITR, v)),
        (0u32..200).prop_map(|v| Step::Write(reg::RDTR, v)),
        (0u32..200).prop_map(|v| Step::Write(reg::RADV, v)),
        (0u32..200).prop_map(|v| Step::Write(reg::TIDV, v)),
        (0u32..200).prop_map(|v| Step::Write(reg::TADV, v)),
        Just(Step::Write(reg::RDTR, 1 << 31 | 50)),
        other_register(),
        (0u16..3000).prop_map(Step::Pause),
        Just(Step::Settle),
        Just(Step::ReadIcr),
        Just(Step::Receive),
        prop_oneof![Just(RS), Just(RS | IDE), Just(0)].prop_map(Step::Send),
        (0u64..300_000).prop_map(Step::Sleep),
        any::<bool>().prop_map(Step::Cable),
    ]
}

/// Registers that decide what is received and sent, and when it is told.
fn other_register() -> impl Strategy<Value = Step> {
    let small = 0u32..0x400;
    prop_oneof![
        // RCTL with any threshold, and off.
        (0u32..4).prop_map(|rdmts| Step::Write(reg::RCTL, 0x8002 | rdmts << 8)),
        Just(Step::Write(reg::RCTL, 0)),
        // TCTL off, on, with SWXOFF.
        prop::sample::select(vec![0, 2, 0x40_0002]).prop_map(|v| Step::Write(reg::TCTL, v)),
        // CTRL with flow control in every way, and a reset.
        (0u32..4).prop_map(|fc| Step::Write(reg::CTRL, 0x40 | fc << 27)),
        prop::bool::weighted(0.2).prop_map(|r| Step::Write(reg::CTRL, 0x40 | u32::from(r) << 26)),
        small.clone().prop_map(|v| Step::Write(0x2c00, v)), // RSRPD
        any::<u32>().prop_map(|v| Step::Write(0x3828, v)),  // TXDCTL
        (0u32..65).prop_map(|v| Step::Write(0x1000, v)),    // PBA
        small.clone().prop_map(|v| Step::Write(0x2160, v)), // FCRTL
        small.prop_map(|v| Step::Write(0x2168, v)),         // FCRTH
        any::<u32>().prop_map(|v| Step::Write(reg::RDT, v % 256)),
        any::<u32>().prop_map(|v| Step::Write(0x2430, v)), // RDFPC
    ]
}

/// The longest that anything holds a pending, unmasked cause back: ITR's 65535 units of 256 ns. What
/// adaptive moderation adds is less.
const MOST_HELD: u64 = 16_776_960;

fn machine(moderation: Moderation) -> Machine {
    let mut config = Config::new(MAC);
    config.negotiation = std::time::Duration::from_millis(10);
    config.moderation = moderation;
    Machine::with(config, Wire::default())
}

/// A guest that takes 100 µs from the line to ICR, and has set ITR to 20000 a second as Linux does.
#[test]
fn a_dear_interrupt_is_not_raised_more_often_than_pays() {
    let rises = |moderation| {
        let mut m = machine(moderation);
        m.rx_on(256, 0x8000);
        m.w(reg::ITR, 195);
        m.w(reg::IMS, RXT0 | TXDW);
        // A frame every 60 µs for 12 ms.
        for _ in 0..200 {
            m.offer(&[&plain(MAC, 60)]);
            if m.line() {
                m.sleep(100_000);
                m.r(reg::ICR);
            } else {
                m.sleep(60_000);
            }
        }
        m.sleep(5_000_000);
        let pending = m.r(reg::ICS) & m.r(reg::IMS) != 0;
        assert_eq!(m.line(), pending, "the last frames are told in the end");
        m.rises()
    };
    let (guest, adaptive) = (rises(Moderation::Guest), rises(Moderation::Adaptive));
    assert!(adaptive * 3 < guest, "{adaptive} against {guest}");
}

#[test]
fn a_sparse_interrupt_is_raised_at_once_however_dear() {
    let mut m = machine(Moderation::Adaptive);
    m.rx_on(256, 0x8000);
    m.w(reg::ITR, 195);
    m.w(reg::IMS, RXT0 | TXDW);
    for _ in 0..50 {
        m.offer(&[&plain(MAC, 60)]);
        assert!(m.line());
        m.sleep(100_000);
        m.r(reg::ICR);
        m.sleep(10_000_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A pending unmasked cause always has the line up or a timer that will raise it; no line is
    /// up without one; and once all timers have run out, an idle device stays silent.
    #[test]
    fn no_interrupt_is_lost_and_none_is_endless(
        steps in prop::collection::vec(step(), 1..60),
        adaptive in any::<bool>(),
    ) {
        let mut m = machine(if adaptive { Moderation::Adaptive } else { Moderation::Guest });
        m.tx_on(256);
        m.rx_on(256, 0x8000);
        m.w(0x30, 0x8808); // FCT
        let mut sent = 0;
        for step in steps {
            match step {
                Step::Write(at, value) => m.w(at, value),
                Step::ReadIcr => {
                    m.r(reg::ICR);
                }
                Step::Receive => {
                    m.offer(&[&plain(MAC, 60)]);
                }
                Step::Pause(quanta) => {
                    let mut frame = plain(MAC, 60);
                    frame[12..16].copy_from_slice(&[0x88, 0x08, 0, 1]);
                    frame[16..18].copy_from_slice(&quanta.to_be_bytes());
                    m.offer(&[&frame]);
                }
                Step::Settle => {
                    let pending = m.r(reg::ICS) & m.r(reg::IMS) != 0;
                    m.sleep(MOST_HELD);
                    prop_assert!(!pending || m.line(), "held back for ever");
                }
                Step::Send(cmd) => {
                    send_one(&mut m, sent, cmd);
                    sent += 1;
                }
                Step::Sleep(ns) => m.sleep(ns),
                Step::Cable(up) => {
                    m.nic.control.set_link(&m.env, up);
                    m.work();
                }
            }
            let pending = m.r(reg::ICS) & m.r(reg::IMS) != 0;
            prop_assert!(!m.line() || pending, "line up without a cause");
            prop_assert!(!pending || m.line() || m.armed().is_some(), "cause lost");
        }
        // 65535 * 1.024 us and 65535 * 256 ns are the longest delays there are.
        m.sleep(200_000_000);
        let pending = m.r(reg::ICS) & m.r(reg::IMS) != 0;
        prop_assert_eq!(m.line(), pending);
        prop_assert_eq!(m.armed(), None);
        m.r(reg::ICR);
        let rises = m.rises();
        m.sleep(1_000_000_000);
        prop_assert_eq!(m.rises(), rises);
    }
}
