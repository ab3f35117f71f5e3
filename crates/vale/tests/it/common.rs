//! What the switch's tests have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use frame::{Batch, Caps, Sink, Wake};
use hypernic_vale::{Clock, Nanos, PortConfig, Switch, SwitchConfig, SwitchPort};
use parking_lot::Mutex;
use wire::Offload;

/// One millisecond.
pub const MS: Nanos = 1_000_000;

/// A clock that is set by hand.
#[derive(Clone, Default)]
pub struct Hand(Arc<AtomicU64>);

impl Hand {
    pub fn clock(&self) -> Clock {
        let now = self.0.clone();
        Arc::new(move || now.load(Ordering::SeqCst))
    }

    pub fn advance(&self, by: Nanos) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

/// A sink that keeps what it gets, as long as there is room.
pub struct Recorder {
    pub caps: Caps,
    pub room: Mutex<usize>,
    pub got: Mutex<Vec<Vec<u8>>>,
    pub wakers: Mutex<Vec<Arc<dyn Wake>>>,
    /// The numbers of the frames it was told it would never get.
    pub given_up: Mutex<Vec<u64>>,
    /// Calls by senders that keep what it has no room for.
    pub by_keepers: AtomicUsize,
}

impl Recorder {
    pub fn new(room: usize) -> Arc<Recorder> {
        Self::with_caps(room, Caps::NONE)
    }

    pub fn with_caps(room: usize, caps: Caps) -> Arc<Recorder> {
        Arc::new(Recorder {
            caps,
            room: Mutex::new(room),
            got: Mutex::default(),
            wakers: Mutex::default(),
            given_up: Mutex::default(),
            by_keepers: AtomicUsize::new(0),
        })
    }

    /// Gives room and wakes who asked for it.
    pub fn make_room(&self, room: usize) {
        *self.room.lock() += room;
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.iter().for_each(|waker| waker.wake());
    }

    /// The numbers of the frames it got.
    pub fn numbers(&self) -> Vec<u64> {
        self.got.lock().iter().map(|f| number(f)).collect()
    }
}

impl Sink for Recorder {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut room = self.room.lock();
        let n = picks.len().min(*room);
        *room -= n;
        for pick in &picks[..n] {
            let frame = batch.get((*pick).into()).expect("a pick is a frame");
            self.got.lock().push(frame.to_vec());
        }
        n
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.by_keepers.fetch_add(1, Ordering::SeqCst);
        self.deliver(batch, picks)
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.wakers.lock().push(waker.clone());
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        let frames = picks.iter().filter_map(|pick| batch.get((*pick).into()));
        let numbers = frames.map(|frame| number(&frame.to_vec()));
        self.given_up.lock().extend(numbers);
    }
}

/// Counts how often it was woken.
#[derive(Default)]
pub struct CountedWake(AtomicUsize);

impl CountedWake {
    pub fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for CountedWake {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The address of station `n`.
pub fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// Adds a frame of 60 bytes that carries a number.
pub fn push(batch: &mut Batch<'_>, dst: [u8; 6], src: [u8; 6], number: u64) {
    batch.push_bytes(&dst);
    batch.push_bytes(&src);
    batch.push_bytes(&[0x88, 0xb5]);
    batch.push_bytes(&number.to_be_bytes());
    batch.push_bytes(&[0; 38]);
    batch.end(Offload::NONE);
}

pub fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..22].try_into().expect("eight"))
}

/// Sends frames of these addresses, numbered from `first`. Returns how many were dealt with.
pub fn send(port: &SwitchPort, first: u64, frames: &[([u8; 6], [u8; 6])]) -> usize {
    let mut batch = Batch::new();
    for (i, (dst, src)) in frames.iter().enumerate() {
        push(&mut batch, *dst, *src, first + i as u64);
    }
    let mut room = Vec::new();
    port.deliver(&batch, batch.all_picks(&mut room))
}

/// A port and what has left the switch through it.
pub fn attach(switch: &Switch, name: &str, room: usize) -> (Arc<SwitchPort>, Arc<Recorder>) {
    let sink = Recorder::new(room);
    let port = switch
        .attach(name, sink.clone(), PortConfig::default())
        .expect("a free name");
    (port, sink)
}

/// Port `name`'s counter `counter`.
pub fn count(switch: &Switch, name: &str, counter: &str) -> u64 {
    let ports = switch.ports();
    let port = ports.iter().find(|p| p.name == name).expect("attached");
    let found = port.counters.iter().find(|(n, _)| *n == counter);
    found.expect("a counter").1
}

pub fn switch(config: SwitchConfig) -> (Switch, Hand) {
    let hand = Hand::default();
    (Switch::new(config, hand.clock()), hand)
}
