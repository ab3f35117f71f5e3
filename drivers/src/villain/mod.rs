//! What a hostile guest does.
//!
//! Each [`Villain`] is a small program for a [`Bus`]. Whatever it does may cost its own NIC until
//! the next reset, and must cost nobody else anything: afterwards [`next_good_request`] must hold
//! on the same NIC, and other NICs must not have noticed.

mod e1000;
mod history;
mod kill_table;
mod setup;

use std::time::Duration;

use crate::bus::{Bus, BusError};
use crate::e1000::{Config, Driver, DriverError, TxOpts};

/// One misdeed.
#[derive(Clone, Copy)]
pub struct Villain {
    /// Stable name for reports and filters.
    pub id: &'static str,
    /// What it does, in one line.
    pub name: &'static str,
    /// Does it. Errors are the bus's: that the device does not like what it sees is no error.
    pub run: fn(&mut dyn Bus) -> Result<(), BusError>,
}

impl std::fmt::Debug for Villain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Villain").field("id", &self.id).finish()
    }
}

/// All villains of the 82540EM.
pub fn e1000() -> &'static [Villain] {
    e1000::ALL
}

/// The next good request: registers answer, and after a reset a driver comes up, its frame is
/// sent and reported. Returns the frame, for whoever watches the other end.
///
/// # Errors
/// Says what did not work.
pub fn next_good_request(bus: &mut dyn Bus) -> Result<Vec<u8>, DriverError> {
    let status = bus.read32(crate::e1000::regs::STATUS)?;
    if status == u32::MAX {
        return Err(BusError::Gone("STATUS reads all ones".into()).into());
    }
    let config = Config {
        tx_ring: 8,
        rx_ring: 16,
        refill: 8,
        report_every: 1,
        ..Config::poll()
    };
    let mut driver = Driver::new(bus, config)?;
    let mut frame = vec![0xff; 60];
    frame[6..12].copy_from_slice(&driver.mac());
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].fill(0x5a);
    driver.send(&[&frame], &TxOpts::default())?;
    for _ in 0..1000 {
        driver.reclaim()?;
        if driver.tx_pending() == 0 {
            driver.shutdown()?;
            return Ok(frame);
        }
        driver.bus_mut().delay(Duration::from_millis(1))?;
    }
    let value = driver.read(crate::e1000::regs::TDH)?;
    Err(DriverError::Timeout {
        what: "report of a frame sent",
        value,
    })
}
