//! The transmit side: from descriptors to frames, and their write-back (manual §3.3, §3.4).

mod complete;
mod csb;
pub(crate) mod desc;
mod fast_path;
mod parser;
mod pause;

use std::cell::Cell;
use std::sync::Arc;

use datapath::counters::count;
use frame::{Batch, Caps, MAX_BATCH, Sink};
use guest_mem::ReadSlice;
use intel::Ring;
use model::{Env, Progress, TURN_BYTES, Transmit, Watch};

use crate::core::chip::Chip;
use crate::core::tx_queue::RING;
use crate::regs as r;
use crate::tx::complete::finish;
use crate::tx::parser::{End, Parser};

/// The picks of a batch that is offered whole.
const EACH: [u16; MAX_BATCH] = {
    let mut each = [0; MAX_BATCH];
    let mut i = 0;
    while i < MAX_BATCH {
        each[i] = i as u16;
        i += 1;
    }
    each
};

/// Storage for borrowed slices. They are bound to a thread, so the storage is too.
#[derive(Default)]
struct Scratch {
    batch: Batch<'static>,
    pieces: Vec<ReadSlice<'static>>,
}

thread_local! {
    /// In a box: taking it and giving it back moves a pointer.
    static SCRATCH: Cell<Option<Box<Scratch>>> = Cell::default();
}

/// Empties a list of slices for use with another lifetime, keeping its storage.
fn recycle<'n>(mut pieces: Vec<ReadSlice<'_>>) -> Vec<ReadSlice<'n>> {
    pieces.clear();
    // Collecting an emptied Vec in place keeps its allocation.
    pieces
        .into_iter()
        .map(|_| unreachable!("emptied above"))
        .collect()
}

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
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let mut batch = std::mem::take(&mut scratch.batch).recycle();
        let mut pieces = recycle(std::mem::take(&mut scratch.pieces));
        let mut budget = budget.max(1);
        let mut room = TURN_BYTES;
        state.stride.taken = 0;
        // A guest that keeps the tail moving is served one ring's worth, then others are.
        let mut steps = None;
        let page = state.csb.begin(chip, env, &view);
        // Without more to do, and not because something is off that will be noted when it goes on.
        let mut done = true;
        let mut progress = loop {
            if !chip.tx_enabled() {
                done = false;
                break Progress::Idle;
            }
            let loopback = chip.loopback();
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
            let Some(ring) = Ring::read(&chip.file, &RING) else {
                if chip.file.get(r::TDT) != chip.file.get(r::TDH) {
                    count(&chip.counters.tx_bad_ring, 1);
                }
                break Progress::Idle;
            };
            let steps = steps.get_or_insert(ring.len);
            let left = ring.available().min(*steps);
            if left == 0 {
                break if ring.available() == 0 {
                    Progress::Idle
                } else {
                    Progress::More
                };
            }
            let caps = if loopback { Caps::NONE } else { to.caps() };
            let mut parser = Parser::new(chip, &view, (ring, left), caps, state.memory, room);
            let limit = budget.min(state.stride.frames);
            let end = parser.fill(&mut state, &mut batch, &mut pieces, limit);
            room = parser.room;
            let offered = batch.len();
            let picks = &EACH[..offered];
            let taken = if offered == 0 {
                0
            } else if loopback {
                // What our own receiver has no room for is missed, as on a wire.
                let kept = crate::rx::deliver(chip, env, &batch, picks);
                if kept < offered {
                    crate::rx::give_up(chip, env, &batch, &picks[kept..]);
                }
                offered
            } else {
                to.deliver(&batch, picks).min(offered)
            };
            let moved = finish(chip, env, (&view, page), &mut state, &ring, &batch, taken);
            *steps = steps.saturating_sub(moved);
            budget = budget.saturating_sub(taken);
            state.stride.learn(taken, offered);
            batch.clear();
            if taken < offered {
                break Progress::Blocked;
            }
            match end {
                End::Full if budget == 0 || room == 0 => break Progress::More,
                End::Full => {}
                End::Fault => break Progress::Idle,
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
        scratch.batch = batch.recycle();
        scratch.pieces = recycle(pieces);
        SCRATCH.set(Some(scratch));
        progress
    }
}
