//! What entries of the list look for in a script and its traces.

use std::collections::{BTreeMap, BTreeSet};

use super::super::ALL_QUEUES;
use super::super::context::{Context, reg};
use super::super::{RING, vf};
use crate::oracle::chip::Chip;
use crate::oracle::compare::{Diff, Step, What};
use crate::oracle::layout::{RX_BUFFERS, RX_RING, TX_BUFFERS, TX_RING};
use crate::oracle::script::Op;

/// Queues that scripts for a chip use, by the chip's numbers.
pub(super) fn queues(chip: &Chip) -> &'static [u32] {
    if chip.vfs == 0 {
        &[0, 1, 2, 3]
    } else {
        &vf::QUEUES
    }
}

/// The queue, by the chip's numbers, in whose ring scripts have a receive descriptor, and which of the ring
/// it is.
pub(super) fn queue_of(c: &Context, index: usize) -> (u32, u32) {
    let all = queues(c.chip);
    let len = if c.chip.vfs == 0 { RING } else { vf::RING };
    let queue = all.get(index / len as usize).copied();
    (queue.unwrap_or(0), index as u32 % len)
}

/// Steps up to a difference.
pub(super) fn until<'a>(step: &'a Step<'_>, diff: &Diff) -> impl Iterator<Item = &'a Op> + Clone {
    let until = match diff.what {
        What::Register { op: Some(i), .. } => i,
        _ => step.ops.len(),
    };
    step.past.iter().chain(&step.ops[..until])
}

/// What the script had written when a difference was seen.
pub(super) fn then(step: &Step<'_>, diff: &Diff) -> Context {
    let mut context = Context::new(step.after.chip);
    until(step, diff).for_each(|op| context.follow(op));
    context
}

/// Whether a step before the difference was such a one, given what was written up to it.
pub(super) fn ever(
    step: &Step<'_>,
    diff: &Diff,
    mut is: impl FnMut(&Context, &Op) -> bool,
) -> bool {
    let mut context = Context::new(step.after.chip);
    until(step, diff).any(|op| {
        context.follow(op);
        is(&context, op)
    })
}

/// What a step writes to the register at `at`, by whichever address.
pub(super) fn writes(step: &Step<'_>, op: &Op, at: u32) -> Option<u32> {
    let chip = step.after.chip;
    match op {
        Op::Write {
            at: to,
            value,
            size,
        } if *size >= 4 && chip.home(*to) == at => Some(*value as u32),
        Op::Write {
            at: to,
            value,
            size: 8,
        } if chip.home(to + 4) == at => Some((value >> 32) as u32),
        Op::Write { at: to, value, .. } if chip.home(to & !3) == at => {
            Some((*value as u32) << (8 * (to & 3)) | *value as u32)
        }
        _ => None,
    }
}

/// Which register a whole write is to, and its value.
fn target(step: &Step<'_>, op: &Op) -> Option<(u32, u32)> {
    match op {
        Op::Write { at, value, size } if *size >= 4 => {
            Some((step.after.chip.home(*at), *value as u32))
        }
        _ => None,
    }
}

/// What the script has written to a register before the difference, all its writes together.
pub(super) fn written(step: &Step<'_>, diff: &Diff, at: u32) -> Option<u32> {
    let values = until(step, diff).filter_map(|op| writes(step, op, at));
    values.reduce(|a, b| a | b)
}

/// A transmit descriptor that the guest handed over, as it stood then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub queue: u32,
    pub raw: [u8; 16],
    /// The guest had handed it over before, and has not written it since.
    pub again: bool,
}

impl Posted {
    pub(super) fn command(&self) -> u8 {
        self.raw[11]
    }

    /// Bytes of its buffer.
    pub(super) fn len(&self) -> usize {
        usize::from(u16::from_le_bytes([self.raw[8], self.raw[9]]))
    }

    fn extended(&self) -> bool {
        self.command() & 0x20 != 0
    }

    /// Whether it tells about packets and is part of none.
    pub(super) fn is_context(&self) -> bool {
        self.extended() && self.raw[10] >> 4 == 2
    }

    pub(super) fn is_legacy(&self) -> bool {
        !self.extended()
    }

    pub(super) fn is_data(&self) -> bool {
        self.extended() && self.raw[10] >> 4 == 3
    }

    pub(super) fn ends(&self) -> bool {
        self.command() & 1 != 0
    }
}

