//! The 8169S: descriptors of version 1, a PCI bus and its times, as Linux (`RTL_GIGA_MAC_VER_02` to `_06`) and U-Boot have it.

use crate::common::*;
use crate::offloads::spoilt;
use hypernic_r8169::{Config, Variant};
use model::Space;
use model_testkit::packet::{v4_with, v6_tcp};

const IP_CS: u32 = 1 << 18;
const UDP_CS: u32 = 1 << 17;
const TCP_CS: u32 = 1 << 16;

fn machine() -> Machine {
    Machine::with(Config::of(Variant::Rtl8169S, MAC), Wire::default())
}

#[test]
fn the_bus_finds_a_pci_function_with_intx() {
    let m = machine();
    let id = &m.nic.identity;
    assert_eq!((id.vendor, id.device, id.revision), (0x10ec, 0x8169, 0x10));
    assert_eq!((id.intx, id.msi, id.msix), (true, 0, None));
    let bars: Vec<_> = id.bars.iter().map(|b| (b.index, b.space, b.size)).collect();
    // U-Boot takes BAR 1.
    assert_eq!(bars, [(0, Space::Io, 256), (1, Space::Memory32, 256)]);
    let space = id.config().build().expect("possible");
    assert_eq!((space.len(), space.read_u16(0x34)), (256, 0xdc));
}

#[test]
fn the_chip_is_an_8169s_and_no_write_changes_that() {
    let mut m = machine();
    for value in [0, 0x0300_0700, u32::MAX] {
        m.w32(reg::TX_CONFIG, value);
        let config = m.r32(reg::TX_CONFIG);
        assert_eq!(config >> 20 & 0xfc8, 0x008);
        // FreeBSD: `RL_HWREV_8169S` under 7CC00000h.
        assert_eq!(config & 0x7cc0_0000, 0x0080_0000);
    }
    assert_eq!((m.phy_read(2), m.phy_read(3)), (0x001c, 0xc910));
    // Nothing is behind the BARs that newer ones have.
    let mut data = [0xee; 4];
    m.nic.control.read(&m.env, 2, reg::TX_CONFIG, &mut data);
    assert_eq!(data, [0; 4]);
}

#[test]
fn frames_go_both_ways_by_intx() {
    let mut m = machine();
    m.rings(4, 1536);
    m.w16(reg::IMR, ROK | TOK);
    for n in 0..20 {
        let frame = plain(MAC, 60 + n as usize);
        assert_eq!(m.offer(&[&frame]), 1);
        assert!(m.line());
        assert_eq!(m.take_isr(), ROK);
        let (word, _) = m.rx_words(n % 4);
        assert_eq!(word & (OWN | BOTH), BOTH);
        assert_eq!(m.buffer(n % 4, frame.len()), frame);
        let at = RX_BUFFERS + u64::from(n % 4) * RX_STEP;
        m.rx_desc(n % 4, OWN | word & EOR | 1536, at);
        m.send(n % 4, &plain(PEER, 60), BOTH, 0);
        assert_eq!(m.wire.take().len(), 1);
        m.take_isr();
        assert!(!m.line());
    }
}

#[test]
fn checksums_are_asked_for_in_the_first_word() {
    let udp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 101);
    let tcp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], true, 7, 9, 100);
    let six = v6_tcp([0xfd; 16].into(), [0xfe; 16].into(), 7, 9);
    let mut m = machine();
    m.rings(8, 1536);
    for ((right, bits), index) in [
        (&udp, IP_CS | UDP_CS),
        (&tcp, IP_CS | TCP_CS),
        (&six, TCP_CS),
    ]
    .into_iter()
    .zip(0..)
    {
        m.send(index, &spoilt(right, 0x1234), BOTH | bits, 0);
        assert_eq!(&m.wire.take()[0], right);
    }
    // Bits of version 2 mean nothing here.
    let left = spoilt(&udp, 0x1234);
    m.send(3, &left, BOTH, 1 << 31 | 1 << 29);
    assert_eq!(m.wire.take(), [left]);
}

#[test]
fn what_was_judged_is_in_the_first_word_alone() {
    let udp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 101);
    let mut m = machine();
    m.rings(8, 1536);
    m.w16(reg::CPLUS_CMD, 0x20);
    let to_us = |mut frame: Vec<u8>| {
        frame[..6].copy_from_slice(&MAC);
        frame
    };
    m.offer(&[&to_us(udp.clone()), &to_us(spoilt(&udp, 1))]);
    let words = [0, 1].map(|i| m.rx_words(i));
    assert_eq!(words.map(|(first, _)| first >> 14 & 0x1f), [0x10, 0x16]);
    assert_eq!(words.map(|(_, second)| second), [0, 0]);
}

/// Its units are fractions of a microsecond (`rtl_coalesce_info_8169`), and its timer has the bus' clock.
#[test]
fn its_times_are_those_of_its_bus() {
    for (scale, unit) in [(0, 320), (1, 2_560), (2, 5_120), (3, 10_240)] {
        let mut m = machine();
        m.rings(8, 1536);
        m.w16(reg::CPLUS_CMD, scale);
        m.w16(reg::MITIGATE, 0x0010);
        m.offer(&[&plain(MAC, 60)]);
        m.sleep(unit - 1);
        assert_eq!(m.r16(reg::ISR), 0, "{scale}");
        m.sleep(1);
        assert_eq!(m.r16(reg::ISR), ROK);
    }
    let mut m = machine();
    m.w32(reg::TIMER_INT, 1000);
    m.w32(reg::TIMER, 0);
    m.sleep(29_999);
    assert_eq!((m.r32(reg::TIMER), m.r16(reg::ISR)), (999, 0));
    m.sleep(1);
    assert_eq!(m.r16(reg::ISR), TIMEOUT);
}

#[test]
fn its_state_goes_along() {
    let mut m = machine();
    m.rings(4, 1536);
    m.w32(reg::TIMER, 0);
    // TCTR goes round later than in newer chips.
    m.sleep(40_000_000_000);
    let blob = crate::state::golden("8169s", &m);
    let mut same = machine();
    same.nic.control.load(&same.env, &blob).expect("its state");
    assert_eq!(same.r32(reg::TIMER), 1_333_333_333);
}
