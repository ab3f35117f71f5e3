//! What follows from frames that are sent: write-back, head, statistics and one interrupt decision
//! (manual §3.3.1, §3.4.3).

use csb::at;
use datapath::FCS;
use frame::Batch;
use guest_mem::View;
use intel::{DD, Ring, SIZE};
use model::Env;
use wire::{Gso, VLAN_TAG};

use crate::core::chip::Chip;
use crate::core::csb::CsbPage;
use crate::core::stats::{Stat, Tally};
use crate::core::tx_queue::{Mark, Tso, TxState};
use crate::irq::Event;
use crate::regs as r;
use crate::regs::bits::cause;
use datapath::counters::{count, count_alone};

/// Where the status byte is in a descriptor.
const STATUS_AT: u64 = 12;

/// Completes what the first `taken` frames of the batch stand for: write-back, head, statistics and
/// one interrupt decision. Returns how many descriptors that were.
pub(crate) fn finish(
    chip: &Chip,
    env: &Env,
    (view, page): (&View<'_>, Option<CsbPage<'_>>),
    state: &mut TxState,
    ring: &Ring,
    batch: &Batch<'_>,
    taken: usize,
) -> u32 {
    let mut tally = Tally::default();
    sent(chip, batch, taken, &mut tally);
    let within = |m: &Mark| m.frames as usize <= taken;
    let done = match state.marks.last() {
        Some(last) if within(last) => state.marks.len(),
        _ => state.marks.partition_point(within),
    };
    let before = || done.checked_sub(1).map(|i| state.marks[i]);
    let inside = state.marks.get(done).and_then(|m| m.cut(taken, ring));
    let Some(last) = inside.or_else(before) else {
        chip.stats.add(&tally);
        state.taken += taken;
        return 0;
    };
    for tso in state.marks[..done].iter().filter_map(|m| m.tso) {
        count(&chip.counters.tx_tso_frames, 1);
        tally.add(Stat::Tsctc, 1);
        tally.add(Stat::Tsctfc, (tso == Tso::Failed).into());
    }
    chip.stats.add(&tally);
    // Frames of the next packet that went out before the sink was full.
    state.taken = taken - last.frames as usize;
    if let Some(memory) = state.contexts.get(last.memory as usize) {
        state.memory = *memory;
    }
    write_back(chip, view, ring, &state.written[..last.written as usize]);
    let before = ring.available();
    let after = Ring {
        head: last.next,
        ..*ring
    };
    let mut left = after.available();
    // A guest may move the tail while we work; a ring left empty is one only if it still is.
    if chip.file.get(r::TDT) != ring.tail {
        left = left.max(1);
    }
    chip.file.set(r::TDH, last.next);
    let mut event = Event {
        now: if last.now { cause::TXDW } else { 0 },
        delayed: false,
        packet: chip.file.get(r::TIDV),
        absolute: chip.file.get(r::TADV),
        sent: before.saturating_sub(after.available()),
        ring: ring.len,
        wanted: page.map(|page| page.sent(last.next)),
        ..Event::default()
    };
    if event.wanted == Some(true) {
        event.now |= cause::TXDW;
    } else if last.delayed && !last.now {
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
    let low = (chip.file.get(r::TXDCTL) >> 25) * 8;
    if before > low && left <= low {
        event.now |= cause::TXD_LOW;
    }
    if event.now != 0 || event.delayed {
        let causes = chip.irq.lock().sent(env, event);
        if let Some(page) = page {
            page.store(at::HOST_ISR, causes);
        }
    }
    before - after.available().min(before)
}

/// Sets "done" in these descriptors, in order.
fn write_back(chip: &Chip, view: &View<'_>, ring: &Ring, indices: &[u32]) {
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
                count(&chip.counters.tx_dma_fault, 1);
            }
        }
    }
}

/// Counts the frames that were taken, as they are on the wire.
fn sent(chip: &Chip, batch: &Batch<'_>, taken: usize, tally: &mut Tally) {
    // Most batches are of one kind.
    if let Some(all) = batch
        .alike()
        .filter(|all| all.plain && all.header[0] & 1 == 0)
        && let Some(len) = all.len
    {
        tally.sent(taken as u64, len + FCS, [0; 6]);
        count_alone(&chip.counters.tx_frames, taken as u64);
        count_alone(&chip.counters.tx_bytes, taken as u64 * len as u64);
        return;
    }
    let (mut frames, mut bytes) = (0, 0);
    // Frames alike that follow each other are counted at once.
    let (mut alike, mut alike_len) = (0, 0);
    for frame in batch.iter().take(taken) {
        let len = frame.len();
        frames += 1;
        bytes += len as u64;
        let dst = frame.head().first_chunk::<6>().unwrap_or(&[0; 6]);
        if frame.is_plain() && dst[0] & 1 == 0 {
            if len != alike_len {
                tally.sent(alike, alike_len + FCS, [0; 6]);
                (alike, alike_len) = (0, len);
            }
            alike += 1;
            continue;
        }
        let notes = frame.notes();
        let hdr = usize::from(notes.hdr_len);
        let mss = usize::from(notes.gso_size);
        // A tag beside the frame is in it on the wire.
        let more = FCS + if notes.vlan.is_some() { VLAN_TAG } else { 0 };
        if notes.gso == Gso::None || mss == 0 || len <= hdr {
            tally.sent(1, len + more, *dst);
        } else {
            let mut payload = len - hdr;
            if dst[0] & 1 == 0 {
                tally.sent((payload / mss) as u64, hdr + mss + more, [0; 6]);
                payload %= mss;
            }
            while payload > 0 {
                let size = payload.min(mss);
                tally.sent(1, hdr + size + more, *dst);
                payload -= size;
            }
        }
    }
    tally.sent(alike, alike_len + FCS, [0; 6]);
    // Under the transmit lock.
    count_alone(&chip.counters.tx_frames, frames);
    count_alone(&chip.counters.tx_bytes, bytes);
}