/// Transmit descriptors handed over so far, in order; the second are those of the step alone.
pub(super) fn posted(step: &Step<'_>) -> (Vec<Posted>, usize) {
    let mut context = Context::new(step.after.chip);
    let mut heads = [0; ALL_QUEUES];
    // Addresses of what was handed over.
    let mut gone = BTreeSet::new();
    let mut all = Vec::new();
    let mut before = 0;
    let past = step.past.iter().map(|op| (op, true));
    for (op, past) in past.chain(step.ops.iter().map(|op| (op, false))) {
        context.follow(op);
        if let Op::Mem { at, bytes } = op {
            let end = at + bytes.len() as u64;
            gone.retain(|desc| desc + 16 <= *at || *desc >= end);
        }
        let target = target(step, op);
        let queues = target.map_or(&[][..], |_| queues(context.chip));
        for &queue in queues {
            let at = |base: u32| base + reg::QUEUE * queue;
            let to = |at: u32| target.filter(|(to, _)| *to == at).map(|(_, value)| value);
            if let Some(head) = to(at(reg::TDH)) {
                heads[queue as usize] = head & 0xffff;
            }
            let rung = [reg::TCTL, at(reg::TDT), at(reg::TXDCTL)];
            let on = context.has(reg::TCTL, 2) && tx_on(&context, queue);
            if on && rung.iter().any(|at| to(*at).is_some()) {
                between(
                    &context,
                    queue,
                    heads[queue as usize],
                    (&mut gone, &mut all),
                );
                heads[queue as usize] = context.get(at(reg::TDT)) & 0xffff;
            }
        }
        if past {
            before = all.len();
        }
    }
    (all, before)
}

fn tx_on(context: &Context, queue: u32) -> bool {
    let at = reg::TXDCTL + reg::QUEUE * queue;
    match context.written(at) {
        Some(value) => value & 1 << 25 != 0,
        // Of a VF it is off.
        None => queue == 0 && context.chip.vfs == 0,
    }
}

/// Transmit descriptors of a queue from one index to the tail.
fn between(
    context: &Context,
    queue: u32,
    mut index: u32,
    (gone, to): (&mut BTreeSet<u64>, &mut Vec<Posted>),
) {
    let at = |base: u32| context.get(base + reg::QUEUE * queue);
    let len = (at(reg::TDLEN) & 0xf_fff0) / 16;
    let base = u64::from(at(reg::TDBAL) & !0x7f);
    let tail = at(reg::TDT) & 0xffff;
    for _ in 0..len.min(64) {
        if index == tail {
            return;
        }
        let place = base + u64::from(index) * 16;
        let again = !gone.insert(place);
        let mut raw = [0; 16];
        for (i, byte) in raw.iter_mut().enumerate() {
            *byte = context.ring_byte(place + i as u64);
        }
        to.push(Posted { queue, raw, again });
        index = if index + 1 >= len { 0 } else { index + 1 };
    }
}

/// Whether what is sent may be for another function or pool, and on no wire that is looked at.
pub(super) fn is_inside(c: &Context) -> bool {
    c.chip.vfs > 0 || c.get(reg::DTXSWC) >> 31 == 1
}

/// Packets that a script hands over, put together from their pieces.
#[derive(Default)]
pub(super) struct Pieces<'a> {
    buffers: BTreeMap<u64, &'a [u8]>,
    descs: Vec<&'a [u8]>,
}

