//! Every order in which callers, timers and a worker that goes to sleep can take their steps.

use hypernic_scheduler::{HasTimer, ReadyList, TaskTimer, TimerQueue, WakeFlags};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// The eventfd a worker sleeps on: set by a waker, cleared by the sleeper.
#[derive(Default)]
struct Eventfd {
    count: Mutex<bool>,
    changed: Condvar,
}

impl Eventfd {
    fn write(&self) {
        *self.count.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// The checker reports a deadlock when no thread is left to write: the lost wake.
    fn sleep(&self) {
        let mut count = self.count.lock().unwrap();
        while !*count {
            count = self.changed.wait(count).unwrap();
        }
        *count = false;
    }
}

struct Item {
    wake_flags: WakeFlags,
    /// What is published with a call.
    work: AtomicU32,
    timer: TaskTimer,
}

#[derive(Clone)]
struct Shown(Arc<Item>);

impl HasTimer for Shown {
    fn timer(&self) -> &TaskTimer {
        &self.0.timer
    }
}

struct Worker {
    ready_list: ReadyList<Shown>,
    timers: TimerQueue<Shown>,
    bell: Eventfd,
}

impl Worker {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ready_list: ReadyList::new(),
            timers: TimerQueue::new(),
            bell: Eventfd::default(),
        })
    }

    fn call(&self, item: &Shown, bit: u32) {
        item.0.work.fetch_add(1, Ordering::Relaxed);
        if item.0.wake_flags.raise(bit) && self.ready_list.add(item.clone()) {
            self.bell.write();
        }
    }

    /// Serves until `wanted` pieces of work were seen, and sleeps in between.
    fn serve(&self, mut held: Vec<Shown>, wanted: u32) {
        let mut seen = 0;
        loop {
            self.ready_list.take(&mut held);
            for item in held.drain(..) {
                loop {
                    if item.0.wake_flags.take() != 0 {
                        seen += item.0.work.swap(0, Ordering::Relaxed);
                    }
                    if item.0.wake_flags.rest() {
                        break;
                    }
                }
            }
            if seen >= wanted {
                assert_eq!(seen, wanted);
                return;
            }
            if self.ready_list.doze(|| true) {
                self.bell.sleep();
                self.ready_list.rise();
            }
        }
    }
}

fn item(id: u64) -> Shown {
    Shown(Arc::new(Item {
        wake_flags: WakeFlags::held(),
        work: AtomicU32::new(0),
        timer: TaskTimer::new(id),
    }))
}

fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

#[test]
fn no_call_is_lost_between_two_callers_and_a_worker_that_falls_asleep() {
    model(3, || {
        let worker = Worker::new();
        let one = item(1);
        let callers: Vec<_> = [1, 2]
            .map(|bit| {
                let (worker, one) = (worker.clone(), one.clone());
                thread::spawn(move || worker.call(&one, bit))
            })
            .into();
        worker.serve(vec![one], 2);
        callers.into_iter().for_each(|c| c.join().unwrap());
    });
}

#[test]
fn calls_for_different_items_are_all_served() {
    model(3, || {
        let worker = Worker::new();
        let items = [item(1), item(2)];
        let callers: Vec<_> = items
            .iter()
            .cloned()
            .map(|one| {
                let worker = worker.clone();
                thread::spawn(move || worker.call(&one, 1))
            })
            .collect();
        worker.serve(items.into(), 2);
        callers.into_iter().for_each(|c| c.join().unwrap());
    });
}

#[test]
fn one_caller_that_calls_twice_is_heard_both_times() {
    model(4, || {
        let worker = Worker::new();
        let one = item(1);
        let caller = {
            let (worker, one) = (worker.clone(), one.clone());
            thread::spawn(move || {
                worker.call(&one, 1);
                worker.call(&one, 1);
            })
        };
        worker.serve(vec![one], 2);
        caller.join().unwrap();
    });
}

/// A worker that sleeps until its soonest timer must notice one that is set meanwhile.
#[test]
fn an_alarm_set_while_the_worker_falls_asleep_is_not_slept_through() {
    model(4, || {
        let worker = Worker::new();
        let one = item(1);
        let setter = {
            let (worker, one) = (worker.clone(), one.clone());
            thread::spawn(move || {
                if worker.timers.set(&one, Some(5)) && worker.ready_list.call() {
                    worker.bell.write();
                }
            })
        };
        // Asleep without an timer, only the bell can wake it.
        while worker.timers.soonest().is_none() {
            if worker.ready_list.doze(|| worker.timers.soonest().is_none()) {
                worker.bell.sleep();
                worker.ready_list.rise();
            }
        }
        let mut due = Vec::new();
        worker.timers.due(5, &mut due);
        assert_eq!(due.len(), 1);
        assert!(due[0].0.timer.take_due(5));
        setter.join().unwrap();
    });
}

/// An old time comes while the deadline is moved: it is served now, or it stands under its new
/// time; never neither.
#[test]
fn an_alarm_moved_while_it_comes_is_not_forgotten() {
    model(4, || {
        let worker = Worker::new();
        let one = item(1);
        assert!(worker.timers.set(&one, Some(5)));
        let setter = {
            let (worker, one) = (worker.clone(), one.clone());
            thread::spawn(move || {
                let _ = worker.timers.set(&one, Some(9));
            })
        };
        let mut due = Vec::new();
        worker.timers.due(5, &mut due);
        let early = due.iter().any(|i| i.0.timer.take_due(5));
        setter.join().unwrap();
        let mut due = Vec::new();
        worker.timers.due(9, &mut due);
        let late = due.iter().any(|i| i.0.timer.take_due(9));
        // The move may come before, after or between; the last deadline set is always served.
        assert!(late, "deadline 9 was set and never came (5 came: {early})");
    });
}

/// An item moves to another worker while a thread calls it: exactly one worker serves it.
#[test]
fn a_call_finds_an_item_that_moves_to_another_worker() {
    model(3, || {
        let workers = [Worker::new(), Worker::new()];
        let home = Arc::new(AtomicU32::new(0));
        let one = item(1);
        let caller = {
            let (workers, home, one) = (workers.clone(), home.clone(), one.clone());
            thread::spawn(move || {
                one.0.work.fetch_add(1, Ordering::Relaxed);
                if one.0.wake_flags.raise(1) {
                    let at = home.load(Ordering::Acquire) as usize;
                    if workers[at].ready_list.add(one.clone()) {
                        workers[at].bell.write();
                    }
                }
            })
        };
        // The first worker has it in its hands and gives it away.
        let giver = {
            let (workers, home, one) = (workers.clone(), home.clone(), one.clone());
            thread::spawn(move || {
                home.store(1, Ordering::Release);
                if workers[1].ready_list.add(one) {
                    workers[1].bell.write();
                }
            })
        };
        workers[1].serve(Vec::new(), 1);
        caller.join().unwrap();
        giver.join().unwrap();
        let mut left = Vec::new();
        workers[0].ready_list.take(&mut left);
        assert!(left.is_empty(), "the old worker was told");
    });
}
