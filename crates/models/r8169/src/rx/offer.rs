//! Frames one after the other, each placed whole or not at all.

use datapath::counters::{count, count_alone};
use datapath::{Offered, with_expanded};
use frame::{Batch, Frame};
use guest_mem::View;

use crate::core::chip::Chip;
use crate::core::queues::{Group, RxState, RxTally};
use crate::core::stats::Stat;
use crate::filter;
use crate::rx::place::{Placed, Placing, Settings};

/// Enters what was counted, under the lock.
pub(super) fn enter(chip: &Chip, tally: &RxTally) {
    count_alone(&chip.counters.rx_frames, tally.frames.into());
    count_alone(&chip.counters.rx_bytes, tally.bytes);
    count(&chip.counters.rx_filtered, tally.filtered.into());
    count(&chip.counters.rx_empty_buffer, tally.empty.into());
    chip.stats.add(Stat::RxOk, tally.frames.into());
    chip.stats.add(Stat::RxError, tally.errors.into());
    for (group, n) in Group::ALL.iter().zip(tally.groups) {
        chip.stats.add(group.stat(), n);
    }
}

/// Places the frames that are wanted, as far as there are descriptors. Returns how many were dealt with.
pub(super) fn place_all(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    batch: &Batch<'_>,
    picks: &[u16],
) -> usize {
    let wanted = |_, dst| filter::accepts(chip.variant, &chip.file, dst);
    let settings = Settings::of(chip);
    place_wanted((chip, view), settings, state, (batch, picks), wanted)
}

/// The same by what was decided before: whether the frame of a pick, by its place among them, is `wanted`.
pub(super) fn place_wanted(
    (chip, view): (&Chip, &View<'_>),
    settings: Settings,
    state: &mut RxState,
    (batch, picks): (&Batch<'_>, &[u16]),
    wanted: impl Fn(usize, [u8; 6]) -> bool,
) -> usize {
    for (at, pick) in picks.iter().enumerate() {
        let Some(frame) = batch.get(usize::from(*pick)) else {
            continue;
        };
        let dst = frame.head().first_chunk::<6>().copied();
        let Some(dst) = dst.filter(|dst| wanted(at, *dst)) else {
            state.tally.filtered += 1;
            continue;
        };
        let mut placing = Placing {
            chip,
            view,
            settings,
            state,
            group: Group::of(dst),
            station: filter::is_station(&chip.file, dst),
        };
        if !offer(&mut placing, &frame) {
            return at;
        }
    }
    picks.len()
}

/// Gives the driver a frame; with a lease, without the lock. `false`: there are too few descriptors, and nothing has changed.
fn offer(placing: &mut Placing<'_, '_>, frame: &Frame<'_>) -> bool {
    with_expanded(frame, |offered| match offered {
        Offered::Whole => all(placing, |i| (i == 0).then_some(*frame)),
        Offered::Expanded(frames) => all(placing, |i| frames.get(i)),
        Offered::Invalid => {
            count(&placing.chip.counters.rx_invalid, 1);
            true
        }
    })
}

/// Places all of these frames, or none.
fn all<'b>(placing: &mut Placing<'_, '_>, frames: impl Fn(usize) -> Option<Frame<'b>>) -> bool {
    let begin = placing.state.next;
    let tally = placing.state.tally;
    placing.state.filled.clear();
    let mut i = 0;
    while let Some(frame) = frames(i) {
        i += 1;
        match placing.one(&frame) {
            Placed::Yes => {}
            Placed::No(counter) => count(counter, 1),
            Placed::NoRoom => {
                placing.state.next = begin;
                placing.state.tally = tally;
                return false;
            }
        }
    }
    placing.publish();
    true
}
