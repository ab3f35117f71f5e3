//! Differences in what is said about frames, in descriptors, counters and buffers, from which nothing
//! follows.

use super::super::context::reg;
use super::evidence::{Posted, frame, is_inside, posted};
use super::pools::{had_pools, on};
use super::values::home;
use crate::oracle::compare::{Diff, Step, What};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::layout::{ARENA, RX_BUFFERS, TX_BUFFERS, TX_RING};
use crate::oracle::script::Op;
use crate::oracle::trace::Look;

/// Where scripts have heads written to memory.
const HEADS: u64 = TX_RING + 0x800;

/// Bits of one half of a receive descriptor.
pub(super) fn rx(diff: &Diff, half: bool, bits: u64) -> u64 {
    match diff.what {
        What::RxDesc { upper, .. } if upper == half => bits,
        _ => 0,
    }
}

/// The other half of the descriptor that a difference is about, ours.
fn other_half(step: &Step<'_>, diff: &Diff) -> u64 {
    let What::RxDesc { index, upper } = diff.what else {
        return 0;
    };
    let from = 16 * index + if upper { 0 } else { 8 };
    let half = &step.ours.rx_ring[from..from + 8];
    half.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b))
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn list() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "tx-status-rest",
            Both,
            "7.2.2.4",
            "QEMU changes only DD in a transmit status and keeps what the guest wrote; ours writes one byte",
            |_, diff| match diff.what {
                What::TxDesc { upper: true, .. } => 0xfe << 32,
                _ => 0,
            },
        ),
        value(
            "head-later",
            Both,
            "7.2.3",
            "the head written to memory for a descriptor is the next one in QEMU, and the one reached by then in ours",
            |_, diff| match diff.what {
                What::Memory { at, .. } if (HEADS..HEADS + 0x40).contains(&at) => !0,
                _ => 0,
            },
        ),
        value(
            "tx-buffers-written",
            Hypernic,
            "7.2.5",
            "QEMU puts checksums into the guest's buffers before it sends them",
            |_, diff| match diff.what {
                What::Memory { at, .. } if (TX_BUFFERS..RX_BUFFERS).contains(&at) => !0,
                _ => 0,
            },
        ),
        value(
            "no-padding",
            Hypernic,
            "8.12.1",
            "QEMU does not pad short frames, with TCTL.PSP or without",
            |step, diff| match diff.what {
                What::Sent(i) => {
                    let (ours, theirs) = (&step.ours.sent[i], &step.theirs.sent[i]);
                    let padded = ours.len() == 60
                        && ours.starts_with(theirs)
                        && ours[theirs.len()..].iter().all(|b| *b == 0);
                    if padded { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "rx-fcs",
            Hypernic,
            "8.10.1",
            "QEMU appends 0 as the FCS",
            |step, diff| match diff.what {
                What::Memory { at, len } if len <= 4 && at >= RX_BUFFERS => {
                    let from = (at - ARENA) as usize;
                    let theirs = &step.traces.1.end.arena[from..from + len];
                    let zero = theirs.iter().all(|b| *b == 0);
                    if zero && kept_fcs(step) { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "fcs-across",
            Hypernic,
            "7.1.5",
            "an FCS that does not fit behind the frame continues in the next buffer; QEMU leaves it out and reports a buffer of 0 bytes",
            |step, diff| {
                let length = |value: u64| value >> 32 & 0xffff;
                let (ours, theirs) = (length(diff.ours), length(diff.theirs));
                if kept_fcs(step) && ours.checked_sub(theirs).is_some_and(|more| more <= 4) {
                    rx(diff, true, 0xffff << 32)
                } else {
                    0
                }
            },
        ),
        value(
            "octets-between-halves",
            Both,
            "8.18",
            "octets counted between the reading of a pair's low half and of its high half, which clears it: ours adds them to the next reading, QEMU loses them",
            |step, diff| match home(step, diff) {
                Some(at @ (0x4088..=0x4094 | 0x40c0..=0x40cc))
                    if counted_between(step, at & !7) =>
                {
                    !0
                }
                _ => 0,
            },
        ),
        value(
            "sent-as-given",
            Hypernic,
            "8.18",
            "GOTC, TOT, GPTC, TPT and PTC count what is on the wire; QEMU counts a packet once, as the driver gave it: no segments, no padding, no tag",
            |step, diff| match home(step, diff) {
                Some(0x4080 | 0x4090..=0x4094 | 0x40c8..=0x40cc | 0x40d4..=0x40f4)
                    if unlike_given(step) =>
                {
                    !0
                }
                _ => 0,
            },
        ),
        value(
            "sizes-without-fcs",
            Hypernic,
            "8.18",
            "PRC64 and the following count lengths with the FCS; QEMU without it, if RCTL.SECRC strips it",
            |step, diff| match home(step, diff) {
                Some(0x405c..=0x4070) if frame(step, |c, _| c.has(reg::RCTL, 0x0400_0000)) => !0,
                _ => 0,
            },
        ),
        value(
            "last-flags",
            Hypernic,
            "7.2.4.2",
            "FIN and PSH of a segmented packet go with its last segment; QEMU clears them in all segments",
            |step, diff| match diff.what {
                What::Sent(i) if flags_alone(&step.ours.sent[i], &step.theirs.sent[i]) => !0,
                _ => 0,
            },
        ),
        value(
            "txdw-unrouted",
            Hypernic,
            "8.8.7",
            "QEMU raises TXDW only for queues that have a vector in IVAR",
            |step, diff| {
                if home(step, diff) == Some(reg::ICR) && !posted(step).0.is_empty() {
                    diff.ours & !diff.theirs & 1
                } else {
                    0
                }
            },
        ),
        value(
            "rxdmt0",
            Hypernic,
            "8.10.2",
            "QEMU raises RXDMT0 only if exactly as many descriptors are left as SRRCTL.RDMTS says; the manual, when the threshold is reached",
            |step, diff| {
                if home(step, diff) == Some(reg::ICR) && frame(step, |_, _| true) {
                    0x10
                } else {
                    0
                }
            },
        ),
        value(
            "pool-statistics",
            Both,
            "8.18",
            "the statistics of pools count their queues in ours; QEMU counts them with pools only (MRQC)",
            |step, diff| match home(step, diff) {
                Some(0x1_0010..0x1_0810)
                    if diff.theirs == 0 && !had_pools(step, diff) || frame(step, |c, _| !on(c)) =>
                {
                    !0
                }
                _ => 0,
            },
        ),
        value(
            "octets-without-tag",
            Hypernic,
            "8.18",
            "QEMU does not count the tags it strips as octets, nor that such a frame is longer",
            |step, diff| {
                let tagged = frame(step, |c, f| f[12..14] == vet(c.get(reg::VET)));
                match home(step, diff) {
                    Some(0x405c..=0x4070 | 0x4088..=0x408c | 0x40c0..=0x40c4) if tagged => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "undersize",
            Hypernic,
            "8.18.30",
            "RUC counts frames that were too short on the wire; QEMU counts frames that it pads itself",
            |step, diff| {
                let short = frame(step, |_, f| f.len() < 60) || short_inside(step);
                match home(step, diff) {
                    Some(0x40a4) if short => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "oversize",
            Hypernic,
            "8.18.32",
            "QEMU does not count frames that are too long: not in ROC, RLEC, and not in TPR and TOR",
            |step, diff| {
                let long = frame(step, |_, f| f.len() > 1514);
                match home(step, diff) {
                    Some(0x40ac | 0x4040 | 0x40d0 | 0x40c0..=0x40c4) if long => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "rx-ignore-sum",
            Both,
            "7.1.5",
            "if no checksum was checked, ours sets bit 2 of the status (IXSM); drivers read it, but the manual has it for legacy descriptors only",
            |_, diff| rx(diff, true, (diff.ours & diff.theirs & 1) << 2),
        ),
        value(
            "rx-pif",
            Hypernic,
            "7.1.5",
            "QEMU never marks a frame that passed only by the multicast table (PIF)",
            |_, diff| rx(diff, true, diff.ours & !diff.theirs & 0x80),
        ),
        value(
            "rx-before-eop",
            Both,
            "7.1.5",
            "only lengths, DD and EOP are valid in descriptors before the last of a frame",
            |step, diff| {
                let more = other_half(step, diff) & 3 == 1 && rx(diff, false, 1) == 1;
                // QEMU says of each that the header was too long (HBO).
                let not_last = diff.ours & 3 == 1 && diff.theirs & 3 == 1;
                match more {
                    true => !0,
                    false if not_last => rx(diff, true, diff.theirs & !diff.ours & 1 << 23),
                    false => 0,
                }
            },
        ),
        value(
            "header-length",
            Hypernic,
            "7.1.10",
            "QEMU reports a header's length where none was found",
            |step, diff| {
                let received = other_half(step, diff) & 1 == 1;
                if received && (diff.ours | diff.theirs) & 1 << 31 == 0 {
                    rx(diff, false, 0x7fe0_0000)
                } else {
                    0
                }
            },
        ),
        value(
            "rss-type",
            Hypernic,
            "7.1.1.7",
            "QEMU does not distinguish TcpIPv6 and IPv6 from the variants with extensions",
            |step, diff| {
                let received = other_half(step, diff) & 3 == 3;
                let same = diff.bits() & !0xf == 0 && diff.ours & 0xc0 != 0;
                if received && same {
                    rx(diff, false, 0xf)
                } else {
                    0
                }
            },
        ),
    ]
}

/// Whether two TCP packets differ in nothing but FIN and PSH, which ours has, and in the checksum.
fn flags_alone(ours: &[u8], theirs: &[u8]) -> bool {
    let word = |at: usize| {
        ours.get(at..at + 2)
            .map_or(0, |w| u16::from_be_bytes([w[0], w[1]]))
    };
    let mut l3 = 14;
    while matches!(word(l3 - 2), 0x8100 | 0x88a8 | 0x9100) {
        l3 += 4;
    }
    let l4 = match word(l3 - 2) {
        0x0800 => l3 + 20,
        0x86dd => l3 + 40,
        _ => return false,
    };
    let all = ours.iter().zip(theirs).enumerate();
    let rest = |(at, (o, t)): (usize, (&u8, &u8))| match at {
        _ if at == l4 + 13 => o & !9 == *t && o & 9 != 0,
        _ if at == l4 + 16 || at == l4 + 17 => true,
        _ => o == t,
    };
    let padding = ours.get(theirs.len()..).unwrap_or(&[1]);
    let whole = padding.is_empty() || ours.len() == 60 && padding.iter().all(|b| *b == 0);
    whole && { all }.all(rest)
}

/// Whether a frame came while the FCS was kept.
fn kept_fcs(step: &Step<'_>) -> bool {
    frame(step, |c, _| !c.has(reg::RCTL, 0x0400_0000))
}

/// Whether something may have been counted between the readings of the two halves of a pair.
fn counted_between(step: &Step<'_>, low: u32) -> bool {
    let (mut begun, mut counted) = (false, false);
    step.past.iter().chain(step.ops).any(|op| {
        match op {
            Op::Read { at, size: 4 } if *at == low => (begun, counted) = (true, false),
            Op::Read { at, .. } if *at == low + 4 => return begun && counted,
            Op::Frames(_) | Op::Write { .. } => counted = true,
            _ => {}
        }
        false
    })
}

/// Whether something was sent that is on the wire otherwise than it was handed over.
fn unlike_given(step: &Step<'_>) -> bool {
    let short = |look: &Look| look.sent.iter().any(|frame| frame.len() <= 60);
    let asked = |desc: &Posted| desc.is_data() && desc.command() & 0xc0 != 0;
    let posted = posted(step).0;
    step.traces.0.looks.iter().any(short) || posted.iter().any(asked) || short_inside(step)
}

/// Whether something short may have gone from one function to another, on no wire that is looked at.
pub(super) fn short_inside(step: &Step<'_>) -> bool {
    // Of what is cut the last piece may be.
    let short = |desc: &Posted| desc.len() < 60 || desc.is_data() && desc.command() & 0x80 != 0;
    is_inside(step.after) && posted(step).0.iter().any(short)
}

/// Whether a length of ours is that of a short frame, padded before a tag was put in, and theirs of the
/// same that was not.
pub(super) fn padded_inside(step: &Step<'_>, ours: u64, theirs: u64) -> bool {
    let padded = [60, 64].contains(&ours) && (ours - 4..ours).contains(&theirs);
    padded && short_inside(step)
}

/// The type of a tag, as frames have it.
fn vet(register: u32) -> [u8; 2] {
    (register as u16).to_be_bytes()
}
