//! Frames whose sender left more to do than a receiver does during the copy.

use std::cell::Cell;

use frame::{Batch, Caps, Frame, expand};

use crate::finish::possible;
use crate::layout::MIN_FRAME;

/// What may stay unfinished of a frame: a sum is computed while the frame is copied, and a tag goes beside it
/// or is put in then.
pub const RECEIVED: Caps = Caps {
    csum: true,
    vlan: true,
    ..Caps::NONE
};

/// A frame as a receiver can take it.
#[derive(Debug)]
pub enum Offered<'o, 'b> {
    /// As it is.
    Whole,
    /// As these frames: its segments, or one with its checksum written.
    Expanded(&'o Batch<'b>),
    /// Not at all: its notes contradict it.
    Invalid,
}

thread_local! {
    /// Storage for expanded frames; batches are bound to a thread.
    static SPARE: Cell<Batch<'static>> = Cell::default();
}

/// Calls `then` with what a receiver can take of `frame`.
#[inline]
pub fn with_expanded<T>(frame: &Frame<'_>, then: impl FnOnce(Offered<'_, '_>) -> T) -> T {
    let takes = Caps {
        csum: possible(frame),
        ..RECEIVED
    };
    if takes.accepts(frame.notes()) {
        return then(Offered::Whole);
    }
    let mut out = SPARE.take().recycle();
    let result = match expand(frame, takes, &mut out) {
        Ok(_) => then(Offered::Expanded(&out)),
        Err(_) => then(Offered::Invalid),
    };
    SPARE.set(out.recycle());
    result
}

/// Buffers of `size` bytes that these frames need at most: each with a tag and its FCS, whether they will be
/// there or not.
pub fn buffers_for(frames: &Batch<'_>, size: usize) -> usize {
    let each = |frame: Frame<'_>| (frame.len().max(MIN_FRAME) + 8).div_ceil(size);
    frames.iter().map(each).sum()
}
