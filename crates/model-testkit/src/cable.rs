//! The other end of the cable.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use frame::{Batch, Caps, Mix, Run, Sink, Wake};
use wire::Offload;

/// Takes the frames that it has room for, and keeps them. A frame that leaves more to do than its abilities
/// allow fails the test.
#[derive(Debug)]
pub struct Wire {
    /// What it does for the sender.
    pub caps: Caps,
    /// Frames that it still takes.
    pub room: AtomicUsize,
    /// What it has taken, with its notes.
    pub frames: Mutex<Vec<(Vec<u8>, Offload)>>,
    /// How many of them came in runs.
    pub in_runs: AtomicUsize,
    /// Frames that came in mixes.
    pub in_mixes: AtomicUsize,
    /// What the sender could not send, with its counters, while it is to be told.
    pub unsent: Mutex<Option<Vec<Unsent>>>,
}

/// A counter of what was not sent, and what there is of it.
pub type Unsent = (&'static str, Vec<u8>);

impl Default for Wire {
    fn default() -> Self {
        Self::with(Caps::NONE)
    }
}

impl Wire {
    /// One with these abilities and room for all.
    pub fn with(caps: Caps) -> Self {
        Self {
            caps,
            room: AtomicUsize::new(usize::MAX),
            frames: Mutex::default(),
            in_runs: AtomicUsize::new(0),
            in_mixes: AtomicUsize::new(0),
            unsent: Mutex::default(),
        }
    }

    /// Takes note of `wanted` frames, as far as there is room for them. Returns for how many there is.
    fn admit(&self, wanted: usize) -> usize {
        let room = self.room.load(SeqCst);
        let n = wanted.min(room);
        self.room.store(room - n, SeqCst);
        n
    }

    /// Takes so many frames from now on.
    pub fn set_room(&self, frames: usize) {
        self.room.store(frames, SeqCst);
    }

    /// Takes all frames from now on.
    pub fn unlimit(&self) {
        self.set_room(usize::MAX);
    }

    /// What was not sent is to be told from now on.
    pub fn look_at_unsent(&self) {
        self.unsent.lock().expect("unsent").get_or_insert_default();
    }

    /// What was not sent since the last call.
    pub fn take_unsent(&self) -> Vec<Unsent> {
        let mut all = self.unsent.lock().expect("unsent");
        std::mem::take(all.as_mut().expect("it is looked at"))
    }

    /// The frames that have come since the last call.
    pub fn take(&self) -> Vec<Vec<u8>> {
        self.take_notes()
            .into_iter()
            .map(|(bytes, _)| bytes)
            .collect()
    }

    /// As [`Wire::take`], with what is left to do.
    pub fn take_notes(&self) -> Vec<(Vec<u8>, Offload)> {
        std::mem::take(&mut *self.frames.lock().expect("frames"))
    }
}

impl Sink for Wire {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = self.admit(picks.len());
        let mut frames = self.frames.lock().expect("frames");
        for &pick in &picks[..n] {
            let frame = batch.get(pick.into()).expect("picked");
            assert!(self.caps.accepts(frame.notes()), "{:?}", frame.notes());
            frames.push((frame.to_vec(), *frame.notes()));
        }
        n
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        let n = self.admit(run.count());
        self.in_runs.fetch_add(n, SeqCst);
        let frames = (0..n).filter_map(|i| Some((run.to_vec(i)?, Offload::NONE)));
        self.frames.lock().expect("frames").extend(frames);
        Some(n)
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        let n = self.admit(mix.count());
        self.in_mixes.fetch_add(n, SeqCst);
        let frames = (0..n).filter_map(|i| Some((mix.to_vec(i)?, Offload::NONE)));
        self.frames.lock().expect("frames").extend(frames);
        Some(n)
    }

    fn hears_of_unsent(&self) -> bool {
        self.unsent.lock().expect("unsent").is_some()
    }

    fn unsent(&self, counter: &'static str, bytes: &[u8]) {
        let mut all = self.unsent.lock().expect("unsent");
        let all = all.as_mut().expect("nobody is to be told");
        all.push((counter, bytes.to_vec()));
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// Takes every frame, and keeps and allocates nothing.
#[derive(Debug, Default)]
pub struct Hole(AtomicU64);

impl Hole {
    /// Frames that it has taken.
    pub fn frames(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Sink for Hole {
    fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
        self.0.fetch_add(picks.len() as u64, SeqCst);
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// Counts how often it is woken.
#[derive(Debug, Default)]
pub struct CountedWake(AtomicU64);

impl CountedWake {
    /// How often it has been woken.
    pub fn rung(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Wake for CountedWake {
    fn wake(&self) {
        self.0.fetch_add(1, SeqCst);
    }
}
