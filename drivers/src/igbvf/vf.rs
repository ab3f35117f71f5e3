//! A virtual function: mailbox, one queue in each direction.

use std::time::Duration;

use crate::bus::{Bus, BusError, Dma};

use intel_offsets::igbvf::{self as regs, mailbox};

const RST: u32 = 1 << 26;
const LU: u32 = 1 << 1;
const ENABLE: u32 = 1 << 25;

use mailbox::{ACK, CTS, DONE, PFACK, PFSTS, REQ, RSTD, RSTI, VFU};

/// Descriptors of either ring, if the caller does not say otherwise.
pub const RING: u32 = 256;
/// A frame, and its tag if it was taken out.
pub type Tagged = (Vec<u8>, Option<u16>);

/// Bytes of a descriptor.
const DESC: u64 = 16;
/// Bytes of a buffer.
const BUFFER: u64 = 2048;
/// Looks at the mailbox before a message counts as unanswered.
const LOOKS: u32 = 2000;
const PAUSE: Duration = Duration::from_micros(500);

/// Why a VF could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum VfError {
    /// The machine.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The physical function is in reset.
    #[error("the PF is in reset")]
    InReset,
    /// The PF did not answer.
    #[error("no answer from the PF")]
    Silence,
    /// The answer was no.
    #[error("the PF refused: {0:#x}")]
    Refused(u32),
}

/// A VF with its driver.
pub struct Vf<B> {
    pub(super) bus: B,
    /// Descriptors of either ring.
    pub(super) ring: u32,
    /// Bytes from one buffer to the next.
    pub(super) stride: u64,
    pub(super) mac: [u8; 6],
    pub(super) tx: Dma,
    pub(super) rx: Dma,
    pub(super) tx_buffers: Dma,
    pub(super) rx_buffers: Dma,
    pub(super) tx_tail: u32,
    pub(super) tx_done: u32,
    pub(super) rx_next: u32,
    /// Bits of V2PMAILBOX that reading has cleared.
    pub(super) seen: u32,
}

impl<B: Bus> Vf<B> {
    /// Brings a VF up: reset, address, rings.
    ///
    /// # Errors
    /// When the PF does not answer, or the machine fails.
    pub fn new(bus: B) -> Result<Self, VfError> {
        Self::with_ring(bus, RING)
    }

    /// The same, with `ring` descriptors in each direction, a multiple of 8.
    ///
    /// # Errors
    /// As [`Vf::new`].
    pub fn with_ring(bus: B, ring: u32) -> Result<Self, VfError> {
        Self::with_buffers(bus, ring, BUFFER)
    }

    /// The same with buffers `stride` bytes apart, which is at least what a buffer has.
    ///
    /// # Errors
    /// As [`Vf::new`].
    pub fn with_buffers(mut bus: B, ring: u32, stride: u64) -> Result<Self, VfError> {
        let stride = stride.max(BUFFER);
        // Memory and bus mastering.
        bus.config_write(4, &6u16.to_le_bytes())?;
        let [tx, rx] = [
            bus.alloc(u64::from(ring) * DESC)?,
            bus.alloc(u64::from(ring) * DESC)?,
        ];
        let tx_buffers = bus.alloc(u64::from(ring) * stride)?;
        let rx_buffers = bus.alloc(u64::from(ring) * stride)?;
        let mut vf = Vf {
            bus,
            ring,
            stride,
            mac: [0; 6],
            tx,
            rx,
            tx_buffers,
            rx_buffers,
            tx_tail: 0,
            tx_done: 0,
            rx_next: 0,
            seen: 0,
        };
        vf.reset()?;
        Ok(vf)
    }

    /// Its address, as the PF said.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The machine it runs on.
    pub fn bus(&mut self) -> &mut B {
        &mut self.bus
    }

    /// Where its receive ring and its buffers are.
    pub fn rx_memory(&self) -> (Dma, Dma) {
        (self.rx, self.rx_buffers)
    }

    /// Where its transmit ring and its buffers are.
    pub fn tx_memory(&self) -> (Dma, Dma) {
        (self.tx, self.tx_buffers)
    }

