//! The fast way: rings and buffers found once and accessed where they lie, tails written by the lot,
//! and interrupts as the driver of the paper takes them (the tables of MSI-X, EIAM, EITR).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vfio_user::codec::irq;
use vfio_user::{Area, EventFd};

use intel_offsets::igbvf as regs;

use super::vf::{Vf, VfError};
use crate::bus::{Bus, BusError, Costs, Dma};
use crate::socket_bus::SocketBus;

/// From one buffer to the next: a packet buffer's bookkeeping lies between them, which also spreads
/// them over the cache.
const STRIDE: u64 = 2048 + 256;
const DESC: usize = 16;
const DONE: u32 = 1;
/// The vector of the receive queue, as igbvf has it.
const RX_VECTOR: u32 = 1;
/// The table of MSI-X: BAR, bytes of an entry, where its mask is.
const TABLE: (u8, u64, u64) = (3, 16, 12);

/// How the guest keeps a second interrupt away while it handles one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masking {
    /// It masks and unmasks its vector in the table of MSI-X, as Linux 2.6.18 did.
    Table,
    /// The device masks it with the message (EIAM), and the guest unmasks it (EIMS), as igbvf does.
    Device,
    /// Not at all: EITR alone keeps interrupts apart.
    None,
}

/// A VF in poll mode.
pub struct Poll<B> {
    vf: Vf<B>,
    ring: u32,
    /// Descriptors after which one is reported, and buffers given back at once.
    lot: u32,
    tx: Area,
    tx_buffers: Area,
    tx_base: u64,
    tail: u32,
    clean: u32,
    unreported: u32,
    /// Descriptors that will be reported.
    promised: VecDeque<u32>,
    rx: Area,
    rx_base: u64,
    next: u32,
    held: u32,
    masking: Masking,
}

impl<B: Bus> Poll<B> {
    /// Brings a VF up with `ring` descriptors in each direction, a multiple of 8.
    ///
    /// # Errors
    /// As [`Vf::new`]; or the bus cannot give its memory out.
    pub fn new(bus: B, ring: u32) -> Result<Self, VfError> {
        let mut vf = Vf::with_buffers(bus, ring, STRIDE)?;
        let (rx, rx_buffers) = vf.rx_memory();
        let (tx, tx_buffers) = vf.tx_memory();
        let mut area = |dma: Dma| vf.bus().area(dma);
        let (rx, tx, buffers) = (area(rx)?, area(tx)?, area(tx_buffers)?);
        Ok(Self {
            vf,
            ring,
            lot: (ring / 4).clamp(1, 32),
            tx,
            tx_buffers: buffers,
            tx_base: tx_buffers.iova,
            tail: 0,
            clean: 0,
            unreported: 0,
            promised: VecDeque::with_capacity(ring as usize),
            rx,
            rx_base: rx_buffers.iova,
            next: 0,
            held: 0,
            masking: Masking::Device,
        })
    }

    /// The driver underneath, for mailbox and registers. Its own ways to send and receive must not be
    /// used.
    pub fn vf(&mut self) -> &mut Vf<B> {
        &mut self.vf
    }

    /// What it has cost so far.
    pub fn costs(&mut self) -> Costs {
        self.vf.bus().costs()
    }

    /// Puts `frame` into every transmit buffer.
    ///
    /// # Panics
    /// When it does not fit there.
    pub fn prepare(&mut self, frame: &[u8]) {
        assert!(frame.len() as u64 <= STRIDE, "beyond the buffer");
        for slot in 0..self.ring {
            self.tx_buffers
                .write(slot as usize * STRIDE as usize, frame);
        }
    }

    fn free(&self) -> u32 {
        self.ring - 1 - (self.tail + self.ring - self.clean) % self.ring
    }

    fn after(&self, index: u32) -> u32 {
        if index + 1 == self.ring { 0 } else { index + 1 }
    }

    fn reclaim(&mut self) {
        while let Some(&index) = self.promised.front() {
            let status = index as usize * DESC + 12;
            if self.tx.load_u32(status, Ordering::Acquire) & DONE == 0 {
                break;
            }
            self.promised.pop_front();
            self.clean = self.after(index);
        }
    }

    /// Sends up to `most` of the prepared frames, of `len` bytes each, frame n to `to(n)`, and rings
    /// once. Returns
    /// how many there was room for.
    ///
    /// # Errors
    /// When the device is gone.
    #[inline]
    pub fn send(
        &mut self,
        most: u32,
        len: u32,
        to: impl Fn(u32) -> [u8; 6],
    ) -> Result<u32, VfError> {
        if self.free() < most {
            self.reclaim();
        }
        let count = most.min(self.free());
        for n in 0..count {
            let slot = self.tail as usize;
            let offset = slot * STRIDE as usize;
            self.tx_buffers.put(offset, to(n));
            // Advanced data: EOP, IFCS, DEXT; RS for the last of a lot.
            let mut command = len | 3 << 20 | 1 << 24 | 1 << 25 | 1 << 29;
            self.unreported += 1;
            if self.unreported == self.lot {
                self.unreported = 0;
                self.promised.push_back(self.tail);
                command |= 1 << 27;
            }
            let word = u64::from(command) | u64::from(len << 14) << 32;
            let address = self.tx_base + offset as u64;
            self.tx
                .store_u64(slot * DESC, address.to_le(), Ordering::Relaxed);
            self.tx
                .store_u64(slot * DESC + 8, word.to_le(), Ordering::Release);
            self.tail = self.after(self.tail);
        }
        if count > 0 {
            self.vf.bus.write32(regs::TDT, self.tail)?;
        }
        Ok(count)
    }

