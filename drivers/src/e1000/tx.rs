//! Sending.

pub(super) mod ring;

use guest_mem::View;

use self::ring::{Report, Ring, TxOpts};
use super::config::DriverError;
use super::desc::{self, Legacy, Raw, cmd};
use super::driver::Driver;
use super::regs::{self, tctl};
use crate::bus::{Bus, BusError};

/// Descriptors put down in one go.
const BLOCK: usize = 64;

impl<B: Bus> Driver<B> {
    /// Programs the transmit side with the current ring, and enables it.
    pub(super) fn start_tx(&mut self) -> Result<(), DriverError> {
        let ring = self.tx.ring;
        let length = self.tx.count * desc::SIZE as u32;
        for (register, value) in [
            (regs::TDBAL, ring.iova as u32),
            (regs::TDBAH, (ring.iova >> 32) as u32),
            (regs::TDLEN, length),
            (regs::TDH, 0),
            (regs::TDT, 0),
            // Copper: 8, 8, 6 (13.4.34).
            (regs::TIPG, 8 | 8 << 10 | 6 << 20),
            (regs::TIDV, self.config.tidv),
            (regs::TADV, self.config.tadv),
        ] {
            self.bus.write32(register, value)?;
        }
        let control =
            tctl::EN | tctl::PSP | tctl::RTLC | 15 << tctl::CT_SHIFT | 64 << tctl::COLD_SHIFT;
        Ok(self.bus.write32(regs::TCTL, control)?)
    }

    /// Stops transmitting and starts again with a new ring of `count` descriptors elsewhere in
    /// memory, without a reset. Frames still in the old ring are lost.
    ///
    /// # Errors
    /// When there is no memory or the device is gone.
    pub fn restart_tx(&mut self, count: u32) -> Result<(), DriverError> {
        let value = self.bus.read32(regs::TCTL)?;
        self.bus.write32(regs::TCTL, value & !tctl::EN)?;
        self.bus.read32(regs::STATUS)?;
        self.config.tx_ring = count;
        let old = self.tx.memory();
        self.tx = Ring::new(&mut self.bus, &self.config)?;
        self.start_tx()?;
        for dma in old {
            self.bus.free(dma)?;
        }
        Ok(())
    }

    /// Queues as many of `frames` as there is room for and tells the device once. Returns how
    /// many were taken.
    ///
    /// # Errors
    /// When a frame cannot be sent this way, or the device is gone.
    pub fn send(&mut self, frames: &[&[u8]], opts: &TxOpts) -> Result<usize, DriverError> {
        let taken = self.queue(frames, opts)?;
        self.kick()?;
        Ok(taken)
    }

