//! Answers that the thread finds which wrote to the port.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Sink, Wake};
use hypernic_port::answer::{self, Answers, Prompt};
use hypernic_port::{
    Backlog, Bell, Inlet, InletEvent, InletStatus, InletThread, Interest, Waiters, counter,
};
use wire::Offload;

const PATIENCE: Duration = Duration::from_secs(20);

/// A peer that answers every frame before the write returns.
struct Echo {
    bell: Bell,
    answers: Answers,
    waiting: Mutex<VecDeque<u32>>,
    fails: AtomicBool,
}

impl AsFd for Echo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Prompt for Echo {
    fn answers(&self) -> &Answers {
        &self.answers
    }
}

impl Echo {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: Bell::new().expect("eventfd"),
            answers: Answers::new(),
            waiting: Mutex::default(),
            fails: AtomicBool::new(false),
        })
    }

    /// Writes a frame. Its thread hears of it only if it is told.
    fn write(&self, frame: u32, tell: bool) {
        self.waiting.lock().unwrap().push_back(frame);
        if tell {
            self.bell.ring();
        }
        self.answers.expect();
    }
}

struct EchoInlet {
    echo: Arc<Echo>,
    backlog: Backlog,
    passed: u64,
}

impl Inlet for EchoInlet {
    fn interests<'a>(&'a self, _: &mut dyn FnMut(Interest<'a>)) {
        panic!("it is waited for without the inlet");
    }
    fn prompt(&self) -> Option<Arc<dyn Prompt>> {
        Some(Arc::clone(&self.echo) as Arc<dyn Prompt>)
    }
    fn passed(&self) -> u64 {
        self.passed
    }
    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus {
        assert!(!self.echo.fails.load(Ordering::SeqCst), "as the test wants");
        self.echo.bell.clear();
        for _ in 0..budget {
            self.passed += self.backlog.flush(to).frames;
            if !self.backlog.is_empty() {
                return InletStatus::Blocked;
            }
            let Some(frame) = self.echo.waiting.lock().unwrap().pop_front() else {
                return InletStatus::Idle;
            };
            let bytes = frame.to_le_bytes();
            assert!(self.backlog.push(&[bytes; 5].concat(), Offload::NONE));
        }
        InletStatus::More
    }
}

/// Takes frames while there is room.
#[derive(Default)]
struct Gate {
    room: AtomicUsize,
    next: AtomicU64,
    waiters: Waiters,
}

impl Sink for Gate {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = picks.len().min(self.room.load(Ordering::SeqCst));
        self.room.fetch_sub(n, Ordering::SeqCst);
        for &pick in &picks[..n] {
            let frame = batch.get(pick.into()).expect("a frame").to_vec();
            let number = u32::from_le_bytes(*frame.first_chunk().expect("long enough"));
            let before = self.next.fetch_add(1, Ordering::SeqCst);
            assert_eq!(u64::from(number), before, "each once, in order");
        }
        n
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.waiters.add(waker);
    }
}

impl Gate {
    fn open(&self, n: usize) {
        self.room.fetch_add(n, Ordering::SeqCst);
        self.waiters.wake_all();
    }
    fn came(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }
}

struct Bed {
    echo: Arc<Echo>,
    gate: Arc<Gate>,
    thread: InletThread,
    closed: Arc<AtomicBool>,
}

fn bed() -> Bed {
    let (echo, gate) = (Echo::new(), Arc::new(Gate::default()));
    let closed = Arc::new(AtomicBool::new(false));
    let inlet = EchoInlet {
        echo: Arc::clone(&echo),
        backlog: Backlog::new(4096, 64),
        passed: 0,
    };
    let (to, tell) = (Arc::clone(&gate) as Arc<dyn Sink>, Arc::clone(&closed));
    let thread = InletThread::spawn("echo", Box::new(inlet), to, move |event| {
        tell.store(matches!(event, InletEvent::Closed(_)), Ordering::SeqCst);
    });
    Bed {
        echo,
        gate,
        thread: thread.expect("thread"),
        closed,
    }
}

impl Bed {
    fn count(&self, name: &str) -> u64 {
        counter(&*self.thread.counters(), name).expect("counter")
    }

    /// The thread has done what it does at its start, and waits.
    fn settled(&self) {
        wait_until("it sleeps", || self.count("inlet_sleeps") > 0);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_wrote_passes_the_answer_on() {
    let bed = bed();
    bed.gate.open(1000);
    bed.settled();
    for n in 0..1000 {
        bed.echo.write(n, false);
        answer::take();
        assert_eq!(bed.gate.came(), u64::from(n) + 1, "its thread sleeps");
    }
    assert_eq!(bed.count("inlet_answers"), 1000);
    assert_eq!(bed.count("inlet_turns"), 1);
}

/// Two threads pass frames on, and none is doubled, lost or out of order.
#[test]
fn beside_its_own_thread_each_frame_comes_once_and_in_order() {
    let bed = bed();
    bed.gate.open(20_000);
    for n in 0..20_000 {
        bed.echo.write(n, true);
        answer::take();
    }
    wait_until("all came", || bed.gate.came() == 20_000);
}

#[test]
fn what_finds_no_room_comes_when_there_is_some() {
    let bed = bed();
    bed.gate.open(1);
    bed.settled();
    bed.echo.write(0, false);
    bed.echo.write(1, false);
    answer::take();
    assert_eq!(bed.gate.came(), 1);
    // Its thread waits for room now, and nobody tells it of more frames.
    wait_until("it is blocked", || bed.count("inlet_blocked") > 0);
    bed.gate.open(1);
    wait_until("the other one came", || bed.gate.came() == 2);
}

#[test]
fn more_than_one_look_passes_on_is_left_to_its_thread() {
    let bed = bed();
    bed.gate.open(1000);
    bed.settled();
    for n in 0..1000 {
        bed.echo.write(n, false);
    }
    answer::take();
    assert!(
        bed.gate.came() >= 60,
        "a look passes on {}",
        bed.gate.came()
    );
    wait_until("the others came", || bed.gate.came() == 1000);
}

#[test]
fn a_failure_closes_the_port_and_not_the_thread_that_looked() {
    let bed = bed();
    bed.settled();
    bed.echo.fails.store(true, Ordering::SeqCst);
    bed.echo.write(0, false);
    answer::take();
    wait_until("it is closed", || bed.closed.load(Ordering::SeqCst));
    bed.echo.write(1, false);
    answer::take();
}
