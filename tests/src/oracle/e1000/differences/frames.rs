//! Differences in frames, descriptors and causes, from which nothing follows.

use super::super::context::reg;
use super::super::watched::TDH;
use super::arrival::cleared_before_arrival;
use super::evidence::{
    cause, check_sequences, cleared_before_delay, clears_icr, counted_between, ever, ever_frame,
    moved, padding, since_clear, starved, upper, writes, writes_bits, writes_tdt,
};
use crate::oracle::compare::What;
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::layout::RX_RING;
use crate::oracle::script::Op;

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn list() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "rx-short",
            Both,
            "3.2.1",
            "no wire carries frames shorter than 64 bytes: ours pads one as its sender should have, QEMU stores it unchanged",
            |step, diff| {
                let short = |op: &Op| matches!(op, Op::Frames(frames) if frames.iter().any(|f| f.len() < 60));
                let (ours, theirs) = (diff.ours & 0xffff, diff.theirs & 0xffff);
                match diff.what {
                    What::RxDesc { upper: true, .. }
                        if matches!(ours, 56 | 60 | 64) && theirs < ours && ever(step, short) =>
                    {
                        0xffff
                    }
                    What::Register { .. }
                        if diff.register() == Some(0x40c0)
                            && theirs < ours
                            && ever(step, short) =>
                    {
                        !0
                    }
                    What::Memory { at, len } if ever(step, short) => {
                        let places = padding(step);
                        let inside = (at..at + len as u64).all(|byte| places.contains(&byte));
                        if inside { !0 } else { 0 }
                    }
                    _ => 0,
                }
            },
        ),
        value(
            "rxdmt0-below",
            Hypernic,
            "13.4.22",
            "QEMU raises RXDMT0 with each frame while few descriptors are left; the manual has it when the threshold is reached",
            |step, diff| {
                let frames = since_clear(step, diff, |op| {
                    matches!(op, Op::Frames(_)) || writes(op, reg::RDT) || writes(op, reg::RCTL)
                });
                if cause(diff) && frames {
                    diff.theirs & !diff.ours & 0x10
                } else {
                    0
                }
            },
        ),
        value(
            "rx-counted-on-arrival",
            Hypernic,
            "13.7.38",
            "a frame is counted in TPR and TOR when it enters the packet FIFO; QEMU has no FIFO",
            |step, diff| match diff.register() {
                Some(0x40c0 | 0x40d0) if diff.theirs < diff.ours && starved(step) => !0,
                _ => 0,
            },
        ),
        value(
            "rx-long-counted",
            Hypernic,
            "13.7.40",
            "TPR and TOR count all frames, of whatever length; QEMU leaves out those that are too long, and counts them as good in GPRC where SBP stores them",
            |step, diff| {
                let long = |op: &Op| matches!(op, Op::Frames(frames) if frames.iter().any(|f| f.len() > 1518));
                match diff.register() {
                    Some(0x40c0 | 0x40d0) if diff.theirs < diff.ours && ever(step, long) => !0,
                    Some(0x4074) if diff.theirs > diff.ours && ever(step, long) => !0,
                    _ => 0,
                }
            },
        ),
        value(
            "txqe-unsent",
            Hypernic,
            "13.4.17",
            "QEMU raises TXQE at every write of TDT or TCTL, even if it sent nothing",
            |step, diff| {
                let sent = matches!(diff.what, What::Watched(_))
                    && step.ops.iter().any(writes_tdt)
                    && moved(step, TDH)
                    && !step.ops.iter().any(|op| writes(op, reg::TDH))
                    && !step.ops.iter().any(clears_icr);
                if cause(diff)
                    && diff.theirs & 2 != 0
                    && since_clear(step, diff, |op| writes_tdt(op) || writes(op, reg::TCTL))
                    && !sent
                {
                    2
                } else {
                    0
                }
            },
        ),
        value(
            "rx-delayed",
            Hypernic,
            "13.4.30",
            "QEMU's RXT0 does not wait for RDTR: if the guest writes it to ICR before the delay ends, it never comes",
            |step, diff| {
                if cause(diff) && cleared_before_delay(step) {
                    diff.ours & !diff.theirs & 0x80
                } else {
                    0
                }
            },
        ),
        value(
            "rx-cause-late",
            Hypernic,
            "3.2",
            "a frame that finds no descriptor waits outside of QEMU's NIC and comes in after what is written behind the tail: its RXT0 survives a write to ICR there",
            |step, diff| {
                if cause(diff) && cleared_before_arrival(step) {
                    diff.theirs & !diff.ours & 0x80
                } else {
                    0
                }
            },
        ),
        value(
            "srpd",
            Hypernic,
            "13.4.32",
            "QEMU does not report small frames (RSRPD, SRPD)",
            |step, diff| {
                let on = ever(step, |op| writes(op, 0x2c00));
                if cause(diff) && on {
                    diff.ours & !diff.theirs & 0x1_0000
                } else {
                    0
                }
            },
        ),
        value(
            "ip-sum-zero",
            Both,
            "3.5.8",
            "an IPv4 header checksum of 0 is sent as 0 by ours and as FFFFh by QEMU, which mean the same",
            |step, diff| match diff.what {
                What::Sent(i) => {
                    let (ours, theirs) = (&step.ours.sent[i], &step.theirs.sent[i]);
                    let ip = if ours.get(12..14) == Some(&[8, 0]) {
                        14
                    } else {
                        18
                    };
                    let mut mended = theirs.clone();
                    if theirs.get(ip + 10..ip + 12) == Some(&[0xff; 2]) {
                        mended[ip + 10..ip + 12].fill(0);
                    }
                    if mended == *ours { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "txd-low",
            Hypernic,
            "13.4.43",
            "QEMU has no TXD_LOW; with LWTHRESH 0 it comes when the last descriptor is done",
            |step, diff| {
                if cause(diff)
                    && since_clear(step, diff, |op| writes_tdt(op) || writes(op, reg::TCTL))
                {
                    diff.ours & !diff.theirs & 0x8000
                } else {
                    0
                }
            },
        ),
        value(
            "tx-status-rest",
            Both,
            "3.3.3.2",
            "QEMU keeps what the guest left in the reserved bits of a transmit status; ours writes 0",
            |_, diff| match diff.what {
                What::TxDesc { upper: true, .. } if diff.ours & diff.theirs & 1 << 32 != 0 => {
                    0xfe << 32 & !diff.ours
                }
                _ => 0,
            },
        ),
        value(
            "rx-before-eop",
            Both,
            "3.2.3.2",
            "only length, DD and EOP are valid in descriptors before the last of a frame",
            |_, diff| match diff.what {
                What::RxDesc { upper: true, .. }
                    if diff.ours & diff.theirs & 1 << 32 != 0 && diff.ours & 2 << 32 == 0 =>
                {
                    !(0xffff | 3 << 32)
                }
                _ => 0,
            },
        ),
        value(
            "rx-leftovers",
            Hypernic,
            "3.2.3",
            "QEMU does not write packet checksum and errors and keeps status bits it does not know: what the guest left stays",
            |step, diff| match diff.what {
                What::RxDesc { index, upper: true } if diff.theirs & 1 << 32 != 0 => {
                    let at = RX_RING + 16 * index as u64 + 8;
                    let left = (0..8).fold(0, |all, i| {
                        all | u64::from(step.after.ring_byte(at + i)) << (8 * i)
                    });
                    let left = left | upper(step.last_theirs, index);
                    diff.theirs & left & !diff.ours & (0xffff_0000 | 0xfa << 32 | 0xff << 40)
                }
                _ => 0,
            },
        ),
        value(
            "rx-pif",
            Hypernic,
            "3.2.3.1",
            "QEMU never marks a frame that passed only by the multicast table (PIF)",
            |step, diff| match diff.what {
                What::RxDesc { upper: true, .. } if ever_frame(step, |to| to[0] & 1 == 1) => {
                    diff.ours & !diff.theirs & 1 << 39
                }
                _ => 0,
            },
        ),
        value(
            "rx-checksum-offload",
            Hypernic,
            "3.2.9",
            "QEMU has no receive checksum offload: IXSM is always set, and no packet checksum",
            |step, diff| match diff.what {
                What::RxDesc { upper: true, .. } => {
                    let on = |bits| ever(step, |op| writes_bits(op, reg::RXCSUM, bits));
                    let offload = if on(0x700) {
                        0x64 << 32 | 0x60 << 40
                    } else {
                        0
                    };
                    let sum = if on(0xff) { 0xffff_0000 } else { 0 };
                    offload | sum
                }
                _ => 0,
            },
        ),
        value(
            "rx-fcs",
            Hypernic,
            "13.4.22",
            "QEMU leaves the four bytes of the FCS in the buffer as they were",
            |step, diff| match diff.what {
                What::Memory { at, len } => {
                    let places = check_sequences(step);
                    let inside = (at..at + len as u64).all(|byte| places.contains(&byte));
                    if inside { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "octets-without-tag",
            Hypernic,
            "13.7.38",
            "QEMU does not count the tags it strips and inserts as octets",
            |step, diff| {
                let octets = matches!(diff.register(), Some(0x40c0 | 0x40c8));
                let tags = diff.theirs < diff.ours && (diff.ours - diff.theirs).is_multiple_of(4);
                let vme = |op: &Op| writes_bits(op, reg::CTRL, 1 << 30);
                if octets && tags && ever(step, vme) {
                    !0
                } else {
                    0
                }
            },
        ),
        value(
            "octets-between-halves",
            Both,
            "13.7.41",
            "octets counted between the reading of a pair's low half and of its high half, which clears it: ours adds them to the next reading, QEMU loses them",
            |step, diff| match diff.register() {
                Some(low @ (0x4088 | 0x4090 | 0x40c0 | 0x40c8))
                    if diff.theirs < diff.ours && counted_between(step, low) =>
                {
                    !0
                }
                _ => 0,
            },
        ),
        value(
            "tso6-length",
            Hypernic,
            "3.5.7.2",
            "QEMU puts the IPv6 header itself into the payload length of IPv6 segments",
            |step, diff| match diff.what {
                What::Sent(i) => {
                    let (ours, theirs) = (&step.ours.sent[i], &step.theirs.sent[i]);
                    let at = if ours.get(12..14) == Some(&[0x86, 0xdd]) {
                        18
                    } else {
                        22
                    };
                    let field = |frame: &[u8]| {
                        frame
                            .get(at..at + 2)
                            .map_or(0, |f| u16::from_be_bytes([f[0], f[1]]))
                    };
                    let mut mended = theirs.clone();
                    if let Some(place) = mended.get_mut(at..at + 2) {
                        place.copy_from_slice(&field(theirs).wrapping_sub(40).to_be_bytes());
                    }
                    if mended == *ours { !0 } else { 0 }
                }
                _ => 0,
            },
        ),
        value(
            "no-padding",
            Hypernic,
            "13.4.33",
            "QEMU does not pad short frames, with TCTL.PSP or without",
            |step, diff| match diff.what {
                What::Sent(i) => {
                    let (ours, theirs) = (&step.ours.sent[i], &step.theirs.sent[i]);
                    let padded = theirs.len() < 60 && ours.len() == 60;
                    if padded
                        && ours.starts_with(theirs)
                        && ours[theirs.len()..].iter().all(|b| *b == 0)
                    {
                        !0
                    } else {
                        0
                    }
                }
                What::Register { .. }
                    if matches!(diff.register(), Some(0x4090 | 0x40c8 | 0x40d8))
                        && ever(
                            step,
                            |op| matches!(op, Op::Write { at: reg::TCTL, value, .. } if value & 8 != 0),
                        ) =>
                {
                    !0
                }
                _ => 0,
            },
        ),
    ]
}
