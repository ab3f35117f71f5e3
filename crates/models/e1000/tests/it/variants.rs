//! The 82545EM and the 82544GC: identity and what their drivers look at; and the EEPROM's image.

use crate::common::*;
use hypernic_e1000::{Config, Variant};
use model::Space;

fn machine(variant: Variant) -> Machine {
    Machine::with(Config::of(variant, MAC), Wire::default())
}

/// Linux's register test reads STATUS twice and wants the same; it begins some 10 ms after a reset, and the PHY
/// of the older chip is awake then.
#[test]
fn no_link_comes_up_while_a_driver_tests_registers() {
    for (variant, ms) in [
        (Variant::I82540Em, 10),
        (Variant::I82545Em, 10),
        (Variant::I82544Gc, 500),
    ] {
        let mut m = machine(variant);
        let ctrl = m.r(reg::CTRL);
        m.w(reg::CTRL, ctrl | 1 << 6);
        m.phy_write(0, 0x1200);
        m.sleep(ms * 1_000_000 - 1);
        assert_eq!(m.r(reg::STATUS) & 2, 0, "{variant:?}");
        m.sleep(1);
        assert_eq!(m.r(reg::STATUS) & 2, 2, "{variant:?}");
    }
}

#[test]
fn each_has_its_identity() {
    let all = [Variant::I82540Em, Variant::I82545Em, Variant::I82544Gc];
    let seen = all.map(|variant| {
        let identity = machine(variant).nic.identity;
        assert_eq!(identity.vendor, 0x8086);
        assert_eq!(identity.model, variant.name());
        let bars: Vec<_> = identity.bars.iter().map(|b| (b.index, b.space)).collect();
        (identity.device, bars)
    });
    assert_eq!(
        seen,
        [
            (0x100e, vec![(0, Space::Memory32), (1, Space::Io)]),
            (0x100f, vec![(0, Space::Memory64), (4, Space::Io)]),
            (0x100c, vec![(0, Space::Memory32), (1, Space::Io)]),
        ]
    );
}

#[test]
fn each_driver_finds_its_phy_bus_and_eeprom() {
    for (variant, phy, bus) in [
        (Variant::I82540Em, 0x0c20, 0),
        (Variant::I82545Em, 0x0c20, 0xb000),
        (Variant::I82544Gc, 0x0c30, 0),
    ] {
        let mut m = machine(variant);
        assert_eq!(m.phy_read(2), 0x0141);
        assert_eq!(m.phy_read(3) & 0xfff0, phy, "{variant:?}");
        assert_eq!(m.r(reg::STATUS) & 0xf800, bus, "{variant:?}");
        m.w(reg::EERD, 0x0d << 8 | 1);
        assert_eq!(m.r(reg::EERD) >> 16, variant.device().into());
        // The MAC's reset by the I/O window, as Linux does it.
        let io = m.nic.identity.bars[1].index;
        m.w(reg::VET, 1);
        m.nic.control.write(&m.env, io, 0, &[0; 4]);
        m.nic
            .control
            .write(&m.env, io, 4, &(1u32 << 26).to_le_bytes());
        assert_eq!(m.r(reg::VET), 0x8100);
        assert_eq!(m.counter("reg_bad_bar"), 0);
    }
}

/// Driver e1000_hw.c, e1000_reset_hw: the 82544 is told to load its EEPROM again.
#[test]
fn ee_rst_loads_the_eeprom_again() {
    let mut m = machine(Variant::I82544Gc);
    m.w(reg::RAL, 0);
    m.w(reg::RAH, 0);
    let ctrl_ext = m.r(0x18);
    m.w(0x18, ctrl_ext | 1 << 13);
    assert_eq!(m.r(0x18), ctrl_ext, "clears itself");
    assert_eq!(m.r(reg::RAL), 0x1200_5452);
    assert_eq!(m.r(reg::RAH), 0x8000_5634);
}

