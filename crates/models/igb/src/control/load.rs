//! From plain data to the live function: first every field is checked and its live form made, then all
//! of it takes the place of what was there. A refusal leaves the function as it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::offload::L4;
use intel::io::{ADDRESS_BITS, Window};
use intel::saved::{check_device, frames_taken, load_phy, load_words};
use intel::wake::Wakes;
use model::{Env, Work};

use crate::control::Registers;
use crate::control::nvm::Nvm;
use crate::control::save::keeps;
use crate::control::stat_regs::StatRegs;
use crate::core::context::Context;
use crate::core::irq::Irq;
use crate::core::ptp::Ptp;
use crate::core::queue::{TxMemory, TxState};
use crate::state;
use crate::state::{PAUSE, StateError, absolute, check, field, v1};

impl Registers {
    /// Becomes what `state` describes.
    pub(crate) fn become_state(&mut self, env: &Env, state: &v1::V1) -> Result<(), StateError> {
        let v1::V1 {
            device,
            registers,
            statistics,
            latched,
            link_up,
            loopback,
            may_master,
            phy_was_reset,
            nvm,
            phy,
            queues,
            turn,
            interrupts,
            clock,
            flow,
            io,
            d3,
        } = state;
        check_device(*device, state::DEVICE)?;
        let function = Arc::clone(&self.function);
        let words = load_words(&function.file, registers, keeps)?;
        let reading = StatRegs::check(&function.file, statistics, latched)?;
        let nvm = Nvm::load(nvm)?;
        let phy = load_phy(phy, &self.port.phy)?;
        check(
            queues.len() == function.queues.len(),
            "queues",
            queues.len() as u64,
            "not as many as there are",
        )?;
        let states = queues
            .iter()
            .map(load_queue)
            .collect::<Result<Vec<_>, _>>()?;
        let there = (*turn as usize) < queues.len();
        check(there, "turn", *turn, "no such queue")?;
        let now = env.clock.now();
        let irq = Irq::load(interrupts, &words, now, self.port.longest_negotiation())?;
        let clock = Ptp::load(clock, &words, now)?;
        let v1::Flow { until, owed } = flow;
        let until = until
            .map(|at| absolute("flow.until", at, PAUSE, now))
            .transpose()?
            .filter(|until| *until > now);
        check(*io & !ADDRESS_BITS == 0, "io", *io, "no such address")?;

        // Nothing fails from here on.
        let mut transmitters: Vec<_> = function.queues.iter().map(|q| q.tx.lock()).collect();
        let receivers: Vec<_> = function.queues.iter().map(|q| q.rx.lock()).collect();
        self.change(|| {
            function.file.reset();
            for (found, value) in words {
                function.file.set_at(found.id, found.element, value);
            }
        });
        function.setup.changed();
        for (live, state) in transmitters.iter_mut().zip(states) {
            **live = state;
        }
        self.reading = StatRegs::put(reading, &function, queues);
        function.set_power(env, *d3, None);
        function.link_up.store(*link_up, Ordering::Release);
        function.loopback.store(*loopback, Ordering::Release);
        self.nvm = nvm;
        self.port.phy = phy;
        self.io = Window { address: *io };
        self.phy_was_reset = *phy_was_reset;
        self.may_master = *may_master;
        *function.ptp.lock() = clock;
        function.flow.silence.set(until);
        function.flow.owed.store(*owed, Ordering::Release);
        let mut live = function.irq.lock();
        irq.replace(&mut live, env);
        live.set_look(env, until);
        drop(live);
        // What was begun is gone on with.
        let all = (1 << function.queues.len()) - 1;
        function.tx_rung.store(all, Ordering::Release);
        function.tx_next.store(*turn, Ordering::Relaxed);
        drop((transmitters, receivers));
        self.update_master();
        self.note_speed();
        self.load_vf_control();
        self.work = Work { tx: true, rx: true };
        Ok(())
    }
}

fn load_queue(state: &v1::Queue) -> Result<TxState, StateError> {
    let v1::Queue {
        contexts,
        skipping,
        taken,
        counts: _, // with the other counts
    } = state;
    load_tx(contexts, *skipping, *taken)
}

/// What a transmit queue remembers.
pub(crate) fn load_tx(
    [first, second]: &[v1::Context; 2],
    skipping: bool,
    taken: u32,
) -> Result<TxState, StateError> {
    Ok(TxState {
        memory: TxMemory {
            contexts: [load_context(first)?, load_context(second)?],
            skipping,
        },
        taken: frames_taken("queues.taken", taken)?,
    })
}

fn load_context(state: &v1::Context) -> Result<Context, StateError> {
    let &v1::Context {
        maclen,
        iplen,
        l4len,
        mss,
        vlan,
        l4t,
        ipv4,
    } = state;
    check(maclen < 128, "context.maclen", maclen, "it has 7 bits")?;
    check(iplen < 512, "context.iplen", iplen, "it has 9 bits")?;
    let l4 = match l4t {
        0 => L4::Udp,
        1 => L4::Tcp,
        2 => L4::Sctp,
        _ => return Err(field("context.l4t", l4t, "no such transport")),
    };
    Ok(Context {
        maclen,
        iplen,
        l4len,
        mss,
        vlan,
        l4,
        ipv4,
    })
}
