//! Registers: what Linux and the other drivers expect to find, lanes, locks, and the page about them.

use crate::common::*;
use hypernic_r8169::regs::{REGISTERS, page};
use model::ResetKind;

#[test]
#[cfg_attr(miri, ignore = "reads a file")]
fn the_page_is_what_the_table_says() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/registers/r8169.md"
    );
    let found = std::fs::read_to_string(path).expect("docs/registers/r8169.md");
    assert!(
        found == page(),
        "docs/registers/r8169.md is stale; run `cargo run -p hypernic-r8169 --example registers \
         > docs/registers/r8169.md`"
    );
}

/// `rtl8169_get_mac_version`: this is VER_22; FreeBSD's `8168C_SPIN2`.
#[test]
fn the_chip_is_an_8168c_and_no_write_changes_that() {
    let mut m = Machine::new();
    for value in [0, 0x0300_0700, u32::MAX] {
        m.w32(reg::TX_CONFIG, value);
        let config = m.r32(reg::TX_CONFIG);
        assert_eq!(config >> 20 & 0xfcf, 0x3c4);
        assert_eq!(config & 0x7cc0_0000, 0x3c40_0000);
        assert_eq!(config & 0x0300_0700, value & 0x0300_0700);
    }
}

#[test]
fn the_bus_finds_what_drivers_ask_for() {
    let m = Machine::new();
    let id = &m.nic.identity;
    assert_eq!((id.vendor, id.device, id.revision), (0x10ec, 0x8168, 2));
    let space = id.config().build().expect("possible");
    assert_eq!(space.len(), 4096);
    // Linux takes the first memory BAR, FreeBSD BAR 2 or 0, and MSI-X from BAR 4.
    assert_eq!(space.read_u16(0x10) & 1, 1);
    for bar in [0x18, 0x20] {
        assert_eq!(space.read_u16(bar) & 7, 4, "64-bit memory");
    }
    let mut chain = Vec::new();
    let mut at = u64::from(space.read_u16(0x34));
    while at != 0 {
        let [cap, next] = space.read_u16(at).to_le_bytes();
        chain.push((at, cap));
        at = next.into();
    }
    chain.sort_unstable();
    assert_eq!(chain, [(0x40, 1), (0x50, 5), (0x70, 0x10), (0xb0, 0x11)]);
    // MSI with 64-bit addresses, one vector, no masks.
    assert_eq!(space.read_u16(0x52) & 0x01fe, 0x80);
    // Table in BAR 4.
    assert_eq!(space.read_u16(0xb4) & 7, 4);
}

#[test]
fn the_address_is_there_and_changes_only_unlocked() {
    let mut m = Machine::new();
    let mac = |m: &mut Machine| -> Vec<u8> { (0..6).map(|i| m.r8(reg::IDR0 + i)).collect() };
    assert_eq!(mac(&mut m), MAC);
    m.w32(reg::IDR4, 0x0605);
    m.w32(reg::IDR0, 0x0403_0202);
    assert_eq!(mac(&mut m), MAC);
    assert_eq!(m.counter("locked_writes"), 2);
    m.w8(reg::CFG9346, 0xc0);
    m.w32(reg::IDR4, 0x0605);
    m.w32(reg::IDR0, 0x0403_0202);
    m.w8(reg::CFG9346, 0);
    assert_eq!(mac(&mut m), [2, 2, 3, 4, 5, 6]);
    // RST keeps it, a power-up does not, nor does loading it anew.
    m.w8(reg::CHIP_CMD, 0x10);
    assert_eq!(mac(&mut m), [2, 2, 3, 4, 5, 6]);
    m.w8(reg::CFG9346, 0x40);
    assert_eq!(m.r8(reg::CFG9346), 0);
    assert_eq!(mac(&mut m), MAC);
    m.w8(reg::CFG9346, 0xc0);
    m.w32(reg::IDR0, 0);
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!(mac(&mut m), MAC);
}

