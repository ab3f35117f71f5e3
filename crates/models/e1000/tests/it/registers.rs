//! Every register: reset value, masks, side effects, widths; and the page about them.

use crate::common::*;
use hypernic_e1000::regs::{REGISTERS, page};
use regs::Access;

/// Registers whose content the device makes up or whose writes act; tested one by one.
const LIVE: [&str; 10] = [
    "STATUS", "EECD", "EERD", "MDIC", "PBA", "SWSM", "WUC", "WUFC", "CSBAL", "CSBAH",
];

/// Compares with the page as it is in the repository.
#[test]
#[cfg_attr(miri, ignore = "reads a file")]
fn the_page_is_what_the_table_says() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/registers/e1000.md"
    );
    let found = std::fs::read_to_string(path).expect("docs/registers/e1000.md");
    assert!(
        found == page(),
        "docs/registers/e1000.md is stale; run `cargo run -p hypernic-e1000 --example registers \
         > docs/registers/e1000.md`"
    );
}

#[test]
fn a_look_finds_what_a_read_would_and_has_no_effect() {
    let mut m = Machine::default();
    for (at, value) in [
        (reg::RCTL, 2),
        (reg::TCTL, 2),
        (reg::IMS, 0x84),
        (reg::ICS, 0x04),
    ] {
        m.w(at, value);
    }
    let registers = a_look_is_a_read_without_effect(&mut m.nic, &m.env);
    assert!(registers > 300, "{registers}");
    let look = peeked(&m.nic, &m.env);
    let icr = look.iter().find(|one| one.name == "ICR").expect("ICR");
    assert_eq!(
        (icr.value & 4, icr.access),
        (4, "RC/W1C"),
        "pending, and not acknowledged"
    );
}

#[test]
fn after_reset_every_register_has_its_reset_value() {
    let mut m = Machine::default();
    for register in REGISTERS {
        m.w(register.offset.into(), !(1 << 26 | 1 << 31));
    }
    m.w(reg::CTRL, 1 << 26);
    for register in REGISTERS.iter().filter(|r| !LIVE.contains(&r.name)) {
        let count = if register.access == Access::Memory {
            0
        } else {
            register.count
        };
        for i in 0..count {
            let at = register.offset + i * register.stride;
            let mac = (at == 0x5400).then_some(0x1200_5452);
            let mac = mac.or((at == 0x5404).then_some(0x8000_5634));
            let want = mac.unwrap_or(register.reset);
            assert_eq!(m.r(at.into()), want, "{}[{i}]", register.name);
        }
    }
    assert_eq!(m.r(0x1000), 0x0010_0030);
}

#[test]
fn writable_bits_keep_and_others_do_not() {
    let mut m = Machine::default();
    let plain = |r: &&regs::Register| r.access == Access::ReadWrite && !LIVE.contains(&r.name);
    for register in REGISTERS.iter().filter(plain) {
        for i in 0..register.count {
            let at = u64::from(register.offset + i * register.stride);
            let mut fixed = None;
            for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, 0xffff_ffffu32] {
                // CTRL.RST would put everything back.
                let pattern = pattern & if at == 0 { !(1 << 26) } else { !0 };
                m.w(at, pattern);
                let got = m.r(at);
                let kept = got & register.mask;
                assert_eq!(kept, pattern & register.mask, "{}[{i}]", register.name);
                let rest = got & !register.mask;
                assert_eq!(*fixed.get_or_insert(rest), rest, "{}[{i}]", register.name);
            }
        }
    }
}

#[test]
fn read_only_registers_and_gaps_ignore_writes() {
    let mut m = Machine::default();
    for register in REGISTERS {
        if matches!(register.access, Access::ReadOnly | Access::ReadClear) {
            let before = m.r(register.offset.into());
            m.w(register.offset.into(), 0xffff_ffff);
            assert_eq!(m.r(register.offset.into()), before, "{}", register.name);
        }
    }
    // Nothing is there at all.
    for at in [0x24, 0x130, 0x7000, 0x8004] {
        m.w(at, 0xffff_ffff);
        assert_eq!(m.r(at), 0);
    }
}

