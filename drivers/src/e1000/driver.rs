//! The driver, and what it does beside sending and receiving.

use std::time::Duration;

use guest_mem::Memory;

use super::config::{Config, DriverError};
use super::regs::{self, STATISTICS, Statistic};
use super::rx::ring::RxFrame;
use crate::bus::{Bus, BusError};

/// The driver of one device.
pub struct Driver<B: Bus> {
    pub(super) bus: B,
    pub(super) memory: Memory,
    pub(super) config: Config,
    pub(super) mac: [u8; 6],
    pub(super) tx: super::tx::ring::Ring,
    pub(super) rx: super::rx::ring::Ring,
    pub(super) totals: [u64; STATISTICS.len()],
}

impl<B: Bus> Driver<B> {
    /// The station address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The bus.
    pub fn bus(&self) -> &B {
        &self.bus
    }

    /// The bus, to do what a driver would not.
    pub fn bus_mut(&mut self) -> &mut B {
        &mut self.bus
    }

    /// Reads a register.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn read(&mut self, register: u32) -> Result<u32, DriverError> {
        Ok(self.bus.read32(register)?)
    }

    /// Writes a register.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn write(&mut self, register: u32, value: u32) -> Result<(), DriverError> {
        Ok(self.bus.write32(register, value)?)
    }

    /// Waits for an interrupt and handles it as NAPI does: read the causes, mask, receive until
    /// nothing is left, reclaim, unmask. Returns the causes (0 when the interrupt was another
    /// device's), or nothing when `timeout` passed.
    ///
    /// # Errors
    /// When the device is gone or writes back nonsense.
    pub fn service(
        &mut self,
        timeout: Duration,
        each: impl FnMut(&RxFrame<'_>),
    ) -> Result<Option<u32>, DriverError> {
        if !self.bus.wait_irq(timeout)? {
            return Ok(None);
        }
        let causes = self.bus.read32(regs::ICR)?;
        if causes != 0 {
            self.bus.write32(regs::IMC, u32::MAX)?;
            self.bus.read32(regs::STATUS)?;
        }
        self.bus.unmask_irq()?;
        if causes != 0 {
            self.reclaim()?;
            self.poll_rx(usize::MAX, each)?;
            self.bus.write32(regs::IMS, self.config.causes)?;
        }
        Ok(Some(causes))
    }

    /// Reads all statistics counters and adds them to the totals.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn update_statistics(&mut self) -> Result<(), DriverError> {
        for (total, statistic) in self.totals.iter_mut().zip(STATISTICS) {
            *total += read_statistic(&mut self.bus, statistic)?;
        }
        Ok(())
    }

    /// Total of the counter with this name (the manual's, in lower case; 64-bit ones without
    /// their L and H) as of the last [`Driver::update_statistics`].
    pub fn statistic(&self, name: &str) -> Option<u64> {
        let at = STATISTICS.iter().position(|s| s.name == name)?;
        Some(self.totals[at])
    }

    /// Stops the device and gives all memory back. Returns the bus.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn shutdown(mut self) -> Result<B, DriverError> {
        self.bus.write32(regs::IMC, u32::MAX)?;
        let rctl = self.bus.read32(regs::RCTL)?;
        self.bus.write32(regs::RCTL, rctl & !regs::rctl::EN)?;
        let tctl = self.bus.read32(regs::TCTL)?;
        self.bus.write32(regs::TCTL, tctl & !regs::tctl::EN)?;
        self.bus.read32(regs::STATUS)?;
        for dma in self.tx.memory().into_iter().chain(self.rx.memory()) {
            self.bus.free(dma)?;
        }
        Ok(self.bus)
    }
}

/// Reads a counter: the low half first, because the high half clears both.
fn read_statistic(bus: &mut impl Bus, statistic: Statistic) -> Result<u64, BusError> {
    let low = bus.read32(statistic.offset)?;
    let high = if statistic.wide {
        bus.read32(statistic.offset + 4)?
    } else {
        0
    };
    Ok(u64::from(high) << 32 | u64::from(low))
}
