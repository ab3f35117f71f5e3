//! One call of the transmitter: whole runs of packets and batches of others, until the ring, the sink's room or the budget
//! ends.

use datapath::counters::count;
use datapath::csb::CsbPage;
use frame::{Batch, Caps, EACH, Sink};
use guest_mem::View;
use intel::Ring;
use intel::tx::{End, Parser, Scratch, tell_unsent};
use model::{Env, Progress, TURN_BYTES};

use crate::core::chip::Chip;
use crate::core::context::Contexts;
use crate::core::kept;
use crate::core::tx_queue::{SHELF, TxPlan, TxState};
use crate::regs as r;
use crate::rx::Excess;
use crate::tx::complete::finish;
use crate::tx::desc::Descs;
use crate::tx::{pause, run};

/// Descriptors that are read to learn what becomes of the rest of a run.
const PROBE: u32 = 16;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There may be more.
    Again,
    /// The call ends.
    End(Progress),
    /// It ends because something is off that will be noted when it goes on.
    Off,
}

/// What is left of a call.
pub(crate) struct Turn<'t, 'v> {
    chip: &'t Chip,
    env: &'t Env,
    to: &'t dyn Sink,
    view: &'v View<'v>,
    page: Option<CsbPage<'v>>,
    /// Frames and bytes that may still be sent.
    budget: usize,
    room: usize,
    /// Descriptors that may still be walked, once the ring is known. A guest that keeps the tail moving is served one
    /// ring's worth, then others are.
    steps: Option<u32>,
    /// Descriptors to look at in the next step: few of a run that the sink was short of room for.
    most: u32,
}

/// The ring in one step.
#[derive(Clone, Copy)]
struct Work {
    ring: Ring,
    /// Descriptors to look at, and frames to make of them.
    left: u32,
    limit: usize,
    /// They are fewer than there are.
    probes: bool,
}