    /// As after a new start: reset, address, rings.
    ///
    /// # Errors
    /// As [`Vf::new`].
    pub fn reset(&mut self) -> Result<(), VfError> {
        self.bus.write32(regs::VTCTRL, RST)?;
        self.seen = 0;
        for look in 0.. {
            let bits = self.bus.read32(regs::V2PMAILBOX)?;
            if bits & (RSTI | RSTD) == 0 {
                break;
            }
            if look == 200 {
                return Err(VfError::InReset);
            }
        }
        let reply = self.ask(&[1])?;
        if reply[0] != 1 | DONE {
            return Err(VfError::Refused(reply[0]));
        }
        let [a, b, c, d] = reply[1].to_le_bytes();
        let [e, f, ..] = reply[2].to_le_bytes();
        self.mac = [a, b, c, d, e, f];
        self.rings()
    }

    fn rings(&mut self) -> Result<(), VfError> {
        (self.tx_tail, self.tx_done, self.rx_next) = (0, 0, 0);
        let zeros = vec![0; (u64::from(self.ring) * DESC) as usize];
        self.bus.dma_write(self.tx.iova, &zeros)?;
        for n in 0..self.ring {
            self.give(n)?;
        }
        let bytes = self.ring * DESC as u32;
        for (reg, value) in [
            (regs::TDBAL, self.tx.iova as u32),
            (regs::TDBAH, (self.tx.iova >> 32) as u32),
            (regs::TDLEN, bytes),
            (regs::TDH, 0),
            (regs::TDT, 0),
            (regs::TXDCTL, ENABLE),
            (regs::RDBAL, self.rx.iova as u32),
            (regs::RDBAH, (self.rx.iova >> 32) as u32),
            (regs::RDLEN, bytes),
            // One buffer of 2 KB, advanced descriptors.
            (regs::SRRCTL, 1 << 25 | 2),
            (regs::RXDCTL, ENABLE),
            (regs::RDH, 0),
            (regs::RDT, self.ring - 1),
        ] {
            self.bus.write32(reg, value)?;
        }
        self.flush()
    }

