//! The receive side: from frames to buffers.
//!
//! The chip has no doorbell for buffers that come back. Frames that find too few stay with their senders; the ring is
//! looked at again with the next frame, at the next access to IMR or ISR, and after a millisecond, but only while frames
//! wait.

mod csb;
mod lease;
mod offer;
mod place;
mod run;
mod trace;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::csb::at;
use datapath::RECEIVED;
use datapath::counters::count;
use datapath::csb::CsbPage;
use frame::{Batch, Caps, Cut, Frame, Run, Wake};
use guest_mem::View;
use model::{Env, Nanos, Receive};

use crate::core::chip::Chip;
use crate::core::queues::{RxState, RxTally, fetch};
use crate::core::stats::Stat;
use crate::core::wake::event;
use crate::filter;
use crate::irq::Received;
use crate::regs as r;
use crate::regs::bits::cause;
use crate::rx::csb::LOOK;
use crate::rx::offer::{enter, place_all};

/// Times in one call that buffers given through a CSB are taken up in the last moment.
const ROUNDS: u32 = 4;

/// The receive part.
pub(crate) struct Receiver {
    pub chip: Arc<Chip>,
}

impl Receive for Receiver {
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let chip = &*self.chip;
        if chip.wake.armed() & event::FRAMES != 0 {
            wake(chip, env, batch, picks);
        }
        let view = env.memory.view();
        let page = chip.csb_wanted(env, &view);
        let Some(mut state) = chip.rx.reach() else {
            count(&chip.counters.rx_held_up, picks.len() as u64);
            return 0;
        };
        let mut dealt = 0;
        let mut leased = RxTally::default();
        while dealt < picks.len() {
            let rest = (batch, &picks[dealt..]);
            let (placed, locked) = lease::place(chip, &view, state, rest, &mut leased);
            (dealt, state) = (dealt + placed, locked);
            if placed == 0 {
                break;
            }
        }
        if chip.rx_on() {
            for _ in 0..ROUNDS {
                let known = page.and_then(|page| csb::tail(chip, &page, &state));
                dealt += place_all(chip, &view, &mut state, batch, &picks[dealt..]);
                if state.tally.buffers + leased.buffers > 0 {
                    state.vain = 0;
                }
                let short = dealt < picks.len();
                let settle = |page| csb::settle((chip, &view), &page, &mut state, (known, short));
                if !page.is_some_and(settle) {
                    break;
                }
            }
        } else {
            count(&chip.counters.rx_disabled, (picks.len() - dealt) as u64);
            dealt = picks.len();
        }
        let mut tally = std::mem::take(&mut state.tally);
        enter(chip, &tally);
        tally.add(&leased);
        let relieved = state.relieved();
        let wanted = tell(page, &tally, &state);
        let patience = csb::patience(page, &state);
        drop(state);
        let short = dealt < picks.len();
        // Others that wait may find room, too.
        let room = !short && chip.short.swap(false, Ordering::AcqRel);
        if short {
            count(&chip.counters.rx_back_pressure, 1);
            chip.short.store(true, Ordering::Release);
        }
        if chip.rx.relieve() || room || relieved {
            chip.waiters.wake();
        }
        let patience = short.then_some(patience);
        report((chip, env), &tally, patience, (page, wanted));
        dealt
    }

    fn deliver_run(&self, env: &Env, run: &Run<'_>) -> Option<usize> {
        let chip = &*self.chip;
        self.short_way(env, |view, state| run::deliver(chip, view, state, run))
    }

    fn deliver_cut(&self, env: &Env, cut: &Cut<'_>, from: usize) -> Option<usize> {
        let chip = &*self.chip;
        self.short_way(env, |view, state| {
            run::deliver_cut(chip, view, state, (cut, from))
        })
    }

    fn caps(&self) -> Caps {
        RECEIVED
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.chip.waiters.add(waker);
    }

    fn trace(
        &self,
        env: &Env,
        frame: &Frame<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<bool> {
        trace::trace(&self.chip, env, frame, tell)
    }

    fn give_up(&self, _: &Env, _: &Batch<'_>, picks: &[u16]) {
        let chip = &*self.chip;
        let missed = picks.len() as u64;
        count(&chip.counters.rx_missed, missed);
        // Not under the lock, and senders may be several.
        chip.stats.add_shared(Stat::Missed, missed);
    }

    /// Looks whether buffers have come back.
    fn poll(&self, env: &Env) {
        let chip = &*self.chip;
        if !chip.short.load(Ordering::Acquire) {
            chip.waiters.wake_any();
            return;
        }
        count(&chip.counters.rx_looks, 1);
        match room_or_patience(chip, env) {
            None => chip.stop_waiting(),
            // Without them no sender is left, or it has not slept yet and tries once more.
            Some(patience) if chip.waiters.any() => {
                let mut irq = chip.irq.lock();
                irq.set_look(env, env.clock.now() + patience);
            }
            Some(_) => {}
        }
    }
}

