//! What follows from frames that are sent: write-back, head and statistics (§7.2.1.4, §7.2.3).

use std::sync::atomic::Ordering;

use datapath::counters::count_alone;
use frame::Batch;
use guest_mem::View;
use intel::Ring;
use intel::tx::{Store, write_back};

use crate::core::context::Context;
use crate::core::function::{Function, count};
use crate::core::queue::TxState;
use crate::core::stats::Tally;
use crate::tx::plan::TxPlan;

/// What a turn has completed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Descriptors the head has moved over.
    pub moved: u32,
    /// Some of them were to be reported.
    pub report: bool,
    /// One of them was to be timed.
    pub stamp: bool,
}

/// Completes what the first `taken` frames of the batch stand for.
pub(crate) fn finish(
    function: &Function,
    view: &View<'_>,
    (queue, plan): (u32, &TxPlan),
    (state, store): (&mut TxState, &Store<[Context; 2]>),
    ring: &Ring,
    (batch, taken): (&Batch<'_>, usize),
) -> Done {
    let counters = &function.counters;
    let mut tally = Tally::default();
    let sent = intel::tx::sent(batch, taken, &mut tally);
    // A function has one transmitter.
    count_alone(&counters.tx_frames, sent.segments);
    count_alone(&counters.tx_bytes, sent.bytes);
    if let Some(own) = function.queues.get(queue as usize) {
        let counts = &own.counts;
        counts
            .tx_packets
            .fetch_add(sent.segments, Ordering::Relaxed);
        counts.tx_octets.fetch_add(sent.bytes, Ordering::Relaxed);
    }
    let kept = function.tx_kept(queue);
    let begun = kept.as_ref().and_then(|_| store.begun(batch, taken));
    let done = store.complete(state, ring, taken, &mut tally, counters);
    function.stats.add(&tally);
    if let (Some(kept), Some(until)) = (&kept, begun) {
        kept.may_have_begun((done.as_ref().map_or(ring.head, |done| done.next), until));
    }
    let Some(done) = done else {
        if let Some(kept) = kept {
            kept.moves(state, ring.head);
        }
        return Done::default();
    };
    let report = !done.written.is_empty();
    let faults = &counters.tx_dma_fault;
    // The first last, which gives the guest all of them.
    let first = if kept.is_some() { 1 } else { 0 };
    let (first, rest) = done.written.split_at(done.written.len().min(first));
    if let Some(kept) = &kept {
        let marked = first.first().filter(|_| plan.head_to.is_none());
        kept.reports(state, (ring.head, done.next), marked.copied());
    }
    let write = || {
        write_back(view, ring, rest, faults);
        write_back(view, ring, first, faults);
    };
    moved((function, plan), view, (done.next, report), write);
    if let Some(kept) = kept {
        kept.stands(done.next);
    }
    Done {
        moved: done.moved,
        report: done.now,
        stamp: done.stamp,
    }
}

/// Moves the head of a queue to `next`. Where descriptors that were done are to be reported, `write` does that in each of
/// them, unless the head is written to memory in place of it (TDWBAL).
#[inline]
pub(crate) fn moved(
    (function, plan): (&Function, &TxPlan),
    view: &View<'_>,
    (next, report): (u32, bool),
    write: impl FnOnce(),
) {
    match plan.head_to {
        None => write(),
        Some(at) if report => {
            if view.write_release(at, &next.to_le_bytes()).is_err() {
                count(&function.counters.tx_dma_fault, 1);
            }
        }
        Some(_) => {}
    }
    plan.place.set_head(&function.file, next);
}
