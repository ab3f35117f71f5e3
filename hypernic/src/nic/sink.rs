//! Where frames for a NIC go, from any thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use frame::{Batch, Caps, Counted, Cut, Hot, Lines, Run, Sink, Wake};
use guest_mem::LINE;
use model::{Env, Receive};
use vale::Witnesses;

use parking_lot::RwLock;
use vfio_user::MappedDoorbells;

use crate::worker::{ASKED, LOOK, Task};

/// Frames a guest is given before its doorbells are looked at: the driver gives buffers back in
/// memory, which sends no notice, and a ring that seems empty would cost frames.
const OWED: u32 = 32;

/// Counters of frames that nobody is there for.
const NO_CLIENT: &str = "rx_no_client";
const HALTED: &str = "rx_while_halted";

/// Calls a worker to look at doorbells in memory.
pub(super) struct Hint {
    pub(super) task: Arc<Task>,
    /// Frames given since it looked.
    pub(super) owed: AtomicU32,
    /// The doorbells, while a client has them.
    pub(super) bell: RwLock<Option<MappedDoorbells>>,
    /// Times that buffers were found there with a frame in hand.
    pub(super) found: AtomicU64,
    /// Whether a frame in hand looks for them.
    pub(super) looks: bool,
}

/// Set to anything, frames in hand do not look for buffers: a bench measures what that look brings.
const WITHOUT_LOOK: &str = "HYPERNIC_BENCH_NO_TAIL_LOOK";

impl Hint {
    pub(super) fn new(task: &Arc<Task>) -> Self {
        Hint {
            task: Arc::clone(task),
            owed: AtomicU32::new(0),
            bell: RwLock::default(),
            found: AtomicU64::new(0),
            looks: std::env::var_os(WITHOUT_LOOK).is_none(),
        }
    }

    /// These are the doorbells of the client that it has now.
    pub(super) fn follow(&self, bell: Option<&MappedDoorbells>) {
        let same = |known: &Option<MappedDoorbells>| match (known, bell) {
            (Some(known), Some(bell)) => known.same(bell),
            (None, None) => true,
            _ => false,
        };
        if !same(&self.bell.read()) {
            *self.bell.write() = bell.cloned();
        }
    }

    /// Whether the guest has given buffers in memory that nobody has looked at.
    fn finds_buffers(&self, receive: &dyn Receive, env: &Env) -> bool {
        if !self.looks {
            return false;
        }
        let Some(bell) = self.bell.read().clone() else {
            return false;
        };
        let look = |queue| {
            let take = |put: &mut dyn FnMut(u32)| bell.take(queue, put);
            bell.has_moved(queue) && receive.look_at_tail(env, queue, &take)
        };
        let found = (0..bell.queues()).filter(|queue| look(*queue)).count() > 0;
        self.found.fetch_add(found.into(), Ordering::Relaxed);
        found
    }

    fn given(&self, frames: usize) {
        let frames = frames as u32;
        let before = self.owed.fetch_add(frames, Ordering::Relaxed);
        if before < OWED && before.saturating_add(frames) >= OWED {
            self.task.call(LOOK);
        }
    }
}

/// The receive side of a NIC as a sink, silent while no VMM is attached. What runs of frames need is first.
#[repr(C, align(64))]
pub struct NicSink {
    pub(super) receive: Arc<dyn Receive>,
    pub(super) attached: AtomicBool,
    /// It panicked while another NIC or a port gave it frames; its worker takes it off.
    pub(super) failed: AtomicBool,
    /// Its guest is on the move, so that it takes nothing.
    pub(super) halted: AtomicBool,
    /// Its place in the page that is shared with a keeper.
    kept: Option<keeper::NicId>,
    /// A VMM has given it memory since it went on after a move.
    pub(super) used: AtomicBool,
    /// Who is shown what it loses, and its own port.
    pub(super) witnesses: Arc<Witnesses>,
    env: Env,
    /// With doorbells in memory.
    pub(super) hint: Option<Hint>,
    task: Arc<Task>,
    no_client: AtomicU64,
    while_halted: AtomicU64,
}

impl NicSink {
    /// Whether the guest would get a frame; `None`: its model does not tell.
    pub(super) fn trace(
        &self,
        frame: &frame::Frame<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<bool> {
        if !self.attached.load(Ordering::Acquire) {
            let (why, counter) = match self.halted.load(Ordering::Acquire) {
                true => ("lost: the guest is stopped, to be moved", HALTED),
                false => ("lost: no VMM has the NIC", NO_CLIENT),
            };
            tell(why.into(), Some(counter));
            return Some(false);
        }
        self.guarded(|| self.receive.trace(&self.env, frame, tell))?
    }

    /// The guest's memory.
    pub(super) fn memory(&self) -> &guest_mem::Memory {
        &self.env.memory
    }

    pub(super) fn new(
        receive: Arc<dyn Receive>,
        env: &Env,
        task: &Arc<Task>,
        hint: Option<Hint>,
    ) -> Arc<Self> {
        Arc::new(Self {
            receive,
            env: env.clone(),
            attached: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            task: Arc::clone(task),
            kept: task.kept(),
            no_client: AtomicU64::new(0),
            halted: AtomicBool::new(false),
            used: AtomicBool::new(false),
            while_halted: AtomicU64::new(0),
            witnesses: Arc::default(),
            hint,
        })
    }

    /// Runs a part of the NIC on the thread of another one. What fails there is this NIC's fault and costs only it.
    #[inline]
    fn guarded<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        let _here = keeper::gives_to(self.kept);
        let done = catch_unwind(AssertUnwindSafe(part)).ok();
        if done.is_none() {
            self.attached.store(false, Ordering::Release);
            self.failed.store(true, Ordering::Release);
            self.task.call(ASKED);
        }
        done
    }
}

