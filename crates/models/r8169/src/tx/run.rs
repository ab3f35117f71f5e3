//! The short way: packets of a descriptor each that asks for nothing, without a batch.

use datapath::counters::count_alone;
use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::{MAX_BATCH, Mix, Run, Sink, same_header};
use guest_mem::View;

use crate::core::chip::Chip;
use crate::core::queues::{Alike, Desc, TxState, fetch};
use crate::core::stats::Stat;
use crate::regs::bits::{desc, tx};
use crate::tx::complete::give_back;

/// Fewest packets of a run that does not end with what there is. Shorter ones are mixed traffic, which costs less in a
/// batch.
const FEWEST: usize = 8;

/// What became of a try.
pub(super) enum Tried {
    /// There are no packets.
    Empty,
    /// No run begins at the head of the ring, or the sink took nothing of it.
    None,
    /// One was offered.
    Offered(Offered),
}

/// Packets that were offered.
pub(super) struct Offered {
    /// Packets that were sent, and those there were.
    pub sent: usize,
    pub offered: usize,
    /// Bytes that were sent.
    pub bytes: usize,
    /// Behind them there was none.
    pub last: bool,
}

/// Sends the packets at the head of the ring that ask for nothing, at most `limit` of them and about `room` bytes. What the
/// sink does not take stays in the ring.
pub(super) fn send(
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    to: &dyn Sink,
    limits: (usize, usize),
) -> Tried {
    match fetch(view, base, state.next) {
        Ok(None) => Tried::Empty,
        Ok(Some(first)) => match offer((chip, view), base, state, (to, limits), first) {
            Some(offered) => Tried::Offered(offered),
            None => Tried::None,
        },
        Err(_) => Tried::None,
    }
}

/// Bytes of the frame of a descriptor that asks for nothing.
fn plain(desc: &Desc) -> Option<usize> {
    let len = (desc.opts1 & tx::LENGTH) as usize;
    let asks = desc.opts1 & !desc::EOR != desc::OWN | desc::FS | desc::LS | len as u32;
    (!asks && desc.opts2 == 0 && (MIN_FRAME..=MAX_FRAME).contains(&len)).then_some(len)
}

/// Offers those that begin with `first`: alike as a run, others as a mix.
fn offer(
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    (to, (limit, room)): (&dyn Sink, (usize, usize)),
    first: Desc,
) -> Option<Offered> {
    let most = limit.clamp(1, MAX_BATCH);
    state.descs.clear();
    let Alike { at, lens, heads } = &mut state.alike;
    at.clear();
    lens.clear();
    heads.clear();
    let len = plain(&first)?;
    let from = match view.read_places(first.addr, len) {
        None => view
            .read_run(first.addr, len as u64)
            .and_then(|_| view.read_places(first.addr, len)),
        places => places,
    }?;
    let (mut alike, mut bytes) = (true, 0);
    let mut this: Option<Desc> = Some(first);
    let last = loop {
        let Some(desc) = this else { break true };
        let found = plain(&desc).and_then(|len| {
            let place = from.find_of(desc.addr, len)?;
            Some((place, len, from.head_of(place, len)?))
        });
        let Some((place, len, head)) = found else {
            break false;
        };
        from.prefetch(place);
        alike &= same_header(head, *heads.first().unwrap_or(&head));
        at.push(place);
        lens.push(len as u16);
        heads.push(head);
        state.descs.push(desc);
        bytes += len;
        // A ring is walked once.
        let n = state.descs.len();
        if n == most || bytes >= room || desc.next() == first.index {
            break false;
        }
        this = fetch(view, base, desc.next()).ok()?;
    };
    let offered = state.descs.len();
    if offered < FEWEST.min(most) && !last {
        return None;
    }
    let sent = if alike {
        to.deliver_run(&Run::of_lengths(from, (at, lens), heads)?)
    } else {
        to.deliver_mix(&Mix::new(from, (at, lens), heads)?)
    };
    let sent = sent.unwrap_or(0).min(offered);
    if sent == 0 {
        return None;
    }
    let bytes = lens[..sent].iter().map(|len| usize::from(*len)).sum();
    state.next = give_back((chip, view), base, &state.descs[..sent]);
    count_alone(&chip.counters.tx_frames, sent as u64);
    count_alone(&chip.counters.tx_bytes, bytes as u64);
    chip.stats.add(Stat::TxOk, sent as u64);
    Some(Offered {
        sent,
        offered,
        bytes,
        last,
    })
}
