//! The receive side: which frames get in, and into which queue (§7.1).
//!
//! A call goes through its frames in order. The lock of a queue is held as long as frames for it
//! follow each other; its descriptors are written back before the lock is released.

mod call;
mod classify;
mod counts;
mod enqueue;
mod fast_path;
mod flow;
mod l2_filter;
mod offer;
mod replicate;
mod report;
mod run;
mod shape;
#[cfg(test)]
mod tests;
mod trace;
mod write;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::RECEIVED;
use frame::{Batch, Caps, Cut, Frame, Run, Wake};
use guest_mem::{Hot, Lines};
use intel::wake::Wakes;
use model::{Env, Receive, TakeTail};

use crate::core::function::{Function, count};
use crate::core::inside::Inside;
use crate::core::irq::Causes;
use crate::core::kept;
use crate::core::queue::{QUEUES_OF_PAGE, TAIL};
use crate::core::stats::{Stat, Tally};
use crate::regs::bits::icr;
use crate::rx::enqueue::Rx;
use crate::rx::shape::Shape;
use crate::rx::writer::Outcome;

/// The receive part of a function.
pub(crate) struct Receiver {
    function: Arc<Function>,
}

impl Receiver {
    pub(crate) fn new(function: Arc<Function>) -> Self {
        Self { function }
    }
}

impl Receive for Receiver {
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if self.function.loopback.load(Ordering::Acquire) {
            // In loopback nothing comes from the wire.
            count(&self.function.counters.rx_disabled, picks.len() as u64);
            return picks.len();
        }
        deliver(&self.function, env, batch, picks)
    }

    fn deliver_run(&self, env: &Env, run: &Run<'_>) -> Option<usize> {
        if self.function.loopback.load(Ordering::Acquire) {
            return None;
        }
        run::deliver(&self.function, env, run)
    }

    fn deliver_cut(&self, env: &Env, cut: &Cut<'_>, from: usize) -> Option<usize> {
        if self.function.loopback.load(Ordering::Acquire) {
            return None;
        }
        run::deliver_cut((&self.function, env), cut, from)
    }

    fn caps(&self) -> Caps {
        RECEIVED
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.function.waiters.add(waker);
    }

    fn poll(&self, _env: &Env) {
        // A sender that registers too late to be woken here tries once more after that, and sees the new tail.
        self.function.waiters.wake_behind();
    }

    fn hot(&self, hot: &mut Hot) {
        hot.add(Lines::of(self));
        self.function.add_hot(hot);
    }

    fn look_at_tail(&self, _: &Env, queue: u32, take: TakeTail<'_>) -> bool {
        let function = &self.function;
        // Receive queues come first, and a page has no others.
        let of_page = function.queues.get(queue as usize);
        let Some(own) = of_page.filter(|_| queue < QUEUES_OF_PAGE) else {
            return false;
        };
        // Who sets the queue up anew waits for the lock: what is read under it is of the queue as it is.
        let Some(lock) = own.rx.reach() else {
            return false;
        };
        let mut found = false;
        if function.rx_enabled(queue) {
            take(&mut |tail| {
                // The register side takes it once more, and counts it. Another frame may have before it.
                let tail = tail & TAIL;
                found = function.file.at(own.rx_tail) != tail;
                function.file.put(own.rx_tail, tail);
                function.note_word(kept::tail(false, queue), tail);
            });
        }
        drop(lock);
        function.let_go(queue);
        found
    }

    fn trace(
        &self,
        env: &Env,
        frame: &Frame<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<bool> {
        trace::trace(&self.function, env, frame, tell)
    }

    fn give_up(&self, env: &Env, _batch: &Batch<'_>, picks: &[u16]) {
        if !self.function.loopback.load(Ordering::Acquire) {
            give_up(&self.function, env, picks);
        }
    }
}

impl Inside for Receiver {
    fn looped_back(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) {
        let kept = deliver(&self.function, env, batch, picks);
        if kept < picks.len() {
            give_up(&self.function, env, &picks[kept..]);
        }
    }

    fn pool_sent(&self, env: &Env, frame: &Frame<'_>, pools: u32) {
        deliver_inside(&self.function, env, frame, pools);
    }
}

/// Whether descriptors have the address of a header buffer too.
pub(crate) fn splits(srrctl: u32) -> bool {
    Shape::of(srrctl, 0).is_some_and(|shape| shape.splits())
}

/// Counts frames as missed that found no room and that their sender does not keep.
fn give_up(function: &Function, env: &Env, picks: &[u16]) {
    missed(function, env, picks.len() as u64);
}

fn missed(function: &Function, env: &Env, frames: u64) {
    count(&function.counters.rx_missed, frames);
    let mut tally = Tally::default();
    tally.add(Stat::Mpc, frames);
    function.stats.add(&tally);
    let causes = Causes {
        other: icr::RXO,
        ..Causes::default()
    };
    function.irq.lock().raise(env, causes);
}

/// Takes as many frames as there are descriptors for.
fn deliver(function: &Function, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
    let settings = function.settings();
    if function.wake.armed() {
        for pick in picks {
            if let Some(frame) = batch.get(usize::from(*pick)) {
                function.wake_by(env, &frame);
            }
        }
    }
    if !settings.rx_on || !function.moves() {
        count(&function.counters.rx_disabled, picks.len() as u64);
        return picks.len();
    }
    let view = env.memory.view();
    let mut rx = Rx::new(function, env, &view, settings);
    let mut dealt = 0;
    while let Some(pick) = picks.get(dealt) {
        let quick = rx.fast_path(batch, &picks[dealt..]);
        if quick > 0 {
            dealt += quick;
            continue;
        }
        rx.call.expected = picks.len() - dealt;
        let frame = batch.get(usize::from(*pick));
        if let Some(Outcome::NoRoom) = frame.map(|frame| rx.offer(&frame)) {
            count(&function.counters.rx_back_pressure, 1);
            break;
        }
        dealt += 1;
    }
    rx.end();
    dealt
}

/// Delivers a frame that one pool has sent to these other pools. If they have no room it is missed, as on
/// a wire.
fn deliver_inside(function: &Function, env: &Env, frame: &Frame<'_>, pools: u32) {
    let settings = function.settings();
    if !settings.rx_on {
        count(&function.counters.rx_disabled, 1);
        return;
    }
    let view = env.memory.view();
    let mut rx = Rx::new(function, env, &view, settings);
    rx.call.inside = Some(pools);
    let outcome = rx.offer(frame);
    rx.end();
    if outcome == Outcome::NoRoom {
        missed(function, env, 1);
    }
}
