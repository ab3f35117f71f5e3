//! A NIC in a machine of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use frame::Batch;
use guest_mem::Memory;
use model::{Clock, Env, Moderation, Nanos, Nic, PciState, Progress};
use wire::Offload;

use crate::cable::Wire;
use crate::pin::Pin;
use crate::time::Time;

/// Calls of [`model::Transmit::run`] after which a model is taken to run for ever.
const MOST_TURNS: usize = 10_000;

/// Memory of a guest: `len` bytes from `at` on, all zero.
pub fn memory(at: u64, len: u64) -> Memory {
    let memory = Memory::new();
    memory.map_anon(at, len).expect("map");
    memory
}

/// The value of the counter `name` among those that `visit` shows.
pub fn counter(visit: impl FnOnce(&mut dyn FnMut(&'static str, u64)), name: &str) -> u64 {
    let mut found = None;
    visit(&mut |n, value| {
        if n == name {
            found = Some(value);
        }
    });
    found.unwrap_or_else(|| panic!("no counter {name}"))
}

/// A NIC, and all that it reaches. The work that a register access notes is done at once.
pub struct Machine {
    /// The NIC.
    pub nic: Nic,
    /// What it is handed.
    pub env: Env,
    /// Its interrupts.
    pub pin: Arc<Pin>,
    /// Its clock and its timer.
    pub time: Arc<Time>,
    /// Its cable.
    pub wire: Wire,
}

impl Machine {
    /// Plugs `nic` in. Its guest has `memory`, and the clock shows `now`.
    pub fn of(nic: Nic, memory: Memory, wire: Wire, now: Nanos) -> Self {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::at(now)));
        let env = Env {
            memory,
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        Self {
            nic,
            env,
            pin,
            time,
            wire,
        }
    }

    /// Tells the NIC what PCI knows.
    pub fn set_pci(&mut self, state: PciState) {
        self.nic.control.pci(&self.env, state);
        self.work();
    }

    /// Reads a register of BAR 0.
    pub fn r(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.nic.control.read(&self.env, 0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Writes a register of BAR 0 and does the work that it notes.
    pub fn w(&mut self, offset: u64, value: u32) {
        self.note(offset, value);
        self.work();
    }

    /// Writes a register of BAR 0, and leaves the work.
    pub fn note(&mut self, offset: u64, value: u32) {
        let data = value.to_le_bytes();
        self.nic.control.write(&self.env, 0, offset, &data);
    }

    /// Does the work that was noted.
    pub fn work(&mut self) {
        let work = self.nic.control.take_work();
        if work.tx {
            self.run();
        }
        if work.rx {
            self.nic.receive.poll(&self.env);
        }
    }

    /// Sends until nothing is left or the wire is full.
    pub fn run(&mut self) -> Progress {
        for _ in 0..MOST_TURNS {
            match self.nic.transmit.run(&self.env, &self.wire, 256) {
                Progress::More => {}
                other => return other,
            }
        }
        panic!("transmit never ends");
    }

    /// The level of INTx.
    pub fn line(&self) -> bool {
        self.pin.level()
    }

    /// How often INTx has risen.
    pub fn rises(&self) -> u64 {
        self.pin.rises.load(SeqCst)
    }

    /// Messages by MSI since the last call.
    pub fn messages(&self) -> u64 {
        self.pin.take_messages()
    }

    /// Vectors of messages by MSI-X since the last call.
    pub fn vectors(&self) -> Vec<u16> {
        self.pin.take_vectors()
    }

    /// PME_En and PME_Status.
    pub fn pme(&self) -> (bool, bool) {
        self.pin.pme()
    }

    /// The NIC's deadline.
    pub fn armed(&self) -> Option<Nanos> {
        self.time.deadline()
    }

    /// Moves the clock by so many nanoseconds, and lets the timer fire on the way.
    pub fn sleep(&mut self, nanos: Nanos) {
        let end = self.time.now() + nanos;
        while self.time.step_to(end) {
            self.nic.control.tick(&self.env);
            self.work();
        }
    }

    /// The operator chooses when it interrupts.
    pub fn moderate(&mut self, how: Moderation) {
        self.nic.control.moderate(&self.env, how);
        self.work();
    }

    /// The value of a counter of the NIC.
    pub fn counter(&self, name: &str) -> u64 {
        counter(|each| self.nic.control.counters(each), name)
    }

    /// Writes guest memory.
    pub fn poke(&self, at: u64, bytes: &[u8]) {
        self.env.memory.view().write(at, bytes).expect("poke");
    }

    /// Reads guest memory.
    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.env.memory.view().read(at, &mut out).expect("peek");
        out
    }

    /// Offers frames to the receiver; returns how many were dealt with.
    pub fn offer(&self, frames: &[&[u8]]) -> usize {
        let noted: Vec<_> = frames.iter().map(|f| (*f, Offload::NONE)).collect();
        self.offer_notes(&noted)
    }

    /// As [`Machine::offer`], with what is left to do for each frame.
    pub fn offer_notes(&self, frames: &[(&[u8], Offload)]) -> usize {
        let mut batch = Batch::new();
        for (bytes, notes) in frames {
            batch.push_bytes(bytes);
            batch.end(*notes);
        }
        let mut room = Vec::new();
        let picks = batch.all_picks(&mut room);
        let plain = matches!(frames, [(_, notes)] if *notes == Offload::NONE);
        let told = plain.then(|| self.told(&batch)).flatten();
        let before = told.map(|(_, counter)| (counter.map(|name| self.counter(name)), self.got()));
        let dealt = self.nic.receive.deliver(&self.env, &batch, picks);
        if let (Some(told), Some(before)) = (told, before) {
            self.keeps_word(told, before, dealt);
        }
        dealt
    }

    /// What the receiver says that it would do with the first frame: whether its guest would get it, and the last counter
    /// that it names.
    fn told(&self, batch: &Batch<'_>) -> Option<(bool, Option<&'static str>)> {
        let mut last = None;
        let frame = batch.get(0)?;
        let receive = &self.nic.receive;
        let gets = receive.trace(&self.env, &frame, &mut |_, counter| last = counter.or(last))?;
        Some((gets, last))
    }

    /// Frames received, and frames that were let in and then met something that only the attempt shows.
    fn got(&self) -> [u64; 2] {
        let mut got = [0; 2];
        self.nic.control.counters(&mut |name, value| match name {
            "rx_frames" => got[0] += value,
            name if name.starts_with("broken_") => got[1] += value,
            "rx_dma_fault" | "rx_too_large" | "rx_too_long" | "rx_queue_full" | "rx_invalid"
            | "rx_bad_offload" | "rx_dropped" | "rx_null_buffer" => got[1] += value,
            _ => {}
        });
        got
    }

    /// What was told of a frame is what became of it.
    fn keeps_word(
        &self,
        (gets, counter): (bool, Option<&'static str>),
        (counted, before): (Option<u64>, [u64; 2]),
        dealt: usize,
    ) {
        let [received, failed] = self.got();
        let told = format!("told {gets} and {counter:?}, {dealt} dealt with");
        if gets {
            let done = received > before[0] || failed > before[1] || dealt == 0;
            assert!(done, "{told}, and it did not come");
            return;
        }
        // Descriptors may come in the last moment through a CSB, and it may wait in a packet FIFO.
        if counter == Some("rx_missed") {
            return;
        }
        assert_eq!(received, before[0], "{told}, and it came");
        match counter {
            Some(name) => assert!(Some(self.counter(name)) > counted, "{told}"),
            None => assert_eq!(dealt, 1, "{told}"),
        }
    }

    /// Whether the receiver says that its guest would get a frame; `None`: it does not say.
    pub fn trace(&self, frame: &[u8]) -> Option<bool> {
        let mut batch = Batch::new();
        batch.push_bytes(frame);
        batch.end(Offload::NONE);
        let frame = batch.get(0)?;
        let receive = &self.nic.receive;
        receive.trace(&self.env, &frame, &mut |_, _| {})
    }

    /// Saves the NIC.
    pub fn save(&self) -> Vec<u8> {
        self.nic.control.save(&self.env)
    }
}
