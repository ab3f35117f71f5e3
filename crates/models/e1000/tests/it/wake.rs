//! Wake-up: each filter, what the guest finds afterwards, and that nothing wakes who has not asked.

use crate::common::*;
use hypernic_e1000::Config;
use model::{PciState, PmeWrite, ResetKind};

const WUC: u64 = 0x5800;
const WUFC: u64 = 0x5808;
const WUS: u64 = 0x5810;
const IPAV: u64 = 0x5838;
const IP4AT: u64 = 0x5840;
const IP6AT: u64 = 0x5880;
const WUPL: u64 = 0x5900;
const WUPM: u64 = 0x5a00;
const FFLT: u64 = 0x5f00;
const FFMT: u64 = 0x9000;
const FFVT: u64 = 0x9800;

const LNKC: u32 = 1;
const MAG: u32 = 1 << 1;
const EX: u32 = 1 << 2;
const MC: u32 = 1 << 3;
const BC: u32 = 1 << 4;
const ARP: u32 = 1 << 5;
const IPV4: u32 = 1 << 6;
const IPV6: u32 = 1 << 7;
const FLX0: u32 = 1 << 16;
const ALL: u32 = 0x000f_00ff;

fn power(m: &mut Machine, d3: bool, pme: Option<PmeWrite>) {
    let state = PciState {
        bus_master: true,
        d3,
        pme,
        ..PciState::default()
    };
    m.nic.control.pci(&m.env, state);
    m.work();
}

/// In D3 with PME enabled and these filters, the link up.
fn asleep(filters: u32) -> Machine {
    let mut m = Machine::default();
    m.w(reg::CTRL, 0x241);
    m.w(WUFC, filters);
    let enable = PmeWrite {
        enable: true,
        clear: false,
    };
    power(&mut m, true, Some(enable));
    assert_eq!(pme(&m), (true, false));
    m
}

fn pme(m: &Machine) -> (bool, bool) {
    *m.pin.pme.lock().expect("pme")
}

fn magic(dst: [u8; 6], mac: [u8; 6], before: usize) -> Vec<u8> {
    let mut frame = plain(dst, 14 + before);
    frame.extend([0xff; 6]);
    for _ in 0..16 {
        frame.extend(mac);
    }
    frame
}

fn typed(dst: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = plain(dst, 14);
    frame.truncate(12);
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn arp(operation: u8, target: [u8; 4]) -> Vec<u8> {
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, operation];
    arp.extend([0; 16]);
    arp.extend(target);
    typed([0xff; 6], 0x0806, &arp)
}

fn ipv4(to: [u8; 4]) -> Vec<u8> {
    let mut ip = vec![0x45; 16];
    ip.extend(to);
    typed(MAC, 0x0800, &ip)
}

fn ipv6(to: [u8; 16]) -> Vec<u8> {
    let mut ip = vec![0x60; 24];
    ip.extend(to);
    typed(MAC, 0x86dd, &ip)
}

fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0, 0, 5]);
    frame
}

/// Whether a frame wakes a guest that waits for `filters`, and by which of them.
fn wakes(filters: u32, setup: impl Fn(&mut Machine), frame: &[u8]) -> u32 {
    let mut m = asleep(filters);
    setup(&mut m);
    m.offer(&[frame]);
    let wus = m.r(WUS);
    assert_eq!(pme(&m), (true, wus != 0));
    assert_eq!(m.r(WUC) >> 2 & 1 == 1, wus != 0);
    assert_eq!(m.counter("wake_ups"), u64::from(wus != 0));
    wus
}

fn addresses(m: &mut Machine) {
    m.w(IP4AT + 8, u32::from_le_bytes([10, 0, 2, 15]));
    for i in 0..4 {
        m.w(IP6AT + 4 * i, 0x0101_0101 * (i as u32 + 1));
    }
    m.w(IPAV, 1 << 1 | 1 << 16);
}

const SIX: [u8; 16] = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4];

