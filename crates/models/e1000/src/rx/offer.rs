//! Where a frame goes: into the ring, into the FIFO, back to its sender.

use std::cell::Cell;

use datapath::{FCS, MIN_FRAME, possible};
use frame::{Batch, Caps, Frame, expand};

use crate::core::fifo::Fifo;
use crate::core::rx_queue::RxState;
use crate::core::stats::Stat;
use crate::filter::address as filter;
use crate::rx::call::{Outcome, Rx, TAKES};
use crate::rx::l2_filter::Accepted;
use datapath::counters::count;

thread_local! {
    /// Storage for expanded frames; batches are bound to a thread.
    static SPARE: Cell<Batch<'static>> = Cell::default();
    /// The same for frames on their way into or out of the FIFO, which may be expanded ones.
    static WAITING: Cell<Batch<'static>> = Cell::default();
}

impl Rx<'_, '_> {
    /// Moves frames from the FIFO into the ring, oldest first.
    pub(crate) fn drain(&mut self, state: &mut RxState) {
        let fifo = &mut state.fifo;
        while self.free > 0 && !fifo.is_empty() {
            let memory = self.chip.packet_buffer.lock();
            let mut out = WAITING.take().recycle();
            fifo.front(&memory, &mut out);
            let placed = out.get(0).map_or(Outcome::Lost, |frame| {
                let accepted = self.look(&frame);
                self.put(&frame, &accepted)
            });
            WAITING.set(out.recycle());
            if let Outcome::NoRoom = placed {
                return;
            }
            fifo.pop();
            self.moved = true;
        }
    }

    /// Filters a frame and puts it into the ring or the FIFO.
    pub(crate) fn offer(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        let takes = Self::takes(frame);
        if takes.accepts(frame.notes()) {
            return self.plain(state, frame);
        }
        let mut out = SPARE.take().recycle();
        let outcome = match expand(frame, takes, &mut out) {
            Ok(_) => self.all(state, &out),
            Err(_) => {
                count(&self.chip.counters.rx_bad_offload, 1);
                Outcome::Lost
            }
        };
        SPARE.set(out.recycle());
        outcome
    }

    /// What may stay unfinished of this frame.
    fn takes(frame: &Frame<'_>) -> Caps {
        Caps {
            csum: possible(frame),
            ..TAKES
        }
    }

    /// Counts a frame that its sender gives up, as it would have come.
    pub(crate) fn lose(&mut self, frame: &Frame<'_>) {
        let takes = Self::takes(frame);
        if takes.accepts(frame.notes()) {
            if let Some(accepted) = self.accept(frame) {
                self.miss(&accepted);
            }
            return;
        }
        let mut out = SPARE.take().recycle();
        match expand(frame, takes, &mut out) {
            Ok(_) => self.miss_all(&out),
            Err(_) => count(&self.chip.counters.rx_bad_offload, 1),
        }
        SPARE.set(out.recycle());
    }

    /// All segments of a frame, or none, so that the sender can offer it again.
    fn all(&mut self, state: &mut RxState, segments: &Batch<'_>) -> Outcome {
        let size = filter::buffer_size(self.rctl);
        let each = |frame: Frame<'_>| (frame.len().max(MIN_FRAME) + 8).div_ceil(size);
        let need: usize = segments.iter().map(each).sum();
        let possible = need < self.ring.len as usize;
        if self.free > 0 {
            // Large frames come whole; they are few.
            self.free += std::mem::take(&mut self.rationed);
        }
        let fits = state.fifo.is_empty() && need <= self.free as usize;
        let lens = || segments.iter().map(|frame| frame.len() + 4);
        if !fits && !state.fifo.has_room(&self.chip.file, lens()) && possible {
            return self.refuse_or_miss(segments);
        }
        for segment in segments.iter() {
            if let Outcome::NoRoom = self.plain(state, &segment) {
                // More than ring and FIFO can ever hold, or null buffers: the rest is lost.
                count(&self.chip.counters.rx_too_large, 1);
                self.account.missed += 1;
                self.account
                    .tally
                    .missed(segment.len().max(MIN_FRAME) + FCS);
            }
        }
        Outcome::Done
    }

    /// What becomes of segments that find no room.
    fn refuse_or_miss(&mut self, segments: &Batch<'_>) -> Outcome {
        if !self.chip.drop_when_full {
            return Outcome::NoRoom;
        }
        self.miss_all(segments);
        Outcome::Lost
    }

    fn miss_all(&mut self, segments: &Batch<'_>) {
        for segment in segments.iter() {
            if let Some(accepted) = self.accept(&segment) {
                self.miss(&accepted);
            }
        }
    }

    /// One frame that needs no expansion.
    fn plain(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        let Some(accepted) = self.accept(frame) else {
            return Outcome::Lost;
        };
        if state.fifo.is_empty() {
            match self.put(frame, &accepted) {
                Outcome::NoRoom => {}
                done => return done,
            }
        }
        if self.wait(&mut state.fifo, frame) {
            return Outcome::Done;
        }
        if self.chip.drop_when_full {
            self.miss(&accepted);
            return Outcome::Lost;
        }
        Outcome::NoRoom
    }

    /// Puts a frame into the FIFO, as it is on a wire.
    fn wait(&mut self, fifo: &mut Fifo, frame: &Frame<'_>) -> bool {
        let file = &self.chip.file;
        let tag = if frame.notes().vlan.is_some() { 4 } else { 0 };
        if !fifo.has_room(file, std::iter::once(frame.len() + tag)) {
            return false;
        }
        let mut out = WAITING.take().recycle();
        let finished = expand(frame, Caps::NONE, &mut out).is_ok();
        let taken = match out.get(0).filter(|_| finished) {
            Some(whole) => fifo.push(file, &mut self.chip.packet_buffer.lock(), &whole),
            // Too short to have a header: there is nothing to finish.
            None => fifo.push(file, &mut self.chip.packet_buffer.lock(), frame),
        };
        WAITING.set(out.recycle());
        if taken {
            self.moved = true;
            self.waited += 1;
        }
        taken
    }

    /// Counts a frame that found no descriptor and no room in the FIFO (manual §13.7.5, §13.7.33).
    fn miss(&mut self, accepted: &Accepted) {
        self.account.missed += 1;
        self.account.tally.add(Stat::Rnbc, 1);
        self.account.tally.missed(accepted.on_wire);
    }
}
