//! The transmit side: from descriptors to frames, and their write-back (manual §3.3, §3.4).

mod complete;
mod csb;
pub(crate) mod desc;
mod pause;
mod plan;
mod run;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datapath::counters::count;
use frame::{Batch, Caps, Sink};
use intel::tx::{EACH, End, Parser, Scratch};
use model::{Env, Progress, TURN_BYTES, Transmit, Watch};

use crate::core::chip::Chip;
use crate::core::tx_queue::TxState;
use crate::regs as r;
use crate::rx::Excess;
use crate::tx::complete::finish;
use crate::tx::desc::Descs;

/// Descriptors that are read to learn what becomes of the rest of a run.
const PROBE: u32 = 16;

/// The transmit part.
pub(crate) struct Sender {
    pub chip: Arc<Chip>,
    pub watch: Watch,
}

impl Transmit for Sender {
    fn watch(&self) -> Watch {
        self.watch
    }

    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress {
        let chip = &*self.chip;
        let mut state = chip.tx.lock();
        let view = env.memory.view();
        // Taken when something needs it.
        let mut scratch = None;
        let mut budget = budget.max(1);
        let mut room = TURN_BYTES;
        state.stride.taken = 0;
        // Descriptors to look at: few behind a run that the sink was short of room for.
        let mut most = u32::MAX;
        // A guest that keeps the tail moving is served one ring's worth, then others are.
        let mut steps = None;
        let page = state.csb.begin(chip, env, &view);
        // Without more to do, and not because something is off that will be noted when it goes on.
        let mut done = true;
        let mut progress = loop {
            let plan = state.plan.of_now(chip);
            if !plan.on {
                done = false;
                break Progress::Idle;
            }
            let loopback = plan.loopback;
            if !loopback {
                let Some(settled) = pause::settle(chip, to, budget) else {
                    break Progress::Blocked;
                };
                budget -= settled;
                if budget == 0 {
                    break Progress::More;
                }
                // The timer brings us back when the pause is over.
                if chip.flow.paused(&chip.file, env) {
                    done = false;
                    break Progress::Idle;
                }
            }
            if let Some(page) = &page {
                state.csb.take_tail(chip, page);
            }
            let Some(ring) = plan.ring(&chip.file) else {
                if chip.file.get(r::TDT) != chip.file.get(r::TDH) {
                    count(&chip.counters.tx_bad_ring, 1);
                }
                break Progress::Idle;
            };
            let steps = steps.get_or_insert(ring.len);
            let left = ring.available().min(*steps).min(most);
            let probes = std::mem::replace(&mut most, u32::MAX) != u32::MAX;
            if left == 0 {
                break if ring.available() == 0 {
                    Progress::Idle
                } else {
                    Progress::More
                };
            }
            let limit = state.fan_out.frames(budget).min(state.stride.frames);
            if self.chip.fast_path && !loopback && state.position.is_between() && state.runs.tries()
            {
                let limits = (limit, room);
                let sent = run::send(
                    (chip, env, to),
                    (&view, page),
                    (&ring, left, plan.low),
                    limits,
                );
                let Some(sent) = sent else {
                    state.runs.failed();
                    continue;
                };
                state.runs.worked();
                *steps = steps.saturating_sub(sent.packets as u32);
                let cost = state.fan_out.learn(sent.packets);
                budget = budget.saturating_sub(cost);
                room = room.saturating_sub(sent.bytes);
                state.stride.learn(sent.packets, sent.offered);
                if sent.packets < sent.offered {
                    // What is left of it waits, or is lost, as the general way has it.
                    state.runs.failed();
                    most = PROBE;
                }
                if budget == 0 || room == 0 {
                    break Progress::More;
                }
                // All of it is done, and nothing has come since.
                if sent.packets == ring.available() as usize && chip.file.get(r::TDT) == ring.tail {
                    break Progress::Idle;
                }
                continue;
            }
            let caps = if loopback { Caps::NONE } else { to.caps() };
            let scratch = scratch.get_or_insert_with(Scratch::take);
            let TxState {
                store, position, ..
            } = &mut *state;
            let mut parser = Parser::<Descs>::new(
                &view,
                (ring, left, room),
                position.memory,
                plan.settings(caps, chip.fast_path),
                &chip.counters,
            );
            let end = parser.fill(store, scratch, position.taken, limit);
            (_, room) = parser.left();
            let batch = &scratch.batch;
            let offered = batch.len();
            let taken = offer(chip, env, to, loopback, batch);
            let moved = finish(chip, env, (&view, page), &mut state, &ring, batch, taken);
            *steps = steps.saturating_sub(moved);
            let cost = state.fan_out.learn(taken);
            budget = budget.saturating_sub(cost);
            state.stride.learn(taken, offered);
            scratch.batch.clear();
            if taken < offered {
                break Progress::Blocked;
            }
            match end {
                End::Full if budget == 0 || room == 0 => break Progress::More,
                End::Full => {}
                End::Fault => break Progress::Idle,
                End::Tail if moved == 0 && probes => {}
                // Nothing complete was left: what is there waits for its end.
                End::Tail if moved == 0 && ring.available() > left => break Progress::More,
                End::Tail if moved == 0 => break Progress::Idle,
                // All of it is done, and nothing has come since.
                End::Tail if moved == ring.available() && budget > 0 => {
                    if chip.file.get(r::TDT) == ring.tail {
                        break Progress::Idle;
                    }
                }
                End::Tail => {}
            }
        };
        if let Some(page) = page.filter(|_| done && progress == Progress::Idle)
            && state.csb.end(chip, env, &page)
        {
            progress = Progress::More;
        }
        self.watch = state.csb.watch;
        state.unfinished = progress != Progress::Idle;
        if let Some(scratch) = scratch {
            scratch.end();
        }
        progress
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
