//! One thing that is served, its worker as others see it, and why it is called.

use std::any::Any;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use frame::{Hot, Wake};
use model::{Nanos, Timer};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use scheduler::{HasTimer, ReadyList, TaskTimer, TimerQueue, WakeFlags};
use vfio_user::EventSet;

use super::long_turns::LongTurns;
use super::pulse::Pulse;
use super::spent::Spent;
use super::waits::Waits;
use crate::left::Left;

/// Called by a receiver that has made room for its frames.
pub(crate) const WOKEN: u32 = 1 << 0;
/// Called by its owner, for anything.
pub(crate) const ASKED: u32 = 1 << 1;
/// Called by a sender of frames: its guest returns buffers by writing memory, which sends no event, so its
/// doorbells are to be polled.
pub(crate) const LOOK: u32 = 1 << 2;
/// Tried without a sign of news: others look at all its descriptors.
pub(crate) const TRIED: u32 = 1 << 3;
/// Others want a turn too: what its own will touch is in no cache.
pub(crate) const OTHERS: u32 = 1 << 4;
/// Called with a question, which changes nothing.
pub(crate) const QUESTION: u32 = 1 << 5;
/// Something came for it that is no call: an event, its time, a doorbell in memory.
pub(super) const NEWS: u32 = 1 << 7;
/// New at this worker.
pub(super) const ARRIVED: u32 = 1 << 8;
/// To be given back to its owner.
pub(super) const LEAVES: u32 = 1 << 9;

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// A guest was served: it may pay to stay awake for the next.
    pub served: bool,
    /// There is more to do now.
    pub more: bool,
    /// It cannot go on just now; its descriptor is not to be looked at for a while.
    pub ill: bool,
    /// Messages that were answered.
    pub answered: usize,
}

/// What a worker serves.
pub(crate) trait Served: Any + Send {
    /// Puts its descriptors into `set`, where an event means that there is something to do; out of an earlier one.
    fn watch(&mut self, set: &EventSet) -> std::io::Result<()>;
    /// Takes its descriptors out of the set they are in.
    fn unwatch(&mut self);
    /// How long its worker may stay awake for its sake.
    fn busy_poll(&self) -> Duration;
    /// Doorbells that ring without telling, looked at for it between its turns.
    fn bell(&self) -> Option<&vfio_user::MappedDoorbells> {
        None
    }
    /// The deadline that was set has come.
    fn tick(&mut self);
    /// Whether its client could be left to another worker as things are; a turn may bring that about.
    fn is_settled(&self) -> bool {
        true
    }
    /// Leaves its client to the next worker, and does nothing more.
    fn leave(&mut self) -> Option<Left> {
        None
    }
    /// Answers what it was asked, and does nothing else.
    fn answer(&mut self) {}
    /// Does a bounded piece of what there is to do, and never waits. `calls` is what it was called
    /// for since its last turn.
    fn turn(&mut self, calls: u32) -> Turn;
}

/// One thing that is served, as other threads see it: they call it and set its timer.
pub(crate) struct Task {
    pub(super) id: u64,
    pub(super) name: String,
    /// What its turns touch.
    hot: OnceLock<Hot>,
    pub(super) wake_flags: WakeFlags,
    pub(super) timer: TaskTimer,
    pub(super) spent: Spent,
    pub(super) long_turns: LongTurns,
    /// Its last turn left something to do. Only the thread that holds the task writes it.
    pub(super) unfinished: AtomicBool,
    /// How many turns it had, and how long those were in which there was something to do, in nanoseconds. Only the
    /// thread that holds the task writes them.
    pub(super) turns: AtomicU64,
    pub(super) work: AtomicU64,
    /// It was made for its worker, and has not been given to it yet.
    expected: AtomicBool,
    /// Its place in the page that is shared with a keeper.
    pub(super) kept: Option<keeper::NicId>,
    pub(super) handles: Arc<[WorkerHandle]>,
    /// Its worker. Only the thread that holds the task changes it (see [`WakeFlags`]).
    pub(super) home: AtomicUsize,
    pub(super) body: Mutex<Option<Box<dyn Served>>>,
    /// It panicked and was taken off.
    pub(super) fallen: AtomicBool,
    /// Where it goes when it leaves.
    pub(super) owner: Mutex<Option<mpsc::Sender<Box<dyn Served>>>>,
    pub(super) this: Weak<Task>,
}

