//! What a model cannot send, shown to those who want to see what a NIC loses.

use std::sync::Arc;

use frame::{Batch, Caps, Cut, Mix, Run, Sink, Wake};
use guest_mem::ReadSlice;
use vale::Witnesses;
use wire::Offload;

/// In front of where frames go, for turns in which somebody looks. It stays where it is: a model that goes on with a frame knows
/// its sink again by its place.
pub(super) struct Unsent {
    /// Whose they are.
    pub name: String,
    pub to: Arc<dyn Sink>,
    pub witnesses: Arc<Witnesses>,
}

impl Sink for Unsent {
    fn hears_of_unsent(&self) -> bool {
        true
    }

    fn unsent(&self, counter: &'static str, bytes: &[u8]) {
        let mut batch = Batch::default();
        batch.push_slice(ReadSlice::from_bytes(bytes));
        batch.end(Offload::NONE);
        self.witnesses.show(&self.name, &batch, &[0], counter);
    }

    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.to.deliver(batch, picks)
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.to.deliver_or_leave(batch, picks)
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.to.deliver_run(run)
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.to.deliver_mix(mix)
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.to.deliver_cut(cut, from)
    }

    fn caps(&self) -> Caps {
        self.to.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.to.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.to.give_up(batch, picks);
    }
}
