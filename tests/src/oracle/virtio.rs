//! Our virtio-net against QEMU's, as drivers see them: the same packets, buffers, frames and commands through rings of either
//! format, and everything compared that a driver or a wire could see.
//!
//! The device writes some words when it likes (events, flags, what it leaves of descriptors), so what is compared is what a
//! driver makes of its rings: buffers in the order in which they were used, with their bytes.

mod differences;
mod driver;
mod qemu;
mod walk;

use std::io;

use model_testkit::{Machine as Model, Wire, memory};

pub use differences::{DIFFERENCES, Difference, compare, page};
pub use walk::{Seen, walk};

use super::layout::MAC;

/// Memory of both machines: rings and buffers.
pub(super) const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x10_0000;

/// A virtio-net in a machine.
pub trait Machine {
    /// Back to power-up, with memory zero.
    ///
    /// # Errors
    /// The machine has ended.
    fn restart(&mut self) -> io::Result<()>;
    /// Writes a register.
    ///
    /// # Errors
    /// The machine has ended.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads a register.
    ///
    /// # Errors
    /// The machine has ended.
    fn read(&mut self, at: u64, len: usize) -> io::Result<u64>;
    /// Writes memory.
    ///
    /// # Errors
    /// The machine has ended.
    fn poke(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads memory.
    ///
    /// # Errors
    /// The machine has ended.
    fn peek(&mut self, at: u64, len: usize) -> io::Result<Vec<u8>>;
    /// A frame comes from the wire. What finds no room waits there.
    ///
    /// # Errors
    /// The machine has ended.
    fn frame(&mut self, frame: &[u8]) -> io::Result<()>;
    /// What was sent since the last call.
    ///
    /// # Errors
    /// The machine has ended.
    fn sent(&mut self) -> io::Result<Vec<Vec<u8>>>;
}

/// Ours.
pub struct Ours {
    m: Model,
    waiting: Vec<Vec<u8>>,
}

impl Default for Ours {
    fn default() -> Self {
        Self {
            m: new(),
            waiting: Vec::new(),
        }
    }
}

fn new() -> Model {
    let nic = virtio_net::new(virtio_net::Config::new(MAC));
    let mut m = Model::of(nic, memory(RAM, RAM_LEN), Wire::default(), 1_000_000_000);
    m.set_pci(model::PciState {
        bus_master: true,
        ..model::PciState::default()
    });
    m
}

impl Ours {
    fn offer(&mut self) {
        while let Some(first) = self.waiting.first() {
            if self.m.offer(&[first]) == 0 {
                return;
            }
            self.waiting.remove(0);
        }
    }
}

impl Machine for Ours {
    fn restart(&mut self) -> io::Result<()> {
        *self = Self::default();
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.m.nic.control.write(&self.m.env, 0, at, bytes);
        self.m.work();
        self.offer();
        Ok(())
    }

    fn read(&mut self, at: u64, len: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.m
            .nic
            .control
            .read(&self.m.env, 0, at, &mut bytes[..len]);
        Ok(u64::from_le_bytes(bytes))
    }

    fn poke(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.m.poke(at, bytes);
        Ok(())
    }

    fn peek(&mut self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        Ok(self.m.peek(at, len))
    }

    fn frame(&mut self, frame: &[u8]) -> io::Result<()> {
        self.waiting.push(frame.to_vec());
        self.offer();
        Ok(())
    }

    fn sent(&mut self) -> io::Result<Vec<Vec<u8>>> {
        Ok(self.m.wire.take())
    }
}

pub use qemu::Qemu;
