//! A function and what the tests of the data path need beside it: rings and descriptors.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Batch, Run};
use model::{Env, Receive, Transmit};
use model_testkit::{Silent, Time, counter, in_groups, memory};
use parking_lot::Mutex;
use regs::Id;

use crate::core::function::{Function, FunctionKind};
use crate::regs as r;
use crate::regs::bits::{ctrl, rctl, tctl, xdctl};
use crate::regs::settings::Settings;
use crate::rx::Receiver;
use crate::tx::Sender;

pub(crate) use model_testkit::{Wire, packet};

/// Where the rings of a queue are.
pub(crate) const RX_RINGS: u64 = 0x1_0000;
pub(crate) const TX_RINGS: u64 = 0x8_0000;
/// Bytes between rings.
pub(crate) const APART: u64 = 0x2000;
/// Bytes of the guest's memory.
pub(crate) const MEMORY: u64 = 0x200_0000;

/// A guest with one function.
pub(crate) struct Guest {
    pub function: Arc<Function>,
    pub env: Env,
    pub sender: Sender<Receiver>,
    pub receiver: Arc<Receiver>,
}

impl Guest {
    /// A PF that receives and sends everything, no queue running.
    pub(crate) fn pf() -> Guest {
        Self::pf_with(true)
    }

    /// The same with or without its fast paths.
    pub(crate) fn pf_with(fast_path: bool) -> Guest {
        let guest = Self::with(FunctionKind::Pf, 16, fast_path);
        guest
            .function
            .file
            .set(r::RCTL, rctl::EN | rctl::UPE | rctl::MPE | rctl::SECRC);
        guest.function.file.set(r::TCTL, tctl::EN);
        guest.function.file.set(r::CTRL, ctrl::VME);
        guest.function.file.set(r::VET, 0x8100);
        guest
    }

    /// A VF with these settings.
    pub(crate) fn vf(settings: Settings) -> Guest {
        Self::vf_with(settings, true)
    }

    /// The same with or without its fast paths.
    pub(crate) fn vf_with(settings: Settings, fast_path: bool) -> Guest {
        Self::with(FunctionKind::Vf(Mutex::new(settings)), 2, fast_path)
    }

    fn with(kind: FunctionKind, queues: usize, fast_path: bool) -> Guest {
        let mut function = Function::new(kind, r::table(), &r::QUEUES, queues, true);
        function.fast_path = fast_path;
        let function = Arc::new(function);
        function.bus_master.store(true, Ordering::Relaxed);
        function.link_up.store(true, Ordering::Relaxed);
        let receiver = Arc::new(Receiver::new(Arc::clone(&function)));
        Guest {
            sender: Sender::new(Arc::clone(&function), Arc::clone(&receiver)),
            receiver,
            function,
            env: Env {
                memory: memory(0, MEMORY),
                irq: Arc::new(Silent),
                clock: Arc::new(Time::at(1_000_000_000)),
                timer: Arc::new(Silent),
            },
        }
    }

    pub(crate) fn set(&self, id: Id, queue: u32, value: u32) {
        self.function
            .write_queue(&self.env, id, queue, value)
            .expect("of a queue");
    }

    /// Sets a register that is not of a queue.
    pub(crate) fn set_of_all(&self, id: Id, value: u32) {
        self.function.file.set(id, value);
        self.function.setup.changed();
    }

    pub(crate) fn get(&self, id: Id, queue: u32) -> u32 {
        self.function.file.get_at(id, queue)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.env.memory.view().write(at, bytes).expect("in memory");
    }

    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.env
            .memory
            .view()
            .read(at, &mut bytes)
            .expect("in memory");
        bytes
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.read(at, 8).try_into().expect("eight"))
    }

    /// Starts a transmit ring of `len` descriptors.
    pub(crate) fn start_tx(&self, queue: u32, len: u32) {
        self.set(
            r::TDBAL,
            queue,
            (TX_RINGS + APART * u64::from(queue)) as u32,
        );
        self.set(r::TDLEN, queue, len * 16);
        self.set(r::TXDCTL, queue, xdctl::ENABLE);
    }

    /// Starts a receive ring of `len` descriptors shaped by `srrctl`, with all but one given. The
    /// buffers of a descriptor are at [`packet_buffer`] and [`header_buffer`].
    pub(crate) fn start_rx(&self, queue: u32, len: u32, srrctl: u32) {
        let ring = RX_RINGS + APART * u64::from(queue);
        for i in 0..len {
            let at = ring + u64::from(i) * 16;
            self.write(at, &packet_buffer(queue, i).to_le_bytes());
            self.write(at + 8, &header_buffer(queue, i).to_le_bytes());
        }
        self.set(r::RDBAL, queue, ring as u32);
        self.set(r::RDLEN, queue, len * 16);
        self.set(r::SRRCTL, queue, srrctl);
        self.set(r::RXDCTL, queue, xdctl::ENABLE);
        self.set(r::RDT, queue, len - 1);
    }

    /// The words of a receive descriptor.
    pub(crate) fn rx_desc(&self, queue: u32, index: u32) -> (u64, u64) {
        let at = RX_RINGS + APART * u64::from(queue) + u64::from(index) * 16;
        (self.word(at), self.word(at + 8))
    }

    /// Writes transmit descriptors from the tail on and moves it.
    pub(crate) fn send(&self, queue: u32, descs: &[(u64, u64)]) {
        let len = self.get(r::TDLEN, queue) / 16;
        let mut tail = self.get(r::TDT, queue);
        for (low, high) in descs {
            let at = TX_RINGS + APART * u64::from(queue) + u64::from(tail) * 16;
            self.write(at, &low.to_le_bytes());
            self.write(at + 8, &high.to_le_bytes());
            tail = (tail + 1) % len;
        }
        self.set(r::TDT, queue, tail);
    }

    pub(crate) fn run(&mut self, wire: &Wire) -> model::Progress {
        self.run_some(wire, 256)
    }

    pub(crate) fn run_some(&mut self, wire: &Wire, budget: usize) -> model::Progress {
        self.sender.run(&self.env, wire, budget)
    }

    /// Offers frames without notes; returns how many were dealt with.
    pub(crate) fn receive(&self, frames: &[Vec<u8>]) -> usize {
        let mut batch = Batch::new();
        for frame in frames {
            batch.push_bytes(frame);
            batch.end(wire::Offload::NONE);
        }
        self.receive_batch(&batch)
    }

    pub(crate) fn receive_batch(&self, batch: &Batch<'_>) -> usize {
        let mut picks = Vec::new();
        let picks = batch.all_picks(&mut picks);
        self.receiver.deliver(&self.env, batch, picks)
    }

    /// The same for frames that are alike together, in runs first if it shall be.
    pub(crate) fn receive_grouped(&self, batch: &Batch<'_>, runs: bool) -> usize {
        let deliver = |picks: &[u16]| self.receiver.deliver(&self.env, batch, picks);
        let run = |run: &Run<'_>| self.receiver.deliver_run(&self.env, run);
        let run: &dyn Fn(&Run<'_>) -> Option<usize> = &run;
        in_groups(batch, deliver, runs.then_some(run))
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        counter(|each| self.function.counters.visit(each), name)
    }
}

pub(crate) fn packet_buffer(queue: u32, index: u32) -> u64 {
    0x40_0000 + u64::from(queue) * 0x10_0000 + u64::from(index) * 0x1000
}

pub(crate) fn header_buffer(queue: u32, index: u32) -> u64 {
    packet_buffer(queue, index) + 0x800
}
