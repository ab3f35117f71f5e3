//! Worker threads, and what they serve.
//!
//! A worker owns many NICs. Those with work are active and get bounded turns one after the other;
//! all others cost a descriptor in the worker's epoll set and nothing else. Who is called, and how
//! a worker falls asleep without losing a call, is `ready_list`'s.

mod doorbell_poller;
mod run;
mod turns;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use frame::Wake;
use model::{Clock, Nanos, Timer};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};
use scheduler::{HasTimer, ReadyList, TaskTimer, TimerQueue, WakeFlags};

use crate::error::Error;
use crate::report::Section;
use crate::time::TimerFd;
use run::Worker;
use turns::Spent;

/// Called by whoever has made room for its frames.
pub(crate) const WOKEN: u32 = 1 << 0;
/// Called by its owner, for anything.
pub(crate) const ASKED: u32 = 1 << 1;
/// Called by whoever has given it much to do whose end nobody tells: its doorbells are to be looked
/// at.
pub(crate) const LOOK: u32 = 1 << 2;
/// Tried without a sign of news: others look at all its descriptors.
pub(crate) const TRIED: u32 = 1 << 3;
/// New at this worker.
const ARRIVED: u32 = 1 << 8;
/// To be given back to its owner.
const LEAVES: u32 = 1 << 9;

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Somebody was served: it may pay to stay awake for the next.
    pub served: bool,
    /// There is more to do now.
    pub more: bool,
    /// It cannot go on just now; its descriptor is not to be looked at for a while.
    pub ill: bool,
}

/// What a worker serves.
pub(crate) trait Served: Send {
    /// Readable when there is something to do.
    fn fd(&self) -> BorrowedFd<'_>;
    /// How long its worker may stay awake for its sake.
    fn busy_poll(&self) -> Duration;
    /// Doorbells that ring without telling, looked at for it between its turns.
    fn bell(&self) -> Option<&vfio_user::MappedDoorbells> {
        None
    }
    /// The deadline that was set has come.
    fn tick(&mut self);
    /// Does a bounded piece of what there is to do, and never waits. `calls` is what it was called
    /// for since its last turn.
    fn turn(&mut self, calls: u32) -> Turn;
}

/// One thing that is served, as everybody else sees it: to be called, and with an timer.
pub(crate) struct Task {
    id: u64,
    name: String,
    wake_flags: WakeFlags,
    timer: TaskTimer,
    spent: Spent,
    handles: Arc<[WorkerHandle]>,
    /// Its worker. Changed by whoever has the task in hand only (see [`WakeFlags`]).
    home: AtomicUsize,
    body: Mutex<Option<Box<dyn Served>>>,
    /// Where it goes when it leaves.
    owner: Mutex<Option<mpsc::Sender<Box<dyn Served>>>>,
    this: Weak<Task>,
}

/// A task on somebody's list.
#[derive(Clone)]
struct Member(Arc<Task>);

impl HasTimer for Member {
    fn timer(&self) -> &TaskTimer {
        &self.0.timer
    }
}

impl Task {
    /// WakeFlags it: it gets a turn soon. From any thread, without waiting.
    pub fn call(&self, bits: u32) {
        if self.wake_flags.raise(bits)
            && let Some(this) = self.this.upgrade()
        {
            self.handle().list(Member(this));
        }
    }

    fn handle(&self) -> &WorkerHandle {
        &self.handles[self.home.load(Ordering::Acquire)]
    }

    /// Gives it to its worker.
    pub fn start(&self, body: Box<dyn Served>) {
        *self.body.lock() = Some(body);
        self.handle().tasks.fetch_add(1, Ordering::Relaxed);
        self.call(ARRIVED);
    }

    /// Takes it back from its worker, after the turn it may be in. `None` when it has fallen.
    pub fn stop(&self) -> Option<Box<dyn Served>> {
        let (owner, back) = mpsc::channel();
        *self.owner.lock() = Some(owner);
        self.call(LEAVES);
        back.recv().ok()
    }
}

impl Wake for Task {
    fn wake(&self) {
        self.call(WOKEN);
    }
}

impl Timer for Task {
    fn arm(&self, deadline: Option<Nanos>) {
        if let Some(this) = self.this.upgrade() {
            let handle = self.handle();
            if handle.timers.set(&Member(this), deadline) && handle.ready_list.call() {
                handle.ring();
            }
        }
    }
}

