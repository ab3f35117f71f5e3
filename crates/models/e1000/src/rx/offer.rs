//! Where a frame goes: into the ring, into the FIFO, back to its sender.

use std::cell::Cell;

use datapath::counters::count;
use datapath::{FCS, MIN_FRAME, Offered, buffers_for, with_expanded};
use frame::{Batch, Caps, Frame, expand};

use crate::core::fifo::Fifo;
use crate::core::rx_queue::RxState;
use crate::filter::address::buffer_size;
use crate::rx::call::{Excess, Outcome, Rx};
use crate::rx::writer::Writer;

thread_local! {
    /// Storage for frames on their way into or out of the FIFO, which may be expanded ones.
    static WAITING: Cell<Batch<'static>> = Cell::default();
}

impl Rx<'_, '_> {
    /// Moves frames from the FIFO into the ring, oldest first.
    pub(crate) fn drain(&mut self, state: &mut RxState) {
        let fifo = &mut state.fifo;
        while self.writer.room.free > 0 && !fifo.is_empty() {
            let memory = self.call.chip.packet_buffer.lock();
            let mut out = WAITING.take().recycle();
            fifo.front(&memory, &mut out);
            let placed = out.get(0).map_or(Outcome::Lost, |frame| {
                let accepted = self.call.look(&frame);
                self.put(&frame, &accepted)
            });
            WAITING.set(out.recycle());
            if let Outcome::NoRoom = placed {
                return;
            }
            fifo.pop();
            self.counts.moved = true;
        }
    }

    /// Filters a frame and puts it into the ring or the FIFO.
    pub(crate) fn offer(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        with_expanded(frame, |offered| match offered {
            Offered::Whole => self.plain(state, frame),
            Offered::Expanded(frames) => self.all(state, frames),
            Offered::Invalid => {
                count(&self.call.chip.counters.rx_bad_offload, 1);
                Outcome::Lost
            }
        })
    }

    /// Counts a frame that its sender gives up, as it would have come.
    pub(crate) fn lose(&mut self, frame: &Frame<'_>) {
        with_expanded(frame, |offered| match offered {
            Offered::Whole => self.miss(frame),
            Offered::Expanded(frames) => self.miss_all(frames),
            Offered::Invalid => count(&self.call.chip.counters.rx_bad_offload, 1),
        });
    }

    /// All segments of a frame, or none, so that the sender can offer it again.
    fn all(&mut self, state: &mut RxState, segments: &Batch<'_>) -> Outcome {
        let need = buffers_for(segments, buffer_size(self.call.rctl));
        let possible = need < self.writer.room.ring.len as usize;
        let Writer { room, rationed, .. } = &mut self.writer;
        if room.free > 0 {
            // Large frames come whole; they are few.
            room.free += std::mem::take(rationed);
        }
        let fits = state.fifo.is_empty() && need <= room.free as usize;
        let lens = segments.iter().map(|frame| frame.len() + 4);
        let stored = || state.fifo.has_room(&self.call.chip.file, lens);
        if !fits && possible && (self.leaves() || !stored()) {
            return self.refuse_or_miss(segments);
        }
        // The frame is taken: none of its segments stays with the sender.
        let excess = std::mem::replace(&mut self.call.excess, Excess::IntoFifo);
        for segment in segments.iter() {
            if let Outcome::NoRoom = self.plain(state, &segment) {
                // More than ring and FIFO can ever hold, or null buffers: the rest is lost.
                count(&self.call.chip.counters.rx_too_large, 1);
                self.counts.miss(segment.len().max(MIN_FRAME) + FCS);
            }
        }
        self.call.excess = excess;
        Outcome::Done
    }

    /// Whether what finds no room stays with its sender.
    fn leaves(&self) -> bool {
        self.call.excess == Excess::Left && !self.call.chip.drop_when_full
    }

    /// What becomes of segments that find no room.
    fn refuse_or_miss(&mut self, segments: &Batch<'_>) -> Outcome {
        if !self.call.chip.drop_when_full {
            return Outcome::NoRoom;
        }
        self.miss_all(segments);
        Outcome::Lost
    }

    fn miss_all(&mut self, segments: &Batch<'_>) {
        for segment in segments.iter() {
            self.miss(&segment);
        }
    }

    /// Counts a frame that is not taken, if it would have been let in.
    fn miss(&mut self, frame: &Frame<'_>) {
        if let Some(accepted) = self.counts.accept(&self.call, frame) {
            self.counts.miss_without_buffer(accepted.on_wire);
        }
    }

    /// One frame that needs no expansion.
    fn plain(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        let Some(accepted) = self.counts.accept(&self.call, frame) else {
            return Outcome::Lost;
        };
        if state.fifo.is_empty() {
            match self.put(frame, &accepted) {
                Outcome::NoRoom => {}
                done => return done,
            }
        }
        // What the ring never holds goes the way it goes on a wire, or its sender would wait for nothing.
        let buffers = accepted.on_wire.div_ceil(buffer_size(self.call.rctl));
        let possible = buffers < self.writer.room.ring.len as usize;
        if !(possible && self.leaves()) && self.wait(&mut state.fifo, frame) {
            return Outcome::Done;
        }
        if self.call.chip.drop_when_full {
            self.counts.miss_without_buffer(accepted.on_wire);
            return Outcome::Lost;
        }
        Outcome::NoRoom
    }

    /// Puts a frame into the FIFO, as it is on a wire.
    fn wait(&mut self, fifo: &mut Fifo, frame: &Frame<'_>) -> bool {
        let file = &self.call.chip.file;
        let tag = if frame.notes().vlan.is_some() { 4 } else { 0 };
        if !fifo.has_room(file, std::iter::once(frame.len() + tag)) {
            return false;
        }
        let mut out = WAITING.take().recycle();
        let finished = expand(frame, Caps::NONE, &mut out).is_ok();
        let taken = match out.get(0).filter(|_| finished) {
            Some(whole) => fifo.push(file, &mut self.call.chip.packet_buffer.lock(), &whole),
            // Too short to have a header: there is nothing to finish.
            None => fifo.push(file, &mut self.call.chip.packet_buffer.lock(), frame),
        };
        WAITING.set(out.recycle());
        if taken {
            self.counts.moved = true;
            self.counts.waited += 1;
        }
        taken
    }
}
