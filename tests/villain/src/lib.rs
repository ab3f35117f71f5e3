//! What hostile guests and hostile VMMs do: a catalogue of small programs with ids.
//!
//! Each [`Villain`] is a few lines. Whatever it does may cost its own NIC until the next reset,
//! and must cost no other guest anything: afterwards [`next_good_request`] must hold on the same
//! NIC, others must not have noticed, the daemon's memory must be back where it was, and what was
//! refused must be counted under its name. The runners are in `tests/tests/villain/`;
//! `docs/villains.md` is made from the table here ([`page`]).
#![forbid(unsafe_code)]

mod catalogue;
mod config;
mod connections;
mod csb;
pub mod front;
mod front_end;
pub mod functions;
mod history;
mod kill_table;
mod maps;
pub mod net;
mod page;
mod races;
mod registers;
mod rings;
pub mod rtl;
mod stage;
mod table;
mod talk;
mod villain;
mod vmm;
mod wire;

use std::time::Duration;

use drivers::e1000::{Config, Driver, DriverError, TxOpts, regs};
use drivers::{Bus, BusError};

pub use catalogue::{all, fronts, guests, nets, pfs, rtls, vfs, vmms};
pub use front_end::FrontEnd;
pub use page::page;
pub use villain::{FrontDeed, GuestDeed, Moves, Program, VfDeed, Villain, VmmDeed};
pub use vmm::Vmm;

/// One round of the soak: memory, state and connection each end in the middle of work.
///
/// # Errors
/// When the villain's own means fail.
pub fn ends_in_the_middle(vmm: &mut Vmm, round: u32) -> Result<(), BusError> {
    connections::ends_in_the_middle(vmm, round)
}

/// The next good request: registers answer, and after a reset a driver comes up, its frame is
/// sent and reported. Returns the frame, to be compared at the other end.
///
/// # Errors
/// Says what did not work.
pub fn next_good_request(bus: &mut dyn Bus) -> Result<Vec<u8>, DriverError> {
    let status = bus.read32(regs::STATUS)?;
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
    let value = driver.read(regs::TDH)?;
    Err(DriverError::Timeout {
        what: "report of a frame sent",
        value,
    })
}
