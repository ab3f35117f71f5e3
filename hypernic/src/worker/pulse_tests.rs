use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use guest_mem::{Memory, Prot};
use model::Clock;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
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

/// A guest's memory: all of it is there but the last page.
const GUEST: u64 = 256 << 20;
const PAGE: u64 = 4096;

/// A turn of it reads the page that is not there, and then lasts until it is told to end.
struct Reads {
    memory: Memory,
    tid: Sender<i32>,
    end: Receiver<()>,
    has_read: Arc<AtomicBool>,
}

impl Served for Reads {
    fn watch(&mut self, _: &EventSet) -> std::io::Result<()> {
        Ok(())
    }
    fn unwatch(&mut self) {}
    fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }
    fn tick(&mut self) {}
    fn turn(&mut self, _: u32) -> Turn {
        let _ = self
            .tid
            .send(rustix::thread::gettid().as_raw_nonzero().get());
        let read = self.memory.view().read(GUEST - PAGE, &mut [0; 8]);
        read.expect("the guest's");
        self.has_read.store(true, Ordering::Release);
        let _ = self.end.recv();
        Turn::default()
    }
}

/// A VMM takes pages out of its guest's memory while a worker reads there: the worker waits in the kernel until all are out. That is
/// no reason to end all its guests' NICs.
#[test]
fn a_worker_that_waits_for_a_guests_memory_is_excused() {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
    let end = Instant::now() + Duration::from_secs(60);
    // The kernel may be done with it before we have looked.
    while !waits_once(&clock) {
        assert!(Instant::now() < end, "no worker was seen to wait");
    }
}

/// Whether a worker was seen to wait.
fn waits_once(clock: &Arc<dyn Clock>) -> bool {
    let workers = Workers::start(1, clock).expect("a worker");
    let pulses = workers.pulses();
    let file: OwnedFd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, GUEST).expect("its length");
    fallocate(&file, FallocateFlags::empty(), 0, GUEST - PAGE).expect("pages");
    let memory = Memory::new();
    let mapped = memory.map_fd(0, GUEST, file.as_fd(), 0, Prot::RW);
    mapped.expect("a map");
    let (tid, its_tid) = channel();
    let (ends, its_end) = channel();
    let has_read = Arc::<AtomicBool>::default();
    let reads = Reads {
        memory,
        tid,
        end: its_end,
        has_read: Arc::clone(&has_read),
    };
    let task = workers.task("reads");
    let vmm = File::from(file);
    let punch = std::thread::spawn(move || {
        let all = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&vmm, all, 0, GUEST).expect("a hole");
    });
    task.start(Box::new(reads));
    let tid = its_tid.recv().expect("a turn");
    let state = format!("/proc/self/task/{tid}/stat");
    let waits = || {
        let state = std::fs::read_to_string(&state).expect("its state");
        state
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('D'))
    };
    let mut seen = false;
    while !has_read.load(Ordering::Acquire) {
        // The first asks it, so that an answer is owed by the second. Between two looks at which it waited it did nothing else: it
        // reads once.
        if waits() {
            let late = (pulses.late(), pulses.late());
            if waits() && !has_read.load(Ordering::Acquire) {
                assert_eq!(late, (vec![], vec![]));
                seen = true;
            }
        }
    }
    punch.join().expect("no panic");
    // It has what it read, and is late as any other that does not come to an end.
    pulses.late();
    assert_eq!(pulses.late(), [0]);
    drop(ends);
    let _ = task.stop();
    drop(workers);
    seen
}
