//! Large frames offered as a switch offers them to a receiver that takes none whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use frame::{Batch, Caps, Cut, Finisher, Sink, Wake};
use model::{Env, Receive};

/// A receiver at the end of a switch, which finishes frames for it.
#[derive(Default)]
pub struct Finished {
    finisher: Finisher,
    /// Large frames are offered as cuts first.
    cuts: bool,
    /// Segments that were taken so.
    in_cuts: u64,
}

/// The receiver, for one call.
struct To<'t> {
    receive: &'t Arc<dyn Receive>,
    env: &'t Env,
    cuts: bool,
    in_cuts: AtomicU64,
}

impl Sink for To<'_> {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.receive.deliver(self.env, batch, picks)
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        if !self.cuts {
            return None;
        }
        let taken = self.receive.deliver_cut(self.env, cut, from)?;
        assert!(taken <= cut.count() - from, "more than there are");
        self.in_cuts.fetch_add(taken as u64, Relaxed);
        Some(taken)
    }

    fn caps(&self) -> Caps {
        self.receive.caps()
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

impl Finished {
    /// One that offers cuts, or only batches of segments.
    pub fn new(cuts: bool) -> Finished {
        Finished {
            cuts,
            ..Finished::default()
        }
    }

    /// Segments that the receiver took in cuts.
    pub fn in_cuts(&self) -> u64 {
        self.in_cuts
    }

    /// Offers these frames. Returns how many were dealt with, and how many frames and segments the receiver took.
    pub fn deliver(
        &mut self,
        receive: &Arc<dyn Receive>,
        env: &Env,
        batch: &Batch<'_>,
        picks: &[u16],
    ) -> (usize, usize) {
        let to = To {
            receive,
            env,
            cuts: self.cuts,
            in_cuts: AtomicU64::new(0),
        };
        let dealt = self.finisher.deliver(&to, batch, picks, |_, _| {});
        self.in_cuts += to.in_cuts.into_inner();
        (dealt, self.finisher.moved())
    }
}