/// A command as 93C46 takes it, without asking for the EEPROM first (as on the 82544).
fn microwire(m: &mut Machine, bits: u32, count: u32) {
    m.w(reg::EECD, 2);
    for i in (0..count).rev() {
        let di = (bits >> i & 1) << 2;
        for clock in [0, 1, 0] {
            m.w(reg::EECD, 2 | di | clock);
        }
    }
    m.w(reg::EECD, 0);
}

#[test]
fn an_image_goes_on_in_another_nic() {
    let mut m = machine(Variant::I82540Em);
    let first = m.nic.control.take_nvm().expect("a new image");
    assert_eq!(first[..6], MAC);
    assert_eq!(m.nic.control.take_nvm(), None);
    microwire(&mut m, 0b1_0011_0000, 9);
    microwire(&mut m, (0b101 << 6) << 16 | 0x0a02, 25);
    let image = m.nic.control.take_nvm().expect("changed");
    assert_eq!(image[..2], [0x02, 0x0a]);
    assert_eq!(image[2..], first[2..]);
    let config = Config {
        nvm: Some(image.try_into().expect("128 bytes")),
        ..Config::new([2; 6])
    };
    let mut again = Machine::with(config, Wire::default());
    assert_eq!(again.r(reg::RAL), 0x1200_0a02);
    assert_eq!(again.nic.control.take_nvm(), None, "known already");
}

#[test]
fn an_erased_eeprom_loads_nothing() {
    let mut m = machine(Variant::I82540Em);
    microwire(&mut m, 0b1_0011_0000, 9);
    microwire(&mut m, 0b1_0010_0000, 9);
    m.w(reg::CTRL, 1 << 26);
    assert_eq!((m.r(reg::RAL), m.r(reg::RAH)), (0, 0));
}

#[test]
fn the_apm_bit_is_where_each_driver_looks_for_it() {
    for (variant, word, bit) in [
        (Variant::I82540Em, 0x24, 0x0400),
        (Variant::I82544Gc, 0x0f, 0x0004),
    ] {
        let mut m = machine(variant);
        assert_eq!(m.r(0x5800), 0);
        microwire(&mut m, 0b1_0011_0000, 9);
        microwire(&mut m, (0b101 << 6 | word) << 16 | bit, 25);
        m.w(reg::CTRL, 1 << 26);
        assert_eq!(m.r(0x5800), 1, "WUC.APME");
    }
}

#[test]
fn the_partner_offers_pause_when_told_to() {
    for pause in [false, true] {
        let config = Config {
            pause,
            ..Config::new(MAC)
        };
        let mut m = Machine::with(config, Wire::default());
        assert_eq!(m.phy_read(5) & 0x0c00 != 0, pause);
        m.w(reg::EERD, 0x0f << 8 | 1);
        assert_eq!(m.r(reg::EERD) >> 16 & 0x3000 != 0, pause);
    }
}

#[test]
fn the_phy_interrupts_through_its_own_cause() {
    let mut m = machine(Variant::I82540Em);
    m.w(reg::CTRL, 0x241);
    m.r(reg::ICR);
    m.phy_write(18, 1 << 10);
    assert_eq!(m.r(reg::ICR), 0);
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.r(reg::ICR), 1 << 12 | 1 << 2);
    assert_eq!(m.phy_read(19) & 1 << 10, 1 << 10);
    assert_eq!(m.phy_read(19), 0);
}

#[test]
fn forced_speed_shows_beside_what_is_detected() {
    let mut m = machine(Variant::I82540Em);
    // SLU, FRCSPD to 100 while the PHY runs at 1000.
    m.w(reg::CTRL, 1 << 6 | 1 << 11 | 1 << 8);
    assert_eq!(m.r(reg::STATUS) & 0x3c0, 0x240);
    // The PHY forced to 10 half, the MAC following it (ASDE).
    m.phy_write(0, 0);
    m.w(reg::CTRL, 1 << 6 | 1 << 5);
    assert_eq!(m.r(reg::STATUS) & 0x3c3, 2, "10, half, up");
}
