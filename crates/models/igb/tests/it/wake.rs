//! Wake-up: each filter, what the guest finds afterwards, and that nothing wakes a guest that did
//! not enable it.

use crate::common::*;
use hypernic_igb::Config;
use intel_offsets::igb::long::{FHFT, WUC, WUPL, WUS};
use model_testkit::packet::magic;
use model_testkit::scripts::wake::{self as script, EX, MAG};

/// The 82576, for what holds for every chip.
struct Chip;

impl script::Chip for Chip {
    const LONGEST: u32 = 0xff;

    fn machine() -> Machine {
        Machine::default()
    }

    fn pattern(m: &mut Machine, n: u32, bytes: &[(u64, u32)]) {
        let filter = FHFT + 0x100 * u64::from(n);
        for (at, byte) in bytes {
            let row = filter + at / 8 * 16;
            let mask = m.r(row + 8);
            m.w(row + 8, mask | 1 << (at % 8));
            let word = row + at % 8 / 4 * 4;
            let value = m.r(word);
            m.w(word, value | byte << (at % 4 * 8));
        }
    }

    fn pattern_len(m: &mut Machine, n: u32, len: u32) {
        m.w(FHFT + 0x100 * u64::from(n) + 0xfc, len);
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
fn the_nvm_may_want_a_magic_packet_to_wake_from_power_up_on() {
    let mut image = Machine::default()
        .nic
        .control
        .take_nvm()
        .expect("a new one");
    let word = |at: usize, image: &[u8]| u16::from_le_bytes([image[2 * at], image[2 * at + 1]]);
    let was = word(0x24, &image);
    let (control, sum) = (was | 0x400, word(0x3f, &image).wrapping_sub(0x400));
    image[0x48..0x4a].copy_from_slice(&control.to_le_bytes());
    image[0x7e..0x80].copy_from_slice(&sum.to_le_bytes());
    let config = Config {
        nvm: Some(image.try_into().expect("all of it")),
        ..Config::new(MAC)
    };
    let mut m = Machine::new(&config);
    assert_eq!(m.r(WUC), 1);
    m.offer(&[&magic(MAC, MAC, 7)]);
    assert_eq!(m.r(WUS), MAG);
}

/// Saved asleep, it sleeps on, and wakes.
#[test]
fn a_sleeping_machine_moves_without_being_woken() {
    let m = script::asleep::<Chip>(EX);
    let blob = m.nic.control.save(&m.env);
    let mut other = Machine::default();
    other
        .nic
        .control
        .load(&other.env, &blob)
        .expect("its own state");
    assert_eq!(other.pme(), (true, false));
    other.offer(&[&plain(MAC, 60)]);
    assert_eq!((other.r(WUS), other.pme()), (EX, (true, true)));
    let blob = other.nic.control.save(&other.env);
    let mut third = Machine::default();
    third
        .nic
        .control
        .load(&third.env, &blob)
        .expect("its own state");
    assert_eq!(
        (third.r(WUS), third.r(WUPL), third.pme()),
        (EX, 60, (true, true))
    );
}
