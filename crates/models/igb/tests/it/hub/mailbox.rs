//! Mailboxes and resets.

use crate::common::*;
use crate::hub::chip::*;
use eswitch::Owner;
use intel_offsets::igb::long::{
    CTRL_EXT, MBVFICR, MBVFIMR, MRQC, P2VMAILBOX, VFLRE, VFRE, VFTE, VMBMEM, VT_CTL,
};
use intel_offsets::igbvf::long::V2PMAILBOX;
use model::ResetKind;

/// Without a VF of that number, the mailbox register has only the PF's own bit.
#[test]
fn the_mailbox_of_a_vf_that_is_not_there_is_silent() {
    let mut chip = Chip::new(2);
    chip.pf.note(P2VMAILBOX + 4 * 7, 0x1f);
    assert_eq!(chip.pf.r(P2VMAILBOX + 4 * 7), 8);
    chip.pf.note(P2VMAILBOX + 4 * 7, 0);
    assert_eq!(chip.pf.r(P2VMAILBOX + 4 * 7), 0);
}

#[test]
fn messages_go_both_ways_by_registers_and_interrupt_who_is_to_read_them() {
    let mut chip = Chip::up(3);
    chip.pf.note(reg::IMS, VMMB);
    assert!(!chip.pf.line());
    // VF 1 asks.
    let vf = &mut chip.vfs[1];
    vf.note(0x1740, 0x82);
    vf.note(0x1524, 7);
    vf.note(V2PMAILBOX, 4);
    assert_eq!(vf.r(V2PMAILBOX), 4, "its buffer");
    assert_eq!(chip.pf.r(P2VMAILBOX + 4), 4, "the PF sees whose it is");
    for n in 0..16 {
        chip.vfs[1].note(VMBMEM + 4 * n, 0x100 + n as u32);
    }
    chip.vfs[1].note(V2PMAILBOX, 1);
    chip.listen();
    assert!(chip.pf.line(), "VMMB");
    assert_eq!(chip.pf.r(reg::ICR) & VMMB, VMMB);
    assert_eq!(chip.pf.r(MBVFICR), 2);
    assert_eq!(chip.pf.r(VFLRE), 0);
    chip.pf.note(MBVFICR, 2);
    assert_eq!(chip.pf.r(MBVFICR), 0);
    // The PF reads, and says so.
    chip.pf.note(P2VMAILBOX + 4, 8);
    assert_eq!(chip.pf.r(P2VMAILBOX + 4), 8);
    for n in 0..16 {
        assert_eq!(chip.pf.r(VMBMEM + 64 + 4 * n), 0x100 + n as u32);
        assert_eq!(chip.pf.r(VMBMEM + 4 * n), 0, "another's");
    }
    chip.pf.note(P2VMAILBOX + 4, 2);
    chip.listen();
    assert_eq!(chip.vfs[1].vectors(), [2]);
    assert_eq!(chip.vfs[1].r(V2PMAILBOX), 0x20, "PFACK");
    // And answers, byte by byte.
    chip.pf.note(P2VMAILBOX + 4, 8);
    for (at, byte) in (0..).zip([0x11, 0x22, 0x33, 0x44]) {
        let env = &chip.pf.env;
        let at = VMBMEM + 64 + at;
        chip.pf.nic.control.write(env, 0, at, &[byte]);
    }
    chip.pf.note(P2VMAILBOX + 4, 1);
    chip.listen();
    assert_eq!(chip.vfs[1].r(V2PMAILBOX), 0x10, "PFSTS");
    assert_eq!(chip.vfs[1].r(VMBMEM), 0x4433_2211);
    chip.vfs[1].note(V2PMAILBOX, 2);
    chip.listen();
    assert_eq!(chip.pf.r(MBVFICR), 1 << 17, "it has read");
    assert_eq!(chip.pf.r(reg::ICR) & VMMB, VMMB);
    chip.pf.note(MBVFICR, 1 << 17);
    // Those whose messages are masked say nothing, and can be asked.
    chip.pf.note(MBVFIMR, 0xfd);
    chip.vfs[1].note(V2PMAILBOX, 1);
    chip.listen();
    assert_eq!((chip.pf.r(MBVFICR), chip.pf.r(reg::ICR) & VMMB), (2, 0));
    chip.vfs[2].note(V2PMAILBOX, 1);
    chip.listen();
    assert_eq!((chip.pf.r(MBVFICR), chip.pf.r(reg::ICR) & VMMB), (6, VMMB));
    // What belongs to VFs that are not there is kept, and leads nowhere.
    chip.pf.note(VMBMEM + 64 * 5, 7);
    chip.pf.note(P2VMAILBOX + 20, 9);
    assert_eq!(chip.pf.r(VMBMEM + 64 * 5), 7);
}

#[test]
fn a_reset_of_either_side_reaches_the_other_and_takes_what_was_allowed() {
    let mut chip = Chip::up(2);
    assert!(!chip.silent(0) && !chip.silent(1));
    assert_eq!(chip.pool(Owner::Vf(1)).macs, [mac(1)]);
    // VTCTRL.RST.
    chip.vfs[1].note(reg::CTRL, RST);
    assert!(chip.silent(1) && !chip.silent(0), "before anybody looks");
    assert_eq!((chip.pf.r(VFRE), chip.pf.r(VFTE)), (0xfd, 0xfd));
    chip.pf.note(reg::IMS, VMMB);
    chip.listen();
    assert!(chip.pf.line());
    assert_eq!((chip.pf.r(VFLRE), chip.pf.r(VFLRE)), (2, 2));
    chip.pf.note(VFLRE, 1);
    assert_eq!(chip.pf.r(VFLRE), 2);
    chip.pf.note(VFLRE, 2);
    assert_eq!(chip.pf.r(VFLRE), 0);
    assert_eq!(chip.vfs[1].r(V2PMAILBOX), 0x80, "RSTD");
    chip.give(1);
    assert!(!chip.silent(1));
    // The bus resets a VF as its driver does.
    let Machine { nic, env, .. } = &mut chip.vfs[0];
    nic.control.reset(env, ResetKind::Bus);
    assert!(chip.silent(0));
    assert_eq!(chip.pf.r(VFLRE), 1);
    chip.give(0);
    // The PF is reset: no VF may send or receive, messages are dropped, and all VFs are notified.
    chip.vfs[0].note(V2PMAILBOX, 1);
    chip.pf.note(reg::CTRL, RST);
    assert!(chip.silent(0) && chip.silent(1));
    assert_eq!([MBVFICR, VFLRE].map(|at| chip.pf.r(at)), [0, 0]);
    for vf in &mut chip.vfs {
        assert_eq!([vf.r(V2PMAILBOX), vf.r(V2PMAILBOX)], [0x40; 2], "RSTI");
    }
    // Pools alone do not make it ready.
    let on = [
        (MRQC, 3),
        (VT_CTL, REPLICATE),
        (reg::RCTL, 2),
        (reg::TCTL, 2),
    ];
    for (at, value) in on {
        chip.pf.note(at, value);
    }
    chip.settle();
    assert!(chip.silent(0));
    chip.pf.note(CTRL_EXT, PFRSTD);
    for vf in &mut chip.vfs {
        assert_eq!([vf.r(V2PMAILBOX), vf.r(V2PMAILBOX)], [0x80, 0], "RSTD");
    }
    // A PF that is taken away is in reset for good.
    chip.give(0);
    assert!(!chip.silent(0));
    chip.hub.vacate();
    assert!(chip.silent(0) && chip.silent(1));
    assert_eq!(chip.vfs[0].r(V2PMAILBOX), 0x40);
}
