//! Wake-up: what wakes a guest, what it finds afterwards, and that nothing wakes one that has not asked. The order of
//! accesses is that of Linux' `__rtl8169_set_wol`, `rtl8169_suspend` and `rtl8169_resume`.

use crate::common::*;
use hypernic_r8169::{Config, Variant};
use model::{PciState, PmeWrite, ResetKind};
use model_testkit::packet::magic;

/// CONFIG3.
const LINK_UP: u8 = 0x10;
const MAGIC: u8 = 0x20;
/// CONFIG5.
const UWF: u8 = 0x10;
const MWF: u8 = 0x20;
const BWF: u8 = 0x40;
const LAN_WAKE: u8 = 0x02;

const CONFIG5: u64 = 0x56;
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 9];

/// D3 or D0, and what is written to PMCSR: PME enabled or not, and its status cleared or not.
fn power(m: &mut Machine, d3: bool, [enable, clear]: [bool; 2]) {
    m.set_pci(PciState {
        bus_master: !d3,
        msi: false,
        d3,
        pme: Some(PmeWrite { enable, clear }),
        ..PciState::default()
    });
}

/// What `ethtool -s … wol` asks for.
fn ask(m: &mut Machine, config3: u8, config5: u8) {
    m.w8(reg::CFG9346, 0xc0);
    let third = m.r8(reg::CONFIG3) & !(LINK_UP | MAGIC);
    m.w8(reg::CONFIG3, third | config3);
    let fifth = m.r8(CONFIG5) & !(UWF | MWF | BWF | LAN_WAKE);
    m.w8(CONFIG5, fifth | config5);
    m.w8(reg::CFG9346, 0);
}

/// A guest that sleeps: the receiver lets nothing in, and the function is in D3.
fn asleep(config3: u8, config5: u8) -> Machine {
    let mut m = Machine::new();
    m.rings(8, 1536);
    ask(&mut m, config3, config5);
    m.w32(reg::RX_CONFIG, 0x0000_e700);
    m.w8(reg::CHIP_CMD, 0x10);
    power(&mut m, true, [true, false]);
    assert_eq!(m.pme(), (true, false));
    m
}

fn wakes(config3: u8, config5: u8, frame: &[u8]) -> bool {
    let m = asleep(config3, config5);
    m.offer(&[&plain(PEER, 60)]);
    m.offer(&[frame]);
    let (enabled, status) = m.pme();
    assert!(enabled);
    assert_eq!(m.counter("wake_ups"), status.into());
    assert_eq!(m.counter("rx_frames"), 0);
    assert_eq!(m.rx_words(0).0 & OWN, OWN, "no memory is touched");
    status
}

#[test]
fn a_magic_packet_wakes_wherever_it_is_in_a_frame() {
    for before in [0, 1, 50, 1200] {
        for to in [MAC, [0xff; 6], GROUP] {
            assert!(wakes(MAGIC, LAN_WAKE, &magic(to, MAC, before)), "{before}");
        }
    }
    assert!(!wakes(MAGIC, LAN_WAKE, &magic(MAC, PEER, 0)));
    assert!(!wakes(MAGIC, LAN_WAKE, &magic(PEER, MAC, 0)), "for another");
    let mut short = magic(MAC, MAC, 0);
    short.pop();
    assert!(!wakes(MAGIC, LAN_WAKE, &short));
    assert!(!wakes(LINK_UP, BWF, &magic(MAC, MAC, 0)));
}

#[test]
fn frames_wake_by_their_destination() {
    let frames = [MAC, GROUP, [0xff; 6]].map(|to| plain(to, 60));
    for (config5, want) in [
        (UWF, [true, false, false]),
        (MWF, [false, true, false]),
        (BWF, [false, false, true]),
        (UWF | MWF | BWF, [true; 3]),
        (LAN_WAKE, [false; 3]),
    ] {
        let woken = [0, 1, 2].map(|i| wakes(0, config5, &frames[i]));
        assert_eq!(woken, want, "{config5:x}");
    }
}

