//! The other end of a port: takes as many frames as it has room for, and keeps them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use frame::{Batch, Caps, Sink, Wake};
use wire::Offload;

#[derive(Default)]
pub(crate) struct Taker {
    pub caps: Caps,
    pub room: AtomicUsize,
    frames: Mutex<Vec<(Vec<u8>, Offload)>>,
}

impl Taker {
    pub fn unlimit(&self) {
        self.room.store(usize::MAX, Ordering::Relaxed);
    }

    pub fn set_room(&self, frames: usize) {
        self.room.store(frames, Ordering::Relaxed);
    }

    /// What has come since the last call.
    pub fn take(&self) -> Vec<(Vec<u8>, Offload)> {
        std::mem::take(&mut *self.frames.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

impl Sink for Taker {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let room = self.room.load(Ordering::Relaxed);
        let n = room.min(picks.len());
        self.room.store(room - n, Ordering::Relaxed);
        let mut frames = self.frames.lock().unwrap_or_else(|e| e.into_inner());
        for &pick in &picks[..n] {
            let frame = batch.get(pick.into()).expect("a pick is a frame");
            let notes = *frame.notes();
            assert!(self.caps.accepts(&notes), "{notes:?} for {:?}", self.caps);
            notes.check(frame.len()).expect("notes that make sense");
            frames.push((frame.to_vec(), notes));
        }
        n
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}
