//! The direct path: a batch that one station sends to one other.
//!
//! Most batches are such, and all batches of one frame. They need one look at the table instead of
//! one per frame, no lists and no merging: the picks go on as they came. Whatever is not exactly so
//! (a group, a new address, a port without or with special rights) is left to the general stages
//! ([`crate::forward`]), with the same counters.

use std::sync::{Arc, Weak};

use eswitch::tag_of;
use frame::{Batch, Caps, Head, Lines, Run};
use wire::MacAddr;

use crate::config::Nanos;
use crate::counters::{add, add_alone};
use crate::patience::Patience;
use crate::pools::{Pools, only_port};
use crate::port::{Blocked, Port, slot};
use crate::state::SwitchState;
use crate::table::{Key, ONE_DOMAIN};

/// Both addresses, as they stand in a frame.
const ADDRESSES: usize = 12;

/// The same in two words: what is compared for each delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    first: u64,
    rest: u32,
}

impl Pair {
    fn of(addresses: &[u8; ADDRESSES]) -> Pair {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *addresses;
        Pair {
            first: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            rest: u32::from_le_bytes(rest),
        }
    }

    /// Of a frame that begins so.
    #[inline]
    fn of_head([first, second]: Head) -> Pair {
        Pair {
            first,
            rest: second as u32,
        }
    }

    /// Destination and source.
    fn addresses(self) -> [Option<MacAddr>; 2] {
        let mut bytes = [0; ADDRESSES];
        bytes[..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[8..].copy_from_slice(&self.rest.to_le_bytes());
        [0, 6].map(|at| MacAddr::from_prefix(&bytes[at..]))
    }

    /// Where it is kept: stations of one host differ in their last byte.
    #[inline]
    fn slot(self) -> usize {
        let last = (self.first >> 40) as usize ^ (self.rest >> 24) as usize;
        last % KEPT
    }
}

/// What is known of a batch for the direct path.
struct Alike {
    /// The destination's, then the source's.
    addresses: Pair,
    bytes: u64,
    /// What the notes of any of them ask for.
    asks: Caps,
    /// Their VLAN, where the switch asks for it; 0 elsewhere.
    vlan: u16,
}

/// Stations whose place is kept.
const KEPT: usize = 16;

/// Where the last frames went, for as long as asking the table again would say the same and leave it as it is.
#[derive(Debug, Default)]
pub(crate) struct Known {
    ways: Box<[Way; KEPT]>,
}

/// Where frames with the same addresses go: a cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Way {
    addresses: Pair,
    /// Of an on-chip switch: the VLAN.
    vlan: u16,
    /// Weak, so that a port that is gone lets go of its NIC.
    to: Weak<Port>,
    changes: u64,
    until: Nanos,
}

impl Known {
    /// Where frames from `from` with these addresses go, if to one station: as is known, or as the table or the pools say
    /// now.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        state: &SwitchState,
        from: &Port,
        (addresses, vlan): (Pair, u16),
        now: Nanos,
    ) -> Option<Arc<Port>> {
        self.ways[addresses.slot()].find_anew(state, from, (addresses, vlan), now)
    }

    /// The lines of memory that say where frames for a port go.
    pub(crate) fn lines(&self, to: &Arc<Port>) -> Lines {
        let way = self
            .ways
            .iter()
            .find(|way| way.to.as_ptr() == Arc::as_ptr(to));
        way.map_or(Lines::NONE, Lines::of)
    }
}

impl Way {
    #[inline]
    fn find(
        &self,
        state: &SwitchState,
        addresses: Pair,
        vlan: u16,
        now: Nanos,
    ) -> Option<Arc<Port>> {
        let same = self.addresses == addresses
            && self.vlan == vlan
            && now < self.until
            && self.changes == state.lookup_changes();
        same.then(|| self.to.upgrade()).flatten()
    }

    /// The same, or what the table or the pools say now.
    #[inline(always)]
    fn find_anew(
        &mut self,
        state: &SwitchState,
        from: &Port,
        (addresses, vlan): (Pair, u16),
        now: Nanos,
    ) -> Option<Arc<Port>> {
        match self.find(state, addresses, vlan, now) {
            Some(to) => Some(to),
            None => self.ask(state, from, (addresses, vlan), now),
        }
    }

    #[cold]
    fn ask(
        &mut self,
        state: &SwitchState,
        from: &Port,
        (addresses, vlan): (Pair, u16),
        now: Nanos,
    ) -> Option<Arc<Port>> {
        match state.is_chip() {
            true => self.look_up_pools(state, from, addresses, vlan),
            false => self.look_up(state, from, addresses, now),
        }
    }

