//! Goes on with a NIC whose process died at any instruction: its last saved state, and the words that it kept.
//!
//! The words are believed where they can be, and checked: a process that died may have been mad before. Of what was under way
//! nothing is sent a second time, and nothing is written that the guest has been given.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use intel::Ring;
use intel::kept::Nowhere;
use intel::kept::tx::Found;
use intel::saved::{check, field};
use model::{Env, Kept, StateError, Work};

use crate::control::Registers;
use crate::core::chip::Chip;
use crate::core::context::Contexts;
use crate::core::kept::{self, Publisher};
use crate::core::rx_queue::RING;
use crate::irq::{RECEIVED, SENT};
use crate::regs as r;
use crate::regs::bits::cause;
use crate::state::v1;
use crate::tx;

impl Registers {
    /// Becomes what a NIC was whose process died. Returns the frames that were under way.
    pub(crate) fn go_on(
        &mut self,
        env: &Env,
        mut state: v1::V1,
        words: Kept,
    ) -> Result<u64, StateError> {
        let chip = Arc::clone(&self.chip);
        check(
            chip.kept.get().is_none(),
            "kept",
            1u32,
            "it keeps words already",
        )?;
        let get = |at: usize, name: &'static str, most: u32| {
            let value = u32::try_from(words.get(at)).ok();
            let value = value.filter(|value| value & !most == 0);
            value.ok_or_else(|| field(name, words.get(at), "not what it can be"))
        };
        let mask = get(kept::IMS, "kept.mask", cause::ALL)?;
        let itr = get(kept::ITR, "kept.itr", u32::MAX)?;
        let tails = [
            (r::RDT, get(kept::RDT, "kept.rdt", r::TAIL)?),
            (r::TDT, get(kept::TDT, "kept.tdt", r::TAIL)?),
        ];
        forget_what_passes(&mut state, mask);
        self.become_state(env, &state)?;
        for (id, value) in tails {
            chip.file.set(id, value);
        }
        chip.file.set(r::ITR, itr);
        chip.irq.lock().set_itr(env, itr);
        let view = env.memory.view();
        let mut lost = 0;
        let place = |base: [regs::Id; 3], head| Ring {
            base: u64::from(chip.file.get(base[1])) << 32 | u64::from(chip.file.get(base[0])),
            len: chip.file.get(base[2]) / intel::SIZE as u32,
            head,
            tail: head,
        };
        let ids = [RING.base_low, RING.base_high, RING.len];
        let head = match Publisher::found(&words, kept::RX) {
            Ok(head) => head,
            Err((first, n)) => {
                let ring = place(ids, first);
                let inside = first < ring.len && n < ring.len;
                check(inside, "kept.rx", first, "outside of the ring")?;
                let (head, published) = Publisher::settle(&view, &ring, n);
                lost += if published { 0 } else { u64::from(n) };
                head
            }
        };
        kept::rx_stands(&words, head);
        chip.file.set(r::RDH, head);
        let ring = place([r::TDBAL, r::TDBAH, r::TDLEN], 0);
        let found = kept::sent(&words).found(&view, &ring);
        let found = found.ok_or_else(|| {
            field(
                "kept.tx",
                words.get(kept::TX),
                "not what a transmitter leaves",
            )
        })?;
        drop(view);
        lost += self.resume_transmitter(env, found, &words)?;
        chip.csb_stands(env);
        // What was raised and not heard is raised again; what was heard, too.
        chip.irq.lock().raise(env, SENT | RECEIVED);
        chip.setup.changed();
        chip.note_all();
        // Until the accesses are made again that were not answered.
        chip.hold_receiver();
        self.changed = true;
        self.work = Work { tx: true, rx: true };
        Ok(lost)
    }

    /// Puts the transmitter where it stands, and passes over what it may have sent. Keeps the words from here on.
    fn resume_transmitter(
        &self,
        env: &Env,
        found: Found<Contexts>,
        words: &Kept,
    ) -> Result<u64, StateError> {
        let chip = &self.chip;
        let kept = kept::sent(words);
        kept.settle(&found);
        let Found {
            head,
            position,
            pass_over,
            unsure,
            ..
        } = found;
        let tail = chip.file.get(r::TDT);
        chip.tx.lock().position = position;
        chip.file.set(r::TDH, head);
        let again = chip.kept.set(words.clone());
        check(again.is_ok(), "kept", 1u32, "it keeps words already")?;
        let Some(pass) = pass_over else {
            return Ok(unsure.into());
        };
        let next = pass.until;
        let nowhere = Nowhere::default();
        chip.passes_over.store(true, Ordering::Release);
        chip.file.set(r::TDT, next);
        chip.setup.changed();
        let mut sender = tx::Sender {
            chip: Arc::clone(chip),
            watch: model::Watch::Off,
        };
        // Each call does some of it, or it is none that can be done.
        while chip.file.get(r::TDH) != next {
            let before = chip.file.get(r::TDH);
            sender.pass_over(env, &nowhere);
            if chip.file.get(r::TDH) == before {
                break;
            }
        }
        chip.passes_over.store(false, Ordering::Release);
        chip.setup.changed();
        let mut tx = chip.tx.lock();
        pass.ends(&mut tx.position);
        chip.file.set(r::TDH, next);
        chip.file.set(r::TDT, tail);
        kept.passed(&tx.position, next);
        chip.note(&tx, &chip.irq.lock());
        Ok(nowhere.taken())
    }
}

/// Takes out of a state what is not true any more when it is old, or has been used up since.
fn forget_what_passes(state: &mut v1::V1, mask: u32) {
    let none = v1::Delay {
        packet: None,
        absolute: None,
    };
    let interrupts = &mut state.interrupts;
    interrupts.mask = mask;
    (interrupts.last, interrupts.throttled, interrupts.look) = (None, None, None);
    (interrupts.receive, interrupts.transmit) = (none.clone(), none);
    let adaptive = &mut interrupts.adaptive;
    (adaptive.raised, adaptive.waiting, adaptive.paid) = (None, None, 0);
    (adaptive.sent, adaptive.received) = (0, 0);
    (adaptive.urgent, adaptive.crowded) = (false, false);
    // Frames that waited may have been given to the guest.
    if !state.receiver.waiting.is_empty() {
        state.receiver.waiting.clear();
        state.packet_buffer.clear();
    }
    state.flow.until = None;
    (state.flow.owed, state.flow.high) = (0, false);
}

impl Chip {
    /// Whether what is sent comes straight back.
    pub(crate) fn comes_back(&self) -> bool {
        self.loopback() && !self.passes_over.load(Ordering::Acquire)
    }
}
