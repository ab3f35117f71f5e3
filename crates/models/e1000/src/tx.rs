//! The transmit side: from descriptors to frames, and their write-back (manual §3.3, §3.4).

mod complete;
mod csb;
pub(crate) mod desc;
mod pause;
mod plan;
mod run;
mod single;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::Arc;

use datapath::csb::CsbPage;
use frame::Sink;
use guest_mem::View;
use intel::tx::Scratch;
use model::{Env, Progress, Transmit, Watch};

use crate::core::chip::Chip;
use crate::core::tx_queue::{SHELF, TxState};
use crate::tx::turn::{Step, Turn};

/// The transmit part.
pub(crate) struct Sender {
    pub chip: Arc<Chip>,
    pub watch: Watch,
}

impl Sender {
    /// A run of which nothing is heard.
    pub(crate) fn pass_over(&mut self, env: &Env, to: &dyn Sink) {
        let _ = self.run(env, to, frame::MAX_BATCH);
    }
}

impl Transmit for Sender {
    fn watch(&self) -> Watch {
        self.watch
    }

    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress {
        let chip = &*self.chip;
        let mut state = chip.tx.lock();
        let view = env.memory.view();
        state.stride.taken = 0;
        let page = state.csb.begin(chip, env, &view);
        let budget = budget.max(1);
        let sent = match page {
            None => single::send((chip, env, to), &view, &mut state),
            Some(_) => None,
        };
        let progress = match sent {
            Some(sent) if sent.cost >= budget => Progress::More,
            Some(sent) if sent.all => Progress::Idle,
            sent => {
                let cost = sent.map_or(0, |sent| sent.cost);
                turns((chip, env, to), (&view, page), &mut state, budget - cost)
            }
        };
        self.watch = page.map_or(Watch::Off, |_| state.csb.watch);
        state.unfinished = progress != Progress::Idle;
        progress
    }
}

/// Sends what is there, within `budget`. Not inlined: a packet that is sent alone is not slowed down by what it does not need.
#[inline(never)]
fn turns(
    (chip, env, to): (&Chip, &Env, &dyn Sink),
    (view, page): (&View<'_>, Option<CsbPage<'_>>),
    state: &mut TxState,
    budget: usize,
) -> Progress {
    let mut turn = Turn::new((chip, env, to), (view, page), budget);
    // Taken when something needs it.
    let mut scratch = None;
    let end = loop {
        match turn.step(state, &mut scratch) {
            Step::Again => {}
            end => break end,
        }
    };
    state.store.give_back(&SHELF);
    if let Some(scratch) = scratch {
        Scratch::end(scratch);
    }
    let progress = match end {
        Step::End(progress) => progress,
        Step::Off | Step::Again => Progress::Idle,
    };
    // Without more to do, and not because something is off that will be noted when it goes on.
    if let Some(page) = page.filter(|_| end == Step::End(Progress::Idle))
        && state.csb.end(chip, env, &page)
    {
        return Progress::More;
    }
    progress
}