#[test]
fn configuration_changes_only_unlocked() {
    let mut m = Machine::new();
    m.w8(reg::CONFIG1, 0x11);
    m.w8(reg::CONFIG3, 0x20);
    assert_eq!((m.r8(reg::CONFIG1), m.r8(reg::CONFIG3)), (0, 0));
    // Not even together with what unlocks it.
    m.w32(reg::CFG9346, 0x1111_11c0);
    assert_eq!(m.r8(reg::CONFIG1), 0);
    m.w8(reg::CONFIG1, 0x11);
    m.w8(reg::CONFIG3, 0x20);
    m.w8(reg::CFG9346, 0);
    m.w8(reg::CONFIG1, 0);
    assert_eq!((m.r8(reg::CONFIG1), m.r8(reg::CONFIG3)), (0x11, 0x20));
}

#[test]
fn no_read_changes_anything() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.w16(reg::IMR, 0xffff);
    m.offer(&[&plain(MAC, 100)]);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    let all = |m: &mut Machine| -> Vec<u32> { (0..64).map(|i| m.r32(4 * i)).collect() };
    let before = all(&mut m);
    let (rises, isr) = (m.rises(), m.r16(reg::ISR));
    assert_eq!(isr & (ROK | TOK), ROK | TOK);
    for at in 0..256 {
        m.r8(at);
    }
    for at in 0..255 {
        m.r16(at);
    }
    assert_eq!(all(&mut m), before);
    assert_eq!((m.rises(), m.line()), (rises, true));
}

/// Both windows, every width and every alignment.
#[test]
fn every_access_reaches_its_bytes_and_no_others() {
    let mut m = Machine::new();
    let places: [u64; 6] = [reg::MAR0, reg::MAR4, 0x28, 0x2c, 0xd0, 0xf0];
    for bar in [0, 2] {
        for base in places {
            for width in [1usize, 2, 4, 8] {
                for shift in 0..4u64 {
                    m.w32(base, 0);
                    let mut fixed = [0; 4];
                    m.nic.control.read(&m.env, bar, base, &mut fixed);
                    let data: Vec<u8> = (1..=width as u8).map(|i| i * 0x11).collect();
                    m.nic.control.write(&m.env, bar, base + shift, &data);
                    let mut got = [0; 4];
                    m.nic.control.read(&m.env, bar, base, &mut got);
                    let mask = if base == 0x28 {
                        [0, 0xff, 0xff, 0xff]
                    } else {
                        [0xff; 4]
                    };
                    for i in 0..4usize {
                        let written = i.checked_sub(shift as usize).and_then(|at| data.get(at));
                        assert_eq!(
                            got[i],
                            written.unwrap_or(&0) & mask[i],
                            "{base:x} {width} {shift}"
                        );
                        let mut one = [0];
                        m.nic.control.read(&m.env, bar, base + i as u64, &mut one);
                        assert_eq!(one[0], got[i]);
                    }
                }
            }
        }
    }
    // Beyond the registers there is nothing, and nothing wraps.
    for at in [0x100, 0xffc, u64::MAX - 2] {
        m.w32(at, u32::MAX);
        assert_eq!(m.r32(at), 0);
    }
    let mut data = [0xee; 8];
    m.nic.control.read(&m.env, 4, 0, &mut data);
    assert_eq!(data, [0; 8]);
    m.nic.control.write(&m.env, 4, 0, &[0xff; 8]);
}

#[test]
fn what_keeps_its_value_keeps_its_writable_bits() {
    let mut m = Machine::new();
    m.w8(reg::CFG9346, 0xc0);
    let plain = |r: &&regs::Register| {
        r.access == regs::Access::ReadWrite
            && !["CR", "EECR_CONFIG", "PHY_STATUS", "CSBAL", "CSBAH"].contains(&r.name)
    };
    let mut seen = 0;
    for register in REGISTERS.iter().filter(plain) {
        for i in 0..register.count {
            let at = u64::from(register.offset + i * register.stride);
            for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, u32::MAX] {
                m.w32(at, pattern);
                let want = register.reset & !register.mask | pattern & register.mask;
                assert_eq!(m.r32(at), want, "{}[{i}]", register.name);
            }
        }
        seen += 1;
    }
    assert!(seen > 20);
}

