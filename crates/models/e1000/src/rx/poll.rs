//! A look at what has changed for the receiver: buffers have come, frames wait, senders wait for room.

use std::sync::atomic::Ordering;

use intel::Ring;
use model::Env;

use crate::core::chip::Chip;
use crate::core::rx_queue::RING;
use crate::rx::call::{ROUNDS, Rx, unused};

/// Looks, or leaves it to the sender that holds the lock for long.
pub(crate) fn poll(chip: &Chip, env: &Env) {
    loop {
        if !look(chip, env) {
            // Written before the lock is asked for once more: its holder sees it, or we have the lock.
            chip.rx_poll_owed.store(true, Ordering::Relaxed);
            if !look(chip, env) {
                return;
            }
        }
        if !is_owed(chip) {
            return;
        }
    }
}

/// For each who has held the lock, once it is free: does what others have left to it.
#[inline]
pub(crate) fn let_go(chip: &Chip, env: &Env) {
    if is_owed(chip) {
        poll(chip, env);
    }
}

/// Wakes senders that were turned away. `true`: so was a look.
#[inline]
fn is_owed(chip: &Chip) -> bool {
    if !chip.rx.relieve() {
        return false;
    }
    chip.waiters.wake();
    chip.rx_poll_owed.swap(false, Ordering::Relaxed)
}

/// `false`: another one holds the lock for long.
fn look(chip: &Chip, env: &Env) -> bool {
    let Some(mut state) = chip.rx.reach() else {
        return false;
    };
    if state.fifo.is_empty() && !chip.csb.is_set() {
        // Nothing waits here; senders may wait for room. As in `wake_any`: those that come later see the tail.
        if !chip.waiters.any() {
            return true;
        }
        let ring = Ring::read(&chip.file, &RING);
        let room = ring.is_none_or(|ring| unused(&mut state, &ring).min(chip.allowance()) > 0);
        drop(state);
        if room || !chip.rx_enabled() {
            chip.waiters.wake_any();
        }
        return true;
    }
    // The view first, as everywhere.
    drop(state);
    let view = env.memory.view();
    let mut rx = Rx::new(chip, &view, chip.rx_page(env, &view));
    let Some(mut state) = chip.rx.reach() else {
        rx.end();
        return false;
    };
    let mut free = 1;
    for _ in 0..ROUNDS {
        rx.take_tail();
        let ring = Ring::read(&chip.file, &RING);
        // Without a ring there is nothing to wait for.
        free = 1;
        if let Some(ring) = ring {
            rx.begin(&mut state, ring);
            free = rx.writer.room.free;
            if free > 0 && !state.fifo.is_empty() && chip.rx_may_write() {
                rx.drain(&mut state);
                free = rx.writer.room.free;
                rx.finish(env, &mut state);
            }
        }
        let short = !state.fifo.is_empty() || free == 0 && chip.waiters.any();
        if !rx.settle(env, &mut state, short) {
            break;
        }
    }
    let room = if state.fifo.is_empty() {
        free > 0
    } else {
        !state.fifo.is_half_full()
    };
    drop(state);
    rx.end();
    if room || !chip.rx_enabled() {
        chip.waiters.wake();
    }
    true
}
