//! Tasks whose turns wait are served apart from the others.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use model::{Clock, Timer};
use rustix::event::{EventfdFlags, eventfd};
use vfio_user::EventSet;

use super::had;
use super::long_turns::LONG;
use super::tests::InSet;
use super::{Served, Turn, WOKEN, Workers};

/// Waits in its next turns, and says which thread serves it.
struct Waiting {
    fd: Arc<OwnedFd>,
    set: InSet,
    waits: Arc<AtomicU64>,
    served_by: mpsc::Sender<Option<String>>,
}

impl Served for Waiting {
    fn watch(&mut self, set: &EventSet) -> std::io::Result<()> {
        self.set.enter(set, &self.fd)
    }
    fn unwatch(&mut self) {
        self.set.leave(&self.fd);
    }
    fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }
    fn tick(&mut self) {}
    fn turn(&mut self, _calls: u32) -> Turn {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        if self.waits.load(Ordering::Relaxed) > 0 {
            self.waits.fetch_sub(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_nanos(2 * LONG));
        }
        let thread = std::thread::current();
        let _ = self.served_by.send(thread.name().map(str::to_owned));
        Turn::default()
    }
}

#[test]
fn one_whose_turns_wait_is_served_apart_from_the_others() {
    let clock: Arc<dyn Clock> = Arc::new(crate::time::MonotonicClock);
    let workers = Workers::start(1, &clock).expect("workers");
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let tasks = [0, 1].map(|_| {
        let fd = Arc::new(eventfd(0, flags).expect("eventfd"));
        let waits = Arc::new(AtomicU64::new(0));
        let (served_by, served) = mpsc::channel();
        let task = workers.task("one");
        task.start(Box::new(Waiting {
            fd: Arc::clone(&fd),
            set: InSet::default(),
            waits: Arc::clone(&waits),
            served_by,
        }));
        (task, fd, waits, served)
    });
    let next = |at: usize| {
        let of = tasks[at].3.recv_timeout(Duration::from_secs(20));
        of.expect("a turn").unwrap_or_default()
    };
    assert_eq!([next(0), next(1)], ["worker-0"; 2]);
    tasks[0].2.store(u64::MAX, Ordering::Relaxed);
    let moves = (0..10).any(|_| {
        tasks[0].0.call(WOKEN);
        next(0) == "worker-1"
    });
    assert!(moves);
    tasks[0].2.store(0, Ordering::Relaxed);
    // By a call, by its descriptor, by its timer.
    tasks[0].0.call(WOKEN);
    assert_eq!(next(0), "worker-1");
    rustix::io::write(&*tasks[0].1, &1u64.to_ne_bytes()).expect("an event");
    assert_eq!(next(0), "worker-1");
    tasks[0].0.arm(Some(clock.now() + LONG));
    assert_eq!(next(0), "worker-1");
    tasks[1].0.call(WOKEN);
    assert_eq!(next(1), "worker-0");
    let moved: Vec<_> = workers.counters();
    let of = |at: usize, name| {
        let mut values = moved[at].values.iter();
        values.find(|(known, _)| *known == name).map(|(_, n)| *n)
    };
    assert_eq!(
        (of(0, "tasks_moved"), of(0, "tasks"), of(1, "tasks")),
        (Some(1), Some(1), Some(1))
    );
    for (task, ..) in &tasks {
        assert!(task.stop().is_some());
    }
}

/// Gives way until other threads have had the processor for twice as long as a long turn.
struct Interrupted(mpsc::Sender<()>);

impl Served for Interrupted {
    fn watch(&mut self, _set: &EventSet) -> std::io::Result<()> {
        Ok(())
    }
    fn unwatch(&mut self) {}
    fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }
    fn tick(&mut self) {}
    fn turn(&mut self, _calls: u32) -> Turn {
        let (before, until) = (had::ready(), Instant::now() + Duration::from_secs(20));
        let delayed = || had::ready().zip(before).map(|(now, then)| now - then);
        while delayed().is_some_and(|so| so < 2 * LONG) && Instant::now() < until {
            std::thread::yield_now();
        }
        let _ = self.0.send(());
        Turn::default()
    }
}

/// Looking closely costs more than most turns: it took a third of a busy worker's time, once another thread had interrupted it.
#[test]
fn one_whose_turn_was_interrupted_is_not_looked_at_closely() {
    let clock: Arc<dyn Clock> = Arc::new(crate::time::MonotonicClock);
    let stop = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for _ in 0..2 * processors {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // The host of this machine may interrupt it too, and does not say so.
        let believed = (0..10).any(|_| {
            let workers = Workers::start(1, &clock).expect("workers");
            let (ended, ends) = mpsc::channel();
            let task = workers.task("one");
            task.start(Box::new(Interrupted(ended)));
            let turn = ends.recv_timeout(Duration::from_secs(40));
            assert!(task.stop().is_some());
            turn.expect("a turn");
            task.long_turns.before(clock.now()).is_none()
        });
        stop.store(true, Ordering::Relaxed);
        assert!(believed);
    });
}
