//! The way from the guests: a copy into a bounded queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Batch, Caps, Sink, Wake};

use crate::config::MTU;
use crate::count;
use crate::queue::{QUEUE_FRAMES, UserQueue};

/// An Ethernet header and one VLAN tag.
const L2_MAX: usize = 18;

pub struct UserSink {
    shared: Arc<UserQueue>,
}

impl UserSink {
    pub fn new(shared: Arc<UserQueue>) -> Self {
        Self { shared }
    }
}

impl Sink for UserSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let tally = &self.shared.tally;
        if self.shared.closed.load(Ordering::Acquire) {
            tally.add(count::CLOSED, picks.len() as u64);
            return picks.len();
        }
        let (mut frames, mut bytes, mut done) = (0, 0, 0);
        let mut queue = self.shared.queue.lock();
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else {
                done += 1;
                continue;
            };
            if !frame.notes().is_plain() {
                tally.add(count::CANNOT_TAKE, 1);
            } else if frame.len() > MTU + L2_MAX {
                tally.add(count::TOO_LONG, 1);
            } else if queue.lens.len() >= QUEUE_FRAMES {
                if !self.shared.stalled.load(Ordering::Acquire) {
                    break;
                }
                // A guest that does not receive must not stop itself, or others, from sending.
                tally.add(count::IN_FULL, 1);
            } else {
                let start = queue.bytes.len();
                queue.bytes.resize(start + frame.len(), 0);
                let n = frame.copy_to(0, &mut queue.bytes[start..]);
                queue.bytes.truncate(start + n);
                queue.lens.push(n as u16);
                frames += 1;
                bytes += n as u64;
            }
            done += 1;
        }
        drop(queue);
        tally.add(count::FRAMES_OUT, frames);
        tally.add(count::BYTES_OUT, bytes);
        if frames > 0 {
            self.shared.bell.ring();
        }
        done
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.shared.waiters.add(waker);
    }
}