impl Receiver {
    /// Takes what `take` takes.
    #[inline(always)]
    fn short_way(
        &self,
        env: &Env,
        take: impl FnOnce(&View<'_>, &mut RxState) -> Option<usize>,
    ) -> Option<usize> {
        let chip = &*self.chip;
        let view = env.memory.view();
        let page = chip.csb_wanted(env, &view);
        let mut state = chip.rx.reach()?;
        // With others about, frames are copied without the lock, unless words are kept.
        let leases = state.crowded() && chip.kept.get().is_none();
        let taken = if chip.rx_on() && !leases {
            take(&view, &mut state)
        } else {
            // A batch counts them.
            None
        };
        let tally = std::mem::take(&mut state.tally);
        enter(chip, &tally);
        let wanted = tell(page, &tally, &state);
        if let Some(page) = page.filter(|_| taken.is_some()) {
            state.vain = 0;
            csb::settle((chip, &view), &page, &mut state, (None, false));
        }
        drop(state);
        let room = taken.is_some() && chip.short.swap(false, Ordering::AcqRel);
        if chip.rx.relieve() || room {
            chip.waiters.wake();
        }
        report((chip, env), &tally, None, (page, wanted));
        taken
    }
}

/// Shows frames to a guest that sleeps.
#[cold]
fn wake(chip: &Chip, env: &Env, batch: &Batch<'_>, picks: &[u16]) {
    if !chip.link_up.load(Ordering::Acquire) {
        return;
    }
    for frame in picks.iter().filter_map(|pick| batch.get((*pick).into())) {
        let armed = chip.wake.armed();
        let events = filter::wake::events(chip.variant, &chip.file, armed, &frame);
        chip.wake_by(env, events);
    }
}

/// `None`: a frame would find a descriptor, or is not to wait for one. Otherwise the time until the next look.
fn room_or_patience(chip: &Chip, env: &Env) -> Option<Nanos> {
    let view = env.memory.view();
    let page = chip.csb_wanted(env, &view);
    // The one who holds it looks itself.
    let Some(mut state) = chip.rx.reach() else {
        return Some(LOOK);
    };
    let known = page.and_then(|page| csb::tail(chip, &page, &state));
    let base = chip.address(r::RDSAR_LOW, r::RDSAR_HIGH);
    let leased = state.fence == Some(state.next);
    let free = !leased && !matches!(fetch(&view, base, state.next), Ok(None));
    let mut room = !chip.rx_on() || free;
    if let Some(page) = page {
        room = !chip.rx_on() || csb::look(chip, &page, &mut state, room);
        let news = csb::settle((chip, &view), &page, &mut state, (known, !room));
        // Unless they are looked for again soon.
        room |= news && csb::asks(&state);
    }
    let patience = (!room).then(|| csb::patience(page, &state));
    drop(state);
    if chip.rx.relieve() {
        chip.waiters.wake();
    }
    patience
}

/// With a CSB: descriptors up to the next one are done. Whether the guest wants to hear of it.
fn tell(page: Option<CsbPage<'_>>, tally: &RxTally, state: &RxState) -> Option<bool> {
    let page = page.filter(|_| tally.buffers > 0)?;
    Some(page.received(state.next))
}

/// One interrupt decision. `short`: frames wait, and the ring is looked at again after this time.
fn report(
    (chip, env): (&Chip, &Env),
    tally: &RxTally,
    short: Option<Nanos>,
    (page, wanted): (Option<CsbPage<'_>>, Option<bool>),
) {
    let mut what = Received {
        frames: tally.frames,
        buffers: tally.buffers,
        now: 0,
        wanted,
    };
    if tally.errors > 0 {
        what.now |= cause::RER;
    }
    if tally.fault {
        what.now |= cause::SYSTEM_ERROR;
    }
    if short.is_some() {
        what.now |= cause::RDU;
    }
    if what.frames == 0 && what.now == 0 {
        return;
    }
    let mut irq = chip.irq.lock();
    let causes = irq.received(env, what);
    if let Some(patience) = short {
        irq.set_look(env, env.clock.now() + patience);
    }
    drop(irq);
    if let Some(page) = page {
        page.store(at::HOST_ISR, causes.into());
    }
}