/// iPXE takes the chip for one of gigabit if this reads back.
#[test]
fn the_probe_of_ipxe_finds_a_gigabit_chip() {
    let mut m = Machine::new();
    m.w16(reg::RX_MAX_SIZE, 1530);
    assert_eq!(m.r16(reg::RX_MAX_SIZE), 1530);
}

#[test]
fn the_phy_is_an_8211b_with_pages() {
    let mut m = Machine::new();
    assert_eq!((m.phy_read(2), m.phy_read(3)), (0x001c, 0xc912));
    // As `rtl8168c_3_hw_phy_config` goes from page to page.
    for (page, at, value) in [(1, 0x12, 0x2300), (2, 0x16, 0x0f0a), (3, 0x12, 0xf49f)] {
        m.phy_write(0x1f, page);
        m.phy_write(at, value);
    }
    for (page, at, value) in [(1, 0x12, 0x2300), (2, 0x16, 0x0f0a), (3, 0x12, 0xf49f)] {
        m.phy_write(0x1f, page);
        assert_eq!(m.phy_read(0x1f), page);
        assert_eq!(m.phy_read(at), value);
    }
    m.phy_write(0x1f, 0);
    assert_eq!(m.phy_read(0x12), 0);
    assert_eq!(m.phy_read(3), 0xc912);
    m.phy_write(3, 0);
    assert_eq!(m.phy_read(3), 0xc912);
}

/// What the PHY says when the link stands: gigabit, full duplex.
#[test]
fn the_link_is_negotiated_and_told() {
    let mut m = Machine::new();
    assert_eq!(m.r8(reg::PHY_STATUS), 0x13);
    m.w16(reg::IMR, LINK_CHG);
    // Reset: it clears itself, the link goes and comes.
    m.phy_write(0, 0x8000);
    assert_eq!(m.phy_read(0), 0x1140);
    assert_eq!(m.phy_read(1) & 0x24, 0);
    assert_eq!(m.r8(reg::PHY_STATUS), 0);
    assert_eq!(m.take_isr(), LINK_CHG);
    m.sleep(10_000_000);
    assert!(m.line());
    assert_eq!(m.take_isr(), LINK_CHG);
    assert_eq!(m.phy_read(1) & 0x24, 0x24, "complete, and up");
    assert_eq!(m.phy_read(5) & 0x01e0, 0x01e0);
    assert_eq!(m.phy_read(10) & 0x3800, 0x3800);
    assert_eq!(m.r8(reg::PHY_STATUS), 0x13);
    // 100 Mb/s only, then nothing, then forced.
    m.phy_write(9, 0);
    m.phy_write(0, 0x1200);
    m.sleep(10_000_000);
    assert_eq!(m.r8(reg::PHY_STATUS), 0x0b);
    m.phy_write(4, 1);
    m.phy_write(0, 0x1200);
    m.sleep(10_000_000);
    assert_eq!(m.r8(reg::PHY_STATUS), 0);
    m.phy_write(0, 0x0100);
    assert_eq!(m.r8(reg::PHY_STATUS), 0x07, "10 Mb/s, full");
    // Asleep, and the cable.
    m.phy_write(0, 0x0900);
    assert_eq!(m.r8(reg::PHY_STATUS), 0);
    m.phy_write(0, 0x1000);
    m.phy_write(4, 0x01e1);
    m.sleep(10_000_000);
    assert_eq!(m.r8(reg::PHY_STATUS), 0x0b);
    m.take_isr();
    m.nic.control.set_link(&m.env, false);
    assert_eq!((m.r8(reg::PHY_STATUS), m.take_isr()), (0, LINK_CHG));
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    assert_eq!((m.r8(reg::PHY_STATUS), m.take_isr()), (0x0b, LINK_CHG));
}

