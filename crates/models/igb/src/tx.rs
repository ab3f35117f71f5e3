//! The transmit side: whose turn it is, and what comes of it (§7.2). [`intel::tx::Parser`] makes frames of
//! descriptors.
//!
//! Queues take turns. A turn is at most [`QUANTUM`] frames (more for a queue that is alone) or
//! as many bytes as fit into a processor's cache of one queue, offered to the sink in one batch.

mod complete;
pub(crate) mod desc;
mod flow;
mod plan;
mod pools;
mod run;
mod single;
#[cfg(test)]
pub(crate) mod tests;
mod turns;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Caps, EACH, MAX_BATCH, Sink};
use guest_mem::View;
use intel::tx::{End, Parser, Scratch, Settings, Store, tell_unsent};
use intel::{Planned, Ring};
use model::{Env, Progress, TURN_BYTES, Transmit};

use crate::core::function::{Function, FunctionKind, count};
use crate::core::inside::Inside;
use crate::core::irq::{Causes, Moved};
use crate::core::queue::TxState;
use crate::tx::complete::{Done, finish};
use crate::tx::desc::{Contexts, Descs};
use crate::tx::plan::TxPlan;
use crate::tx::turns::Turns;

/// Frames of one turn, where others wait for theirs or the sink has been short of room.
const QUANTUM: usize = 64;
/// Descriptors after which no other queue has its turn in the same call: those that make no frame cost
/// time too, and sixteen rings may be full of them.
const MOST_DESCS: u32 = 4096;

thread_local! {
    /// Storage of batches, between calls.
    static SHELF: Cell<Option<Box<Store<Contexts>>>> = const { Cell::new(None) };
}

/// The transmit part of a function.
pub(crate) struct Sender<I> {
    function: Arc<Function>,
    /// Its own receive side.
    inside: Arc<I>,
    turns: Turns,
}

impl<I: Inside> Sender<I> {
    pub(crate) fn new(function: Arc<Function>, inside: Arc<I>) -> Self {
        let plans = function.queues.iter().map(|_| Planned::default());
        Self {
            turns: Turns::new(plans.collect()),
            function,
            inside,
        }
    }
}

/// Where a queue's head is written to, in place of a bit in each descriptor.
pub(crate) fn head_to(function: &Function, queue: u32) -> Option<u64> {
    TxPlan::make(function, queue).head_to
}

