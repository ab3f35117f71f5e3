//! Differences in pools.

use super::super::QUEUES;
use super::super::context::{Context, reg};
use super::done::hashed;
use super::evidence::{ever, frame, is_inside, posted};
use super::values::home;
use super::vf::{BOTH, sent, stations};
use crate::oracle::compare::{Diff, Parted, Step, What};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic, Qemu};
use crate::oracle::igb::generate::SLOT;
use crate::oracle::layout::RX_BUFFERS;

/// Bits of VMOLR: by the unicast table, all of all groups, tags taken out.
const ROPE: u32 = 1 << 26;
const MPME: u32 = 1 << 28;
const STRVLAN: u32 = 1 << 30;
const STRCRC: u32 = 1 << 31;
/// Bits of VT_CTL.
const IGNORE_MAC: u32 = 1 << 28;
const REPLICATE: u32 = 1 << 30;

/// What a descriptor says of a frame's headers: verdicts; identification and types.
const TOLD: u64 = 0x6000_0270;
const TYPED: u64 = 0xffff_ffff_0000_fff0;

/// Whether QEMU has pools: ours has them in two of these modes.
pub(super) fn on(c: &Context) -> bool {
    c.get(reg::MRQC) & 1 == 1
}

fn any_vmolr(c: &Context, bits: u32) -> bool {
    (0..8).any(|pool| c.get(reg::VMOLR + 4 * pool) & bits != 0)
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn values() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "pool-copies",
            Hypernic,
            "8.18",
            "the port's statistics count each frame from the wire once; QEMU counts each pool's copy",
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
            "QEMU counts a pool's octets with the FCS; ours counts what the guest sends and receives, and each segment as a packet",
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
        value(
            "pool-last-flags",
            Hypernic,
            "7.2.4.2",
            "FIN and PSH of a segmented packet go with its last segment, also towards another function",
            |step, diff| match diff.what {
                What::Memory { at, len } if at >= RX_BUFFERS && len <= 2 => {
                    let segmented = posted(step).0.iter().any(|d| d.command() & 0x80 != 0);
                    // Flags and checksum of TCP, over IPv4 or IPv6, tagged or not.
                    let places = [34, 38, 54, 58].map(|l4| [l4 + 13, l4 + 16, l4 + 17]);
                    let place = (at - RX_BUFFERS) % SLOT;
                    // A header may lie in a buffer of its own, in the second half.
                    let splits = (0..QUEUES).any(|queue| {
                        let kind = step.after.get(reg::SRRCTL + reg::QUEUE * queue) >> 25 & 7;
                        matches!(kind, 2 | 5)
                    });
                    let places = places.concat();
                    let header = place.checked_sub(SLOT / 2).filter(|_| splits);
                    let there =
                        places.contains(&place) || header.is_some_and(|at| places.contains(&at));
                    if segmented && there { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "vet-types",
            Qemu,
            "8.2.7",
            "ours does not parse headers behind a tag (VET) other than 8100h and 88A8h that another function has sent",
            |step, diff| {
                let known = matches!(step.after.get(reg::VET) as u16, 0x8100 | 0x88a8);
                if known || !is_inside(step.after) || !sent(step, |_, _, _| true) {
                    return 0;
                }
                match diff.what {
                    What::RxDesc { upper: true, .. } => TOLD & diff.theirs & !diff.ours,
                    What::RxDesc { upper: false, .. } if diff.ours == 0 => TYPED,
                    _ => 0,
                }
            },
        ),
        value(
            "pool-types",
            Hypernic,
            "7.1.5",
            "QEMU reports no type for a tagged packet of another function, and parses no header",
            |step, diff| {
                let upper = match diff.what {
                    What::RxDesc { upper, .. } => upper,
                    _ => return 0,
                };
                let told = if upper { TOLD } else { TYPED };
                let untold = diff.theirs & told == 0 && (upper || diff.ours & 0x8000 == 0);
                if untold && tagged_inside(step) {
                    told
                } else {
                    0
                }
            },
        ),
    ]
}

/// Whether a tagged packet may have gone from one function or pool to another.
pub(super) fn tagged_inside(step: &Step<'_>) -> bool {
    sent(step, |_, _, f| f[12..14] == [0x81, 0])
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
            "QEMU has pools in all odd modes of MRQC, and never spreads over a pool's queues",
            |step, _| frame(step, |c, _| on(c) && c.get(reg::MRQC) & 7 != 3).then_some(Parted::RX),
        ),
        parting(
            "pool-tables",
            Hypernic,
            "7.10.3",
            "a pool gets frames by address, by tables (VMOLR.ROMPE, ROPE), all groups (MPME) or all frames (VT_CTL.IGNORE_MAC); QEMU uses tables only if no address matches, both by ROMPE, and lacks the rest",
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
            "RPLOLR decides whether replicated frames lose tags and FCS, VMOLR for other frames; QEMU uses RPLOLR for groups only, and RCTL.SECRC for the FCS",
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
            "pool-own-copies",
            Hypernic,
            "7.10.3",
            "a sender gets no copy of its own frame unless DTXSWC.LLE is set; in QEMU it always does",
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
            "pool-too-long",
            Hypernic,
            "7.10.3",
            "a frame that is too long for an internal station, or finds its receiver off, ends there; QEMU sends it out",
            |step, _| {
                let lost = |c: &Context, _: u32, f: &[u8]| {
                    let long = f.len() > 1514 || !c.has(reg::RCTL, 2);
                    long && stations(c, f) != 0
                };
                sent(step, lost).then_some(BOTH)
            },
        ),
    ]
}
