//! What is read at the end of a script with VFs, and which registers count what.

use std::collections::BTreeSet;

use super::super::registers as of_pf;
use super::super::{IGB, Parted};
use super::{VFS, of, vreg};
use crate::oracle::chip::Chip;
use crate::oracle::script::{Op, Script};

/// What is read at the end: of the PF as without VFs, of VFs every register. What causes there are
/// comes last.
pub(in crate::oracle::igb) fn sweep(script: &Script) -> Vec<u32> {
    let chip: &Chip = &super::IGB_VF;
    let pf: Vec<Op> = script
        .ops
        .iter()
        .filter(|op| is_of_pf(op))
        .cloned()
        .collect();
    let mut offsets: Vec<u32> = of_pf::sweep(&Script { ops: pf });
    let causes = offsets.split_off(offsets.len() - 2);
    for vf in 0..VFS {
        let all: BTreeSet<u32> = igb::vf_table()
            .registers()
            .iter()
            .flat_map(|r| (0..r.count).map(move |i| r.offset + i * r.stride))
            .collect();
        let last = [vreg::V2PMAILBOX, vreg::VTEICR];
        let rest = all
            .into_iter()
            .filter(|at| *at != vreg::VTFRTIMER && !last.contains(at));
        offsets.extend(rest.chain(last).map(|at| of(vf, at)));
    }
    debug_assert!(offsets.iter().all(|at| chip.writable(*at).is_some()));
    offsets.extend(causes);
    offsets
}

fn is_of_pf(op: &Op) -> bool {
    !matches!(op, Op::Write { at, .. } if *at >= crate::oracle::layout::VF_WINDOWS)
}

/// Bits of a register that belong to halves that have parted.
pub(super) fn parted(halves: Parted, at: u32) -> u64 {
    let Some((_, offset)) = super::IGB_VF.vf(at) else {
        return (IGB.parted)(halves, at);
    };
    let choose = |on: bool| if on { !0 } else { 0 };
    match offset {
        // A queue's causes may have any vector, and masks follow them.
        vreg::VTEICR | vreg::VTEIMS | vreg::VTEIMC => choose(halves != Parted::default()),
        vreg::VFGPRC | vreg::VFGORC | vreg::VFMPRC | 0xf40 | 0xf48 => choose(halves.rx),
        vreg::VFGPTC | vreg::VFGOTC | 0xf44 | 0xf50 => choose(halves.tx),
        _ => 0,
    }
}

/// As of the PF alone; VFs are not reset.
pub(super) fn harmless(at: u32, value: u32) -> u32 {
    match super::IGB_VF.vf(at) {
        Some((_, vreg::VTCTRL)) => value & !(1 << 26),
        Some(_) => value,
        None => of_pf::harmless(at, value),
    }
}
