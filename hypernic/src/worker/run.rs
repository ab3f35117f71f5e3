//! The loop of a worker.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::{Clock, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use threads::Kind;
use vfio_user::EventSet;

use super::account::Account;
use super::delays::{self, Delays};
use super::doorbell_poller::DoorbellPoller;
use super::had::{self, Had};
use super::spent::MOST;
use super::task::{
    ARRIVED, Counters, LEAVES, LOOK, Member, NEWS, OTHERS, QUESTION, Served, TRIED, Turn,
    WorkerHandle, fewest,
};
use super::turns::Turns;
use crate::busy_poll::BusyPollBackoff;
use crate::time::TimerFd;

const BELL: u64 = 0;
const CLOCK: u64 = 1;
/// Tasks count from here.
pub(super) const FIRST_ID: u64 = 16;

/// The time between two looks at the descriptors of those who are not active, while others keep
/// the worker busy: about what a turn takes.
const LOOK_GAP: Nanos = 20_000;

/// A look may take one part in so many of the time: with many descriptors that are readable it
/// takes longer, and is made less often.
const LOOK_SHARE: Nanos = 16;

/// Descriptors that one look reports; more come with the next.
const EVENTS: usize = 64;

/// Tasks for whose sake the worker stays awake: those served last.
const WARM: usize = 4;

/// Pauses between two tries while awake: about a microsecond, so that a try (a system call) is not
/// made in vain too often.
const PAUSES_PER_TRY: u32 = 16;

/// How long a task whose own descriptors fail is left alone.
const ILL: Nanos = 100_000_000;

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Starts the thread of a worker, if it does not run.
pub(super) fn begin(
    handles: &Arc<[WorkerHandle]>,
    at: usize,
    clock: &Arc<dyn Clock>,
) -> std::io::Result<()> {
    let mut thread = handles[at].thread.lock();
    if thread.is_none() {
        let (its, time) = (Arc::clone(handles), Arc::clone(clock));
        let worker = threads::apart(move || Worker::new(its, at, time))?;
        let name = format!("worker-{at}");
        *thread = Some(threads::spawn(name, move || worker.run())?);
    }
    Ok(())
}

/// The worker for a task that waits; `None` if no thread can be had.
pub(super) fn place_apart(handles: &Arc<[WorkerHandle]>, clock: &Arc<dyn Clock>) -> Option<usize> {
    let at = fewest(handles, true)?;
    begin(handles, at, clock).ok().map(|()| at)
}

/// A worker's own side.
pub(super) struct Worker {
    handles: Arc<[WorkerHandle]>,
    at: usize,
    clock: Arc<dyn Clock>,
    epoll: Arc<OwnedFd>,
    timer_fd: TimerFd,
    /// All tasks that live here, by what their events carry.
    members: HashMap<u64, Member>,
    /// Those who want a turn: the active ones.
    active: Turns,
    /// Served last, most recently first.
    warm: VecDeque<Member>,
    /// Left alone until then.
    ill: Vec<(Nanos, Member)>,
    /// Those with doorbells in memory.
    doorbell_poller: DoorbellPoller<vfio_user::MappedDoorbells>,
    /// Asleep since then, but for looks in vain.
    asleep: Option<Instant>,
    backoff: BusyPollBackoff,
    /// Of its thread; made there.
    delays: Option<Delays>,
    now: Nanos,
    account: Account,
    /// When those who are not active are to be heard next.
    next_look: Nanos,
    /// Where a keeper sees whose turn it is.
    mark: Option<keeper::Thread>,
    /// Storage.
    came: Vec<Member>,
    rung: Vec<u64>,
}

impl Worker {
    pub fn new(
        handles: Arc<[WorkerHandle]>,
        at: usize,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let timer_fd = TimerFd::new()?;
        EventSet::within(Arc::clone(&epoll), BELL).add(handles[at].bell()?.as_fd())?;
        EventSet::within(Arc::clone(&epoll), CLOCK).add(timer_fd.as_fd())?;
        Ok(Self {
            handles,
            at,
            now: clock.now(),
            account: Account::new(clock.now()),
            clock,
            epoll,
            timer_fd,
            members: HashMap::new(),
            active: Turns::default(),
            warm: VecDeque::new(),
            ill: Vec::new(),
            doorbell_poller: DoorbellPoller::new(),
            asleep: None,
            backoff: BusyPollBackoff::default(),
            delays: None,
            next_look: 0,
            mark: None,
            came: Vec::new(),
            rung: Vec::new(),
        })
    }

