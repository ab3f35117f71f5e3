//! The fast way: what a poll-mode driver of DPDK or netmap does, with nothing per frame but the
//! frame and its descriptor.
//!
//! Rings and buffers are found once ([`Bus::area`]) and accessed where they lie; a burst costs one
//! write of a tail register, which is one posted message. The sender's frames are made in place,
//! the receiver's are looked at in place.

mod config;
mod csb;
mod rx;
mod tx;

use std::time::Duration;

use super::config::DriverError;
use super::driver::Driver;
use super::regs::{self, cause};
use crate::bus::{Bus, Costs};

pub use config::PollConfig;
pub use rx::RxFrame;
pub use tx::{Buffer, Offload, TxFrame};

/// A NIC in poll mode.
pub struct Poll<B: Bus> {
    driver: Driver<B>,
    tx: tx::Queue,
    rx: rx::Queue,
    csb: Option<csb::Block>,
}

impl<B: Bus> Poll<B> {
    /// Brings the device up ([`Driver::new`]) and takes its rings over.
    ///
    /// # Errors
    /// As [`Driver::new`]; or the bus cannot give its memory out.
    pub fn new(mut bus: B, config: &PollConfig) -> Result<Self, DriverError> {
        let csb = if config.csb {
            Some(csb::Block::new(&mut bus, config.device.rx_ring)?)
        } else {
            None
        };
        let driver = Driver::new(bus, config.device.clone())?;
        let [tx_ring, tx_buffers] = driver.tx.memory();
        let [rx_ring, rx_buffers] = driver.rx.memory();
        let bus = driver.bus();
        let tx = tx::Queue::new(
            bus.area(tx_ring)?,
            bus.area(tx_buffers)?,
            tx_buffers.iova,
            config,
        )?;
        let rx = rx::Queue::new(
            bus.area(rx_ring)?,
            bus.area(rx_buffers)?,
            rx_buffers.iova,
            &config.device,
        );
        if let Some(csb) = &csb {
            csb.switch_on();
        }
        Ok(Self {
            driver,
            tx,
            rx,
            csb,
        })
    }

    /// The station address.
    pub fn mac(&self) -> [u8; 6] {
        self.driver.mac()
    }

    /// The driver underneath, for registers and statistics. Its own ways to send and receive must
    /// not be used.
    pub fn driver(&mut self) -> &mut Driver<B> {
        &mut self.driver
    }

    /// What it has cost so far.
    pub fn costs(&self) -> Costs {
        self.driver.bus().costs()
    }