impl<'a> Pieces<'a> {
    /// Packets that a step hands over, by a tail.
    pub(super) fn follow(&mut self, context: &Context, op: &'a Op) -> Vec<Vec<u8>> {
        match op {
            Op::Mem { at, bytes } if (TX_BUFFERS..RX_BUFFERS).contains(at) => {
                self.buffers.insert(*at, bytes);
            }
            Op::Mem { at, bytes } if (TX_RING..RX_RING).contains(at) && bytes.len() == 16 => {
                self.descs.push(bytes);
            }
            Op::Write { at, .. } => {
                let home = context.chip.home(*at);
                if (reg::TDBAL..reg::TDBAL + 0x400).contains(&home) && home & 0x3f == 0x18 {
                    return self.packets();
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn packets(&mut self) -> Vec<Vec<u8>> {
        let (mut all, mut packet) = (Vec::new(), Vec::new());
        for desc in self.descs.drain(..) {
            let at = u64::from_le_bytes(desc[..8].try_into().expect("eight bytes"));
            let len = usize::from(u16::from_le_bytes([desc[8], desc[9]]));
            // Neither data nor a legacy descriptor.
            if desc[11] & 0x20 != 0 && desc[10] >> 4 != 3 {
                continue;
            }
            let bytes = self.buffers.get(&at).copied().unwrap_or(&[]);
            packet.extend_from_slice(&bytes[..len.min(bytes.len())]);
            // What a script no longer has are zeros.
            packet.resize(packet.len() + len.saturating_sub(bytes.len()), 0);
            if desc[11] & 1 != 0 {
                all.push(std::mem::take(&mut packet));
            }
        }
        all
    }
}

/// Whether a frame came so far for which this held, or may have from another function. It may have
/// waited since.
pub(super) fn frame(step: &Step<'_>, mut is: impl FnMut(&Context, &[u8]) -> bool) -> bool {
    let mut context = Context::new(step.after.chip);
    let mut pieces = Pieces::default();
    step.past.iter().chain(step.ops).any(|op| {
        context.follow(op);
        let packets = pieces.follow(&context, op);
        if is_inside(&context) {
            let mut packets = packets.iter().filter(|packet| packet.len() >= 14);
            if packets.any(|packet| is(&context, packet)) {
                return true;
            }
        }
        match op {
            Op::Frames(frames) => frames
                .iter()
                .any(|frame| frame.len() >= 14 && is(&context, frame)),
            // What one function or pool sends another may get.
            Op::Mem { at, bytes } if is_inside(&context) => {
                (TX_BUFFERS..RX_BUFFERS).contains(at) && bytes.len() >= 24 && is(&context, bytes)
            }
            _ => false,
        }
    })
}

/// A direction of a queue, by the registers of the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    base: u32,
    len: u32,
    tail: u32,
    page: u64,
}

pub(super) const RX: Side = Side {
    base: reg::RDBAL,
    len: reg::RDLEN,
    tail: reg::RDT,
    page: RX_RING,
};

pub(super) const TX: Side = Side {
    base: reg::TDBAL,
    len: reg::TDLEN,
    tail: reg::TDT,
    page: TX_RING,
};

impl Side {
    /// Whether the tail of a queue was ever outside of its ring.
    pub(super) fn no_ring(self, step: &Step<'_>) -> bool {
        self.any(step, |c, at| {
            let len = (c.get(self.len + at) & 0xf_fff0) / 16;
            c.written(self.tail + at)
                .is_some_and(|tail| tail & 0xffff >= len)
        })
    }

    /// Whether a ring was ever elsewhere than scripts put it.
    pub(super) fn elsewhere(self, step: &Step<'_>) -> bool {
        self.any(step, |c, at| {
            let high = u64::from(c.get(self.base + 4 + at)) << 32;
            let base = high | u64::from(c.get(self.base + at) & !0x7f);
            let end = base.wrapping_add(u64::from(c.get(self.len + at)));
            base != 0 && (base < self.page || end > self.page + 0x1000)
        })
    }

    /// Whether receive descriptors were handed over that are as the NIC left them.
    pub(super) fn again(self, step: &Step<'_>) -> bool {
        let mut gone = BTreeSet::new();
        let mut tails = [0; ALL_QUEUES];
        let mut context = Context::new(step.after.chip);
        step.past.iter().chain(step.ops).any(|op| {
            context.follow(op);
            if let Op::Mem { at, bytes } = op {
                let end = at + bytes.len() as u64;
                gone.retain(|desc| desc + 16 <= *at || *desc >= end);
            }
            let mut again = false;
            let target = target(step, op);
            for &queue in target.map_or(&[][..], |_| queues(context.chip)) {
                let at = reg::QUEUE * queue;
                let Some((_, tail)) = target.filter(|(to, _)| *to == self.tail + at) else {
                    continue;
                };
                let len = (context.get(self.len + at) & 0xf_fff0) / 16;
                let base = u64::from(context.get(self.base + at) & !0x7f);
                let from = std::mem::replace(&mut tails[queue as usize], tail & 0xffff);
                let mut index = from;
                for _ in 0..len.min(64) {
                    if index == tail & 0xffff {
                        break;
                    }
                    again |= !gone.insert(base + 16 * u64::from(index));
                    index = if index + 1 >= len { 0 } else { index + 1 };
                }
            }
            again
        })
    }

    /// Whether this held for a queue after a step so far, given what was written up to it and how far
    /// its registers are from those of the first.
    fn any(self, step: &Step<'_>, is: impl Fn(&Context, u32) -> bool) -> bool {
        let mut context = Context::new(step.after.chip);
        step.past.iter().chain(step.ops).any(|op| {
            context.follow(op);
            let mut queues = queues(context.chip).iter();
            queues.any(|queue| is(&context, reg::QUEUE * queue))
        })
    }
}
