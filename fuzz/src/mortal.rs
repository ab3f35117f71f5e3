//! What outlives the process of a NIC, for scripts in which that dies between two operations.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guest_mem::Memory;
use model::{Env, KEPT, Kept, Nanos, Nic};

type Words = [AtomicU64; KEPT];

thread_local! {
    /// The words of the last run: they live for ever, so there are no others.
    static WORDS: Cell<Option<&'static Words>> = const { Cell::new(None) };
}

/// When a process dies.
#[derive(Clone, Copy)]
pub(crate) struct Deaths {
    /// After these operations, modulo 64.
    pub after: u64,
    /// Else the NIC only looks for what waits, as the next process does.
    pub real: bool,
}

impl Deaths {
    pub fn is_one(self, operation: usize) -> bool {
        self.after >> (operation % 64) & 1 == 1
    }
}

/// It.
pub(crate) struct Mortal {
    words: &'static Words,
    blob: Vec<u8>,
    saved: Nanos,
    /// Whether its cable is in.
    pub link: bool,
    /// Frames that may be lost.
    pub unsure: u64,
}

impl Drop for Mortal {
    fn drop(&mut self) {
        WORDS.set(Some(self.words));
    }
}

impl Mortal {
    /// What this NIC does is kept from now on.
    pub fn of(nic: &mut Nic, env: &Env) -> Self {
        let words = WORDS.take();
        let new = || &*Box::leak(Box::new([const { AtomicU64::new(0) }; KEPT]));
        let mut mortal = Self {
            words: words.unwrap_or_else(new),
            blob: Vec::new(),
            saved: 0,
            link: true,
            unsure: 0,
        };
        mortal.keep(nic, env);
        mortal
    }

    /// The same, if it has become another.
    pub fn keep(&mut self, nic: &mut Nic, env: &Env) {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
        assert!(nic.control.keep(self.kept()), "it can outlive its process");
        self.blob = nic.control.save(env);
        self.saved = env.clock.now();
        self.answered(nic, env);
    }

    fn kept(&self) -> Kept {
        Kept::new(self.words, Arc::new(()))
    }

    /// The guest's access is answered, and will not be made again.
    pub fn answered(&mut self, nic: &mut Nic, env: &Env) {
        if nic.control.take_changed() {
            self.blob = nic.control.save(env);
            self.saved = env.clock.now();
        }
        nic.control.settled();
    }

    /// Its process has died; this is another.
    pub fn go_on(&mut self, nic: &mut Nic, env: &Env) {
        let age = env.clock.now().saturating_sub(self.saved);
        let unsure = nic.control.recover(env, (&self.blob, age), self.kept());
        self.unsure += unsure.expect("what it has left is sound");
        nic.control.settled();
    }
}

/// What a guest and the network have of a NIC in the end.
#[derive(Debug, Default)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests compare"))]
pub(crate) struct Outcome {
    /// A hash of each frame that was sent.
    pub frames: Vec<u32>,
    /// Blocks of the guest's memory that are not all zero, each with a hash; none, if there was a CSB, in which a process repeats itself.
    pub memory: Option<Vec<(u64, u32)>>,
    /// Registers that no process changes by itself.
    pub registers: Vec<(u64, u32)>,
    /// Frames that may be missing.
    pub unsure: u64,
    /// Frames that were to be received are missing, too.
    pub forgot: bool,
    /// The guest has written what the next process goes by: what happens is its own doing.
    pub meddled: bool,
}

/// Blocks of memory that are not all zero, each with a hash.
pub(crate) fn blocks(memory: &Memory, from: u64, len: u64) -> Vec<(u64, u32)> {
    const BLOCK: u64 = 256;
    let view = memory.view();
    let block = |at: u64| {
        let mut block = [0; BLOCK as usize];
        view.read(at, &mut block).expect("mapped");
        (block != [0; BLOCK as usize]).then(|| (at, crc32fast::hash(&block)))
    };
    let all = (from..from + len).step_by(BLOCK as usize);
    all.filter_map(block).collect()
}
