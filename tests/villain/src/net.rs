//! What hostile guests do with a virtio-net.

mod commands;
mod packed;
mod registers;
mod rings;
mod stage;
mod table;

use std::time::Duration;

use drivers::{Bus, BusError};

use stage::{BUFFER, Net, PLAIN, STATUS, TX};
pub(crate) use table::NET;

/// Whether the device still answers.
///
/// # Errors
/// When it is gone.
pub fn is_there(bus: &mut dyn Bus) -> Result<bool, BusError> {
    let mut status = [0];
    bus.bar_read(0, STATUS, &mut status)?;
    Ok(status[0] != 0xff)
}

/// The next good request of a virtio-net: registers answer, and after a reset a driver comes up, its frame is sent and
/// reported. Returns the frame, to be compared at the other end.
///
/// # Errors
/// Says what did not work.
pub fn next_good_request(bus: &mut dyn Bus) -> Result<Vec<u8>, BusError> {
    if !is_there(bus)? {
        return Err(BusError::Gone("the status reads all ones".into()));
    }
    let mut net = Net::start(bus, PLAIN)?;
    let mut frame = vec![0xff; 60];
    frame[6..12].copy_from_slice(&net.mac()?);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].fill(0x5a);
    net.put(BUFFER, &[&[0; 12][..], &frame].concat())?;
    let parts = [(net.at(BUFFER), 72, 0)];
    net.give(TX, &parts)?;
    net.kick(TX)?;
    for _ in 0..1000 {
        if net.used(TX)? == 1 {
            net.leave()?;
            return Ok(frame);
        }
        // A model by itself moves when it is accessed; a device when its time has come.
        net.bus.delay(Duration::from_millis(1))?;
        net.status()?;
    }
    Err(BusError::Gone("a frame sent is never reported".into()))
}
