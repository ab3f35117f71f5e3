//! The way out: one `writev` per frame.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Batch, Caps, Frame, Sink, Wake};
use guest_mem::ReadSlice;
use port::{flow, vnet};

use crate::queue::Queue;
use crate::{count, sys};

pub struct TapSink {
    /// At least one.
    queues: Vec<Arc<Queue>>,
}

impl TapSink {
    pub fn new(queues: Vec<Arc<Queue>>) -> Self {
        Self { queues }
    }

    /// The queue for a frame: the same for all frames of a flow, so that they keep their order.
    fn queue(&self, frame: &Frame<'_>) -> &Queue {
        let at = if self.queues.len() > 1 {
            flow::spread(frame.head(), self.queues.len())
        } else {
            0
        };
        &self.queues[at]
    }
}

impl Queue {
    fn write(&self, frame: &Frame<'_>) -> io::Result<()> {
        let head = vnet::encode(frame.notes());
        let mut long = [0u8; vnet::LONG * 2];
        long[..vnet::LONG].copy_from_slice(&head);
        // Header sizes beyond the known fields are zero-filled; negotiation never asks for more.
        let head = &long[..self.hdr_len.min(long.len())];
        if frame.slices().count() > sys::MAX_PIECES {
            self.tally.add(count::COPIED, 1);
            let whole = frame.to_vec();
            let runs = std::iter::once(ReadSlice::from_bytes(&whole));
            sys::writev(&self.fd, head, runs)?;
        } else {
            sys::writev(&self.fd, head, frame.slices())?;
        }
        Ok(())
    }

    /// The counter for a frame that the kernel did not take.
    fn blame(&self, error: &io::Error) -> usize {
        match error.raw_os_error() {
            Some(libc::EBADFD | libc::ENODEV | libc::ENXIO) => {
                self.gone.store(true, Ordering::Relaxed);
                count::GONE
            }
            Some(libc::EIO | libc::ENETDOWN) => count::DOWN,
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => count::FULL,
            Some(libc::EFAULT) => count::BAD_MEMORY,
            _ => count::REFUSED,
        }
    }
}

impl Sink for TapSink {
    /// Deals with every frame: a TAP never makes its writers wait.
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let first = &*self.queues[0];
        let tally = &first.tally;
        let caps = self.caps();
        let (mut frames, mut bytes, mut calls) = (0, 0, 0);
        let mut last = None;
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else {
                continue;
            };
            if !caps.accepts(frame.notes()) {
                tally.add(count::CANNOT_TAKE, 1);
                continue;
            }
            if first.gone.load(Ordering::Relaxed) {
                tally.add(count::GONE, 1);
                continue;
            }
            calls += 1;
            let queue = self.queue(&frame);
            match queue.write(&frame) {
                Ok(()) => {
                    frames += 1;
                    bytes += frame.len() as u64;
                    last = Some(queue);
                }
                Err(e) => tally.add(queue.blame(&e), 1),
            }
        }
        tally.add(count::FRAMES_OUT, frames);
        tally.add(count::BYTES_OUT, bytes);
        tally.add(count::SYSCALLS, calls);
        if let Some(queue) = last {
            queue.answers.expect();
        }
        picks.len()
    }

    fn caps(&self) -> Caps {
        let first = &self.queues[0];
        let offload = first.hdr_len > 0;
        Caps {
            csum: offload,
            tso4: offload,
            tso6: offload,
            uso4: offload && first.uso,
            uso6: offload && first.uso,
            // Whatever the kernel sends us, it takes them.
            ecn: offload,
            ..Caps::NONE
        }
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}
