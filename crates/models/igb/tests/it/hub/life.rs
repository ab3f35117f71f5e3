//! SR-IOV's registers, saved states.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::*;
use crate::hub::chip::*;
use eswitch::Owner;
use intel_offsets::igb::long::{
    CTRL_EXT, DTXSWC, MBVFICR, MBVFIMR, MRQC, MTA, QDE, UTA, VFLRE, VFRE, VFTE, VLVF, VMBMEM,
    VMOLR, VMVIR, VT_CTL, WVBR,
};
use intel_offsets::igbvf::long::V2PMAILBOX;
use model::ResetKind;

#[test]
fn what_rules_is_saved_and_holds_where_it_is_loaded() {
    let mut chip = Chip::up(3);
    for (at, value) in [
        (MBVFIMR, 0x03),
        (QDE, 0x1234),
        (DTXSWC, 1 << 31 | 7),
        (VMVIR + 8, 1 << 30 | 9),
        (VMOLR + 8, 1 << 27 | 1 << 25 | 3),
        (VLVF + 8, 1 << 31 | 5 << 12 | 77),
        (UTA + 4 * 127, 0x8000_0000),
        (MTA, 3),
    ] {
        chip.pf.note(at, value);
    }
    chip.hub.spoofed(2, 1);
    chip.settle();
    let places = [
        MBVFIMR,
        VFRE,
        VFTE,
        QDE,
        DTXSWC,
        VT_CTL,
        MRQC,
        VMVIR + 8,
        VMOLR + 8,
        VLVF + 8,
        UTA + 4 * 127,
        MTA,
        reg::RAH + 8 * 13,
        CTRL_EXT,
    ];
    let blob = chip.pf.nic.control.save(&chip.pf.env);
    let mut other = Chip::new(3);
    assert!(other.silent(2));
    let Machine { nic, env, .. } = &mut other.pf;
    nic.control.load(env, &blob).expect("its own state");
    other.settle();
    for at in places {
        assert_eq!(other.pf.r(at), chip.pf.r(at), "{at:#x}");
    }
    assert_eq!(other.pf.r(WVBR), 4);
    for owner in [Owner::Pf, Owner::Vf(0), Owner::Vf(1), Owner::Vf(2)] {
        assert_eq!(other.pool(owner), chip.pool(owner), "{owner:?}");
    }
    assert!(!other.silent(2));
    assert_eq!(other.vfs[2].r(V2PMAILBOX), 0x80, "its PF is there");
    // A VF brings its mailbox along: what it had said is heard here.
    chip.vfs[2].note(VMBMEM, 0x55);
    chip.vfs[2].note(V2PMAILBOX, 1);
    let blob = chip.vfs[2].nic.control.save(&chip.vfs[2].env);
    let Machine { nic, env, .. } = &mut other.vfs[2];
    nic.control.load(env, &blob).expect("its own state");
    other.listen();
    assert_eq!(other.pf.r(reg::ICR) & VMMB, 0, "masked");
    assert_eq!((other.pf.r(MBVFICR), other.pf.r(VMBMEM + 128)), (4, 0x55));
}

#[test]
fn vfs_are_those_that_sriov_has_enabled_or_all_where_nobody_has_seen_it() {
    let mut chip = Chip::up(3);
    let iov = |chip: &mut Chip| chip.pf.r(reg::STATUS) >> 14 & 0x1f;
    assert_eq!(iov(&mut chip), 0);
    chip.vfs[2].note(V2PMAILBOX, 1);
    assert_eq!(chip.pf.r(MBVFICR), 4);
    enable(&mut chip, 2);
    chip.settle();
    assert_eq!(iov(&mut chip), 1 << 4 | 2);
    assert!(!chip.silent(0) && !chip.silent(1), "they go on");
    assert!(chip.silent(2), "there is none");
    assert_eq!(chip.vfs[2].r(V2PMAILBOX) & 0x40, 0x40, "RSTI");
    // Its pool is the PF's, and nothing that it does concerns it any more.
    assert_eq!(chip.pool(Owner::Pf).macs, [mac(2)]);
    chip.pf.r(reg::ICR);
    chip.vfs[2].note(V2PMAILBOX, 1);
    chip.vfs[2].note(reg::CTRL, RST);
    chip.settle();
    assert_eq!([MBVFICR, VFLRE].map(|at| chip.pf.r(at)), [0, 0]);
    assert_eq!(chip.pf.r(VFRE), 0xff);
    assert_eq!(chip.pf.r(reg::ICR) & VMMB, 0);
    chip.pf.note(CTRL_EXT, PFRSTD);
    assert_eq!(chip.vfs[2].r(V2PMAILBOX) & 0x40, 0x40, "for good");
    // Ended: what was allowed is not any more, until they have started anew.
    enable(&mut chip, 0);
    chip.settle();
    assert_eq!(
        (iov(&mut chip), chip.pf.r(VFRE), chip.pf.r(VFTE)),
        (0, 0xf8, 0xf8)
    );
    for vf in 0..3 {
        assert!(chip.silent(vf));
        assert_eq!(chip.vfs[vf as usize].r(V2PMAILBOX) & 0x40, 0x40);
    }
    assert!(chip.pool(Owner::Pf).macs.is_empty());
    chip.pf.note(CTRL_EXT, PFRSTD);
    chip.vfs[2].note(reg::CTRL, RST);
    assert_eq!(chip.vfs[2].r(V2PMAILBOX), 0x80, "RSTD");
    assert_eq!(chip.pf.r(VFLRE), 4);
    chip.give(2);
    assert!(!chip.silent(2));
    // The bus takes them away as well, and more than there are is all of them.
    enable(&mut chip, 9);
    assert_eq!(iov(&mut chip), 1 << 4 | 3);
    let Machine { nic, env, .. } = &mut chip.pf;
    nic.control.reset(env, ResetKind::Bus);
    assert_eq!(iov(&mut chip), 0);
    chip.settle();
    assert!(chip.silent(2));
    // Going to and fro without end costs the switch no more than other changes.
    let before = chip.book.1.load(SeqCst);
    for n in 0..1000 {
        enable(&mut chip, n % 4);
    }
    assert!(chip.book.1.load(SeqCst) - before <= 2 * 4);
}
