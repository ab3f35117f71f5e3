//! Which frames pass the receive filters, and when they are asked.

use super::super::E1000;
use super::super::context::{Context, reg};
use super::super::watched::RDH;
use crate::oracle::compare::Step;
use crate::oracle::layout::MAC;
use crate::oracle::script::Op;

const SBP: u32 = 1 << 2;
const UPE: u32 = 1 << 3;
const MPE: u32 = 1 << 4;
const LPE: u32 = 1 << 5;
const BAM: u32 = 1 << 15;
const VFE: u32 = 1 << 18;

pub(super) fn tagged(context: &Context, frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&context.vet().to_be_bytes()[..])
}

/// Whether the multicast table has the bit of an address.
pub(super) fn hashed(context: &Context, frame: &[u8]) -> bool {
    let shift = [4, 3, 2, 0][(context.get(reg::RCTL) >> 12 & 3) as usize];
    let index = (u32::from(frame[5]) << 8 | u32::from(frame[4])) >> shift & 0xfff;
    context.get(reg::MTA + index / 32 * 4) >> (index % 32) & 1 == 1
}

/// Whether one of the receive addresses is this one.
fn addressed(context: &Context, to: &[u8]) -> bool {
    (0..16).any(|i| {
        let first = i == 0;
        let low = context.written(reg::RAL + 8 * i);
        let high = context.written(reg::RAH + 8 * i);
        let [a, b, c, d, e, f] = if first { MAC } else { [0; 6] };
        let valid = if first { 0x80 } else { 0 };
        let low = low.unwrap_or(u32::from_le_bytes([a, b, c, d]));
        let high = high.unwrap_or(u32::from_le_bytes([e, f, 0, valid]));
        high >> 31 == 1 && low.to_le_bytes() == to[..4] && high.to_le_bytes()[..2] == to[4..6]
    })
}

/// Whether the filters that both machines have let a frame pass.
fn passes(context: &Context, frame: &[u8]) -> bool {
    let on = |bit| context.has(reg::RCTL, bit);
    let to = &frame[..6];
    let address = match to[0] & 1 == 1 {
        _ if addressed(context, to) || hashed(context, frame) => true,
        true if to == [0xff; 6] => on(BAM) || on(MPE),
        true => on(MPE),
        false => on(UPE),
    };
    let vlan = || {
        let Some(tci) = frame.get(14..16).filter(|_| tagged(context, frame)) else {
            return true;
        };
        let id = u32::from(u16::from_be_bytes([tci[0], tci[1]]) & 0xfff);
        !on(VFE) || context.get(reg::VFTA + id / 32 * 4) >> (id % 32) & 1 == 1
    };
    address && vlan() && (on(LPE) || on(SBP) || frame.len() <= 1518)
}

/// Whether a frame came when there were no descriptors left in QEMU's ring, and for a write after it
/// this holds: given what was written when it came, what is now, the frame and the write.
fn waited_until(step: &Step<'_>, is: impl Fn(&Context, &Context, &[u8], &Op) -> bool) -> bool {
    let mut context = Context::new(&E1000);
    let (mut looks, mut head) = (0, 0);
    // Descriptors that the frames since the last look may have taken, at most.
    let mut taken = 0;
    let mut waiting: Vec<(&[u8], Context)> = Vec::new();
    for op in step.past.iter().chain(step.ops) {
        context.follow(op);
        let tail = context.get(reg::RDT) & 0xffff;
        match op {
            Op::Look => {
                head = step.traces.1.looks[looks].watched[RDH];
                looks += 1;
                taken = 0;
                // With time gone by and descriptors left, nothing waits in QEMU.
                if head != tail && context.has(reg::RCTL, 2) {
                    waiting.clear();
                }
            }
            Op::Write {
                at: reg::RDH,
                value,
                ..
            } => head = *value as u32 & 0xffff,
            Op::Frames(frames) => {
                let len = (context.get(reg::RDLEN) & 0xf_ff80) / 16;
                let given = (tail + len).saturating_sub(head) % len.max(1);
                for frame in frames.iter().filter(|frame| frame.len() >= 14) {
                    if taken >= given as usize {
                        waiting.push((frame, context.clone()));
                    }
                    taken += (frame.len() + 4).div_ceil(context.buffer());
                }
            }
            Op::Write { .. } if waiting.iter().any(|(f, then)| is(then, &context, f, op)) => {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// Whether the filters have changed their mind about a frame while it waited outside of QEMU's NIC.
pub(super) fn judged_late(step: &Step<'_>) -> bool {
    waited_until(step, |then, now, frame, _| {
        passes(then, frame) != passes(now, frame)
    })
}

/// Whether the receiver was turned off while a frame waited outside of QEMU's NIC.
pub(super) fn turned_off(step: &Step<'_>) -> bool {
    waited_until(step, |then, now, _, _| {
        then.has(reg::RCTL, 2) && !now.has(reg::RCTL, 2)
    })
}

/// Whether RXT0 was written to ICR right after the tail moved for a frame that waited outside of
/// QEMU's NIC.
pub(super) fn cleared_before_arrival(step: &Step<'_>) -> bool {
    waited_until(step, |then, now, _, op| {
        let moved = then.get(reg::RDT) != now.get(reg::RDT);
        moved && matches!(op, Op::Write { at: reg::ICR, value, .. } if value & 0x80 != 0)
    })
}
