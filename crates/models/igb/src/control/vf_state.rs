//! A whole virtual function: saved, checked and loaded ([`crate::state::vf`]).

use std::sync::atomic::Ordering;

use intel::saved::{load_words, save_words};
use model::Env;
use regs::{Access, Register};

use crate::control::load::load_tx;
use crate::control::save::save_contexts;
use crate::control::vf_control::VfControl;
use crate::core::function::Function;
use crate::core::irq::Irq;
use crate::core::queue::{TxMemory, TxState};
use crate::regs::vf as r;
use crate::sriov::channel::{Event, Grant};
use crate::sriov::mailbox;
use crate::state::vf::{Granted, Queue, V1, Words};
use crate::state::{StateError, check};

/// Bits of VTEITR that were kept once.
const OLD_VTEITR: u32 = 0x8000_7fff;

/// The others are made of what is beside them in a state.
fn keeps(register: &Register) -> bool {
    register.access == Access::ReadWrite
}

/// Older states have in VTEITR what is only written there or is reserved.
fn forgive(registers: &mut [Words]) {
    let vteitr = r::REGISTERS[r::VTEITR.index()];
    let own = registers.iter_mut().filter(|w| w.offset == vteitr.offset);
    for value in own.flat_map(|words| &mut words.values) {
        *value &= vteitr.mask | !OLD_VTEITR;
    }
}

intel::mirrored!(Grant as Granted {
    enabled, link, max_frame, tag, interrupt_gap,
});

impl VfControl {
    /// The whole function, between two batches.
    pub(super) fn state(&self, env: &Env) -> V1 {
        let VfControl {
            function,
            channel,
            work: _, // a loaded NIC looks at everything
            granted,
            settings: _, // its PF's
            ahead,
            changed: _, // the process's
        } = self;
        let Function {
            file,
            setup: _, // counts changes
            run: _,   // follows from the registers
            cut: _,   // the same
            ids: _,   // the model's
            kind: _,  // its settings follow from what is granted
            vfs: _,   // a PF's
            mbps: _,  // a PF's
            queues,
            irq,
            ptp: _,        // a PF's
            stats: _,      // by what is read of them
            vf_stats: _,   // a PF's
            flow: _,       // a PF's
            counters: _,   // the process's
            wake: _,       // a PF's
            bus_master: _, // PCI's
            link_up: _,    // granted
            loopback: _,   // a PF's
            tx_rung: _,    // a loaded NIC looks at everything
            tx_next,
            waiters: _, // the process's
            kept: _,    // says where rings stand, as this does
            rx_hold: _, // ends when this is saved
            touched: _, // the process's
            true_fcs: _,
            adapts: _,
            fast_path: _, // configured
        } = &**function;
        let transmitters: Vec<_> = queues.iter().map(|queue| queue.tx.lock()).collect();
        // Nothing is under way into the guest's buffers.
        let _receivers: Vec<_> = queues.iter().map(|queue| queue.rx.lock()).collect();
        let now = env.clock.now();
        V1 {
            registers: save_words(file, keeps),
            statistics: self.channel.statistics(),
            timer: now.wrapping_add(*ahead),
            queues: transmitters.iter().map(|tx| save_queue(tx)).collect(),
            turn: tx_next.load(Ordering::Relaxed),
            interrupts: irq.lock().save_vf(now),
            mailbox: channel.mailbox(|mailbox| mailbox.saved()),
            granted: granted.saved(),
        }
    }

    /// Becomes what `state` describes, as far as its own PF lets it.
    pub(super) fn become_state(&mut self, env: &Env, state: &V1) -> Result<(), StateError> {
        let V1 {
            registers,
            statistics,
            timer,
            queues,
            turn,
            interrupts,
            mailbox,
            granted,
        } = state;
        let function = std::sync::Arc::clone(&self.function);
        let mut registers = registers.clone();
        forgive(&mut registers);
        let words = load_words(&function.file, &registers, keeps)?;
        check(
            queues.len() == function.queues.len(),
            "queues",
            queues.len() as u64,
            "not as many as there are",
        )?;
        let queue = |q: &Queue| load_tx(&q.contexts, q.skipping, q.taken);
        let states = queues.iter().map(queue).collect::<Result<Vec<_>, _>>()?;
        let there = (*turn as usize) < queues.len();
        check(there, "turn", *turn, "no such queue")?;
        let now = env.clock.now();
        let grant = self.channel.grant();
        let irq = Irq::load_vf(interrupts, &words, grant.interrupt_gap, now)?;
        let mailbox = mailbox::Mailbox::load(mailbox)?;

        // Nothing fails from here on, and nothing moves before it may by the settings there are now.
        self.put_in_force(Grant {
            enabled: false,
            ..self.granted
        });
        let mut transmitters: Vec<_> = function.queues.iter().map(|q| q.tx.lock()).collect();
        let receivers: Vec<_> = function.queues.iter().map(|q| q.rx.lock()).collect();
        function.file.reset();
        for (found, value) in words {
            function.file.set_at(found.id, found.element, value);
        }
        function.setup.changed();
        for (live, state) in transmitters.iter_mut().zip(states) {
            **live = state;
        }
        irq.replace(&mut function.irq.lock(), env);
        drop((transmitters, receivers));
        self.channel.show(*statistics);
        self.ahead = timer.wrapping_sub(now);
        self.channel.load(mailbox);
        // What was begun is gone on with.
        let all = (1 << function.queues.len()) - 1;
        function.tx_rung.store(all, Ordering::Release);
        function.tx_next.store(*turn, Ordering::Relaxed);
        let claimed = Grant::of_saved(granted);
        // Its PF has a say before anything moves.
        self.channel.tell(now, Event::Loaded(claimed));
        self.look(env);
        Ok(())
    }
}

fn save_queue(tx: &TxState) -> Queue {
    let TxState {
        memory: TxMemory { contexts, skipping },
        taken,
    } = tx;
    Queue {
        contexts: save_contexts(contexts),
        skipping: *skipping,
        taken: *taken as u32,
    }
}
