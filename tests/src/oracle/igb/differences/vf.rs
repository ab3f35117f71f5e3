//! Differences in virtual functions and in how the PF rules them.

use super::super::compare::{Diff, Parted, Step, What};
use super::super::context::{Context, reg};
use super::super::script::Op;
use super::super::vf::{IGB_VF, VFS, of as vf_at, of_a_vf, vreg};
use super::Difference;
use super::Right::{Both, Hypernic, Qemu};
use super::done::IRQ;
use super::evidence::{ever, frame, posted, writes};
use super::frames::rx;
use super::values::home;
use crate::oracle::igb::generate::SLOT;
use crate::oracle::{RX_BUFFERS, TX_BUFFERS, VECTORS};

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
            |step, diff| match home(step, diff) {
                Some(0x5b68) => diff.theirs,
                _ => of(step, diff, vreg::PBACL, diff.theirs),
            },
        ),
        value(
            "vf-mask",
            Hypernic,
            "8.26.5",
            "VTEIMS and VTEIMC show the mask; in QEMU the one shows what was last written to it, and the other nothing",
            |step, diff| of(step, diff, vreg::VTEIMS, !0) | of(step, diff, vreg::VTEIMC, diff.ours),
        ),
        value(
            "vf-causes",
            Hypernic,
            "8.26.9",
            "VTEICR shows what stands; in QEMU what was last written to it",
            |step, diff| of(step, diff, vreg::VTEICR, !0),
        ),
        value(
            "vf-reset",
            Both,
            "4.2.1",
            "a VF's reset (VTCTRL.RST) takes all of its registers and its mailbox back; QEMU's switches its queues off and leaves the rest",
            |step, diff| {
                let whose = |at| match at {
                    0x800..0xa00 => (at - 0x800) / 0x40,
                    0xc00..0xc20 => (at - 0xc00) / 4,
                    at => IGB_VF.vf(at).map_or(VFS, |(vf, _)| vf),
                };
                let reset = |vf| {
                    ever(step, diff, |_, op| {
                        writes(step, op, vf_at(vf, vreg::VTCTRL)).is_some_and(|v| v & 1 << 26 != 0)
                    })
                };
                match diff.register() {
                    Some(0xc80) => (0..VFS)
                        .filter(|vf| reset(*vf))
                        .fold(0, |all, vf| all | 0x1_0001 << vf),
                    Some(at) if whose(at) < VFS && reset(whose(at)) => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "vf-port-statistics",
            Qemu,
            "8.18",
            "the port's statistics count what the PF sends and receives, and not what its VFs do",
            |step, diff| match home(step, diff) {
                Some(0x4074 | 0x4078..=0x40f8) if frame(step, |_, _| true) => !0,
                _ => 0,
            },
        ),
        value(
            "vf-port-causes",
            Both,
            "8.8.7",
            "in ICR (TXDW, RXDMT0, RXO, RXDW) are the queues of the PF; in QEMU also those of its VFs",
            |step, diff| match home(step, diff) {
                Some(reg::ICR) if frame(step, |_, _| true) => 0xd1,
                _ => 0,
            },
        ),
        value(
            "vf-last-flags",
            Hypernic,
            "7.2.4.2",
            "FIN and PSH of a segmented packet go with its last segment, also to another function",
            |step, diff| match diff.what {
                What::Memory { at, len } if at >= RX_BUFFERS && len <= 2 => {
                    let segmented = posted(step).0.iter().any(|d| d.command() & 0x80 != 0);
                    // Flags and checksum of TCP, over IPv4 or IPv6, tagged or not.
                    let places = [34, 38, 54, 58].map(|l4| [l4 + 13, l4 + 16, l4 + 17]);
                    let place = (at - RX_BUFFERS) % SLOT;
                    let there = places.concat().contains(&place);
                    if segmented && there { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "vf-types",
            Hypernic,
            "7.1.5",
            "of a tagged packet that another function has sent QEMU tells no type",
            |step, diff| {
                let tagged = |_: &Context, _: u32, f: &[u8]| f[12..14] == [0x81, 0];
                let untold = diff.theirs & 0xfff0 == 0 && diff.ours & 0x8000 == 0;
                if untold && sent(step, tagged) {
                    rx(diff, false, 0xfff0)
                } else {
                    0
                }
            },
        ),
        value(
            "vf-padded",
            Both,
            "8.12.1",
            "a short frame is padded before the switch puts its tag in; QEMU does not pad at all",
            |step, diff| match diff.what {
                What::Sent(i) => {
                    let (ours, theirs) = (&step.ours.sent[i], &step.theirs.sent[i]);
                    let padded = ours.len() == 64
                        && ours.starts_with(theirs)
                        && ours[12..14] == [0x81, 0]
                        && ours[theirs.len()..].iter().all(|b| *b == 0);
                    if padded { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "vf-taken",
            Hypernic,
            "8.14.3",
            "the buffer that the PF takes from a VF (RVFU) is not the VF's any more; QEMU's P2VMAILBOX goes on saying so, and the PF cannot take it again",
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
            "MBVFIMR says which VFs' messages the PF hears of (VMMB); QEMU tells of all",
            |step, diff| match home(step, diff) {
                Some(reg::ICR) if masked(step) => 0x100,
                _ => 0,
            },
        ),
        value(
            "vf-mailbox-vector",
            Hypernic,
            "8.26.14",
            "who tells a VF of a message, it hears of it by the vector in VTIVAR_MISC; QEMU takes the vector's number for a set of vectors and raises these",
            |step, diff| {
                if diff.what != What::Messages {
                    return 0;
                }
                (0..VFS)
                    .filter(|vf| told(step, diff, *vf))
                    .fold(0, |all, vf| all | vectors(vf))
            },
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
                let mine = diff
                    .register()
                    .is_some_and(|at| step.after.chip.vf(at).is_none());
                let shown = mine && of_a_vf(at);
                let vectors: u64 = !((1 << (25 - 3 * VFS)) - 1) & 0x1ff_ffff;
                match at {
                    reg::EIMS | reg::EIMC | reg::EICR => return vectors,
                    0x1_0010..0x1_0200 if mine => return !0,
                    reg::IVAR..0x1720 if (at - reg::IVAR) / 4 < VFS => return !0,
                    _ => {}
                }
                if shown || ever(step, diff, |_, op| by_pf(op)) && of_a_vf(twin(at)) {
                    !0
                } else {
                    0
                }
            },
        ),
    ]
}

/// What is sent and received parts.
const BOTH: Parted = Parted {
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
            "MBVFIMR, as above, with the PF's interrupt",
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
            "VFs neither send nor receive before the PF says that it is ready (CTRL_EXT.PFRSTD); QEMU's do",
            |step, _| {
                let mut all = step.past.iter().chain(step.ops);
                let ready = all.any(|op| {
                    writes(step, op, reg::CTRL_EXT).is_some_and(|value| value & 0x4000 != 0)
                });
                (!ready && frame(step, |_, _| true)).then_some(BOTH)
            },
        ),
        parting(
            "vf-own-copies",
            Hypernic,
            "7.10.3",
            "who sends gets no copy himself, unless DTXSWC.LLE says so; in QEMU always",
            |step, _| {
                let own = |c: &Context, pool: u32, frame: &[u8]| {
                    let asked = c.get(reg::DTXSWC);
                    let alone = asked >> 31 == 1 && asked >> (16 + pool) & 1 == 0;
                    alone && (frame[0] & 1 == 1 || stations(c, frame) >> pool & 1 == 1)
                };
                sent(step, own).then_some(BOTH)
            },
        ),
        parting(
            "vf-vlans",
            Qemu,
            "7.10.3",
            "with filters on (RCTL.VFE), ours goes by VLVF and AUPE alone, a tag of VLAN 0 or 4095 being none: VFTA comes before these, what no pool gets by its address and VLAN is the default pool's whatever that one's VLANs are, and what is for a station of another VLAN does not go out",
            |step, _| {
                let on = |c: &Context| c.has(reg::RCTL, 0x4_0000);
                let other = |c: &Context, f: &[u8]| on(c) && by_other_vlans(c, f);
                let put_in = on(step.after) && put_in(step, step.after);
                (frame(step, other) || put_in).then_some(BOTH)
            },
        ),
        parting(
            "vf-replicated",
            Qemu,
            "8.14",
            "with VFs, of what is for many VMOLR says whether tags are taken out, as of the rest, and not RPLOLR",
            |step, _| {
                let tagged = |c: &Context, f: &[u8]| {
                    let strips = |at| c.get(at) >> 30 & 1;
                    let other =
                        (0..=VFS).any(|pool| strips(reg::VMOLR + 4 * pool) != strips(reg::RPLOLR));
                    let tag = f[12..14] == [0x81, 0] || put_in(step, c);
                    f[0] & 1 == 1 && tag && other
                };
                frame(step, tagged).then_some(BOTH)
            },
        ),
        parting(
            "vf-too-long",
            Hypernic,
            "7.10.3",
            "what is too long for a station inside, or finds the receiver off, ends there; QEMU sends it out",
            |step, _| {
                let lost = |c: &Context, _: u32, f: &[u8]| {
                    let long = f.len() > 1514 || !c.has(reg::RCTL, 2);
                    long && stations(c, f) != 0
                };
                sent(step, lost).then_some(BOTH)
            },
        ),
        parting(
            "vf-spoofing",
            Hypernic,
            "8.14",
            "frames from another's address or of another's VLAN are dropped and told of (WVBR, DOUTSYNC) where DTXSWC has them looked at; QEMU looks at none",
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
            "what waits in a ring goes when VFTE allows it; in QEMU with the next tail",
            |step, _| {
                let waits = |c: &Context, pool: u32, _: &[u8]| c.get(reg::VFTE) >> pool & 1 == 0;
                sent(step, waits).then_some(BOTH)
            },
        ),
    ]
}

/// Whether this held for a frame when a ring with it was handed over, given what was written up to then
/// and the pool whose ring it was.
fn sent(step: &Step<'_>, mut is: impl FnMut(&Context, u32, &[u8]) -> bool) -> bool {
    let mut context = Context::new(step.after.chip);
    // Each piece by itself, and all of them together: a tail is of one packet.
    let mut waiting: Vec<&[u8]> = Vec::new();
    step.past.iter().chain(step.ops).any(|op| {
        context.follow(op);
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
                let mut all = waiting.drain(..).chain([&whole[..]]);
                all.any(|frame| frame.len() >= 24 && is(&context, pool, frame))
            }
            _ => false,
        }
    })
}

/// Whether tags are put into frames that are sent.
fn put_in(step: &Step<'_>, c: &Context) -> bool {
    let all = (0..=VFS).any(|pool| c.get(reg::VMVIR + 4 * pool) >> 30 == 1);
    all || posted(step).0.iter().any(|desc| desc.command() & 0x40 != 0)
}

/// Whether the VLAN of a frame leads elsewhere than in ours.
fn by_other_vlans(c: &Context, frame: &[u8]) -> bool {
    let tagged = frame[12..14] == [0x81, 0];
    let id = u32::from(u16::from_be_bytes([frame[14], frame[15]]) & 0xfff);
    let pools = if tagged {
        let known = c.get(reg::VFTA + id / 32 * 4) >> (id % 32) & 1 == 1;
        if matches!(id, 0 | 0xfff) || !known {
            return true;
        }
        let entries = (0..32).map(|at| c.get(reg::VLVF + 4 * at));
        let own = entries.filter(|entry| entry >> 31 == 1 && entry & 0xfff == id);
        own.fold(0, |all, entry| all | entry >> 12 & 0xff)
    } else {
        (0..8).fold(0, |all, pool| {
            all | (c.get(reg::VMOLR + 4 * pool) >> 24 & 1) << pool
        })
    };
    frame[0] & 1 == 0 && stations(c, frame) & pools == 0
}

/// Pools, bit by bit, whose station a frame is for.
fn stations(c: &Context, frame: &[u8]) -> u32 {
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
