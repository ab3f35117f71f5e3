//! The 8168H: what Linux (`RTL_GIGA_MAC_VER_46`) and DPDK's driver read, write and wait for. These goldens stand on what the
//! drivers expect, not on the model's table.

use crate::common::*;
use hypernic_r8169::{Config, Variant};
use model::{ResetKind, StateError};

const FLAG: u32 = 1 << 31;
const ERIDR: u64 = 0x70;
const MAC_OCP: u64 = 0xb0;
const PHY_OCP: u64 = 0xb8;
const MCU: u64 = 0xd3;
const MISC: u64 = 0xf0;

fn machine() -> Machine {
    Machine::with(Config::of(Variant::Rtl8168H, MAC), Wire::default())
}

/// `r8168_mac_ocp_read`: no flag is waited for.
fn mac_read(m: &mut Machine, at: u32) -> u16 {
    m.w32(MAC_OCP, at << 15);
    m.r32(MAC_OCP) as u16
}

fn mac_write(m: &mut Machine, at: u32, value: u16) {
    m.w32(MAC_OCP, FLAG | at << 15 | u32::from(value));
}

fn phy_read(m: &mut Machine, at: u32) -> u16 {
    m.w32(PHY_OCP, at << 15);
    let value = m.r32(PHY_OCP);
    assert_eq!(value >> 31, 1, "the read is done");
    value as u16
}

fn phy_write(m: &mut Machine, at: u32, value: u16) {
    m.w32(PHY_OCP, FLAG | at << 15 | u32::from(value));
    assert_eq!(m.r32(PHY_OCP) >> 31, 0, "the write is done");
}

fn eri_read(m: &mut Machine, at: u32) -> u32 {
    m.w32(reg::ERIAR, 0xf << 12 | at);
    assert_eq!(m.r32(reg::ERIAR) >> 31, 1);
    m.r32(ERIDR)
}

fn eri_write(m: &mut Machine, at: u32, lanes: u32, value: u32) {
    m.w32(ERIDR, value);
    m.w32(reg::ERIAR, FLAG | lanes << 12 | at);
    assert_eq!(m.r32(reg::ERIAR) >> 31, 0);
}

/// Linux: XID 541h is VER_46. DPDK: 54000000h under 7C800000h and 100000h under 700000h is CFG_METHOD_30.
#[test]
fn the_chip_is_an_8168h_and_no_write_changes_that() {
    let mut m = machine();
    let id = &m.nic.identity;
    assert_eq!((id.vendor, id.device, id.revision), (0x10ec, 0x8168, 0x15));
    for value in [0, 0x0300_0700, u32::MAX] {
        m.w32(reg::TX_CONFIG, value);
        let config = m.r32(reg::TX_CONFIG);
        assert_eq!(config >> 20 & 0xfcf, 0x541);
        assert_eq!(config & 0x7c80_0000, 0x5400_0000);
        assert_eq!(config & 0x0070_0000, 0x0010_0000);
        assert_eq!(config & 0x0300_0700, value & 0x0300_0700);
        // The transmit FIFO is empty.
        assert_eq!(config >> 11 & 1, 1);
    }
}

/// What a driver that starts waits for, with its patience and a warning in its log otherwise.
#[test]
fn fifos_are_empty_and_the_list_of_links_is_ready() {
    let mut m = machine();
    for value in [0, 0x80, 0xff, 0x7f] {
        m.w8(MCU, value);
        let mcu = m.r8(MCU);
        assert_eq!(mcu & 0x32, 0x32);
        assert_eq!(mcu & 0x80, value & 0x80);
    }
    assert_eq!(m.r16(0xd2) >> 9 & 1, 1);
}

#[test]
fn eri_keeps_the_bytes_that_are_written_and_begins_with_the_address() {
    let mut m = machine();
    assert_eq!(eri_read(&mut m, 0xe0).to_le_bytes(), MAC[..4]);
    assert_eq!(eri_read(&mut m, 0xe4).to_le_bytes()[..2], MAC[4..]);
    eri_write(&mut m, 0xc8, 0xf, 0x0008_0002);
    eri_write(&mut m, 0xc8, 0b0101, 0x1234_5678);
    assert_eq!(eri_read(&mut m, 0xc8), 0x0034_0078);
    // Another space is another place.
    m.w32(reg::ERIAR, 2 << 16 | 0xf << 12 | 0xc8);
    assert_eq!((m.r32(reg::ERIAR) >> 31, m.r32(ERIDR)), (1, 0));
    m.w32(ERIDR, u32::MAX);
    m.w32(reg::ERIAR, FLAG | 2 << 16 | 0xf << 12 | 0xc8);
    assert_eq!(m.r32(reg::ERIAR) >> 31, 0);
    assert_eq!(eri_read(&mut m, 0xc8), 0x0034_0078);
}

