//! The MSI capability: the pin is silent, each rise of `ICR & IMS` is one message, and nothing is
//! lost whenever MSI goes on or off.

use std::time::Duration;

use crate::common::*;
use hypernic_e1000::{Config, Moderation};
use proptest::prelude::*;

const LSC: u32 = 4;
const RXT0: u32 = 0x80;

#[test]
fn the_capability_offers_one_message() {
    assert_eq!(Machine::default().nic.identity.msi, 1);
}

#[test]
fn a_rise_is_one_message_and_the_pin_is_silent() {
    let mut m = Machine::default();
    m.set_msi(true);
    m.w(reg::ICS, LSC);
    assert_eq!(m.messages(), 0, "masked");
    m.w(reg::IMS, LSC | RXT0);
    assert_eq!(m.messages(), 1);
    m.w(reg::ICS, RXT0);
    assert_eq!(m.messages(), 0, "the first one is not answered yet");
    assert_eq!(m.r(reg::ICR), LSC | RXT0);
    m.w(reg::ICS, RXT0);
    assert_eq!(m.messages(), 1);
    // As a NAPI driver goes on: mask, work, unmask.
    m.w(reg::IMC, !0);
    m.w(reg::IMS, RXT0);
    assert_eq!(m.messages(), 1, "unmasked with the cause still there");
    assert!(!m.line());
    assert_eq!(m.rises(), 0);
}

#[test]
fn a_bus_reset_takes_msi_away() {
    let mut m = Machine::default();
    m.set_msi(true);
    m.w(reg::IMS, LSC);
    m.w(reg::ICS, LSC);
    assert_eq!(m.messages(), 1);
    m.nic.control.reset(&m.env, model::ResetKind::Bus);
    assert!(!m.line());
    m.w(reg::IMS, LSC);
    m.w(reg::ICS, LSC);
    assert!(m.line(), "the guest has not enabled MSI since");
    assert_eq!(m.messages(), 0);
}

#[test]
fn what_is_left_after_a_partial_answer_is_told_again() {
    let mut m = Machine::default();
    m.set_msi(true);
    m.w(reg::IMS, LSC | RXT0);
    m.w(reg::ICS, LSC | RXT0);
    assert_eq!(m.messages(), 1);
    m.w(reg::ICR, LSC);
    assert_eq!(m.messages(), 1, "RXT0 still stands");
    m.w(reg::ICR, RXT0);
    assert_eq!(m.messages(), 0);
}

#[test]
fn a_pending_cause_moves_with_the_way_it_is_told() {
    let mut m = Machine::default();
    m.w(reg::IMS, LSC);
    m.w(reg::ICS, LSC);
    assert!(m.line());
    m.set_msi(true);
    assert!(!m.line());
    assert_eq!(m.messages(), 1);
    m.set_msi(true);
    assert_eq!(m.messages(), 0, "enabled already");
    m.set_msi(false);
    assert!(m.line());
    m.r(reg::ICR);
    assert!(!m.line());
    m.set_msi(true);
    assert_eq!(m.messages(), 0, "nothing pending");
}

#[test]
fn messages_keep_the_gap_of_itr() {
    let mut m = Machine::default();
    m.set_msi(true);
    m.w(reg::ITR, 1000);
    m.w(reg::IMS, LSC);
    m.w(reg::ICS, LSC);
    assert_eq!(m.messages(), 1);
    m.r(reg::ICR);
    m.w(reg::ICS, LSC);
    m.sleep(255_999);
    assert_eq!(m.messages(), 0);
    m.sleep(1);
    assert_eq!(m.messages(), 1);
}

#[test]
fn a_reset_takes_pending_causes_with_it() {
    let mut m = Machine::default();
    m.set_msi(true);
    m.w(reg::IMS, LSC);
    m.w(reg::ICS, LSC);
    assert_eq!(m.messages(), 1);
    m.w(reg::CTRL, 1 << 26);
    m.set_msi(false);
    assert!(!m.line());
    assert_eq!(m.messages(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Msi(bool),
    Cause(u32),
    Unmask(u32),
    Mask(u32),
    ReadIcr,
    Clear(u32),
    Receive,
    Itr(u32),
    Rdtr(u32),
    Sleep(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let bits = || prop::sample::select(vec![LSC, RXT0, LSC | RXT0, 0x1_ffff]);
    prop_oneof![
        any::<bool>().prop_map(Step::Msi),
        bits().prop_map(Step::Cause),
        bits().prop_map(Step::Unmask),
        bits().prop_map(Step::Mask),
        Just(Step::ReadIcr),
        bits().prop_map(Step::Clear),
        Just(Step::Receive),
        prop::sample::select(vec![0, 100, 5000]).prop_map(Step::Itr),
        prop::sample::select(vec![0, 10, 1000]).prop_map(Step::Rdtr),
        (0..2_000_000u64).prop_map(Step::Sleep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A pending unmasked cause has been told in the way that is on now, or a timer will tell it;
    /// and an idle device sends nothing.
    #[test]
    fn no_message_is_lost_and_none_is_endless(
        steps in prop::collection::vec(step(), 1..80),
        adaptive in any::<bool>(),
    ) {
        let mut config = Config::new(MAC);
        config.negotiation = Duration::from_millis(10);
        config.moderation = if adaptive { Moderation::Adaptive } else { Moderation::Guest };
        let mut m = Machine::with(config, Wire::default());
        m.rx_on(256, 0x8000);
        let (mut msi, mut told) = (false, false);
        for step in steps {
            match step {
                Step::Msi(on) => {
                    told &= msi == on;
                    msi = on;
                    m.set_msi(on);
                }
                Step::Cause(bits) => m.w(reg::ICS, bits),
                Step::Unmask(bits) => m.w(reg::IMS, bits),
                Step::Mask(bits) => m.w(reg::IMC, bits),
                Step::ReadIcr => {
                    m.r(reg::ICR);
                }
                Step::Clear(bits) => {
                    told = false;
                    m.w(reg::ICR, bits);
                }
                Step::Receive => {
                    m.offer(&[&plain(MAC, 60)]);
                }
                Step::Itr(value) => m.w(reg::ITR, value),
                Step::Rdtr(value) => m.w(reg::RDTR, value),
                Step::Sleep(ns) => m.sleep(ns),
            }
            let pending = m.r(reg::ICS) & m.r(reg::IMS) != 0;
            let messages = m.messages();
            prop_assert!(msi || messages == 0, "a message nobody asked for");
            prop_assert!(!(msi && m.line()), "the pin is not silent");
            prop_assert!(messages <= 1);
            told = pending && (told || messages > 0);
            let heard = if msi { told } else { m.line() };
            prop_assert!(!pending || heard || m.armed().is_some(), "cause lost");
        }
        m.sleep(200_000_000);
        m.r(reg::ICR);
        m.messages();
        m.sleep(1_000_000_000);
        prop_assert_eq!(m.messages(), 0);
        prop_assert_eq!(m.armed(), None);
    }
}
