//! Pause frames that the transmitter owes the wire (manual §8.7).

use std::sync::atomic::Ordering;

use frame::Sink;
use intel::flow;

use crate::core::chip::Chip;
use crate::core::flow::{IDS, owed};
use crate::regs as r;

/// Sends the pause frames that are owed, at most `limit`. Returns how many, or `None` when the sink
/// had no room; the others stay owed.
pub(crate) fn settle(chip: &Chip, to: &dyn Sink, limit: usize) -> Option<usize> {
    let flow = &chip.flow;
    let mut sent = 0;
    if flow.owed.load(Ordering::Acquire) == 0 {
        return Some(sent);
    }
    let file = &chip.file;
    for what in [owed::XOFF, owed::XON, owed::SOFTWARE] {
        if sent == limit || flow.owed.fetch_and(!what, Ordering::AcqRel) & what == 0 {
            continue;
        }
        let quanta = match what {
            owed::XON => 0,
            _ => file.get(r::FCTTV) as u16,
        };
        let Some(tally) = flow::send_pause(to, file, &IDS, quanta) else {
            flow.owed.fetch_or(what, Ordering::AcqRel);
            return None;
        };
        sent += 1;
        chip.stats.add(&tally);
    }
    Some(sent)
}
