use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::{Clock, Timer};
use model_testkit::Time;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use vfio_user::EventSet;

use super::run::{FIRST_ID, Worker};
use super::{QUESTION, Served, Task, Turn, WOKEN, WorkerHandle, Workers, task};
use crate::time::MonotonicClock;

/// How long a turn takes, in nanoseconds, unless a test says otherwise.
const TURN: u64 = 8_000;

const LONG: Duration = Duration::from_secs(20);

/// What a fake was asked to do, and what it shall say.
struct Script {
    /// What its worker watches.
    fd: OwnedFd,
    turns: AtomicU64,
    ticks: AtomicU64,
    /// Pieces of work left; one a turn.
    work: AtomicU64,
    panics: AtomicU64,
    answers: AtomicU64,
    /// How long a turn takes.
    cost: AtomicU64,
    /// Another thread calls it during its next turn, in which it finds nothing to do.
    crossed: Mutex<Option<Arc<Task>>>,
}

/// The set that the descriptor of a fake is in.
#[derive(Default)]
pub(super) struct InSet(Option<EventSet>);

impl InSet {
    pub fn enter(&mut self, set: &EventSet, fd: &impl AsFd) -> std::io::Result<()> {
        set.add(fd.as_fd())?;
        self.0 = Some(set.clone());
        Ok(())
    }

    pub fn leave(&mut self, fd: &impl AsFd) {
        if let Some(set) = self.0.take() {
            set.delete(fd.as_fd());
        }
    }
}

struct Fake {
    script: Arc<Script>,
    clock: Arc<Time>,
    set: InSet,
}

impl Served for Fake {
    fn watch(&mut self, set: &EventSet) -> std::io::Result<()> {
        self.set.enter(set, &self.script.fd)
    }
    fn unwatch(&mut self) {
        self.set.leave(&self.script.fd);
    }
    fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }
    fn tick(&mut self) {
        self.script.ticks.fetch_add(1, Ordering::Relaxed);
    }
    fn answer(&mut self) {
        self.script.answers.fetch_add(1, Ordering::Relaxed);
    }
    fn turn(&mut self, _calls: u32) -> Turn {
        self.script.turns.fetch_add(1, Ordering::Relaxed);
        let cost = self.script.cost.load(Ordering::Relaxed);
        self.clock.now.fetch_add(cost, Ordering::Relaxed);
        if let Some(task) = self.script.crossed.lock().take() {
            task.call(WOKEN);
        }
        assert_eq!(self.script.panics.load(Ordering::Relaxed), 0, "told to");
        let left = self.script.work.load(Ordering::Relaxed);
        self.script
            .work
            .store(left.saturating_sub(1), Ordering::Relaxed);
        Turn {
            served: left > 0,
            more: left > 1,
            ill: false,
            answered: 0,
        }
    }
}

struct Bench {
    worker: Worker,
    clock: Arc<Time>,
    handles: Arc<[WorkerHandle]>,
    ids: AtomicU64,
    tasks: Vec<(Arc<Task>, Arc<Script>)>,
}

fn fake(clock: &Arc<Time>) -> (Arc<Script>, Box<dyn Served>) {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let script = Arc::new(Script {
        fd: eventfd(0, flags).expect("eventfd"),
        turns: AtomicU64::default(),
        ticks: AtomicU64::default(),
        answers: AtomicU64::default(),
        work: AtomicU64::default(),
        panics: AtomicU64::default(),
        cost: AtomicU64::new(TURN),
        crossed: Mutex::default(),
    });
    let body = Fake {
        script: Arc::clone(&script),
        clock: Arc::clone(clock),
        set: InSet::default(),
    };
    (script, Box::new(body))
}

