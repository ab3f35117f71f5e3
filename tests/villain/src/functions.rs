//! What hostile guests do with functions of the 82576: the physical one on its own socket, and
//! virtual ones beside others on the same chip.

mod capabilities;
mod mailbox;
mod neighbours;
mod port;
mod queues;
mod races;
mod stage;
mod table;

use std::time::Duration;

use drivers::{Bus, BusError};

use stage::Stage;
pub(crate) use table::{BOTH, PORT, VIRTUAL};

/// The next good request of a function of either kind: registers answer, and after a reset it
/// comes up, its frame is sent and reported. Returns the frame, to be compared at the other end.
///
/// # Errors
/// Says what did not work.
pub fn next_good_request(bus: &mut dyn Bus) -> Result<Vec<u8>, BusError> {
    if bus.read32(stage::STATUS)? == u32::MAX {
        return Err(BusError::Gone("STATUS reads all ones".into()));
    }
    let mut stage = Stage::new(bus)?;
    let mut frame = vec![0xff; 60];
    frame[6..12].copy_from_slice(&stage.mac);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].fill(0x5a);
    let buffer = stage.buffer.iova;
    stage.bus.dma_write(buffer, &frame)?;
    let raw = stage.data(frame.len() as u32);
    stage.send_on(&[raw])?;
    for _ in 0..1000 {
        let mut status = [0];
        let at = stage.tx.iova + 12;
        stage.bus.dma_read(at, &mut status)?;
        if status[0] & 1 != 0 {
            stage.leave()?;
            return Ok(frame);
        }
        // A model by itself moves when it is accessed; a device when its time has come.
        stage.bus.delay(Duration::from_millis(1))?;
        stage.bus.read32(stage::STATUS)?;
    }
    Err(BusError::Gone("a frame sent is never reported".into()))
}

/// Whether a VF that was shut down stays so: a reset leaves it in its PF's reset, and its registers
/// still answer.
///
/// # Errors
/// When the device is gone.
pub fn stays_down(bus: &mut dyn Bus) -> Result<bool, BusError> {
    bus.config_write(4, &6u16.to_le_bytes())?;
    bus.write32(stage::CTRL, stage::RST)?;
    for _ in 0..10 {
        if bus.read32(stage::V2PMAILBOX)? & stage::RSTI == 0 {
            return Ok(false);
        }
    }
    // What it asks for now is not heard.
    stage::post(bus, &[1])?;
    bus.delay(Duration::from_millis(5))?;
    Ok(bus.read32(stage::V2PMAILBOX)? & stage::PFSTS == 0 && bus.read32(stage::STATUS)? & 2 == 0)
}
