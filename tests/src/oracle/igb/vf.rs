//! Our 82576 with virtual functions and QEMU's `igb` with as many.

mod registers;

pub(super) use registers::sweep;

use super::context::reg;
use super::{IGB, differences};
use crate::oracle::chip::Chip;
use crate::oracle::layout::{VF_WINDOW, VF_WINDOWS};
use crate::oracle::script::Op;

/// Virtual functions.
pub(super) const VFS: u32 = 2;
/// Queues that scripts use, by the chip's numbers: the first of both VFs, one of the PF's first pool,
/// the second of both VFs.
pub(super) const QUEUES: [u32; 5] = [0, 1, 2, 8, 9];
/// Descriptors of a ring: all are seen at each look.
pub(super) const RING: u32 = 8;
/// The PF's first pool.
pub(super) const PF_POOL: u32 = VFS;

/// Registers of a VF, in its window.
pub(super) use intel_offsets::igbvf as vreg;

/// Where scripts find a VF's register.
pub(super) const fn of(vf: u32, offset: u32) -> u32 {
    VF_WINDOWS + VF_WINDOW * vf + offset
}

/// Registers read at each look.
const WATCHED: [(u32, &str); 19] = [
    (reg::IMS, "IMS"),
    (reg::EIMS, "EIMS"),
    (reg::STATUS, "STATUS"),
    (reg::RDH + 0x80, "RDH[2]"),
    (reg::TDH + 0x80, "TDH[2]"),
    (0xc0c, "P2VMAILBOX[3]"),
    (reg::VFRE, "VFRE"),
    (reg::VFTE, "VFTE"),
    (0xc80, "MBVFICR"),
    (0xc88, "VFLRE"),
    (0xc00, "P2VMAILBOX[0]"),
    (of(0, vreg::RDH), "VF0.RDH[0]"),
    (of(0, vreg::RDH + vreg::QUEUE), "VF0.RDH[1]"),
    (of(0, vreg::TDH), "VF0.TDH[0]"),
    (of(0, vreg::TDH + vreg::QUEUE), "VF0.TDH[1]"),
    (of(1, vreg::RDH), "VF1.RDH[0]"),
    (of(1, vreg::RDH + vreg::QUEUE), "VF1.RDH[1]"),
    (of(1, vreg::TDH), "VF1.TDH[0]"),
    (of(1, vreg::TDH + vreg::QUEUE), "VF1.TDH[1]"),
];

/// The 82576 with virtual functions.
pub static IGB_VF: Chip = Chip {
    name: "82576 with VFs",
    vfs: VFS,
    watched: &WATCHED,
    prologue,
    harmless: registers::harmless,
    sweep: registers::sweep,
    parted: registers::parted,
    list: differences::of_vfs,
    also: differences::list,
    generate: super::generate::with_vfs,
    page: "oracle-igbvf.md",
    preface: PREFACE,
    folder: "oracle/igb/vf",
    ..IGB
};

/// What VFs do when they come to life is seen, and so is their PF's reset.
fn prologue() -> Vec<Op> {
    let mut ops = vec![
        Op::write(0xc88, 0xff),
        Op::write(0xc80, 0xff_00ff),
        Op::read(reg::ICR),
    ];
    ops.extend((0..VFS).map(|vf| Op::read(of(vf, vreg::V2PMAILBOX))));
    ops
}

const PREFACE: &str = "# The oracle of the 82576 with virtual functions

`HYPERNIC_WRITE_DOCS=1 cargo test -p hypernic-tests --test oracle the_page` writes this page from the list in
`tests/src/oracle/igb/differences/vf.rs`; a test fails when it is stale. [oracle.md](oracle.md) says how an oracle works.

This one compares our 82576 with two virtual functions, joined by the on-chip switch as in the daemon, with QEMU's `igb` with two. The
differences on [oracle-igb.md](oracle-igb.md) hold here too; this page has the others. After each step: masks and STATUS of the PF,
heads of all queues of the PF and the VFs, VFRE, VFTE, VFLRE, MBVFICR, INTx, the vectors of all functions that sent a message, the
rings and every frame sent out. At the end: all registers of all functions and all memory. `make test` checks every register of all
functions and runs 400 new scripts, `make test-long` 10 000. Sections are those of Intel's \"82576EB Gigabit Ethernet Controller
Datasheet\", 320961.

| id | difference | right | section |
|---|---|---|---|
";
