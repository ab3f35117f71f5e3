//! What entries of the list look for in a script and its traces.

use std::collections::BTreeSet;

use super::super::context::{Context, reg};
use super::super::watched::RDH;
use crate::oracle::compare::{Diff, Step, What};
use crate::oracle::script::Op;
use crate::oracle::trace::Look;

/// What the script had written when a difference was seen.
pub(super) fn then(step: &Step<'_>, diff: &Diff) -> Context {
    let mut context = step.before.clone();
    let until = match diff.what {
        What::Register { op: Some(i), .. } => i,
        _ => step.ops.len(),
    };
    step.ops[..until].iter().for_each(|op| context.follow(op));
    context
}

pub(super) fn writes(op: &Op, register: u32) -> bool {
    matches!(op, Op::Write { at, .. } if at & !3 == register)
}

/// Whether a step writes some of these bits as ones.
pub(super) fn writes_bits(op: &Op, register: u32, bits: u64) -> bool {
    matches!(op, Op::Write { at, value, .. } if *at == register && value & bits != 0)
}

/// Whether a frame came for an address of which this holds.
pub(super) fn ever_frame(step: &Step<'_>, is: impl Fn(&[u8]) -> bool) -> bool {
    ever(step, |op| match op {
        Op::Frames(frames) => frames
            .iter()
            .any(|frame| frame.len() >= 6 && is(&frame[..6])),
        _ => false,
    })
}

/// Whether frames came and our receiver has no descriptors left.
pub(super) fn starved(step: &Step<'_>) -> bool {
    let tail = step.after.get(reg::RDT) & 0xffff;
    step.ours.watched[RDH] == tail && ever_frame(step, |_| true)
}

/// Where in memory the FCS of received frames stand, by all that was seen of the ring.
pub(super) fn check_sequences(step: &Step<'_>) -> BTreeSet<u64> {
    // A frame may begin before the end of the ring, wherever that was.
    let ends = step.past.iter().chain(step.ops).filter_map(|op| match op {
        Op::Write {
            at: reg::RDLEN,
            value,
            ..
        } => Some((value & 0xf_ff80) as usize / 16),
        _ => None,
    });
    let ends: BTreeSet<usize> = ends.collect();
    let mut places = BTreeSet::new();
    for look in &step.traces.0.looks {
        for end in &ends {
            check_sequences_of(look, *end, &mut places);
        }
    }
    places
}

/// The same of one look at a ring of so many descriptors.
fn check_sequences_of(look: &Look, end: usize, places: &mut BTreeSet<u64>) {
    // The buffers of the frame so far: address, bytes.
    let mut buffers: Vec<(u64, u64)> = Vec::new();
    let indices = end.min(look.rx_ring.len() / 16);
    for index in (0..indices).chain(0..indices) {
        let half = upper(look, index);
        if half & 1 << 32 == 0 {
            buffers.clear();
            continue;
        }
        buffers.push((address(look, index), half & 0xffff));
        if half & 2 << 32 == 0 {
            continue;
        }
        let mut left = 4;
        while let (Some((at, len)), true) = (buffers.pop(), left > 0) {
            let part = len.min(left);
            places.extend(at + len - part..at + len);
            left -= part;
        }
        buffers.clear();
    }
}

/// Where in memory the padding and FCS of the shortest received frames stand.
pub(super) fn padding(step: &Step<'_>) -> BTreeSet<u64> {
    let mut places = BTreeSet::new();
    for look in &step.traces.0.looks {
        for index in 0..look.rx_ring.len() / 16 {
            let (at, half) = (address(look, index), upper(look, index));
            if half & 3 << 32 == 3 << 32 && half & 0xffff <= 64 {
                places.extend(at + 14..at + (half & 0xffff));
            }
        }
    }
    places
}

pub(super) fn writes_tdt(op: &Op) -> bool {
    writes(op, reg::TDT)
}

pub(super) fn clears_icr(op: &Op) -> bool {
    matches!(op, Op::Read { at, .. } | Op::Write { at, .. } if at & !3 == reg::ICR)
}

