//! The short way: frames that are alike, and segments of a large one, each into one buffer behind a header that all of
//! them have.

use frame::{Cut, Run};
use guest_mem::{View, copy_lengths, copy_run};
use lease::BoundedGuard;
use model::Env;

use crate::core::coalesce::Wait;
use crate::core::device::{Device, Role};
use crate::core::queues::{Room, RxQueues};
use crate::core::ring::{Broken, Ring};
use crate::core::station::Station;
use crate::core::steering::{Hashed, Steering};
use crate::filter;
use crate::irq;
use crate::regs::feature;
use crate::rx::fill::{Filled, Taken, find_buffers, used_lengths};
use crate::rx::place::Front;
use crate::rx::spread;

/// What decides how frames are received: the pair, and the hash if it is reported. `None`: not in the short way.
type Way = Option<(usize, Option<Hashed>)>;

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub fn deliver(device: &Device, env: &Env, run: &Run<'_>) -> Option<usize> {
    let header = run.header();
    let [dst @ .., _, _, _, _, _, _, _, _] = header;
    take_all(device, env, |view, queues| {
        // What filters VLANs looks behind it.
        let vlans = device.has(feature::CTRL_VLAN) && header[12..] == [0x81, 0];
        let station = &queues.station;
        if !filter::wants(station, dst) || vlans && !station.promisc {
            return None;
        }
        let report = device.has(feature::HASH_REPORT);
        let Some(pair) = queues.steering.plain(&header, device.pairs(), report) else {
            return spread::deliver(device, env, (view, queues), run);
        };
        let hashed = report.then(Hashed::default);
        let front = Front::plain(hashed);
        let fill = |ring: &mut Ring, room: &mut Room, filled: &mut Filled| {
            fill_run(view, (ring, room), run, &front, filled)
        };
        one_pair(device, env, (view, queues), pair, fill)
    })
}

/// Takes segments of a large frame from number `from` on, as [`deliver`] takes frames.
pub fn deliver_cut(device: &Device, env: &Env, cut: &Cut<'_>, from: usize) -> Option<usize> {
    let frame = cut.frame();
    let way = |station: &Station, steering: &Steering| -> Way {
        if !filter::accepts(station, device.has(feature::CTRL_VLAN), frame) {
            return None;
        }
        // All segments are of one flow.
        let report = device.has(feature::HASH_REPORT);
        let (pair, hashed) = steering.place(frame, device.pairs(), report);
        Some((pair, report.then_some(hashed)))
    };
    take_all(device, env, |view, queues| {
        let (pair, hashed) = way(&queues.station, &queues.steering)?;
        let fill = |ring: &mut Ring, room: &mut Room, filled: &mut Filled| {
            let summed = device.offloads() & feature::GUEST_CSUM != 0;
            let csum = frame.notes().csum.filter(|_| summed);
            let front = Front::of_segment(hashed, csum);
            fill_cut(view, (ring, room), (cut, from), (&front, summed), filled)
        };
        one_pair(device, env, (view, queues), pair, fill)
    })
}

