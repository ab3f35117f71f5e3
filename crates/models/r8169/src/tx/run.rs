//! The short way: packets that are alike, a descriptor each that asks for nothing, without a batch.

use datapath::counters::count_alone;
use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::{MAX_BATCH, Run, Sink, same_header};
use guest_mem::View;

use crate::core::chip::Chip;
use crate::core::queues::{Desc, MOST, TxState, fetch};
use crate::core::stats::Stat;
use crate::regs::bits::{desc, tx};
use crate::tx::give_back;

/// Fewest packets of a run that does not end with what there is. Shorter ones are mixed traffic, which costs less in a
/// batch.
const FEWEST: usize = 8;
/// Bits of the first word in which packets of a run are equal.
const SAME: u32 = !desc::EOR;

/// What became of a try.
pub(super) enum Tried {
    /// There are no packets.
    Empty,
    /// No run begins at the head of the ring, or the sink took nothing of it.
    None,
    /// One was offered.
    Offered(Offered),
}

/// A run that was offered.
pub(super) struct Offered {
    /// Packets that were sent, and those there were.
    pub sent: usize,
    pub offered: usize,
    /// Bytes of each.
    pub len: usize,
    /// Behind it there was none.
    pub last: bool,
}

/// Sends the run that begins at the head of the ring, of at most `limit` packets. What the sink does not take stays in the
/// ring.
pub(super) fn send(
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    to: &dyn Sink,
    limit: usize,
) -> Tried {
    match fetch(view, base, state.next) {
        Ok(None) => Tried::Empty,
        Ok(Some(first)) => match offer((chip, view), base, state, (to, limit), first) {
            Some(offered) => Tried::Offered(offered),
            None => Tried::None,
        },
        Err(_) => Tried::None,
    }
}

/// Offers the run that begins with `first`.
fn offer(
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    (to, limit): (&dyn Sink, usize),
    first: Desc,
) -> Option<Offered> {
    let most = limit.clamp(1, MAX_BATCH);
    state.descs.clear();
    state.alike.at.clear();
    state.alike.heads.clear();
    let len = (first.opts1 & tx::LENGTH) as usize;
    let plain = first.opts1 & SAME == desc::OWN | desc::FS | desc::LS | len as u32;
    if !plain || first.opts2 != 0 || !(MIN_FRAME..=MAX_FRAME).contains(&len) {
        return None;
    }
    let from = match view.read_places(first.addr, len) {
        None => view
            .read_run(first.addr, len as u64)
            .and_then(|_| view.read_places(first.addr, len)),
        places => places,
    }?;
    let mut this: Option<Desc> = Some(first);
    let last = loop {
        let Some(desc) = this else { break true };
        let alike = desc.opts1 & SAME == first.opts1 & SAME && desc.opts2 == 0;
        let place = from.find(desc.addr).filter(|_| alike);
        let Some((place, head)) = place.and_then(|place| Some((place, from.head(place)?))) else {
            break false;
        };
        if !same_header(head, *state.alike.heads.first().unwrap_or(&head)) {
            break false;
        }
        from.prefetch(place);
        state.alike.at.push(place);
        state.alike.heads.push(head);
        state.descs.push(desc);
        let n = state.descs.len();
        // A ring is walked once.
        if n == most || n == MOST as usize || desc.next() == first.index {
            break false;
        }
        this = fetch(view, base, desc.next()).ok()?;
    };
    let offered = state.descs.len();
    if offered == 0 || offered < FEWEST.min(most) && !last {
        return None;
    }
    let run = Run::new(from, &state.alike.at, &state.alike.heads)?;
    let sent = to.deliver_run(&run).unwrap_or(0).min(offered);
    if sent == 0 {
        return None;
    }
    state.next = give_back((chip, view), base, &state.descs[..sent]);
    count_alone(&chip.counters.tx_frames, sent as u64);
    count_alone(&chip.counters.tx_bytes, (sent * len) as u64);
    chip.stats.add(Stat::TxOk, sent as u64);
    Some(Offered {
        sent,
        offered,
        len,
        last,
    })
}
