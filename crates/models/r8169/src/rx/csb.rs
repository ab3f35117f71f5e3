//! The receiver and the Communication Status Block: when the guest is to call for buffers. Which are the chip's, OWN says.

use ::csb::at;
use datapath::counters::count_alone;
use datapath::csb::CsbPage;
use frame::work;
use guest_mem::View;
use model::Nanos;

use crate::core::chip::Chip;
use crate::core::queues::{MOST, RxState};
use crate::core::row::Row;
use crate::regs as r;
use crate::regs::bits::desc;
use crate::rx::place::DESCS_PER_COPY;

/// After this time the ring is looked at again.
pub(super) const LOOK: Nanos = 1_000_000;
/// A receiver that is out of descriptors looks by itself so often before it asks for a call: a call costs the guest more than
/// a look costs here, and its rings are short. The first look is soon, each next one after twice the time.
const LOOKS: u32 = 4;
const SOON: Nanos = LOOK >> (LOOKS - 1);

/// Where the guest says that the ring ends now: asked before the ring is looked at.
pub(super) fn tail(chip: &Chip, page: &CsbPage<'_>, state: &RxState) -> Option<u32> {
    let len = if state.ring == 0 { MOST } else { state.ring };
    page.tail(&chip.counters.csb_bad_tail, at::GUEST_RDT, len)
}

/// Whether the guest is asked to call while frames wait.
pub(super) fn asks(state: &RxState) -> bool {
    state.vain >= LOOKS
}

/// How long until the ring is looked at again.
pub(super) fn patience(page: Option<CsbPage<'_>>, state: &RxState) -> Nanos {
    if page.is_some() {
        (SOON << state.vain.min(LOOKS)).min(LOOK)
    } else {
        LOOK
    }
}

/// A look has found this: the next descriptor is the chip's, or not. Whether those who wait are to go on: if half of the
/// ring is there, or, after some looks, anything.
pub(super) fn look(chip: &Chip, page: &CsbPage<'_>, state: &mut RxState, free: bool) -> bool {
    let (next, ring) = (state.next, state.ring);
    let enough = tail(chip, page, state).is_none_or(|tail| {
        // The same place is all of it: the next one is the chip's.
        let behind = (next < tail).then(|| tail - next);
        let given = behind.unwrap_or((tail + ring).saturating_sub(next));
        given >= ring / 2
    });
    let room = free && (enough || asks(state));
    state.vain = (state.vain + u32::from(!room)).min(LOOKS);
    room
}

/// Something waits for buffers (`short`), or nothing does: the guest is to call, or not. Whether buffers have come since
/// it said that the ring ends at `known`. Under the receive lock.
#[inline(never)]
pub(super) fn settle(
    (chip, view): (&Chip, &View<'_>),
    page: &CsbPage<'_>,
    state: &mut RxState,
    (known, short): (Option<u32>, bool),
) -> bool {
    if short && state.ring == 0 {
        state.ring = ring_of(view, chip.address(r::RDSAR_LOW, r::RDSAR_HIGH));
    }
    // None is left where the next one is the driver's. As long as the ring is looked at often, nobody is asked.
    let ask = (short && asks(state)).then(|| (known.unwrap_or(state.next), 0, state.ring));
    let bad = &chip.counters.csb_bad_tail;
    let len = state.ring;
    let news = || {
        let tail = page.tail(bad, at::GUEST_RDT, len);
        tail.is_some() && tail != known
    };
    let settled = state.csb.settle(page, ask, news);
    count_alone(&chip.counters.csb_rx_sleeps, settled.asks.into());
    settled.news || short && ask.is_none() && news()
}

/// Descriptors of a ring: where its end is, each of them says, whose ever it is.
#[cold]
fn ring_of(view: &View<'_>, base: u64) -> u32 {
    let Some(row) = Row::of(view, base) else {
        return MOST;
    };
    let mut walked = 0;
    let ends = |[word, _]: [u64; 2]| {
        walked += 1;
        word as u32 & desc::EOR != 0
    };
    let end = row.words(0, MOST).position(ends);
    work::add(walked / DESCS_PER_COPY);
    end.map_or(MOST, |end| end as u32 + 1)
}
