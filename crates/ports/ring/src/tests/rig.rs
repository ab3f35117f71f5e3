//! Ports, run by threads or by hand, and sinks that keep what they get.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Counted, MAX_BATCH, Sink, Wake};
use port::{Inlet, InletEvent, InletStatus, InletThread, Port, counter};
use wire::Offload;

use crate::{Endpoint, RingConfig, open};

pub const PATIENCE: Duration = Duration::from_secs(20);

pub type Sent = (Vec<u8>, Offload);

/// Passes frames on to the test, as many as it has room for.
pub struct Pass {
    give: Mutex<Sender<Sent>>,
    room: AtomicUsize,
    waiting: Mutex<Vec<Arc<dyn Wake>>>,
}

impl Pass {
    pub fn new() -> (Arc<Self>, Receiver<Sent>) {
        let (give, frames) = channel();
        let this = Self {
            give: Mutex::new(give),
            room: AtomicUsize::new(usize::MAX),
            waiting: Mutex::default(),
        };
        (Arc::new(this), frames)
    }

    pub fn set_room(&self, frames: usize) {
        self.room.store(frames, Ordering::SeqCst);
        for waker in self.waiting.lock().expect("lock").drain(..) {
            waker.wake();
        }
    }
}

impl Sink for Pass {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut done = 0;
        for &pick in picks {
            let take = |room: usize| match room {
                usize::MAX => Some(room),
                _ => room.checked_sub(1),
            };
            let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
            if self.room.fetch_update(set, get, take).is_err() {
                break;
            }
            let frame = batch.get(pick.into()).expect("picked");
            let sent = (frame.to_vec(), *frame.notes());
            let _ = self.give.lock().expect("lock").send(sent);
            done += 1;
        }
        done
    }
    fn caps(&self) -> Caps {
        Caps::ALL
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.waiting.lock().expect("lock").push(Arc::clone(waker));
    }
}

/// Counts its wakes.
#[derive(Default)]
pub struct Woken(AtomicUsize);

impl Woken {
    pub fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn listen(path: &Path) -> RingConfig {
    RingConfig::new(Endpoint::Listen(path.into()))
}

pub fn connect(path: &Path) -> RingConfig {
    let mut config = RingConfig::new(Endpoint::Connect(path.into()));
    config.retry_max = Duration::from_millis(100);
    config
}

pub fn small(mut config: RingConfig) -> RingConfig {
    config.bytes = crate::MIN_BYTES;
    config
}

/// A port with a thread.
pub struct Running {
    pub sink: Arc<dyn Sink>,
    pub counters: Arc<dyn Counted>,
    pub to: Arc<Pass>,
    pub frames: Receiver<Sent>,
    pub events: Receiver<InletEvent>,
    /// Ends with it.
    _thread: InletThread,
}

impl Running {
    pub fn new(config: RingConfig) -> Self {
        let Port {
            sink,
            inlet,
            counters,
            ..
        } = open(config).expect("a ring port");
        let (to, frames) = Pass::new();
        let (tell, events) = channel();
        let into = Arc::clone(&to) as Arc<dyn Sink>;
        let inlet = inlet.expect("an inlet");
        let thread = InletThread::spawn("ring", inlet, into, move |event| {
            let _ = tell.send(event);
        })
        .expect("a thread");
        Self {
            sink,
            counters,
            to,
            frames,
            events,
            _thread: thread,
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        counter(&*self.counters, name).expect("a counter")
    }

    pub fn wait_for(&self, name: &str, value: u64) {
        until(name, || self.count(name) >= value);
    }

    /// For a thread of its own.
    pub fn take_frames(&mut self) -> Receiver<Sent> {
        std::mem::replace(&mut self.frames, channel().1)
    }

    pub fn frame(&self) -> Vec<u8> {
        self.frames.recv_timeout(PATIENCE).expect("a frame").0
    }

    pub fn event(&self) -> InletEvent {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }
}

/// A port that the test runs.
pub struct Hand {
    pub sink: Arc<dyn Sink>,
    pub counters: Arc<dyn Counted>,
    pub inlet: Box<dyn Inlet>,
    pub to: Arc<Pass>,
    pub frames: Receiver<Sent>,
}

impl Hand {
    pub fn new(config: RingConfig) -> Self {
        let port = open(config).expect("a ring port");
        let (to, frames) = Pass::new();
        Self {
            sink: port.sink,
            counters: port.counters,
            inlet: port.inlet.expect("an inlet"),
            to,
            frames,
        }
    }

    pub fn run(&mut self) -> InletStatus {
        self.inlet.run(&*self.to, MAX_BATCH)
    }

    /// Ends, and leaves one that does nothing.
    pub fn leave(&mut self) {
        let (_dir, path) = place();
        *self = Self::new(connect(&path));
    }

    /// Until it has nothing more to do.
    pub fn settle(&mut self) -> InletStatus {
        for _ in 0..1000 {
            match self.run() {
                InletStatus::More => {}
                status => return status,
            }
        }
        panic!("it does not settle");
    }

    pub fn count(&self, name: &str) -> u64 {
        counter(&*self.counters, name).expect("a counter")
    }
}

/// Two of them, connected.
pub struct Pair {
    pub a: Hand,
    pub b: Hand,
    _dir: tempfile::TempDir,
}

impl Pair {
    pub fn new(change: impl Fn(RingConfig) -> RingConfig) -> Self {
        let (dir, path) = place();
        let mut a = Hand::new(change(listen(&path)));
        let mut b = Hand::new(change(connect(&path)));
        until("a connection", || {
            a.run();
            b.run();
            a.inlet.link_up() && b.inlet.link_up()
        });
        Self { a, b, _dir: dir }
    }
}

pub fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("ring");
    (dir, path)
}

/// Offers frames in batches that are as large as batches are; returns how many were dealt with.
pub fn send_all(sink: &dyn Sink, frames: &[Sent]) -> usize {
    let mut done = 0;
    for part in frames.chunks(MAX_BATCH) {
        let mut batch = Batch::new();
        for (bytes, notes) in part {
            // In two pieces, as a guest may have it.
            let (one, other) = bytes.split_at(bytes.len() / 3);
            batch.push_bytes(one);
            batch.push_bytes(other);
            batch.end(*notes);
        }
        let mut room = Vec::new();
        let taken = sink.deliver(&batch, batch.all_picks(&mut room));
        done += taken;
        if taken < part.len() {
            break;
        }
    }
    done
}

pub fn send(sink: &dyn Sink, frame: &[u8]) -> bool {
    send_all(sink, &[(frame.to_vec(), Offload::NONE)]) == 1
}

/// Bytes that tell one frame from another.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (seed * 31 + at * 7 + at / 256) as u8)
        .collect()
}
