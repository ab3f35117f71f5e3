//! The thread that drives an inlet: it works, waits and ends as it should.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Sink, Wake};
use hypernic_port::{
    Backlog, Bell, Inlet, InletEvent, InletStatus, InletThread, Interest, Waiters, counter,
};
use wire::Offload;

const PATIENCE: Duration = Duration::from_secs(20);

/// Takes frames while there is room, and wakes those who wait when the test makes some.
#[derive(Default)]
struct Gate {
    room: AtomicUsize,
    got: Mutex<Vec<u8>>,
    waiters: Waiters,
}

impl Gate {
    fn open(&self, n: usize) {
        self.room.fetch_add(n, Ordering::SeqCst);
        self.waiters.wake_all();
    }
}

impl Sink for Gate {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = picks.len().min(self.room.load(Ordering::SeqCst));
        self.room.fetch_sub(n, Ordering::SeqCst);
        let frames = picks[..n].iter().filter_map(|&p| batch.get(p.into()));
        let mut got = self.got.lock().expect("lock");
        got.extend(frames.map(|f| f.to_vec()[0]));
        n
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.waiters.add(waker);
    }
}

/// Passes on the bytes the test sends, one frame each.
struct Feed {
    bell: Arc<Bell>,
    bytes: Receiver<u8>,
    backlog: Backlog,
    link: Arc<AtomicBool>,
}

struct Hand {
    bell: Arc<Bell>,
    bytes: Option<Sender<u8>>,
    link: Arc<AtomicBool>,
}

impl Hand {
    fn send(&self, bytes: impl IntoIterator<Item = u8>) {
        for b in bytes {
            self.bytes.as_ref().expect("open").send(b).expect("inlet");
        }
        self.bell.ring();
    }
}

fn feed() -> (Hand, Feed) {
    let bell = Arc::new(Bell::new().expect("eventfd"));
    let (give, take) = channel();
    let link = Arc::new(AtomicBool::new(true));
    let hand = Hand {
        bell: Arc::clone(&bell),
        bytes: Some(give),
        link: Arc::clone(&link),
    };
    let feed = Feed {
        bell,
        bytes: take,
        backlog: Backlog::new(4096, 64),
        link,
    };
    (hand, feed)
}

impl Inlet for Feed {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        add(Interest {
            fd: self.bell.as_fd(),
            read: true,
            write: false,
        });
    }
    fn link_up(&self) -> bool {
        self.link.load(Ordering::SeqCst)
    }
    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        use std::sync::mpsc::TryRecvError;
        self.bell.clear();
        for _ in 0..budget {
            self.backlog.flush(to);
            if !self.backlog.is_empty() {
                return InletStatus::Blocked;
            }
            match self.bytes.try_recv() {
                Ok(b) => assert!(self.backlog.push(&[b; 20], Offload::NONE)),
                Err(TryRecvError::Empty) => return InletStatus::Idle,
                Err(TryRecvError::Disconnected) => return InletStatus::Closed("done".into()),
            }
        }
        InletStatus::More
    }
}

