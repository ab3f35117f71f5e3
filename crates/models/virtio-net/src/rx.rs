//! The receive side: from frames to buffers.

pub mod place;

use std::sync::Arc;

use datapath::counters::{count, count_alone};
use datapath::{Offered, with_expanded};
use frame::{Batch, Caps, Frame, Wake};
use guest_mem::View;
use model::{Env, Receive};
use wire::Gso;

use crate::core::device::{Device, RX, RxScratch};
use crate::core::ring::{Broken, Ring};
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
        let mut queue = device.rx.lock();
        let live = device.is_live();
        let Some(mut ring) = queue.ring.take_if(|_| live) else {
            count(&device.counters.rx_disabled, picks.len() as u64);
            return picks.len();
        };
        let vlans = device.has(feature::CTRL_VLAN);
        let mut scratch = std::mem::take(&mut queue.scratch);
        let mut dealt = 0;
        let mut result = Ok(());
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else {
                dealt += 1;
                continue;
            };
            if !filter::accepts(&queue.station, vlans, &frame) {
                count_alone(&device.counters.rx_filtered, 1);
                dealt += 1;
                continue;
            }
            match offer(device, &view, &mut ring, &mut scratch, &frame) {
                Ok(true) => dealt += 1,
                Ok(false) => break,
                Err(why) => {
                    result = Err(why);
                    break;
                }
            }
        }
        queue.scratch = scratch;
        let result = result.and_then(|()| ring.publish(&view));
        match result {
            Ok(call) => {
                queue.ring = Some(ring);
                drop(queue);
                if call {
                    irq::queue(device, env, RX);
                }
                dealt
            }
            Err(why) => {
                drop(queue);
                irq::broken(device, env, why);
                count(&device.counters.rx_disabled, (picks.len() - dealt) as u64);
                picks.len()
            }
        }
    }

    fn caps(&self) -> Caps {
        let offloads = self.device.offloads();
        Caps {
            // Written during the copy, if the driver does not take it unwritten.
            csum: true,
            tso4: offloads & feature::GUEST_TSO4 != 0,
            tso6: offloads & feature::GUEST_TSO6 != 0,
            vlan: true,
        }
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.device.waiters.add(waker);
    }

    fn give_up(&self, _: &Env, _: &Batch<'_>, picks: &[u16]) {
        count(&self.device.counters.rx_missed, picks.len() as u64);
    }

    fn poll(&self, env: &Env) {
        let device = &*self.device;
        let view = env.memory.view();
        let mut queue = device.rx.lock();
        // After a state was loaded the driver is called once.
        let told = match &mut queue.ring {
            Some(ring) if device.is_live() => ring.publish(&view),
            _ => Ok(false),
        };
        if told.is_err() {
            queue.ring = None;
        }
        drop(queue);
        match told {
            Ok(true) => irq::queue(device, env, RX),
            Ok(false) => {}
            Err(why) => irq::broken(device, env, why),
        }
        device.waiters.wake_any();
    }
}

/// Gives the driver a frame, as it takes it. `false`: there is no room for all of it, and nothing has changed.
fn offer(
    device: &Device,
    view: &View<'_>,
    ring: &mut Ring,
    scratch: &mut RxScratch,
    frame: &Frame<'_>,
) -> Result<bool, Broken> {
    let offloads = device.offloads();
    let notes = frame.notes();
    let wanted = match notes.gso {
        Gso::None => 0,
        Gso::Tcp4 => feature::GUEST_TSO4,
        Gso::Tcp6 => feature::GUEST_TSO6,
    };
    let ecn = if notes.ecn { feature::GUEST_ECN } else { 0 };
    let whole = notes.gso != Gso::None && offloads & (wanted | ecn) == wanted | ecn;
    let mut placing = Placing {
        device,
        view,
        ring,
        scratch,
        offloads,
    };
    if whole && datapath::possible(frame) {
        return placing.all(|i| (i == 0).then_some(*frame));
    }
    with_expanded(frame, |offered| match offered {
        Offered::Whole => placing.all(|i| (i == 0).then_some(*frame)),
        Offered::Expanded(frames) => placing.all(|i| frames.get(i)),
        Offered::Invalid => {
            count_alone(&device.counters.rx_invalid, 1);
            Ok(true)
        }
    })
}

impl Placing<'_, '_> {
    /// Places all of these frames, or none.
    fn all<'b>(&mut self, frames: impl Fn(usize) -> Option<Frame<'b>>) -> Result<bool, Broken> {
        // Once more after the driver was asked to tell of more buffers: some may have come in between.
        for _ in 0..2 {
            let mut buffers = 0;
            let mut count_frames = 0;
            let mut bytes = 0;
            let mut unsegmented = 0;
            let mut end = Placed::In(0);
            while let Some(frame) = frames(count_frames as usize) {
                end = self.one(&frame)?;
                let Placed::In(taken) = end else { break };
                buffers += taken;
                count_frames += 1;
                bytes += frame.len() as u64;
                unsegmented += u64::from(frame.notes().gso != Gso::None);
            }
            let counters = &self.device.counters;
            match end {
                Placed::In(_) => {
                    count_alone(&counters.rx_frames, count_frames);
                    count_alone(&counters.rx_bytes, bytes);
                    count_alone(&counters.rx_gso_frames, unsegmented);
                    self.ring.no_kick(self.view)?;
                    return Ok(true);
                }
                Placed::NoRoom | Placed::TooLong => {
                    self.ring.unused(buffers);
                    self.ring.give_back(buffers);
                }
            }
            // All buffers there can be were not enough.
            if end == Placed::TooLong || self.ring.is_full() {
                count_alone(&counters.rx_too_long, 1);
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
