//! Differences in virtual functions and in how the PF rules them.

use super::super::context::{Context, reg};
use super::super::vf::{IGB_VF, VFS, of as vf_at, vreg};
use super::done::IRQ;
use super::evidence::{Pieces, ever, frame, writes};
use super::frames::padded_inside;
use super::values::home;
use crate::oracle::compare::{Diff, Parted, Step, What};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::layout::{RX_BUFFERS, TX_BUFFERS, VECTORS};
use crate::oracle::script::Op;

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

#[expect(clippy::too_many_lines, reason = "a table")]
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
            "PBACL, which clears pending messages, reads 0; in QEMU all functions share one, and it keeps what is written",
            |step, diff| match home(step, diff) {
                Some(0x5b68) => diff.theirs,
                _ => of(step, diff, vreg::PBACL, diff.theirs),
            },
        ),
        value(
            "vf-mask",
            Hypernic,
            "8.26.5",
            "VTEIMS and VTEIMC show the mask, VTEIAC and VTEIAM the VF's vectors in EIAC and EIAM; in QEMU VTEIMC reads 0, the others what was last written",
            |step, diff| {
                let masks = [vreg::VTEIMS, vreg::VTEIAC, vreg::VTEIAM];
                let shown = masks.map(|at| of(step, diff, at, !0));
                shown[0] | shown[1] | shown[2] | of(step, diff, vreg::VTEIMC, diff.ours)
            },
        ),
        value(
            "vf-entries",
            Hypernic,
            "8.26.13",
            "a VF's queues use only its own vectors; in QEMU IVAR takes any, and values written to VTIVAR are added to it",
            |step, diff| match home(step, diff) {
                Some(at @ reg::IVAR..0x1720) if (at - reg::IVAR) / 4 < VFS => 0x9f9f_9f9f,
                _ => of(step, diff, vreg::VTIVAR, 0x8383_8383),
            },
        ),
        value(
            "vf-causes",
            Hypernic,
            "8.26.9",
            "VTEICR shows pending causes, and reading clears them; in QEMU it shows what was last written",
            |step, diff| match diff.what {
                // VTEICR is read before it.
                What::Register {
                    at: reg::EICR,
                    op: None,
                } => (0..VFS).fold(0, |all, vf| all | 7 << (22 - 3 * vf)),
                _ => of(step, diff, vreg::VTEICR, !0),
            },
        ),
        value(
            "vf-reset",
            Both,
            "4.2.1",
            "a VF's reset (VTCTRL.RST) resets all of its registers and its mailbox; QEMU's only switches its queues off",
            |step, diff| {
                let reset = |vf| {
                    ever(step, diff, |_, op| {
                        writes(step, op, vf_at(vf, vreg::VTCTRL)).is_some_and(|v| v & 1 << 26 != 0)
                    })
                };
                let all = (0..VFS).filter(|vf| reset(*vf));
                if diff.what == What::Messages {
                    return all.fold(0, |all, vf| all | vectors(vf));
                }
                let of_vectors = [reg::EICR, reg::EIMS, reg::EIMC, reg::EIAC, reg::EIAM];
                match diff.register() {
                    Some(0xc80) => all.fold(0, |all, vf| all | 0x1_0001 << vf),
                    Some(at)
                        if of_vectors.contains(&IGB_VF.home(at)) && IGB_VF.vf(at).is_none() =>
                    {
                        all.fold(0, |all, vf| all | 7 << (22 - 3 * vf))
                    }
                    Some(at) if whose(at) < VFS && reset(whose(at)) => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "vf-port-causes",
            Both,
            "8.8.7",
            "ICR (TXDW, RXDMT0, RXO, RXDW) covers the PF's queues; in QEMU also those of its VFs",
            |step, diff| match home(step, diff) {
                Some(reg::ICR) if frame(step, |_, _| true) => 0xd1,
                _ => 0,
            },
        ),
        value(
            "vf-padded",
            Both,
            "8.12.1",
            "a short frame is padded before the switch inserts its tag; QEMU does not pad at all",
            |step, diff| match diff.what {
                What::Sent(i) => {
                    let (ours, theirs) = (&step.ours.sent[i], &step.theirs.sent[i]);
                    let padded = ours.len() == 64
                        && ours.starts_with(theirs)
                        && ours[12..14] == [0x81, 0]
                        && ours[theirs.len()..].iter().all(|b| *b == 0);
                    if padded { !0 } else { 0 }
                }
                // The same behind which the receiver has taken out what it asks for.
                What::RxDesc { upper: true, .. } => {
                    let [ours, theirs] = [diff.ours, diff.theirs].map(|word| word >> 32 & 0xffff);
                    if padded_inside(step, ours, theirs) {
                        0xffff << 32
                    } else {
                        0
                    }
                }
                _ => 0,
            },
        ),
        value(
            "vf-taken",
            Hypernic,
            "8.14.3",
            "a VF loses the buffer that the PF takes (RVFU); QEMU's P2VMAILBOX still shows it as the VF's, and the PF cannot take it again",
            |step, diff| {
                let vf = match diff.register() {
                    Some(at @ 0xc00..0xc20) => (at - 0xc00) / 4,
                    Some(at) if register(step, diff) == Some(vreg::V2PMAILBOX) => {
                        IGB_VF.vf(at).map_or(VFS, |(vf, _)| vf)
                    }
                    _ => return 0,
                };
                let taken = |_: &Context, op: &Op| {
                    writes(step, op, 0xc00 + 4 * vf).is_some_and(|value| value & 0x10 != 0)
                };
                // Nor can the PF have it then.
                if ever(step, diff, taken) { 0xc } else { 0 }
            },
        ),
        value(
            "vf-mailbox-mask",
            Hypernic,
            "8.14",
            "MBVFIMR selects the VFs whose messages interrupt the PF (VMMB); in QEMU all do",
            |step, diff| match home(step, diff) {
                Some(reg::ICR) if masked(step) => 0x100,
                _ => 0,
            },
        ),
        value(
            "vf-mailbox-vector",
            Hypernic,
            "8.26.14",
            "a message to a VF raises the vector in VTIVAR_MISC; QEMU takes the vector's number for a set of vectors and raises these",
            |step, diff| {
                if diff.what != What::Messages {
                    return 0;
                }
                (0..VFS)
                    .filter(|vf| told(step, diff, *vf))
                    .fold(0, |all, vf| all | vectors(vf))
            },
        ),
    ]
}

