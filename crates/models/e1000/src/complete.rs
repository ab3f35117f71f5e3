//! What follows from frames that are sent: write-back, head, statistics and one interrupt decision
//! (manual §3.3.1, §3.4.3).

use csb::at;
use datapath::FCS;
use frame::Batch;
use guest_mem::View;
use intel::{DD, Ring, SIZE};
use model::Env;
use wire::{Gso, VLAN_TAG};

use crate::bits::cause;
use crate::csb::Page;
use crate::irq::Event;
use crate::regs as r;
use crate::shared::{Shared, count, count_alone};
use crate::stats::{Stat, Tally};
use crate::tx::TxState;

/// Where the status byte is in a descriptor.
const STATUS_AT: u64 = 12;

/// A place up to which the ring is done once `frames` of the batch are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) frames: u32,
    /// That many frames before it are of one descriptor each, and places like it are behind them too.
    pub(crate) run: u32,
    /// Each descriptor of the run is written back; else none.
    pub(crate) reported: bool,
    /// The next descriptor.
    pub(crate) next: u32,
    /// What the walk carried there, in the list of contexts.
    pub(crate) memory: u32,
    /// Descriptors to write back up to here, in the list of them.
    pub(crate) written: u32,
    /// An RS descriptor without IDE was passed; one with IDE.
    pub(crate) now: bool,
    pub(crate) delayed: bool,
    /// A packet with segmentation ends here.
    pub(crate) tso: Option<Tso>,
}

impl Mark {
    /// The place inside of its run where `taken` frames of the batch are done; fewer than its own.
    fn cut(&self, taken: usize, ring: &Ring) -> Option<Mark> {
        let back = self.frames.checked_sub(taken as u32)?;
        (back < self.run).then(|| Mark {
            frames: taken as u32,
            run: self.run - back,
            next: ring.before(self.next, back),
            written: self.written - if self.reported { back } else { 0 },
            ..*self
        })
    }
}

/// How a packet with segmentation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tso {
    Sent,
    /// Its length was not the one its context announced (manual §3.3.7.1), or it could not be cut.
    Failed,
}

/// Completes what the first `taken` frames of the batch stand for: write-back, head, statistics and
/// one interrupt decision. Returns how many descriptors that were.
pub(crate) fn finish(
    shared: &Shared,
    env: &Env,
    (view, page): (&View<'_>, Option<Page<'_>>),
    state: &mut TxState,
    ring: &Ring,
    batch: &Batch<'_>,
    taken: usize,
) -> u32 {
    let mut tally = Tally::new();
    sent(shared, batch, taken, &mut tally);
    let within = |m: &Mark| m.frames as usize <= taken;
    let done = match state.marks.last() {
        Some(last) if within(last) => state.marks.len(),
        _ => state.marks.partition_point(within),
    };
    let before = || done.checked_sub(1).map(|i| state.marks[i]);
    let inside = state.marks.get(done).and_then(|m| m.cut(taken, ring));
    let Some(last) = inside.or_else(before) else {
        shared.stats.add(&tally);
        state.taken += taken;
        return 0;
    };
    for tso in state.marks[..done].iter().filter_map(|m| m.tso) {
        count(&shared.counters.tx_tso_frames, 1);
        tally.add(Stat::Tsctc, 1);
        tally.add(Stat::Tsctfc, (tso == Tso::Failed).into());
    }
    shared.stats.add(&tally);
    // Frames of the next packet that went out before the sink was full.
    state.taken = taken - last.frames as usize;
    if let Some(memory) = state.contexts.get(last.memory as usize) {
        state.memory = *memory;
    }
    write_back(shared, view, ring, &state.written[..last.written as usize]);
    let before = ring.available();
    let after = Ring {
        head: last.next,
        ..*ring
    };
    let mut left = after.available();
    // A guest may move the tail while we work; a ring left empty is one only if it still is.
    if shared.file.get(r::TDT) != ring.tail {
        left = left.max(1);
    }
    shared.file.set(r::TDH, last.next);
    let mut event = Event {
        now: if last.now { cause::TXDW } else { 0 },
        delayed: false,
        packet: shared.file.get(r::TIDV),
        absolute: shared.file.get(r::TADV),
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
    let low = (shared.file.get(r::TXDCTL) >> 25) * 8;
    if before > low && left <= low {
        event.now |= cause::TXD_LOW;
    }
    if event.now != 0 || event.delayed {
        let causes = shared.irq.lock().sent(env, event);
        if let Some(page) = page {
            page.store(at::HOST_ISR, causes);
        }
    }
    before - after.available().min(before)
}

/// Sets "done" in these descriptors, in order.
fn write_back(shared: &Shared, view: &View<'_>, ring: &Ring, indices: &[u32]) {
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
                count(&shared.counters.tx_dma_fault, 1);
            }
        }
    }
}

/// Counts the frames that were taken, as they are on the wire.
fn sent(shared: &Shared, batch: &Batch<'_>, taken: usize, tally: &mut Tally) {
    // Most batches are of one kind.
    if let Some(all) = batch
        .alike()
        .filter(|all| all.plain && all.header[0] & 1 == 0)
        && let Some(len) = all.len
    {
        tally.sent_alike(taken as u64, (len + FCS) as u64);
        count_alone(&shared.counters.tx_frames, taken as u64);
        count_alone(&shared.counters.tx_bytes, taken as u64 * len as u64);
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
                tally.sent_alike(alike, (alike_len + FCS) as u64);
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
            tally.sent((len + more) as u64, dst);
        } else {
            let mut payload = len - hdr;
            if dst[0] & 1 == 0 {
                tally.sent_alike((payload / mss) as u64, (hdr + mss + more) as u64);
                payload %= mss;
            }
            while payload > 0 {
                let size = payload.min(mss);
                tally.sent((hdr + size + more) as u64, dst);
                payload -= size;
            }
        }
    }
    tally.sent_alike(alike, (alike_len + FCS) as u64);
    // Under the transmit lock.
    count_alone(&shared.counters.tx_frames, frames);
    count_alone(&shared.counters.tx_bytes, bytes);
}
