//! What stands between the parts of a NIC while steps are stamped; without stamps, nothing does.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use frame::{Batch, Caps, Cut, Mix, Run, Sink, Wake};
use model::{Interrupts, Pme, Through};
use port::answer::Prompt;
use port::{Inlet, InletStatus, Interest, Kind};

use super::ring::{Step, is_on, mark};

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frames {
    /// To the guest.
    Arrive,
    /// From the guest.
    Leave,
}

/// A sink whose calls are stamped before and after.
struct Stamped(Arc<dyn Sink>, Frames);

/// The way to a guest, stamped if stamps are made.
pub(crate) fn arrives(to: Arc<dyn Sink>) -> Arc<dyn Sink> {
    stamped(to, Frames::Arrive)
}

/// The way from a guest.
pub(crate) fn leaves(to: Arc<dyn Sink>) -> Arc<dyn Sink> {
    stamped(to, Frames::Leave)
}

fn stamped(to: Arc<dyn Sink>, frames: Frames) -> Arc<dyn Sink> {
    match is_on() {
        true => Arc::new(Stamped(to, frames)),
        false => to,
    }
}

impl Stamped {
    fn around<R>(&self, frames: usize, work: impl FnOnce(&dyn Sink) -> R) -> R {
        let (before, after) = match self.1 {
            Frames::Arrive => (Step::Arrives, Step::Arrived),
            Frames::Leave => (Step::Leaves, Step::Left),
        };
        mark(before, frames as u64);
        let done = work(&*self.0);
        mark(after, frames as u64);
        done
    }
}

impl Sink for Stamped {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.around(picks.len(), |to| to.deliver(batch, picks))
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.around(picks.len(), |to| to.deliver_or_leave(batch, picks))
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.around(run.count(), |to| to.deliver_run(run))
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.around(mix.count(), |to| to.deliver_mix(mix))
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.around(1, |to| to.deliver_cut(cut, from))
    }

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.0.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.0.give_up(batch, picks);
    }
}

/// Pins and messages, stamped if stamps are made.
pub(crate) fn interrupts(wires: impl Interrupts + 'static) -> Arc<dyn Interrupts> {
    match is_on() {
        true => Arc::new(Told(wires)),
        false => Arc::new(wires),
    }
}

struct Told<T>(T);

impl<T: Interrupts> Told<T> {
    fn around(&self, vector: u16, work: impl FnOnce(&T)) {
        mark(Step::Interrupt, vector.into());
        work(&self.0);
        mark(Step::Signalled, vector.into());
    }
}

impl<T: Interrupts> Interrupts for Told<T> {
    fn set_line(&self, level: bool) {
        match level {
            true => self.around(0, |wires| wires.set_line(true)),
            false => self.0.set_line(false),
        }
    }

    fn set_pme(&self, pme: Pme) {
        self.0.set_pme(pme);
    }

    fn msi(&self, vector: u16) {
        self.around(vector, |wires| wires.msi(vector));
    }

    fn msix(&self, vector: u16) {
        self.around(vector, |wires| wires.msix(vector));
    }

    fn delayed(&self, by: Through) {
        self.0.delayed(by);
    }
}

/// The way in of a port, whose runs are stamped.
pub(crate) struct Seen(Box<dyn Inlet>);

impl Seen {
    /// Stamped if stamps are made.
    pub(crate) fn wrap(inlet: Box<dyn Inlet>) -> Box<dyn Inlet> {
        match is_on() {
            true => Box::new(Self(inlet)),
            false => inlet,
        }
    }
}

impl Inlet for Seen {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        self.0.interests(add);
    }

    fn peer(&self) -> Option<BorrowedFd<'_>> {
        self.0.peer()
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }

    fn link_up(&self) -> bool {
        self.0.link_up()
    }

    fn note(&mut self) -> Option<String> {
        self.0.note()
    }

    fn prompt(&self) -> Option<Arc<dyn Prompt>> {
        self.0.prompt()
    }

    fn passed(&self) -> u64 {
        self.0.passed()
    }

    fn split(&mut self) -> Vec<Box<dyn Inlet>> {
        self.0.split().into_iter().map(Self::wrap).collect()
    }

    fn kind(&self) -> Kind {
        self.0.kind()
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        mark(Step::Port, 0);
        self.0.run(to, budget)
    }
}
