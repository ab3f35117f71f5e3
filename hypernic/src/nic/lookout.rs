//! A NIC's own port, whose lost frames are shown to those who want to see them.

use std::sync::Arc;

use frame::{Batch, Caps, Counted, Cut, Mix, Run, Sink, Wake};
use parking_lot::Mutex;
use vale::Witnesses;

use crate::explain::{self, Class};

/// In front of a port. While nobody looks, it only hands frames on.
pub(crate) struct Lookout {
    nic: String,
    port: Arc<dyn Sink>,
    counters: Arc<dyn Counted>,
    witnesses: Arc<Witnesses>,
    /// Frames are given to the port one by one while somebody looks, so that a counter that rises says which it is of.
    one: Mutex<()>,
}

impl Lookout {
    pub fn new(
        nic: &str,
        port: Arc<dyn Sink>,
        counters: Arc<dyn Counted>,
        witnesses: Arc<Witnesses>,
    ) -> Arc<Self> {
        Arc::new(Self {
            nic: nic.to_owned(),
            port,
            counters,
            witnesses,
            one: Mutex::default(),
        })
    }

    /// What the port has lost so far, by counter.
    fn lost(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        self.counters.counters(&mut |name, value| {
            let row = explain::find("port", name);
            if row.is_some_and(|row| row.class == Class::Drop) {
                all.push((name, value));
            }
        });
        all
    }

    fn watched(
        &self,
        batch: &Batch<'_>,
        picks: &[u16],
        deliver: impl Fn(&[u16]) -> usize,
    ) -> usize {
        let _one = self.one.lock();
        let mut before = self.lost();
        for (done, pick) in picks.iter().enumerate() {
            let pick = std::slice::from_ref(pick);
            if deliver(pick) == 0 {
                return done;
            }
            let now = self.lost();
            let rose = now.iter().zip(&before);
            let rose = rose.filter(|(now, before)| now.1 > before.1);
            for ((counter, _), _) in rose {
                self.witnesses.show(&self.nic, batch, pick, counter);
            }
            before = now;
        }
        picks.len()
    }
}

impl Sink for Lookout {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if self.witnesses.any() {
            return self.watched(batch, picks, |picks| self.port.deliver(batch, picks));
        }
        self.port.deliver(batch, picks)
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if self.witnesses.any() {
            return self.watched(batch, picks, |picks| {
                self.port.deliver_or_leave(batch, picks)
            });
        }
        self.port.deliver_or_leave(batch, picks)
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        (!self.witnesses.any())
            .then(|| self.port.deliver_run(run))
            .flatten()
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        (!self.witnesses.any())
            .then(|| self.port.deliver_mix(mix))
            .flatten()
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        (!self.witnesses.any())
            .then(|| self.port.deliver_cut(cut, from))
            .flatten()
    }

    fn caps(&self) -> Caps {
        self.port.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.port.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.port.give_up(batch, picks);
    }
}