impl Bench {
    /// A worker that does nothing but what the test makes it do, with idle tasks.
    fn new(count: usize) -> Self {
        let handles: Arc<[WorkerHandle]> = vec![WorkerHandle::new(false)].into();
        let clock = Arc::new(Time::default());
        let seen = Arc::clone(&clock) as Arc<dyn Clock>;
        let mut bench = Self {
            worker: Worker::new(Arc::clone(&handles), 0, seen).expect("worker"),
            clock,
            handles,
            ids: AtomicU64::new(FIRST_ID),
            tasks: Vec::new(),
        };
        for _ in 0..count {
            let task = task(&bench.handles, 0, &bench.ids, "fake");
            let (script, body) = fake(&bench.clock);
            task.start(body);
            bench.tasks.push((task, script));
        }
        while bench.worker.step() {}
        for (_, script) in &bench.tasks {
            assert_eq!(script.turns.swap(0, Ordering::Relaxed), 1);
        }
        bench
    }

    fn work(&self, at: usize, pieces: u64) {
        self.tasks[at].1.work.store(pieces, Ordering::Relaxed);
        self.tasks[at].0.call(WOKEN);
    }

    fn turns(&self, at: usize) -> u64 {
        self.tasks[at].1.turns.load(Ordering::Relaxed)
    }
}

