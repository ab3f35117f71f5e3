//! The transmit side: whose turn it is, and what comes of it (§7.2). [`intel::tx::Parser`] makes frames of
//! descriptors.
//!
//! Queues take turns. A turn is at most [`QUANTUM`] frames (more for a queue that is alone) or
//! as many bytes as fit into a processor's cache of one queue, offered to the sink in one batch.

mod complete;
pub(crate) mod desc;
mod flow;
mod pools;
mod run;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Caps, MAX_BATCH, Sink};
use guest_mem::View;
use intel::Ring;
use intel::tx::{EACH, End, FanOut, Habit, Parser, Scratch, Store};
use model::{Env, Progress, TURN_BYTES, Transmit};

use crate::core::function::{Function, FunctionKind, count};
use crate::core::inside::Inside;
use crate::core::irq::{Causes, Moved};
use crate::core::queue::TxState;
use crate::regs::settings::Settings;
use crate::tx::complete::{Done, finish};
use crate::tx::desc::{Contexts, Descs};

/// Frames of one turn, where others wait for theirs or the sink has been short of room.
const QUANTUM: usize = 64;
/// Descriptors after which no other queue has its turn in the same call: those that make no frame cost
/// time too, and sixteen rings may be full of them.
const MOST_DESCS: u32 = 4096;
/// The transmit part of a function.
pub(crate) struct Sender<I> {
    function: Arc<Function>,
    /// Its own receive side.
    inside: Arc<I>,
    store: Store<Contexts>,
    /// Queues that may have something, bit by bit.
    waiting: u32,
    fan_out: FanOut,
    runs: Habit,
    /// The sink has not taken all of the last turn: what it leaves is gathered again.
    short: bool,
}

