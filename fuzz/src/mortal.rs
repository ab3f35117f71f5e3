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

/// It; nothing, where no process dies.
#[derive(Default)]
pub(crate) struct Mortal(Option<Left>);

struct Left {
    words: &'static Words,
    blob: Vec<u8>,
    saved: Nanos,
    /// Whether its cable is in.
    link: bool,
    /// Frames that may be lost.
    unsure: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        WORDS.set(Some(self.words));
    }
}

impl Left {
    fn kept(&self) -> Kept {
        Kept::new(self.words, Arc::new(()))
    }

    fn answered(&mut self, nic: &mut Nic, env: &Env) {
        if nic.control.take_changed() {
            self.blob = nic.control.save(env);
            self.saved = env.clock.now();
        }
        nic.control.settled();
    }
}

impl Mortal {
    /// What this NIC does is kept from now on.
    pub fn begin(&mut self, nic: &mut Nic, env: &Env) {
        let words = WORDS.take();
        let new = || &*Box::leak(Box::new([const { AtomicU64::new(0) }; KEPT]));
        self.0 = Some(Left {
            words: words.unwrap_or_else(new),
            blob: Vec::new(),
            saved: 0,
            link: true,
            unsure: 0,
        });
        self.keep(nic, env);
    }

    /// The same, if it has become another.
    pub fn keep(&mut self, nic: &mut Nic, env: &Env) {
        let Some(left) = &mut self.0 else { return };
        for word in left.words {
            word.store(0, Ordering::Relaxed);
        }
        assert!(nic.control.keep(left.kept()), "it can outlive its process");
        left.blob = nic.control.save(env);
        left.saved = env.clock.now();
        left.answered(nic, env);
    }

    /// The guest's access is answered, and will not be made again.
    pub fn answered(&mut self, nic: &mut Nic, env: &Env) {
        if let Some(left) = &mut self.0 {
            left.answered(nic, env);
        }
    }

    /// The cable is as it was put, in the next process too.
    pub fn note_link(&mut self, up: bool) {
        if let Some(left) = &mut self.0 {
            left.link = up;
        }
    }

    /// Its process has died; this is another, which is told next how its configuration space and its cable are.
    pub fn go_on(&mut self, nic: &mut Nic, env: &Env) {
        let left = self.0.as_mut().expect("it may die");
        let age = env.clock.now().saturating_sub(left.saved);
        let unsure = nic.control.recover(env, (&left.blob, age), left.kept());
        left.unsure += unsure.expect("what it has left is sound");
        nic.control.settled();
    }

    /// Whether its cable is in.
    pub fn link(&self) -> bool {
        self.0.as_ref().is_none_or(|left| left.link)
    }

    /// Frames that may be lost by now.
    pub fn unsure(&self) -> u64 {
        self.0.as_ref().map_or(0, |left| left.unsure)
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

/// Blocks of memory at these places that are not all zero, each with a hash.
pub(crate) fn blocks<const LEN: usize>(
    memory: &Memory,
    places: impl Iterator<Item = u64>,
) -> Vec<(u64, u32)> {
    let view = memory.view();
    let block = |at: u64| {
        let mut block = [0; LEN];
        view.read(at, &mut block).expect("mapped");
        (block != [0; LEN]).then(|| (at, crc32fast::hash(&block)))
    };
    places.filter_map(block).collect()
}

/// The same of a whole range.
pub(crate) fn all_blocks(memory: &Memory, from: u64, len: u64) -> Vec<(u64, u32)> {
    const BLOCK: usize = 256;
    blocks::<BLOCK>(memory, (from..from + len).step_by(BLOCK))
}
