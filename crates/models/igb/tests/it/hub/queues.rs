//! Registers that a PF and its VFs share: queues, vectors, link.

use crate::common::*;
use crate::hub::chip::*;
use hypernic_igb::Config;
use intel_offsets::igb::long::{MRQC, VMOLR};

/// A queue has the same registers whether the PF or a VF owns it (§8.26: as of the PF).
#[test]
fn a_vf_and_its_pf_keep_the_same_bits_of_a_queue() {
    let mut chip = Chip::new(1);
    for (offset, mask) in [
        (0x00, 0xffff_ff80),
        (0x08, 0x000f_fff0),
        (0x0c, 0x8ff0_3f7f),
        (0x14, 0xff00_ffff),
    ] {
        for (of_pf, of_vf) in [(0xc000, 0x2800), (0xe000, 0x3800)] {
            if (of_pf, offset) == (0xe000, 0x0c) {
                continue;
            }
            chip.pf.note(of_pf + offset, u32::MAX);
            chip.vfs[0].note(of_vf + offset, u32::MAX);
            assert_eq!(chip.pf.r(of_pf + offset), mask, "{offset:#x}");
            assert_eq!(chip.vfs[0].r(of_vf + offset), mask, "{offset:#x}");
        }
    }
    chip.vfs[0].note(0x3838, u32::MAX);
    assert_eq!(chip.vfs[0].r(0x3838), u32::MAX);
    chip.vfs[0].note(0x1680, u32::MAX);
    assert_eq!(chip.vfs[0].r(0x1680), 0xfffc);
}

/// What the PF says of the port's receiver holds for its VFs (§8.10): the longest frame, checksums.
#[test]
fn the_port_bounds_what_a_vf_receives() {
    let mut chip = Chip::up(1);
    let grant = |chip: &Chip| chip.hub.channel(0).expect("a VF").grant();
    chip.pf.note(VMOLR, BAM | 1 << 24 | 1 << 16 | 0x2600);
    chip.settle();
    assert_eq!(grant(&chip).max_frame, 1518, "RCTL.LPE is off");
    let rctl = chip.pf.r(reg::RCTL);
    chip.pf.note(reg::RCTL, rctl | 1 << 5);
    chip.pf.note(0x5004, 2000);
    chip.settle();
    assert_eq!(grant(&chip).max_frame, 2000);
    chip.pf.note(0x5004, 0x3fff);
    chip.settle();
    assert_eq!(grant(&chip).max_frame, 0x2600);
}

/// VTSTATUS has the speed of the port (§8.26.2).
#[test]
fn a_vf_sees_how_fast_the_link_is() {
    let mut chip = Chip::up(1);
    assert_eq!(chip.vfs[0].r(0x8), 0x83);
    for (speed, shown) in [(0, 0x03), (1, 0x43), (2, 0x83)] {
        // CTRL.FRCSPD, SLU.
        chip.pf.note(reg::CTRL, 1 << 11 | speed << 8 | 1 << 6 | 1);
        chip.settle();
        assert_eq!(chip.vfs[0].r(0x8), shown, "{speed}");
    }
}