impl<'t, 'v> Turn<'t, 'v> {
    #[inline]
    pub(crate) fn new(
        (chip, env, to): (&'t Chip, &'t Env, &'t dyn Sink),
        (view, page): (&'v View<'v>, Option<CsbPage<'v>>),
        budget: usize,
    ) -> Self {
        Turn {
            chip,
            env,
            to,
            view,
            page,
            budget: budget.max(1),
            room: TURN_BYTES,
            steps: None,
            most: u32::MAX,
        }
    }

    /// Sends a run, or a batch.
    #[inline]
    pub(crate) fn step(&mut self, state: &mut TxState, scratch: &mut Option<Scratch<'v>>) -> Step {
        let chip = self.chip;
        let make = || TxPlan::make(chip);
        let plan = *state.plan.of(chip.setup.get(), make);
        if !plan.on {
            return Step::Off;
        }
        if !plan.loopback {
            let Some(settled) = pause::settle(chip, self.to, self.budget) else {
                return Step::End(Progress::Blocked);
            };
            self.budget -= settled;
            if self.budget == 0 {
                return Step::End(Progress::More);
            }
            // The timer brings us back when the pause is over.
            if chip.flow.paused(&chip.file, self.env) {
                return Step::Off;
            }
        }
        if let Some(page) = &self.page {
            state.csb.take_tail(chip, page);
        }
        let Some(ring) = plan.place.ring(&chip.file) else {
            if plan.place.tail(&chip.file) != plan.place.head(&chip.file) {
                count(&chip.counters.tx_bad_ring, 1);
            }
            return Step::End(Progress::Idle);
        };
        let steps = *self.steps.get_or_insert(ring.len);
        let left = ring.available().min(steps).min(self.most);
        let probes = std::mem::replace(&mut self.most, u32::MAX) != u32::MAX;
        if left == 0 {
            return Step::End(match ring.available() {
                0 => Progress::Idle,
                _ => Progress::More,
            });
        }
        let work = Work {
            ring,
            left,
            limit: state.fan_out.frames(self.budget).min(state.stride.frames),
            probes,
        };
        let plain = chip.fast_path && !plan.loopback && state.position.is_between();
        if plain && state.runs.tries() {
            return self.run(state, &plan, &work);
        }
        let scratch = scratch.get_or_insert_with(Scratch::take);
        self.batch(state, &plan, &work, scratch)
    }

    /// Sends the run at the head of the ring, if there is one.
    #[inline]
    fn run(&mut self, state: &mut TxState, plan: &TxPlan, work: &Work) -> Step {
        let (ring, limits) = (&work.ring, (work.limit, self.room));
        let world = (self.chip, self.env, self.to);
        let memory = (self.view, self.page);
        let Some(sent) = run::send(world, memory, (ring, work.left, plan.low), limits) else {
            state.runs.failed();
            return Step::Again;
        };
        state.runs.worked();
        let packets = sent.packets;
        self.steps = self.steps.map(|steps| steps.saturating_sub(packets as u32));
        self.budget = self.budget.saturating_sub(state.fan_out.learn(packets));
        self.room = self.room.saturating_sub(sent.bytes);
        state.stride.learn(packets, sent.offered);
        if packets < sent.offered {
            // What is left of it waits, or is lost, as a batch has it.
            state.runs.failed();
            self.most = PROBE.min((sent.offered - packets) as u32);
        }
        if self.budget == 0 || self.room == 0 {
            return Step::End(Progress::More);
        }
        let all = packets == ring.available() as usize;
        // Nothing has come since.
        if all && plan.place.tail(&self.chip.file) == ring.tail {
            return Step::End(Progress::Idle);
        }
        Step::Again
    }

    /// Sends a batch.
    fn batch(
        &mut self,
        state: &mut TxState,
        plan: &TxPlan,
        work: &Work,
        scratch: &mut Scratch<'v>,
    ) -> Step {
        let (chip, to) = (self.chip, self.to);
        let &Work {
            ring, left, limit, ..
        } = work;
        let caps = match plan.loopback {
            true => Caps::NONE,
            false => to.caps(),
        };
        let TxState {
            store, position, ..
        } = state;
        let store = store.get(&SHELF);
        let mut parser = Parser::<Descs>::new(
            self.view,
            (ring, left, self.room),
            position.memory,
            plan.settings(caps, chip.fast_path),
            &chip.counters,
        );
        let end = parser.fill(store, scratch, position.taken, limit);
        (_, self.room) = parser.left();
        let batch = &scratch.batch;
        let offered = batch.len();
        if let Some(kept) = chip.kept.get()
            && let Some((next, reported)) = store.end()
        {
            kept::sent(kept).begins::<Contexts>(self.view, &ring, (next, reported), true);
        }
        let taken = offer(chip, self.env, to, plan.loopback, batch);
        if store.has_refused() || end == End::Fault {
            tell_unsent(store, (self.view, &ring), (taken, end), to);
        }
        let memory = (self.view, self.page);
        let moved = finish(
            chip,
            self.env,
            memory,
            state,
            (&ring, plan.low),
            batch,
            taken,
        );
        self.steps = self.steps.map(|steps| steps.saturating_sub(moved));
        self.budget = self.budget.saturating_sub(state.fan_out.learn(taken));
        state.stride.learn(taken, offered);
        scratch.batch.clear();
        if taken < offered {
            state.runs.was_full();
            return Step::End(Progress::Blocked);
        }
        self.outcome(end, work, moved)
    }

    /// How a step ends in which all that was offered was taken, and `moved` descriptors are done.
    fn outcome(&self, end: End, work: &Work, moved: u32) -> Step {
        let &Work {
            ring, left, probes, ..
        } = work;
        match end {
            End::Full if self.budget == 0 || self.room == 0 => Step::End(Progress::More),
            End::Fault => Step::End(Progress::Idle),
            End::Tail if moved == 0 && probes => Step::Again,
            // Nothing complete was left: what is there waits for its end.
            End::Tail if moved == 0 && ring.available() > left => Step::End(Progress::More),
            End::Tail if moved == 0 => Step::End(Progress::Idle),
            // All of it is done, and nothing has come since.
            End::Tail
                if moved == ring.available()
                    && self.budget > 0
                    && self.chip.file.get(r::TDT) == ring.tail =>
            {
                Step::End(Progress::Idle)
            }
            End::Full | End::Tail => Step::Again,
        }
    }
}

/// Offers a batch to the sink, or in loopback to our own receiver. Returns how many frames were taken.
fn offer(chip: &Chip, env: &Env, to: &dyn Sink, loopback: bool, batch: &Batch<'_>) -> usize {
    let offered = batch.len();
    let picks = &EACH[..offered];
    if offered == 0 {
        return 0;
    }
    if !loopback {
        return to.deliver(batch, picks).min(offered);
    }
    // What our own receiver has no room for is missed, as on a wire.
    let kept = crate::rx::deliver(chip, env, batch, picks, Excess::IntoFifo);
    if kept < offered {
        crate::rx::give_up(chip, env, batch, &picks[kept..]);
    }
    offered
}