#[test]
fn the_mac_keeps_what_is_written() {
    let mut m = machine();
    for (at, value) in [
        (0xe8de, 0x8000),
        (0xc0ac, 0x1f80),
        (0xf800, 0xe008),
        (0xfffe, 1),
    ] {
        assert_eq!(mac_read(&mut m, at), 0);
        mac_write(&mut m, at, value);
        assert_eq!(mac_read(&mut m, at), value);
    }
    m.w8(reg::CHIP_CMD, 0x10);
    assert_eq!(mac_read(&mut m, 0xe8de), 0x8000, "RST is of the rings");
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!(mac_read(&mut m, 0xe8de), 0);
}

/// Registers of the PHY are at A400h, two bytes each; 001CC800h is Linux' "Generic FE-GE Realtek PHY".
#[test]
fn the_phy_is_reached_through_ocp_and_by_phyar() {
    let mut m = machine();
    let standard = |at: u32| 0xa400 + 2 * at;
    assert_eq!(phy_read(&mut m, standard(2)), 0x001c);
    assert_eq!(phy_read(&mut m, standard(3)), 0xc800);
    assert_eq!((m.phy_read(2), m.phy_read(3)), (0x001c, 0xc800));
    // `rtlgen_supports_2_5gbps` would take it for another.
    assert_eq!(phy_read(&mut m, 0xa616) & 1 << 7, 0);
    // A page and a register of it by both ways.
    phy_write(&mut m, 0xbcd << 4 | 0xe, 0x1234);
    m.phy_write(0x1f, 0xbcd);
    assert_eq!(m.phy_read(0x17), 0x1234);
    m.phy_write(0x16, 0x4321);
    assert_eq!(phy_read(&mut m, 0xbcd << 4 | 0xc), 0x4321);
    m.phy_write(0x1f, 0);
    assert_eq!(m.phy_read(2), 0x001c);
    // Ready, and any patch of its microcode may come (DPDK waits for either).
    assert_eq!(phy_read(&mut m, 0xa420) & 7, 3);
    assert_eq!(phy_read(&mut m, 0xb800) & 0x40, 0);
    phy_write(&mut m, 0xb820, 0x10);
    assert_eq!(phy_read(&mut m, 0xb800) & 0x40, 0x40);
    phy_write(&mut m, 0xb820, 0);
    assert_eq!(phy_read(&mut m, 0xb800) & 0x40, 0);
}

/// Linux asks A434h for the speed (`rtlgen_get_speed`).
#[test]
fn the_link_is_negotiated_and_told_behind_ocp() {
    let mut m = machine();
    m.w16(reg::IMR, LINK_CHG);
    assert_eq!(
        phy_read(&mut m, 0xa434) & 0x063c,
        0x002c,
        "gigabit, full, up"
    );
    phy_write(&mut m, 0xa400, 0x9000);
    assert_eq!(phy_read(&mut m, 0xa400) & 0x8000, 0, "reset ends");
    assert_eq!(m.take_isr(), LINK_CHG);
    assert_eq!(phy_read(&mut m, 0xa434) & 0x063c, 0);
    m.sleep(10_000_000);
    assert!(m.line());
    assert_eq!(m.take_isr(), LINK_CHG);
    assert_eq!(phy_read(&mut m, 0xa402) & 0x24, 0x24);
    assert_eq!(m.r8(reg::PHY_STATUS), 0x13);
    // 100 Mb/s.
    phy_write(&mut m, 0xa412, 0);
    phy_write(&mut m, 0xa400, 0x1200);
    m.sleep(10_000_000);
    assert_eq!(phy_read(&mut m, 0xa434) & 0x063c, 0x001c);
    // EEE is offered, and no partner has it.
    assert_eq!(phy_read(&mut m, 0xa5c4), 6);
    assert_eq!(phy_read(&mut m, 0xa5d2), 0);
}

/// `rtl_enable_rxdvgate`: before a reset nothing comes in any more.
#[test]
fn a_gate_closes_the_receiver() {
    let mut m = machine();
    m.rings(8, 1536);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    let misc = m.r32(MISC);
    m.w32(MISC, misc | 1 << 19);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1, "lost");
    assert_eq!(m.rx_words(1).0 & OWN, OWN);
    m.w8(0xf2, 0);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    assert_eq!(m.rx_words(1).0 & OWN, 0);
    // The 8168C knows no gate there.
    let mut older = Machine::new();
    older.rings(8, 1536);
    older.w32(MISC, u32::MAX);
    older.offer(&[&plain(MAC, 100)]);
    assert_eq!(older.rx_words(0).0 & OWN, 0);
}

#[test]
fn an_8168c_has_no_ocp() {
    let mut m = Machine::new();
    for at in [MAC_OCP, PHY_OCP] {
        for value in [0, u32::MAX, 0xa402 << 15] {
            m.w32(at, value);
            assert_eq!(m.r32(at), 0);
        }
    }
    eri_write(&mut m, 0xdc, 0xf, u32::MAX);
    assert_eq!(eri_read(&mut m, 0xdc), 0);
    assert_eq!(m.r8(MCU) & 0x32, 0);
    assert_eq!(m.r32(reg::TX_CONFIG) >> 11 & 1, 0);
}