/// Behind the PF's addresses are the queues and vectors of its VFs, where there are VFs (§7.10.2).
#[test]
fn a_pf_finds_its_vfs_queues_and_vectors_behind_its_own_addresses() {
    let [rdbal, tdlen, psrtype]: [u64; 3] = [0xc000, 0xe008, 0x5480];
    let queue = |base: u64, n: u64| base + 0x40 * n;
    let to_the_letter = Config {
        pf_places_vf_rings: true,
        ..Config::new(MAC)
    };
    let mut chip = Chip::with(2, &to_the_letter).set_up();
    // Queue 1 of VF 1 is the chip's ninth.
    chip.vfs[1].note(0x2900, 0x1_2380);
    assert_eq!(chip.pf.r(queue(rdbal, 9)), 0x1_2380);
    chip.pf.note(queue(tdlen, 8), 0x80);
    chip.pf.note(queue(tdlen, 2), 0x100);
    chip.pf.note(psrtype + 4, 6);
    assert_eq!(chip.vfs[0].r(0x3908), 0x80);
    assert_eq!(chip.vfs[1].r(0x0f0c), 6);
    assert_eq!(chip.pf.r(queue(tdlen, 2)), 0x100, "its own");
    assert_eq!([chip.vfs[0].r(0x3808), chip.vfs[1].r(0x3808)], [0; 2]);
    // What a queue has dropped is read of all and written of none.
    for n in 0..16 {
        chip.pf.note(queue(rdbal, n) + 0x30, !0);
        assert_eq!(chip.pf.r(queue(rdbal, n) + 0x30), 0);
    }
    assert_eq!([chip.vfs[0].r(0x0f0c), chip.vfs[1].r(0x0f0c)], [0, 6]);
    // VF 0 has the vectors 22 to 24, VF 1 those before.
    chip.vfs[0].note(reg::EIMS, 5);
    chip.pf.note(reg::EIMS, 1 << 19 | 1);
    assert_eq!(chip.pf.r(reg::EIMS), 5 << 22 | 1 << 19 | 1);
    assert_eq!(chip.vfs[1].r(reg::EIMS), 1);
    chip.pf.note(reg::EIMC, 1 << 22);
    assert_eq!(chip.vfs[0].r(reg::EIMS), 4);
    chip.pf.note(reg::EICS, 1 << 24 | 1 << 22);
    assert_eq!(chip.vfs[0].vectors(), [2]);
    assert!(chip.pf.vectors().is_empty() && chip.vfs[1].vectors().is_empty());
    assert_eq!(chip.pf.r(reg::EICR), 5 << 22);
    assert_eq!(chip.vfs[0].r(reg::EICR), 0, "reading clears");
    chip.pf.note(reg::EIAM, !0);
    chip.pf.note(reg::EIAC, 1 << 23 | 2);
    assert_eq!([chip.vfs[0].r(reg::EIAM), chip.vfs[0].r(reg::EIAC)], [7, 2]);
    assert_eq!(chip.pf.r(reg::EIAC), 1 << 23 | 2);
    // Who writes a part leaves the rest, and zeros are zeros.
    let part = |chip: &mut Chip, at, byte: u8| {
        let Machine { nic, env, .. } = &mut chip.pf;
        nic.control.write(env, 0, at, &[byte]);
    };
    part(&mut chip, reg::EIAC, 1);
    assert_eq!(chip.pf.r(reg::EIAC), 1 << 23 | 1);
    part(&mut chip, queue(tdlen, 8) + 1, 1);
    assert_eq!(chip.vfs[0].r(0x3908), 0x180);
    chip.pf.note(reg::EIAC, 0);
    chip.pf.note(reg::EIAM, 0);
    assert_eq!([chip.vfs[0].r(reg::EIAM), chip.vfs[0].r(reg::EIAC)], [0; 2]);
    chip.vfs[1].note(0x1684, 0x40);
    assert_eq!(chip.pf.r(reg::EITR + 4 * 20), 0x40);
    chip.pf.note(reg::EITR + 4 * 22, 0x80);
    assert_eq!(chip.vfs[0].r(0x1680), 0x80);
    // A VF's queues have no vectors but its own.
    chip.vfs[0].note(0x1700, 0x8180_0082);
    assert_eq!(chip.pf.r(reg::IVAR), 0x9796_0098);
    chip.pf.note(reg::IVAR + 4, 0x9394_8095);
    assert_eq!(chip.vfs[1].r(0x1700), 0x8081_0082);
    // Who takes the pools away has all of it for itself, and so has who takes a VF away.
    chip.pf.note(MRQC, 0);
    assert_eq!([chip.pf.r(queue(rdbal, 9)), chip.pf.r(reg::EIMS)], [0, 1]);
    chip.pf.note(MRQC, 3);
    chip.pf.note(queue(tdlen, 0), 0x80);
    assert_eq!(chip.vfs[0].r(0x3808), 0x80);
    drop(chip.vfs.remove(0));
    assert_eq!(chip.pf.r(queue(tdlen, 0)), 0);
    chip.pf.note(queue(tdlen, 0), 0x100);
    assert_eq!(chip.pf.r(queue(tdlen, 0)), 0x100);
}

/// A PF reads where its VFs' rings are, and may stop a queue. It neither moves a ring nor starts a queue.
#[test]
fn a_pf_does_not_place_its_vfs_rings() {
    let queue = |base: u64, n: u64| base + 0x40 * n;
    let mut chip = Chip::up(2);
    // Base, length, SRRCTL, head, tail and head write-back of queue 0 of VF 0, as it has them and as the PF has.
    let (rx, tx) = (queue(0xc000, 0), queue(0xe000, 0));
    let places = [(0x00, 0x80), (0x04, 1), (0x08, 0x80), (0x10, 2), (0x18, 3)];
    let own = [(0x0c, 4), (0x28, 1 << 25)];
    let written = [(0x38, 0x100), (0x3c, 1), (0x28, 1 << 25)];
    for (at, value) in places.into_iter().chain(own) {
        chip.vfs[0].note(0x2800 + at, value);
    }
    for (at, value) in places.into_iter().chain(written) {
        chip.vfs[0].note(0x3800 + at, value);
    }
    let all = |chip: &mut Chip| {
        let places = places.map(|(at, _)| [chip.pf.r(rx + at), chip.pf.r(tx + at)]);
        let rest = [
            chip.pf.r(rx + 0xc),
            chip.pf.r(tx + 0x38),
            chip.pf.r(tx + 0x3c),
        ];
        (places, rest)
    };
    let before = all(&mut chip);
    assert_eq!(before.0[0], [0x80; 2]);
    let refused = |chip: &Chip| chip.pf.counter("vf_ring_refused");
    for (at, _) in places {
        chip.pf.note(rx + at, 0x1000);
        chip.pf.note(tx + at, 0x1000);
    }
    for at in [rx + 0xc, tx + 0x38, tx + 0x3c] {
        chip.pf.note(at, 0x1001);
    }
    assert_eq!(all(&mut chip), before);
    assert_eq!(refused(&chip), 13);
    for at in [rx + 0x28, tx + 0x28] {
        assert_ne!(chip.pf.r(at) & 1 << 25, 0);
        chip.pf.note(at, 0);
        assert_eq!(chip.pf.r(at) & 1 << 25, 0, "it may stop a queue");
        chip.pf.note(at, 1 << 25);
        assert_eq!(chip.pf.r(at) & 1 << 25, 0, "and not start it");
    }
    assert_eq!(refused(&chip), 15);
    // The PF's own queues are its own.
    chip.pf.note(queue(0xe008, 2), 0x100);
    assert_eq!(chip.pf.r(queue(0xe008, 2)), 0x100);
    assert_eq!(refused(&chip), 15);
}
