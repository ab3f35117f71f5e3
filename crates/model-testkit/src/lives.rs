//! A NIC that outlives its process: what is lost with that, and what is not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frame::{Batch, Caps, Counted, Cut, Finisher, Mix, Run, Sink, Wake};
use guest_mem::Memory;
use model::{Clock, Env, KEPT, Kept, Nanos, Nic, PciState, Receive, StateError};

use crate::{Pin, Time};

/// One NIC, its guest's memory, and what outlives its process: that, the words, and the state that was saved last.
pub struct Life {
    /// Of the NIC that lives now.
    pub env: Env,
    /// Its interrupts.
    pub pin: Arc<Pin>,
    /// Its clock.
    pub time: Arc<Time>,
    /// What it keeps.
    pub words: &'static [AtomicU64; KEPT],
    /// Its state as it was saved.
    pub blob: Vec<u8>,
    /// When.
    pub saved: Nanos,
    /// It.
    pub nic: Nic,
    make: fn() -> Nic,
    bar: u8,
}

impl Life {
    /// The first process of a NIC, which may reach memory; registers are in this BAR.
    pub fn new(make: fn() -> Nic, bar: u8, memory: Memory) -> Life {
        let words: &[AtomicU64; KEPT] = Box::leak(Box::new([const { AtomicU64::new(0) }; KEPT]));
        let time = Arc::new(Time::at(60_000_000_000));
        let pin = Arc::new(Pin::default());
        let env = Env {
            memory,
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        let mut life = Life {
            env,
            pin,
            time,
            words,
            blob: Vec::new(),
            saved: 0,
            nic: make(),
            make,
            bar,
        };
        assert!(life.nic.control.keep(life.kept()));
        let on = PciState {
            bus_master: true,
            ..PciState::default()
        };
        life.nic.control.pci(&life.env, on);
        life.answered();
        life
    }

    /// The words as a model has them.
    pub fn kept(&self) -> Kept {
        Kept::new(self.words, Arc::new(()))
    }

    /// A register is written and answered.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.apply(at, bytes);
        self.answered();
    }

    /// It is written, and the process may die before that is answered.
    pub fn apply(&mut self, at: u64, bytes: &[u8]) {
        self.nic.control.write(&self.env, self.bar, at, bytes);
    }

    /// A register is read and answered.
    pub fn read(&mut self, at: u64, bytes: &mut [u8]) {
        self.nic.control.read(&self.env, self.bar, at, bytes);
        self.answered();
    }

    /// What was applied is saved, if it is to be, and answered. Returns whether it was.
    pub fn answered(&mut self) -> bool {
        let changed = self.nic.control.take_changed();
        if changed {
            self.blob = self.nic.control.save(&self.env);
            self.saved = self.time.now();
        }
        self.nic.control.settled();
        changed
    }

    /// Another process goes on.
    ///
    /// # Errors
    /// As [`model::Control::recover`].
    pub fn go_on(&mut self) -> Result<u64, StateError> {
        self.nic = (self.make)();
        let age = self.time.now().saturating_sub(self.saved);
        let words = self.kept();
        self.nic
            .control
            .recover(&self.env, (&self.blob, age), words)
    }

    /// A word that it keeps.
    pub fn kept_word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// Eight bytes of the guest's memory.
    ///
    /// # Panics
    /// They are not in it.
    pub fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.env.memory.view().read(at, &mut bytes).expect("inside");
        u64::from_le_bytes(bytes)
    }

    /// The guest stores them.
    ///
    /// # Panics
    /// They are not in its memory.
    pub fn put(&self, at: u64, value: u64) {
        self.put_bytes(at, &value.to_le_bytes());
    }

    /// The guest stores bytes.
    ///
    /// # Panics
    /// They are not in its memory.
    pub fn put_bytes(&self, at: u64, bytes: &[u8]) {
        let view = self.env.memory.view();
        view.write(at, bytes).expect("inside");
    }
}

/// The switch between two of them.
pub struct To(pub Arc<dyn Receive>, pub Env);

impl Sink for To {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.0.deliver(&self.1, batch, picks)
    }
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.0.deliver_run(&self.1, run)
    }
    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.0.deliver_run(&self.1, &mix.as_run()?)
    }
    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.0.deliver_cut(&self.1, cut, from)
    }
    fn caps(&self) -> Caps {
        self.0.caps()
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.0.want_room(waker);
    }
}

impl Counted for To {
    fn counters(&self, _: &mut dyn FnMut(&'static str, u64)) {}
}

/// Between a switch and a receiver: what that has no room for stays with its sender.
struct Leaving(To);

impl Sink for Leaving {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let To(receive, env) = &self.0;
        receive.deliver_or_leave(env, batch, picks)
    }
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.0.deliver_run(run)
    }
    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.0.deliver_mix(mix)
    }
    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.0.deliver_cut(cut, from)
    }
    fn caps(&self) -> Caps {
        self.0.caps()
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.0.want_room(waker);
    }
}

/// A switch that cuts large packets for its receiver. What it has given of one is known nowhere else.
pub struct Cutting(Box<Leaving>, Mutex<Finisher>);

impl Cutting {
    /// One that has given nothing yet.
    pub fn new(to: To) -> Cutting {
        Cutting(Box::new(Leaving(to)), Mutex::default())
    }
}

impl Sink for Cutting {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut finisher = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        finisher.deliver(&*self.0, batch, picks, |_, _| {})
    }
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.0.deliver_run(run)
    }
    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.0.deliver_mix(mix)
    }
    fn caps(&self) -> Caps {
        Caps {
            csum: true,
            tso4: true,
            tso6: true,
            ..self.0.caps()
        }
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.0.want_room(waker);
    }
}
