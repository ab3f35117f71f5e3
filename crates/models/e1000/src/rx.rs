//! The receive side: from frames to buffers and descriptors (manual §3.2).
//!
//! A call goes through its frames in order. Runs of plain ones are planned, filled and written back
//! together ([`fast_path`]); the others go one by one ([`mod@write`]). While several senders
//! are about, what was planned is leased and filled without the lock ([`lease`]).

mod call;
mod counts;
mod csb;
mod fast_path;
#[cfg(test)]
mod fast_path_tests;
mod fill;
mod l2_filter;
mod offer;
mod own_copy;
mod plan;
mod poll;
mod run;
mod trace;
mod write;
mod write_back;
mod writer;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datapath::RECEIVED;
use datapath::counters::count;
use frame::{Batch, Caps, Cut, Frame, Run, Wake};
use guest_mem::Hot;
use intel::Ring;
use intel::wake::Wakes;
use model::{Env, Receive, TakeTail};

use crate::core::chip::Chip;
use crate::core::kept;
use crate::core::rx_queue::{Account, RING};
use crate::regs as r;
pub(crate) use crate::rx::call::Excess;
use crate::rx::call::{Outcome, ROUNDS, Rx};
use crate::rx::own_copy::OwnCopy;
use crate::rx::write_back::Filling;

/// Most frames planned at once: what is fetched ahead of them stays in the nearest cache.
const CHUNK: usize = 64;

/// The receive part is the common state itself: a sender finds all of it in one place.
impl Receive for Chip {
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.receive(env, batch, picks, Excess::IntoFifo)
    }

    fn deliver_or_leave(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.receive(env, batch, picks, Excess::Left)
    }

    fn deliver_run(&self, env: &Env, run: &Run<'_>) -> Option<usize> {
        run::deliver(self, env, run)
    }

    fn deliver_cut(&self, env: &Env, cut: &Cut<'_>, from: usize) -> Option<usize> {
        run::deliver_cut((self, env), cut, from)
    }

    fn caps(&self) -> Caps {
        RECEIVED
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.waiters.add(waker);
    }

    fn poll(&self, env: &Env) {
        poll::poll(self, env);
    }

    fn hot(&self, hot: &mut Hot) {
        self.add_hot(hot);
    }

    fn keeps_excess(&self) -> bool {
        // In the packet FIFO.
        true
    }

    fn look_at_tail(&self, env: &Env, queue: u32, take: TakeTail<'_>) -> bool {
        let chip = self;
        // The other one is the transmit ring.
        if queue != 0 {
            return false;
        }
        // Who places the ring anew waits for the lock: what is read under it is of the ring as it is.
        let Some(lock) = chip.rx.reach() else {
            return false;
        };
        let mut found = false;
        if chip.rx_enabled() {
            take(&mut |tail| {
                // The register side takes it once more, and counts it. Another frame may have before it.
                let tail = tail & r::TAIL;
                found = chip.file.get(r::RDT) != tail;
                chip.file.set(r::RDT, tail);
                chip.note_word(kept::RDT, tail);
            });
        }
        drop(lock);
        poll::let_go(chip, env);
        found
    }

    fn trace(
        &self,
        _: &Env,
        frame: &Frame<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<bool> {
        Some(trace::trace(self, frame, tell))
    }

    fn give_up(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) {
        if !self.loopback() {
            give_up(self, env, batch, picks);
        }
    }
}

impl Chip {
    #[inline]
    fn receive(&self, env: &Env, batch: &Batch<'_>, picks: &[u16], excess: Excess) -> usize {
        if self.loopback() {
            // The wire is cut off.
            count(&self.counters.rx_disabled, picks.len() as u64);
            return picks.len();
        }
        deliver(self, env, batch, picks, excess)
    }
}

/// Counts frames as missed that found no room and whose sender does not keep them.
pub(crate) fn give_up(chip: &Chip, env: &Env, batch: &Batch<'_>, picks: &[u16]) {
    let view = env.memory.view();
    let mut rx = Rx::new(chip, &view, None);
    let Some(mut state) = chip.rx.reach() else {
        rx.end();
        count(&chip.counters.rx_held_up, picks.len() as u64);
        return;
    };
    if let Some(ring) = Ring::read(&chip.file, &RING).filter(|_| chip.rx_enabled()) {
        rx.begin(&mut state, ring);
        for frame in picks.iter().filter_map(|p| batch.get(usize::from(*p))) {
            rx.lose(&frame);
        }
        rx.finish(env, &mut state);
    }
    drop(state);
    rx.end();
    poll::let_go(chip, env);
}

