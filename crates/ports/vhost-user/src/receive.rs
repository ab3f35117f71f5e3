//! The way in: from buffers of a receive ring.

use std::collections::VecDeque;

use frame::{Batch, Finisher, MAX_BATCH, Sink};
use guest_mem::View;
use port::{InletStatus, vnet};
use wire::{Gso, Offload};

use crate::count;
use crate::ring::{BUFFER, Broken, SIZE};
use crate::session::Side;
use crate::shared::Shared;

const ETH_HLEN: usize = 14;

/// A frame in buffers that the back end does not have.
struct Held {
    buffers: usize,
    len: usize,
    notes: Offload,
}

/// The receive side of a session.
pub struct In {
    pub side: Side,
    merges: bool,
    /// Buffers of the frames that are held, and the bytes in each.
    buffers: VecDeque<(u16, u32)>,
    held: VecDeque<Held>,
    batch: Batch<'static>,
    picks: Vec<u16>,
    finisher: Finisher,
}

impl In {
    pub fn new(side: Side, merges: bool) -> Self {
        Self {
            side,
            merges,
            buffers: VecDeque::with_capacity(SIZE.into()),
            held: VecDeque::with_capacity(MAX_BATCH),
            batch: Batch::new(),
            picks: Vec::new(),
            finisher: Finisher::new(),
        }
    }

    /// Frames that have come and are not passed on.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Gives the back end all buffers.
    pub fn begin(&mut self, shared: &Shared) -> Result<(), Broken> {
        let memory = self.side.memory.clone();
        let view = memory.view();
        for buffer in 0..SIZE {
            self.side
                .ring
                .offer(&view, &[buffer], BUFFER as u32, true)?;
        }
        self.publish(&view, shared)
    }

    fn publish(&mut self, view: &View<'_>, shared: &Shared) -> Result<(), Broken> {
        if self.side.ring.publish(view)? {
            shared.tally.add(count::KICKS, 1);
            self.side.kick();
        }
        Ok(())
    }

    /// Gives the back end the first buffers back.
    fn recycle(&mut self, view: &View<'_>, buffers: usize) -> Result<(), Broken> {
        for (buffer, _) in self.buffers.drain(..buffers) {
            self.side.ring.offer(view, &[buffer], BUFFER as u32, true)?;
        }
        Ok(())
    }

    /// Takes the next frame from the ring. `false`: there is none.
    fn collect(&mut self, view: &View<'_>, shared: &Shared) -> Result<bool, Broken> {
        let Some(first) = self.side.ring.take(view)? else {
            return Ok(false);
        };
        let mut header = [0; vnet::LONG + vnet::HEADERS];
        view.read(self.side.ring.buffer(first.head), &mut header)?;
        let (header, head) = header.split_at(vnet::LONG);
        let count = if self.merges {
            usize::from(u16::from_le_bytes([header[10], header[11]]))
        } else {
            1
        };
        let mut used = first;
        let mut total = 0;
        for n in 1.. {
            if u64::from(used.len) > BUFFER {
                return Err(Broken);
            }
            self.buffers.push_back((used.head, used.len));
            total += used.len as usize;
            if n >= count {
                break;
            }
            // All buffers of a frame come together.
            used = self.side.ring.take(view)?.ok_or(Broken)?;
        }
        let buffers = count.max(1);
        let in_first = first.len as usize;
        let len = total.saturating_sub(vnet::LONG);
        let known = head.len().min(in_first.saturating_sub(vnet::LONG));
        let notes = if in_first < vnet::LONG || len < ETH_HLEN {
            shared.tally.add(count::RUNT, 1);
            None
        } else {
            // Datagrams to be cut were not agreed upon.
            let notes = vnet::decode(header, &head[..known], len)
                .filter(|notes| !matches!(notes.gso, Gso::Udp4 | Gso::Udp6));
            shared.tally.add(count::BAD_HEADER, notes.is_none().into());
            notes
        };
        match notes {
            Some(notes) => self.held.push_back(Held {
                buffers,
                len,
                notes,
            }),
            // Its buffers are the last ones.
            None => {
                let from = self.buffers.len() - buffers;
                for (buffer, _) in self.buffers.drain(from..) {
                    self.side.ring.offer(view, &[buffer], BUFFER as u32, true)?;
                }
            }
        }
        Ok(true)
    }

    /// Passes what has come to `to`, at most about `budget` frames.
    pub fn run(
        &mut self,
        shared: &Shared,
        to: &dyn Sink,
        budget: usize,
    ) -> Result<InletStatus, Broken> {
        let memory = self.side.memory.clone();
        let view = memory.view();
        let mut left = budget.max(1);
        self.side.ring.no_call(&view)?;
        loop {
            let mut taken = 0;
            while self.held.len() < MAX_BATCH && taken < 2 * MAX_BATCH {
                if !self.collect(&view, shared)? {
                    break;
                }
                taken += 1;
            }
            if self.held.is_empty() {
                // What was not passed on is given back, too.
                self.publish(&view, shared)?;
                if taken == 0 && !self.side.ring.want_call(&view)? {
                    return Ok(InletStatus::Idle);
                }
                left = left.saturating_sub(taken);
            } else {
                let offered = self.held.len();
                let dealt = self.pass(&view, shared, to)?;
                self.publish(&view, shared)?;
                if dealt < offered {
                    return Ok(InletStatus::Blocked);
                }
                left = left.saturating_sub(dealt);
            }
            if left == 0 {
                return Ok(InletStatus::More);
            }
        }
    }

    /// Offers all that is held, and gives back the buffers of what was dealt with.
    fn pass(&mut self, view: &View<'_>, shared: &Shared, to: &dyn Sink) -> Result<usize, Broken> {
        let mut batch = std::mem::take(&mut self.batch).recycle();
        let mut at = 0;
        for held in &self.held {
            let mut skip = vnet::LONG as u64;
            for (buffer, len) in self.buffers.range(at..at + held.buffers) {
                let (place, len) = (self.side.ring.buffer(*buffer), u64::from(*len));
                if len > skip {
                    view.read_slices(place + skip, len - skip, &mut |slice| {
                        batch.push_slice(slice);
                    })?;
                }
                skip = 0;
            }
            batch.end(held.notes);
            at += held.buffers;
        }
        let (mut refused, mut refused_bytes) = (0, 0);
        let held = &self.held;
        let picks = batch.all_picks(&mut self.picks);
        let refuse = |pick: u16, _| {
            refused += 1;
            refused_bytes += held
                .get(usize::from(pick))
                .map_or(0, |held| held.len as u64);
        };
        let dealt = self.finisher.deliver(to, &batch, picks, refuse);
        self.batch = batch.recycle();
        let dealt = dealt.min(self.held.len());
        let (mut buffers, mut bytes) = (0, 0);
        for held in self.held.drain(..dealt) {
            buffers += held.buffers;
            bytes += held.len as u64;
        }
        self.recycle(view, buffers)?;
        shared.tally.add(count::FRAMES_IN, dealt as u64 - refused);
        shared.tally.add(count::BYTES_IN, bytes - refused_bytes);
        shared.tally.add(count::BAD_HEADER, refused);
        Ok(dealt)
    }
}
