//! A NIC whose process dies between two things that happen, and what another makes of what is left.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frame::MAX_BATCH;
use model::{Clock, KEPT, Kept, Nanos, Progress};

use super::{BLOCK, Machine, new, reg};

type Words = [AtomicU64; KEPT];

thread_local! {
    /// The words of the last run: they live for ever, so there are no others.
    static WORDS: Cell<Option<&'static Words>> = const { Cell::new(None) };
}

/// What outlives a process.
pub(super) struct Mortal {
    words: &'static Words,
    blob: Vec<u8>,
    saved: Nanos,
    link: bool,
    /// Frames that may be lost.
    unsure: u64,
}

impl Drop for Mortal {
    fn drop(&mut self) {
        WORDS.set(Some(self.words));
    }
}

impl Mortal {
    fn kept(&self) -> Kept {
        Kept::new(self.words, Arc::new(()))
    }
}

/// What a guest and the network have of a NIC.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    /// A hash of each frame that was sent.
    pub frames: Vec<u32>,
    /// Where the guest's memory is other than it was, and how; nothing, if a CSB says there when its process died.
    pub memory: Option<Vec<(u64, u32)>>,
    /// Registers that are the guest's.
    pub registers: Vec<(u64, u32)>,
    /// Frames that may be missing.
    pub unsure: u64,
}

/// Registers that a process does not change by itself, and those of the rings.
const REGISTERS: [u64; 14] = [
    reg::CTRL,
    reg::RCTL,
    reg::TCTL,
    reg::TDBAL,
    reg::TDLEN,
    reg::TDH,
    reg::TDT,
    reg::RDBAL,
    reg::RDLEN,
    reg::RDH,
    reg::RDT,
    reg::IMS,
    reg::RXCSUM,
    reg::VET,
];

impl Machine {
    /// What it does is kept from now on.
    pub fn outlive(&mut self) {
        let words = WORDS.take();
        let new = || &*Box::leak(Box::new([const { AtomicU64::new(0) }; KEPT]));
        let words = words.unwrap_or_else(new);
        words
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        let mortal = Mortal {
            words,
            blob: Vec::new(),
            saved: 0,
            link: true,
            unsure: 0,
        };
        assert!(
            self.nic.control.keep(mortal.kept()),
            "it can outlive its process"
        );
        self.mortal = Some(mortal);
        *self.wire.log.lock().unwrap_or_else(|e| e.into_inner()) = Some(Vec::new());
        self.answered();
    }

    /// The guest's access is answered, and will not be made again.
    pub(super) fn answered(&mut self) {
        let Some(mortal) = &mut self.mortal else {
            return;
        };
        if self.nic.control.take_changed() {
            mortal.blob = self.nic.control.save(&self.env);
            mortal.saved = self.time.now();
        }
        self.nic.control.settled();
    }

    /// The cable is as it was put, in the next process too.
    pub(super) fn note_link(&mut self, up: bool) {
        if let Some(mortal) = &mut self.mortal {
            mortal.link = up;
        }
    }

    /// Its process dies, and another goes on.
    pub fn die(&mut self) {
        let Some(mortal) = &mut self.mortal else {
            return;
        };
        let mut nic = new();
        let age = self.time.now().saturating_sub(mortal.saved);
        let left = (mortal.blob.as_slice(), age);
        let unsure = nic.control.recover(&self.env, left, mortal.kept());
        mortal.unsure += unsure.expect("what it has left is sound");
        nic.control.settled();
        let link = mortal.link;
        self.nic = nic;
        // Counters are the process', not the NIC's.
        self.counters.clear();
        self.set_link(link);
        // What waits in its ring.
        while self.transmit(MAX_BATCH) == Progress::More {}
        self.work(MAX_BATCH);
    }

    /// What there is in the end.
    pub fn outcome(&mut self) -> Outcome {
        let has_csb = self.quiet(reg::CSBAL) != 0 || self.quiet(reg::CSBAH) != 0;
        self.dirt.take(&self.env.memory);
        let view = self.env.memory.view();
        let block = |at: u64| {
            let mut block = [0; BLOCK as usize];
            view.read(at, &mut block).expect("mapped");
            (block != [0; BLOCK as usize]).then(|| (at, crc32fast::hash(&block)))
        };
        let memory = (!has_csb).then(|| self.dirt.blocks().filter_map(block).collect());
        drop(view);
        let log = self
            .wire
            .log
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .take();
        Outcome {
            frames: log.unwrap_or_default(),
            memory,
            registers: REGISTERS.map(|at| (at, self.quiet(at))).to_vec(),
            unsure: self.mortal.as_ref().map_or(0, |mortal| mortal.unsure),
        }
    }
}