    /// As [`Driver::send`], without telling the device ([`Driver::kick`] does).
    ///
    /// # Errors
    /// When a frame cannot be sent this way.
    pub fn queue(&mut self, frames: &[&[u8]], opts: &TxOpts) -> Result<usize, DriverError> {
        let view = self.memory.view();
        let every = self.config.report_every;
        let mut taken = 0;
        for frame in frames {
            if !self.tx.queue(&view, frame, opts, every)? {
                self.tx.reclaim(&view)?;
                if !self.tx.queue(&view, frame, opts, every)? {
                    break;
                }
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Queues `count` frames of `len` bytes whose bytes already lie in the buffers
    /// ([`Driver::fill_buffers`]), after `patch` had a look at each: it gets the frame's number
    /// and its address. The way of a packet generator: nothing is copied. Returns how many there
    /// was room for.
    ///
    /// # Errors
    /// When `len` does not fit one buffer or the driver's memory is gone.
    pub fn queue_in_place(
        &mut self,
        count: usize,
        len: u32,
        mut patch: impl FnMut(usize, u64, &View<'_>) -> Result<(), BusError>,
    ) -> Result<usize, DriverError> {
        if len == 0 || len > self.tx.slot {
            return Err(DriverError::Frame("it does not fit a buffer"));
        }
        let view = self.memory.view();
        let every = self.config.report_every;
        if (self.tx.free() as usize) < count {
            self.tx.reclaim(&view)?;
        }
        let count = count.min(self.tx.free() as usize);
        let mut block = [0u8; BLOCK * desc::SIZE as usize];
        let mut number = 0;
        while number < count {
            // Descriptors are put down in runs, up to the end of the ring.
            let first = self.tx.tail;
            let run = BLOCK
                .min(count - number)
                .min((self.tx.count - first) as usize);
            let block = &mut block[..run * desc::SIZE as usize];
            for raw in block.chunks_exact_mut(desc::SIZE as usize) {
                let addr = self.tx.buffer(self.tx.tail);
                patch(number, addr, &view)?;
                let report = self.tx.report_bit(Report::Every, 1, every);
                let legacy = Legacy {
                    addr,
                    len: len as u16,
                    cmd: cmd::EOP | cmd::IFCS | report,
                    ..Legacy::default()
                };
                raw.copy_from_slice(&legacy.raw());
                self.tx.note(report != 0);
                number += 1;
            }
            let at = self.tx.ring.iova + u64::from(first) * desc::SIZE;
            view.write(at, block).map_err(BusError::from)?;
        }
        Ok(count)
    }

    /// Copies `bytes` to the start of every transmit buffer. Only while nothing is queued.
    ///
    /// # Errors
    /// When `bytes` do not fit one buffer or the driver's memory is gone.
    pub fn fill_buffers(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        if bytes.len() > self.tx.slot as usize {
            return Err(DriverError::Frame("it does not fit a buffer"));
        }
        let view = self.memory.view();
        for index in 0..self.tx.count {
            view.write(self.tx.buffer(index), bytes)
                .map_err(BusError::from)?;
        }
        Ok(())
    }

    /// Puts one descriptor of the caller's making into the ring; `reported` when it asks for
    /// status. `false` when there is no room.
    ///
    /// # Errors
    /// When the driver's memory is gone.
    pub fn queue_raw(&mut self, raw: &Raw, reported: bool) -> Result<bool, DriverError> {
        if self.tx.free() == 0 {
            return Ok(false);
        }
        let view = self.memory.view();
        self.tx.push(&view, raw, reported)?;
        Ok(true)
    }

    /// Tells the device of what was queued since the last time: one write of TDT, or none.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn kick(&mut self) -> Result<(), DriverError> {
        if self.tx.kicked != self.tx.tail {
            self.tx.kicked = self.tx.tail;
            self.bus.write32(regs::TDT, self.tx.tail)?;
        }
        Ok(())
    }

    /// Takes back descriptors reported done. Returns how many.
    ///
    /// # Errors
    /// When the driver's memory is gone.
    pub fn reclaim(&mut self) -> Result<u32, DriverError> {
        let view = self.memory.view();
        Ok(self.tx.reclaim(&view)?)
    }

    /// Takes back everything before TDH, reported or not. Returns how many.
    ///
    /// # Errors
    /// When the device is gone or TDH lies outside the ring.
    pub fn reclaim_by_head(&mut self) -> Result<u32, DriverError> {
        let value = self.bus.read32(regs::TDH)?;
        if value >= self.tx.count {
            return Err(DriverError::Timeout {
                what: "TDH within the ring",
                value,
            });
        }
        let before = self.tx.in_use();
        self.tx.clean = value;
        // Reports asked for before the head have been passed.
        let (count, tail, used) = (self.tx.count, self.tx.tail, self.tx.in_use());
        self.tx
            .reports
            .retain(|&index| (tail + count - index - 1) % count < used);
        Ok(before.saturating_sub(used))
    }

    /// Descriptors the device has not reported done yet.
    pub fn tx_pending(&self) -> u32 {
        self.tx.in_use()
    }

    /// Descriptors that can be queued now.
    pub fn tx_free(&self) -> u32 {
        self.tx.free()
    }
}
