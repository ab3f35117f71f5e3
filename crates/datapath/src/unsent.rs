//! Frames that are not sent, for those who look at what is lost.

use frame::{Batch, Sink};

/// Bytes that are shown of a packet that is not sent.
pub const SHOWN: usize = 256;

/// Tells the sink how a frame begins that nobody could finish, if it wants to know.
#[cold]
pub fn tell_unfinished(to: &dyn Sink, batch: &Batch<'_>, pick: u16) {
    if !to.hears_of_unsent() {
        return;
    }
    let Some(frame) = batch.get(pick.into()) else {
        return;
    };
    let mut bytes = [0; SHOWN];
    let len = frame.copy_to(0, &mut bytes);
    to.unsent("tx_unfinished", &bytes[..len]);
}