/// What is sent and received parts.
pub(super) const BOTH: Parted = Parted {
    rx: true,
    tx: true,
    link: false,
    irq: false,
};

pub(super) fn partings() -> Vec<Difference> {
    let parting = Difference::parting;
    vec![
        parting(
            "vf-mailbox-unmasked",
            Hypernic,
            "8.14",
            "MBVFIMR as in `vf-mailbox-mask`, with the PF's interrupt",
            |step, _| masked(step).then_some(IRQ),
        ),
        parting(
            "vf-auto-mask",
            Hypernic,
            "8.26.8",
            "VTEIAM masks vectors that have sent their message; in QEMU it masks nothing",
            |step, _| {
                let mut all = step.past.iter().chain(step.ops);
                let written = all.any(|op| {
                    let value = |vf| writes(step, op, vf_at(vf, vreg::VTEIAM));
                    (0..VFS).any(|vf| value(vf).is_some_and(|bits| bits & 7 != 0))
                });
                written.then_some(IRQ)
            },
        ),
        parting(
            "vf-second-queue",
            Hypernic,
            "8.26.13",
            "the second queues of VFs have vectors in VTIVAR too; in QEMU none",
            |step, _| {
                let mut all = step.past.iter().chain(step.ops);
                let written = all.any(|op| {
                    let value = |vf| writes(step, op, vf_at(vf, vreg::VTIVAR));
                    (0..VFS).any(|vf| value(vf).is_some_and(|bits| bits & 0x8080_0000 != 0))
                });
                written.then_some(IRQ)
            },
        ),
        parting(
            "vf-not-ready",
            Both,
            "4.2.1",
            "VFs neither send nor receive before the PF is ready (CTRL_EXT.PFRSTD); QEMU's do",
            |step, _| {
                let mut all = step.past.iter().chain(step.ops);
                let ready = all.any(|op| {
                    writes(step, op, reg::CTRL_EXT).is_some_and(|value| value & 0x4000 != 0)
                });
                (!ready && frame(step, |_, _| true)).then_some(BOTH)
            },
        ),
        parting(
            "vf-spoofing",
            Hypernic,
            "8.14",
            "DTXSWC enables checks that drop and report (WVBR, DOUTSYNC) frames with another VF's address or VLAN; QEMU checks none",
            |step, _| {
                let looked =
                    |c: &Context, pool: u32, _: &[u8]| c.get(reg::DTXSWC) >> pool & 0x101 != 0;
                sent(step, looked).then_some(Parted::ALL)
            },
        ),
        parting(
            "vf-released",
            Hypernic,
            "8.14",
            "waiting frames leave when VFTE allows it; in QEMU with the next tail write",
            |step, _| {
                let waits = |c: &Context, pool: u32, _: &[u8]| c.get(reg::VFTE) >> pool & 1 == 0;
                sent(step, waits).then_some(BOTH)
            },
        ),
    ]
}

