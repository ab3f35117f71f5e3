//! Interrupts as drivers meet them: the interrupt test of `ethtool -t` in each way there is, vectors
//! with automatic masks, moderation; and that nothing pending is ever forgotten.

use crate::common::*;
use proptest::prelude::*;

/// Causes that the driver's self-test sets one by one (`igb_intr_test`).
const TESTED: u32 = 0x77d4_fbfd;
const INTA: u32 = 1 << 31;
const VALID: u32 = 0x80;

/// How the guest is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Pin,
    Msi,
    Msix,
}

fn machine(way: Way) -> Machine {
    let mut m = Machine::default();
    m.pci(way == Way::Msi, way == Way::Msix);
    m
}

/// Runs the handler of the self-test if the guest was interrupted. Returns what it read of ICR.
fn handle(m: &mut Machine, way: Way) -> u32 {
    let told = match way {
        Way::Pin => m.line(),
        Way::Msi => m.messages() > 0,
        Way::Msix => {
            let vectors = m.vectors();
            assert!(vectors.iter().all(|v| *v == 0));
            !vectors.is_empty()
        }
    };
    if told { m.r(reg::ICR) } else { 0 }
}

#[test]
fn the_drivers_interrupt_test_passes_in_every_way() {
    for way in [Way::Pin, Way::Msi, Way::Msix] {
        let mut m = machine(way);
        // What newer drivers do before it with MSI-X.
        m.w(reg::IVAR_MISC, VALID << 8);
        m.w(reg::EIMS, 1);
        m.w(reg::IMC, !0);
        for bit in (0..31).map(|i| 1 << i).filter(|bit| TESTED & bit != 0) {
            m.w(reg::ICR, !0);
            m.w(reg::IMC, bit);
            m.w(reg::ICS, bit);
            assert_eq!(handle(&mut m, way) & bit, 0, "{way:?} {bit:#x} masked");
            m.w(reg::ICR, !0);
            m.w(reg::IMS, bit);
            m.w(reg::ICS, bit);
            let seen = handle(&mut m, way);
            assert_eq!(seen & (bit | INTA), bit | INTA, "{way:?} {bit:#x}");
            m.w(reg::ICR, !0);
            m.w(reg::IMC, !bit);
            m.w(reg::ICS, !bit);
            assert_eq!(handle(&mut m, way) & bit, 0, "{way:?} {bit:#x} others");
        }
        m.w(reg::IMC, !0);
        m.w(reg::ICR, !0);
        assert!(!m.line());
    }
}

/// The others are reserved: 10 (GPHY) came with the 82580.
#[test]
fn causes_the_chip_has_not_are_neither_set_nor_enabled() {
    let mut m = machine(Way::Pin);
    m.w(reg::ICS, !TESTED);
    m.w(reg::IMS, !TESTED);
    assert_eq!((m.r(reg::ICS), m.r(reg::IMS)), (0, 0));
    assert!(!m.line());
}

/// GPIE, IVAR, EIAC, EIAM and EIMS as `igb_configure_msix` and `igb_irq_enable` set them: vector 0
/// for everything else, vector q + 1 for the queues q.
fn vectors(m: &mut Machine) {
    m.w(reg::GPIE, 1 << 31 | 1 << 30 | 1 << 4 | 1);
    m.w(reg::IVAR_MISC, VALID << 8);
    for queue in 0..8u32 {
        let entry = VALID | (queue + 1);
        m.w(
            reg::IVAR + 4 * u64::from(queue),
            entry | entry << 8 | entry << 16 | entry << 24,
        );
    }
    m.w(reg::EIAC, 0x1ff);
    m.w(reg::EIAM, 0x1ff);
    m.w(reg::EIMS, 0x1ff);
    m.w(reg::IMS, 4);
}

#[test]
fn a_vector_speaks_once_until_its_mask_is_opened() {
    let mut m = machine(Way::Msix);
    vectors(&mut m);
    m.w(reg::EICS, 1 << 3);
    assert_eq!(m.vectors(), [3]);
    assert_eq!(m.r(reg::EIMS), 0x1ff & !(1 << 3), "masked by itself");
    assert_eq!(m.r(reg::EICR), 0, "cleared by itself");
    m.w(reg::EICS, 1 << 3);
    m.w(reg::EICS, 1 << 3);
    assert_eq!(m.vectors(), []);
    m.w(reg::EIMS, 1 << 3);
    assert_eq!(m.vectors(), [3], "what came meanwhile");
    m.w(reg::EIMS, 1 << 3);
    assert_eq!(m.vectors(), [], "and nothing else");
}

#[test]
fn link_changes_come_by_the_other_vector() {
    let mut m = machine(Way::Msix);
    vectors(&mut m);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | 1 << 6);
    assert_eq!(m.vectors(), [0]);
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.vectors(), [], "masked until the driver has looked");
    assert_eq!(m.r(reg::ICR) & 4, 4);
    assert_eq!(m.r(reg::ICR) & 4, 0);
    m.w(reg::EIMS, 1);
    assert_eq!(m.vectors(), [], "it has");
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    assert_eq!(m.vectors(), [0]);
    assert_eq!(m.r(0x4100), 2, "IAC");
}