impl<I: Inside> Sender<I> {
    /// One turn of a queue, whatever else there is to do, of which nothing is heard.
    pub(crate) fn pass_over(&mut self, env: &Env, to: &dyn Sink, queue: u32) {
        let view = env.memory.view();
        let mut scratch = None;
        let mut call = Call {
            function: &self.function,
            inside: &*self.inside,
            env,
            view: &view,
            to,
            loopback: false,
            budget: MAX_BATCH,
            room: TURN_BYTES,
            walked: 0,
            causes: Causes::default(),
            moved: Moved::default(),
        };
        self.turns.waiting = 1 << queue;
        let _ = self.turns.turn(&mut call, queue, &mut 0, &mut scratch);
        self.turns.store.give_back(&SHELF);
        if let Some(scratch) = scratch {
            Scratch::end(scratch);
        }
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is nothing (more) to do before the driver says so.
    Idle,
    /// There may be more.
    Moved,
    /// It has had its ring's worth in this call.
    Enough,
    /// The sink had no room.
    Blocked,
}

/// What all turns of a call have in common.
struct Call<'c, 'v, I> {
    function: &'c Function,
    inside: &'c I,
    env: &'c Env,
    view: &'v View<'v>,
    to: &'c dyn Sink,
    /// What comes out comes straight back.
    loopback: bool,
    /// Frames and bytes that may still be sent.
    budget: usize,
    room: usize,
    /// Descriptors walked.
    walked: u32,
    causes: Causes,
    /// What the queues have moved.
    moved: Moved,
}

impl<I> Call<'_, '_, I> {
    /// Descriptors of a queue are done.
    fn finished(&mut self, queue: u32, ring: &Ring, done: Done) {
        if done.report {
            self.causes.tx |= 1 << queue;
        }
        if let Some(moved) = self.moved.get_mut(queue as usize) {
            moved.done += done.moved;
            moved.of = ring.len;
        }
    }
}

impl<I: Inside> Transmit for Sender<I> {
    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress {
        let Sender {
            function,
            inside,
            turns,
        } = self;
        let function = &**function;
        let generation = function.setup.get();
        let on = *turns.on.of(generation, || function.settings().tx_on);
        if !on || !function.moves() {
            // Once it may go on, any queue may have something.
            turns.waiting = (1 << function.queues.len()) - 1;
            return Progress::Idle;
        }
        let mut budget = budget.max(1);
        let loopback = function.loopback.load(Ordering::Acquire);
        if !loopback {
            match function.send_pause(to) {
                None => return Progress::Blocked,
                Some(sent) => budget -= usize::from(sent),
            }
            if budget == 0 {
                return Progress::More;
            }
            // The timer brings us back when the pause is over.
            if function.is_silent(env) {
                turns.waiting = (1 << function.queues.len()) - 1;
                return Progress::Idle;
            }
        }
        // What is rung from now on is for the next call, if this one does not see it.
        turns.waiting |= function.tx_rung.swap(0, Ordering::AcqRel);
        if turns.waiting == 0 {
            return Progress::Idle;
        }
        let view = env.memory.view();
        if !loopback && let Some(sent) = single::send(turns, (function, to), &view) {
            if sent.report {
                reported(function, env, &sent);
            }
            budget = budget.saturating_sub(sent.cost);
            if budget == 0 {
                return Progress::More;
            }
            if sent.all {
                turns.waiting = 0;
                return Progress::Idle;
            }
        }
        let of = (function, &**inside, env);
        run_turns(turns, of, (&view, to, loopback), budget)
    }
}

/// Interrupts for a packet that was sent alone.
#[inline]
fn reported(function: &Function, env: &Env, sent: &single::Sent) {
    let mut irq = function.irq.lock();
    if function.adapts() {
        let mut moved = Moved::default();
        if let Some(moved) = moved.get_mut(sent.queue as usize) {
            (moved.done, moved.of) = (1, sent.ring);
        }
        irq.sent(&moved);
    }
    let causes = Causes {
        tx: 1 << sent.queue,
        ..Causes::default()
    };
    irq.raise(env, causes);
}

/// Gives queues turns, within `budget`. Not inlined: a packet that is sent alone is not slowed down by what it does not need.
#[inline(never)]
fn run_turns<I: Inside>(
    turns: &mut Turns,
    (function, inside, env): (&Function, &I, &Env),
    (view, to, loopback): (&View<'_>, &dyn Sink, bool),
    budget: usize,
) -> Progress {
    // Taken when something needs it.
    let mut scratch = None;
    let mut call = Call {
        function,
        inside,
        env,
        view,
        to,
        loopback,
        budget,
        room: TURN_BYTES,
        walked: 0,
        causes: Causes::default(),
        moved: Moved::default(),
    };
    let progress = turns.all(&mut call, &mut scratch);
    if !call.causes.is_empty() {
        let mut irq = function.irq.lock();
        if function.adapts() {
            irq.sent(&call.moved);
        }
        irq.raise(env, call.causes);
    }
    turns.store.give_back(&SHELF);
    if let Some(scratch) = scratch {
        Scratch::end(scratch);
    }
    progress
}

impl Turns {
    fn all<'v, I: Inside>(
        &mut self,
        call: &mut Call<'_, 'v, I>,
        scratch: &mut Option<Scratch<'v>>,
    ) -> Progress {
        let queues = call.function.queues.len() as u32;
        let mut walked = [0; 16];
        // Queues that have had enough in this call.
        let mut enough = 0;
        loop {
            let active = self.waiting & !enough;
            if active == 0 {
                break;
            }
            if call.budget == 0 || call.room == 0 || call.walked >= MOST_DESCS {
                return Progress::More;
            }
            let next = call.function.tx_next.load(Ordering::Relaxed) % queues;
            let ahead = active >> next;
            let queue = if ahead != 0 {
                next + ahead.trailing_zeros()
            } else {
                active.trailing_zeros()
            };
            let next = (queue + 1) % queues;
            call.function.tx_next.store(next, Ordering::Relaxed);
            let bit = 1 << queue;
            let steps = &mut walked[queue as usize];
            match self.turn(call, queue, steps, scratch) {
                Turn::Idle => self.waiting &= !bit,
                Turn::Moved => {}
                Turn::Enough => enough |= bit,
                Turn::Blocked => return Progress::Blocked,
            }
        }
        if self.waiting == 0 {
            Progress::Idle
        } else {
            Progress::More
        }
    }

    /// One turn of one queue, of which `walked` descriptors were walked in this call.
    fn turn<'v, I: Inside>(
        &mut self,
        call: &mut Call<'_, 'v, I>,
        queue: u32,
        walked: &mut u32,
        scratch: &mut Option<Scratch<'v>>,
    ) -> Turn {
        let function = call.function;
        let (Some(own), Some(plan)) = (
            function.queues.get(queue as usize),
            self.plans.get_mut(queue as usize),
        ) else {
            return Turn::Idle;
        };
        let mut state = own.tx.lock();
        // Under the lock that those wait for who switch the queue off.
        let make = || TxPlan::make(function, queue);
        let plan = *plan.of(function.setup.get(), make);
        if !plan.on {
            return Turn::Idle;
        }
        let Some(ring) = plan.place.ring(&function.file) else {
            if plan.place.tail(&function.file) != plan.place.head(&function.file) {
                count(&function.counters.tx_bad_ring, 1);
            }
            return Turn::Idle;
        };
        let left = ring.available().min(ring.len.saturating_sub(*walked));
        if left == 0 {
            return if ring.available() == 0 {
                Turn::Idle
            } else {
                Turn::Enough
            };
        }
        let alone = self.waiting & !(1 << queue) == 0;
        let quantum = if alone && !self.short {
            MAX_BATCH
        } else {
            QUANTUM
        };
        let limit = self.fan_out.frames(call.budget).min(quantum);
        let plain = plan.plain && !call.loopback;
        if plain && state.is_between() && self.runs.tries() {
            let limits = (limit, call.room);
            let from = (call.view, call.to);
            let of = (function, queue, &plan);
            if let Some(sent) = run::send(of, from, (&ring, left), limits) {
                return self.sent_run(call, (queue, &plan, &ring, walked), &sent);
            }
            self.runs.failed();
        }
        let scratch = scratch.get_or_insert_with(Scratch::take);
        self.batch(
            call,
            (queue, &plan, walked),
            (&mut state, &ring, left, limit),
            scratch,
        )
    }

