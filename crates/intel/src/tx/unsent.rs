//! What became no frame, for those who look at what is lost.

use frame::Sink;
use guest_mem::View;

use crate::ring::{Ring, SIZE};
use crate::tx::mark::Store;
use crate::tx::parser::End;

/// Descriptors of a packet that are shown at most: its last ones.
const SHOWN: usize = 16;

/// Tells the sink what of a batch became no frame, once `taken` of its frames were taken: of each packet its descriptors, as the
/// guest has them. Before they are written back.
#[cold]
pub fn tell_unsent<C: Copy>(
    store: &Store<C>,
    (view, ring): (&View<'_>, &Ring),
    (taken, end): (usize, End),
    to: &dyn Sink,
) {
    if !to.hears_of_unsent() {
        return;
    }
    store.unsent(taken, &mut |counter, behind, descs| {
        let most = (SHOWN as u32).min(ring.len.saturating_sub(1).max(1));
        let descs = descs.clamp(1, most);
        let mut bytes = [0; SHOWN * SIZE as usize];
        let (mut at, mut len) = (ring.before(behind, descs), 0);
        for desc in bytes.chunks_exact_mut(SIZE as usize).take(descs as usize) {
            let from = ring.base.wrapping_add(u64::from(at) * SIZE);
            if view.read(from, desc).is_err() {
                break;
            }
            (at, len) = (ring.next(at), len + SIZE as usize);
        }
        to.unsent(counter, &bytes[..len]);
    });
    if end == End::Fault {
        // The descriptor itself cannot be read.
        to.unsent("tx_dma_fault", &[]);
    }
}
