//! Goes on with a NIC whose process died at any instruction: its last saved state, and the words that it kept.
//!
//! The words are believed where they can be, and checked: a process that died may have been mad before.

use std::sync::Arc;

use model::{Env, Kept, Nanos, StateError, Work};

use crate::control::Registers;
use crate::control::load::check;
use crate::core::kept;
use crate::irq::{RECEIVED, SENT};
use crate::regs as r;
use crate::regs::bits::cause;
use crate::state::v1;

impl Registers {
    /// Becomes what a NIC was whose process died so long ago. Returns the packets that were under way.
    pub(super) fn go_on(
        &mut self,
        env: &Env,
        (mut state, age): (v1::V1, Nanos),
        words: Kept,
    ) -> Result<u64, StateError> {
        let chip = Arc::clone(&self.chip);
        let keeps = chip.kept.get().is_some();
        check(!keeps, "kept", 1u32, "it keeps words already")?;
        let imr = words.get(kept::IMR);
        let causes = imr & !u64::from(cause::ALL) == 0;
        check(causes, "kept.imr", imr, "no such cause")?;
        forget_what_passes(&mut state, imr as u16);
        self.become_state(env, &state)?;
        let none = |name: &'static str, at: usize| StateError::Field {
            field: name,
            value: words.get(at),
            why: "not what a ring leaves",
        };
        let view = env.memory.view();
        let base = chip.address(r::RDSAR_LOW, r::RDSAR_HIGH);
        let received = kept::finish(&words, &view, base);
        let received = received.ok_or_else(|| none("kept.rx", kept::RX))?;
        chip.rx.settle().next = received;
        let base = chip.address(r::TNPDS_LOW, r::TNPDS_HIGH);
        let sent = kept::pass_over(&words, (&view, base), chip.variant);
        let (next, lost) = sent.ok_or_else(|| none("kept.tx", kept::TX))?;
        chip.tx.lock().next = next;
        drop(view);
        chip.csb_stands(env, (next, received));
        let again = chip.kept.set(words);
        check(again.is_ok(), "kept", 1u32, "it keeps words already")?;
        let mut irq = chip.irq.lock();
        irq.age(env, age, chip.file.get(r::TIMER_INT));
        // What was raised and not heard is raised again; what was heard, too.
        irq.raise(env, SENT | RECEIVED);
        drop(irq);
        chip.note_all();
        // Until the accesses are made again that were not answered.
        chip.hold_receiver();
        self.changed = true;
        self.work = Work { tx: true, rx: true };
        Ok(lost)
    }
}

/// Takes out of a state what is not true any more when it is old, or has been used up since.
fn forget_what_passes(state: &mut v1::V1, imr: u16) {
    const NONE: v1::Held = v1::Held {
        frames: 0,
        until: None,
    };
    let interrupts = &mut state.interrupts;
    interrupts.imr = imr;
    (interrupts.rx, interrupts.tx) = (NONE, NONE);
    (interrupts.last, interrupts.throttled) = (None, None);
    let adaptive = &mut interrupts.adaptive;
    (adaptive.raised, adaptive.waiting, adaptive.paid) = (None, None, 0);
    (adaptive.sent, adaptive.received) = (0, 0);
    (adaptive.urgent, adaptive.crowded) = (false, false);
}
