//! The other end of the cable, which keeps what it gets.

use std::sync::{Arc, Mutex};

use super::lock::lock;
use frame::{Batch, Caps, Sink, Wake};
use wire::Offload;

/// A frame the model sent, and what it left to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its notes.
    pub notes: Offload,
}

/// A sink that keeps what it gets, up to a limit.
#[derive(Debug)]
pub struct Recorder {
    caps: Caps,
    state: Mutex<RecorderState>,
}

#[derive(Debug)]
struct RecorderState {
    frames: Vec<Recorded>,
    room: usize,
}

impl Recorder {
    /// Records all frames, with these abilities.
    pub fn new(caps: Caps) -> Arc<Self> {
        let state = RecorderState {
            frames: Vec::new(),
            room: usize::MAX,
        };
        Arc::new(Self {
            caps,
            state: Mutex::new(state),
        })
    }

    /// Takes no more than `room` frames from now on; the sender has to keep the rest.
    pub fn set_room(&self, room: usize) {
        lock(&self.state).room = room;
    }

    /// What has come since the last call.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut lock(&self.state).frames)
    }
}

impl Sink for Recorder {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut state = lock(&self.state);
        let mut taken = 0;
        for frame in picks.iter().filter_map(|&i| batch.get(i.into())) {
            if state.room == 0 {
                break;
            }
            state.room -= 1;
            state.frames.push(Recorded {
                bytes: frame.to_vec(),
                notes: *frame.notes(),
            });
            taken += 1;
        }
        taken
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _waker: &Arc<dyn Wake>) {}
}
