//! What entries of the list look for in a script and its traces.

use super::super::compare::{Diff, Step, What};
use super::super::context::Context;
use super::super::script::Op;

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

/// What the script has written to a register before the difference, all its writes together.
pub(super) fn written(step: &Step<'_>, diff: &Diff, at: u32) -> Option<u32> {
    let values = until(step, diff).filter_map(|op| writes(step, op, at));
    values.reduce(|a, b| a | b)
}
