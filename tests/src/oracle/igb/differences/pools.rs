//! Differences in pools.

use super::super::QUEUES;
use super::super::compare::{Diff, Parted, Step};
use super::super::context::{Context, reg};
use super::Difference;
use super::Right::{Both, Hypernic, Qemu};
use super::done::hashed;
use super::evidence::{ever, frame, posted};
use super::values::home;

/// Bits of VMOLR: by the unicast table, all of all groups, tags taken out.
const ROPE: u32 = 1 << 26;
const MPME: u32 = 1 << 28;
const STRVLAN: u32 = 1 << 30;
const STRCRC: u32 = 1 << 31;
/// Bits of VT_CTL.
const IGNORE_MAC: u32 = 1 << 28;
const REPLICATE: u32 = 1 << 30;

/// Whether QEMU has pools: ours has them in two of these modes.
pub(super) fn on(c: &Context) -> bool {
    c.get(reg::MRQC) & 1 == 1
}

fn any_vmolr(c: &Context, bits: u32) -> bool {
    (0..8).any(|pool| c.get(reg::VMOLR + 4 * pool) & bits != 0)
}

pub(super) fn values() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "pool-copies",
            Hypernic,
            "8.18",
            "the port's statistics count what the wire brought, once; QEMU counts each pool's copy",
            |step, diff| match home(step, diff) {
                Some(0x405c..=0x407c | 0x4088..=0x408c | 0x40c0..=0x40c4 | 0x40d0)
                    if frame(step, |c, _| on(c)) =>
                {
                    !0
                }
                _ => 0,
            },
        ),
        value(
            "pool-octets",
            Both,
            "8.18",
            "octets of pools: with the FCS in QEMU, as the guest has and gives them in ours, segments each a packet",
            |step, diff| match home(step, diff) {
                Some(at @ 0x1_0010..0x1_0810) if had_pools(step, diff) => match at & 0xff {
                    0x14 | 0x18 | 0x34 => !0,
                    _ => 0,
                },
                _ => 0,
            },
        ),
        value(
            "pool-multicasts",
            Hypernic,
            "8.18",
            "a pool's count of multicasts (PVFMPRC) is at 10038; QEMU has it four bytes further",
            |step, diff| match home(step, diff) {
                Some(at @ 0x1_0010..0x1_0810) if had_pools(step, diff) => match at & 0xff {
                    0x38 if diff.theirs == 0 => !0,
                    0x3c if diff.ours == 0 => !0,
                    _ => 0,
                },
                _ => 0,
            },
        ),
    ]
}

/// Whether QEMU had pools at any time so far.
pub(super) fn had_pools(step: &Step<'_>, diff: &Diff) -> bool {
    ever(step, diff, |c, _| on(c))
}

pub(super) fn partings() -> Vec<Difference> {
    let parting = Difference::parting;
    vec![
        parting(
            "pool-modes",
            Hypernic,
            "8.10.21",
            "QEMU has pools in all modes of MRQC that are odd, and spreads over a pool's queues in none",
            |step, _| frame(step, |c, _| on(c) && c.get(reg::MRQC) & 7 != 3).then_some(Parted::RX),
        ),
        parting(
            "pool-tables",
            Hypernic,
            "7.10.3",
            "a pool has frames by tables (VMOLR.ROMPE, ROPE) beside those by address, all groups (MPME) or all there is (VT_CTL.IGNORE_MAC); QEMU looks at tables for what no address names, at both by ROMPE, and knows nothing of the rest",
            |step, _| {
                let other = |c: &Context, f: &[u8]| {
                    on(c)
                        && (hashed(c, f)
                            || any_vmolr(c, ROPE | MPME)
                            || c.has(reg::VT_CTL, IGNORE_MAC))
                };
                frame(step, other).then_some(Parted::RX)
            },
        ),
        parting(
            "pool-replication",
            Hypernic,
            "7.10.3",
            "QEMU replicates without VT_CTL.Rpl_En",
            |step, _| {
                let whole = |c: &Context, _: &[u8]| on(c) && !c.has(reg::VT_CTL, REPLICATE);
                frame(step, whole).then_some(Parted::RX)
            },
        ),
        parting(
            "pool-offloads",
            Hypernic,
            "8.14",
            "of what is replicated RPLOLR says whether tags and FCS are taken out, and VMOLR of the rest; QEMU has RPLOLR for groups alone and the FCS by RCTL.SECRC",
            |step, _| {
                let other = |c: &Context, f: &[u8]| {
                    let strips = c.has(reg::RCTL, 0x0400_0000);
                    let fcs = |at| c.written(at).is_none_or(|has| has & STRCRC != 0) == strips;
                    let all =
                        fcs(reg::RPLOLR) && (0..QUEUES).all(|pool| fcs(reg::VMOLR + 4 * pool));
                    let tags = f[..6] == [0xff; 6]
                        && (c.has(reg::RPLOLR, STRVLAN) || any_vmolr(c, STRVLAN));
                    on(c) && (!all || tags)
                };
                frame(step, other).then_some(Parted::RX)
            },
        ),
        parting(
            "pool-loopback",
            Qemu,
            "7.10.3",
            "without VFs ours has no switch: what a pool sends goes to the wire alone, also with DTXSWC.Loopback_en",
            |step, _| {
                let alone = step.after.chip.vfs == 0;
                let inside = alone && step.after.has(reg::DTXSWC, 1 << 31) && on(step.after);
                (inside && !posted(step).0.is_empty()).then_some(Parted {
                    rx: true,
                    tx: true,
                    ..Parted::default()
                })
            },
        ),
    ]
}
