//! Holds back what comes in at ports until every NIC that it may be for is there.

use std::sync::Arc;
use std::time::Duration;

use frame::Sink;
use parking_lot::{Condvar, Mutex};
use port::answer::Prompt;
use port::{Inlet, InletStatus, Interest, Kind};

/// Shut at first.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// For good.
    pub fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let mut open = self.open.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
    }

    /// Puts an inlet behind the gate: its thread waits there.
    pub fn hold(self: &Arc<Self>, inlet: Box<dyn Inlet>) -> Box<dyn Inlet> {
        Box::new(Held {
            inlet,
            gate: Some(Arc::clone(self)),
        })
    }
}

struct Held {
    inlet: Box<dyn Inlet>,
    /// Until it was found open.
    gate: Option<Arc<Gate>>,
}

impl Inlet for Held {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        self.inlet.interests(add);
    }

    fn peer(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.inlet.peer()
    }

    fn timeout(&self) -> Option<Duration> {
        self.inlet.timeout()
    }

    fn link_up(&self) -> bool {
        self.inlet.link_up()
    }

    fn note(&mut self) -> Option<String> {
        self.inlet.note()
    }

    fn prompt(&self) -> Option<Arc<dyn Prompt>> {
        self.inlet.prompt()
    }

    fn passed(&self) -> u64 {
        self.inlet.passed()
    }

    fn split(&mut self) -> Vec<Box<dyn Inlet>> {
        let others = self.inlet.split().into_iter();
        match &self.gate {
            Some(gate) => others.map(|other| gate.hold(other)).collect(),
            None => others.collect(),
        }
    }

    fn kind(&self) -> Kind {
        self.inlet.kind()
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        if let Some(gate) = self.gate.take() {
            gate.wait();
        }
        self.inlet.run(to, budget)
    }
}