/// Whether this held for a frame when a ring with it was handed over, given what was written up to then
/// and the pool whose ring it was.
pub(super) fn sent(step: &Step<'_>, mut is: impl FnMut(&Context, u32, &[u8]) -> bool) -> bool {
    let mut context = Context::new(step.after.chip);
    // Each piece by itself, and all of them together: a tail is of one packet.
    let mut waiting: Vec<&[u8]> = Vec::new();
    let mut pieces = Pieces::default();
    step.past.iter().chain(step.ops).any(|op| {
        context.follow(op);
        let packets = pieces.follow(&context, op);
        match op {
            Op::Mem { at, bytes } if (TX_BUFFERS..RX_BUFFERS).contains(at) => {
                waiting.push(bytes);
                false
            }
            Op::Write { at, .. } => {
                let home = context.chip.home(*at);
                let tail = (reg::TDBAL..reg::TDBAL + 0x400).contains(&home) && home & 0x3f == 0x18;
                let pool = home >> 6 & 7;
                if !tail {
                    return false;
                }
                let whole = waiting.concat();
                let all = waiting.drain(..).chain([&whole[..]]);
                let mut all = all.chain(packets.iter().map(|packet| &packet[..]));
                all.any(|frame| frame.len() >= 24 && is(&context, pool, frame))
            }
            _ => false,
        }
    })
}

/// Pools, bit by bit, whose station a frame is for.
pub(super) fn stations(c: &Context, frame: &[u8]) -> u32 {
    (0..16).fold(0, |all, at| {
        let [low, high] = [0, 4].map(|half| c.get(reg::RAL + 8 * at + half));
        let [a, b, w, d] = low.to_le_bytes();
        let [e, f, ..] = high.to_le_bytes();
        let same = frame[..6] == [a, b, w, d, e, f] && high >> 31 == 1;
        if same { all | high >> 18 & 0xff } else { all }
    })
}

/// Whether a VF may have had a message that the PF did not want to hear of.
fn masked(step: &Step<'_>) -> bool {
    let mut context = Context::new(step.after.chip);
    step.past.iter().chain(step.ops).any(|op| {
        context.follow(op);
        (0..VFS).any(|vf| {
            let rung = writes(step, op, vf_at(vf, vreg::V2PMAILBOX));
            let wanted = context
                .written(0xc84)
                .is_none_or(|bits| bits >> vf & 1 == 1);
            !wanted && rung.is_some_and(|value| value & 3 != 0)
        })
    })
}

/// The messages of a VF.
fn vectors(vf: u32) -> u64 {
    7 << (VECTORS + 3 * vf as u16)
}

/// Whether the PF has told a VF of something.
fn told(step: &Step<'_>, diff: &Diff, vf: u32) -> bool {
    ever(step, diff, |_, op| {
        writes(step, op, 0xc00 + 4 * vf).is_some_and(|value| value & 3 != 0)
    })
}

/// The VF whose a register is, in whatever window; [`VFS`] if it is none's.
fn whose(at: u32) -> u32 {
    if let Some((vf, _)) = IGB_VF.vf(at) {
        return vf;
    }
    let vf = match at {
        0x800..0xa00 => (at - 0x800) / 0x40,
        0xc00..0xc20 => (at - 0xc00) / 4,
        0x1680..0x16e4 => (24 - (at - 0x1680) / 4) / 3,
        0x5480..0x54a0 => (at - 0x5480) / 4,
        0xc000..0xc400 | 0xe000..0xe400 => (at >> 6 & 0xf) % 8,
        _ => VFS,
    };
    vf.min(VFS)
}
