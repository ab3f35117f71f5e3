//! The receive side: from frames to buffers.

mod fill;
pub mod place;
mod run;
mod spread;
mod trace;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datapath::counters::{count, count_alone};
use datapath::{Offered, with_expanded};
use frame::{Batch, Caps, Cut, Frame, Run, Wake};
use guest_mem::View;
use lease::BoundedGuard;
use model::{Env, Nanos, Receive};
use wire::Gso;

use crate::core::coalesce::Wait;
use crate::core::config::MAX_PAIRS;
use crate::core::counters::Counters;
use crate::core::device::{Device, Role};
use crate::core::queues::RxQueues;
use crate::core::ring::{Broken, Ring};
use crate::core::stats::RxStats;
use crate::filter;
use crate::irq;
use crate::regs::feature;
use crate::rx::place::{Placed, Placing};

/// The receive part.
pub struct Receiver {
    /// The device.
    pub device: Arc<Device>,
}

impl Receive for Receiver {
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let device = &*self.device;
        if !device.has_link() {
            count(&device.counters.rx_no_link, picks.len() as u64);
            return picks.len();
        }
        let view = env.memory.view();
        let Some(queues) = device.rx.reach() else {
            count(&device.counters.rx_held_up, picks.len() as u64);
            return 0;
        };
        let dealt = place_all(device, env, (&view, queues), batch, picks);
        device.let_go();
        // The driver is called when others can place theirs already.
        irq::pairs(device, env, dealt.calls);
        irq::wait(device, env, dealt.wait, Role::Rx);
        let Some(why) = dealt.broken else {
            return dealt.frames;
        };
        irq::broken(device, env, why);
        let left = picks.len() - dealt.frames;
        count(&device.counters.rx_disabled, left as u64);
        picks.len()
    }

    fn deliver_run(&self, env: &Env, run: &Run<'_>) -> Option<usize> {
        run::deliver(&self.device, env, run)
    }

    fn deliver_cut(&self, env: &Env, cut: &Cut<'_>, from: usize) -> Option<usize> {
        run::deliver_cut(&self.device, env, cut, from)
    }

    fn caps(&self) -> Caps {
        let offloads = self.device.offloads();
        Caps {
            // Written during the copy, if the driver does not take it unwritten.
            csum: true,
            tso4: offloads & feature::GUEST_TSO4 != 0,
            tso6: offloads & feature::GUEST_TSO6 != 0,
            uso4: offloads & feature::GUEST_USO4 != 0,
            uso6: offloads & feature::GUEST_USO6 != 0,
            ecn: offloads & feature::GUEST_ECN != 0,
            vlan: true,
        }
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.device.waiters.add(waker);
    }

    fn trace(
        &self,
        _: &Env,
        frame: &Frame<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<bool> {
        trace::trace(&self.device, frame, tell)
    }

    fn give_up(&self, _: &Env, _: &Batch<'_>, picks: &[u16]) {
        count(&self.device.counters.rx_missed, picks.len() as u64);
    }

    fn poll(&self, env: &Env) {
        let device = &*self.device;
        if device.is_live() {
            let view = env.memory.view();
            // What is due, and after a state was loaded all of them once.
            let Some(mut queues) = device.rx.reach() else {
                // The timer brings us back.
                irq::arm(device, env, Some(env.clock.now() + PATIENCE));
                return;
            };
            let RxQueues { rings, calls, .. } = &mut *queues;
            let clock = &*env.clock;
            let look = |pair, ring: &mut Ring| calls.look(pair, ring, &view, clock);
            let (called, why) = each(rings, u32::MAX, look);
            let wait = queues.calls.wait();
            drop(queues);
            device.let_go();
            irq::wait(device, env, wait, Role::Rx);
            irq::pairs(device, env, called);
            if let Some(why) = why {
                irq::broken(device, env, why);
            }
        }
        device.waiters.wake_any();
    }
}

/// What became of the frames of a call.
#[derive(Default)]
struct Dealt {
    /// So many were dealt with.
    frames: usize,
    /// The receive queues whose driver wants to be called, a bit for each.
    calls: u32,
    /// When to look whether others want to be.
    wait: Wait,
    /// Why one of them is broken.
    broken: Option<Broken>,
}

/// How long frames for a queue without buffers hold up those of other queues.
const PATIENCE: Nanos = 2_000_000;

/// Frames that wait for buffers of their queue, or are behind one that does.
#[derive(Default)]
struct Waiting {
    /// The place of the first among the picks.
    first: Option<usize>,
    /// The queues, a bit for each.
    queues: u32,
    /// How many of each.
    each: [u32; MAX_PAIRS as usize],
    /// Behind them: refused by the filter, and for queues that are not enabled.
    filtered: u32,
    disabled: u32,
}

