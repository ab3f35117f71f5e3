//! Differences in what is done: from there on, a part of the script cannot be compared.

use super::super::compare::{Parted, Step};
use super::super::context::reg;
use super::super::script::Op;
use super::Difference;
use super::Right::Hypernic;
use super::evidence::writes;

/// The interrupts part.
const IRQ: Parted = Parted {
    rx: false,
    tx: false,
    link: false,
    irq: true,
};

pub(super) fn list() -> Vec<Difference> {
    let parting = Difference::parting;
    vec![
        parting(
            "interrupts-unseen",
            Hypernic,
            "8.8.7",
            "what was written to ICS, IMS, IMC or IAM at 1500h did not reach QEMU's",
            |step, _| {
                let written = step.past.iter().chain(step.ops).any(|op| {
                    matches!(
                        op,
                        Op::Write {
                            at: 0x14fd..=0x1513,
                            ..
                        }
                    )
                });
                written.then_some(IRQ)
            },
        ),
        parting(
            "device-reset-vector",
            Hypernic,
            "8.8.14",
            "in QEMU cause 30 of ICR leads to the TCP timer's vector; it is one of the others",
            |step, _| {
                let raised = wrote(step, reg::ICS, 1 << 30) && step.after.has(reg::GPIE, 0x10);
                raised.then_some(IRQ)
            },
        ),
        parting(
            "extended-line",
            Hypernic,
            "8.8.2",
            "without GPIE.Multiple_MSIX what stands in EICR and is enabled in EIMS interrupts too; in QEMU only ICR does",
            |step, _| {
                let enabled = wrote(step, reg::EIMS, !0) && !step.after.has(reg::GPIE, 0x10);
                enabled.then_some(IRQ)
            },
        ),
        parting(
            "auto-mask",
            Hypernic,
            "8.8.11",
            "IAM masks when ICR is read or written while an interrupt stands (INTA); in QEMU while any cause stands, and with GPIE.Multiple_MSIX never",
            |step, _| wrote(step, reg::IAM, !0).then_some(IRQ),
        ),
        parting(
            "icr-unasserted",
            Hypernic,
            "8.8.7",
            "a read of ICR clears nothing if something is enabled and nothing of it stands (INTA = 0); in QEMU it clears all",
            |step, _| {
                let read = step.past.iter().chain(step.ops).any(|op| {
                    matches!(op, Op::Read { at, .. } if step.after.chip.home(*at & !3) == reg::ICR)
                });
                read.then_some(IRQ)
            },
        ),
    ]
}

/// Whether some of these bits were written as ones to a register.
fn wrote(step: &Step<'_>, at: u32, bits: u32) -> bool {
    let mut all = step.past.iter().chain(step.ops);
    all.any(|op| writes(step, op, at).is_some_and(|value| value & bits != 0))
}