#[test]
fn a_link_that_comes_up_wakes() {
    for (config3, want) in [(LINK_UP, true), (MAGIC, false)] {
        let mut m = asleep(config3, 0);
        m.nic.control.set_link(&m.env, false);
        assert_eq!(m.pme(), (true, false));
        // Nothing comes over a link that is down.
        m.offer(&[&magic(MAC, MAC, 0)]);
        assert_eq!(m.pme(), (true, false));
        m.nic.control.set_link(&m.env, true);
        m.sleep(10_000_000);
        assert_eq!(m.pme(), (true, want));
    }
}

#[test]
fn the_first_event_is_told_until_the_guest_clears_it() {
    let mut m = asleep(MAGIC, UWF);
    m.offer(&[&plain(MAC, 60)]);
    m.offer(&[&magic(MAC, MAC, 0)]);
    assert_eq!((m.pme(), m.counter("wake_ups")), ((true, true), 1));
    // What bus and driver do: PME off, D0 with all that was set lost, and everything anew.
    power(&mut m, true, [false, true]);
    assert_eq!(m.pme(), (false, false));
    m.nic.control.reset(&m.env, ResetKind::PowerUp);
    assert_eq!(m.r8(reg::CONFIG3) & MAGIC, 0);
    power(&mut m, false, [false, false]);
    m.rings(8, 1536);
    m.sleep(10_000_000);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    assert_eq!(m.rx_words(0).0 & OWN, 0);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    assert_eq!(m.wire.take().len(), 1);
}

/// PME's status outlives the way out of D3, so that the guest learns who woke it; not a reset of the machine.
#[test]
fn a_power_up_keeps_what_woke_and_a_reset_of_the_bus_does_not() {
    for (kind, want) in [
        (ResetKind::PowerUp, (true, true)),
        (ResetKind::Bus, (false, false)),
    ] {
        let mut m = asleep(MAGIC, 0);
        m.offer(&[&magic(MAC, MAC, 0)]);
        m.nic.control.reset(&m.env, kind);
        assert_eq!(m.pme(), want, "{kind:?}");
    }
}

#[test]
fn nothing_wakes_a_guest_that_has_not_asked() {
    let frames = [magic(MAC, MAC, 0), plain(MAC, 60), plain([0xff; 6], 60)];
    // Awake; asleep without PME; asleep with it, asking for nothing.
    for (d3, enable, config3, config5) in [
        (false, true, MAGIC, UWF | BWF),
        (true, false, MAGIC, UWF | BWF),
        (true, true, 0, LAN_WAKE),
    ] {
        let mut m = Machine::new();
        m.rings(8, 1536);
        ask(&mut m, config3, config5);
        power(&mut m, d3, [enable, false]);
        frames.iter().for_each(|frame| {
            m.offer(&[frame]);
        });
        assert_eq!((m.pme(), m.counter("wake_ups")), ((enable, false), 0));
    }
    // And while it is locked, nothing can be asked for.
    let mut m = Machine::new();
    m.w8(reg::CONFIG3, MAGIC);
    power(&mut m, true, [true, false]);
    m.offer(&[&magic(MAC, MAC, 0)]);
    assert_eq!(m.pme(), (true, false));
}

/// The 8168H has its magic packet in ERI, bit 16 of DCh; Linux writes it there.
#[test]
fn an_8168h_has_its_magic_packet_in_eri() {
    for set in [false, true] {
        let mut m = Machine::with(Config::of(Variant::Rtl8168H, MAC), Wire::default());
        m.w32(0x70, if set { 1 << 16 } else { 0 });
        m.w32(reg::ERIAR, 1 << 31 | 0xf << 12 | 0x0dc);
        assert_eq!(m.r32(reg::ERIAR) >> 31, 0);
        power(&mut m, true, [true, false]);
        m.offer(&[&magic([0xff; 6], MAC, 3)]);
        assert_eq!(m.pme(), (true, set));
    }
}

#[test]
fn a_sleeping_nic_is_saved_and_loaded_asleep() {
    let mut m = asleep(MAGIC, 0);
    let blob = m.save();
    let mut other = Machine::new();
    other
        .nic
        .control
        .load(&other.env, &blob)
        .expect("its state");
    assert_eq!(other.pme(), (true, false));
    other.offer(&[&magic(MAC, MAC, 0)]);
    assert_eq!(other.pme(), (true, true));
    let woken = other.save();
    m.nic.control.load(&m.env, &woken).expect("its state");
    assert_eq!(m.pme(), (true, true));
}