    /// Takes up to `most` frames that have come, and gives their buffers back in lots. Returns how many
    /// there were.
    ///
    /// # Errors
    /// When the device is gone.
    #[inline]
    pub fn receive(&mut self, most: u32) -> Result<u32, VfError> {
        let mut frames = 0;
        // What is held still looks done: no further than once around.
        while frames < most && self.held < self.ring - 1 {
            let at = self.next as usize * DESC;
            if self.rx.load_u32(at + 8, Ordering::Acquire) & DONE == 0 {
                break;
            }
            self.next = self.after(self.next);
            self.held += 1;
            frames += 1;
        }
        if self.held >= self.lot {
            self.refill()?;
        }
        Ok(frames)
    }

    /// Gives all buffers back, however few they are. Their descriptors are made anew here and not one by
    /// one as frames come (as in igbvf, too): the device may still be writing beside those.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn refill(&mut self) -> Result<(), VfError> {
        if self.held > 0 {
            let mut index = (self.next + self.ring - self.held) % self.ring;
            for _ in 0..self.held {
                let at = index as usize * DESC;
                let buffer = self.rx_base + u64::from(index) * STRIDE;
                self.rx.store_u64(at, buffer.to_le(), Ordering::Relaxed);
                self.rx.store_u64(at + 8, 0, Ordering::Relaxed);
                index = self.after(index);
            }
            self.held = 0;
            let last = (self.next + self.ring - 1) % self.ring;
            self.vf.bus.write32(regs::RDT, last)?;
        }
        Ok(())
    }

    /// Least time between two interrupts, in microseconds; 0 for none.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn set_gap(&mut self, microseconds: u32) -> Result<(), VfError> {
        let value = microseconds.min(0x1fff) << 2;
        let at = regs::VTEITR + 4 * RX_VECTOR;
        Ok(self.vf.bus.write32(at, value)?)
    }

    /// The first thing done about an interrupt.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn mask(&mut self) -> Result<(), VfError> {
        match self.masking {
            Masking::Table => self.mask_vector(true),
            Masking::Device | Masking::None => Ok(()),
        }
    }

    /// The last thing done about an interrupt. What came meanwhile interrupts again.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn unmask(&mut self) -> Result<(), VfError> {
        match self.masking {
            Masking::Table => self.mask_vector(false),
            Masking::Device => Ok(self.vf.bus.write32(regs::VTEIMS, 1 << RX_VECTOR)?),
            Masking::None => Ok(()),
        }
    }

    fn mask_vector(&mut self, masked: bool) -> Result<(), VfError> {
        let (bar, size, mask) = TABLE;
        let at = u64::from(RX_VECTOR) * size + mask;
        let value = u32::from(masked).to_le_bytes();
        Ok(self.vf.bus.bar_write(bar, at, &value)?)
    }
}

impl Poll<SocketBus> {
    /// Has received frames interrupt by `event`, at most every `microseconds`.
    ///
    /// # Errors
    /// When the device is gone, or has no MSI-X.
    pub fn interrupt(
        &mut self,
        event: &EventFd,
        masking: Masking,
        microseconds: u32,
    ) -> Result<(), VfError> {
        self.masking = masking;
        self.set_gap(microseconds)?;
        let bus = self.vf.bus();
        bus.client()
            .arm(irq::MSIX, RX_VECTOR, &[event])
            .map_err(BusError::from)?;
        // MSI-X on, in its capability's control word.
        let mut at = [0];
        bus.config_read(0x34, &mut at)?;
        for _ in 0..48 {
            let mut head = [0; 2];
            bus.config_read(at[0].into(), &mut head)?;
            if head[0] == 0x11 {
                break;
            }
            at = [head[1]];
        }
        if at[0] == 0 {
            return Err(BusError::Unsupported("interrupt by MSI-X").into());
        }
        let mut control = [0; 2];
        bus.config_read(u16::from(at[0]) + 2, &mut control)?;
        bus.config_write(u16::from(at[0]) + 2, &[control[0], control[1] | 0x80])?;
        self.mask_vector(false)?;
        let bit = 1 << RX_VECTOR;
        let masks = if masking == Masking::Device { bit } else { 0 };
        let bus = self.vf.bus();
        for (register, value) in [
            // Valid is bit 7.
            (regs::VTIVAR, 0x80 | RX_VECTOR),
            (regs::VTEIAC, bit),
            (regs::VTEIAM, masks),
            (regs::VTEIMS, bit),
        ] {
            bus.write32(register, value)?;
        }
        self.vf.flush()
    }

    /// Has nothing interrupt any more.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn quiet(&mut self) -> Result<(), VfError> {
        self.vf.bus.write32(regs::VTEIMC, u32::MAX)?;
        self.vf.flush()
    }
}