/// What `ethtool -t` does (driver e1000_ethtool.c, e1000_reg_test).
#[test]
fn the_drivers_register_test_passes() {
    let mut m = Machine::default();
    let before = m.r(reg::STATUS) & 0xffff_f833;
    m.w(reg::STATUS, 0xffff_f833);
    assert_eq!(m.r(reg::STATUS) & 0xffff_f833, before);
    let mut patterns = vec![
        (0x28, 0xffff_ffff, 0xffff_ffffu32),
        (0x2c, 0xffff, 0xffff_ffff),
        (0x30, 0xffff, 0xffff_ffff),
        (0x38, 0xffff, 0xffff_ffff),
        (0x2820, 0xffff, 0xffff_ffff),
        (0x2804, 0xffff_ffff, 0xffff_ffff),
        (0x2808, 0xf_ff80, 0xf_ffff),
        (0x2810, 0xffff, 0xffff),
        (0x2818, 0xffff, 0xffff),
        (0x2168, 0xfff8, 0xfff8),
        (0x170, 0xffff, 0xffff),
        (0x410, 0x3fff_ffff, 0x3fff_ffff),
        (0x3804, 0xffff_ffff, 0xffff_ffff),
        (0x3808, 0xf_ff80, 0xf_ffff),
        (0x2800, 0xffff_fff0, 0xffff_ffff),
        (0x178, 0xc000_ffff, 0xffff),
        (0x3800, 0xffff_fff0, 0xffff_ffff),
        (0x3820, 0xffff, 0xffff),
    ];
    patterns.extend((0..16).map(|i| (0x5404 + i * 8, 0x8003_ffff, 0xffff_ffff)));
    patterns.extend((0..128).map(|i| (0x5200 + i * 4, 0xffff_ffff, 0xffff_ffff)));
    for (at, mask, write) in patterns {
        for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, 0xffff_ffff] {
            m.w(at, write & pattern);
            assert_eq!(m.r(at), write & pattern & mask, "{at:#x}");
        }
    }
    for (at, mask, write) in [
        (reg::RCTL, 0xffff_ffff, 0),
        (reg::RCTL, 0x06df_b3fe, 0x003f_fffb),
        (reg::TCTL, 0xffff_ffff, 0),
        (reg::RCTL, 0x06df_b3fe, 0xffff_ffff),
    ] {
        m.w(at, write & mask);
        assert_eq!(m.r(at) & mask, write & mask, "{at:#x}");
    }
}

#[test]
fn accesses_of_any_width_and_alignment_reach_the_same_bytes() {
    let mut m = Machine::default();
    m.w(0x28, 0x4433_2211);
    m.w(0x2c, 0x6655);
    let mut bytes = [0u8; 8];
    m.nic.control.read(&m.env, 0, 0x28, &mut bytes);
    assert_eq!(bytes, [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0, 0]);
    let mut three = [0u8; 3];
    m.nic.control.read(&m.env, 0, 0x2b, &mut three);
    assert_eq!(three, [0x44, 0x55, 0x66]);
    m.nic.control.write(&m.env, 0, 0x29, &[0xaa]);
    assert_eq!(m.r(0x28), 0x4433_aa11);
    m.nic.control.write(&m.env, 0, 0x2a, &[1, 2, 3, 4]);
    assert_eq!(m.r(0x28), 0x0201_aa11);
    assert_eq!(m.r(0x2c), 0x0403);
    m.nic.control.write(&m.env, 0, 0x28, &[9; 8]);
    assert_eq!(m.r(0x28), 0x0909_0909);
    assert_eq!(m.r(0x2c), 0x0909);
    // A part of a register that acts on ones acts on these only.
    m.w(reg::IMS, 0x1_0085);
    m.nic.control.write(&m.env, 0, reg::IMC, &[0x80]);
    assert_eq!(m.r(reg::IMS), 0x1_0005);
}

#[test]
fn accesses_at_and_beyond_the_end_are_harmless() {
    let mut m = Machine::default();
    for at in [0x1_fffe, 0x2_0000, u64::MAX - 3, u64::MAX] {
        let mut data = [0xee; 8];
        m.nic.control.read(&m.env, 0, at, &mut data);
        assert_eq!(data, [0; 8]);
        m.nic.control.write(&m.env, 0, at, &[0xff; 8]);
    }
    for bar in [1, 2, 5, 255] {
        for at in 0..70 {
            for len in [0, 1, 2, 3, 4, 8, 16] {
                m.nic.control.read(&m.env, bar, at, &mut vec![0; len]);
                m.nic.control.write(&m.env, bar, at, &vec![0xff; len]);
            }
        }
    }
    assert!(m.counter("reg_bad_bar") > 0);
}

