//! How packets begin that are not sent, for those who look at what is lost.

use datapath::SHOWN;
use guest_mem::View;

use crate::core::chain::Chain;

/// Packets of a turn of which it is kept; of others only the counter is told.
const KEPT: usize = 64;

/// Keeps how a buffer begins: the header, then the frame, as far as they can be read.
#[cold]
pub fn keep(all: &mut Vec<Vec<u8>>, view: &View<'_>, chain: &Chain) {
    let mut bytes = Vec::new();
    if all.len() < KEPT {
        bytes.resize(SHOWN, 0);
        let mut len = 0;
        for part in chain.readable() {
            let want = (part.len as usize).min(SHOWN - len);
            if view.read(part.at, &mut bytes[len..len + want]).is_err() {
                break;
            }
            len += want;
        }
        bytes.truncate(len);
    }
    all.push(bytes);
}
