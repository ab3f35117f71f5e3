//! The short way: runs of packets that are alike, and mixes of others, without a batch.

use datapath::FCS;
use datapath::counters::count_alone;
use datapath::csb::CsbPage;
use frame::Sink;
use guest_mem::View;
use intel::Ring;
use intel::tx::{Gathered, Gathering, Reported};
use model::Env;

use crate::core::chip::Chip;
use crate::core::context::Contexts;
use crate::core::kept::{self, TxKept};
use crate::tx::complete::moved;
use crate::tx::desc::Descs;

/// What became of a run.
pub(crate) struct Sent {
    /// Packets that were sent.
    pub packets: usize,
    pub bytes: usize,
    /// Those it was offered.
    pub offered: usize,
}

/// Sends the run that begins at the head of `ring`, of at most `limit` packets and about `room` bytes; `left` descriptors
/// are ours, and an interrupt says when no more than `low` are left. `None`: no run begins there, or the sink takes none.
#[inline(always)]
pub(crate) fn send(
    (chip, env, to): (&Chip, &Env, &dyn Sink),
    (view, page): (&View<'_>, Option<CsbPage<'_>>),
    (ring, left, low): (&Ring, u32, u32),
    limits: (usize, usize),
) -> Option<Sent> {
    let mut gathering = Gathering::take();
    let offered = gathering
        .gather::<Descs>(view, ring, left, limits)
        .and_then(|(run, reported)| {
            count_alone(&chip.counters.tx_desc_fetched, run.count() as u64);
            let kept = chip.kept.get().map(kept::sent);
            if let Some(kept) = kept {
                let count = run.count();
                let marked = reported.first(count).map(|n| ring.behind(n));
                let next = ring.behind(count as u32);
                kept.begins::<Contexts>(view, ring, (next, marked), false);
            }
            let Some(packets) = run.offer(to) else {
                if let Some(kept) = kept {
                    kept.stands(ring.head);
                }
                return None;
            };
            let bytes = run.bytes(packets);
            let done = (&run, packets, bytes);
            complete(
                (chip, env),
                (view, page),
                (ring, low),
                done,
                (reported, kept),
            );
            Some(Sent {
                packets,
                bytes,
                offered: run.count(),
            })
        });
    gathering.end();
    offered
}

/// Completes the first `taken` packets: write-back, head, statistics and one interrupt decision.
fn complete(
    (chip, env): (&Chip, &Env),
    (view, page): (&View<'_>, Option<CsbPage<'_>>),
    (ring, low): (&Ring, u32),
    (run, taken, bytes): (&Gathered<'_>, usize, usize),
    (reported, kept): (&Reported, Option<TxKept<'_>>),
) {
    match run.kind() {
        Some((len, group)) => chip.stats.sent(taken as u64, len + FCS, group),
        None => chip.stats.counts.sent_many_alone(&run.kinds(taken)),
    }
    let counters = &chip.counters;
    count_alone(&counters.tx_frames, taken as u64);
    count_alone(&counters.tx_bytes, bytes as u64);
    let faults = &counters.tx_dma_fault;
    let next = ring.behind(taken as u32);
    let now = match kept {
        None => reported.write_back(view, ring, taken, faults),
        Some(kept) => {
            if taken < run.count() {
                let marked = reported.first(taken).map(|n| ring.behind(n));
                kept.takes((ring.head, next), marked);
            }
            let now = reported.write_back_first_last(view, ring, taken, faults);
            kept.stands(next);
            now
        }
    };
    moved((chip, env), page, (ring, low), next, (now, false));
}
