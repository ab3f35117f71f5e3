//! Differences in virtual functions and in how the PF rules them.

use super::super::compare::{Diff, Step};
use super::super::context::reg;
use super::super::script::Op;
use super::super::vf::{IGB_VF, of_a_vf, vreg};
use super::Difference;
use super::Right::{Both, Hypernic, Qemu};
use super::evidence::{ever, writes};
use super::values::home;

/// The register of a VF that a difference is about: its place in the window.
fn register(step: &Step<'_>, diff: &Diff) -> Option<u32> {
    let at = diff.register()?;
    step.after.chip.vf(at).map(|(_, offset)| offset)
}

/// Bits of one register of VFs, if the difference is about it.
fn of(step: &Step<'_>, diff: &Diff, at: u32, bits: u64) -> u64 {
    if register(step, diff) == Some(at) {
        bits
    } else {
        0
    }
}

pub(super) fn list() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "vf-status",
            Both,
            "8.26.2",
            "a VF's status has link, duplex and speed; QEMU shows the whole register of the PF",
            |step, diff| of(step, diff, vreg::VTSTATUS, !0xc3),
        ),
        value(
            "vf-timer",
            Hypernic,
            "8.26.3",
            "QEMU's free running timer of a VF stands still",
            |step, diff| match diff.theirs {
                0 => of(step, diff, vreg::VTFRTIMER, !0),
                _ => 0,
            },
        ),
        value(
            "vf-pending",
            Both,
            "8.26.10",
            "PBACL, by which pending messages are forgotten, reads 0; in QEMU it is one for all functions and keeps what is written",
            |step, diff| of(step, diff, vreg::PBACL, diff.theirs),
        ),
        value(
            "vf-mask",
            Hypernic,
            "8.26.5",
            "VTEIMS and VTEIMC show the mask; in QEMU the one shows what was last written to it, and the other nothing",
            |step, diff| {
                of(step, diff, vreg::VTEIMS, !0) | of(step, diff, vreg::VTEIMC, diff.ours)
            },
        ),
        value(
            "vf-causes",
            Hypernic,
            "8.26.9",
            "VTEICR shows what stands; in QEMU what was last written to it",
            |step, diff| of(step, diff, vreg::VTEICR, !0),
        ),
        value(
            "vf-through-pf",
            Qemu,
            "7.10.2",
            "in ours a VF's queues and vectors are in no window but its own, and the PF has others where a chip has those",
            |step, diff| {
                let Some(at) = home(step, diff) else { return 0 };
                let by_pf = |op: &_| {
                    let ours = step.after.chip.vf(op_at(op)).is_none();
                    ours && writes(step, op, twin(at)).is_some()
                };
                let mine = diff.register().is_some_and(|at| step.after.chip.vf(at).is_none());
                let shown = mine && of_a_vf(at);
                if shown || ever(step, diff, |_, op| by_pf(op)) && of_a_vf(twin(at)) {
                    !0
                } else {
                    0
                }
            },
        ),
    ]
}

/// Where a write goes; nowhere if it is none.
fn op_at(op: &Op) -> u32 {
    match op {
        Op::Write { at, .. } => *at,
        _ => 0,
    }
}

/// Where a chip's PF has a register that is known by this address.
fn twin(at: u32) -> u32 {
    match IGB_VF.vf(at) {
        Some((vf, offset @ 0x1680..0x168c)) => reg::EITR + 4 * 22 + (offset - 0x1680) - 12 * vf,
        _ => at,
    }
}
