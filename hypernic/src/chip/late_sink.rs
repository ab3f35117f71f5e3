//! A sink that is known only after those that use it.

use std::sync::Arc;

use frame::{Batch, Caps, Cut, Mix, Run, Sink, Wake};
use parking_lot::RwLock;

/// Passes on to a sink that is named later, and may be taken away; meanwhile frames end here.
#[derive(Default)]
pub(super) struct LateSink(RwLock<Option<Arc<dyn Sink>>>);

impl LateSink {
    /// Names it.
    pub(super) fn set(&self, sink: Option<Arc<dyn Sink>>) {
        // What was there ends without the lock: it may hold us.
        let old = std::mem::replace(&mut *self.0.write(), sink);
        drop(old);
    }

    fn get(&self) -> Option<Arc<dyn Sink>> {
        self.0.read().clone()
    }
}

impl Sink for LateSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.get()
            .map_or(picks.len(), |sink| sink.deliver(batch, picks))
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.get()
            .map_or(picks.len(), |sink| sink.deliver_or_leave(batch, picks))
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.get()?.deliver_run(run)
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.get()?.deliver_mix(mix)
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.get()?.deliver_cut(cut, from)
    }

    fn caps(&self) -> Caps {
        self.get().map_or(Caps::ALL, |sink| sink.caps())
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        match self.get() {
            Some(sink) => sink.want_room(waker),
            None => waker.wake(),
        }
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        if let Some(sink) = self.get() {
            sink.give_up(batch, picks);
        }
    }
}
