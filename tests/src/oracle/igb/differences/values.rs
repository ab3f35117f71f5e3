//! Differences in what registers read, from which nothing follows.

use super::super::context::reg;
use super::evidence::{ever, then, writes, written};
use crate::oracle::compare::{Diff, Step};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::layout::MAC;
use crate::oracle::script::Op;

/// The second half of the first station's address.
const RAH: u32 = reg::RAL + 4;

/// Registers of the manual that QEMU does not have: they read 0 there.
fn absent(at: u32) -> bool {
    matches!(at,
        0x24 | 0x34 | 0x1014..=0x102c | 0x1040..=0x104c | 0x3004 | 0x3540 | 0x3548 | 0x359c..=0x35a0
        | 0x3600..=0x36b0 | 0x403c | 0x4104 | 0x4118 | 0x4128..=0x4138 | 0x4200..=0x4228
        | 0x5480..=0x54c0 | 0x55fc | 0x5980..=0x59fc | 0x5a80..=0x5ac0 | 0x5b44..=0x5b4c | 0x5b64
        | 0x5b70..=0x5b74 | 0x5bbc | 0x5d80..=0x5dbc | 0xa000..=0xa1fc)
        || (0xc000..0xc400).contains(&at) && at & 0x3f == 0x14
}

/// The register a difference is about, by the address scripts know it by.
pub(super) fn home(step: &Step<'_>, diff: &Diff) -> Option<u32> {
    diff.register().map(|at| step.after.chip.home(at))
}

/// Bits of one register, if the difference is about it.
fn of(step: &Step<'_>, diff: &Diff, at: u32, bits: u64) -> u64 {
    if home(step, diff) == Some(at) {
        bits
    } else {
        0
    }
}

