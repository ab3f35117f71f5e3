//! Frames offered as a sender offers them that finds runs and mixes: those that are alike together, or those that are plain.

use std::ops::Range;

use frame::{Batch, Frame, Mix, Run};
use guest_mem::{Head, ReadPlaces};

use crate::machine::memory;

/// Where the memory of the sender of a run begins, and bytes from frame to frame.
const RAM: u64 = 0x10_0000;
const STRIDE: u64 = 0x2000;

/// Takes a run as [`frame::Sink::deliver_run`] does.
pub type DeliverRun<'d> = &'d dyn Fn(&Run<'_>) -> Option<usize>;
/// Takes a mix as [`frame::Sink::deliver_mix`] does.
pub type DeliverMix<'d> = &'d dyn Fn(&Mix<'_>) -> Option<usize>;

/// Offers the frames of a batch to `deliver`, those alike together and, if there is a `deliver_run`, first to that. Returns
/// how many were dealt with.
pub fn in_groups(
    batch: &Batch<'_>,
    deliver: impl Fn(&[u16]) -> usize,
    deliver_run: Option<DeliverRun<'_>>,
) -> usize {
    let header = |frame: &Frame<'_>| frame.head().first_chunk::<14>().copied();
    let like = |first: &Frame<'_>, next: &Frame<'_>| {
        let alike = first.is_plain() && next.is_plain() && header(next) == header(first);
        alike && (is_long(first) && is_long(next) || next.len() == first.len())
    };
    together(batch, like, deliver, |frames, first| {
        let deliver = deliver_run.filter(|_| is_long(first))?;
        sent(batch, frames, |from, places, heads| {
            deliver(&Run::of_lengths(from, places, heads).expect("alike"))
        })
    })
}

/// Offers the frames of a batch to `deliver`, those that are plain together and, if there is a `deliver_mix`, first to that.
/// Returns how many were dealt with.
pub fn in_mixes(
    batch: &Batch<'_>,
    deliver: impl Fn(&[u16]) -> usize,
    deliver_mix: Option<DeliverMix<'_>>,
) -> usize {
    let like = |first: &Frame<'_>, next: &Frame<'_>| is_long(first) && is_long(next);
    together(batch, like, deliver, |frames, first| {
        let deliver = deliver_mix.filter(|_| is_long(first))?;
        sent(batch, frames, |from, places, heads| {
            deliver(&Mix::new(from, places, heads).expect("plain"))
        })
    })
}

/// Whether a frame can be in a run or a mix.
fn is_long(frame: &Frame<'_>) -> bool {
    frame.is_plain() && frame.len() >= Run::SHORTEST
}

/// Offers frames in a row that are `like` the first of them, first to `short`, then those left to `deliver`.
fn together(
    batch: &Batch<'_>,
    like: impl Fn(&Frame<'_>, &Frame<'_>) -> bool,
    deliver: impl Fn(&[u16]) -> usize,
    short: impl Fn(Range<usize>, &Frame<'_>) -> Option<usize>,
) -> usize {
    let frame = |i: usize| batch.get(i).expect("in the batch");
    let mut at = 0;
    while at < batch.len() {
        let first = frame(at);
        let more = (at + 1..batch.len()).take_while(|i| like(&first, &frame(*i)));
        let n = 1 + more.count();
        let mut taken = short(at..at + n, &first).unwrap_or(0);
        let left: Vec<u16> = (at + taken..at + n).map(|i| i as u16).collect();
        if !left.is_empty() {
            taken += deliver(&left);
        }
        at += taken;
        if taken < n {
            break;
        }
    }
    at
}

/// Puts frames into the memory of a sender, and shows where they are, their lengths, and how they begin.
fn sent<T>(
    batch: &Batch<'_>,
    frames: Range<usize>,
    show: impl FnOnce(ReadPlaces<'_>, (&[u64], &[u16]), &[Head]) -> T,
) -> T {
    let sender = memory(RAM, frames.len() as u64 * STRIDE);
    let view = sender.view();
    let (mut at, mut lens, mut heads) = (Vec::new(), Vec::new(), Vec::new());
    let first = batch.get(frames.start).expect("in the batch").len();
    view.write(RAM, &[0]).expect("mapped");
    let from = view.read_places(RAM, first).expect("mapped");
    for (i, place) in frames.zip((RAM..).step_by(STRIDE as usize)) {
        let bytes = batch.get(i).expect("in the batch").to_vec();
        view.write(place, &bytes).expect("mapped");
        let found = from.find_of(place, bytes.len()).expect("mapped");
        heads.push(from.head_of(found, bytes.len()).expect("long enough"));
        at.push(found);
        lens.push(bytes.len() as u16);
        // What the sender changes later counts for all but the head.
        view.write(place, &[0xee; 16]).expect("mapped");
    }
    show(from, (&at, &lens), &heads)
}
