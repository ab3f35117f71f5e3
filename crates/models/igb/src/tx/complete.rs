//! What follows from frames that are sent: write-back, head and statistics (§7.2.1.4, §7.2.3).

use std::sync::atomic::Ordering;

use datapath::FCS;
use frame::Batch;
use guest_mem::View;
use intel::{DD, Ring, SIZE};
use wire::{Gso, VLAN_TAG};

use crate::core::function::{Function, count};
use crate::core::queue::TxState;
use crate::core::stats::{Stat, Tally};
use crate::regs::bits::tdwbal;
use crate::tx::store::{Mark, Store, Tso};

/// Where the status byte is in a descriptor, of either kind.
const STATUS_AT: u64 = 12;

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
    queue: u32,
    (state, store): (&mut TxState, &Store),
    ring: &Ring,
    (batch, taken): (&Batch<'_>, usize),
) -> Done {
    let mut tally = Tally::default();
    sent(function, queue, batch, taken, &mut tally);
    let marks = &store.marks;
    let done = marks.partition_point(|mark| mark.frames as usize <= taken);
    let before = || done.checked_sub(1).map(|i| marks[i]);
    let cut = |mark: &Mark| mark.cut(taken, ring, &store.written);
    let inside = marks.get(done).and_then(cut);
    let Some(last) = inside.or_else(before) else {
        function.stats.add(&tally);
        state.taken += taken;
        return Done::default();
    };
    let mut stamp = false;
    for mark in &marks[..done] {
        stamp |= mark.stamp;
        if let Some(tso) = mark.tso {
            count(&function.counters.tx_tso_frames, 1);
            tally.add(Stat::Tsctc, 1);
            tally.add(Stat::Tsctfc, (tso == Tso::Failed).into());
        }
    }
    function.stats.add(&tally);
    // Frames of the next packet that went out before the sink was full. Those of the packet at the
    // head that went out before this batch are behind us with it.
    state.taken = taken - last.frames as usize;
    if let Some(memory) = store.memories.get(last.memory as usize) {
        state.memory = *memory;
    }
    let after = Ring {
        head: last.next,
        ..*ring
    };
    let written = &store.written[..last.written as usize];
    let ids = function.ids;
    let low = function.file.get_at(ids.tdwbal, queue);
    if low & tdwbal::HEAD_WB == 0 {
        write_back(function, view, ring, written);
    } else if !written.is_empty() {
        let high = function.file.get_at(ids.tdwbah, queue);
        let at = u64::from(high) << 32 | u64::from(low & !3);
        if view.write_release(at, &last.next.to_le_bytes()).is_err() {
            count(&function.counters.tx_dma_fault, 1);
        }
    }
    function.file.set_at(ids.tdh, queue, last.next);
    Done {
        moved: ring.available().saturating_sub(after.available()),
        report: last.report,
        stamp,
    }
}

/// Sets "done" in these descriptors, in order.
fn write_back(function: &Function, view: &View<'_>, ring: &Ring, indices: &[u32]) {
    // Most often all are, or a part of the ring in a row is, in one region.
    for run in indices.chunk_by(|a, b| *b == *a + 1) {
        let first = ring.address(run[0]).wrapping_add(STATUS_AT);
        let window = view.write_window(first);
        if window.is_some_and(|w| w.store_bytes(first, SIZE as usize, run.len(), DD)) {
            continue;
        }
        for &index in run {
            let at = ring.address(index).wrapping_add(STATUS_AT);
            if view.write_release(at, &[DD]).is_err() {
                count(&function.counters.tx_dma_fault, 1);
            }
        }
    }
}

/// Counts the frames that were taken, as they are on the wire.
fn sent(function: &Function, queue: u32, batch: &Batch<'_>, taken: usize, tally: &mut Tally) {
    // Most batches are of one kind.
    let alike = batch.alike().filter(|all| all.plain);
    let of_one = alike.and_then(|all| Some((all.len?, *all.header.first_chunk::<6>()?)));
    let (frames, bytes) = match of_one {
        Some((len, dst)) => {
            tally.sent(taken as u64, len + FCS, dst);
            (taken as u64, taken as u64 * len as u64)
        }
        None => sent_one_by_one(batch, taken, tally),
    };
    count(&function.counters.tx_frames, frames);
    count(&function.counters.tx_bytes, bytes);
    if let Some(own) = function.queues.get(queue as usize) {
        own.counts.tx_packets.fetch_add(frames, Ordering::Relaxed);
        own.counts.tx_octets.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The same for frames that differ. Returns frames, each segment one, and the bytes the guest gave.
fn sent_one_by_one(batch: &Batch<'_>, taken: usize, tally: &mut Tally) -> (u64, u64) {
    let (mut frames, mut bytes) = (0, 0);
    for frame in batch.iter().take(taken) {
        let len = frame.len();
        let dst = *frame.head().first_chunk::<6>().unwrap_or(&[0; 6]);
        let notes = frame.notes();
        let (hdr, mss) = (usize::from(notes.hdr_len), usize::from(notes.gso_size));
        bytes += len as u64;
        // A tag beside the frame is in it on the wire.
        let more = FCS + if notes.vlan.is_some() { VLAN_TAG } else { 0 };
        if notes.gso == Gso::None || mss == 0 || len <= hdr {
            frames += 1;
            tally.sent(1, len + more, dst);
            continue;
        }
        let mut payload = len - hdr;
        while payload > 0 {
            let size = payload.min(mss);
            frames += 1;
            tally.sent(1, hdr + size + more, dst);
            payload -= size;
        }
    }
    (frames, bytes)
}
