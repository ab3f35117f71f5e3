//! A port, of a NIC or of a switch, whose lost frames are shown to those who want to see them.

use std::sync::Arc;

use frame::{Batch, Caps, Counted, Cut, Hot, Mix, Run, Sink, Wake};
use parking_lot::Mutex;
use vale::Witnesses;

use crate::explain::{self, Class};

/// In front of a port. While nobody looks, it only hands frames on.
pub(crate) struct Lookout {
    /// Who loses them: the NIC that has the port, or the port's name on its switch.
    owner: String,
    port: Arc<dyn Sink>,
    counters: Arc<dyn Counted>,
    witnesses: Arc<Witnesses>,
    /// Frames are given to the port one by one while somebody looks, so that a counter that rises says which it is of.
    one: Mutex<()>,
}

impl Lookout {
    pub fn new(
        owner: &str,
        port: Arc<dyn Sink>,
        counters: Arc<dyn Counted>,
        witnesses: Arc<Witnesses>,
    ) -> Arc<Self> {
        Arc::new(Self {
            owner: owner.to_owned(),
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
                self.witnesses.show(&self.owner, batch, pick, counter);
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

    fn hot(&self, hot: &mut Hot) {
        self.port.hot(hot);
    }

    fn prefetch(&self) {
        self.port.prefetch();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use vale::Witness;
    use wire::Offload;

    use super::*;

    /// Takes two frames and loses each with an odd first byte.
    #[derive(Default)]
    struct Stalls {
        lost: AtomicU64,
        taken: AtomicU64,
        calls: AtomicU64,
    }

    impl Sink for Stalls {
        fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let room = 2 - self.taken.load(Ordering::Relaxed) as usize;
            let taken = picks.len().min(room);
            for frame in picks[..taken].iter().filter_map(|p| batch.get((*p).into())) {
                self.taken.fetch_add(1, Ordering::Relaxed);
                let odd = u64::from(frame.head()[0] & 1);
                self.lost.fetch_add(odd, Ordering::Relaxed);
            }
            taken
        }

        fn caps(&self) -> Caps {
            Caps::NONE
        }

        fn want_room(&self, _: &Arc<dyn Wake>) {}
    }

    impl Counted for Stalls {
        fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
            visit("frames_out", self.taken.load(Ordering::Relaxed));
            visit("stream_stalled", self.lost.load(Ordering::Relaxed));
        }
    }

    #[derive(Default)]
    struct Notes(Mutex<Vec<(String, u8, &'static str)>>);

    impl Witness for Notes {
        fn lost(&self, nic: &str, batch: &Batch<'_>, picks: &[u16], counter: &'static str) {
            for frame in picks.iter().filter_map(|pick| batch.get((*pick).into())) {
                let note = (nic.to_owned(), frame.head()[0], counter);
                self.0.lock().push(note);
            }
        }
    }

    #[test]
    fn what_a_port_loses_is_shown_with_its_counter_and_nothing_without_a_witness() {
        let mut batch = Batch::new();
        for first in [2, 3, 5] {
            batch.push_bytes(&[first; 60]);
            batch.end(Offload::NONE);
        }
        let notes = Arc::new(Notes::default());
        let witness: Arc<dyn Witness> = notes.clone();
        for looked_at in [false, true] {
            let (port, witnesses) = (Arc::<Stalls>::default(), Arc::<Witnesses>::default());
            if looked_at {
                witnesses.add(Arc::clone(&witness));
            }
            let (sink, counted): (Arc<dyn Sink>, Arc<dyn Counted>) = (port.clone(), port.clone());
            let lookout = Lookout::new("n", sink, counted, Arc::clone(&witnesses));
            // What finds no room stays with its sender, and is not lost.
            assert_eq!(lookout.deliver(&batch, &[0, 1, 2]), 2);
            let calls = port.calls.load(Ordering::Relaxed);
            assert_eq!(calls, if looked_at { 3 } else { 1 });
            assert_eq!(port.lost.load(Ordering::Relaxed), 1);
            witnesses.remove(&witness);
            assert!(!witnesses.any());
        }
        let shown = std::mem::take(&mut *notes.0.lock());
        assert_eq!(shown, [("n".to_owned(), 3, "stream_stalled")]);
    }
}
