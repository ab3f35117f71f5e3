//! Saving and loading.

use crate::common::*;
use hypernic_r8169::state::{Held, KIND, Phase, V1, VERSION};
use hypernic_r8169::{Config, new};
use model::{Nic, StateError};
use proptest::prelude::*;
use snapshot::{open, seal};

fn read(blob: &[u8]) -> V1 {
    let saved = open(KIND, blob).expect("whole");
    assert_eq!(saved.version, VERSION);
    saved.decode().expect("the type")
}

/// Another NIC in the place of the one of `m`, with its state, at another time of another clock.
fn moved(m: &mut Machine, later: u64) {
    let blob = m.save();
    let Nic {
        identity,
        control,
        transmit,
        receive,
        revision,
    } = new(Config::new([2, 0, 0, 0, 0, 9]));
    m.nic = Nic {
        identity,
        control,
        transmit,
        receive,
        revision,
    };
    m.time.now.store(later, std::sync::atomic::Ordering::SeqCst);
    m.nic.control.load(&m.env, &blob).expect("a good state");
    m.work();
}

/// One that has done something of everything.
fn used() -> Machine {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.w8(reg::CFG9346, 0xc0);
    m.w32(reg::IDR0, 0x1234_5602);
    m.w8(reg::CONFIG1, 0x11);
    m.w8(reg::CFG9346, 0);
    m.w16(reg::CPLUS_CMD, 0x2061);
    m.w16(reg::IMR, ROK | TOK);
    m.w32(reg::EPHYAR, 1 << 31 | 0x03 << 16 | 0x1234);
    m.phy_write(0x1f, 3);
    m.phy_write(0x12, 0xf49f);
    m.w32(reg::TIMER, 0);
    m.w32(reg::TIMER_INT, 2000);
    m.offer(&[
        &plain([2, 0x56, 0x34, 0x12, 0, 0], 100),
        &plain([0xff; 6], 60),
    ]);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    m.sleep(8000);
    m
}

/// A file with the state of a chip that a release has saved.
pub fn golden(chip: &str, m: &Machine) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden");
    model_testkit::golden(format!("{folder}/{chip}-v1.bin"), &m.save())
}

#[test]
fn a_state_of_version_1_is_loaded_by_every_later_program() {
    let mut m = used();
    let blob = golden("8168c", &m);
    m.nic.control.load(&m.env, &blob).expect("its own state");
    assert_eq!(m.phy_read(0x12), 0xf49f);
    m.send(1, &plain(PEER, 101), BOTH, 0);
    assert_eq!(m.wire.take().len(), 2);
    assert_eq!(m.r32(reg::IDR0), 0x1234_5602);
}

#[test]
fn all_that_a_guest_can_see_goes_along() {
    let mut m = used();
    let all = |m: &mut Machine| -> Vec<u32> { (0..64).map(|i| m.r32(4 * i)).collect() };
    let before = all(&mut m);
    assert_eq!(before[0x48 / 4], 1000);
    moved(&mut m, 77_000_000_000);
    assert_eq!(all(&mut m), before);
    assert!(m.line());
    assert_eq!(m.phy_read(0x12), 0xf49f);
    m.take_isr();
    // The rings go on where they were.
    m.send(1, &plain(PEER, 101), BOTH, 0);
    assert_eq!(m.wire.take().len(), 2);
    m.offer(&[&plain([0xff; 6], 60)]);
    assert_eq!(m.rx_words(2).0 & OWN, 0);
    // And so does the timer.
    m.take_isr();
    m.sleep(7999);
    assert_eq!(m.r16(reg::ISR) & TIMEOUT, 0);
    m.sleep(1);
    assert_eq!(m.r16(reg::ISR) & TIMEOUT, TIMEOUT);
}

#[test]
fn deadlines_go_along() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.w16(reg::MITIGATE, 0x00f0);
    m.offer(&[&plain(MAC, 100)]);
    m.phy_write(0, 0x1200);
    m.take_isr();
    // The link that went has told what waited.
    moved(&mut m, 5_000_000_000);
    assert_eq!(m.r8(reg::PHY_STATUS), 0);
    m.sleep(10_000_000);
    assert_eq!(
        (m.r8(reg::PHY_STATUS), m.take_isr()),
        (0x13, LINK_CHG | ROK)
    );
    m.offer(&[&plain(MAC, 100)]);
    m.sleep(70_000);
    moved(&mut m, 9_000_000_000);
    m.sleep(4_999);
    assert_eq!(m.r16(reg::ISR), 0);
    m.sleep(1);
    assert_eq!(m.r16(reg::ISR), ROK);
}

