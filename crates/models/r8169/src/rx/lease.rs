//! While several senders are about, each reserves descriptors under the lock and fills them without it (crate `lease`).
//!
//! Drivers go by OWN, in order: what a lease gives back before an older one does is not looked at before that. So each gives back its
//! own, and what is in order are only the ends of leases, behind which nobody takes descriptors that still have OWN.

use std::cell::Cell;

use datapath::counters::count;
use frame::Batch;
use guest_mem::View;
use lease::{Guard, Taken, Ticket};
use wire::Gso;

use crate::core::chip::Chip;
use crate::core::queues::{Group, RxState, RxTally};
use crate::filter;
use crate::rx::offer::{enter, place_wanted};
use crate::rx::place::{Placing, Settings};

/// Most frames of a lease: they have a bit each.
const MOST: usize = u64::BITS as usize;

/// The receive ring, locked.
pub(super) type Locked<'c> = Guard<'c, RxState, u32>;

thread_local! {
    /// Storage of a lease, kept from one to the next.
    static SPARE: Cell<RxState> = Cell::default();
}

/// What descriptors were counted for. Registers may say something else when they are filled, and frames that then took fewer would leave
/// some behind at which the driver stops.
struct Reserved {
    settings: Settings,
    /// The first of the frames, with those that the filter refuses.
    frames: usize,
    /// A bit for each that it does not.
    wanted: u64,
}

impl Reserved {
    /// Fills what was reserved. Returns how many frames were dealt with: fewer if descriptors are not as they were.
    fn fill(
        &self,
        chip: &Chip,
        view: &View<'_>,
        own: &mut RxState,
        (batch, picks): (&Batch<'_>, &[u16]),
    ) -> usize {
        let wanted = |at, _| self.wanted >> at & 1 != 0;
        let frames = (batch, &picks[..self.frames]);
        place_wanted((chip, view), self.settings, own, frames, wanted)
    }
}

/// An open lease: closed when it is dropped, come what may.
struct Open<'c> {
    chip: &'c Chip,
    ticket: Option<Ticket>,
    end: u32,
}

impl<'c> Open<'c> {
    /// Closes it, with the lock held.
    fn close(mut self) -> Locked<'c> {
        let mut state = self.chip.rx.lock();
        self.end(&mut state);
        state
    }

    fn end(&mut self, state: &mut Locked<'_>) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        state.close(ticket, self.end);
        while let Some(Taken::Wanted(end) | Taken::Void(end)) = state.take() {
            state.fence = Some(end);
        }
        if !state.is_out() {
            state.fence = None;
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let mut state = self.chip.rx.lock();
            self.end(&mut state);
        }
    }
}

/// Places the first of these frames without the lock, if others are about. Returns how many, and the lock.
pub(super) fn place<'c>(
    chip: &'c Chip,
    view: &View<'_>,
    mut state: Locked<'c>,
    (batch, picks): (&Batch<'_>, &[u16]),
    tally: &mut RxTally,
) -> (usize, Locked<'c>) {
    // Where words are kept, one batch is under way at a time.
    if !state.crowded() || !chip.rx_on() || chip.kept.get().is_some() {
        return (0, state);
    }
    let Some(ticket) = state.open() else {
        return (0, state);
    };
    let begin = state.next;
    let reserved = reserve(chip, view, &mut state, batch, picks);
    let end = state.next;
    let mut open = Open {
        chip,
        ticket: Some(ticket),
        end,
    };
    if reserved.wanted == 0 {
        open.end(&mut state);
        return (0, state);
    }
    drop(state);
    let mut own = SPARE.take();
    own.reset();
    own.next = begin;
    // Whatever descriptors say now. If both are one place, it is all of the ring or nothing.
    own.fence = (end != begin).then_some(end);
    let placed = reserved.fill(chip, view, &mut own, (batch, picks));
    // Its guest has taken back what it had given.
    count(&chip.counters.rx_missed, (reserved.frames - placed) as u64);
    let done = std::mem::take(&mut own.tally);
    SPARE.set(own);
    let state = open.close();
    enter(chip, &done);
    tally.add(&done);
    (reserved.frames, state)
}

