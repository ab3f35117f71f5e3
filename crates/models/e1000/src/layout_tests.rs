//! What runs of frames touch of a NIC lies in few cache lines: a thread that serves many NICs has none of them in its cache.

use std::collections::BTreeSet;
use std::mem::{offset_of, size_of_val};

use guest_mem::{Hot, LINE};
use model::Receive as _;

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

/// Lines by their number.
#[derive(Debug, Default)]
struct Touched(BTreeSet<usize>);

impl Touched {
    fn of<T: ?Sized>(&mut self, value: &T) -> &mut Self {
        let at = std::ptr::from_ref(value).cast::<u8>().addr();
        self.bytes(at, size_of_val(value))
    }

    fn bytes(&mut self, at: usize, len: usize) -> &mut Self {
        self.0.extend(at / LINE..=(at + len - 1) / LINE);
        self
    }

    /// What either side looks at, and one interrupt decision.
    fn both(&mut self, chip: &Chip, irq: &Irq) -> &mut Self {
        self.of(&chip.setup)
            .of(&chip.allowance)
            .of(&chip.file)
            .of(&chip.fast_path)
            // Each says with its first byte that there is nothing; of `kept` it is the last word.
            .first(&chip.csb)
            .first(&chip.waiters);
        let kept = std::ptr::from_ref(&chip.kept).addr() + size_of_val(&chip.kept);
        self.bytes(kept - 8, 8)
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
            .of(&irq.adaptive.mode)
    }

    fn first<T>(&mut self, value: &T) -> &mut Self {
        self.bytes(std::ptr::from_ref(value).addr(), 1)
    }

    fn sent(&mut self, chip: &Chip, tx: &TxState) -> &mut Self {
        self.of(&chip.flow)
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
            .bytes(std::ptr::from_ref(&chip.stats).addr(), 64)
            .words(chip, [r::TDH, r::TDT])
    }

    fn received(&mut self, chip: &Chip, rx: &RxState) -> &mut Self {
        // In front of the state are the lock and the numbers of leases.
        self.bytes(std::ptr::from_ref(&*chip.rx).addr(), 24)
            .of(&rx.run)
            .of(&rx.fifo.used)
            .of(&chip.counters.rx_frames)
            .of(&chip.counters.rx_bytes)
            .of(&chip.counters.rx_desc_fetched)
            .of(&chip.counters.rx_doorbells)
            // The next eight statistics.
            .bytes(std::ptr::from_ref(&chip.stats).addr() + 64, 64)
            .words(chip, [r::RDH, r::RDT])
    }

    fn words(&mut self, chip: &Chip, ids: [regs::Id; 2]) -> &mut Self {
        for id in ids {
            self.of(chip.file.cell(id, 0).expect("a word"));
        }
        self
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
    let mut sent = Touched::default();
    sent.both(&chip, &irq).sent(&chip, &tx);
    let mut received = Touched::default();
    received.both(&chip, &irq).received(&chip, &rx);
    // Of the receiver the control part too: buffers are given back with a doorbell.
    let (out, back) = (sent.0.len() + handles(), received.0.len() + handles() - 1);
    assert!(out <= MOST && back <= MOST, "{out} {back}: {sent:?} {received:?}");
}

#[test]
fn what_is_fetched_ahead_is_what_is_touched() {
    let chip = Chip::new(&Config::new([2, 0, 0, 0, 0, 1]));
    let mut hot = Hot::default();
    chip.hot(&mut hot);
    let fetched: BTreeSet<_> = hot.numbers().collect();
    let (tx, rx, irq) = (chip.tx.lock(), chip.rx.lock(), chip.irq.lock());
    let mut touched = Touched::default();
    touched.both(&chip, &irq).sent(&chip, &tx).received(&chip, &rx);
    assert_eq!(fetched, touched.0);
}
