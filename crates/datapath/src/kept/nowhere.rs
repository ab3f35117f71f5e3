//! Where frames go that were sent before, perhaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frame::{Batch, Caps, Counted, Mix, Run, Sink, Wake};

/// Takes all frames, and counts them: of large ones their segments.
#[derive(Debug, Default)]
pub struct Nowhere(AtomicU64);

impl Nowhere {
    /// So many more.
    pub fn take(&self, frames: usize) -> usize {
        self.0.fetch_add(frames as u64, Ordering::Relaxed);
        frames
    }

    /// All of them.
    pub fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Sink for Nowhere {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let frames = picks.iter().map(|pick| {
            let frame = batch.get(usize::from(*pick));
            frame.map_or(1, |frame| frame.notes().segments(frame.len()))
        });
        self.take(frames.sum());
        picks.len()
    }
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        Some(self.take(run.count()))
    }
    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        Some(self.take(mix.count()))
    }
    fn caps(&self) -> Caps {
        Caps::ALL
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

impl Counted for Nowhere {
    fn counters(&self, _: &mut dyn FnMut(&'static str, u64)) {}
}