/// A worker as others see it.
struct WorkerHandle {
    ready_list: ReadyList<Member>,
    timers: TimerQueue<Member>,
    /// Rung when the worker sleeps and is to wake.
    bell: OwnedFd,
    quit: AtomicBool,
    /// Tasks that live here.
    tasks: AtomicUsize,
    counters: Counters,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident $name:literal,)*) => {
        #[derive(Default)]
        struct Counters {
            $($(#[$doc])* $field: AtomicU64,)*
        }

        impl Counters {
            fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Turns given.
    turns "turns",
    /// Times the worker slept.
    sleeps "sleeps",
    /// Times somebody had to ring for it.
    rings "rings",
    /// Times a task became active, and idle again.
    active "became_active",
    idle "became_idle",
    /// Looks at the descriptors (`epoll_wait`).
    polls "poll_calls",
    /// Looks at doorbells in memory.
    looks "doorbell_looks",
    /// System calls for the timer clock.
    clock "timer_calls",
    /// Sleeps saved by staying awake.
    saved "polls_saved",
    /// The longest turn so far, in nanoseconds.
    longest "longest_turn_ns",
    /// Tasks that panicked.
    fallen "fallen",
}

impl Counters {
    fn add(counter: &AtomicU64, n: u64) {
        // One writer, but for `rings`.
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl WorkerHandle {
    fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            ready_list: ReadyList::new(),
            timers: TimerQueue::new(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            quit: AtomicBool::new(false),
            tasks: AtomicUsize::new(0),
            counters: Counters::default(),
        })
    }

    fn list(&self, member: Member) {
        if self.ready_list.add(member) {
            self.ring();
        }
    }

    fn ring(&self) {
        Counters::add(&self.counters.rings, 1);
        // A full count (EAGAIN) is readable too, which is all that is wanted.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// A fixed number of worker threads.
pub(crate) struct Workers {
    handles: Arc<[WorkerHandle]>,
    threads: Vec<JoinHandle<()>>,
    next_id: AtomicU64,
}

impl Workers {
    /// Starts `count` workers, at least one.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start(count: usize, clock: &Arc<dyn Clock>) -> Result<Self, Error> {
        let os = Error::os("cannot start the workers");
        let handles: Result<Vec<_>, _> = (0..count.max(1)).map(|_| WorkerHandle::new()).collect();
        let mut workers = Self {
            handles: handles.map_err(os)?.into(),
            threads: Vec::new(),
            next_id: AtomicU64::new(run::FIRST_ID),
        };
        for at in 0..workers.handles.len() {
            let worker = Worker::new(Arc::clone(&workers.handles), at, Arc::clone(clock))
                .map_err(Error::os("cannot start a worker"))?;
            let thread = std::thread::Builder::new()
                .name(format!("worker-{at}"))
                .spawn(move || worker.run())
                .map_err(|source| Error::Os {
                    what: "cannot start a thread",
                    source,
                })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// A task at the worker that has the fewest. It can be called at once and is served from
    /// [`Task::start`] on.
    pub fn task(&self, name: &str) -> Arc<Task> {
        let tasks = |at: &usize| self.handles[*at].tasks.load(Ordering::Relaxed);
        let home = (0..self.handles.len()).min_by_key(tasks).unwrap_or(0);
        task(&self.handles, home, &self.next_id, name)
    }

    /// What the workers did.
    pub fn counters(&self) -> Vec<Section> {
        let section = |(at, handle): (usize, &WorkerHandle)| {
            let mut values = handle.counters.values();
            values.push(("tasks", handle.tasks.load(Ordering::Relaxed) as u64));
            Section {
                kind: "worker",
                name: at.to_string(),
                values,
            }
        };
        self.handles.iter().enumerate().map(section).collect()
    }
}

fn task(handles: &Arc<[WorkerHandle]>, home: usize, ids: &AtomicU64, name: &str) -> Arc<Task> {
    let id = ids.fetch_add(1, Ordering::Relaxed);
    let wake_flags = WakeFlags::held();
    wake_flags.rest();
    Arc::new_cyclic(|this| Task {
        id,
        name: name.to_owned(),
        wake_flags,
        timer: TaskTimer::new(id),
        spent: Spent::default(),
        handles: Arc::clone(handles),
        home: AtomicUsize::new(home),
        body: Mutex::default(),
        owner: Mutex::default(),
        this: Weak::clone(this),
    })
}

impl Drop for Workers {
    fn drop(&mut self) {
        for handle in &*self.handles {
            handle.quit.store(true, Ordering::Release);
            if handle.ready_list.call() {
                handle.ring();
            }
        }
        for thread in self.threads.drain(..) {
            // A panic over there has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, id: u64) -> rustix::io::Result<()> {
    let data = epoll::EventData::new_u64(id);
    epoll::add(epoll, fd.as_fd(), data, epoll::EventFlags::IN)
}

#[cfg(test)]
mod doorbell_tests;
#[cfg(test)]
mod nic_tests;
#[cfg(test)]
mod tests;