    /// Makes up to `most` frames in place and hands them to the device with one register write.
    /// `make` gets the frame's number in this burst and its buffer, and says what was made; a
    /// frame of length 0 ends the burst. Returns how many were sent: fewer than `most` when the
    /// device holds the rest of the ring.
    ///
    /// # Errors
    /// When the device is gone, or a frame is longer than [`PollConfig::longest`].
    #[inline]
    pub fn send(
        &mut self,
        most: u32,
        make: impl FnMut(u32, &Buffer<'_>) -> TxFrame,
    ) -> Result<u32, DriverError> {
        if self.tx.short_of(most) {
            self.reclaim()?;
        }
        let sent = self.tx.fill(most, make)?;
        self.kick()?;
        Ok(sent)
    }

    /// As [`Poll::send`] without the register write.
    ///
    /// # Errors
    /// As [`Poll::send`].
    #[inline]
    pub fn queue(
        &mut self,
        most: u32,
        make: impl FnMut(u32, &Buffer<'_>) -> TxFrame,
    ) -> Result<u32, DriverError> {
        if self.tx.short_of(most) {
            self.reclaim()?;
        }
        self.tx.fill(most, make)
    }

    /// Tells the device of what was queued since the last time: one posted write, or none.
    ///
    /// # Errors
    /// When the device is gone.
    #[inline]
    pub fn kick(&mut self) -> Result<(), DriverError> {
        if let Some(tail) = self.tx.news()
            && self.csb.as_ref().is_none_or(|csb| csb.sent(tail))
        {
            self.driver.write(regs::TDT, tail)?;
        }
        Ok(())
    }

    /// Takes sent descriptors back. Returns how many frames they were.
    ///
    /// # Errors
    /// When the device is gone, or its head is outside the ring.
    pub fn reclaim(&mut self) -> Result<u32, DriverError> {
        if self.tx.by_head() {
            let head = self.head()?;
            return self.tx.reclaim_to(head);
        }
        Ok(self.tx.reclaim())
    }

    /// Whether the device has taken everything that was handed to it: a question to the device, or a
    /// look at the CSB.
    ///
    /// # Errors
    /// When it is gone.
    pub fn all_taken(&mut self) -> Result<bool, DriverError> {
        Ok(self.head()? == self.tx.tail())
    }

    fn head(&mut self) -> Result<u32, DriverError> {
        match &self.csb {
            Some(csb) => Ok(csb.head()),
            None => self.driver.read(regs::TDH),
        }
    }

    /// Fills every transmit buffer by `fill` (its number, the buffer), before anything is sent.
    pub fn prepare(&mut self, fill: impl FnMut(u32, &Buffer<'_>)) {
        self.tx.prepare(fill);
    }

    /// Frames that fit the ring now, as far as known without asking.
    pub fn room(&self) -> u32 {
        self.tx.room()
    }

    /// Shows up to `most` received frames to `each`, where they lie, and gives their buffers back
    /// in lots. Returns how many there were.
    ///
    /// # Errors
    /// When the device wrote back nonsense or is gone.
    #[inline]
    pub fn receive(
        &mut self,
        most: u32,
        each: impl FnMut(&RxFrame<'_>),
    ) -> Result<u32, DriverError> {
        let n = self.rx.look(most, each)?;
        if let Some(tail) = self.rx.news() {
            self.give(tail)?;
        }
        Ok(n)
    }

    /// Gives all buffers back at once, however few they are.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn refill(&mut self) -> Result<(), DriverError> {
        if let Some(tail) = self.rx.all_news() {
            self.give(tail)?;
        }
        Ok(())
    }

    #[inline]
    fn give(&mut self, tail: u32) -> Result<(), DriverError> {
        if self.csb.as_mut().is_none_or(|csb| csb.gave(tail)) {
            self.driver.write(regs::RDT, tail)?;
        }
        Ok(())
    }

    /// Sleeps until the device interrupts for a received frame, or for `timeout`. What came since
    /// the last look interrupts at once, so nothing is slept over. Gives all buffers back first.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, DriverError> {
        const CAUSES: u32 = cause::RXT0 | cause::RXDMT0 | cause::RXO;
        self.refill()?;
        if let Some(csb) = &mut self.csb {
            if !csb.unmasked {
                csb.unmasked = true;
                self.driver.write(regs::IMS, CAUSES)?;
            }
            if !csb.sleep(|| self.rx.has_news()) {
                return Ok(true);
            }
            let came = self.driver.bus_mut().wait_irq(timeout)?;
            csb.woken();
            if came {
                self.driver.read(regs::ICR)?;
                self.driver.bus_mut().unmask_irq()?;
            }
            return Ok(came);
        }
        self.driver.write(regs::IMS, CAUSES)?;
        let came = self.driver.bus_mut().wait_irq(timeout)?;
        if came {
            self.driver.read(regs::ICR)?;
            self.driver.write(regs::IMC, u32::MAX)?;
            self.driver.bus_mut().unmask_irq()?;
        } else {
            self.driver.write(regs::IMC, u32::MAX)?;
        }
        Ok(came)
    }

    /// Stops the device and gives all memory back. Returns the bus.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn shutdown(self) -> Result<B, DriverError> {
        let Self {
            driver,
            tx,
            rx,
            csb,
        } = self;
        drop((tx, rx));
        let mut bus = driver.shutdown()?;
        if let Some(csb) = csb {
            csb.shutdown(&mut bus)?;
        }
        Ok(bus)
    }
}
