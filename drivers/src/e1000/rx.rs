//! Receiving.

pub(super) mod ring;

use self::ring::{CRC, LOOK, Ring, RxFrame};
use super::config::{DriverError, receive_control};
use super::desc::{self, Receive, rx_status};
use super::driver::Driver;
use super::regs::{self, rctl, rxcsum};
use crate::bus::Bus;

impl<B: Bus> Driver<B> {
    /// Programs the receive side with the current ring, and enables it.
    pub(super) fn start_rx(&mut self) -> Result<(), DriverError> {
        let ring = self.rx.ring;
        let length = self.rx.count * desc::SIZE as u32;
        let sums = if self.config.rx_sums {
            rxcsum::IPOFL | rxcsum::TUOFL
        } else {
            0
        };
        for (register, value) in [
            (regs::RDTR, self.config.rdtr),
            (regs::RADV, self.config.radv),
            (regs::ITR, self.config.itr),
            (regs::RDBAL, ring.iova as u32),
            (regs::RDBAH, (ring.iova >> 32) as u32),
            (regs::RDLEN, length),
            (regs::RDH, 0),
            (regs::RDT, 0),
            (regs::RXCSUM, sums),
        ] {
            self.bus.write32(register, value)?;
        }
        let control = receive_control(&self.config)?;
        self.bus.write32(regs::RCTL, control | rctl::EN)?;
        self.rx.refill = 0;
        self.rx.next = 0;
        self.rx.parts.clear();
        Ok(self.bus.write32(regs::RDT, self.rx.count - 1)?)
    }

    /// Stops receiving (RCTL.EN).
    ///
    /// # Errors
    /// When the device is gone.
    pub fn stop_rx(&mut self) -> Result<(), DriverError> {
        let value = self.bus.read32(regs::RCTL)?;
        self.bus.write32(regs::RCTL, value & !rctl::EN)?;
        self.bus.read32(regs::STATUS)?;
        Ok(())
    }

    /// Stops receiving and starts again with a new ring elsewhere in memory, without a reset.
    /// Frames still in the old ring are lost.
    ///
    /// # Errors
    /// When there is no memory or the device is gone.
    pub fn restart_rx(&mut self, count: u32, buffer: u32) -> Result<(), DriverError> {
        self.stop_rx()?;
        self.config.rx_ring = count;
        self.config.rx_buffer = buffer;
        let old = self.rx.memory();
        self.rx = Ring::new(&mut self.bus, &self.config)?;
        self.start_rx()?;
        for dma in old {
            self.bus.free(dma)?;
        }
        Ok(())
    }

    /// Receives up to `budget` frames, showing each to `each` while it lies in the buffers.
    /// Returns how many. Gives buffers back in lots of [`Config::refill`].
    ///
    /// # Errors
    /// When the device wrote back nonsense or is gone.
    pub fn poll_rx(
        &mut self,
        budget: usize,
        mut each: impl FnMut(&RxFrame<'_>),
    ) -> Result<usize, DriverError> {
        let mut frames = 0;
        let mut raws = [[0; 16]; LOOK];
        let mut tail = None;
        let view = self.memory.view();
        'rounds: while frames < budget {
            let rx = &mut self.rx;
            let first = (rx.next + rx.parts.len() as u32) % rx.count;
            let done = rx.look(&view, first, &mut raws)?;
            if done == 0 {
                break;
            }
            for (index, raw) in (first..).zip(&raws[..done]) {
                let descriptor = Receive::parse(raw);
                let sane = u32::from(descriptor.len) <= rx.slot
                    && descriptor.addr == rx.buffer(index)
                    && rx.parts.len() < rx.count as usize;
                if !sane {
                    return Err(DriverError::Descriptor {
                        index,
                        descriptor: *raw,
                    });
                }
                rx.parts.push((descriptor.addr, descriptor.len.into()));
                if descriptor.status & rx_status::EOP == 0 {
                    continue;
                }
                let sum: usize = rx.parts.iter().map(|&(_, len)| len as usize).sum();
                let crc = if self.config.strip_crc { 0 } else { CRC };
                each(&RxFrame {
                    view: &view,
                    parts: &rx.parts,
                    len: sum.saturating_sub(crc),
                    last: descriptor,
                });
                rx.recycle(&view)?;
                frames += 1;
                if rx.held() >= self.config.refill {
                    rx.refill = rx.next;
                    tail = Some((rx.next + rx.count - 1) % rx.count);
                }
                if frames == budget {
                    break 'rounds;
                }
            }
        }
        drop(view);
        if let Some(tail) = tail {
            self.bus.write32(regs::RDT, tail)?;
        }
        Ok(frames)
    }

    /// Receives everything there is; for tests and slow paths.
    ///
    /// # Errors
    /// As [`Driver::poll_rx`].
    pub fn receive(&mut self) -> Result<Vec<Vec<u8>>, DriverError> {
        let mut frames = Vec::new();
        self.poll_rx(usize::MAX, |frame| frames.push(frame.to_vec()))?;
        Ok(frames)
    }

    /// Gives all held buffers back at once.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn refill_rx(&mut self) -> Result<(), DriverError> {
        if self.rx.held() > 0 {
            self.rx.refill = self.rx.next;
            let tail = (self.rx.next + self.rx.count - 1) % self.rx.count;
            self.bus.write32(regs::RDT, tail)?;
        }
        Ok(())
    }
}
