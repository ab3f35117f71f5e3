//! Goes on with a device whose process died at any instruction: its last saved state, its guest's rings, and the words that it kept.
//!
//! The words are believed where they can be, and checked: a process that died may have been mad before.

use std::sync::Arc;

use guest_mem::View;
use model::{Env, Kept, StateError};

use crate::control::Registers;
use crate::control::load::check;
use crate::core::device::Role;
use crate::core::kept::{KeptRing, Pieces};
use crate::core::place::Broken;
use crate::core::ring::{Format, Place, Position, Ring};
use crate::irq;
use crate::state::V1;
use crate::tx::packet;

impl Registers {
    /// Becomes what a device was whose process died. Returns the frames that were under way.
    pub(super) fn go_on(
        &mut self,
        env: &Env,
        mut state: V1,
        words: Kept,
    ) -> Result<u64, StateError> {
        let device = Arc::clone(&self.device);
        let keeps = device.kept.get().is_some();
        check(!keeps, "kept", 1, "it keeps words already")?;
        let view = env.memory.view();
        let format = Format::of(state.features);
        for (at, queue) in state.queues.iter_mut().enumerate().take(device.queues()) {
            if !queue.followed {
                continue;
            }
            let place = Place {
                size: queue.size,
                desc: queue.desc,
                driver: queue.driver,
                device: queue.device,
            };
            let found = Ring::found(&view, place, format, &KeptRing::new(&words, at));
            // A split ring that is not mapped is broken when it is looked at.
            check(
                found.is_some() || !format.packed,
                "kept",
                at as u64,
                "not what a ring leaves",
            )?;
            if let Some(Position {
                next, used, told, ..
            }) = found
            {
                (queue.next, queue.used, queue.told) = (next, used, told);
            }
        }
        self.become_state(env, &state)?;
        let lost = self.settle_rings(env, &view, &words);
        drop(view);
        device.keep(words);
        // Until the accesses are made again that were not answered.
        device.hold_on();
        // What it may have been told of is looked at once more.
        irq::config(&device, env);
        self.changed = true;
        Ok(lost)
    }

    /// Ends what was under way in the rings. Returns the frames that were perhaps sent.
    fn settle_rings(&self, env: &Env, view: &View<'_>, words: &Kept) -> u64 {
        let device = &*self.device;
        let mut lost = 0;
        let mut broken = None;
        for at in 0..device.queues() {
            let kept = KeptRing::new(words, at);
            let end = kept.stand().end;
            let mut settle = |slot: &mut Option<Ring>, sends: bool| {
                let Some(ring) = slot else { return };
                ring.keep(kept.clone());
                let done: Result<u64, Broken> = match sends {
                    true => ring.pass_over(view, end, |chain| packet::most_frames(view, chain)),
                    false => ring.finish_frame(view).map(|()| 0),
                };
                // Nothing is left of the frame, or nothing was given of it.
                kept.put_pieces(Pieces::default());
                match done {
                    Ok(frames) => lost += frames,
                    Err(why) => (*slot, broken) = (None, Some(why)),
                }
            };
            match device.role(at) {
                Some(Role::Tx(pair)) => settle(&mut device.tx.lock().rings[pair], true),
                Some(Role::Rx(pair)) => settle(&mut device.rx.lock().rings[pair], false),
                Some(Role::Ctrl) | None => {}
            }
        }
        if let Some(why) = broken {
            irq::broken(device, env, why);
        }
        lost
    }
}
