//! Frames offered as a sender offers them that finds runs: those that are alike together.

use std::ops::Range;

use frame::{Batch, Run};

use crate::machine::memory;

/// Where the memory of the sender of a run begins, and bytes from frame to frame.
const RAM: u64 = 0x10_0000;
const STRIDE: u64 = 0x2000;
/// Shorter frames come in no run.
const LEAST: usize = 60;

/// Takes a run as [`frame::Sink::deliver_run`] does.
pub type DeliverRun<'d> = &'d dyn Fn(&Run<'_>) -> Option<usize>;

/// Offers the frames of a batch to `deliver`, those alike together and, if there is a `deliver_run`, first to that. Returns
/// how many were dealt with.
pub fn in_groups(
    batch: &Batch<'_>,
    deliver: impl Fn(&[u16]) -> usize,
    deliver_run: Option<DeliverRun<'_>>,
) -> usize {
    let frame = |i: usize| batch.get(i).expect("in the batch");
    let mut at = 0;
    while at < batch.len() {
        let first = frame(at);
        let like = |i: &usize| {
            let next = frame(*i);
            let header = |frame: &frame::Frame<'_>| frame.head().first_chunk::<14>().copied();
            next.len() == first.len() && next.is_plain() && header(&next) == header(&first)
        };
        let n = match first.is_plain() {
            true => (at..batch.len()).take_while(like).count(),
            false => 1,
        };
        let run = deliver_run.filter(|_| first.is_plain() && first.len() >= LEAST);
        let mut taken = run.map_or(0, |deliver| as_run(batch, at..at + n, deliver));
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

/// Offers frames of a batch as a run. Returns how many were taken.
fn as_run(batch: &Batch<'_>, frames: Range<usize>, deliver: DeliverRun<'_>) -> usize {
    let sender = memory(RAM, frames.len() as u64 * STRIDE);
    let view = sender.view();
    let len = batch.get(frames.start).expect("in the batch").len();
    let from = view.read_places(RAM, len).expect("mapped");
    let (mut at, mut heads) = (Vec::new(), Vec::new());
    for (i, place) in frames.zip((RAM..).step_by(STRIDE as usize)) {
        let bytes = batch.get(i).expect("in the batch").to_vec();
        view.write(place, &bytes).expect("mapped");
        let found = from.find(place).expect("mapped");
        heads.push(from.head(found).expect("long enough"));
        at.push(found);
        // What the sender changes later counts for all but the head.
        view.write(place, &[0xee; 16]).expect("mapped");
    }
    let run = Run::new(from, &at, &heads).expect("at least one");
    deliver(&run).unwrap_or(0)
}
