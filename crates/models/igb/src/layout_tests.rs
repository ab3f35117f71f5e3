//! What runs of frames touch of a virtual function lies in few cache lines: a thread that serves many has none of them in its cache.

use std::mem::size_of_val;

use guest_mem::{Hot, Lines};
use model::Receive as _;
use model_testkit::Touched;

use crate::core::function::Function;
use crate::core::irq::Irq;
use crate::core::queue::Queue;
use crate::regs as r;
use crate::regs::settings::Settings;
use crate::testing::Guest;

/// Most lines that a run may touch of the common state, on either side.
const MOST: usize = 12;

/// What either side looks at, and one interrupt decision.
fn both(touched: &mut Touched, function: &Function, irq: &Irq, queue: &Queue) {
    touched
        .of(&function.file)
        .of(&function.queues)
        .of(&function.stats)
        .of(&function.setup)
        .of(&function.loopback)
        .of(&function.fast_path)
        .of(&function.adapts)
        .of(&function.bus_master)
        .of(&function.link_up)
        .of(&function.rx_hold)
        .of(&function.wake)
        // It says with its last word that there is nothing, these with their first byte.
        .part(&function.kept, size_of_val(&function.kept) - 8, 8)
        .first(&function.waiters)
        .first(&*function.irq)
        .of(&irq.eicr)
        .of(&irq.of_sent)
        .of(&irq.of_more)
        .of(&irq.throttled)
        .of(&irq.rx)
        .of(&irq.tx)
        .of(&irq.virtual_function)
        .of(&queue.counts);
}

fn sent(touched: &mut Touched, function: &Function, queue: &Queue) {
    let position = queue.tx.lock();
    touched
        .of(&function.tx_rung)
        .of(&function.tx_next)
        .of(&queue.tx_tail)
        .first(&queue.tx)
        .of(&position.taken)
        .of(&position.memory.skipping)
        .of(&function.counters.tx_frames)
        .of(&function.counters.tx_bytes)
        .of(&function.counters.tx_desc_fetched)
        .of(&function.counters.tx_doorbells)
        .of(&function.counters.reg_writes)
        // The first eight statistics.
        .part(&*function.stats, 0, 64);
    words(touched, function, [r::QUEUES.tdh, r::QUEUES.tdt]);
}

fn received(touched: &mut Touched, function: &Function, queue: &Queue) {
    touched
        .of(&*function.run)
        .of(&queue.rx_tail)
        .of(&queue.rx)
        .of(&function.counters.rx_frames)
        .of(&function.counters.rx_bytes)
        .of(&function.counters.rx_desc_fetched)
        .of(&function.counters.rx_doorbells)
        // The next eight statistics.
        .part(&*function.stats, 64, 64);
    words(touched, function, [r::QUEUES.rdh, r::QUEUES.rdt]);
}

/// Whether a head and its tail, which are neighbours, lie in two lines: where their words begin is the allocator's.
fn apart(function: &Function, ids: [regs::Id; 2]) -> usize {
    let [head, tail] = ids.map(|id| Lines::of(function.file.cell(id, 0).expect("a word")));
    usize::from(head != tail)
}

fn words(touched: &mut Touched, function: &Function, ids: [regs::Id; 2]) {
    for id in ids {
        touched.of(function.file.cell(id, 0).expect("a word"));
    }
}

#[test]
fn a_run_touches_at_most_twelve_lines_of_a_vf_that_sends_and_of_one_that_receives() {
    let guest = Guest::vf(Settings::VF);
    let (function, queue) = (&*guest.function, &guest.function.queues[0]);
    let irq = function.irq.lock();
    let (mut out, mut back) = (Touched::new(), Touched::new());
    both(&mut out, function, &irq, queue);
    sent(&mut out, function, queue);
    both(&mut back, function, &irq, queue);
    received(&mut back, function, queue);
    let out_count = out.count() - apart(function, [r::QUEUES.tdh, r::QUEUES.tdt]);
    let back_count = back.count() - apart(function, [r::QUEUES.rdh, r::QUEUES.rdt]);
    assert!(out_count <= MOST && back_count <= MOST, "{out:?} {back:?}");
}

#[test]
fn what_is_touched_is_fetched_ahead() {
    let guest = Guest::vf(Settings::VF);
    let (function, queue) = (&*guest.function, &guest.function.queues[0]);
    let mut hot = Hot::default();
    guest.receiver.hot(&mut hot);
    let fetched: Vec<_> = hot.numbers().collect();
    let irq = function.irq.lock();
    let mut touched = Touched::new();
    both(&mut touched, function, &irq, queue);
    sent(&mut touched, function, queue);
    received(&mut touched, function, queue);
    let left = touched
        .numbers()
        .iter()
        .filter(|line| !fetched.contains(line));
    assert_eq!(left.count(), 0);
}