    /// Asks the table.
    fn look_up(
        &mut self,
        state: &SwitchState,
        from: &Port,
        addresses: Pair,
        now: Nanos,
    ) -> Option<Arc<Port>> {
        self.until = 0;
        let [dst, src] = addresses.addresses();
        let (dst, src) = (dst?, src?);
        // What is sent to a group is none of ours, nor is, with it, a storm.
        if dst.is_multicast() || !src.is_unicast() || !from.may_be(src) {
            return None;
        }
        let changes = state.lookup_changes();
        let (id, until) = {
            let (src, dst) = (Key::new(src, ONE_DOMAIN), Key::new(dst, ONE_DOMAIN));
            let lookup = state.lookup.read();
            let table = &lookup.table;
            let touched = table.touched_until(src, from.id, now)?;
            (table.lookup(dst, now)?, touched.min(table.known_until(dst)))
        };
        let ports = state.ports();
        let to = &ports[slot(&ports, id)?];
        // Neither of the two ever changes: a way that is kept is allowed.
        if from.is_split_from(to) {
            return None;
        }
        *self = Way {
            addresses,
            vlan: 0,
            to: Arc::downgrade(to),
            changes,
            until,
        };
        Some(to.clone())
    }

    /// Asks the pools of an on-chip switch, which know a station until they are changed.
    fn look_up_pools(
        &mut self,
        state: &SwitchState,
        from: &Port,
        addresses: Pair,
        vlan: u16,
    ) -> Option<Arc<Port>> {
        self.until = 0;
        let [dst, src] = addresses.addresses();
        let (dst, src) = (dst?, src?);
        if dst.is_multicast() || !src.is_unicast() {
            return None;
        }
        let changes = state.lookup_changes();
        let pools = state.pools()?;
        let ports = state.ports();
        if Pools::foul(pools.of(from.id), src, vlan).is_some() {
            return None;
        }
        let to = &ports[only_port(&pools, &ports, from, dst, vlan)?];
        if from.is_split_from(to) {
            return None;
        }
        *self = Way {
            addresses,
            vlan,
            to: Arc::downgrade(to),
            changes,
            until: Nanos::MAX,
        };
        Some(to.clone())
    }
}

/// What is to be known, if every frame has the addresses of the first, and notes that are in order.
/// `vlans` says whether their VLAN counts, which then is the same for all.
fn alike(batch: &Batch<'_>, picks: &[u16], vlans: bool) -> Option<Alike> {
    // What the batch itself knows of all its frames is true of those picked.
    if let Some(all) = batch.alike().filter(|all| all.plain)
        && let Some(len) = all.len
        && !picks.is_empty()
        && !(vlans && is_tag(&all.header[ADDRESSES..]))
        && picks.iter().all(|pick| usize::from(*pick) < batch.len())
    {
        return Some(Alike {
            addresses: Pair::of(all.header.first_chunk()?),
            bytes: picks.len() as u64 * len as u64,
            asks: Caps::NONE,
            vlan: 0,
        });
    }
    let frame = |pick: &u16| batch.get(usize::from(*pick));
    let head = frame(picks.first()?)?;
    let first = head.head().first_chunk()?;
    let vlan_in = |frame: &frame::Frame<'_>| match vlans {
        true => tag_of(frame.head(), frame.notes()),
        false => 0,
    };
    let vlan = vlan_in(&head);
    let (mut bytes, mut asks) = (0, Caps::NONE);
    for pick in picks {
        let frame = frame(pick)?;
        let whole = frame.len() >= wire::ETHERNET_HEADER;
        if !whole || frame.head().first_chunk()? != first || vlan_in(&frame) != vlan {
            return None;
        }
        if !frame.is_plain() {
            frame.notes().check(frame.len()).ok()?;
            asks = asks.or(Caps::asked_by(frame.notes()));
        }
        bytes += frame.len() as u64;
    }
    Some(Alike {
        addresses: Pair::of(first),
        bytes,
        asks,
        vlan,
    })
}

/// Whether what stands where the type is is a tag.
fn is_tag(kind: &[u8]) -> bool {
    matches!(kind, [0x81, 0x00] | [0x88, 0xa8])
}

/// The type of a frame that begins so.
#[inline]
fn kind_of([_, second]: Head) -> [u8; 2] {
    ((second >> 32) as u16).to_le_bytes()
}