/// Whether RXT0 was written to ICR after a frame came and before the delay of RDTR was over: only
/// reads, frames and looks let time pass.
pub(super) fn cleared_before_delay(step: &Step<'_>) -> bool {
    let (mut delayed, mut under_way) = (false, false);
    step.past.iter().chain(step.ops).any(|op| {
        match op {
            Op::Write {
                at: reg::RDTR,
                value,
                ..
            } => delayed = value & 0xffff != 0,
            Op::Frames(_) => under_way = delayed,
            Op::Read { .. } | Op::Look => under_way = false,
            _ => {}
        }
        under_way && writes_bits(op, reg::ICR, 0x80)
    })
}

/// Whether something may have been counted between the readings of the two halves of a pair.
pub(super) fn counted_between(step: &Step<'_>, low: u32) -> bool {
    let (mut begun, mut counted) = (false, false);
    step.past.iter().chain(step.ops).any(|op| {
        match op {
            Op::Read { at, size: 4 } if *at == low => (begun, counted) = (true, false),
            Op::Frames(_)
            | Op::Write {
                at: reg::TDT | reg::TCTL | reg::RDT | reg::RCTL,
                ..
            } => counted = true,
            Op::Read { at, .. } if *at == low + 4 => return begun && counted,
            _ => {}
        }
        false
    })
}

/// Whether a step of the script so far is such a one.
pub(super) fn ever(step: &Step<'_>, is: impl Fn(&Op) -> bool) -> bool {
    step.past.iter().chain(step.ops).any(is)
}

/// Whether such a step came between the moment ICR was last cleared and the difference.
pub(super) fn since_clear(step: &Step<'_>, diff: &Diff, is: impl Fn(&Op) -> bool) -> bool {
    let until = match diff.what {
        What::Register { op: Some(i), .. } => i,
        _ => step.ops.len(),
    };
    let all = step.ops[..until].iter().rev().chain(step.past.iter().rev());
    all.take_while(|op| !matches!(op, Op::Read { at, .. } if at & !3 == reg::ICR))
        .any(is)
}

/// What the script has written to a register, all its writes together.
pub(super) fn written(step: &Step<'_>, at: u32) -> Option<u32> {
    let values = step.past.iter().chain(step.ops).filter_map(|op| match op {
        Op::Write {
            at: to,
            value,
            size,
        } if to & !3 == at && *size >= 4 => Some(*value as u32),
        Op::Write {
            at: to,
            value,
            size: 8,
        } if to + 4 == at => Some((value >> 32) as u32),
        Op::Write { at: to, value, .. } if to & !3 == at => {
            Some((*value as u32) << (8 * (to & 3)) | *value as u32)
        }
        _ => None,
    });
    let shared = matches!(at, reg::ICR | reg::ICS | reg::IMS);
    if shared {
        let all = step.past.iter().chain(step.ops).filter_map(|op| match op {
            Op::Write {
                at: reg::ICS | reg::IMS,
                value,
                ..
            } => Some(*value as u32),
            _ => None,
        });
        return Some(all.fold(0, |a, b| a | b));
    }
    values.reduce(|a, b| a | b)
}

pub(super) fn cause(diff: &Diff) -> bool {
    matches!(diff.register(), Some(reg::ICR | reg::ICS))
}

pub(super) fn moved(step: &Step<'_>, index: usize) -> bool {
    step.ours.watched[index] != step.last_ours.watched[index]
}

/// The address in a receive descriptor.
pub(super) fn address(look: &Look, index: usize) -> u64 {
    look.rx_ring[16 * index..16 * index + 8]
        .iter()
        .rev()
        .fold(0, |all, b| all << 8 | u64::from(*b))
}

/// The upper half of a receive descriptor.
pub(super) fn upper(look: &Look, index: usize) -> u64 {
    let half = look
        .rx_ring
        .get(16 * index + 8..16 * index + 16)
        .unwrap_or(&[]);
    half.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b))
}

/// Whether the EEPROM's data output is being driven by a read command.
pub(super) fn eeprom_reading(step: &Step<'_>) -> bool {
    let mut clocks = 0;
    let mut last = 0;
    for op in step.past.iter().chain(step.ops) {
        if let Op::Write {
            at: reg::EECD,
            value,
            ..
        } = op
        {
            if value & 2 == 0 {
                clocks = 0;
            } else if value & 1 != 0 && last & 1 == 0 {
                clocks += 1;
            }
            last = *value;
        }
    }
    // After the ninth comes a leading 0, which QEMU does not drive.
    clocks > 9
}