/// DPDK's start: `rtl_exit_oob`, `rtl_nic_reset`, `rtl8168_hw_config`; then frames both ways, polled, with only LinkChg in IMR.
#[test]
fn dpdks_order_of_accesses_moves_frames() {
    let mut m = machine();
    let config = m.r32(reg::RX_CONFIG);
    m.w32(reg::RX_CONFIG, config & !0x3f);
    let gate = m.r8(0xf2);
    m.w8(0xf2, gate | 8);
    assert_eq!(m.r32(reg::TX_CONFIG) >> 11 & 1, 1);
    assert_eq!(m.r8(MCU) & 0x30, 0x30);
    m.w8(reg::CHIP_CMD, 0x10);
    assert_eq!(m.r8(reg::CHIP_CMD) & 0x10, 0);
    let mcu = m.r8(MCU);
    m.w8(MCU, mcu & 0x7f);
    let data = mac_read(&mut m, 0xe8de);
    mac_write(&mut m, 0xe8de, data & !0x4000);
    assert_eq!(m.r16(0xd2) >> 9 & 1, 1);
    // The address, from ERI into IDR.
    let low = eri_read(&mut m, 0xe0);
    let high = eri_read(&mut m, 0xe4);
    m.w8(reg::CFG9346, 0xc0);
    m.w32(reg::IDR0, low);
    m.w32(reg::IDR4, high);
    m.w32(reg::TX_CONFIG, 0x0300_0700);
    m.w8(reg::CFG9346, 0);
    m.rings(8, 2048);
    let gate = m.r8(0xf2);
    m.w8(0xf2, gate & !8);
    m.w16(reg::IMR, LINK_CHG);
    phy_write(&mut m, 0xa400, 0x1000);
    assert_eq!(phy_read(&mut m, 0xa420) & 7, 3);
    phy_write(&mut m, 0xa400, 0x1200);
    m.sleep(10_000_000);
    assert_eq!(m.take_isr() & LINK_CHG, LINK_CHG);
    assert_eq!(m.r16(reg::PHY_STATUS) & 0x13, 0x13);
    for n in 0..100 {
        let frame = plain(MAC, 60 + n as usize);
        assert_eq!(m.offer(&[&frame]), 1);
        let index = n % 8;
        let (word, _) = m.rx_words(index);
        assert_eq!(word & (OWN | BOTH), BOTH);
        assert_eq!(m.buffer(index, frame.len()), frame);
        let end = word & EOR;
        m.rx_desc(
            index,
            OWN | end | 2048,
            RX_BUFFERS + u64::from(index) * RX_STEP,
        );
        m.send(index, &plain(PEER, 60 + n as usize), BOTH, 0);
        assert_eq!(m.tx_words(index).0 & OWN, 0);
    }
    assert_eq!(m.wire.take().len(), 100);
    assert!(!m.line(), "it polls");
}

#[test]
fn its_state_goes_along_and_not_into_another_chip() {
    let mut m = machine();
    mac_write(&mut m, 0xe8de, 0x8000);
    phy_write(&mut m, 0xbcd << 4, 7);
    eri_write(&mut m, 0xdc, 0xf, 0x1_001c);
    let blob = crate::state::golden("8168h", &m);
    let mut same = machine();
    same.nic.control.load(&same.env, &blob).expect("its state");
    assert_eq!(mac_read(&mut same, 0xe8de), 0x8000);
    assert_eq!(phy_read(&mut same, 0xbcd << 4), 7);
    assert_eq!(eri_read(&mut same, 0xdc), 0x1_001c);
    assert_eq!(same.r32(reg::TX_CONFIG), m.r32(reg::TX_CONFIG));
    let mut other = Machine::new();
    let refused = other.nic.control.load(&other.env, &blob);
    assert!(matches!(
        refused,
        Err(StateError::Field { field: "xid", .. })
    ));
    let blob = other.save();
    assert!(m.nic.control.load(&m.env, &blob).is_err());
}

/// DPDK's driver adds up what its buffers hold.
#[test]
fn each_descriptor_says_what_is_in_it_the_last_too() {
    let mut m = machine();
    m.w32(MISC, 0);
    m.rings(8, 256);
    let frame = plain(MAC, 600);
    assert_eq!(m.offer(&[&frame]), 1);
    let lengths = [0, 1, 2].map(|i| m.rx_words(i).0 & 0x3fff);
    assert_eq!(lengths, [256, 256, 604 - 512]);
    // The last holds nothing but a part of the FCS.
    assert_eq!(m.offer(&[&plain(MAC, 509)]), 1);
    let lengths = [3, 4, 5].map(|i| m.rx_words(i).0 & 0x3fff);
    assert_eq!(lengths, [256, 256, 1]);
}
