//! The way in: one read per frame into a packed buffer, one delivery per batch.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::Sink;
use port::answer::Prompt;
use port::{Backlog, Inlet, InletStatus, Interest, vnet};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use wire::Offload;

use crate::count;
use crate::queue::Queue;

/// The largest thing a TAP hands over: a 64 KiB IP packet, its Ethernet and VLAN headers and the
/// `virtio_net_hdr`, and one byte more so that a longer one is noticed.
const MAX_READ: usize = 65536 + 32 + vnet::LONG * 2 + 1;
/// Several large frames, or a whole batch of ordinary ones.
const CAPACITY: usize = 512 * 1024;
/// Frames read before they are passed on, so that the receiver starts while we read.
const BURST: usize = 64;

pub struct TapInlet {
    queue: Arc<Queue>,
    backlog: Backlog,
    others: Vec<TapInlet>,
    /// Frames passed on.
    passed: u64,
}

enum Fill {
    /// The kernel has no more.
    Empty,
    /// We have enough.
    Enough,
    /// The interface is not there any more.
    Gone(io::Error),
}

impl TapInlet {
    pub fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            backlog: Backlog::new(CAPACITY, MAX_READ),
            others: Vec::new(),
            passed: 0,
        }
    }

    /// The first of several queues.
    pub fn with_others(self, others: Vec<TapInlet>) -> Self {
        Self { others, ..self }
    }

    /// Reads up to `max` frames into the backlog.
    fn fill(&mut self, max: usize) -> Fill {
        let Self { queue, backlog, .. } = self;
        let (mut calls, mut bad) = (0, 0);
        let mut left = max;
        let result = loop {
            if left == 0 {
                break Fill::Enough;
            }
            let Some(room) = backlog.room() else {
                break Fill::Enough;
            };
            calls += 1;
            left -= 1;
            // A worker may read for an answer, and this is the call with which it reads other things too. That offset is
            // none.
            let into = &mut [IoSliceMut::new(&mut *room)];
            let n = match preadv2(&queue.fd, into, u64::MAX, ReadWriteFlags::empty()) {
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                // FAULT is how the kernel ends a read on an interface that was just detached.
                Err(e @ (Errno::BADFD | Errno::NODEV | Errno::NXIO | Errno::FAULT)) => {
                    break Fill::Gone(e.into());
                }
                // Down or empty: both end when the descriptor becomes readable.
                Err(_) => break Fill::Empty,
            };
            let notes = if n == 0 {
                break Fill::Empty;
            } else if n >= MAX_READ || n <= queue.hdr_len {
                None
            } else if queue.hdr_len == 0 {
                Some(Offload::NONE)
            } else {
                let (head, frame) = room[..n].split_at(queue.hdr_len);
                vnet::decode(head, frame, frame.len())
            };
            match notes {
                Some(notes) => backlog.commit(queue.hdr_len, n, notes),
                None => bad += 1,
            }
        };
        queue.tally.add(count::SYSCALLS, calls);
        queue.tally.add(count::BAD_HEADER, bad);
        result
    }

    /// Whether everything read has been taken.
    fn flush(&mut self, to: &dyn Sink) -> bool {
        let done = self.backlog.flush(to);
        self.passed += done.frames;
        let tally = &self.queue.tally;
        tally.add(count::FRAMES_IN, done.frames);
        tally.add(count::BYTES_IN, done.bytes);
        tally.add(count::SINK_CANNOT_TAKE, done.unfinished);
        self.backlog.is_empty()
    }
}

impl Inlet for TapInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        add(Interest {
            fd: self.queue.fd.as_fd(),
            read: true,
            write: false,
        });
    }

    fn prompt(&self) -> Option<Arc<dyn Prompt>> {
        Some(Arc::clone(&self.queue) as Arc<dyn Prompt>)
    }

    fn passed(&self) -> u64 {
        self.passed
    }

    fn split(&mut self) -> Vec<Box<dyn Inlet>> {
        let others = std::mem::take(&mut self.others).into_iter();
        others
            .map(|other| Box::new(other) as Box<dyn Inlet>)
            .collect()
    }

    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        let mut left = budget.max(1);
        loop {
            if !self.flush(to) {
                return InletStatus::Blocked;
            }
            if left == 0 {
                return InletStatus::More;
            }
            let burst = left.min(BURST);
            let filled = self.fill(burst);
            left -= burst;
            match filled {
                Fill::Enough => {}
                Fill::Empty if self.flush(to) => return InletStatus::Idle,
                Fill::Empty => return InletStatus::Blocked,
                Fill::Gone(error) => {
                    self.flush(to);
                    self.queue.gone.store(true, Ordering::Relaxed);
                    return InletStatus::Closed(format!(
                        "the interface is gone ({error}); make it again and restart this port"
                    ));
                }
            }
        }
    }
}