impl<I: Inside> Sender<I> {
    pub(crate) fn new(function: Arc<Function>, inside: Arc<I>) -> Self {
        Self {
            function,
            inside,
            store: Store::default(),
            waiting: 0,
            fan_out: FanOut::default(),
            runs: Habit::default(),
            short: false,
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
struct Call<'c, 'v> {
    function: &'c Function,
    env: &'c Env,
    view: &'v View<'v>,
    to: &'c dyn Sink,
    settings: Settings,
    /// Frames and bytes that may still be sent.
    budget: usize,
    room: usize,
    /// Descriptors walked.
    walked: u32,
    causes: Causes,
    /// What the queues have moved.
    moved: Moved,
}

/// What a queue's packets are sent with.
struct Sends {
    settings: Settings,
    loopback: bool,
    /// The pool that has sent them, if others of the PF may want them.
    looks_inside: Option<u32>,
    /// Frames of a batch.
    limit: usize,
}

impl Call<'_, '_> {
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
        let function = Arc::clone(&self.function);
        let settings = function.settings();
        if !settings.tx_on || !function.moves() {
            // Once it may go on, any queue may have something.
            self.waiting = (1 << function.queues.len()) - 1;
            return Progress::Idle;
        }
        let mut budget = budget.max(1);
        if !function.loopback.load(Ordering::Acquire) {
            match function.send_pause(to) {
                None => return Progress::Blocked,
                Some(sent) => budget -= usize::from(sent),
            }
            if budget == 0 {
                return Progress::More;
            }
            // The timer brings us back when the pause is over.
            if function.is_silent(env) {
                self.waiting = (1 << function.queues.len()) - 1;
                return Progress::Idle;
            }
        }
        // What is rung from now on is for the next call, if this one does not see it.
        self.waiting |= function.tx_rung.swap(0, Ordering::AcqRel);
        if self.waiting == 0 {
            return Progress::Idle;
        }
        let view = env.memory.view();
        // Taken when something needs it.
        let mut scratch = None;
        let mut call = Call {
            function: &function,
            env,
            view: &view,
            to,
            settings,
            budget,
            room: TURN_BYTES,
            walked: 0,
            causes: Causes::default(),
            moved: Moved::default(),
        };
        let progress = self.turns(&mut call, &mut scratch);
        if !call.causes.is_empty() {
            let mut irq = function.irq.lock();
            if function.adapts {
                irq.sent(&call.moved);
            }
            irq.raise(env, call.causes);
        }
        if let Some(scratch) = scratch {
            Scratch::end(scratch);
        }
        progress
    }
}

impl<I: Inside> Sender<I> {
    fn turns<'v>(
        &mut self,
        call: &mut Call<'_, 'v>,
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
    fn turn<'v>(
        &mut self,
        call: &mut Call<'_, 'v>,
        queue: u32,
        walked: &mut u32,
        scratch: &mut Option<Scratch<'v>>,
    ) -> Turn {
        let function = call.function;
        let Some(own) = function.queues.get(queue as usize) else {
            return Turn::Idle;
        };
        let mut state = own.tx.lock();
        if !function.tx_enabled(queue) || !call.settings.pool_sends(&function.file, queue) {
            return Turn::Idle;
        }
        let ids = function.ids;
        let Some(ring) = Ring::read_at(&function.file, &ids.tx_ring(), queue) else {
            let at = |id| function.file.get_at(id, queue);
            if at(ids.tdt) != at(ids.tdh) {
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
        let loopback = function.loopback.load(Ordering::Acquire);
        let alone = self.waiting & !(1 << queue) == 0;
        let quantum = if alone && !self.short {
            MAX_BATCH
        } else {
            QUANTUM
        };
        let limit = self.fan_out.frames(call.budget).min(quantum);
        let settings = call.settings.of_queue(&function.file, queue);
        let looks_inside = match function.kind {
            FunctionKind::Pf => call.settings.looks_inside(&function.file, queue),
            FunctionKind::Vf(_) => None,
        };
        let plain =
            function.fast_path && !loopback && looks_inside.is_none() && settings.tag.is_none();
        if plain && state.is_between() && self.runs.tries() {
            let limits = (limit, call.room);
            let from = (call.view, call.to);
            if let Some(sent) = run::send((function, queue), from, (&ring, left), limits) {
                return self.sent_run(call, (queue, &ring, walked), &sent);
            }
            self.runs.failed();
        }
        let sends = Sends {
            settings,
            loopback,
            looks_inside,
            limit,
        };
        let scratch = scratch.get_or_insert_with(Scratch::take);
        self.batch(
            call,
            (queue, walked),
            (&mut state, &ring, left),
            &sends,
            scratch,
        )
    }

    /// A turn with a batch.
    fn batch<'v>(
        &mut self,
        call: &mut Call<'_, 'v>,
        (queue, walked): (u32, &mut u32),
        (state, ring, left): (&mut TxState, &Ring, u32),
        sends: &Sends,
        scratch: &mut Scratch<'v>,
    ) -> Turn {
        let function = call.function;
        let ids = function.ids;
        let &Sends {
            ref settings,
            loopback,
            looks_inside,
            limit,
        } = sends;
        scratch.batch.clear();
        let caps = if loopback { Caps::NONE } else { call.to.caps() };
        let mut parser = Parser::<Descs>::new(
            call.view,
            (*ring, left, call.room),
            state.memory,
            function.tx_settings(settings, caps),
            &function.counters,
        );
        let end = parser.fill(&mut self.store, scratch, state.taken, limit);
        let (unread, room) = parser.left();
        call.room = room;
        call.walked = call.walked.saturating_add(left - unread);
        let batch = &scratch.batch;
        let offered = batch.len();
        let picks = &EACH[..offered];
        // Before it can have come anywhere: no frame arrives before it left.
        let timed = matches!(function.kind, FunctionKind::Pf) && self.store.is_timed();
        let leaving = timed.then(|| call.env.clock.now());
        let taken = if offered == 0 {
            0
        } else if loopback {
            self.inside.looped_back(call.env, batch, picks);
            offered
        } else if let Some(pool) = looks_inside {
            pools::send(
                function,
                &*self.inside,
                call.env,
                pool,
                call.to,
                (batch, picks),
            )
        } else {
            call.to.deliver(batch, picks).min(offered)
        };
        let done = finish(
            function,
            call.view,
            queue,
            (state, &self.store),
            ring,
            (batch, taken),
        );
        if let Some(leaving) = leaving.filter(|_| done.stamp) {
            function.ptp.lock().sent(&function.file, leaving);
        }
        call.finished(queue, ring, done);
        *walked = walked.saturating_add(done.moved);
        let cost = self.fan_out.learn(taken);
        call.budget = call.budget.saturating_sub(cost);
        self.short = taken < offered;
        if self.short {
            return Turn::Blocked;
        }
        let tail = function.file.get_at(ids.tdt, queue);
        outcome(end, (ring, left, tail), done.moved)
    }
}

impl<I> Sender<I> {
    /// Ends a turn with a run.
    fn sent_run(
        &mut self,
        call: &mut Call<'_, '_>,
        (queue, ring, walked): (u32, &Ring, &mut u32),
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
        let function = call.function;
        let tail = function.file.get_at(function.ids.tdt, queue);
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

impl Function {
    /// What the settings of a queue say about all packets of a batch.
    #[inline]
    fn tx_settings(&self, settings: &Settings, caps: Caps) -> intel::tx::Settings {
        intel::tx::Settings {
            caps,
            pad: settings.pad,
            vlan: settings.insert_vlan.then_some(settings.vet),
            tag: settings.tag.map(|tci| (settings.vet, tci)),
            // Those that get a tag are not plain.
            fast_path: self.fast_path && settings.tag.is_none(),
        }
    }
}
