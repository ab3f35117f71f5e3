//! Wake-up: each filter, what the guest finds afterwards, and that nothing wakes a guest that did
//! not enable it.

use model::{PciState, PmeWrite, ResetKind};

use super::reg;
use crate::machine::Machine;
use crate::packet::{MAC, PEER, magic, plain, tagged, typed};

/// How a chip differs.
pub trait Chip {
    /// A length field of a flexible filter with all bits set.
    const LONGEST: u32;
    /// A NIC with the address [`MAC`], as it comes from its reset.
    fn machine() -> Machine;
    /// Has flexible filter `n` look for these bytes at these offsets.
    fn pattern(m: &mut Machine, n: u32, bytes: &[(u64, u32)]);
    /// Sets the length of flexible filter `n`.
    fn pattern_len(m: &mut Machine, n: u32, len: u32);
}

const LNKC: u32 = 1;
/// WUFC and WUS: a magic packet.
pub const MAG: u32 = 1 << 1;
/// WUFC and WUS: a frame for this station.
pub const EX: u32 = 1 << 2;
const MC: u32 = 1 << 3;
const BC: u32 = 1 << 4;
const ARP: u32 = 1 << 5;
const IPV4: u32 = 1 << 6;
const IPV6: u32 = 1 << 7;
const FLX0: u32 = 1 << 16;
const ALL: u32 = 0x000f_00ff;

fn power(m: &mut Machine, d3: bool, pme: Option<PmeWrite>) {
    m.set_pci(PciState {
        bus_master: true,
        d3,
        pme,
        ..PciState::default()
    });
}

/// In D3 with PME enabled and these filters, the link up.
pub fn asleep<C: Chip>(filters: u32) -> Machine {
    let mut m = C::machine();
    m.w(reg::CTRL, 0x241);
    m.w(reg::WUFC, filters);
    let enable = PmeWrite {
        enable: true,
        clear: false,
    };
    power(&mut m, true, Some(enable));
    assert_eq!(m.pme(), (true, false));
    m
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

/// Whether a frame wakes a guest that waits for `filters`, and by which of them.
fn wakes<C: Chip>(filters: u32, setup: impl Fn(&mut Machine), frame: &[u8]) -> u32 {
    let mut m = asleep::<C>(filters);
    setup(&mut m);
    m.offer(&[frame]);
    let wus = m.r(reg::WUS);
    assert_eq!(m.pme(), (true, wus != 0));
    assert_eq!(m.r(reg::WUC) >> 2 & 1 == 1, wus != 0);
    assert_eq!(m.counter("wake_ups"), u64::from(wus != 0));
    wus
}

fn addresses(m: &mut Machine) {
    m.w(reg::IP4AT + 8, u32::from_le_bytes([10, 0, 2, 15]));
    for i in 0..4 {
        m.w(reg::IP6AT + 4 * i, 0x0101_0101 * (i as u32 + 1));
    }
    m.w(reg::IPAV, 1 << 1 | 1 << 16);
}

const SIX: [u8; 16] = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4];

/// A magic packet wakes wherever in a frame its pattern is, and only for this station.
pub fn a_magic_packet_anywhere_in_the_frame<C: Chip>() {
    for before in [0, 1, 50, 1200] {
        for dst in [MAC, [0xff; 6]] {
            assert_eq!(wakes::<C>(MAG, |_| {}, &magic(dst, MAC, before)), MAG);
        }
    }
    assert_eq!(wakes::<C>(MAG, |_| {}, &magic(MAC, PEER, 0)), 0);
    assert_eq!(
        wakes::<C>(MAG, |_| {}, &magic(PEER, MAC, 0)),
        0,
        "for another"
    );
    let mut short = magic(MAC, MAC, 0);
    short.pop();
    assert_eq!(wakes::<C>(MAG, |_| {}, &short), 0);
    assert_eq!(wakes::<C>(ALL & !MAG & !EX, |_| {}, &magic(MAC, MAC, 0)), 0);
}

/// The filters by destination address.
pub fn directed_multicast_and_broadcast_frames<C: Chip>() {
    const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0x40, 0x30, 0x20];
    let filters = EX | MC | BC;
    assert_eq!(wakes::<C>(filters, |_| {}, &plain(MAC, 60)), EX);
    assert_eq!(wakes::<C>(filters, |_| {}, &plain(PEER, 60)), 0);
    assert_eq!(wakes::<C>(filters, |_| {}, &plain([0xff; 6], 60)), BC);
    assert_eq!(wakes::<C>(filters, |_| {}, &plain(GROUP, 60)), 0);
    let listen = |m: &mut Machine| m.w(reg::MTA + 4 * (0x203 / 32), 1 << (0x203 % 32));
    assert_eq!(wakes::<C>(filters, listen, &plain(GROUP, 60)), MC);
    assert_eq!(wakes::<C>(EX | MC, |_| {}, &plain([0xff; 6], 60)), 0);
}

/// ARP requests, IPv4 and IPv6 packets, with a tag and without, cut anywhere.
pub fn requests_for_and_packets_to_our_addresses<C: Chip>() {
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
        assert_eq!(wakes::<C>(filters, addresses, &frame), by);
        assert_eq!(wakes::<C>(filters, addresses, &tagged(frame.clone())), by);
        assert_eq!(
            wakes::<C>(filters, |_| {}, &frame),
            0,
            "no address is valid"
        );
        for cut in 12..frame.len() {
            let seen = wakes::<C>(filters, addresses, &frame[..cut]);
            assert!(seen == 0 || seen == by);
        }
    }
}

