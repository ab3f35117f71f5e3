//! The shortest way: one packet that is all there is, which is what interactive traffic sends.
//!
//! It is a run of one, without what only longer turns need: lists of the thread, and limits. Whatever is not exactly so is left to
//! the [turn](crate::tx::turn), which gives the same results for all.

use datapath::FCS;
use datapath::counters::count_alone;
use frame::Sink;
use guest_mem::View;
use intel::tx::Single;
use model::Env;

use crate::core::chip::Chip;
use crate::core::context::Contexts;
use crate::core::kept;
use crate::core::tx_queue::{TxPlan, TxState};
use crate::irq::Event;
use crate::regs::bits::cause;
use crate::tx::desc::Descs;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Copies that it has cost.
    pub cost: usize,
    /// Nothing has come since.
    pub all: bool,
}

/// Sends the packet at the head of the ring, if it is the only one and can go so. Between the guest and the wire there is nothing
/// else: no status block, no pause. `None`: nothing has happened, but that it was tried.
#[inline(always)]
pub(crate) fn send(
    (chip, env, to): (&Chip, &Env, &dyn Sink),
    view: &View<'_>,
    state: &mut TxState,
) -> Option<Sent> {
    let plan = state.plan.of(chip.setup.get(), || TxPlan::make(chip));
    let plain = plan.on && !plan.loopback && chip.fast_path && state.position.is_between();
    if !plain || !state.runs.is_open() || !chip.flow.is_quiet() {
        return None;
    }
    let ring = plan.place.ring(&chip.file)?;
    if ring.available() != 1 {
        return None;
    }
    let single = Single::of::<Descs>(view, &ring)?;
    let run = single.run()?;
    let counters = &chip.counters;
    count_alone(&counters.tx_desc_fetched, 1);
    let (next, report) = (ring.next(ring.head), single.is_reported());
    let kept = chip.kept.get().map(kept::sent);
    if let Some(kept) = kept {
        let marked = report.then_some(ring.head);
        kept.begins::<Contexts>(view, &ring, (next, marked), false);
    }
    if to.deliver_run(&run).is_none_or(|taken| taken == 0) {
        if let Some(kept) = kept {
            kept.stands(ring.head);
        }
        state.runs.failed();
        return None;
    }
    state.runs.worked();
    state.stride.taken = 1;
    let len = single.bytes();
    chip.stats.sent(1, len + FCS, single.group());
    count_alone(&counters.tx_frames, 1);
    count_alone(&counters.tx_bytes, len as u64);
    single.write_back(view, &ring, &counters.tx_dma_fault);
    if let Some(kept) = kept {
        kept.stands(next);
    }
    plan.place.set_head(&chip.file, next);
    // As `moved` has it for one descriptor that was the last.
    let all = plan.place.tail(&chip.file) == ring.tail;
    let mut now = if report { cause::TXDW } else { 0 };
    if all {
        now |= cause::TXQE | if plan.low == 0 { cause::TXD_LOW } else { 0 };
    }
    let event = Event {
        now,
        sent: 1,
        ring: ring.len,
        ..Event::default()
    };
    let mut irq = chip.irq.lock();
    if now == 0 {
        irq.passed(&event);
    } else {
        irq.sent(env, &event);
    }
    drop(irq);
    Some(Sent {
        cost: state.fan_out.learn_one(),
        all,
    })
}