/// Whether something was written to a register before the difference.
fn touched(step: &Step<'_>, diff: &Diff, at: u32) -> bool {
    ever(step, diff, |_, op| writes(step, op, at).is_some())
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn list() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "reserved-bits",
            Hypernic,
            "8.1.1",
            "QEMU keeps bits that the manual reserves; ours read 0",
            |step, diff| {
                let Some(at) = home(step, diff) else { return 0 };
                let mask = step.after.chip.writable(at);
                let by = if at == reg::ICR { reg::ICS } else { at };
                let (Some(mask), Some(written)) = (mask, written(step, diff, by)) else {
                    return 0;
                };
                u64::from(!mask & written & diff.theirs as u32)
            },
        ),
        value(
            "absent-registers",
            Hypernic,
            "8.1.3",
            "QEMU lacks these registers, they read 0: SERDES, watchdog, firmware's and PCS registers, packet split types, immediate interrupts, queue filters, mirroring, storm control, rate limits, DCA for receive, what UTA holds, the statistics of host and management apart",
            |step, diff| match home(step, diff) {
                Some(at) if absent(at) && diff.theirs == 0 => !0,
                _ => 0,
            },
        ),
        value(
            "interrupt-addresses",
            Hypernic,
            "8.8.7",
            "QEMU has ICR, ICS, IMS, IMC and IAM only where earlier chips have them (00C0h on), not at 1500h",
            |_, diff| match diff.register() {
                Some(0x1500..=0x1510) => !0,
                _ => 0,
            },
        ),
        value(
            "flow-control",
            Both,
            "8.2.1",
            "QEMU sets RFCE and TFCE in CTRL when negotiation ends",
            |step, diff| of(step, diff, reg::CTRL, 0x1800_0000),
        ),
        value(
            "pause-address",
            Hypernic,
            "8.5.1",
            "FCAL, FCAH and FCT hold the address and type of pause frames after a reset; in QEMU they hold 0",
            |step, diff| match home(step, diff) {
                Some(at @ (0x28 | 0x2c | 0x30)) if !touched(step, diff, at) && diff.theirs == 0 => {
                    !0
                }
                _ => 0,
            },
        ),
        value(
            "status-asdv",
            Hypernic,
            "8.2.2",
            "QEMU's STATUS does not show the detected speed (ASDV)",
            |step, diff| of(step, diff, reg::STATUS, 0x300),
        ),
        value(
            "pf-reset-done",
            Both,
            "8.2.3",
            "CTRL_EXT.PFRSTD stays set in ours once written; in QEMU it is as last written",
            |step, diff| {
                let once = ever(step, diff, |_, op| {
                    writes(step, op, reg::CTRL_EXT).is_some_and(|value| value & 0x4000 != 0)
                });
                if once {
                    of(step, diff, reg::CTRL_EXT, 0x4000)
                } else {
                    0
                }
            },
        ),
        value(
            "nvm-loaded",
            Hypernic,
            "8.4.1",
            "QEMU's EECD does not say that the NVM was loaded (AUTO_RD)",
            |step, diff| of(step, diff, reg::EECD, 0x200),
        ),
        value(
            "nvm-wires",
            Both,
            "8.4.1",
            "the board decides the NVM's size (EECD) and its idle output; QEMU has no pins, and never grants access to them",
            |step, diff| of(step, diff, reg::EECD, 0x7c88),
        ),
        value(
            "nvm-words",
            Both,
            "6.2",
            "the board maker chooses the words of the NVM, except the address; beyond its end ours reads ones and QEMU does not answer",
            |step, diff| {
                let word = then(step, diff).get(reg::EERD) >> 2 & 0x3fff;
                match word {
                    0..3 => 0,
                    3..0x400 => of(step, diff, reg::EERD, 0xffff_0000),
                    _ => of(step, diff, reg::EERD, 0xffff_0002),
                }
            },
        ),
        value(
            "nvm-configured",
            Hypernic,
            "8.4",
            "QEMU's EEMNGCTL reports another port as configured, and can be written",
            |step, diff| of(step, diff, 0x1010, !0),
        ),
        value(
            "extended-bits",
            Both,
            "8.8.1",
            "which bits EICR, EICS, EIMS and EIMC have depends on GPIE in QEMU, but not in ours",
            |step, diff| {
                let multiple = then(step, diff).has(reg::GPIE, 0x10);
                let theirs: u64 = if multiple { 0x01ff_ffff } else { 0x4000_ffff };
                match home(step, diff) {
                    Some(reg::EICR | reg::EIMS | reg::EIMC) => !theirs,
                    _ => 0,
                }
            },
        ),
        value(
            "device-reset-cause",
            Hypernic,
            "8.8.7",
            "QEMU takes ICR's cause 30 (device reset asserted) for the TCP timer, which has its own bit in EICR and entry in IVAR_MISC",
            |step, diff| {
                let raised = ever(step, diff, |_, op| {
                    writes(step, op, reg::ICS).is_some_and(|value| value & 1 << 30 != 0)
                });
                if raised {
                    of(step, diff, reg::EICR, 1 << 30)
                } else {
                    0
                }
            },
        ),
        value(
            "eimc-read",
            Both,
            "8.8.4",
            "EIMC, a register for writing, shows the mask when read; in QEMU it shows 0",
            |step, diff| {
                let none = diff.theirs == 0;
                if none {
                    of(step, diff, reg::EIMC, !0)
                } else {
                    0
                }
            },
        ),
        value(
            "ics-read",
            Both,
            "8.8.8",
            "ICS, a register for writing, shows the causes when read; in QEMU it shows 0",
            |step, diff| {
                let none = diff.theirs == 0;
                if none {
                    of(step, diff, reg::ICS, !0)
                } else {
                    0
                }
            },
        ),
        value(
            "eiac",
            Hypernic,
            "8.8.5",
            "QEMU's EIAC ignores writes without GPIE.Multiple_MSIX, and bits once set stay set",
            |step, diff| of(step, diff, reg::EIAC, !0),
        ),
        value(
            "eiam",
            Hypernic,
            "8.8.6",
            "QEMU's EIAM sets the bits that are written as 0, and masks nothing",
            |step, diff| of(step, diff, reg::EIAM, !0),
        ),
        value(
            "icr-asserted",
            Hypernic,
            "8.8.7",
            "ICR.INTA shows a pending interrupt; in QEMU any cause, enabled or not, and nothing with GPIE.Multiple_MSIX",
            |step, diff| of(step, diff, reg::ICR, 0x8000_0000),
        ),
        value(
            "assertions",
            Hypernic,
            "8.18.64",
            "IAC counts interrupts; QEMU counts the causes that raised INTx, and no messages",
            |step, diff| of(step, diff, reg::IAC, !0),
        ),
        value(
            "flexible-filters",
            Hypernic,
            "8.20.13",
            "QEMU keeps four bits per word of the wake-up filters, and lacks the last words of these and of the management filters",
            |step, diff| match home(step, diff) {
                Some(0x9000..0x9800) => !0,
                _ => 0,
            },
        ),
        value(
            "wake-up-written",
            Hypernic,
            "8.20",
            "writing ones clears PME_Status (WUC) and WUS; in QEMU they keep what is written",
            |step, diff| {
                let pme = of(step, diff, 0x5800, 4 & diff.theirs);
                pme | of(step, diff, 0x5810, diff.theirs)
            },
        ),
        value(
            "gcr",
            Both,
            "8.6",
            "the board decides the latencies in GCR, and the version of its capability (bit 18) cannot be written in ours",
            |step, diff| of(step, diff, 0x5b00, 0x0684_0000),
        ),
        value(
            "rqdpc-written",
            Hypernic,
            "8.10.11",
            "QEMU's RQDPC of queue 0 can be written, and counts nothing",
            |step, diff| match home(step, diff) {
                Some(at @ 0xc000..0xc400) if at & 0x3f == 0x30 => !0,
                _ => 0,
            },
        ),
        value(
            "flush-bit",
            Hypernic,
            "8.10.10",
            "SWFLSH in RXDCTL and TXDCTL clears itself; in QEMU it stays",
            |step, diff| match home(step, diff) {
                Some(at @ (0xc000..0xc400 | 0xe000..0xe400)) if at & 0x3f == 0x28 => 0x0400_0000,
                _ => 0,
            },
        ),
        value(
            "header-size",
            Hypernic,
            "8.10.2",
            "SRRCTL has header buffers of 256 bytes after a reset; in QEMU of none",
            |step, diff| match home(step, diff) {
                Some(at @ 0xc000..0xc400) if at & 0x3f == 0xc && !touched(step, diff, at) => 0x400,
                _ => 0,
            },
        ),
        value(
            "immediate-credits",
            Hypernic,
            "8.8.12",
            "EITR's credits for immediate interrupts come one by one (GPIE.LL_Interval); in QEMU they are what was written",
            |step, diff| match home(step, diff) {
                Some(at @ reg::EITR..0x16e4)
                    if written(step, diff, reg::GPIE).is_some_and(|gpie| gpie & 0xf80 != 0)
                        && written(step, diff, at).is_some_and(|eitr| eitr & 0x8000 != 0) =>
                {
                    0x1f_0000
                }
                _ => 0,
            },
        ),
        value(
            "nvm-reloaded",
            Hypernic,
            "8.2.3",
            "CTRL_EXT.EE_RST reads the NVM and the station address again; in QEMU it does nothing",
            |step, diff| {
                let again = ever(step, diff, |_, op| {
                    writes(step, op, reg::CTRL_EXT).is_some_and(|value| value & 0x2000 != 0)
                });
                let [a, b, w, d, e, f] = MAC;
                let address = match home(step, diff) {
                    Some(reg::RAL) => u32::from_le_bytes([a, b, w, d]),
                    Some(RAH) => u32::from_le_bytes([e, f, 0, 0x80]),
                    _ => return 0,
                };
                if again && diff.ours == u64::from(address) {
                    !0
                } else {
                    0
                }
            },
        ),
        value(
            "clock",
            Hypernic,
            "8.16",
            "QEMU's SYSTIM cannot be set and keeps its adjustments over resets; it counts whole nanoseconds only",
            |step, diff| match home(step, diff) {
                Some(0xb600 | 0xb604) => !0,
                _ => 0,
            },
        ),
        value(
            "txctrl-alias",
            Hypernic,
            "8.13.2",
            "at the second address of DCA_TXCTRL[3] QEMU has DCA_TXCTRL[9]",
            |step, diff| {
                let second = |at: &u32| *at == 0x3b14;
                let by = diff.register().is_some_and(|at| second(&at))
                    || ever(
                        step,
                        diff,
                        |_, op| matches!(op, Op::Write { at, .. } if second(&(at & !3))),
                    );
                match home(step, diff) {
                    Some(0xe0d4 | 0xe254) if by => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "mdic-nobody",
            Hypernic,
            "8.2.4",
            "for a PHY that does not exist, QEMU's MDIC shows the previous command",
            |step, diff| {
                let nobody = |value: u32| value >> 21 & 0x1f != 1;
                match home(step, diff) {
                    Some(reg::MDIC) if nobody(then(step, diff).get(reg::MDIC)) => !0x5000_0000,
                    // The command before may have asked for an interrupt.
                    Some(reg::ICR | reg::ICS)
                        if ever(step, diff, |_, op| {
                            writes(step, op, reg::MDIC).is_some_and(nobody)
                        }) =>
                    {
                        0x200
                    }
                    _ => 0,
                }
            },
        ),
        value(
            "mdic-opcode",
            Both,
            "8.2.4",
            "the opcodes 00b and 11b are reserved: ours answers with an error, QEMU does nothing or reads",
            |step, diff| {
                if matches!(then(step, diff).get(reg::MDIC) >> 26 & 3, 0 | 3) {
                    of(step, diff, reg::MDIC, !0)
                } else {
                    0
                }
            },
        ),
        value(
            "mdic-error",
            Hypernic,
            "8.2.4",
            "QEMU reports an error for PHY registers that it lacks and for writes to read-only ones; E means a PHY that does not answer",
            |step, diff| {
                if diff.theirs & 0x4000_0000 != 0 && diff.ours & 0x4000_0000 == 0 {
                    of(step, diff, reg::MDIC, 0x4000_ffff)
                } else {
                    0
                }
            },
        ),
        value(
            "phy-values",
            Both,
            "8.25",
            "the makers choose what the PHY and its partner offer",
            |step, diff| {
                let command = then(step, diff).get(reg::MDIC);
                if command >> 26 & 3 != 2 || command >> 21 & 31 != 1 {
                    return 0;
                }
                match command >> 16 & 31 {
                    1 => of(step, diff, reg::MDIC, 0x24),
                    4..=10 | 15.. => of(step, diff, reg::MDIC, 0xffff),
                    _ => 0,
                }
            },
        ),
    ]
}
