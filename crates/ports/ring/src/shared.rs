//! What senders and the inlet share.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use frame::Counted;
use parking_lot::Mutex;
use port::{Bell, Tally, Waiters};

use crate::count;
use crate::crossing::{Broken, Crossing};
use crate::out::Out;

pub struct Shared {
    /// The way out; `None` while no peer is connected.
    pub out: Mutex<Option<Out>>,
    /// Rung by senders for the inlet.
    pub bell: Bell,
    pub waiters: Waiters,
    /// Somebody waits for room.
    wanting: AtomicBool,
    pub tally: Tally<{ count::NAMES.len() }>,
}

impl Shared {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            out: Mutex::default(),
            bell: Bell::new()?,
            waiters: Waiters::new(),
            wanting: AtomicBool::new(false),
            tally: Tally::new(count::NAMES),
        })
    }

    /// The peer did what cannot be; the inlet ends the connection.
    pub fn fail(&self, crossing: &Crossing) {
        if crossing.fail() {
            self.tally.add(count::BAD_PEER, 1);
            self.bell.ring();
        }
    }

    /// A connection has begun, or ended. Returns the way out that there was.
    pub fn replace(&self, out: Option<Out>) -> Option<Out> {
        let before = std::mem::replace(&mut *self.out.lock(), out);
        self.wanting.store(false, Ordering::SeqCst);
        self.waiters.wake_all();
        before
    }

    pub fn is_wanting(&self) -> bool {
        self.wanting.load(Ordering::SeqCst)
    }

    /// Has the peer say when it makes room. Nobody is left to wait for what will not come.
    pub fn ask_for_room(&self) {
        let mut slot = self.out.lock();
        let Some(out) = slot.as_mut().filter(|out| !out.crossing().is_broken()) else {
            drop(slot);
            return self.waiters.wake_all();
        };
        // The inlet looks for this when the peer has answered.
        self.wanting.store(true, Ordering::SeqCst);
        let asked = out.ask_for_room();
        if asked == Ok(true) {
            return;
        }
        self.wanting.store(false, Ordering::SeqCst);
        if asked == Err(Broken) {
            self.fail(out.crossing());
        }
        drop(slot);
        self.waiters.wake_all();
    }

    /// Wakes those who wait for room, if some came.
    pub fn look_for_room(&self) {
        if !self.is_wanting() {
            return;
        }
        let mut slot = self.out.lock();
        let Some(out) = slot.as_mut() else { return };
        match out.room_came() {
            Ok(false) => return,
            Ok(true) => {}
            Err(Broken) => self.fail(out.crossing()),
        }
        self.wanting.store(false, Ordering::SeqCst);
        drop(slot);
        self.waiters.wake_all();
    }
}

impl Counted for Shared {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.tally.counters(visit);
    }
}
