use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use model::Clock;
use vfio_user::EventSet;

use super::{ASKED, Served, Turn, Workers};
use crate::time::MonotonicClock;

/// A turn of it lasts until it is told to end.
struct Stuck {
    begun: Sender<()>,
    end: Receiver<()>,
}

impl Served for Stuck {
    fn watch(&mut self, _: &EventSet) -> std::io::Result<()> {
        Ok(())
    }
    fn unwatch(&mut self) {}
    fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }
    fn tick(&mut self) {}
    fn turn(&mut self, _: u32) -> Turn {
        let _ = self.begun.send(());
        let _ = self.end.recv();
        Turn::default()
    }
}

#[test]
fn sleeping_workers_answer_and_one_in_an_endless_turn_is_late() {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
    let workers = Workers::start(2, &clock).expect("workers");
    let pulses = workers.pulses();
    let end = Instant::now() + Duration::from_secs(20);
    let until = |wanted: &[usize]| {
        let mut late = pulses.late();
        while late != wanted && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            late = pulses.late();
        }
        assert_eq!(late, wanted);
    };
    // They sleep, since there is nothing to do.
    until(&[]);
    let (begun, begins) = channel();
    let (ends, stuck_end) = channel();
    let task = workers.task("stuck");
    let stuck = Stuck {
        begun,
        end: stuck_end,
    };
    task.start(Box::new(stuck));
    begins.recv().expect("a turn");
    until(&[task.worker()]);
    // Late it stays for as long as the turn lasts.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        // The other one may not have answered yet.
        assert!(pulses.late().contains(&task.worker()));
    }
    drop(ends);
    until(&[]);
    task.call(ASKED);
    until(&[]);
    let _ = task.stop();
    drop(workers);
    // Workers that have ended are not asked.
    assert!(pulses.late().is_empty());
}