#[test]
fn a_magic_packet_anywhere_in_the_frame() {
    for before in [0, 1, 50, 1200] {
        for dst in [MAC, [0xff; 6]] {
            assert_eq!(wakes(MAG, |_| {}, &magic(dst, MAC, before)), MAG);
        }
    }
    assert_eq!(wakes(MAG, |_| {}, &magic(MAC, PEER, 0)), 0);
    assert_eq!(wakes(MAG, |_| {}, &magic(PEER, MAC, 0)), 0, "for another");
    let mut short = magic(MAC, MAC, 0);
    short.pop();
    assert_eq!(wakes(MAG, |_| {}, &short), 0);
    assert_eq!(wakes(ALL & !MAG & !EX, |_| {}, &magic(MAC, MAC, 0)), 0);
}

#[test]
fn directed_multicast_and_broadcast_frames() {
    const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0x40, 0x30, 0x20];
    let filters = EX | MC | BC;
    assert_eq!(wakes(filters, |_| {}, &plain(MAC, 60)), EX);
    assert_eq!(wakes(filters, |_| {}, &plain(PEER, 60)), 0);
    assert_eq!(wakes(filters, |_| {}, &plain([0xff; 6], 60)), BC);
    assert_eq!(wakes(filters, |_| {}, &plain(GROUP, 60)), 0);
    let listen = |m: &mut Machine| m.w(reg::MTA + 4 * (0x203 / 32), 1 << (0x203 % 32));
    assert_eq!(wakes(filters, listen, &plain(GROUP, 60)), MC);
    assert_eq!(wakes(EX | MC, |_| {}, &plain([0xff; 6], 60)), 0);
}

#[test]
fn requests_for_and_packets_to_our_addresses() {
    let filters = ARP | IPV4 | IPV6;
    for (frame, by) in [
        (arp(1, [10, 0, 2, 15]), ARP),
        (arp(1, [10, 0, 2, 16]), 0),
        (arp(2, [10, 0, 2, 15]), 0),
        (ipv4([10, 0, 2, 15]), IPV4),
        (ipv4([10, 0, 2, 14]), 0),
        (ipv6(SIX), IPV6),
        (ipv6([0; 16]), 0),
    ] {
        assert_eq!(wakes(filters, addresses, &frame), by);
        assert_eq!(wakes(filters, addresses, &tagged(frame.clone())), by);
        assert_eq!(wakes(filters, |_| {}, &frame), 0, "no address is valid");
        for cut in 12..frame.len() {
            let seen = wakes(filters, addresses, &frame[..cut]);
            assert!(seen == 0 || seen == by);
        }
    }
}

#[test]
fn a_pattern_under_a_mask() {
    for n in 0..4u32 {
        let set = |m: &mut Machine| {
            m.w(FFLT + 8 * u64::from(n), 64);
            for (at, byte) in [(12u64, 0x88u32), (13, 0xb5), (63, 0x77)] {
                m.w(FFMT + 8 * at, 1 << n);
                m.w(FFVT + 8 * at, byte << (8 * n));
            }
        };
        let mut frame = typed(MAC, 0x88b5, &[0; 60]);
        assert_eq!(wakes(FLX0 << n, set, &frame), 0);
        frame[63] = 0x77;
        assert_eq!(wakes(FLX0 << n, set, &frame), FLX0 << n);
        assert_eq!(wakes(ALL & !(FLX0 << n) & !EX, set, &frame), 0);
        assert_eq!(wakes(FLX0 << n, set, &frame[..63]), 0, "too short");
        for len in [0, 129, 0x7ff] {
            let bad = |m: &mut Machine| {
                set(m);
                m.w(FFLT + 8 * u64::from(n), len);
            };
            assert_eq!(wakes(FLX0 << n, bad, &frame), 0);
        }
    }
}

#[test]
fn a_change_of_the_link() {
    let mut m = asleep(LNKC);
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.r(WUS), LNKC);
    assert_eq!(pme(&m), (true, true));
    let mut m = asleep(ALL & !LNKC);
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.r(WUS), 0);
}