/// A task on a worker's list.
#[derive(Clone)]
pub(super) struct Member(pub(super) Arc<Task>);

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

    /// How many turns it had, and how long those with something to do were, in nanoseconds.
    pub fn turns(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.turns), get(&self.work))
    }

    /// Its worker, by number.
    pub fn worker(&self) -> usize {
        self.home.load(Ordering::Relaxed)
    }

    /// Its place in the page that is shared with a keeper.
    pub fn kept(&self) -> Option<keeper::NicId> {
        self.kept
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// It panicked and was taken off: no thread serves its guest any more.
    pub fn has_fallen(&self) -> bool {
        self.fallen.load(Ordering::Acquire)
    }

    pub(super) fn handle(&self) -> &WorkerHandle {
        &self.handles[self.home.load(Ordering::Acquire)]
    }

    /// Its turns will touch this.
    pub fn knows_hot(&self, hot: Hot) {
        let _ = self.hot.set(hot);
    }

    /// Has the processor fetch what its turn will touch.
    pub(super) fn prefetch(&self) {
        if let Some(hot) = self.hot.get() {
            hot.prefetch();
        }
    }

    /// Gives it to its worker.
    pub fn start(&self, body: Box<dyn Served>) {
        *self.body.lock() = Some(body);
        self.handle().tasks.fetch_add(1, Ordering::Relaxed);
        self.is_not_expected();
        self.call(ARRIVED);
    }

    fn is_not_expected(&self) {
        if self.expected.swap(false, Ordering::Relaxed) {
            self.handle().expected.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives it from the worker that holds it to another one.
    pub(super) fn move_to(&self, to: usize) {
        self.home.store(to, Ordering::Release);
        self.wake_flags.raise(ARRIVED);
        if let Some(this) = self.this.upgrade() {
            let handle = self.handle();
            handle.tasks.fetch_add(1, Ordering::Relaxed);
            handle.list(Member(this));
        }
    }

    /// Takes it back from its worker, after the turn it may be in. `None` when its worker has none. It can be given to its worker
    /// again.
    pub fn stop(&self) -> Option<Box<dyn Served>> {
        let (owner, back) = mpsc::channel();
        *self.owner.lock() = Some(owner);
        self.call(LEAVES);
        back.recv().ok()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.is_not_expected();
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
pub(super) struct WorkerHandle {
    pub(super) ready_list: ReadyList<Member>,
    pub(super) timers: TimerQueue<Member>,
    /// Rung when the worker sleeps and is to wake; made with its thread.
    bell: OnceLock<OwnedFd>,
    pub(super) quit: AtomicBool,
    /// Tasks that live here.
    pub(super) tasks: AtomicUsize,
    /// Tasks that were made to live here: a host makes all its NICs before it gives the first to its worker.
    expected: AtomicUsize,
    pub(super) counters: Counters,
    pub(super) waits: Waits,
    pub(super) pulse: Pulse,
    /// It serves only those whose turns wait.
    pub(super) apart: bool,
    /// Its thread, once it runs.
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

/// The worker with the fewest tasks, of those that are for all or of those apart.
pub(super) fn fewest(handles: &[WorkerHandle], apart: bool) -> Option<usize> {
    let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let tasks = |at: &usize| load(&handles[*at].tasks) + load(&handles[*at].expected);
    let of_kind = |at: &usize| handles[*at].apart == apart;
    (0..handles.len()).filter(of_kind).min_by_key(tasks)
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident $name:literal,)*) => {
        #[derive(Default)]
        pub(super) struct Counters {
            $($(#[$doc])* pub(super) $field: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn values(&self) -> Vec<(&'static str, u64)> {
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
    /// Times a thread had to ring for it.
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
    /// The most copies that other guests made of one turn's frames: floods, and segments of them.
    most_copies "most_copies_in_a_turn",
    /// Time of turns in which there was something to do, in nanoseconds.
    work "work_ns",
    /// Time awake besides.
    looking "looking_ns",
    /// Tasks that panicked.
    fallen "fallen",
    /// Tasks given to another worker, because their turns waited or no longer do.
    moved "tasks_moved",
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        // One writer, but for `rings`.
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl WorkerHandle {
    pub(super) fn new(apart: bool) -> Self {
        Self {
            ready_list: ReadyList::new(),
            timers: TimerQueue::new(),
            bell: OnceLock::new(),
            quit: AtomicBool::new(false),
            tasks: AtomicUsize::new(0),
            expected: AtomicUsize::new(0),
            counters: Counters::default(),
            waits: Waits::default(),
            pulse: Pulse::default(),
            apart,
            thread: Mutex::default(),
        }
    }

    /// It is to end, or to say that it turns.
    pub(super) fn is_asked(&self) -> bool {
        self.quit.load(Ordering::Acquire) || self.pulse.is_owed()
    }

    /// What wakes the worker.
    pub(super) fn bell(&self) -> rustix::io::Result<&OwnedFd> {
        if self.bell.get().is_none() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            return Ok(self.bell.get_or_init(|| bell));
        }
        self.bell.get().ok_or(rustix::io::Errno::BADF)
    }

    pub(super) fn list(&self, member: Member) {
        if self.ready_list.add(member) {
            self.ring();
        }
    }

    pub(super) fn ring(&self) {
        Counters::add(&self.counters.rings, 1);
        // A full count (EAGAIN) is readable too, which is all that is wanted.
        if let Some(bell) = self.bell.get() {
            let _ = rustix::io::writev(bell, &[IoSlice::new(&1u64.to_ne_bytes())]);
        }
    }
}

pub(super) fn task(
    handles: &Arc<[WorkerHandle]>,
    home: usize,
    ids: &AtomicU64,
    name: &str,
) -> Arc<Task> {
    let id = ids.fetch_add(1, Ordering::Relaxed);
    let wake_flags = WakeFlags::held();
    wake_flags.rest();
    handles[home].expected.fetch_add(1, Ordering::Relaxed);
    Arc::new_cyclic(|this| Task {
        id,
        name: name.to_owned(),
        hot: OnceLock::new(),
        wake_flags,
        timer: TaskTimer::new(id),
        spent: Spent::default(),
        long_turns: LongTurns::default(),
        unfinished: AtomicBool::new(false),
        turns: AtomicU64::new(0),
        work: AtomicU64::new(0),
        expected: AtomicBool::new(true),
        kept: keeper::current().and_then(|page| page.nics().place(name)),
        handles: Arc::clone(handles),
        home: AtomicUsize::new(home),
        body: Mutex::default(),
        fallen: AtomicBool::new(false),
        owner: Mutex::default(),
        this: Weak::clone(this),
    })
}
