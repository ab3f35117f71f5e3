//! What runs of frames touch of a NIC lies in few cache lines: a thread that serves many NICs has none of them in its cache.

use std::collections::BTreeSet;
use std::mem::{offset_of, size_of_val};

use guest_mem::{Hot, LINE, Lines};
use model::Receive as _;
use model_testkit::Touched;

use crate::control::Registers;
use crate::core::chip::Chip;
use crate::core::config::Config;
use crate::core::irq::Irq;
use crate::core::rx_queue::RxState;
use crate::core::tx_queue::TxState;
use crate::regs as r;
use crate::tx::Sender;

/// Most lines that a run may touch, on either side.
const MOST: usize = 12;

/// What either side looks at, and one interrupt decision.
fn both(touched: &mut Touched, chip: &Chip, irq: &Irq) {
    touched
        .of(&chip.setup)
        .of(&chip.allowance)
        .of(&chip.file)
        .of(&chip.fast_path)
        // Each says with its first byte that there is nothing; `kept` with its last word.
        .first(&chip.csb)
        .first(&chip.waiters)
        .part(&chip.kept, size_of_val(&chip.kept) - 8, 8)
        .first(&*chip.irq)
        .of(&irq.icr)
        .of(&irq.ims)
        .of(&irq.line)
        .of(&irq.gate)
        .of(&irq.armed)
        .of(&irq.rx_throttle.on)
        .of(&irq.rx_throttle.rest)
        .of(&irq.adaptive.sent)
        .of(&irq.adaptive.received)
        .of(&irq.adaptive.urgent)
        .of(&irq.adaptive.crowded)
        .of(&irq.adaptive.mode);
}

fn sent(touched: &mut Touched, chip: &Chip, tx: &TxState) {
    touched
        .of(&chip.flow)
        .first(&*chip.tx)
        .of(&tx.plan)
        .of(&tx.stride)
        .of(&tx.fan_out)
        .of(&tx.store)
        .of(&tx.runs)
        .of(&tx.unfinished)
        .of(&tx.position.taken)
        .of(&tx.position.memory.skipping)
        .of(&chip.counters.tx_frames)
        .of(&chip.counters.tx_bytes)
        .of(&chip.counters.tx_desc_fetched)
        .of(&chip.counters.tx_doorbells)
        .of(&chip.counters.reg_writes)
        // The first eight statistics.
        .part(&chip.stats, 0, 64);
    words(touched, chip, [r::TDH, r::TDT]);
}

fn received(touched: &mut Touched, chip: &Chip, rx: &RxState) {
    touched
        // In front of the state are the lock and the numbers of leases.
        .part(&*chip.rx, 0, 24)
        .of(&rx.run)
        .of(&rx.fifo.used)
        .of(&chip.counters.rx_frames)
        .of(&chip.counters.rx_bytes)
        .of(&chip.counters.rx_desc_fetched)
        .of(&chip.counters.rx_doorbells)
        // The next eight statistics.
        .part(&chip.stats, 64, 64);
    words(touched, chip, [r::RDH, r::RDT]);
}

/// Whether a head and its tail, which are neighbours, lie in two lines: where their words begin is the allocator's.
fn apart(chip: &Chip, ids: [regs::Id; 2]) -> usize {
    let [head, tail] = ids.map(|id| Lines::of(chip.file.cell(id, 0).expect("a word")));
    usize::from(head != tail)
}

fn words(touched: &mut Touched, chip: &Chip, ids: [regs::Id; 2]) {
    for id in ids {
        touched.of(chip.file.cell(id, 0).expect("a word"));
    }
}

/// The parts of a NIC beside its common state: one line each, as their allocations begin with what is touched.
fn handles() -> usize {
    assert!(size_of::<Sender>() <= 16);
    let hot = offset_of!(Registers, changed) + 1;
    assert!(hot <= LINE && align_of::<Registers>() == LINE);
    2
}

#[test]
fn a_run_touches_at_most_twelve_lines_of_its_sender_and_of_its_receiver() {
    let chip = Chip::new(&Config::new([2, 0, 0, 0, 0, 1]));
    let (tx, rx, irq) = (chip.tx.lock(), chip.rx.lock(), chip.irq.lock());
    let (mut out, mut back) = (Touched::new(), Touched::new());
    both(&mut out, &chip, &irq);
    sent(&mut out, &chip, &tx);
    both(&mut back, &chip, &irq);
    received(&mut back, &chip, &rx);
    // Of the receiver the control part too: buffers are given back with a doorbell.
    let out_count = out.count() + handles() - apart(&chip, [r::TDH, r::TDT]);
    let back_count = back.count() + handles() - 1 - apart(&chip, [r::RDH, r::RDT]);
    let counts = (out_count, back_count);
    assert!(
        counts.0 <= MOST && counts.1 <= MOST,
        "{counts:?}: {out:?} {back:?}"
    );
}

#[test]
fn what_is_fetched_ahead_is_what_is_touched() {
    let chip = Chip::new(&Config::new([2, 0, 0, 0, 0, 1]));
    let mut hot = Hot::default();
    chip.hot(&mut hot);
    let fetched: BTreeSet<_> = hot.numbers().collect();
    let (tx, rx, irq) = (chip.tx.lock(), chip.rx.lock(), chip.irq.lock());
    let mut touched = Touched::new();
    both(&mut touched, &chip, &irq);
    sent(&mut touched, &chip, &tx);
    received(&mut touched, &chip, &rx);
    assert_eq!(&fetched, touched.numbers());
}