/// The ring that frames go to now, or what counts those that come.
fn ring(chip: &Chip) -> Result<Ring, &AtomicU64> {
    if !chip.rx_enabled() {
        return Err(&chip.counters.rx_disabled);
    }
    Ring::read(&chip.file, &RING).ok_or(&chip.counters.rx_bad_ring)
}

/// Takes as many frames as there are descriptors for, and of the `excess` as many as the FIFO holds, if they may
/// go there.
pub(crate) fn deliver(
    chip: &Chip,
    env: &Env,
    batch: &Batch<'_>,
    picks: &[u16],
    excess: Excess,
) -> usize {
    let counters = &chip.counters;
    let view = env.memory.view();
    let mut rx = Rx::new(chip, &view, chip.rx_page(env, &view));
    rx.call.excess = excess;
    let mut rounds = 0;
    let Some(mut state) = chip.rx.reach() else {
        rx.end();
        count(&counters.rx_held_up, picks.len() as u64);
        return 0;
    };
    if chip.wake.armed() {
        let frames = picks.iter().filter_map(|pick| batch.get((*pick).into()));
        frames.for_each(|frame| chip.wake_by(env, &frame));
    }
    let mut dealt = 0;
    let mut leased = false;
    // While others want the lock, nothing is read from the sender's memory under it.
    let mut own = OwnCopy::default();
    // Once, and again after each lease: all may have changed while the lock was free.
    'locked: loop {
        rx.take_tail();
        let ring = match ring(chip) {
            Ok(ring) => ring,
            Err(reason) => {
                count(reason, (picks.len() - dealt) as u64);
                dealt = picks.len();
                break;
            }
        };
        rx.begin(&mut state, ring);
        rx.drain(&mut state);
        while dealt < picks.len() {
            rx.call.expected = picks.len() - dealt;
            let planned = rx.plan_run(&state, batch, &picks[dealt..], CHUNK);
            if planned > 0 {
                dealt += planned;
                if rx.plan.pieces.is_empty() {
                    continue;
                }
                // Not behind what this call has already written back and RDH does not say yet: with
                // the lock free, others would begin from there.
                let ticket = if rx.writer.flushed == 0 && state.crowded() {
                    rx.lease(&mut state)
                } else {
                    None
                };
                let Some(ticket) = ticket else {
                    rx.fill(batch, || true);
                    rx.flush(&state);
                    continue;
                };
                let filling = Filling::new(&rx, ticket);
                drop(state);
                poll::let_go(chip, env);
                rx.fill(batch, || filling.is_wanted());
                state = chip.rx.lock();
                if let Some(ticket) = filling.end() {
                    rx.close(env, &mut state, ticket);
                }
                leased = true;
                continue 'locked;
            }
            let outcome = match batch.get(usize::from(picks[dealt])) {
                Some(frame) if state.crowded() => {
                    if !own.is(dealt) {
                        rx.finish(env, &mut state);
                        rx.counts.account = Account::default();
                        drop(state);
                        poll::let_go(chip, env);
                        own.keep(dealt, &frame);
                        let Some(again) = chip.rx.reach() else {
                            rx.end();
                            count(&counters.rx_held_up, (picks.len() - dealt) as u64);
                            return dealt;
                        };
                        state = again;
                        continue 'locked;
                    }
                    own.offer(frame.notes(), |frame| rx.offer(&mut state, frame))
                }
                Some(frame) => rx.offer(&mut state, &frame),
                None => Outcome::Lost,
            };
            if let Outcome::NoRoom = outcome {
                count(&counters.rx_back_pressure, 1);
                break;
            }
            dealt += 1;
        }
        rx.finish(env, &mut state);
        let short = dealt < picks.len() || !state.fifo.is_empty();
        rounds += 1;
        if !rx.settle(env, &mut state, short) || rounds == ROUNDS {
            break;
        }
    }
    // Senders that found no room because of this lease wait for it.
    let relieved = leased && state.relieved();
    drop(state);
    rx.end();
    if relieved {
        chip.waiters.wake();
    }
    poll::let_go(chip, env);
    dealt
}