fn io_write(m: &mut Machine, at: u64, data: &[u8]) {
    m.nic.control.write(&m.env, 1, at, data);
}

fn io_read(m: &mut Machine, at: u64) -> u32 {
    let mut data = [0; 4];
    m.nic.control.read(&m.env, 1, at, &mut data);
    u32::from_le_bytes(data)
}

#[test]
fn the_io_window_reaches_registers_and_resets() {
    let mut m = Machine::default();
    io_write(&mut m, 0, &0xfff0_0038u32.to_le_bytes());
    assert_eq!(io_read(&mut m, 0), 0x38, "bits 31:20 read 0");
    assert_eq!(io_read(&mut m, 4), 0x8100);
    io_write(&mut m, 0, &[1, 2]);
    assert_eq!(io_read(&mut m, 0), 0x38, "short writes are ignored");
    io_write(&mut m, 4, &0x88a8u32.to_le_bytes());
    assert_eq!(m.r(reg::VET), 0x88a8);
    io_write(&mut m, 5, &[0x11]);
    assert_eq!(m.r(reg::VET), 0x11a8);
    // The flash window and beyond: nothing.
    io_write(&mut m, 0, &0x8_0000u32.to_le_bytes());
    assert_eq!(io_read(&mut m, 4), 0);
    // As Linux resets the chip.
    io_write(&mut m, 0, &0u32.to_le_bytes());
    io_write(&mut m, 4, &(1u32 << 26).to_le_bytes());
    assert_eq!(m.r(reg::VET), 0x8100);
    assert_eq!(m.r(reg::CTRL), 0x201, "RST clears itself");
}

#[test]
fn reset_loads_the_address_from_the_eeprom() {
    let mut m = Machine::default();
    m.w(reg::RAL, 0);
    m.w(reg::RAH, 0);
    m.w(reg::CTRL, 1 << 26);
    assert_eq!(m.r(reg::RAL), 0x1200_5452);
    assert_eq!(m.r(reg::RAH), 0x8000_5634);
}

#[test]
fn reset_stops_rings_and_interrupts() {
    let mut m = Machine::default();
    m.tx_on(8);
    m.rx_on(8, 0x8000);
    m.w(reg::IMS, 0xff);
    m.w(reg::ICS, 0x4);
    assert!(m.line());
    m.w(reg::CTRL, 1 << 26);
    assert!(!m.line());
    assert_eq!((m.r(reg::ICR), m.r(reg::IMS)), (0, 0));
    assert_eq!(m.offer(&[&plain(MAC, 60)]), 1, "dropped, not kept");
    assert_eq!(m.counter("rx_disabled"), 1);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    m.tx_desc(0, TX_BUFFERS, legacy(60, EOP | RS));
    m.w(reg::TDT, 1);
    assert!(m.wire.take().is_empty());
}

#[test]
fn eerd_reads_words_in_the_layout_of_the_chip() {
    let mut m = Machine::default();
    let mut sum = 0u16;
    for at in 0..64u32 {
        m.w(reg::EERD, at << 8 | 1);
        let value = m.r(reg::EERD);
        assert_eq!(value & 0xff10, at << 8 | 0x10);
        sum = sum.wrapping_add((value >> 16) as u16);
    }
    assert_eq!(sum, 0xbaba);
}