#[test]
fn every_handshake_ends() {
    let mut m = Machine::new();
    m.w32(reg::EPHYAR, 1 << 31 | 0x03 << 16 | 0x1234);
    assert_eq!(m.r32(reg::EPHYAR) >> 31, 0);
    m.w32(reg::EPHYAR, 0x03 << 16);
    assert_eq!(m.r32(reg::EPHYAR), 1 << 31 | 0x03 << 16 | 0x1234);
    for at in [reg::CSIAR, reg::ERIAR, reg::EFUSEAR] {
        m.w32(at, 1 << 31 | 0xf070);
        assert_eq!(m.r32(at) >> 31, 0, "{at:x}");
        m.w32(at, 0xf070);
        assert_eq!(m.r32(at) >> 31, 1, "{at:x}");
    }
    m.w32(reg::CSIAR, 0xf000);
    assert_eq!(m.r32(reg::CSIDR), 0x8168_10ec);
}

/// One bit at a time, as FreeBSD and iPXE do.
fn eeprom_bit(m: &mut Machine, bit: bool) -> bool {
    let level = 0x88 | if bit { 2 } else { 0 };
    m.w8(reg::CFG9346, level);
    m.w8(reg::CFG9346, level | 4);
    let out = m.r8(reg::CFG9346) & 1 != 0;
    m.w8(reg::CFG9346, level);
    out
}

fn eeprom_command(m: &mut Machine, command: u16) {
    m.w8(reg::CFG9346, 0x80);
    m.w8(reg::CFG9346, 0x88);
    for i in (0..9).rev() {
        eeprom_bit(m, command >> i & 1 != 0);
    }
}

fn eeprom_word(m: &mut Machine, at: u16) -> u16 {
    eeprom_command(m, 0b110 << 6 | at);
    assert_eq!(m.r8(reg::CFG9346) & 1, 0, "a zero goes before the word");
    let word = (0..16).fold(0, |word, _| word << 1 | u16::from(eeprom_bit(m, false)));
    m.w8(reg::CFG9346, 0x80);
    word
}

#[test]
fn the_eeprom_is_read_bit_by_bit_and_not_written() {
    let mut m = Machine::new();
    let words: Vec<_> = (0..64).map(|at| eeprom_word(&mut m, at)).collect();
    assert_eq!(words[0], 0x8129);
    let mac: Vec<u8> = words[7..10].iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(mac, MAC);
    // EWEN, then WRITE.
    eeprom_command(&mut m, 0b1_0011_0000);
    eeprom_command(&mut m, 0b101 << 6);
    for _ in 0..16 {
        eeprom_bit(&mut m, true);
    }
    m.w8(reg::CFG9346, 0);
    assert_eq!(eeprom_word(&mut m, 0), 0x8129);
    assert_eq!(m.counter("eeprom_writes_refused"), 2);
    // Out of its mode the pins say nothing.
    m.w8(reg::CFG9346, 0);
    assert_eq!(m.r8(reg::CFG9346), 0);
}

#[test]
fn reset_clears_itself_and_what_it_should() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.w16(reg::IMR, 0xffff);
    m.offer(&[&plain(MAC, 100)]);
    assert!(m.line());
    m.w8(reg::CHIP_CMD, 0x10);
    assert_eq!(m.r8(reg::CHIP_CMD), 0);
    assert_eq!((m.r16(reg::IMR), m.r16(reg::ISR)), (0, 0));
    assert!(!m.line());
    assert_eq!(m.r32(reg::RX_LOW), RX_RING as u32);
    assert_eq!(m.r32(reg::RX_CONFIG), 0x0000_e70f);
    assert_eq!(m.counter("device_resets"), 1);
}