/// Takes frames as `fill` says, and calls the drivers.
fn take_all(
    device: &Device,
    env: &Env,
    fill: impl FnOnce(&View<'_>, &mut RxQueues) -> Option<Taken>,
) -> Option<usize> {
    let view = env.memory.view();
    let queues = device.rx.reach()?;
    let taken = take(device, (&view, queues), fill);
    device.let_go();
    let (taken, wait) = taken?;
    irq::pairs(device, env, taken.calls);
    match taken.broken {
        None => irq::wait(device, env, wait, Role::Rx),
        Some(why) => irq::broken(device, env, why),
    }
    Some(taken.frames)
}

/// What is done under the lock, and when to look whether drivers are to be called.
fn take(
    device: &Device,
    (view, mut queues): (&View<'_>, BoundedGuard<'_, RxQueues>),
    fill: impl FnOnce(&View<'_>, &mut RxQueues) -> Option<Taken>,
) -> Option<(Taken, Wait)> {
    // Runs are not told of to those who log writes.
    let logs = queues.scratch.writes.log.is_some();
    if !device.is_live() || !device.has_link() || logs {
        return None;
    }
    let taken = fill(view, &mut queues)?;
    Some((taken, queues.calls.wait()))
}

/// Takes frames by one pair, as `fill` says.
#[inline(always)]
fn one_pair(
    device: &Device,
    env: &Env,
    (view, queues): (&View<'_>, &mut RxQueues),
    pair: usize,
    fill: impl FnOnce(&mut Ring, &mut Room, &mut Filled) -> Result<(), Broken>,
) -> Option<Taken> {
    let ring = queues.rings.get_mut(pair)?.as_mut()?;
    let mut filled = Filled::default();
    let result = fill(ring, &mut queues.scratch.room, &mut filled);
    let mut taken = Taken::default();
    taken.settle((device, env), (view, queues), (pair, filled), result);
    Some(taken)
}

/// Fills buffers with frames of a run, all behind the same header.
fn fill_run(
    view: &View<'_>,
    (ring, room): (&mut Ring, &mut Room),
    run: &Run<'_>,
    front: &Front,
    filled: &mut Filled,
) -> Result<(), Broken> {
    let head = front.bytes();
    let (from, mut at, mut heads) = run.frames();
    let mut lens = run.lens();
    let total = head.len() + run.frame_len();
    while !at.is_empty() {
        let (ones, places) = room.of(at.len());
        let Some(buffers) = find_buffers(view, ring, total, (ones, places))? else {
            break;
        };
        let first = ones[0].at.wrapping_add(head.len() as u64);
        let Some(body) = view.write_places_anew(first, run.frame_len()) else {
            ring.give_back(buffers.taken as u16);
            break;
        };
        let places = &mut places[..buffers.found];
        places.iter_mut().for_each(|to| *to += head.len() as u64);
        let copied = match lens {
            None => copy_run((from, at), heads, (&body, places)),
            Some(lens) => copy_lengths(((from, at), lens), heads, ((&body, places), 0)),
        };
        for place in &places[..copied] {
            if let Some(to) = buffers.whole.get(*place - head.len() as u64) {
                to.copy_from(0, head);
            }
        }
        ring.give_back((buffers.taken - copied) as u16);
        let ones = &ones[..copied];
        filled.bytes += match lens {
            None => {
                ring.used_ones(view, ones, total as u32)?;
                (copied * run.frame_len()) as u64
            }
            Some(lens) => used_lengths(view, ring, (ones, &lens[..copied]), head.len())?,
        };
        filled.frames += copied as u64;
        (at, heads) = (&at[copied..], &heads[copied..]);
        lens = lens.map(|lens| &lens[copied..]);
        if copied < buffers.taken {
            break;
        }
    }
    Ok(())
}

/// Fills buffers with segments of a cut from number `from` on, all behind the same header. Their checksums are left to the
/// driver if it takes them `unsummed`.
fn fill_cut(
    view: &View<'_>,
    (ring, room): (&mut Ring, &mut Room),
    (cut, from): (&Cut<'_>, usize),
    (front, unsummed): (&Front, bool),
    filled: &mut Filled,
) -> Result<(), Broken> {
    let head = front.bytes();
    let longest = head.len() + cut.segment_len(0);
    let mut segments = cut.segments(from);
    let mut next = from;
    while next < cut.count() {
        let (ones, places) = room.of(cut.count() - next);
        let Some(buffers) = find_buffers(view, ring, longest, (ones, places))? else {
            break;
        };
        let (mut copied, mut bytes) = (0, 0);
        // The last may be shorter.
        let mut last = longest;
        for place in &places[..buffers.found] {
            let Some(to) = buffers.whole.get(*place) else {
                break;
            };
            let len = cut.segment_len(next + copied);
            let body = to.sub(head.len(), len);
            match unsummed {
                true => segments.write_unsummed(&body),
                false => segments.write(&body),
            };
            to.copy_from(0, head);
            (copied, bytes, last) = (copied + 1, bytes + len, head.len() + len);
        }
        ring.give_back((buffers.taken - copied) as u16);
        let (ones, shorter) = match last == longest {
            true => (&ones[..copied], &[][..]),
            false => ones[..copied].split_at(copied - 1),
        };
        ring.used_ones(view, ones, longest as u32)?;
        ring.used_ones(view, shorter, last as u32)?;
        filled.frames += copied as u64;
        filled.bytes += bytes as u64;
        filled.needs_csum += if unsummed { copied as u64 } else { 0 };
        next += copied;
        if copied < buffers.taken {
            break;
        }
    }
    Ok(())
}