fn spawn(inlet: impl Inlet + 'static, gate: &Arc<Gate>) -> (InletThread, Receiver<InletEvent>) {
    let (tell, events) = channel();
    let to = Arc::clone(gate) as Arc<dyn Sink>;
    let thread = InletThread::spawn("inlet", Box::new(inlet), to, move |e| {
        let _ = tell.send(e);
    });
    (thread.expect("thread"), events)
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn turns(thread: &InletThread) -> u64 {
    counter(&*thread.counters(), "inlet_turns").expect("counter")
}

#[test]
fn frames_pass_and_idleness_costs_nothing() {
    let gate = Arc::new(Gate::default());
    gate.open(usize::MAX / 2);
    let (hand, inlet) = feed();
    let (thread, _events) = spawn(inlet, &gate);
    for round in 0..50u8 {
        hand.send([round; 100]);
        let all = (usize::from(round) + 1) * 100;
        wait_until("frames", || gate.got.lock().expect("lock").len() == all);
    }
    let before = turns(&thread);
    std::thread::sleep(Duration::from_millis(200));
    assert!(turns(&thread) - before < 5, "asleep");
}

#[test]
fn a_sink_without_room_is_waited_for_and_loses_nothing() {
    let gate = Arc::new(Gate::default());
    let (hand, inlet) = feed();
    let (thread, _events) = spawn(inlet, &gate);
    hand.send(0..200);
    let blocked = || counter(&*thread.counters(), "inlet_blocked").expect("counter");
    wait_until("blocked", || blocked() > 0);
    let before = turns(&thread);
    // Its descriptor stays readable, which must not keep it busy.
    hand.bell.ring();
    std::thread::sleep(Duration::from_millis(100));
    assert!(turns(&thread) - before < 5, "asleep");
    for all in (0..=200).step_by(10) {
        wait_until("frames", || gate.got.lock().expect("lock").len() >= all);
        gate.open(10);
    }
    wait_until("all", || gate.got.lock().expect("lock").len() == 200);
    let expected: Vec<u8> = (0..200).collect();
    assert_eq!(*gate.got.lock().expect("lock"), expected);
}

#[test]
fn events_tell_of_the_link_and_of_the_end() {
    let gate = Arc::new(Gate::default());
    let (mut hand, inlet) = feed();
    let (thread, events) = spawn(inlet, &gate);
    hand.link.store(false, Ordering::SeqCst);
    hand.bell.ring();
    assert_eq!(events.recv_timeout(PATIENCE), Ok(InletEvent::LinkDown));
    hand.link.store(true, Ordering::SeqCst);
    hand.bell.ring();
    assert_eq!(events.recv_timeout(PATIENCE), Ok(InletEvent::LinkUp));
    hand.bytes = None;
    hand.bell.ring();
    let end = InletEvent::Closed("done".into());
    assert_eq!(events.recv_timeout(PATIENCE), Ok(end));
    wait_until("finished", || thread.is_finished());
}

#[test]
fn dropping_it_ends_it_wherever_it_waits() {
    for room in [0, 1000] {
        let gate = Arc::new(Gate::default());
        gate.open(room);
        let (hand, inlet) = feed();
        let (thread, _events) = spawn(inlet, &gate);
        hand.send([1]);
        wait_until("asleep", || {
            counter(&*thread.counters(), "inlet_sleeps") > Some(0)
        });
        drop(thread);
        assert!(
            hand.bytes.expect("sender").send(1).is_err(),
            "inlet is gone"
        );
    }
}

/// Waits for a socket whose peer has gone, and does nothing about it.
struct Deaf(std::os::unix::net::UnixStream);

impl Inlet for Deaf {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        add(Interest {
            fd: self.0.as_fd(),
            read: false,
            write: false,
        });
        add(Interest {
            fd: self.0.as_fd(),
            read: true,
            write: false,
        });
    }
    fn run(&mut self, _: &dyn Sink, _: usize) -> InletStatus {
        InletStatus::Idle
    }
}

#[test]
fn a_descriptor_in_an_error_state_does_not_make_it_spin() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("pair");
    drop(theirs);
    let gate = Arc::new(Gate::default());
    let (thread, _events) = spawn(Deaf(ours), &gate);
    std::thread::sleep(Duration::from_millis(300));
    assert!(turns(&thread) < 40, "{}", turns(&thread));
}

/// Panics when it is run.
struct Bug;

impl Inlet for Bug {
    fn interests<'a>(&'a self, _: &mut dyn FnMut(Interest<'a>)) {}
    fn run(&mut self, _: &dyn Sink, _: usize) -> InletStatus {
        panic!("a bug, for the test");
    }
}

#[test]
fn the_owner_hears_of_an_inlet_that_panics() {
    let (_thread, events) = spawn(Bug, &Arc::default());
    let event = events.recv_timeout(PATIENCE).expect("an event");
    assert!(matches!(event, InletEvent::Closed(why) if why.contains("bug")));
}