    fn handle(&self) -> &WorkerHandle {
        &self.handles[self.at]
    }

    fn count(&self, counter: impl Fn(&Counters) -> &std::sync::atomic::AtomicU64) {
        Counters::add(counter(&self.handle().counters), 1);
    }

    pub fn run(mut self) {
        self.mark = keeper::current().and_then(|page| page.thread(self.at));
        // What it reads it opens now: it cannot once it is confined.
        had::open();
        self.handle().pulse.begin();
        self.delays = Some(Delays::of_this_thread());
        threads::enter(Kind::Data);
        while !self.handle().quit.load(Ordering::Acquire) {
            self.handle().pulse.answer();
            if !self.step() {
                self.wait();
            }
        }
    }

    /// Gives one turn. `false` when no task wants one.
    pub fn step(&mut self) -> bool {
        self.gather();
        if self.is_busy() {
            self.hear(self.active.len());
        }
        let Some((member, since)) = self.active.next() else {
            return false;
        };
        self.turn(member, self.active.others(), since);
        true
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// However busy some are, or however soon those served last come again, the others are heard.
    /// `tried` are served without a look.
    fn hear(&mut self, tried: usize) {
        if self.now < self.next_look || self.members.len() <= tried {
            return;
        }
        let before = self.now;
        self.look_at_warm();
        self.look(Some(&AT_ONCE));
        self.now = self.clock.now();
        let took = self.now.saturating_sub(before);
        self.next_look = self.now + LOOK_GAP.max(took.min(MOST) * LOOK_SHARE);
    }

    /// Takes in who was called, and whose time has come.
    fn gather(&mut self) {
        let mut came = std::mem::take(&mut self.came);
        self.handle().ready_list.take(&mut came);
        for member in came.drain(..) {
            self.count(|c| &c.active);
            self.active.push(member, self.now);
        }
        self.handle().timers.due(self.now, &mut came);
        for member in came.drain(..) {
            self.claim(member);
        }
        self.came = came;
        if self
            .doorbell_poller
            .due()
            .is_some_and(|due| due <= self.now)
        {
            self.look_out();
        }
        while let Some(at) = self.ill.iter().position(|(until, _)| *until <= self.now) {
            let (_, member) = self.ill.swap_remove(at);
            if self.members.contains_key(&member.0.id) {
                self.watch(&member);
                self.claim(member);
            }
        }
    }

    /// Polls the doorbells in memory, which send no event.
    fn look_out(&mut self) {
        let mut rung = std::mem::take(&mut self.rung);
        let clock = &self.clock;
        self.doorbell_poller
            .look(self.now, || clock.now(), &mut rung);
        self.count(|c| &c.looks);
        if !rung.is_empty() {
            self.woken();
        }
        for id in rung.drain(..) {
            if let Some(member) = self.members.get(&id) {
                self.claim(member.clone());
            }
        }
        self.rung = rung;
    }

    /// Looks at the doorbells in memory of those served last: a driver that has just been busy has more to come, and may wait for it with
    /// its ring full.
    fn look_at_warm(&mut self) {
        for at in 0..self.warm.len() {
            if self.doorbell_poller.has_rung(self.warm[at].0.id) {
                self.claim(self.warm[at].clone());
            }
        }
    }

    /// A sleep, whatever looks were made during it, has ended with something to do.
    fn woken(&mut self) {
        if let Some(asleep) = self.asleep.take() {
            self.count(|c| &c.sleeps);
            self.backoff.slept(asleep.elapsed(), self.most());
        }
    }

    /// Makes a task active, if it is not.
    fn claim(&mut self, member: Member) {
        if member.0.home.load(Ordering::Acquire) != self.at {
            // It has moved since its timer was set.
            member.0.call(0);
        } else if member.0.wake_flags.raise(NEWS) {
            self.count(|c| &c.active);
            self.active.push(member, self.now);
        }
    }

    /// One task's turn, which it wants since then.
    fn turn(&mut self, member: Member, tried: u32, since: Nanos) -> Turn {
        self.count(|c| &c.turns);
        let calls = member.0.wake_flags.take() | tried;
        let had = member.0.long_turns.before(self.now);
        let mut turn = Turn::default();
        {
            let mut slot = member.0.body.lock();
            if calls & LEAVES != 0 {
                if calls & ARRIVED != 0 {
                    self.members.insert(member.0.id, member.clone());
                }
                let body = slot.take();
                drop(slot);
                return self.dismiss(&member, body);
            }
            if let Some(body) = &mut *slot {
                if calls & ARRIVED != 0 {
                    self.members.insert(member.0.id, member.clone());
                    self.watch_body(&member, &mut **body);
                }
                let due = member.0.timer.take_due(self.now);
                if let Some(mark) = &self.mark {
                    mark.begin(member.0.kept);
                }
                let unfinished = member.0.unfinished.load(Ordering::Relaxed);
                let only_asked = calls & !OTHERS == QUESTION && !due && !unfinished;
                let done = catch_unwind(AssertUnwindSafe(|| {
                    if due {
                        body.tick();
                    }
                    if calls & QUESTION != 0 {
                        body.answer();
                    }
                    if only_asked {
                        return Turn::default();
                    }
                    let calls = calls & !(QUESTION | NEWS);
                    frame::turn::at(self.now, || body.turn(calls))
                }));
                if let Some(mark) = &self.mark {
                    mark.end();
                }
                match done {
                    Ok(done) => {
                        member.0.unfinished.store(done.more, Ordering::Relaxed);
                        turn = done;
                    }
                    Err(_) => {
                        let body = slot.take();
                        drop(slot);
                        return self.fell(&member, body);
                    }
                }
                turn.served |= due;
                if let Some(bell) = body.bell() {
                    let busy = turn.served || calls & LOOK != 0;
                    self.doorbell_poller.stir(member.0.id, bell, busy, self.now);
                }
                if turn.ill {
                    body.unwatch();
                    self.ill.push((self.now + ILL, member.clone()));
                }
            }
        }
        // For who wrote to a port that answers at once, and at its cost.
        port::answer::take();
        let before = self.now;
        self.now = self.clock.now();
        let took = self.now.saturating_sub(before);
        let times = (since, took, self.now);
        self.account
            .turn(&self.handles[self.at], &member, &turn, times);
        let longest = &self.handle().counters.longest;
        longest.fetch_max(took, Ordering::Relaxed);
        let copies = frame::work::take_turn();
        let most = &self.handle().counters.most_copies;
        most.fetch_max(copies, Ordering::Relaxed);
        let delayed = self.delayed(took);
        member.0.spent.charge(took.saturating_sub(delayed), copies);
        if let Some(to) = self.elsewhere(&member, (took, delayed), had)
            && !turn.ill
        {
            self.count(|c| &c.moved);
            self.hand_over(&member, to);
            return turn;
        }
        if turn.served {
            self.warm_up(&member);
        }
        if turn.more && !turn.served && !self.is_busy() {
            // It alone is active, and polls for what sends no event: other threads may have the processor.
            std::thread::yield_now();
        }
        // A task that was called meanwhile, or has more to do, stays active; others rest.
        if turn.more || !member.0.wake_flags.rest() {
            self.active.push(member, self.now);
        } else {
            self.count(|c| &c.idle);
        }
        turn
    }

    /// How much of a turn that took so long another thread had the processor.
    fn delayed(&mut self, took: Nanos) -> Nanos {
        let delays = self.delays.as_mut().filter(|_| took >= delays::LONG);
        delays.map_or(0, Delays::since)
    }

    /// Gives a task that this thread holds to another worker.
    pub(super) fn hand_over(&mut self, member: &Member, to: usize) {
        // Its deadline stays in the list here: when it comes, the task is called where it is.
        self.let_go(member);
        if let Some(body) = &mut *member.0.body.lock() {
            body.unwatch();
        }
        member.0.move_to(to);
    }

    /// Where a task belongs after a turn that took so long, of which another thread had the processor for so long, if not here.
    fn elsewhere(
        &self,
        member: &Member,
        (took, delayed): (Nanos, Nanos),
        had: Option<Had>,
    ) -> Option<usize> {
        let waited = member.0.long_turns.after(took, delayed, (self.now, had));
        if self.handle().apart {
            let back = member.0.long_turns.are_past(self.now);
            return back.then(|| fewest(&self.handles, false)).flatten();
        }
        let to = waited.then(|| place_apart(&self.handles, &self.clock));
        let to = to.flatten();
        if to.is_some() {
            let nic = &member.0.name;
            tracing::warn!(%nic, "its turns wait for memory: it has a thread apart from the others now");
        }
        to
    }

    fn warm_up(&mut self, member: &Member) {
        if self.warm.front().is_some_and(|w| w.0.id == member.0.id) {
            return;
        }
        self.warm.retain(|w| w.0.id != member.0.id);
        self.warm.push_front(member.clone());
        self.warm.truncate(WARM);
    }

    fn watch(&self, member: &Member) {
        if let Some(body) = &mut *member.0.body.lock() {
            self.watch_body(member, &mut **body);
        }
    }

    fn watch_body(&self, member: &Member, body: &mut dyn Served) {
        let set = EventSet::within(Arc::clone(&self.epoll), member.0.id);
        // It can fail only for want of memory; its calls and its timer still reach it.
        let _ = body.watch(&set);
    }

    /// Gives a task back to its owner, or what is left of it. No thread lists it any more.
    fn dismiss(&mut self, member: &Member, mut body: Option<Box<dyn Served>>) -> Turn {
        self.forget(member);
        if let Some(body) = &mut body {
            body.unwatch();
        }
        let owner = member.0.owner.lock().take();
        if let (Some(owner), Some(body)) = (owner, body) {
            // An owner that does not wait for it does not want it.
            let _ = owner.send(body);
        }
        // For an owner who gives it back later.
        if !member.0.wake_flags.rest() {
            self.active.push(member.clone(), self.now);
        }
        Turn::default()
    }

    fn forget(&mut self, member: &Member) {
        self.let_go(member);
        self.handle().timers.forget(member);
    }

    /// It is served here no longer.
    pub(super) fn let_go(&mut self, member: &Member) {
        if self.members.remove(&member.0.id).is_some() {
            self.handle().tasks.fetch_sub(1, Ordering::Relaxed);
        }
        self.warm.retain(|w| w.0.id != member.0.id);
        self.ill.retain(|(_, m)| m.0.id != member.0.id);
        self.doorbell_poller.forget(member.0.id);
    }

    /// A task that panics costs no other task anything.
    fn fell(&mut self, member: &Member, body: Option<Box<dyn Served>>) -> Turn {
        self.count(|c| &c.fallen);
        member.0.fallen.store(true, Ordering::Release);
        tracing::error!(nic = %member.0.name, "it failed and was removed; its guest has no NIC now");
        self.forget(member);
        if let Some(mut body) = body {
            // Descriptors that its VMM holds too would wake this worker for ever.
            let _ = catch_unwind(AssertUnwindSafe(|| body.unwatch()));
            // To end it may take a while (a file to write).
            let ended = threads::spawn("fallen", move || drop(body));
            drop(ended);
        }
        // For its owner, who still has to come for it.
        if !member.0.wake_flags.rest() {
            self.active.push(member.clone(), self.now);
        }
        Turn::default()
    }

    /// Waits for something to do: first awake, for as long as that has paid of late, then asleep.
    ///
    /// A driver sends its register accesses in quick succession. To wake a sleeping thread costs
    /// its sender (a virtual CPU) more than the message itself, so it pays to look again for a
    /// few microseconds. How long follows from how long the last sleeps were, as in KVM's
    /// `halt_poll_ns`: short sleeps were not worth going to sleep for.
    fn wait(&mut self) {
        let window = match self.asleep {
            None => self.backoff.window(self.most()),
            // A look in vain is no reason to stay awake.
            Some(_) => Duration::ZERO,
        };
        if !window.is_zero() && self.stay_awake(window) {
            self.count(|c| &c.saved);
            return;
        }
        debug_assert!(!self.is_busy(), "asleep on somebody's work");
        let soonest = self.soonest();
        self.timer_fd.arm(soonest);
        let handle = self.handle();
        let idle = || !handle.is_asked() && self.soonest() == soonest;
        if !handle.ready_list.doze(idle) {
            self.woken();
            return;
        }
        self.account.sleeps(&self.handles[self.at], self.now);
        self.asleep.get_or_insert_with(Instant::now);
        let told = match self.doorbell_poller.due() {
            None => self.look(None),
            Some(due) => self.nap(due) && self.look(Some(&AT_ONCE)),
        };
        self.handle().ready_list.rise();
        self.now = self.clock.now();
        self.account.awoke(self.now);
        self.active.awoke(self.now);
        if told {
            self.woken();
        }
        let calls = self.timer_fd.syscalls();
        let counted = &self.handle().counters.clock;
        counted.store(calls, Ordering::Relaxed);
    }

    /// Sleeps until `due` at most; `true` when a descriptor has something. Its time is exact, where
    /// that of `epoll_wait` counts in milliseconds.
    fn nap(&self, due: Nanos) -> bool {
        let left = due.saturating_sub(self.clock.now());
        let timeout = Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        };
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).is_ok_and(|n| n > 0)
    }

    /// The longest that those served last allow.
    fn most(&self) -> Duration {
        let allowed = |member: &Member| {
            let body = member.0.body.lock();
            body.as_ref().map_or(Duration::ZERO, |b| b.busy_poll())
        };
        self.warm.iter().map(allowed).max().unwrap_or_default()
    }

    fn soonest(&self) -> Option<Nanos> {
        let ill = self.ill.iter().map(|(until, _)| *until);
        ill.chain(self.handle().timers.soonest()).min()
    }

    /// Tries the task that was served last again and again, and listens for all others. `true` when
    /// there was something to do for any task.
    pub(super) fn stay_awake(&mut self, window: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < window {
            // Other threads that want this processor (the VMM's own above all) go first.
            std::thread::yield_now();
            for _ in 0..PAUSES_PER_TRY {
                std::hint::spin_loop();
            }
            self.now = self.clock.now();
            self.gather();
            if self.is_busy() || self.handle().quit.load(Ordering::Acquire) {
                return true;
            }
            let served = self.try_last();
            if self.warm.len() > 1 {
                // One look reports all others.
                self.next_look = self.now;
            }
            self.hear(1);
            if served || self.is_busy() {
                return true;
            }
        }
        // The last to be tried may have been called during its turn.
        self.is_busy()
    }

    /// Tries who was served last, without a look: the shortest way to an answer. `true` when there was
    /// something to do.
    fn try_last(&mut self) -> bool {
        let Some(member) = self
            .warm
            .front()
            .filter(|m| m.0.wake_flags.claim())
            .cloned()
        else {
            return false;
        };
        self.count(|c| &c.active);
        let turn = self.turn(member, TRIED, self.now);
        turn.served || turn.more
    }

    /// Looks at the descriptors, for at most `timeout`. `true` when one of them had something.
    fn look(&mut self, timeout: Option<&Timespec>) -> bool {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        self.count(|c| &c.polls);
        // EINTR is a look like any other.
        let n = epoll::wait(&self.epoll, &mut events[..], timeout).unwrap_or(0);
        for event in &events[..n] {
            match event.data.u64() {
                BELL => {
                    if let Ok(bell) = self.handle().bell() {
                        let _ = crate::time::take(bell.as_fd());
                    }
                }
                CLOCK => {
                    self.timer_fd.expired();
                }
                id => {
                    if let Some(member) = self.members.get(&id) {
                        self.claim(member.clone());
                    }
                }
            }
        }
        n > 0
    }
}
