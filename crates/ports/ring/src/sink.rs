//! The way out, for any thread.

use std::sync::Arc;

use frame::{Batch, Caps, Sink, Wake};

use crate::count;
use crate::crossing::Broken;
use crate::shared::Shared;

pub struct RingSink {
    shared: Arc<Shared>,
}

impl RingSink {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Sink for RingSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let tally = &self.shared.tally;
        let mut slot = self.shared.out.lock();
        let Some(out) = slot.as_mut().filter(|out| !out.crossing().is_broken()) else {
            tally.add(count::NOT_CONNECTED, picks.len() as u64);
            return picks.len();
        };
        match out.give(batch, picks) {
            Ok(given) => {
                drop(slot);
                given.count(tally);
                tally.add(count::NO_ROOM, (given.done < picks.len()).into());
                given.done
            }
            Err(Broken) => {
                self.shared.fail(out.crossing());
                tally.add(count::NOT_CONNECTED, picks.len() as u64);
                picks.len()
            }
        }
    }

    fn caps(&self) -> Caps {
        // Notes and tags cross beside the frame.
        Caps::ALL
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.shared.waiters.add(waker);
        self.shared.ask_for_room();
    }
}
