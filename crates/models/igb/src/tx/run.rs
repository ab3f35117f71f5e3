//! The short way: runs of packets that are alike, and mixes of others, without a batch.

use datapath::FCS;
use datapath::counters::count_alone;
use frame::Sink;
use guest_mem::View;
use intel::Ring;
use intel::tx::{Gathered, Gathering, Reported};

use crate::core::function::Function;
use crate::tx::complete::{Done, moved};
use crate::tx::desc::{Contexts, Descs};
use crate::tx::plan::TxPlan;

/// What became of a run.
pub(crate) struct Sent {
    pub done: Done,
    pub bytes: usize,
    /// The sink took all of it.
    pub all: bool,
}

/// Sends the run that begins at the head of `ring`, the one of `queue`, of at most `limit` packets and about `room` bytes;
/// `left` descriptors are ours. `None`: no run begins there, or the sink takes none.
pub(crate) fn send(
    (function, queue, plan): (&Function, u32, &TxPlan),
    (view, to): (&View<'_>, &dyn Sink),
    (ring, left): (&Ring, u32),
    limits: (usize, usize),
) -> Option<Sent> {
    let mut gathering = Gathering::take();
    let sent = gathering
        .gather::<Descs>(view, ring, left, limits)
        .and_then(|(run, reported)| {
            let counters = &function.counters;
            count_alone(&counters.tx_desc_fetched, run.count() as u64);
            let is_kept = function.kept.get().is_some();
            if is_kept {
                begins((function, queue, plan), (view, ring), &run, reported);
            }
            let Some(taken) = run.offer(to) else {
                if is_kept {
                    stands(function, queue, ring.head);
                }
                return None;
            };
            let bytes = run.bytes(taken);
            let moved = (&run, taken, bytes);
            Some(Sent {
                done: complete((function, queue, plan), view, ring, moved, reported),
                bytes,
                all: taken == run.count(),
            })
        });
    gathering.end();
    sent
}

/// Says in the words that outlive the process that a run is about to be delivered. Not inlined: who keeps nothing is not to pay
/// for it in the loops around.
#[inline(never)]
fn begins(
    (function, queue, plan): (&Function, u32, &TxPlan),
    (view, ring): (&View<'_>, &Ring),
    run: &Gathered<'_>,
    reported: &Reported,
) {
    if let Some(kept) = function.tx_kept(queue) {
        let count = run.count();
        let marked = marked(plan, ring, reported, count);
        kept.begins::<Contexts>(view, ring, (ring.behind(count as u32), marked), false);
    }
}

/// And that the ring stands there.
#[inline(never)]
fn stands(function: &Function, queue: u32, head: u32) {
    if let Some(kept) = function.tx_kept(queue) {
        kept.stands(head);
    }
}

/// Of the first `n` packets the first that is to be reported in its descriptor.
fn marked(plan: &TxPlan, ring: &Ring, reported: &Reported, n: usize) -> Option<u32> {
    let first = reported.first(n).filter(|_| plan.head_to.is_none());
    first.map(|n| ring.behind(n))
}

/// Completes the first `taken` packets.
fn complete(
    (function, queue, plan): (&Function, u32, &TxPlan),
    view: &View<'_>,
    ring: &Ring,
    (run, taken, bytes): (&Gathered<'_>, usize, usize),
    reported: &Reported,
) -> Done {
    let (frames, bytes) = (taken as u64, bytes as u64);
    match run.kind() {
        Some((len, group)) => function.stats.sent(frames, len + FCS, group),
        None => function.stats.sent_many(&run.kinds(taken)),
    }
    let counters = &function.counters;
    count_alone(&counters.tx_frames, frames);
    count_alone(&counters.tx_bytes, bytes);
    if let Some(own) = function.queues.get(queue as usize) {
        count_alone(&own.counts.tx_packets, frames);
        count_alone(&own.counts.tx_octets, bytes);
    }
    let next = ring.behind(taken as u32);
    let is_kept = function.kept.get().is_some();
    let faults = &counters.tx_dma_fault;
    let write = || {
        match is_kept {
            false => reported.write_back(view, ring, taken, faults),
            true => reported.write_back_first_last(view, ring, taken, faults),
        };
    };
    let report = reported.asks(taken);
    if is_kept
        && taken < run.count()
        && let Some(kept) = function.tx_kept(queue)
    {
        let marked = marked(plan, ring, reported, taken);
        kept.takes((ring.head, next), marked);
    }
    moved((function, plan), view, (next, report), write);
    if is_kept {
        stands(function, queue, next);
    }
    Done {
        moved: taken as u32,
        report,
        stamp: false,
    }
}
