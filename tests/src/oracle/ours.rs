//! Our models, bare: a fake clock, flat memory, a recorder as their cable.

use std::sync::Arc;
use std::time::Duration;

use drivers::{Bus, BusError, Recorded, Recorder};
use wire::Offload;

use super::functions::Functions;
use crate::oracle::chip::Chip;
use crate::oracle::layout::{ARENA, ARENA_LEN, RING_LEN, RX_RING, SETTLE, TX_RING};
use crate::oracle::script::{Op, Script};
use crate::oracle::trace::{End, Look, Trace};

/// RAM from address 0, as a PC has it.
const LOW_RAM: u64 = 0xa_0000;
/// RAM behind the memory of the scripts.
const HIGH_RAM: u64 = 0x10_0000;

/// Runs scripts through our model; each gets a fresh one.
#[derive(Debug)]
pub struct Ours(pub &'static Chip);

impl Ours {
    /// Runs a script.
    ///
    /// # Errors
    /// When the model's work does not end.
    pub fn run(&mut self, script: &Script) -> Result<Trace, BusError> {
        let mut run = Run::new(self.0)?;
        for op in &script.ops {
            run.step(op)?;
        }
        run.look()?;
        let offsets = (self.0.sweep)(script);
        let values: Result<Vec<u32>, _> = offsets.iter().map(|at| run.read(*at)).collect();
        let end = End {
            registers: values?,
            arena: run.peek(ARENA, ARENA_LEN)?,
        };
        Ok(Trace {
            looks: run.looks,
            end,
        })
    }
}

struct Run {
    chip: &'static Chip,
    functions: Functions,
    wire: Arc<Recorder>,
    /// Frames that found no room yet.
    waiting: Vec<Recorded>,
    reads: Vec<u64>,
    looks: Vec<Look>,
}

impl Run {
    fn new(chip: &'static Chip) -> Result<Self, BusError> {
        let (mut functions, wire) = Functions::new(chip)?;
        let bus = functions.pf();
        bus.alloc_at(0, LOW_RAM)?;
        bus.alloc_at(ARENA, ARENA_LEN as u64 + HIGH_RAM)?;
        let mut run = Self {
            chip,
            functions,
            wire,
            waiting: Vec::new(),
            reads: Vec::new(),
            looks: Vec::new(),
        };
        // That the link comes up is no part of the script.
        for op in (chip.link_up)() {
            run.step(&op)?;
        }
        run.settle()?;
        for op in (chip.prologue)() {
            run.step(&op)?;
        }
        run.functions.messages();
        run.reads.clear();
        run.wire.take();
        Ok(run)
    }

    fn step(&mut self, op: &Op) -> Result<(), BusError> {
        match op {
            Op::Write { at, size, value } => {
                let bytes = &value.to_le_bytes()[..usize::from(*size)];
                self.functions.write(*at, bytes)?;
                self.offer()?;
            }
            Op::Read { at, size } => {
                self.settle()?;
                let mut bytes = [0; 8];
                let part = &mut bytes[..usize::from(*size)];
                self.functions.read(*at, part)?;
                self.reads.push(u64::from_le_bytes(bytes));
            }
            Op::Mem { at, bytes } => self.functions.pf().memory().view().write(*at, bytes)?,
            Op::Frames(frames) => {
                self.settle()?;
                let noted = |bytes: &Vec<u8>| Recorded {
                    bytes: bytes.clone(),
                    notes: Offload::NONE,
                };
                self.waiting.extend(frames.iter().map(noted));
                self.offer()?;
                self.functions.pump()?;
            }
            Op::Msix => self.functions.set_msix()?,
            Op::Look => self.look()?,
        }
        Ok(())
    }

    /// Lets all timers run out.
    fn settle(&mut self) -> Result<(), BusError> {
        self.functions.delay(Duration::from_nanos(SETTLE))
    }

    /// Offers what waits on the wire.
    fn offer(&mut self) -> Result<(), BusError> {
        if !self.waiting.is_empty() {
            let taken = self.functions.deliver(&self.waiting)?;
            self.waiting.drain(..taken);
        }
        Ok(())
    }

    fn read(&mut self, at: u32) -> Result<u32, BusError> {
        let mut bytes = [0; 4];
        self.functions.read(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn peek(&mut self, at: u64, len: usize) -> Result<Vec<u8>, BusError> {
        let mut bytes = vec![0; len];
        self.functions.pf().memory().view().read(at, &mut bytes)?;
        Ok(bytes)
    }

    fn look(&mut self) -> Result<(), BusError> {
        self.settle()?;
        self.offer()?;
        self.functions.pump()?;
        self.settle()?;
        let registers = self.chip.watched.iter();
        let watched: Result<Vec<u32>, _> = registers.map(|(at, _)| self.read(*at)).collect();
        let look = Look {
            reads: std::mem::take(&mut self.reads),
            line: self.functions.pf().irq().level(),
            messages: self.functions.messages(),
            watched: watched?,
            tx_ring: self.peek(TX_RING, RING_LEN)?,
            rx_ring: self.peek(RX_RING, RING_LEN)?,
            sent: self.wire.take().into_iter().map(|f| f.bytes).collect(),
        };
        self.looks.push(look);
        Ok(())
    }
}