/// Jain's index: 1 when all have the same, 1/n when one has all.
pub(super) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|s| *s as f64).sum();
    let squares: f64 = shares.iter().map(|s| (*s as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn sixty_four_busy_ones_have_the_same_number_of_turns() {
    let mut bench = Bench::new(64);
    (0..64).for_each(|at| bench.work(at, u64::MAX));
    // Those who were first have had a few more until all are busy.
    for _ in 0..500 {
        bench.worker.step();
    }
    for (_, script) in &bench.tasks {
        script.turns.store(0, Ordering::Relaxed);
    }
    for _ in 0..64 * 50 + 17 {
        assert!(bench.worker.step());
    }
    let shares: Vec<_> = (0..64).map(|at| bench.turns(at)).collect();
    assert!(jain(&shares) > 0.99, "{shares:?}");
    assert!(shares.iter().all(|s| s.abs_diff(50) <= 1), "{shares:?}");
}

#[test]
fn a_little_work_waits_for_the_turn_under_way_and_not_for_a_round() {
    let mut bench = Bench::new(64);
    (1..64).for_each(|at| bench.work(at, u64::MAX));
    for _ in 0..500 {
        bench.worker.step();
    }
    for round in 1..=100 {
        bench.work(0, 1);
        let mut steps = 0;
        while bench.turns(0) < round {
            bench.worker.step();
            steps += 1;
        }
        assert_eq!(steps, 1, "round {round}");
        // It is little: not one turn in two.
        for _ in 0..64 {
            bench.worker.step();
        }
    }
}

#[test]
fn one_that_is_called_while_it_is_tried_is_not_slept_upon() {
    let mut bench = Bench::new(1);
    bench.work(0, 1);
    while bench.worker.step() {}
    assert_eq!(bench.turns(0), 1);
    let mut tried = 0;
    for _ in 0..1000 {
        *bench.tasks[0].1.crossed.lock() = Some(Arc::clone(&bench.tasks[0].0));
        let before = bench.turns(0);
        // Time for one try at most.
        let busy = bench.worker.stay_awake(Duration::from_micros(1));
        let called = bench.tasks[0].1.crossed.lock().is_none();
        tried += u64::from(bench.turns(0) == before + 1 && called);
        assert_eq!(busy, called, "it would sleep on a call");
        while bench.worker.step() {}
    }
    assert!(tried > 0, "it was never tried");
}

#[test]
fn one_that_was_taken_back_is_served_again_when_it_is_given() {
    let mut bench = Bench::new(2);
    let task = Arc::clone(&bench.tasks[0].0);
    let take = |bench: &mut Bench| {
        std::thread::scope(|scope| {
            let back = scope.spawn(|| task.stop());
            while !back.is_finished() {
                bench.worker.step();
            }
            back.join().expect("no panic")
        })
    };
    let body = take(&mut bench).expect("it was served");
    assert!(take(&mut bench).is_none(), "there is nothing to take");
    let before = bench.turns(0);
    bench.work(0, 3);
    while bench.worker.step() {}
    assert_eq!(bench.turns(0), before, "its worker has it no more");
    task.start(body);
    while bench.worker.step() {}
    assert_eq!(bench.turns(0), before + 3);
    bench.work(0, 1);
    while bench.worker.step() {}
    assert_eq!(bench.turns(0), before + 4);
}

/// What each has had of the worker's time, in turns of the usual length.
fn served(bench: &Bench) -> Vec<u64> {
    let turns = |(_, script): &(Arc<Task>, Arc<Script>)| {
        let cost = script.cost.load(Ordering::Relaxed);
        script.turns.swap(0, Ordering::Relaxed) * cost
    };
    bench.tasks.iter().map(turns).collect()
}

#[test]
fn those_who_come_again_and_again_and_those_who_are_always_busy_have_equal_parts() {
    let mut bench = Bench::new(20);
    (0..4).for_each(|at| bench.work(at, u64::MAX));
    for _ in 0..4000 {
        for at in 4..20 {
            bench.work(at, 1);
        }
        bench.worker.step();
    }
    let shares: Vec<_> = (0..20).map(|at| bench.turns(at)).collect();
    assert!(shares.iter().all(|s| s.abs_diff(200) <= 4), "{shares:?}");
}

#[test]
fn time_is_what_is_shared_whatever_it_is_used_for() {
    let mut bench = Bench::new(64);
    for at in 0..64 {
        // From a few register accesses to a turn of large sends.
        let cost = [500, 4_000, 8_000, 60_000][at % 4];
        bench.tasks[at].1.cost.store(cost, Ordering::Relaxed);
        bench.work(at, u64::MAX);
    }
    for _ in 0..64 * 500 {
        assert!(bench.worker.step());
    }
    let shares = served(&bench);
    assert!(jain(&shares) > 0.99, "{shares:?}");
}

#[test]
fn a_turn_during_which_the_thread_did_not_run_is_soon_forgiven() {
    let mut bench = Bench::new(2);
    (0..2).for_each(|at| bench.work(at, u64::MAX));
    bench.tasks[0]
        .1
        .cost
        .store(1_000_000_000, Ordering::Relaxed);
    while bench.turns(0) < 2 {
        bench.worker.step();
    }
    bench.tasks[0].1.cost.store(TURN, Ordering::Relaxed);
    served(&bench);
    for _ in 0..200 {
        bench.worker.step();
    }
    assert!(bench.turns(0) >= 75, "{}", bench.turns(0));
}

#[test]
fn who_was_idle_for_long_has_saved_up_no_more_than_a_few_turns() {
    let mut bench = Bench::new(3);
    (1..3).for_each(|at| bench.work(at, u64::MAX));
    for _ in 0..10_000 {
        bench.worker.step();
    }
    served(&bench);
    bench.work(0, u64::MAX);
    for _ in 0..30 {
        bench.worker.step();
    }
    let shares: Vec<_> = (0..3).map(|at| bench.turns(at)).collect();
    assert!(shares[0] <= 10 + 3 && shares[1] >= 8, "{shares:?}");
}

#[test]
fn those_whose_turn_it_often_is_do_not_keep_the_worker_from_hearing_the_others() {
    const BUSY: usize = 4;
    let mut bench = Bench::new(64);
    (0..BUSY).for_each(|at| bench.work(at, 1));
    while bench.worker.step() {}
    for (_, script) in &bench.tasks {
        // All have sent something; the worker has to look to know it.
        rustix::io::write(&script.fd, &1u64.to_ne_bytes()).expect("write");
    }
    // Those who are served last always have a little more whenever they are tried, so that no try
    // is in vain.
    for _ in 0..2000 {
        for at in 0..BUSY {
            let left = &bench.tasks[at].1.work;
            left.store(1, Ordering::Relaxed);
        }
        if !bench.worker.step() {
            bench.worker.stay_awake(Duration::from_micros(50));
        }
    }
    let shares: Vec<_> = (BUSY..64).map(|at| bench.turns(at)).collect();
    assert!(shares.iter().all(|s| *s > 0), "never heard: {shares:?}");
}

#[test]
fn of_those_served_last_one_that_always_has_more_does_not_keep_the_others_waiting() {
    let mut bench = Bench::new(3);
    (0..3).for_each(|at| bench.work(at, 1));
    while bench.worker.step() {}
    for _ in 0..100 {
        served(&bench);
        // Each has a message.
        for (_, script) in &bench.tasks {
            script.work.store(1, Ordering::Relaxed);
            rustix::io::write(&script.fd, &1u64.to_ne_bytes()).expect("write");
        }
        assert!(bench.worker.stay_awake(Duration::from_secs(60)));
        while bench.worker.step() {
            // Read, as a task that is served does.
            for (_, script) in &bench.tasks {
                if script.work.load(Ordering::Relaxed) == 0 {
                    let _ = rustix::io::read(&script.fd, &mut [0; 8]);
                }
            }
        }
        assert!((0..3).all(|at| bench.turns(at) > 0));
    }
}

#[test]
fn one_that_panics_costs_the_others_nothing() {
    let mut bench = Bench::new(3);
    bench.tasks[1].1.panics.store(1, Ordering::Relaxed);
    (0..3).for_each(|at| bench.work(at, 100));
    while bench.worker.step() {}
    assert_eq!((bench.turns(0), bench.turns(2)), (100, 100));
    assert_eq!(bench.turns(1), 1);
    assert_eq!(bench.handles[0].counters.fallen.load(Ordering::Relaxed), 1);
    let fallen = Arc::clone(&bench.tasks[1].0);
    let stopped = std::thread::spawn(move || fallen.stop().is_none());
    while !stopped.is_finished() {
        bench.worker.step();
    }
    assert!(stopped.join().expect("stop"), "nothing is left of it");
    assert_eq!(bench.handles[0].tasks.load(Ordering::Relaxed), 2);
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thousand_idle_ones_cost_no_turn_no_look_and_no_wake() {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
    let workers = Workers::start(2, &clock).expect("workers");
    let mut tasks = Vec::new();
    for _ in 0..1000 {
        let task = workers.task("fake");
        let (script, body) = fake(&Arc::default());
        task.start(body);
        tasks.push((task, script));
    }
    let turns = || tasks.iter().map(|(_, s)| s.turns.load(Ordering::Relaxed));
    wait_for("all are served", || turns().all(|t| t == 1));
    // The look with which a worker falls asleep is counted before it sleeps.
    let seen = |name| -> u64 { workers.counters().iter().map(|s| s.get(name)).sum() };
    let mut before = (0, 0, 0);
    wait_for("all sleep", || {
        let now = (seen("turns"), seen("poll_calls"), seen("sleeps"));
        let still = now == before;
        before = now;
        std::thread::sleep(Duration::from_millis(50));
        still
    });
    assert_eq!(seen("tasks"), 1000);
    for section in workers.counters() {
        assert_eq!(section.get("tasks"), 500, "placed evenly");
    }
    std::thread::sleep(Duration::from_millis(300));
    let after = (seen("turns"), seen("poll_calls"), seen("sleeps"));
    assert_eq!(before, after);
    // And each is there when it is called.
    for (task, script) in &tasks {
        script.work.store(1, Ordering::Relaxed);
        task.call(WOKEN);
    }
    wait_for("all are served again", || turns().all(|t| t == 2));
    for (task, _) in &tasks {
        assert!(task.stop().is_some());
    }
    assert_eq!(seen("tasks"), 0);
}

/// A host makes all its NICs before the first is served.
#[test]
fn those_that_are_made_before_any_is_served_are_placed_evenly() {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
    let workers = Workers::start(3, &clock).expect("workers");
    let homes = |tasks: &[Arc<Task>]| {
        let of = |at| tasks.iter().filter(|task| task.worker() == at).count();
        [0, 1, 2].map(of)
    };
    let made: Vec<_> = (0..9).map(|_| workers.task("fake")).collect();
    assert_eq!(homes(&made), [3, 3, 3]);
    for task in &made {
        task.start(fake(&Arc::default()).1);
    }
    // What was made and not kept takes no place.
    drop((0..5).map(|_| workers.task("fake")).collect::<Vec<_>>());
    let more: Vec<_> = (0..3).map(|_| workers.task("fake")).collect();
    assert_eq!(homes(&more), [1, 1, 1]);
    let tasks = || -> u64 { workers.counters().iter().map(|s| s.get("tasks")).sum() };
    wait_for("each has its own", || tasks() == 9);
}

#[test]
fn an_idle_one_is_woken_by_its_descriptor_and_by_its_alarm() {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
    let workers = Workers::start(1, &clock).expect("workers");
    let (script, body) = fake(&Arc::default());
    let task = workers.task("fake");
    // Before its worker knows it, too.
    task.arm(Some(clock.now() + 1_000_000));
    task.start(body);
    wait_for("the first timer", || {
        script.ticks.load(Ordering::Relaxed) == 1
    });
    let turns = script.turns.load(Ordering::Relaxed);
    rustix::io::write(&script.fd, &1u64.to_ne_bytes()).expect("write");
    wait_for("its descriptor", || {
        script.turns.load(Ordering::Relaxed) > turns
    });
    rustix::io::read(&script.fd, &mut [0u8; 8]).expect("read");
    for n in 2..50 {
        task.arm(Some(clock.now() + 3_600_000_000_000));
        task.arm(Some(clock.now() + 100_000));
        wait_for("an timer", || script.ticks.load(Ordering::Relaxed) == n);
    }
    task.arm(Some(clock.now() + 50_000_000));
    task.arm(None);
    std::thread::sleep(Duration::from_millis(80));
    assert_eq!(script.ticks.load(Ordering::Relaxed), 49, "called off");
    assert!(task.stop().is_some());
}

/// A look at a thousand idle NICs costs each an answer and no turn; it keeps nothing else from being done.
#[test]
fn a_question_is_no_turn_and_hides_nothing_else_that_came() {
    let mut bench = Bench::new(2);
    let (task, script) = bench.tasks[0].clone();
    let seen =
        || [&script.answers, &script.turns, &script.ticks].map(|n| n.load(Ordering::Relaxed));
    task.call(QUESTION);
    while bench.worker.step() {}
    assert_eq!(seen(), [1, 0, 0]);
    // Others want a turn, too.
    let (other, of_other) = bench.tasks[1].clone();
    for asked in [&task, &other] {
        asked.call(QUESTION);
    }
    while bench.worker.step() {}
    assert_eq!(seen(), [2, 0, 0]);
    let answers = of_other.answers.load(Ordering::Relaxed);
    assert_eq!((answers, bench.turns(1)), (1, 0));
    // A call.
    task.call(QUESTION);
    bench.work(0, 1);
    while bench.worker.step() {}
    assert_eq!(seen(), [3, 1, 0]);
    // What a turn has left to do.
    bench.work(0, 3);
    while bench.worker.step() {
        task.call(QUESTION);
        if seen()[1] == 4 {
            break;
        }
    }
    while bench.worker.step() {}
    assert_eq!((seen()[1], script.work.load(Ordering::Relaxed)), (4, 0));
    let answers = seen()[0];
    // Its time.
    task.arm(Some(bench.clock.now() + 5));
    bench.clock.now.fetch_add(10, Ordering::Relaxed);
    task.call(QUESTION);
    bench.work(0, 0);
    while bench.worker.step() {}
    assert_eq!(seen()[2], 1);
    // A time, and nothing that calls it.
    task.arm(Some(bench.clock.now() + 5));
    bench.clock.now.fetch_add(10, Ordering::Relaxed);
    let turns = seen()[1];
    task.call(QUESTION);
    while bench.worker.step() {}
    assert_eq!((seen()[2], seen()[1] > turns), (2, true));
    assert!(seen()[0] >= answers + 2);
    // An event, which was seen before the question came.
    rustix::io::write(&script.fd, &1u64.to_ne_bytes()).expect("write");
    bench.clock.now.fetch_add(1_000_000, Ordering::Relaxed);
    assert!(bench.worker.stay_awake(LONG));
    let turns = seen()[1];
    task.call(QUESTION);
    while bench.worker.step() {}
    assert!(seen()[1] > turns);
}