/// As the drivers do it: request, select, 110b, six address bits, sixteen data bits.
#[test]
fn the_eeprom_is_read_bit_by_bit() {
    let mut m = Machine::default();
    m.w(reg::EECD, 1 << 6);
    assert_eq!(m.r(reg::EECD) & 0x3c0, 0x1c0, "granted, present, 64 words");
    let mut word = |at: u32| {
        m.w(reg::EECD, 0x40);
        m.w(reg::EECD, 0x42);
        for i in (0..9).rev() {
            let di = (0b110 << 6 | at) >> i & 1;
            m.w(reg::EECD, 0x42 | di << 2);
            m.w(reg::EECD, 0x43 | di << 2);
            m.w(reg::EECD, 0x42 | di << 2);
        }
        let mut value = 0u16;
        for _ in 0..16 {
            m.w(reg::EECD, 0x43);
            value = value << 1 | (m.r(reg::EECD) >> 3 & 1) as u16;
            m.w(reg::EECD, 0x42);
        }
        m.w(reg::EECD, 0x40);
        value
    };
    let mac = [word(0), word(1), word(2)];
    assert_eq!(mac, [0x5452, 0x1200, 0x5634]);
    let sum = (0..64).fold(0u16, |sum, at| sum.wrapping_add(word(at)));
    assert_eq!(sum, 0xbaba);
}

#[test]
fn mdic_answers_at_one_address() {
    let mut m = Machine::default();
    assert_eq!(m.phy_read(2), 0x0141);
    m.phy_write(30, 0x8ff0);
    assert_eq!(m.phy_read(30), 0x8ff0);
    m.w(reg::MDIC, 2 << 26 | 2 << 21 | 2 << 16);
    assert_eq!(m.r(reg::MDIC) & 0x5000_0000, 0x5000_0000);
    assert_eq!(m.r(reg::ICR) & 0x200, 0);
    m.w(reg::MDIC, 2 << 26 | 1 << 21 | 2 << 16 | 1 << 29);
    assert_eq!(m.r(reg::ICR) & 0x200, 0x200);
}

#[test]
fn link_needs_cable_negotiation_and_slu() {
    const LU: u32 = 2;
    let mut m = Machine::default();
    assert_eq!(m.r(reg::STATUS) & LU, 0, "SLU is not set");
    m.w(reg::CTRL, 0x241);
    assert_eq!(m.r(reg::STATUS) & 0xc3, 0x83, "1000 full, up");
    assert_eq!(m.r(reg::ICR) & 4, 4);
    // Negotiation takes the link away and brings it back.
    m.phy_write(0, 0x1340);
    assert_eq!(m.r(reg::STATUS) & LU, 0);
    assert_eq!(m.r(reg::ICR) & 4, 4);
    m.sleep(9_999_999);
    assert_eq!(m.r(reg::STATUS) & LU, 0);
    m.sleep(1);
    assert_eq!(m.r(reg::STATUS) & LU, LU);
    assert_eq!(m.r(reg::ICR) & 4, 4);
    assert_eq!(m.phy_read(1) & 0x20, 0x20);
    // The cable.
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.r(reg::STATUS) & LU, 0);
    assert_eq!(m.r(reg::ICR) & 4, 4);
    m.sleep(1_000_000_000);
    assert_eq!(m.r(reg::STATUS) & LU, 0);
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    assert_eq!(m.r(reg::STATUS) & LU, LU);
    // Powered down PHY, as drivers leave it when the interface goes down.
    m.phy_write(0, 0x1940);
    assert_eq!(m.r(reg::STATUS) & LU, 0);
    m.phy_write(0, 0x1140);
    m.sleep(10_000_000);
    assert_eq!(m.r(reg::STATUS) & LU, LU);
    // A hardware reset of the PHY.
    m.w(reg::CTRL, 0x241 | 1 << 31);
    assert_eq!(m.r(reg::STATUS) & LU, 0);
    m.sleep(10_000_000);
    assert_eq!(m.r(reg::STATUS) & LU, LU);
}

#[test]
fn forced_speed_and_duplex_show_in_status() {
    let mut m = Machine::default();
    m.w(reg::CTRL, 1 << 6 | 1 << 11 | 1 << 8 | 1 << 12);
    assert_eq!(m.r(reg::STATUS) & 0xc1, 0x40, "100, half");
}

#[test]
fn statistics_clear_on_read() {
    let mut m = Machine::default();
    m.rx_on(8, 0x8000);
    m.offer(&[&plain(MAC, 60), &plain([0xff; 6], 100)]);
    assert_eq!(m.r(0x4074), 2);
    assert_eq!(m.r(0x4074), 0);
    assert_eq!(m.r(0x4078), 1);
    assert_eq!(m.r(0x40c0), 168);
    assert_eq!(m.r(0x40c4), 0);
    assert_eq!(m.r(0x40c0), 0);
}