/// Delivers the batch if it is one for the direct path. Returns what
/// [`Scratch::forward`](crate::forward::Scratch::forward) does then.
pub(crate) fn deliver(
    state: &SwitchState,
    from: &Port,
    (known, patience): (&mut Known, &mut Patience),
    batch: &Batch<'_>,
    picks: &[u16],
    now: Nanos,
) -> Option<(usize, Option<Blocked>)> {
    if from.bounds.is_rated() {
        return None;
    }
    let Alike {
        addresses,
        bytes,
        asks,
        vlan,
    } = alike(batch, picks, state.is_chip())?;
    let to = known.find(state, from, (addresses, vlan), now)?;
    // What the sink cannot take as it is has to be finished for it.
    let whole = asks == Caps::NONE || asks.and(to.sink.caps()) == asks;
    if to.id == from.id || !to.is_alive() || to.rate_out.is_some() || !whole {
        return None;
    }
    patience.serves(to.id, true, now);
    let may_wait = || {
        let may = from.waits && state.may_hold_up();
        may && to.may_be_waited_for(now, state.stall_bound())
    };
    let taken = if may_wait() && patience.has_left(to.id, now) {
        to.sink.deliver_or_leave(batch, picks)
    } else {
        to.sink.deliver(batch, picks)
    };
    let taken = taken.min(picks.len());
    to.note_progress(taken, now, state.stall_bound());
    let left = &picks[taken..];
    let length = |pick: &u16| batch.get((*pick).into()).map_or(0, |f| f.len() as u64);
    let left_bytes: u64 = left.iter().map(length).sum();
    add(&to.counters.tx_frames, taken as u64);
    add(&to.counters.tx_bytes, bytes - left_bytes);
    let mut dealt = (picks.len() as u64, bytes);
    let mut held = None;
    if !left.is_empty() {
        let may = may_wait();
        let waits = may && patience.has_left(to.id, now);
        add(&from.counters.patience_spent, u64::from(may && !waits));
        if waits {
            add(&to.counters.held_up, 1);
            to.note_held(now);
            patience.wait(to.id, now);
            dealt = (taken as u64, bytes - left_bytes);
            held = Some(Blocked::Full(to.clone()));
        } else {
            add(&to.counters.drop_no_room, left.len() as u64);
            to.sink.give_up(batch, left);
        }
    }
    add_alone(&from.counters.rx_frames, dealt.0);
    add_alone(&from.counters.rx_bytes, dealt.1);
    add_alone(&from.counters.rx_unicast, dealt.0);
    Some((dealt.0 as usize, held))
}

/// The port that frames with this header go to in the short way; `None` where there is more to it.
#[inline]
pub(crate) fn way_of_run(
    state: &SwitchState,
    from: &Port,
    known: &mut Known,
    head: Head,
    now: Nanos,
) -> Option<Arc<Port>> {
    if from.bounds.is_rated() || state.is_chip() && is_tag(&kind_of(head)) {
        return None;
    }
    let to = known.find(state, from, (Pair::of_head(head), 0), now)?;
    let plain = to.id != from.id && to.is_alive() && to.rate_out.is_none();
    plain.then_some(to)
}

/// Delivers frames of a run, if it is one for the direct path. What finds no room is left to [`deliver`], with all that
/// follows from it.
#[inline]
pub(crate) fn deliver_run(
    state: &SwitchState,
    from: &Port,
    (known, patience): (&mut Known, &mut Patience),
    run: &Run<'_>,
    now: Nanos,
) -> Option<usize> {
    let to = way_of_run(state, from, known, run.head(), now)?;
    let taken = to.sink.deliver_run(run)?.min(run.count());
    if taken == 0 {
        return None;
    }
    patience.serves(to.id, true, now);
    to.note_progress(taken, now, state.stall_bound());
    let (frames, bytes) = (taken as u64, run.bytes(taken) as u64);
    add(&to.counters.tx_frames, frames);
    add(&to.counters.tx_bytes, bytes);
    add_alone(&from.counters.rx_frames, frames);
    add_alone(&from.counters.rx_bytes, bytes);
    add_alone(&from.counters.rx_unicast, frames);
    Some(taken)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{How, Lab, One, Step, kind, step};

    #[test]
    fn a_way_is_a_cache_line() {
        assert_eq!((size_of::<Way>(), align_of::<Way>()), (64, 64));
    }

    #[test]
    fn a_port_that_is_gone_is_let_go() {
        let lab = Lab::new(true);
        let one = |src, dst| One {
            src,
            dst,
            len: 60,
            noted: 9,
        };
        let step = |from: usize, frame| Step {
            from,
            room: (1 - from, 4),
            passed: 1,
            how: How::Batch,
            frames: vec![frame],
        };
        lab.step(&step(1, one(1, 0)));
        for _ in 0..2 {
            assert_eq!(lab.step(&step(0, one(0, 1))), 1);
        }
        assert_eq!(lab.sinks[1].got.lock().len(), 2);
        assert!(lab.switch.detach("1"));
        // Ours, and that of the way in, which the port's owner has not dropped yet.
        let Lab { sinks, ports, .. } = &lab;
        let before = Arc::strong_count(&sinks[1]);
        let mut ports = ports.clone();
        let port = Arc::downgrade(&ports.remove(1));
        drop(lab.ports);
        assert!(port.upgrade().is_none());
        assert_eq!((before, Arc::strong_count(&lab.sinks[1])), (2, 1));
        drop(ports);
    }

    proptest! {
        #[test]
        fn both_paths_do_the_same(
            steps in proptest::collection::vec(step(), 1..60),
            kind in kind(),
        ) {
            let labs = [true, false].map(|direct| Lab::of(direct, true, kind));
            for step in &steps {
                prop_assert_eq!(labs[0].step(step), labs[1].step(step), "{:?}", step);
            }
            let [a, b] = &labs;
            prop_assert_eq!(a.switch.ports(), b.switch.ports());
            prop_assert_eq!(a.switch.macs(), b.switch.macs());
            for (a, b) in a.sinks.iter().zip(&b.sinks) {
                prop_assert_eq!(&*a.got.lock(), &*b.got.lock());
                prop_assert_eq!(a.given_up.load(Relaxed), b.given_up.load(Relaxed));
            }
        }
    }
}
