//! What hostile VMMs do at the vhost-user socket of a virtio-net.

mod messages;
mod rings;
mod stage;
mod table;

use std::path::Path;
use std::time::Duration;

use drivers::BusError;

use crate::front_end::FrontEnd;
use crate::vmm::own;
use stage::Guest;
pub(crate) use table::FRONT;

/// The next good request: a back end answers, takes memory and rings, and sends a frame. Returns the frame, to be compared
/// at the other end, and how long the first answer took.
///
/// # Errors
/// Says what did not work.
pub fn next_good_request(path: &Path) -> Result<(Vec<u8>, Duration), BusError> {
    let front = FrontEnd::new(path);
    let (mut guest, answered) = Guest::timed(&front)?;
    let mut frame = vec![0xff; 60];
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x78]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].fill(0x5a);
    guest.send(&frame)?;
    for _ in 0..1000 {
        if guest.used(stage::TX) == 1 {
            return Ok((frame, answered));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(own("a frame sent is never used"))
}
