//! The shortest way: one packet that is all there is, which is what interactive traffic sends.
//!
//! It is a run of one, without what only longer turns need: lists of the thread, limits, other queues. Whatever is not exactly so is
//! left to the [turns](crate::tx), which give the same results for all.

use std::sync::atomic::Ordering;

use datapath::FCS;
use datapath::counters::count_alone;
use frame::Sink;
use guest_mem::View;
use intel::tx::Single;

use crate::core::function::Function;
use crate::tx::desc::{Contexts, Descs};
use crate::tx::plan::TxPlan;
use crate::tx::turns::Turns;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub queue: u32,
    /// Copies that it has cost.
    pub cost: usize,
    /// It is to be reported.
    pub report: bool,
    /// Nothing has come since.
    pub all: bool,
    /// Descriptors of the ring.
    pub ring: u32,
}

/// Sends the packet at the head of a ring, if it is the only one there, in the only queue that may have something. `None`: nothing
/// has happened, but that it was tried.
#[inline(always)]
pub(crate) fn send(
    turns: &mut Turns,
    (function, to): (&Function, &dyn Sink),
    view: &View<'_>,
) -> Option<Sent> {
    if !turns.waiting.is_power_of_two() || !turns.runs.is_open() {
        return None;
    }
    let queue = turns.waiting.trailing_zeros();
    let own = function.queues.get(queue as usize)?;
    let plan = turns.plans.get_mut(queue as usize)?;
    let state = own.tx.lock();
    // Under the lock that those wait for who switch the queue off.
    let plan = plan.of(function.setup.get(), || TxPlan::make(function, queue));
    if !plan.on || !plan.plain || plan.head_to.is_some() || !state.is_between() {
        return None;
    }
    let ring = plan.place.ring(&function.file)?;
    if ring.available() != 1 {
        return None;
    }
    let single = Single::of::<Descs>(view, &ring)?;
    let run = single.run()?;
    let counters = &function.counters;
    count_alone(&counters.tx_desc_fetched, 1);
    let (next, report) = (ring.next(ring.head), single.is_reported());
    let kept = function.tx_kept(queue);
    if let Some(kept) = &kept {
        let marked = report.then_some(ring.head);
        kept.begins::<Contexts>(view, &ring, (next, marked), false);
    }
    if to.deliver_run(&run).is_none_or(|taken| taken == 0) {
        if let Some(kept) = kept {
            kept.stands(ring.head);
        }
        turns.runs.failed();
        return None;
    }
    turns.runs.worked();
    turns.short = false;
    let next_queue = (queue + 1) % function.queues.len() as u32;
    function.tx_next.store(next_queue, Ordering::Relaxed);
    let len = single.bytes();
    function.stats.sent(1, len + FCS, single.group());
    count_alone(&counters.tx_frames, 1);
    count_alone(&counters.tx_bytes, len as u64);
    count_alone(&own.counts.tx_packets, 1);
    count_alone(&own.counts.tx_octets, len as u64);
    single.write_back(view, &ring, &counters.tx_dma_fault);
    if let Some(kept) = kept {
        kept.stands(next);
    }
    plan.place.set_head(&function.file, next);
    Some(Sent {
        queue,
        cost: turns.fan_out.learn_one(),
        report,
        all: plan.place.tail(&function.file) == ring.tail,
        ring: ring.len,
    })
}
