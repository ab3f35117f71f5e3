//! What hostile guests do with an RTL8168C.

mod csb;
mod registers;
mod rings;
mod stage;
mod table;

use std::time::Duration;

use drivers::{Bus, BusError};

use stage::{BAR, BUFFERS, ISR, Rtl};
pub(crate) use table::RTL;

/// Whether the device still answers.
///
/// # Errors
/// When it is gone.
pub fn is_there(bus: &mut dyn Bus) -> Result<bool, BusError> {
    let mut isr = [0; 2];
    bus.bar_read(BAR, ISR, &mut isr)?;
    Ok(isr != [0xff; 2])
}

/// The next good request of an RTL8168C: registers answer, and after a reset a driver comes up and its frame is sent. Returns
/// the frame, to be compared at the other end.
///
/// # Errors
/// Says what did not work.
pub fn next_good_request(bus: &mut dyn Bus) -> Result<Vec<u8>, BusError> {
    if !is_there(bus)? {
        return Err(BusError::Gone("ISR reads all ones".into()));
    }
    let mut rtl = Rtl::start(bus)?;
    let mut frame = vec![0xff; 60];
    frame[6..12].copy_from_slice(&rtl.mac()?);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].fill(0x5a);
    rtl.put(BUFFERS, &frame)?;
    rtl.send(60, 0)?;
    for _ in 0..1000 {
        if rtl.is_sent(0)? {
            rtl.leave()?;
            return Ok(frame);
        }
        // A model by itself moves when it is accessed; a device when its time has come.
        rtl.bus.delay(Duration::from_millis(1))?;
        rtl.settle()?;
    }
    Err(BusError::Gone("a frame is never sent".into()))
}