impl Waiting {
    /// A frame waits for its queue.
    fn hold(&mut self, at: usize, pair: usize) {
        self.first.get_or_insert(at);
        self.queues |= 1 << pair;
        self.each[pair] += 1;
    }

    /// A frame is refused; it is counted now, or when those in front of it have been dealt with.
    fn refuse(&mut self, counter: &AtomicU64, behind: fn(&mut Waiting) -> &mut u32) {
        if self.first.is_some() {
            *behind(self) += 1;
        } else {
            count_alone(counter, 1);
        }
    }

    /// A frame of another queue is placed: those in front of it are dropped.
    fn give_up(&mut self, counters: &Counters, stats: &mut [RxStats]) {
        if self.first.take().is_none() {
            return;
        }
        for (count, stats) in self.each.iter_mut().zip(stats) {
            lost(counters, stats, std::mem::take(count).into());
        }
        let filtered = std::mem::take(&mut self.filtered);
        count_alone(&counters.rx_filtered, filtered.into());
        let disabled = std::mem::take(&mut self.disabled);
        count_alone(&counters.rx_disabled, disabled.into());
    }
}

/// Counts frames that found no buffer.
fn lost(counters: &Counters, stats: &mut RxStats, frames: u64) {
    count_alone(&counters.rx_queue_full, frames);
    stats.drops += frames;
    stats.overruns += frames;
}

/// Places the frames that are wanted, as far as there is room.
fn place_all(
    device: &Device,
    env: &Env,
    (view, mut queues): (&View<'_>, BoundedGuard<'_, RxQueues>),
    batch: &Batch<'_>,
    picks: &[u16],
) -> Dealt {
    let clock = &*env.clock;
    let mut dealt = Dealt::default();
    let RxQueues {
        rings,
        calls,
        stats,
        full_since,
        station,
        steering,
        scratch,
    } = &mut *queues;
    let pairs = device.pairs();
    let several = pairs > 1 || steering.is_spread();
    let receives = several || rings[0].is_some();
    if !device.is_live() || !receives {
        count(&device.counters.rx_disabled, picks.len() as u64);
        dealt.frames = picks.len();
        return dealt;
    }
    let vlans = device.has(feature::CTRL_VLAN);
    let report = device.has(feature::HASH_REPORT);
    let mut touched = 0u32;
    let mut waiting = Waiting::default();
    for (at, &pick) in picks.iter().enumerate() {
        let Some(frame) = batch.get(usize::from(pick)) else {
            continue;
        };
        if !filter::accepts(station, vlans, &frame) {
            waiting.refuse(&device.counters.rx_filtered, |w| &mut w.filtered);
            continue;
        }
        let (pair, hashed) = steering.place(&frame, pairs, report);
        if waiting.queues >> pair & 1 != 0 {
            waiting.hold(at, pair);
            continue;
        }
        let Some(ring) = &mut rings[pair] else {
            waiting.refuse(&device.counters.rx_disabled, |w| &mut w.disabled);
            continue;
        };
        touched |= 1 << pair;
        let mut placing = Placing {
            device,
            view,
            ring,
            scratch,
            offloads: device.offloads(),
            stats: &mut stats[pair],
            hashed: report.then_some(hashed),
        };
        match placing.offer(&frame) {
            Ok(true) => {
                full_since[pair] = None;
                waiting.give_up(&device.counters, stats);
            }
            Ok(false) if !several => {
                waiting.first = Some(at);
                break;
            }
            Ok(false) => {
                let now = clock.now();
                let until = *full_since[pair].get_or_insert(now) + PATIENCE;
                if now < until {
                    // Senders try again then.
                    let due = &mut dealt.wait.due;
                    *due = Some(due.map_or(until, |due| due.min(until)));
                    waiting.hold(at, pair);
                } else {
                    waiting.give_up(&device.counters, stats);
                    lost(&device.counters, &mut stats[pair], 1);
                }
            }
            Err(why) => {
                // What came before is shown.
                let call = calls.publish(pair, ring, view, clock);
                dealt.calls |= u32::from(call.unwrap_or(false)) << pair;
                scratch.writes.used(std::iter::once(2 * pair));
                touched &= !(1 << pair);
                rings[pair] = None;
                dealt.broken = Some(why);
                waiting.first.get_or_insert(at);
                break;
            }
        }
    }
    dealt.frames = waiting.first.unwrap_or(picks.len());
    let publish = |pair, ring: &mut Ring| calls.publish(pair, ring, view, clock);
    let (called, broken) = each(rings, touched, publish);
    let touched = (0..pairs).filter(|pair| touched >> pair & 1 != 0);
    scratch.writes.used(touched.map(|pair| 2 * pair));
    dealt.calls |= called;
    let Wait { due, began } = calls.wait();
    dealt.wait.due = [dealt.wait.due, due].into_iter().flatten().min();
    dealt.wait.began = began;
    dealt.broken = dealt.broken.or(broken);
    dealt
}

