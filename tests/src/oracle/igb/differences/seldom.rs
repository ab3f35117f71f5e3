//! Differences in what few drivers use: legacy receive descriptors, SCTP, Ethernet type filters, time
//! stamps, header buffers.

use super::super::context::{Context, reg};
use super::evidence::{frame, is_inside, posted, queue_of, queues};
use super::frames::{padded_inside, rx};
use super::pools::tagged_inside;
use super::values::home;
use crate::oracle::compare::{Diff, Parted, Step, What};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::layout::{MAC, RX_RING};

/// ETQF: it filters; its frames are stamped; they have a queue.
const FILTER: u32 = 1 << 26;
const STAMPED: u32 = 1 << 30;
const QUEUED: u32 = 1 << 31;

/// What comes before those that explain more.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn values() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "rx-legacy",
            Hypernic,
            "7.1.4",
            "QEMU writes advanced descriptors where SRRCTL asks for legacy ones; their content is the same",
            |step, diff| match diff.what {
                What::RxDesc { index, upper: true } if half_written(step, diff, index) => {
                    // Length and checksum, or status and errors.
                    0xffff_ffff | 0xffff << 32
                }
                What::RxDesc { index, upper } if is_legacy(step, index) => {
                    let more = other_half(step, diff, &step.theirs.rx_ring);
                    let done = if upper { diff.theirs } else { more } & 1 == 1;
                    let alike = if upper {
                        alike(step, diff.ours, diff.theirs)
                    } else {
                        true
                    };
                    if done && alike { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "sctp-offload",
            Hypernic,
            "8.10.14",
            "RXCSUM.CRCOFL enables the check of SCTP's checksum; in QEMU TUOFLD does, as for TCP",
            |step, diff| {
                let apart = |c: &Context, f: &[u8]| {
                    let rxcsum = c.get(reg::RXCSUM);
                    sctp(f).is_some() && rxcsum >> 11 & 1 != rxcsum >> 9 & 1
                };
                if frame(step, apart) {
                    rx(diff, true, 1 << 29 | 0x20)
                } else {
                    0
                }
            },
        ),
        value(
            "sctp-padded",
            Hypernic,
            "7.1.11",
            "QEMU counts the padding behind a short SCTP packet as part of it",
            |step, diff| {
                let short = |_: &Context, f: &[u8]| sctp(f).is_some() && f.len() < 60;
                if frame(step, short) {
                    rx(diff, true, 1 << 29)
                } else {
                    0
                }
            },
        ),
        value(
            "etqf-tagged",
            Hypernic,
            "7.1.1.4",
            "the type of a tagged frame is the one behind its tag; QEMU's filters see the tag's",
            |step, diff| {
                let asked = posted(step).0.iter().any(|desc| desc.command() & 0x40 != 0);
                let behind = |c: &Context, f: &[u8]| {
                    let tagged = f[12..14] != f[kind_at(f)..][..2] || tags_inside(c, asked);
                    tagged && filters(c, kind(f), FILTER)
                };
                if frame(step, behind) {
                    rx(diff, false, 0xfff0)
                } else {
                    0
                }
            },
        ),
        value(
            "ptp-messages",
            Both,
            "8.16",
            "QEMU stamps messages of version 2 of the type in TSYNCRXCFG whatever TSYNCRXCTL asks for, also frames that nothing receives, by the first filter of their type; ours obeys it, for any version, by any filter",
            |step, diff| {
                let apart = |c: &Context, f: &[u8]| match stamped(c, f) {
                    Some(alike) => !alike || f[..6] != MAC || c.get(reg::MRQC) & 1 == 1,
                    None => false,
                };
                if !frame(step, apart) {
                    return 0;
                }
                match home(step, diff) {
                    Some(reg::TSYNCRXCTL) => 1,
                    _ => rx(diff, true, 1 << 16),
                }
            },
        ),
        value(
            "ptp-identity",
            Hypernic,
            "8.16",
            "RXSATR has the source and the number of the stamped message; QEMU takes them from a few bytes further on",
            |step, diff| {
                let came = frame(step, |c, f| filters(c, kind(f), FILTER | STAMPED));
                match home(step, diff) {
                    Some(at) if (reg::RXSATRL..reg::RXSATRL + 8).contains(&at) && came => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "stamps",
            Hypernic,
            "8.16",
            "stamps are values of SYSTIM, which QEMU counts differently (see `clock`), and vanish once read",
            |step, diff| match home(step, diff) {
                Some(at) if at & !4 == reg::RXSTMPL & !4 => !0,
                Some(at) if (reg::RXSTMPL..reg::RXSTMPL + 8).contains(&at) => !0,
                Some(at) if (reg::TXSTMPL..reg::TXSTMPL + 8).contains(&at) => !0,
                _ => 0,
            },
        ),
        value(
            "header-fcs",
            Hypernic,
            "7.1.10",
            "a header buffer that takes a whole frame takes the FCS too; QEMU puts the FCS into the packet buffer",
            |step, diff| match diff.what {
                What::RxDesc { index, upper: true } => {
                    let at = reg::SRRCTL + reg::QUEUE * queue_of(step.after, index).0;
                    let always = step.after.get(at) >> 25 & 7 == 5;
                    let len = |value: u64| value >> 32 & 0xffff;
                    if always && len(diff.ours) == 0 && len(diff.theirs) == 4 {
                        4 << 32
                    } else {
                        0
                    }
                }
                _ => 0,
            },
        ),
        value(
            "header-each",
            Hypernic,
            "7.1.10",
            "the first descriptor of a frame has the header's length; in QEMU each has it",
            |step, diff| match diff.what {
                What::RxDesc {
                    index,
                    upper: false,
                } if goes_on(step, index, diff.ours) && diff.ours >> 16 & 0xffff == 0 => {
                    0xffff_0000
                }
                _ => 0,
            },
        ),
    ]
}

/// What is done differently.
pub(super) fn partings() -> Vec<Difference> {
    vec![
        Difference::parting(
            "etqf-queue",
            Hypernic,
            "8.10.20",
            "QEMU's Ethernet type filters do not choose a queue",
            |step, _| {
                frame(step, |c, f| filters(c, kind(f), FILTER | QUEUED)).then_some(Parted::RX)
            },
        ),
        Difference::parting(
            "header-fits",
            Hypernic,
            "7.1.10",
            "a frame that fits the header's buffer without its FCS alone is split; QEMU puts it there whole",
            |step, _| frame(step, fits_but_for_fcs).then_some(Parted::RX),
        ),
    ]
}

/// Whether QEMU, which splits all IP packets, splits this one where ours does not, by the types of any
/// queue that splits.
pub(super) fn split_otherwise(c: &Context, f: &[u8]) -> bool {
    let Some((l3, protocol, whole)) = ip(f) else {
        return false;
    };
    let bit = match (f[l3] >> 4, protocol) {
        (4, 6) => 2,
        (4, 17) => 3,
        (_, 6) => 8,
        (_, 17) => 9,
        _ => return true,
    };
    queues(c.chip).iter().any(|queue| {
        let splits = matches!(c.get(reg::SRRCTL + reg::QUEUE * queue) >> 25 & 7, 2 | 5);
        splits && (!whole || c.get(reg::PSRTYPE + 4 * (queue % 8)) >> bit & 1 == 0)
    })
}

/// Whether a frame fits the header buffers of a queue that always uses them, but not with its FCS.
fn fits_but_for_fcs(c: &Context, f: &[u8]) -> bool {
    if c.has(reg::RCTL, 0x0400_0000) {
        return false;
    }
    let tag = if c.has(reg::CTRL, 1 << 30) && kind_at(f) != 12 {
        4
    } else {
        0
    };
    let len = f.len().max(60) - tag;
    (0..super::super::QUEUES).any(|queue| {
        let srrctl = c.get(reg::SRRCTL + reg::QUEUE * queue);
        let header = (srrctl >> 8 & 0x3f) as usize * 64;
        srrctl >> 25 & 7 == 5 && len <= header && header < len + 4
    })
}

/// Whether what goes from one pool to another may have got a tag on the way: by VMVIR, or where a
/// descriptor has asked for one.
fn tags_inside(c: &Context, asked: bool) -> bool {
    let given = (0..8).any(|pool| c.get(reg::VMVIR + 4 * pool) >> 30 == 1);
    is_inside(c) && (given || asked)
}

/// Where the type of a frame stands: behind a tag, if there is one.
fn kind_at(f: &[u8]) -> usize {
    if matches!(&f[12..14], [0x81, 0] | [0x88, 0xa8] | [0x91, 0]) && f.len() >= 18 {
        16
    } else {
        12
    }
}

fn kind(f: &[u8]) -> u32 {
    let at = kind_at(f);
    u32::from(f[at]) << 8 | u32::from(f[at + 1])
}

/// Whether a filter for a type has such bits.
fn filters(c: &Context, kind: u32, bits: u32) -> bool {
    (0..8).any(|at| {
        let filter = c.get(reg::ETQF + 4 * at);
        filter & 0xffff == kind && filter & bits == bits
    })
}

/// Where the IP header of a frame is, its protocol, and whether it is no fragment.
fn ip(f: &[u8]) -> Option<(usize, u8, bool)> {
    let l3 = kind_at(f) + 2;
    match kind(f) {
        0x0800 if f.len() >= l3 + 20 => {
            let whole = f[l3 + 6] & 0x3f == 0 && f[l3 + 7] == 0;
            Some((l3, f[l3 + 9], whole))
        }
        0x86dd if f.len() >= l3 + 40 => Some((l3, f[l3 + 6], f[l3 + 6] != 44)),
        _ => None,
    }
}

/// Where the IP header of an SCTP packet is.
fn sctp(f: &[u8]) -> Option<usize> {
    let (l3, protocol, _) = ip(f)?;
    (protocol == 132).then_some(l3)
}

/// Of a PTP message that a filter marks: whether both machines judge it alike.
fn stamped(c: &Context, f: &[u8]) -> Option<bool> {
    let asked = c.get(reg::TSYNCRXCTL);
    if asked & 1 << 4 == 0 || !filters(c, kind(f), FILTER | STAMPED) {
        return None;
    }
    let body = &f[kind_at(f) + 2..];
    let (message, version) = (*body.first()?, *body.get(1)?);
    let wanted = c.get(reg::TSYNCRXCFG) >> 8;
    let ours = match asked >> 1 & 7 {
        0 | 2 => u32::from(message & 0xf) == wanted & 0xf,
        5 => message & 0xf < 4,
        _ => false,
    };
    let first = (0..8).map(|at| c.get(reg::ETQF + 4 * at));
    let first = { first }.find(|filter| filter & FILTER != 0 && filter & 0xffff == kind(f));
    let theirs = version & 0xf == 2
        && first.is_some_and(|filter| filter & STAMPED != 0)
        && u32::from(message) == wanted & 0xff
        && body.len() >= 40
        && kind_at(f) == 12;
    Some(ours == theirs)
}

fn is_legacy(step: &Step<'_>, index: usize) -> bool {
    let at = reg::SRRCTL + reg::QUEUE * queue_of(step.after, index).0;
    step.after.get(at) >> 25 & 7 == 0
}

/// Whether the guest has written over half of a legacy report, so that what is left of both cannot be
/// told to be alike.
fn half_written(step: &Step<'_>, diff: &Diff, index: usize) -> bool {
    let from = RX_RING + 16 * index as u64 + 8;
    [0, 4].into_iter().any(|at| {
        let bytes = (0..4).rev().map(|i| step.after.ring_byte(from + at + i));
        let guest = bytes.fold(0, |all, byte| all << 8 | u64::from(byte));
        let part = |value: u64| value >> (8 * at) & 0xffff_ffff;
        is_legacy(step, index)
            && guest != 0
            && part(diff.ours) == guest
            && part(diff.theirs) == guest
    })
}

/// Whether a legacy report says what an advanced one does, but for bits that others explain.
fn alike(step: &Step<'_>, legacy: u64, advanced: u64) -> bool {
    let status = advanced & 0xff | (advanced >> 24 & 0xff) << 8;
    // What is left of the FCS for a buffer of its own: see `fcs-across`.
    let len = match (legacy & 0xffff, advanced >> 32 & 0xffff) {
        (fcs @ 1..=4, 0) if !step.after.has(reg::RCTL, 0x0400_0000) => fcs,
        // See `vf-padded`.
        (ours, theirs) if padded_inside(step, ours, theirs) => ours,
        (_, len) => len,
    };
    let told = len | status << 32 | advanced & 0xffff << 48;
    let mut ignored = (0x84 | 0x20 | 0x20 << 8) << 32;
    if step.after.get(reg::RXCSUM) & 0xff != 0 {
        ignored |= 0xffff << 16;
    }
    // See `pool-types`.
    let untold = 0x70 | 0x60 << 8;
    if status & untold == 0 && tagged_inside(step) {
        ignored |= untold << 32;
    }
    (told ^ legacy) & !ignored == 0
}

/// The other half of the descriptor that a difference is about.
fn other_half(_: &Step<'_>, diff: &Diff, ring: &[u8]) -> u64 {
    let What::RxDesc { index, upper } = diff.what else {
        return 0;
    };
    half(ring, index, !upper)
}

fn half(ring: &[u8], index: usize, upper: bool) -> u64 {
    let from = 16 * index + if upper { 8 } else { 0 };
    let bytes = ring.get(from..from + 8).unwrap_or(&[]);
    bytes
        .iter()
        .rev()
        .fold(0, |all, b| all << 8 | u64::from(*b))
}

/// Whether a descriptor with this lower half goes on with the frame of the one before it: at some look,
/// as the guest may have put another descriptor there since.
fn goes_on(step: &Step<'_>, index: usize, lower: u64) -> bool {
    let (queue, place) = queue_of(step.after, index);
    let len = step.after.get(reg::RDLEN + reg::QUEUE * queue) / 16;
    let before = match place {
        0 => len.saturating_sub(1),
        place => place - 1,
    };
    let before = index - place as usize + before as usize;
    step.traces.0.looks.iter().any(|look| {
        let ring = &look.rx_ring;
        half(ring, before, true) & 3 == 1
            && half(ring, index, true) & 1 == 1
            && half(ring, index, false) == lower
    })
}
