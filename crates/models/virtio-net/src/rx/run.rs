//! The short way: frames that are alike, each into one buffer behind a header that says nothing.

use datapath::counters::count_alone;
use frame::{Run, work};
use guest_mem::{View, copy_run};
use lease::BoundedGuard;
use model::{Env, Nanos};

use crate::core::chain::One;
use crate::core::device::Device;
use crate::core::queues::RxQueues;
use crate::core::ring::{Broken, Ring};
use crate::filter;
use crate::irq;
use crate::regs::{feature, header};
use crate::rx::place::DESCS_PER_COPY;

/// Buffers taken before the first of them is filled.
const AHEAD: usize = 64;

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub fn deliver(device: &Device, env: &Env, run: &Run<'_>) -> Option<usize> {
    // Frames of several lengths go as a batch.
    if run.lens().is_some() {
        return None;
    }
    let view = env.memory.view();
    let queues = device.rx.reach()?;
    let taken = take(device, (&view, queues), env, run);
    device.let_go();
    let (frames, pair, shown, due) = taken?;
    match shown {
        Ok(call) => {
            irq::pairs(device, env, u32::from(call) << pair);
            irq::arm(device, env, due);
        }
        Err(why) => irq::broken(device, env, why),
    }
    Some(frames)
}

/// How many frames were taken, by which pair, whether its driver is to be called, and when to look whether others are.
type Taken = (usize, usize, Result<bool, Broken>, Option<Nanos>);

/// What is done under the lock.
fn take(
    device: &Device,
    (view, mut queues): (&View<'_>, BoundedGuard<'_, RxQueues>),
    env: &Env,
    run: &Run<'_>,
) -> Option<Taken> {
    let RxQueues {
        rings,
        calls,
        stats,
        full_since,
        station,
        steering,
        scratch,
    } = &mut *queues;
    // Runs are not told of to those who log writes.
    if !device.is_live() || !device.has_link() || scratch.writes.log.is_some() {
        return None;
    }
    let report = device.has(feature::HASH_REPORT);
    let header = run.header();
    let [dst @ .., _, _, _, _, _, _, _, _] = header;
    // What filters VLANs looks behind it.
    let vlans = device.has(feature::CTRL_VLAN) && header[12..] == [0x81, 0];
    if !filter::wants(station, dst) || vlans && !station.promisc {
        return None;
    }
    let pair = steering.plain(&header, device.pairs(), report)?;
    let slot = rings.get_mut(pair)?;
    let ring = slot.as_mut()?;
    let front = if report { header::LONG } else { header::LEN };
    let mut frames = 0;
    let filled = fill(view, ring, run, front, &mut frames);
    let shown = filled.and_then(|()| {
        if frames == 0 {
            return Ok(false);
        }
        ring.no_kick(view)?;
        calls.publish(pair, ring, view, &*env.clock)
    });
    if frames > 0 {
        full_since[pair] = None;
        let bytes = (frames * run.frame_len()) as u64;
        count_alone(&device.counters.rx_frames, frames as u64);
        count_alone(&device.counters.rx_bytes, bytes);
        stats[pair].packets += frames as u64;
        stats[pair].bytes += bytes;
    }
    let due = calls.due();
    if shown.is_err() {
        *slot = None;
    }
    Some((frames, pair, shown, due))
}

/// Fills buffers from the next on. It ends where one is of several parts, too small, or not in the region of the one before.
fn fill(
    view: &View<'_>,
    ring: &mut Ring,
    run: &Run<'_>,
    front: usize,
    frames: &mut usize,
) -> Result<(), Broken> {
    let mut head = [0; header::LONG];
    // One buffer.
    head[10] = 1;
    let head = &head[..front];
    let (from, mut at, mut heads) = run.frames();
    let total = front + run.frame_len();
    let mut ones = [One::default(); AHEAD];
    let mut places = [0; AHEAD];
    while !at.is_empty() {
        let most = AHEAD.min(at.len());
        let (taken, _) = ring.take_ones(view, true, &mut ones[..most])?;
        work::add(u64::from(ring.take_read()) / DESCS_PER_COPY);
        let near = ones[..taken].first().and_then(|one| {
            let whole = view.write_places_anew(one.at, total)?;
            let body = one.at.wrapping_add(front as u64);
            let body = view.write_places_anew(body, run.frame_len())?;
            Some((whole, body))
        });
        let Some((whole, body)) = near else {
            ring.give_back(taken as u16);
            break;
        };
        let mut planned = 0;
        for (one, place) in ones[..taken].iter().zip(&mut places) {
            let found = whole.find(one.at).filter(|_| one.len as usize >= total);
            let Some(to) = found else {
                break;
            };
            whole.prefetch(to);
            *place = to + front as u64;
            planned += 1;
        }
        let copied = copy_run((from, at), heads, (&body, &places[..planned]));
        for place in &places[..copied] {
            if let Some(to) = whole.get(*place - front as u64) {
                to.copy_from(0, head);
            }
        }
        ring.give_back((taken - copied) as u16);
        ring.used_ones(view, &ones[..copied], total as u32)?;
        *frames += copied;
        (at, heads) = (&at[copied..], &heads[copied..]);
        if copied < taken {
            break;
        }
    }
    Ok(())
}