    /// A turn with a batch, of at most `limit` frames.
    fn batch<'v, I: Inside>(
        &mut self,
        call: &mut Call<'_, 'v, I>,
        (queue, plan, walked): (u32, &TxPlan, &mut u32),
        (state, ring, left, limit): (&mut TxState, &Ring, u32, usize),
        scratch: &mut Scratch<'v>,
    ) -> Turn {
        let (function, loopback) = (call.function, call.loopback);
        scratch.batch.clear();
        let settings = Settings {
            caps: if loopback { Caps::NONE } else { call.to.caps() },
            ..plan.settings
        };
        let mut parser = Parser::<Descs>::new(
            call.view,
            (*ring, left, call.room),
            state.memory,
            settings,
            &function.counters,
        );
        let store = self.store.get(&SHELF);
        let end = parser.fill(store, scratch, state.taken, limit);
        let (unread, room) = parser.left();
        call.room = room;
        call.walked = call.walked.saturating_add(left - unread);
        let batch = &scratch.batch;
        let offered = batch.len();
        let picks = &EACH[..offered];
        if let Some(kept) = function.tx_kept(queue)
            && let Some((next, reported)) = store.end()
        {
            let marked = reported.filter(|_| plan.head_to.is_none());
            kept.begins::<Contexts>(call.view, ring, (next, marked), true);
        }
        // Before it can have come anywhere: no frame arrives before it left.
        let timed = matches!(function.kind, FunctionKind::Pf) && store.is_timed();
        let leaving = timed.then(|| call.env.clock.now());
        let taken = if offered == 0 {
            0
        } else if loopback {
            call.inside.looped_back(call.env, batch, picks);
            offered
        } else if let Some(pool) = plan.looks_inside {
            let of = (batch, picks);
            pools::send(function, call.inside, call.env, pool, call.to, of)
        } else {
            call.to.deliver(batch, picks).min(offered)
        };
        if store.has_refused() || end == End::Fault {
            tell_unsent(&*store, (call.view, ring), (taken, end), call.to);
        }
        let done = finish(
            function,
            call.view,
            (queue, plan),
            (state, &*store),
            ring,
            (batch, taken),
        );
        if let Some(leaving) = leaving.filter(|_| done.stamp) {
            function.ptp.lock().sent(&function.file, leaving);
            function.touched.store(true, Ordering::Release);
        }
        call.finished(queue, ring, done);
        *walked = walked.saturating_add(done.moved);
        let cost = self.fan_out.learn(taken);
        call.budget = call.budget.saturating_sub(cost);
        self.short = taken < offered;
        if self.short {
            self.runs.was_full();
            return Turn::Blocked;
        }
        let tail = plan.place.tail(&function.file);
        outcome(end, (ring, left, tail), done.moved)
    }

    /// Ends a turn with a run.
    fn sent_run<I>(
        &mut self,
        call: &mut Call<'_, '_, I>,
        (queue, plan, ring, walked): (u32, &TxPlan, &Ring, &mut u32),
        sent: &run::Sent,
    ) -> Turn {
        let moved = sent.done.moved;
        self.runs.worked();
        call.room = call.room.saturating_sub(sent.bytes);
        call.walked = call.walked.saturating_add(moved);
        call.finished(queue, ring, sent.done);
        *walked = walked.saturating_add(moved);
        let cost = self.fan_out.learn(moved as usize);
        call.budget = call.budget.saturating_sub(cost);
        self.short = false;
        if !sent.all {
            // What is left of it waits, or is lost, as the general way has it.
            self.runs.failed();
            return Turn::Moved;
        }
        if call.budget == 0 || call.room == 0 {
            // There may be more, and others come first.
            return Turn::Moved;
        }
        let tail = plan.place.tail(&call.function.file);
        outcome(End::Tail, (ring, moved, tail), moved)
    }
}

/// How a turn ends in which `moved` descriptors of a ring were done, of `left` that it could have been: `tail` is
/// where the ring ends now.
fn outcome(end: End, (ring, left, tail): (&Ring, u32, u32), moved: u32) -> Turn {
    match end {
        End::Full => Turn::Moved,
        End::Fault => Turn::Idle,
        // Nothing complete was left: what is there waits for its end.
        End::Tail if moved == 0 && ring.available() > left => Turn::Enough,
        End::Tail if moved == 0 && tail == ring.tail => Turn::Idle,
        // All of it is done, and nothing has come since.
        End::Tail if moved == ring.available() && tail == ring.tail => Turn::Idle,
        // Parsed in full in vain, or some is left: once more.
        End::Tail if moved == 0 => Turn::Enough,
        End::Tail => Turn::Moved,
    }
}