/// Each flexible filter.
pub fn a_pattern_under_a_mask<C: Chip>() {
    for n in 0..4u32 {
        let set = |m: &mut Machine| {
            C::pattern(m, n, &[(12, 0x88), (13, 0xb5), (63, 0x77)]);
            C::pattern_len(m, n, 64);
        };
        let mut frame = typed(MAC, 0x88b5, &[0; 60]);
        assert_eq!(wakes::<C>(FLX0 << n, set, &frame), 0);
        frame[63] = 0x77;
        assert_eq!(wakes::<C>(FLX0 << n, set, &frame), FLX0 << n);
        assert_eq!(wakes::<C>(ALL & !(FLX0 << n) & !EX, set, &frame), 0);
        assert_eq!(wakes::<C>(FLX0 << n, set, &frame[..63]), 0, "too short");
        for len in [0, 129, C::LONGEST] {
            let bad = |m: &mut Machine| {
                set(m);
                C::pattern_len(m, n, len);
            };
            assert_eq!(wakes::<C>(FLX0 << n, bad, &frame), 0);
        }
    }
}

/// The cable is pulled.
pub fn a_change_of_the_link<C: Chip>() {
    let mut m = asleep::<C>(LNKC);
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.r(reg::WUS), LNKC);
    assert_eq!(m.pme(), (true, true));
    let mut m = asleep::<C>(ALL & !LNKC);
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.r(reg::WUS), 0);
}

/// What the guest finds after it was woken, and what a reset leaves.
pub fn the_first_frame_is_kept_and_the_guest_clears_it<C: Chip>() {
    let mut m = asleep::<C>(EX | BC);
    let mut first = plain(MAC, 300);
    first[127] = 0xab;
    m.offer(&[&first]);
    m.offer(&[&plain([0xff; 6], 60)]);
    assert_eq!(m.r(reg::WUS), EX, "one wake-up at a time");
    assert_eq!(m.r(reg::WUPL), 300);
    let mut kept = [0; 128];
    m.nic.control.read(&m.env, 0, reg::WUPM, &mut kept);
    assert_eq!(kept[..], first[..128]);
    // Awake again: the function resets, and what it must tell stays.
    m.nic.control.reset(&m.env, ResetKind::PowerUp);
    power(&mut m, false, None);
    m.w(reg::CTRL, 1 << 26);
    assert_eq!(
        (m.r(reg::WUS), m.r(reg::WUPL), m.pme()),
        (EX, 300, (true, true))
    );
    m.w(reg::WUS, 0);
    assert_eq!(m.r(reg::WUS), EX);
    m.w(reg::WUS, !0);
    assert_eq!(m.r(reg::WUS), 0);
    let cleared = PmeWrite {
        enable: false,
        clear: true,
    };
    power(&mut m, false, Some(cleared));
    assert_eq!(m.pme(), (false, false));
    assert_eq!(m.r(reg::WUC) & 6, 0);
    // A machine reset forgets everything.
    let mut m = asleep::<C>(EX);
    m.offer(&[&plain(MAC, 60)]);
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!(
        (
            m.r(reg::WUS),
            m.r(reg::WUFC),
            m.r(reg::WUPL),
            m.r(reg::WUPM)
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(m.pme(), (false, false));
}

/// PME_En and PME_Status by either way.
pub fn wuc_and_pmcsr_are_the_same_bits<C: Chip>() {
    let mut m = C::machine();
    m.w(reg::WUC, 2);
    assert_eq!(m.pme(), (true, false));
    m.w(reg::WUFC, EX);
    power(&mut m, true, None);
    m.w(reg::CTRL, 0x241);
    m.offer(&[&plain(MAC, 60)]);
    assert_eq!(m.r(reg::WUC), 6);
    // Other bytes of reg::WUC do not clear it; a 1 does.
    m.nic.control.write(&m.env, 0, reg::WUC + 1, &[0]);
    assert_eq!(m.r(reg::WUC), 6);
    m.w(reg::WUC, 6);
    assert_eq!(m.r(reg::WUC), 2);
    assert_eq!(m.pme(), (true, false));
}

/// In D0, with PME off, or without filters.
pub fn nothing_wakes_who_has_not_asked<C: Chip>() {
    for (d3, enable, filters) in [(false, true, ALL), (true, false, ALL), (true, true, 0)] {
        let mut m = asleep::<C>(filters);
        let write = PmeWrite {
            enable,
            clear: false,
        };
        power(&mut m, d3, Some(write));
        m.offer(&[&plain(MAC, 60), &plain([0xff; 6], 60), &magic(MAC, MAC, 0)]);
        m.nic.control.set_link(&m.env, false);
        assert_eq!(m.r(reg::WUS), 0);
        assert!(!m.pme().1);
    }
}

/// APM mode: WUC.APME.
pub fn apm_wakes_by_magic_packet_alone_in_any_state<C: Chip>() {
    for d3 in [false, true] {
        let mut m = C::machine();
        m.w(reg::CTRL, 0x241);
        m.w(reg::WUC, 1);
        power(&mut m, d3, None);
        m.offer(&[&plain(MAC, 60)]);
        assert_eq!(m.r(reg::WUS), 0);
        m.offer(&[&magic(MAC, MAC, 7)]);
        assert_eq!(m.r(reg::WUS), MAG);
        assert_eq!(m.pme(), (false, true));
    }
}