#[test]
fn moderation_keeps_a_gap_and_forgets_nothing() {
    let mut m = machine(Way::Msix);
    vectors(&mut m);
    // 49 us, as the driver's 20000 a second, for vector 2.
    m.w(reg::EITR + 8, 196 | 1 << 31);
    m.w(reg::EICS, 4);
    assert_eq!(m.vectors(), [2]);
    m.w(reg::EIMS, 4);
    m.w(reg::EICS, 4);
    m.w(reg::EICS, 2);
    assert_eq!(m.vectors(), [1], "another vector has a gap of its own");
    m.sleep(48_999);
    assert_eq!(m.vectors(), []);
    m.sleep(1);
    assert_eq!(m.vectors(), [2]);
}

#[test]
fn reading_icr_masks_what_iam_says() {
    let mut m = machine(Way::Msi);
    m.w(reg::IMS, 0x94);
    m.w(reg::IAM, 0x94);
    m.w(reg::ICS, 0x80);
    assert_eq!(m.messages(), 1);
    assert_eq!(m.r(reg::ICR), 0x80 | INTA);
    assert_eq!(m.r(reg::IMS), 0);
    m.w(reg::ICS, 0x80);
    assert_eq!(m.messages(), 0);
    m.w(reg::IMS, 0x94);
    assert_eq!(m.messages(), 1);
    // Nothing asserted: nothing cleared, nothing masked.
    m.w(reg::ICR, !0);
    m.w(reg::IMS, 4);
    m.w(reg::ICS, 0x80);
    assert_eq!(m.r(reg::ICR), 0x80);
    assert_eq!(m.r(reg::ICR), 0x80);
    assert_eq!(m.r(reg::IMS), 4);
}

#[test]
fn the_old_addresses_are_the_same_registers() {
    let mut m = machine(Way::Pin);
    m.w(0xd0, 0x10);
    m.w(0xc8, 0x10);
    assert!(m.line());
    assert_eq!(m.r(reg::IMS), 0x10);
    assert_eq!(m.r(0xc0), 0x10 | INTA);
    assert!(!m.line());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64, u32),
    Read(u64),
    Pass(u64),
    Pci(bool, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let registers = [
        reg::ICR,
        reg::ICS,
        reg::IMS,
        reg::IMC,
        reg::IAM,
        reg::EICR,
        reg::EICS,
        reg::EIMS,
        reg::EIMC,
        reg::EIAC,
        reg::EIAM,
        reg::EITR,
        reg::EITR + 4,
        reg::IVAR,
        reg::IVAR_MISC,
        reg::GPIE,
    ];
    let at = prop::sample::select(registers.to_vec());
    let value = prop_oneof![any::<u32>(), (0u32..32).prop_map(|bit| 1 << bit)];
    let step = prop_oneof![
        6 => (at.clone(), value).prop_map(|(at, value)| Step::Write(at, value)),
        2 => at.prop_map(Step::Read),
        1 => (0u64..10_000_000).prop_map(Step::Pass),
        1 => any::<(bool, bool)>().prop_map(|(msi, msix)| Step::Pci(msi, msix)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever was done before: what is pending and not masked reaches the guest in the end, and a
    /// device at rest says nothing.
    #[test]
    fn nothing_pending_is_forgotten_and_nothing_is_said_at_rest(steps in steps()) {
        let mut m = machine(Way::Msix);
        vectors(&mut m);
        for step in steps {
            match step {
                Step::Write(at, value) => m.w(at, value),
                Step::Read(at) => { m.r(at); }
                Step::Pass(nanos) => m.sleep(nanos),
                Step::Pci(msi, msix) => m.pci(msi, msix),
            }
        }
        m.sleep(20_000_000);
        m.vectors();
        m.messages();
        m.sleep(20_000_000);
        prop_assert_eq!(m.vectors(), Vec::<u16>::new());
        prop_assert_eq!(m.messages(), 0);
        // The driver starts anew.
        for (at, value) in [(reg::IAM, 0), (reg::IMC, !0), (reg::EIMC, !0), (reg::ICR, !0), (reg::EICR, !0)] {
            m.w(at, value);
        }
        m.pci(false, true);
        vectors(&mut m);
        m.sleep(20_000_000);
        m.vectors();
        for vector in [0u16, 1] {
            if vector == 0 {
                m.r(reg::ICR);
                m.w(reg::EIMS, 1);
                m.w(reg::ICS, 4);
            } else {
                m.w(reg::EICS, 2);
            }
            m.sleep(20_000_000);
            prop_assert_eq!(m.vectors(), vec![vector]);
        }
    }
}