#[test]
fn what_waited_in_the_ring_is_sent_afterwards() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.wire.set_room(0);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    m.wire.unlimit();
    moved(&mut m, 3_000_000_000);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn a_state_of_something_else_is_refused() {
    let mut m = Machine::new();
    let blob = m.save();
    for cut in [0, 10, blob.len() - 1] {
        assert!(m.nic.control.load(&m.env, &blob[..cut]).is_err());
    }
    let mut newer = blob.clone();
    newer[16] = 2;
    assert!(m.nic.control.load(&m.env, &newer).is_err());
}

/// One impossible field each, and the one that the refusal names.
#[test]
fn impossible_states_are_refused_by_the_field() {
    type Spoil = fn(&mut V1);
    let cases: [(&str, Spoil); 24] = [
        ("registers", |s| s.registers.truncate(7)),
        ("registers", |s| s.registers.push(0)),
        ("IDR4_5", |s| s.registers[1] = 0x1_0000),
        ("TCR", |s| {
            s.registers
                .iter_mut()
                .for_each(|w| *w = if *w == 0x3c40_0000 { 0 } else { *w })
        }),
        ("statistics", |s| s.statistics[3] = 1 << 62),
        ("ephy", |s| s.ephy.truncate(7)),
        ("eeprom.phase", |s| {
            s.eeprom.phase = Phase::Command { bits: 8, value: 0 }
        }),
        ("eeprom.phase", |s| {
            s.eeprom.phase = Phase::Command { bits: 3, value: 8 }
        }),
        ("eeprom.phase", |s| {
            s.eeprom.phase = Phase::Read { at: 64, left: 1 }
        }),
        ("eeprom.phase", |s| {
            s.eeprom.phase = Phase::Read { at: 0, left: 0 }
        }),
        ("phy.registers", |s| s.phy.registers.truncate(7)),
        ("phy.registers", |s| s.phy.registers[3] = 0),
        ("phy.negotiated", |s| s.phy.cable = false),
        ("link_up", |s| s.link_up = false),
        ("tx_next", |s| s.tx_next = 1024),
        ("rx_next", |s| s.rx_next = 1024),
        ("interrupts.isr", |s| s.interrupts.isr = 1 << 9),
        ("interrupts.imr", |s| s.interrupts.imr = 1 << 9),
        ("interrupts.mbits", |s| s.interrupts.mbits = 0),
        ("interrupts.elapsed", |s| s.interrupts.elapsed = 8 << 32),
        ("interrupts.held", |s| {
            s.interrupts.rx = Held {
                frames: 1,
                until: None,
            }
        }),
        ("interrupts.held", |s| {
            s.interrupts.tx = Held {
                frames: 61,
                until: Some(1),
            }
        }),
        ("interrupts.throttled", |s| {
            s.interrupts.throttled = Some(i64::MAX)
        }),
        ("adaptive.cost", |s| s.interrupts.adaptive.cost = u64::MAX),
    ];
    let mut m = Machine::new();
    m.rings(8, 1536);
    let good = m.save();
    for (field, spoil) in cases {
        let mut state = read(&good);
        spoil(&mut state);
        match m.nic.control.load(&m.env, &seal(&state)) {
            Err(StateError::Field { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
        assert_eq!(m.save(), good, "{field}: nothing has changed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]
    /// After any accesses a state is loaded, and saved again it is the same.
    #[test]
    fn every_state_that_is_saved_is_loaded(
        steps in proptest::collection::vec((0u64..256, any::<u32>(), 1usize..5, 0u64..3_000_000), 0..40),
    ) {
        let mut m = Machine::new();
        m.rings(4, 1536);
        for (at, value, width, pause) in steps {
            let data = value.to_le_bytes();
            m.nic.control.write(&m.env, 2, at, &data[..width]);
            m.work();
            m.offer(&[&plain(MAC, 100)]);
            m.sleep(pause);
        }
        let before = read(&m.save());
        moved(&mut m, 1_000_000_000_000);
        let after = read(&m.save());
        prop_assert_eq!(&after.registers, &before.registers);
        prop_assert_eq!(&after.phy, &before.phy);
        prop_assert_eq!(after.interrupts, before.interrupts);
        prop_assert_eq!((after.tx_next, after.rx_next), (before.tx_next, before.rx_next));
    }
}
