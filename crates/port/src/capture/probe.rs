//! The place in front of a port where captures are attached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frame::{Batch, Caps, Counted, Cut, Finisher, Hot, Mix, Run, Sink, Wake};
use parking_lot::{Mutex, RwLock};

use super::file::Capture;
use super::pcapng::Direction;
use crate::inlet::{Inlet, InletStatus, Interest, Kind, Port};
use crate::tally::Tally;

/// Watches both directions of one port.
///
/// Frames are recorded once they have been dealt with, large ones whole. A guest that rewrites a
/// buffer it has just sent may make the record differ from what was sent.
pub struct Probe {
    name: String,
    active: AtomicBool,
    /// The captures, and which of their interfaces this is.
    targets: RwLock<Vec<(Arc<Capture>, u32)>>,
    tally: Tally<1>,
}

impl Probe {
    /// A probe that watches nothing yet.
    pub fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            active: AtomicBool::new(false),
            targets: RwLock::default(),
            tally: Tally::new(["probe_sink_cannot_take"]),
        })
    }

    /// Watches one sink, for a NIC on a switch, which has two sinks rather than a port. The caller
    /// uses the returned sink in its place.
    pub fn watch(self: &Arc<Self>, sink: Arc<dyn Sink>, direction: Direction) -> Arc<dyn Sink> {
        Arc::new(ProbedSink {
            inner: sink,
            probe: Arc::clone(self),
            direction,
        })
    }

    /// Puts a probe in front of `port`. The port that comes back is used in its place.
    pub fn wrap(port: Port) -> (Port, Arc<Self>) {
        let probe = Self::new(&port.name);
        let wrapped = Port {
            name: port.name,
            sink: probe.watch(port.sink, Direction::Outbound),
            inlet: port.inlet.map(|inner| ProbedInlet::wrap(inner, &probe)),
            counters: Arc::new(Both(port.counters, Arc::clone(&probe))),
        };
        (wrapped, probe)
    }

    /// Records into `capture`, too, from now on, under the port's name.
    pub fn attach(&self, capture: &Arc<Capture>) {
        self.attach_as(capture, &self.name);
    }

    /// The same under another name, where several ports are called alike.
    pub fn attach_as(&self, capture: &Arc<Capture>, name: &str) {
        let id = capture.interface(name);
        let mut targets = self.targets.write();
        targets.push((Arc::clone(capture), id));
        self.active.store(true, Ordering::Release);
    }

    /// Records no more. Files end when their last probe and owner let go of them.
    pub fn detach(&self) {
        self.active.store(false, Ordering::Release);
        // A capture may end here and wait for its file: not under the lock.
        let last = std::mem::take(&mut *self.targets.write());
        drop(last);
    }

    /// Records no more into this one.
    pub fn detach_from(&self, capture: &Arc<Capture>) {
        let mut targets = self.targets.write();
        let is_it = |(one, _): &(Arc<Capture>, u32)| Arc::ptr_eq(one, capture);
        let at = targets.iter().position(is_it);
        let last = at.map(|at| targets.remove(at));
        if targets.is_empty() {
            self.active.store(false, Ordering::Release);
        }
        drop(targets);
        drop(last);
    }

    fn record(&self, direction: Direction, batch: &Batch<'_>, picks: &[u16]) {
        if picks.is_empty() || !self.active.load(Ordering::Acquire) {
            return;
        }
        for (capture, id) in &*self.targets.read() {
            capture.record(*id, direction, batch, picks);
        }
    }
}

/// The port's counters, then the probe's.
struct Both(Arc<dyn Counted>, Arc<Probe>);

impl Counted for Both {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.0.counters(visit);
        self.1.tally.counters(visit);
    }
}

struct ProbedSink {
    inner: Arc<dyn Sink>,
    probe: Arc<Probe>,
    direction: Direction,
}

impl Sink for ProbedSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = self.inner.deliver(batch, picks).min(picks.len());
        self.probe.record(self.direction, batch, &picks[..n]);
        n
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = self.inner.deliver_or_leave(batch, picks);
        let n = n.min(picks.len());
        self.probe.record(self.direction, batch, &picks[..n]);
        n
    }

    /// A capture takes batches.
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        let records = self.probe.active.load(Ordering::Acquire);
        if records {
            return None;
        }
        self.inner.deliver_run(run)
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        let records = self.probe.active.load(Ordering::Acquire);
        if records {
            return None;
        }
        self.inner.deliver_mix(mix)
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        let records = self.probe.active.load(Ordering::Acquire);
        if records {
            return None;
        }
        self.inner.deliver_cut(cut, from)
    }

    fn hot(&self, hot: &mut Hot) {
        self.inner.hot(hot);
    }

    fn prefetch(&self) {
        self.inner.prefetch();
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.inner.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.inner.give_up(batch, picks);
    }
}

struct ProbedInlet {
    inner: Box<dyn Inlet>,
    probe: Arc<Probe>,
    finisher: Mutex<Finisher>,
}

impl ProbedInlet {
    fn wrap(inner: Box<dyn Inlet>, probe: &Arc<Probe>) -> Box<dyn Inlet> {
        Box::new(Self {
            inner,
            probe: Arc::clone(probe),
            finisher: Mutex::default(),
        })
    }
}

impl Inlet for ProbedInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        self.inner.interests(add);
    }

    fn timeout(&self) -> Option<Duration> {
        self.inner.timeout()
    }

    fn link_up(&self) -> bool {
        self.inner.link_up()
    }

    fn split(&mut self) -> Vec<Box<dyn Inlet>> {
        let others = self.inner.split().into_iter();
        others.map(|inner| Self::wrap(inner, &self.probe)).collect()
    }

    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        let between = Between {
            to,
            probe: &self.probe,
            finisher: &self.finisher,
        };
        self.inner.run(&between, budget)
    }
}

/// Takes everything as it comes, so that it is recorded as it came, and finishes it for `to`.
struct Between<'a> {
    to: &'a dyn Sink,
    probe: &'a Probe,
    finisher: &'a Mutex<Finisher>,
}

impl Sink for Between<'_> {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut refused = 0;
        let mut finisher = self.finisher.lock();
        let n = finisher.deliver(self.to, batch, picks, |_, _| refused += 1);
        drop(finisher);
        let n = n.min(picks.len());
        self.probe.tally.add(0, refused);
        self.probe.record(Direction::Inbound, batch, &picks[..n]);
        n
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.to.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.to.give_up(batch, picks);
    }
}
