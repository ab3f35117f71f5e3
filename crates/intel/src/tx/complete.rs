//! What follows from frames that are sent: write-back and statistics (8254x manual §3.3.1, 82576 datasheet
//! §7.2.1.4).

use std::sync::atomic::AtomicU64;

use datapath::FCS;
use datapath::counters::count;
use frame::Batch;
use guest_mem::View;
use wire::{Gso, VLAN_TAG};

use crate::ring::{DD, Ring, SIZE};
use crate::stats::Tally;

/// Where the status byte is in a descriptor, of any kind.
pub const STATUS_AT: u64 = 12;

/// What the frames that were taken complete.
#[derive(Clone, Copy, Debug)]
pub struct Completed<'s> {
    /// The next descriptor of the device: the new head.
    pub next: u32,
    /// Descriptors the head moves over, and those left before the tail.
    pub moved: u32,
    /// Those left before the tail.
    pub left: u32,
    /// Descriptors to be reported, in order.
    pub written: &'s [u32],
    /// There was one to be reported; one whose interrupt may be delayed.
    pub now: bool,
    /// One whose interrupt may be delayed.
    pub delayed: bool,
    /// The time at which one of the packets left is wanted.
    pub stamp: bool,
}

/// Sets "done" in these descriptors, in order. Those out of reach are counted in `faults`.
#[inline]
pub fn write_back(view: &View<'_>, ring: &Ring, indices: &[u32], faults: &AtomicU64) {
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
                count(faults, 1);
            }
        }
    }
}

/// Frames that were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames of the batch.
    pub frames: u64,
    /// Frames on the wire: each segment is one.
    pub segments: u64,
    /// Bytes the guest gave.
    pub bytes: u64,
}

/// Counts the first `taken` frames of a batch as they are on the wire.
#[inline]
pub fn sent(batch: &Batch<'_>, taken: usize, tally: &mut Tally) -> Sent {
    // Most batches are of one kind.
    let alike = batch.alike().filter(|all| all.plain);
    let of_one = alike.and_then(|all| Some((all.len?, *all.header.first_chunk::<6>()?)));
    if let Some((len, dst)) = of_one {
        tally.sent(taken as u64, len + FCS, dst);
        return Sent {
            frames: taken as u64,
            segments: taken as u64,
            bytes: taken as u64 * len as u64,
        };
    }
    let mut sent = Sent::default();
    // Frames alike that follow each other are counted at once.
    let (mut alike, mut alike_len) = (0, 0);
    for frame in batch.iter().take(taken) {
        let len = frame.len();
        sent.frames += 1;
        sent.bytes += len as u64;
        let dst = frame.head().first_chunk::<6>().unwrap_or(&[0; 6]);
        if frame.is_plain() && dst[0] & 1 == 0 {
            if len != alike_len {
                tally.sent(alike, alike_len + FCS, [0; 6]);
                (alike, alike_len) = (0, len);
            }
            alike += 1;
            sent.segments += 1;
            continue;
        }
        let notes = frame.notes();
        let (hdr, mss) = (usize::from(notes.hdr_len), usize::from(notes.gso_size));
        // A tag beside the frame is in it on the wire.
        let more = FCS + if notes.vlan.is_some() { VLAN_TAG } else { 0 };
        if notes.gso == Gso::None || mss == 0 || len <= hdr {
            tally.sent(1, len + more, *dst);
            sent.segments += 1;
            continue;
        }
        let (full, rest) = ((len - hdr) / mss, (len - hdr) % mss);
        tally.sent(full as u64, hdr + mss + more, *dst);
        if rest > 0 {
            tally.sent(1, hdr + rest + more, *dst);
        }
        sent.segments += full as u64 + u64::from(rest > 0);
    }
    tally.sent(alike, alike_len + FCS, [0; 6]);
    sent
}
