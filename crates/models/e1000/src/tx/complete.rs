//! What follows from frames that are sent: write-back, head, statistics and one interrupt decision
//! (manual §3.3.1, §3.4.3).

use csb::at;
use datapath::counters::count_alone;
use datapath::csb::CsbPage;
use frame::Batch;
use guest_mem::View;
use intel::Ring;
use intel::tx::write_back;
use model::Env;

use crate::core::chip::Chip;
use crate::core::kept;
use crate::core::stats::Tally;
use crate::core::tx_queue::{SHELF, TxState};
use crate::irq::Event;
use crate::regs as r;
use crate::regs::bits::cause;

/// Completes what the first `taken` frames of the batch stand for: write-back, head, statistics and
/// one interrupt decision. Returns how many descriptors that were.
pub(crate) fn finish(
    chip: &Chip,
    env: &Env,
    (view, page): (&View<'_>, Option<CsbPage<'_>>),
    state: &mut TxState,
    (ring, low): (&Ring, u32),
    batch: &Batch<'_>,
    taken: usize,
) -> u32 {
    let counters = &chip.counters;
    let mut tally = Tally::default();
    let sent = intel::tx::sent(batch, taken, &mut tally);
    // Under the transmit lock.
    count_alone(&counters.tx_frames, sent.frames);
    count_alone(&counters.tx_bytes, sent.bytes);
    let TxState {
        store, position, ..
    } = state;
    let store = store.get(&SHELF);
    let kept = chip.kept.get().map(kept::sent);
    let begun = kept.and_then(|_| store.begun(batch, taken));
    let done = store.complete(position, ring, taken, &mut tally, counters);
    chip.stats.add(&tally);
    if let (Some(kept), Some(until)) = (kept, begun) {
        kept.may_have_begun((done.as_ref().map_or(ring.head, |done| done.next), until));
    }
    let Some(done) = done else {
        if let Some(kept) = kept {
            kept.moves(position, ring.head);
        }
        return 0;
    };
    if let Some(kept) = kept {
        let first = done.written.first();
        kept.reports(position, (ring.head, done.next), first.copied());
        // The first last, which gives the guest all of them.
        let (first, rest) = done.written.split_at(done.written.len().min(1));
        write_back(view, ring, rest, &counters.tx_dma_fault);
        write_back(view, ring, first, &counters.tx_dma_fault);
        kept.stands(done.next);
    } else {
        write_back(view, ring, done.written, &counters.tx_dma_fault);
    }
    moved(
        (chip, env),
        page,
        (ring, low),
        done.next,
        (done.now, done.delayed),
    );
    done.moved
}

/// The head of `ring` is at `next` now; an interrupt says so when no more than `low` descriptors are left. Descriptors to be
/// reported were passed, some of whose interrupt is due `now`, or may be `delayed`.
#[inline]
pub(crate) fn moved(
    (chip, env): (&Chip, &Env),
    page: Option<CsbPage<'_>>,
    (ring, low): (&Ring, u32),
    next: u32,
    (now, delayed): (bool, bool),
) {
    let before = ring.available();
    let after = Ring {
        head: next,
        ..*ring
    };
    let mut left = after.available();
    let sent = before.saturating_sub(left);
    // A guest may move the tail while we work; a ring left empty is one only if it still is.
    if chip.file.get(r::TDT) != ring.tail {
        left = left.max(1);
    }
    chip.file.set(r::TDH, next);
    let mut event = Event {
        now: if now { cause::TXDW } else { 0 },
        delayed: false,
        sent,
        ring: ring.len,
        wanted: page.map(|page| page.sent(next)),
        ..Event::default()
    };
    if event.wanted == Some(true) {
        event.now |= cause::TXDW;
    } else if delayed && !now {
        event.packet = chip.file.get(r::TIDV);
        event.absolute = chip.file.get(r::TADV);
        // TIDV 0 is not allowed (§13.4.41); without a delay there is nothing to wait for.
        if event.packet == 0 || event.wanted.is_some() {
            event.now |= cause::TXDW;
        } else {
            event.delayed = true;
        }
    }
    if left == 0 {
        event.now |= cause::TXQE;
    }
    if before > low && left <= low {
        event.now |= cause::TXD_LOW;
    }
    if event.now != 0 || event.delayed {
        let causes = chip.irq.lock().sent(env, &event);
        if let Some(page) = page {
            page.store(at::HOST_ISR, causes);
        }
    } else {
        // However the packets are cut into batches, moderation counts all of them.
        chip.irq.lock().passed(&event);
    }
}