impl NicSink {
    /// Counts frames that nobody is there for.
    #[cold]
    fn lose(&self, frames: usize) -> &'static str {
        let (counter, name) = match self.halted.load(Ordering::Acquire) {
            true => (&self.while_halted, HALTED),
            false => (&self.no_client, NO_CLIENT),
        };
        counter.fetch_add(frames as u64, Ordering::Relaxed);
        name
    }

    #[inline]
    fn take(&self, batch: &Batch<'_>, picks: &[u16], deliver: impl Fn(&[u16]) -> usize) -> usize {
        if self.witnesses.any() {
            return self.take_seen(batch, picks, &deliver);
        }
        if !self.attached.load(Ordering::Acquire) {
            self.lose(picks.len());
            return picks.len();
        }
        let all = || {
            let taken = deliver(picks);
            match picks.get(taken..) {
                // They may be there, and only nobody has looked.
                Some(rest) if !rest.is_empty() && self.finds_buffers() => taken + deliver(rest),
                _ => taken,
            }
        };
        let Some(taken) = self.guarded(all) else {
            return picks.len();
        };
        if let Some(hint) = &self.hint {
            hint.given(taken);
        }
        taken
    }

    /// As [`NicSink::take`], while somebody looks: one by one, each after it was asked what will become of it.
    #[cold]
    fn take_seen(
        &self,
        batch: &Batch<'_>,
        picks: &[u16],
        deliver: &dyn Fn(&[u16]) -> usize,
    ) -> usize {
        let name = self.task.name();
        if !self.attached.load(Ordering::Acquire) {
            let counter = self.lose(picks.len());
            self.witnesses.show(name, batch, picks, counter);
            return picks.len();
        }
        for (done, pick) in picks.iter().enumerate() {
            let one = std::slice::from_ref(pick);
            let mut counter = None;
            let gets = batch.get((*pick).into()).and_then(|frame| {
                let mut tell = |_, raised: Option<_>| counter = raised.or(counter);
                self.guarded(|| self.receive.trace(&self.env, &frame, &mut tell))?
            });
            let Some(taken) = self.guarded(|| deliver(one)) else {
                return picks.len();
            };
            if taken == 0 {
                return done;
            }
            if let Some(hint) = &self.hint {
                hint.given(1);
            }
            if let (Some(false), Some(counter)) = (gets, counter) {
                self.witnesses.show(name, batch, one, counter);
            }
        }
        picks.len()
    }

    #[inline]
    fn finds_buffers(&self) -> bool {
        let hint = self.hint.as_ref();
        hint.is_some_and(|hint| hint.finds_buffers(&*self.receive, &self.env))
    }

    /// As [`NicSink::take`], in the short way.
    #[inline]
    fn take_some(&self, deliver: impl Fn() -> Option<usize>) -> Option<usize> {
        if !self.attached.load(Ordering::Acquire) || self.witnesses.any() {
            return None;
        }
        let some = || match deliver() {
            None | Some(0) if self.finds_buffers() => deliver(),
            taken => taken,
        };
        let taken = self.guarded(some).flatten()?;
        if let Some(hint) = &self.hint {
            hint.given(taken);
        }
        Some(taken)
    }
}

impl Sink for NicSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.take(batch, picks, |picks| {
            if self.receive.keeps_excess() {
                self.finds_buffers();
            }
            self.receive.deliver(&self.env, batch, picks)
        })
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let receive = &self.receive;
        self.take(batch, picks, |picks| {
            receive.deliver_or_leave(&self.env, batch, picks)
        })
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.take_some(|| self.receive.deliver_run(&self.env, run))
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.take_some(|| self.receive.deliver_cut(&self.env, cut, from))
    }

    fn hot(&self, hot: &mut Hot) {
        hot.add(Lines::first(self, 2 * LINE));
        hot.add(Lines::first(&*self.witnesses, LINE));
        self.receive.hot(hot);
        self.env.memory.hot(hot);
    }

    fn caps(&self) -> Caps {
        self.receive.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.receive.want_room(waker);
        if let Some(hint) = &self.hint {
            hint.task.call(LOOK);
        }
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        let _ = self.guarded(|| self.receive.give_up(&self.env, batch, picks));
    }
}

impl Counted for NicSink {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit(NO_CLIENT, self.no_client.load(Ordering::Relaxed));
        visit(HALTED, self.while_halted.load(Ordering::Relaxed));
        let found = self.hint.as_ref().map(|hint| &hint.found);
        let found = found.map_or(0, |found| found.load(Ordering::Relaxed));
        visit("rx_tails_found", found);
    }
}