#[test]
fn the_first_frame_is_kept_and_the_guest_clears_it() {
    let mut m = asleep(EX | BC);
    let mut first = plain(MAC, 300);
    first[127] = 0xab;
    m.offer(&[&first]);
    m.offer(&[&plain([0xff; 6], 60)]);
    assert_eq!(m.r(WUS), EX, "one wake-up at a time");
    assert_eq!(m.r(WUPL), 300);
    let mut kept = [0; 128];
    m.nic.control.read(&m.env, 0, WUPM, &mut kept);
    assert_eq!(kept[..], first[..128]);
    // Awake again: the function resets, and what it must tell stays.
    m.nic.control.reset(&m.env, ResetKind::PowerUp);
    power(&mut m, false, None);
    m.w(reg::CTRL, 1 << 26);
    assert_eq!((m.r(WUS), m.r(WUPL), pme(&m)), (EX, 300, (true, true)));
    m.w(WUS, 0);
    assert_eq!(m.r(WUS), EX);
    m.w(WUS, !0);
    assert_eq!(m.r(WUS), 0);
    let cleared = PmeWrite {
        enable: false,
        clear: true,
    };
    power(&mut m, false, Some(cleared));
    assert_eq!(pme(&m), (false, false));
    assert_eq!(m.r(WUC) & 6, 0);
    // A machine reset forgets everything.
    let mut m = asleep(EX);
    m.offer(&[&plain(MAC, 60)]);
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!((m.r(WUS), m.r(WUFC), m.r(WUPL), m.r(WUPM)), (0, 0, 0, 0));
    assert_eq!(pme(&m), (false, false));
}

#[test]
fn wuc_and_pmcsr_are_the_same_bits() {
    let mut m = Machine::default();
    m.w(WUC, 2);
    assert_eq!(pme(&m), (true, false));
    m.w(WUFC, EX);
    power(&mut m, true, None);
    m.w(reg::CTRL, 0x241);
    m.offer(&[&plain(MAC, 60)]);
    assert_eq!(m.r(WUC), 6);
    // Other bytes of WUC do not clear it; a 1 does.
    m.nic.control.write(&m.env, 0, WUC + 1, &[0]);
    assert_eq!(m.r(WUC), 6);
    m.w(WUC, 6);
    assert_eq!(m.r(WUC), 2);
    assert_eq!(pme(&m), (true, false));
}

#[test]
fn nothing_wakes_who_has_not_asked() {
    // In D0, with PME off, without filters.
    for (d3, enable, filters) in [(false, true, ALL), (true, false, ALL), (true, true, 0)] {
        let mut m = asleep(filters);
        let write = PmeWrite {
            enable,
            clear: false,
        };
        power(&mut m, d3, Some(write));
        m.offer(&[&plain(MAC, 60), &plain([0xff; 6], 60), &magic(MAC, MAC, 0)]);
        m.nic.control.set_link(&m.env, false);
        assert_eq!(m.r(WUS), 0);
        assert!(!pme(&m).1);
    }
}

#[test]
fn apm_wakes_by_magic_packet_alone_in_any_state() {
    for d3 in [false, true] {
        let mut m = Machine::with(Config::new(MAC), Wire::default());
        m.w(reg::CTRL, 0x241);
        m.w(WUC, 1);
        power(&mut m, d3, None);
        m.offer(&[&plain(MAC, 60)]);
        assert_eq!(m.r(WUS), 0);
        m.offer(&[&magic(MAC, MAC, 7)]);
        assert_eq!(m.r(WUS), MAG);
        assert_eq!(pme(&m), (false, true));
    }
}

#[test]
fn a_function_in_d3_touches_no_memory() {
    let mut m = Machine::default();
    m.rx_on(8, 0x8000);
    m.tx_on(8);
    power(&mut m, true, None);
    m.offer(&[&plain(MAC, 60)]);
    assert_eq!(m.r(reg::RDH), 0);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    m.tx_desc(0, TX_BUFFERS, legacy(60, EOP | RS));
    m.w(reg::TDT, 1);
    assert!(m.wire.take().is_empty());
    power(&mut m, false, None);
    assert_eq!(m.wire.take().len(), 1);
}
