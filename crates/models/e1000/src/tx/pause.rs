//! Pause frames that the transmitter owes the wire (manual §8.7).

use std::sync::atomic::Ordering;

use datapath::{FCS, MIN_FRAME};
use frame::{Batch, Sink};
use intel::flow;
use wire::Offload;

use crate::core::chip::Chip;
use crate::core::flow::{IDS, owed};
use crate::core::stats::{Stat, Tally};
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
        let mut batch = Batch::new();
        batch.push_bytes(&flow::pause_frame(file, &IDS, quanta));
        batch.end(Offload::NONE);
        if to.deliver(&batch, &[0]) == 0 {
            flow.owed.fetch_or(what, Ordering::AcqRel);
            return None;
        }
        sent += 1;
        let mut tally = Tally::default();
        let xon = quanta == 0;
        tally.add(if xon { Stat::Xontxc } else { Stat::Xofftxc }, 1);
        tally.add(Stat::Tpt, 1);
        tally.add(Stat::Tot, (MIN_FRAME + FCS) as u64);
        chip.stats.add(&tally);
    }
    Some(sent)
}
