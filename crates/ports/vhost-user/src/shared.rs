//! What senders and the inlet share: the transmit rings.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use frame::{Caps, Counted};
use guest_mem::View;
use parking_lot::{Mutex, RwLock};
use port::{Bell, Tally, Waiters};

use crate::count;
use crate::ring::{Broken, SIZE};
use crate::session::Side;

/// A transmit ring of a session.
pub struct Out {
    pub side: Side,
    pub caps: Caps,
    /// Buffers that the back end does not have.
    free: Vec<u16>,
    /// Storage: the buffers of a frame.
    pub chain: Vec<u16>,
    /// Since when nothing has moved although there was no room.
    pub full_since: Option<Instant>,
    /// The ring is broken; the inlet takes it from here.
    pub broken: bool,
}

impl Out {
    pub fn new(mut side: Side, caps: Caps) -> Self {
        let memory = side.memory.clone();
        // It is ours, and there.
        let _ = side.ring.no_call(&memory.view());
        Self {
            side,
            caps,
            free: (0..SIZE).rev().collect(),
            chain: Vec::with_capacity(SIZE.into()),
            full_since: None,
            broken: false,
        }
    }

    /// Takes back what the back end has used. `true`: there was something.
    pub fn reap(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let Self { side, free, .. } = self;
        let before = free.len();
        while let Some(used) = side.ring.take(view)? {
            side.ring.chain(used, |buffer| free.push(buffer));
        }
        let moved = free.len() > before;
        if moved {
            self.full_since = None;
        }
        Ok(moved)
    }

    /// Makes room for senders that wait for it. `true`: there is some.
    pub fn make_room(&mut self) -> Result<bool, Broken> {
        if self.broken {
            return Err(Broken);
        }
        if self.full_since.is_none() {
            return Ok(false);
        }
        let memory = self.side.memory.clone();
        let view = memory.view();
        let moved = self.reap(&view)?;
        if moved {
            self.side.ring.no_call(&view)?;
        }
        Ok(moved)
    }

    /// Whether there are so many free buffers.
    pub fn has(&self, count: usize) -> bool {
        self.free.len() >= count
    }

    /// Makes so many free buffers the chain of a frame; all there are if there are fewer.
    pub fn pick(&mut self, count: usize) {
        let from = self.free.len().saturating_sub(count);
        self.chain.clear();
        self.chain.extend(self.free.drain(from..));
    }
}

/// What senders and the inlet share.
pub struct Shared {
    /// One of each pair; none while no back end is connected.
    pub outs: RwLock<Vec<Mutex<Out>>>,
    /// Rung by senders for the inlet.
    pub bell: Bell,
    pub waiters: Waiters,
    pub tally: Tally<{ count::NAMES.len() }>,
    pub patience: Duration,
    /// What the back end takes unfinished, a bit each.
    caps: AtomicU8,
}

const CSUM: u8 = 1;
const TSO4: u8 = 2;
const TSO6: u8 = 4;
const VLAN: u8 = 8;
const ECN: u8 = 16;

impl Shared {
    pub fn new(patience: Duration) -> io::Result<Self> {
        Ok(Self {
            outs: RwLock::default(),
            bell: Bell::new()?,
            waiters: Waiters::new(),
            tally: Tally::new(count::NAMES),
            patience,
            caps: AtomicU8::new(u8::MAX),
        })
    }

    /// A session has begun, or ended. Returns how many frames the back end had and may not have taken.
    pub fn replace(&self, outs: Vec<Out>) -> u64 {
        // Frames for a back end that is not there need no work.
        let caps = outs.first().map_or(Caps::ALL, |out| out.caps);
        let bits = [
            (caps.csum, CSUM),
            (caps.tso4, TSO4),
            (caps.tso6, TSO6),
            (caps.vlan, VLAN),
            (caps.ecn, ECN),
        ];
        let bits = bits.iter().filter(|(has, _)| *has).map(|(_, bit)| bit);
        let mut slot = self.outs.write();
        self.caps.store(bits.sum(), Ordering::Release);
        let before = std::mem::replace(&mut *slot, outs.into_iter().map(Mutex::new).collect());
        drop(slot);
        self.waiters.wake_all();
        let left = |out: Mutex<Out>| {
            let mut out = out.into_inner();
            let memory = out.side.memory.clone();
            // What it had used it has taken, as far as its ring can be believed.
            let _ = out.reap(&memory.view());
            u64::from(out.side.ring.chains())
        };
        before.into_iter().map(left).sum()
    }

    pub fn caps(&self) -> Caps {
        let bits = self.caps.load(Ordering::Acquire);
        Caps {
            csum: bits & CSUM != 0,
            tso4: bits & TSO4 != 0,
            tso6: bits & TSO6 != 0,
            vlan: bits & VLAN != 0,
            ecn: bits & ECN != 0,
            ..Caps::NONE
        }
    }
}

impl Counted for Shared {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.tally.counters(visit);
    }
}