    /// Has everything written so far arrive: writes are posted, and others may be quicker.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn flush(&mut self) -> Result<(), VfError> {
        self.bus.read32(regs::VTSTATUS)?;
        Ok(())
    }

    fn give(&mut self, n: u32) -> Result<(), VfError> {
        let mut descriptor = [0; 16];
        let buffer = self.rx_buffers.iova + u64::from(n) * self.stride;
        descriptor[..8].copy_from_slice(&buffer.to_le_bytes());
        let at = self.rx.iova + u64::from(n) * DESC;
        Ok(self.bus.dma_write(at, &descriptor)?)
    }

    fn bits(&mut self) -> Result<u32, VfError> {
        self.seen |= self.bus.read32(regs::V2PMAILBOX)?;
        Ok(self.seen)
    }

    fn wait(&mut self, bit: u32) -> Result<(), VfError> {
        for _ in 0..LOOKS {
            if self.bits()? & bit != 0 {
                self.seen &= !bit;
                return Ok(());
            }
            self.bus.delay(PAUSE)?;
        }
        Err(VfError::Silence)
    }

    /// Sends a message and does not wait for anything.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn post(&mut self, words: &[u32]) -> Result<(), VfError> {
        self.bus.write32(regs::V2PMAILBOX, VFU)?;
        self.seen &= !(PFSTS | PFACK);
        for (at, word) in words.iter().enumerate() {
            self.bus.write32(regs::VMBMEM + 4 * at as u32, *word)?;
        }
        Ok(self.bus.write32(regs::V2PMAILBOX, REQ)?)
    }

    /// Sends a message, and returns the first three words of the answer.
    ///
    /// # Errors
    /// When the PF does not answer, or the machine fails.
    pub fn ask(&mut self, words: &[u32]) -> Result<[u32; 3], VfError> {
        self.post(words)?;
        self.wait(PFACK)?;
        self.wait(PFSTS)?;
        let mut reply = [0; 3];
        self.bus.write32(regs::V2PMAILBOX, VFU)?;
        for (at, word) in reply.iter_mut().enumerate() {
            *word = self.bus.read32(regs::VMBMEM + 4 * at as u32)?;
        }
        self.bus.write32(regs::V2PMAILBOX, ACK)?;
        Ok(reply)
    }

    /// Asks for something that is done or refused.
    ///
    /// # Errors
    /// As [`Vf::ask`], and when it is refused.
    pub fn want(&mut self, words: &[u32]) -> Result<(), VfError> {
        let [reply, ..] = self.ask(words)?;
        let done = reply & (DONE | CTS) == DONE | CTS;
        done.then_some(()).ok_or(VfError::Refused(reply))
    }

    /// Asks for an address.
    ///
    /// # Errors
    /// As [`Vf::want`].
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), VfError> {
        let [a, b, c, d, e, f] = mac;
        let words = [
            2,
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, 0, 0]),
        ];
        self.want(&words)?;
        self.mac = mac;
        Ok(())
    }

    /// Whether there is a word of the PF, which then is its first.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn heard(&mut self) -> Result<Option<u32>, VfError> {
        if self.bits()? & PFSTS == 0 {
            return Ok(None);
        }
        self.seen &= !PFSTS;
        let word = self.bus.read32(regs::VMBMEM)?;
        self.bus.write32(regs::V2PMAILBOX, ACK)?;
        Ok(Some(word))
    }

    /// Whether the link is up, by the register alone.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn link(&mut self) -> Result<bool, VfError> {
        Ok(self.bus.read32(regs::VTSTATUS)? & LU != 0)
    }

    /// Queues frames of at most 2048 bytes, and rings the doorbell once. Returns how many found
    /// room.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn send(&mut self, frames: &[&[u8]]) -> Result<usize, VfError> {
        self.clean()?;
        let mut sent = 0;
        for frame in frames {
            if self.tx_tail.wrapping_sub(self.tx_done) >= self.ring - 1 {
                break;
            }
            let slot = u64::from(self.tx_tail % self.ring);
            let buffer = self.tx_buffers.iova + slot * self.stride;
            self.bus.dma_write(buffer, frame)?;
            self.put(slot, buffer, frame.len() as u32)?;
            self.tx_tail += 1;
            sent += 1;
        }
        self.bus.write32(regs::TDT, self.tx_tail % self.ring)?;
        Ok(sent)
    }

    /// Queues one frame that lies anywhere, without a doorbell's check of it.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn send_at(&mut self, addr: u64, len: u32) -> Result<(), VfError> {
        self.put(u64::from(self.tx_tail % self.ring), addr, len)?;
        self.tx_tail += 1;
        Ok(self.bus.write32(regs::TDT, self.tx_tail % self.ring)?)
    }

    fn put(&mut self, slot: u64, addr: u64, len: u32) -> Result<(), VfError> {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&addr.to_le_bytes());
        // Advanced data: EOP, IFCS, RS, DEXT.
        let command = len | 3 << 20 | 1 << 24 | 1 << 25 | 1 << 27 | 1 << 29;
        descriptor[8..12].copy_from_slice(&command.to_le_bytes());
        descriptor[12..].copy_from_slice(&(len << 14).to_le_bytes());
        Ok(self
            .bus
            .dma_write(self.tx.iova + slot * DESC, &descriptor)?)
    }

    fn clean(&mut self) -> Result<(), VfError> {
        while self.tx_done != self.tx_tail {
            let slot = u64::from(self.tx_done % self.ring);
            let mut status = [0; 4];
            self.bus
                .dma_read(self.tx.iova + slot * DESC + 12, &mut status)?;
            if status[0] & 1 == 0 {
                break;
            }
            self.tx_done += 1;
        }
        Ok(())
    }

    /// Frames whose descriptors the device has not given back.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn pending(&mut self) -> Result<u32, VfError> {
        self.clean()?;
        Ok(self.tx_tail - self.tx_done)
    }

    /// What has come: each frame, and its tag if it was taken out.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn receive(&mut self) -> Result<Vec<Tagged>, VfError> {
        let mut frames = Vec::new();
        loop {
            let slot = self.rx_next % self.ring;
            let at = self.rx.iova + u64::from(slot) * DESC;
            let mut descriptor = [0; 16];
            self.bus.dma_read(at, &mut descriptor)?;
            let word = |at: usize| {
                descriptor[at..]
                    .first_chunk()
                    .map_or(0, |b| u32::from_le_bytes(*b))
            };
            let status = word(8);
            if status & 1 == 0 {
                break;
            }
            let (len, vlan) = (word(12) & 0xffff, (word(12) >> 16) as u16);
            let mut frame = vec![0; len.min(BUFFER as u32) as usize];
            let buffer = self.rx_buffers.iova + u64::from(slot) * self.stride;
            self.bus.dma_read(buffer, &mut frame)?;
            // VP is bit 3.
            frames.push((frame, (status & 8 != 0).then_some(vlan)));
            self.give(slot)?;
            self.rx_next += 1;
        }
        if !frames.is_empty() {
            self.bus
                .write32(regs::RDT, self.rx_next.wrapping_sub(1) % self.ring)?;
        }
        Ok(frames)
    }
}