/// Takes descriptors for the first of these frames, as far as they go as they are.
fn reserve(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    batch: &Batch<'_>,
    picks: &[u16],
) -> Reserved {
    let begin = state.next;
    let settings = Settings::of(chip);
    let mut wanted = 0;
    let mut placing = Placing {
        chip,
        view,
        settings,
        state,
        group: Group::Station,
        station: false,
    };
    let fits = |(at, pick): &(usize, &u16)| {
        let Some(frame) = batch.get(usize::from(**pick)) else {
            return true;
        };
        if frame.notes().gso != Gso::None {
            return false;
        }
        let dst = frame.head().first_chunk::<6>();
        if !dst.is_some_and(|dst| filter::accepts(chip.variant, &chip.file, *dst)) {
            return true;
        }
        let taken = placing.reserve(&frame);
        if taken {
            // They still have OWN.
            placing.state.fence.get_or_insert(begin);
            wanted |= 1 << at;
        }
        taken
    };
    let all = picks.iter().take(MOST).enumerate();
    let frames = all.take_while(fits).count();
    Reserved {
        settings,
        frames,
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use model::{Env, Receive};
    use model_testkit::packet::{MAC, PEER, plain};
    use model_testkit::{Pin, Time, memory};

    use super::*;
    use crate::core::config::Config;
    use crate::regs as r;
    use crate::regs::bits::{cr, desc, rcr};
    use crate::rx::Receiver;

    const RAM: u64 = 0x10_0000;
    const BUFFERS: u64 = RAM + 0x1_0000;
    const STEP: u64 = 0x1000;

    struct Guest {
        chip: Arc<Chip>,
        receiver: Receiver,
        env: Env,
        len: u32,
    }

    impl Guest {
        /// A ring of `len` descriptors whose buffers have `size` bytes, all given.
        fn new(len: u32, size: u32) -> Self {
            let time = Arc::new(Time::at(2_000_000_000));
            let env = Env {
                memory: memory(RAM, 0x10_0000),
                irq: Arc::new(Pin::default()),
                clock: time.clone(),
                timer: time,
            };
            let chip = Arc::new(Chip::new(&Config::new(MAC)));
            let [a, b, c, d, e, f] = MAC;
            let file = &chip.file;
            file.set(r::IDR0_3, u32::from_le_bytes([a, b, c, d]));
            file.set(r::IDR4_5, u32::from_le_bytes([e, f, 0, 0]));
            file.set(r::RDSAR_LOW, RAM as u32);
            file.set(r::RCR, rcr::APM | rcr::AB);
            file.set(r::CR, cr::RE << cr::SHIFT);
            chip.link_up.store(true, Ordering::Release);
            chip.awake.store(true, Ordering::Release);
            let receiver = Receiver {
                chip: Arc::clone(&chip),
            };
            let guest = Guest {
                chip,
                receiver,
                env,
                len,
            };
            (0..len).for_each(|i| guest.give(i, size));
            guest
        }

        fn give(&self, index: u32, size: u32) {
            let end = if index + 1 == self.len { desc::EOR } else { 0 };
            let words = [u64::from(desc::OWN | end | size), self.buffer(index)];
            let bytes = words.map(u64::to_le_bytes).concat();
            let at = RAM + u64::from(index) * 16;
            self.env.memory.view().write(at, &bytes).expect("mapped");
        }

        fn buffer(&self, index: u32) -> u64 {
            BUFFERS + u64::from(index) * STEP
        }

        fn peek(&self, at: u64, len: usize) -> Vec<u8> {
            let mut bytes = vec![0; len];
            self.env.memory.view().read(at, &mut bytes).expect("mapped");
            bytes
        }

        fn has_own(&self, index: u32) -> bool {
            self.peek(RAM + u64::from(index) * 16 + 3, 1)[0] & 0x80 != 0
        }

        fn offer(&self, frames: &[Vec<u8>]) -> usize {
            let mut batch = Batch::new();
            for bytes in frames {
                batch.push_bytes(bytes);
                batch.end(wire::Offload::NONE);
            }
            let mut room = Vec::new();
            let picks = batch.all_picks(&mut room);
            self.receiver.deliver(&self.env, &batch, picks)
        }

        /// Rings, buffers and counts.
        fn seen(&self) -> (Vec<u8>, Vec<u64>, [u64; crate::core::stats::STATS]) {
            let mut counts = Vec::new();
            self.chip.counters.visit(&mut |_, value| counts.push(value));
            let next = u64::from(self.chip.rx.lock().next);
            counts.push(next);
            (self.peek(RAM, 0x8_0000), counts, self.chip.stats.get())
        }
    }

    fn frame(n: usize) -> Vec<u8> {
        let to = [MAC, PEER, [0xff; 6], MAC][n % 4];
        let mut frame = plain(to, 60 + n * 17 % 700);
        frame[20] = n as u8;
        frame
    }

    /// Alone and in a crowd frames lie the same way: in one buffer or several, refused ones between them, and as far as
    /// there are descriptors.
    #[test]
    fn leased_frames_lie_as_others_do() {
        for size in [1536, 256, 64] {
            for (len, count) in [(8, 4), (8, 20), (64, 40), (100, 100), (64, 100)] {
                let [alone, crowded] = [0, 1].map(|_| Guest::new(len, size));
                // An empty buffer is counted once.
                [&alone, &crowded].iter().for_each(|guest| guest.give(1, 0));
                let frames: Vec<_> = (0..count).map(frame).collect();
                crowded.chip.rx.lock().crowd();
                let dealt = [&alone, &crowded].map(|guest| guest.offer(&frames));
                assert_eq!(dealt[0], dealt[1], "{size} {len} {count}");
                assert_eq!(alone.seen(), crowded.seen(), "{size} {len} {count}");
                assert!(!crowded.chip.rx.lock().is_out());
                assert_eq!(crowded.chip.rx.lock().fence, None);
            }
        }
    }

    /// What an open lease has still has OWN, and nobody else takes it: not those before it in the ring, nor the ring's rest
    /// more than once.
    #[test]
    fn nobody_takes_what_is_leased() {
        let guest = Guest::new(8, 1536);
        let mut state = guest.chip.rx.lock();
        let ticket = state.open().expect("the first");
        state.fence = Some(0);
        state.next = 5;
        drop(state);
        let own = |n: usize| plain(MAC, 60 + n);
        let frames: Vec<_> = (0..6).map(own).collect();
        assert_eq!(guest.offer(&frames), 3);
        assert_eq!(guest.offer(&frames), 0);
        let owned: Vec<_> = (0..8).filter(|i| guest.has_own(*i)).collect();
        assert_eq!(owned, [0, 1, 2, 3, 4]);
        let mut open = Open {
            chip: &guest.chip,
            ticket: Some(ticket),
            end: 5,
        };
        open.end(&mut guest.chip.rx.lock());
        // It has filled nothing, as if its guest had taken all back.
        assert_eq!(guest.offer(&frames), 5);
    }

    /// Four frames, reserved in a ring of eight, something that changes, and how many of them are filled.
    fn reserved_then(guest: &Guest, change: impl FnOnce()) -> usize {
        let frames: Vec<_> = (0..4).map(|n| plain(MAC, 60 + n)).collect();
        let view = guest.env.memory.view();
        let mut batch = Batch::new();
        for bytes in &frames {
            batch.push_bytes(bytes);
            batch.end(wire::Offload::NONE);
        }
        let mut room = Vec::new();
        let picks = batch.all_picks(&mut room);
        let mut state = guest.chip.rx.lock();
        let reserved = reserve(&guest.chip, &view, &mut state, &batch, picks);
        assert_eq!((reserved.frames, reserved.wanted), (4, 0b1111));
        assert_eq!(state.next, 4);
        let mut own = RxState {
            fence: Some(4),
            ..RxState::default()
        };
        change();
        let filled = reserved.fill(&guest.chip, &view, &mut own, (&batch, picks));
        let owned: Vec<_> = (0..8).filter(|i| guest.has_own(*i)).collect();
        assert_eq!(owned, [4, 5, 6, 7]);
        filled
    }

    /// A guest that takes back what it had given costs frames, and nobody's descriptors but its own.
    #[test]
    fn descriptors_that_are_taken_back_cost_their_frames() {
        let guest = Guest::new(8, 1536);
        assert_eq!(reserved_then(&guest, || guest.give(1, 30)), 3);
    }

    /// Neither the filter nor the limit of their length leaves descriptors behind that were taken by what they said before.
    #[test]
    fn registers_that_change_under_a_lease_leave_no_descriptor_behind() {
        for (id, value) in [(r::RCR, 0), (r::RMS, 40 << 16), (r::IDR0_3, 0)] {
            let guest = Guest::new(8, 1536);
            assert_eq!(reserved_then(&guest, || guest.chip.file.set(id, value)), 4);
        }
    }
}