/// Asks these rings, a bit for each, whether their driver is to be called. Returns those that say so, and why one is
/// broken.
fn each(
    rings: &mut [Option<Ring>],
    which: u32,
    mut ask: impl FnMut(usize, &mut Ring) -> Result<bool, Broken>,
) -> (u32, Option<Broken>) {
    let (mut calls, mut broken) = (0, None);
    for (pair, slot) in rings.iter_mut().enumerate() {
        if which >> pair & 1 == 0 {
            continue;
        }
        match slot.as_mut().map(|ring| ask(pair, ring)) {
            Some(Ok(call)) => calls |= u32::from(call) << pair,
            Some(Err(why)) => {
                *slot = None;
                broken = Some(why);
            }
            None => {}
        }
    }
    (calls, broken)
}

impl Placing<'_, '_> {
    /// Gives the driver a frame, as it takes it. `false`: there is no room for all of it, and nothing has changed.
    fn offer(&mut self, frame: &Frame<'_>) -> Result<bool, Broken> {
        let offloads = self.offloads;
        let notes = frame.notes();
        let wanted = match notes.gso {
            Gso::None => 0,
            Gso::Tcp4 => feature::GUEST_TSO4,
            Gso::Tcp6 => feature::GUEST_TSO6,
            Gso::Udp4 => feature::GUEST_USO4,
            Gso::Udp6 => feature::GUEST_USO6,
        };
        let ecn = if notes.ecn { feature::GUEST_ECN } else { 0 };
        let whole = notes.gso != Gso::None && offloads & (wanted | ecn) == wanted | ecn;
        if whole && datapath::possible(frame) {
            return self.all(|i| (i == 0).then_some(*frame));
        }
        with_expanded(frame, |offered| match offered {
            Offered::Whole => self.all(|i| (i == 0).then_some(*frame)),
            Offered::Expanded(frames) => self.all(|i| frames.get(i)),
            Offered::Invalid => {
                count_alone(&self.device.counters.rx_invalid, 1);
                self.stats.drops += 1;
                Ok(true)
            }
        })
    }

    /// Places all of these frames, or none.
    fn all<'b>(&mut self, frames: impl Fn(usize) -> Option<Frame<'b>>) -> Result<bool, Broken> {
        // Once more after the driver was asked to tell of more buffers: some may have come in between.
        for _ in 0..2 {
            let mut buffers = 0;
            let mut count_frames = 0;
            let mut bytes = 0;
            let (mut gso, mut gso_bytes) = (0, 0);
            let (mut valid, mut needs_csum) = (0, 0);
            let summed = self.offloads & feature::GUEST_CSUM != 0;
            let mut end = Placed::In(0);
            while let Some(frame) = frames(count_frames as usize) {
                end = match self.one(&frame) {
                    Ok(end) => end,
                    Err(why) => {
                        self.ring.unused(buffers);
                        return Err(why);
                    }
                };
                let Placed::In(taken) = end else { break };
                buffers += taken;
                count_frames += 1;
                bytes += frame.len() as u64;
                let notes = frame.notes();
                if notes.gso != Gso::None {
                    gso += 1;
                    gso_bytes += frame.len() as u64;
                }
                needs_csum += u64::from(summed && notes.csum.is_some());
                valid += u64::from(summed && notes.csum.is_none() && notes.csum_valid);
            }
            let counters = &self.device.counters;
            match end {
                Placed::In(_) => {
                    count_alone(&counters.rx_frames, count_frames);
                    count_alone(&counters.rx_bytes, bytes);
                    count_alone(&counters.rx_gso_frames, gso);
                    let stats = &mut *self.stats;
                    stats.packets += count_frames;
                    stats.bytes += bytes;
                    stats.valid += valid;
                    stats.needs_csum += needs_csum;
                    stats.gso_packets += gso;
                    stats.gso_bytes += gso_bytes;
                    self.ring.no_kick(self.view)?;
                    return Ok(true);
                }
                Placed::NoRoom | Placed::TooLong => {
                    self.ring.unused(buffers);
                    self.ring.give_back(buffers);
                }
            }
            // All buffers there can be were not enough.
            if end == Placed::TooLong || self.ring.known() == self.ring.size() {
                count_alone(&counters.rx_too_long, 1);
                self.stats.drops += 1;
                return Ok(true);
            }
            if !self.ring.want_kick(self.view)? {
                break;
            }
        }
        count_alone(&self.device.counters.rx_back_pressure, 1);
        Ok(false)
    }
}
