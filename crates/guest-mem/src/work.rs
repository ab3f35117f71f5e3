//! What a sender's frames cost beside being sent, in the sender's thread.
//!
//! The unit is the copy of a frame. A frame for one receiver costs one, which its sender has counted as a frame. One
//! that floods costs as many as there are receivers, and each segment of an unsegmented frame is one. Buffers that lie
//! in many regions cost lookups, some of which are as dear as a copy. Those that do the work add it; senders take it
//! after each batch and send less in a turn, and a worker charges it to the turn.

use std::cell::Cell;

thread_local! {
    static BATCH: Cell<u64> = const { Cell::new(0) };
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// So many copies were made.
#[inline]
pub fn add(copies: u64) {
    BATCH.set(BATCH.get() + copies);
}

/// Copies that were added since the last call, in this thread.
#[inline]
pub fn take() -> u64 {
    let copies = BATCH.take();
    if copies > 0 {
        TURN.set(TURN.get() + copies);
    }
    copies
}

/// All that were taken or added since the last call, in this thread.
pub fn take_turn() -> u64 {
    take();
    TURN.take()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_turn_is_all_of_its_batches() {
        super::add(3);
        super::add(4);
        assert_eq!(super::take(), 7);
        assert_eq!(super::take(), 0);
        super::add(5);
        assert_eq!(super::take_turn(), 12);
        assert_eq!((super::take(), super::take_turn()), (0, 0));
    }
}
