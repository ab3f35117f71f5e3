//! Wake-up: each filter, what the guest finds afterwards, and that nothing wakes a guest that did
//! not enable it.

use crate::common::*;
use intel_offsets::e1000::long::{FFLT, FFMT, FFVT};
use model::PciState;
use model_testkit::scripts::wake as script;

/// The 82540EM, for what holds for every chip.
struct Chip;

impl script::Chip for Chip {
    const LONGEST: u32 = 0x7ff;

    fn machine() -> Machine {
        Machine::default()
    }

    fn pattern(m: &mut Machine, n: u32, bytes: &[(u64, u32)]) {
        for (at, byte) in bytes {
            m.w(FFMT + 8 * at, 1 << n);
            m.w(FFVT + 8 * at, byte << (8 * n));
        }
    }

    fn pattern_len(m: &mut Machine, n: u32, len: u32) {
        m.w(FFLT + 8 * u64::from(n), len);
    }
}

#[test]
fn a_magic_packet_anywhere_in_the_frame() {
    script::a_magic_packet_anywhere_in_the_frame::<Chip>();
}

#[test]
fn directed_multicast_and_broadcast_frames() {
    script::directed_multicast_and_broadcast_frames::<Chip>();
}

#[test]
fn requests_for_and_packets_to_our_addresses() {
    script::requests_for_and_packets_to_our_addresses::<Chip>();
}

#[test]
fn a_pattern_under_a_mask() {
    script::a_pattern_under_a_mask::<Chip>();
}

#[test]
fn a_change_of_the_link() {
    script::a_change_of_the_link::<Chip>();
}

#[test]
fn the_first_frame_is_kept_and_the_guest_clears_it() {
    script::the_first_frame_is_kept_and_the_guest_clears_it::<Chip>();
}

#[test]
fn wuc_and_pmcsr_are_the_same_bits() {
    script::wuc_and_pmcsr_are_the_same_bits::<Chip>();
}

#[test]
fn nothing_wakes_who_has_not_asked() {
    script::nothing_wakes_who_has_not_asked::<Chip>();
}

#[test]
fn apm_wakes_by_magic_packet_alone_in_any_state() {
    script::apm_wakes_by_magic_packet_alone_in_any_state::<Chip>();
}

#[test]
fn a_function_in_d3_touches_no_memory() {
    let mut m = Machine::default();
    m.rx_on(8, 0x8000);
    m.tx_on(8);
    power(&mut m, true);
    m.offer(&[&plain(MAC, 60)]);
    assert_eq!(m.r(reg::RDH), 0);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    m.tx_desc(0, TX_BUFFERS, legacy(60, EOP | RS));
    m.w(reg::TDT, 1);
    assert!(m.wire.take().is_empty());
    power(&mut m, false);
    assert_eq!(m.wire.take().len(), 1);
}

fn power(m: &mut Machine, d3: bool) {
    m.set_pci(PciState {
        bus_master: true,
        d3,
        ..PciState::default()
    });
}
