//! From the live function to plain data.

use std::sync::atomic::Ordering;

use datapath::offload::L4;
use intel::link::Port;
use intel::saved::{save_phy, save_words};
use model::{Env, Nanos};
use regs::{Access, Register, Status};

use crate::control::Registers;
use crate::core::context::Context;
use crate::core::flow::Flow;
use crate::core::function::Function;
use crate::core::queue::{TxMemory, TxState};
use crate::state;
use crate::state::{relative, v1};

impl Registers {
    /// The whole function, between two batches.
    pub(crate) fn state(&self, env: &Env) -> v1::V1 {
        let Registers {
            function,
            nvm,
            port:
                Port {
                    phy,
                    negotiation: _, // configured
                },
            io,
            reading,
            work: _, // a loaded NIC looks at everything
            phy_was_reset,
            may_master,
            hub: _,             // its VFs' mailboxes are in their states
            places_vf_rings: _, // configured
            due: _,             // a loaded NIC carries out all of it
            changed: _,         // the process's
        } = self;
        let Function {
            file,
            setup: _, // counts changes
            run: _,   // follows from the registers
            cut: _,   // the same
            ids: _,   // the model's
            kind: _,  // a PF
            vfs: _,   // configured, or PCI's
            mbps: _,  // follows from PHY and CTRL
            queues,
            irq,
            ptp,
            flow,
            stats: _,    // by what is read of them
            vf_stats: _, // its VFs'
            counters: _, // the process's
            wake,
            bus_master: _, // follows from `may_master` and CTRL
            link_up,
            loopback,
            tx_rung: _, // a loaded NIC looks at everything
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
        let (statistics, latched) = reading.save(function);
        v1::V1 {
            device: state::DEVICE,
            registers: save_words(file, keeps),
            statistics,
            latched,
            link_up: link_up.load(Ordering::Acquire),
            loopback: loopback.load(Ordering::Acquire),
            may_master: *may_master,
            phy_was_reset: *phy_was_reset,
            nvm: nvm.save(),
            phy: save_phy(phy),
            queues: (0..)
                .zip(&transmitters)
                .map(|(at, tx)| save_queue(tx, reading.save_queue(function, at)))
                .collect(),
            turn: tx_next.load(Ordering::Relaxed),
            interrupts: irq.lock().save(now),
            clock: ptp.lock().save(now),
            flow: save_flow(flow, now),
            io: io.address,
            d3: wake.d3(),
        }
    }
}

/// What has a value of its own, and not in the state of something else.
pub(super) fn keeps(register: &Register) -> bool {
    register.access != Access::Memory && !matches!(register.status, Status::Absent(_))
}

fn save_flow(flow: &Flow, now: Nanos) -> v1::Flow {
    let Flow { silence, owed } = flow;
    v1::Flow {
        // One that is over is forgotten.
        until: silence
            .until()
            .filter(|until| *until > now)
            .map(|until| relative(until, now)),
        owed: owed.load(Ordering::Acquire),
    }
}

fn save_queue(tx: &TxState, counts: v1::QueueCounts) -> v1::Queue {
    let TxState {
        memory: TxMemory { contexts, skipping },
        taken,
    } = tx;
    v1::Queue {
        contexts: save_contexts(contexts),
        skipping: *skipping,
        taken: *taken as u32,
        counts,
    }
}

pub(crate) fn save_contexts(contexts: &[Context; 2]) -> [v1::Context; 2] {
    contexts.each_ref().map(save_context)
}

fn save_context(context: &Context) -> v1::Context {
    let &Context {
        maclen,
        iplen,
        l4len,
        mss,
        vlan,
        l4,
        ipv4,
    } = context;
    v1::Context {
        maclen,
        iplen,
        l4len,
        mss,
        vlan,
        l4t: match l4 {
            L4::Udp => 0,
            L4::Tcp => 1,
            L4::Sctp => 2,
        },
        ipv4,
    }
}
