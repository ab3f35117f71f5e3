//! One port: the way out that others use, and the way in that is handed out.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use frame::{Batch, Caps, Counted, MAX_BATCH, Sink, Wake};
use parking_lot::Mutex;
use wire::MacAddr;

use crate::Nanos;
use crate::counters::{Counters, add};
use crate::forward::Scratch;
use crate::guard::{Bounds, Meter, VlanSet};
use crate::switch::{PortConfig, Shared};
use crate::table::PortId;

/// Frames that buy back the patience of a whole stall bound.
const FRAMES_PER_BOUND: Nanos = 10;

/// What the switch keeps of a port.
pub(crate) struct Port {
    pub(crate) id: PortId,
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) counters: Counters,
    /// Whether frames from here may be left with their sender.
    pub(crate) waits: bool,
    /// The only addresses frames may come from here, if any are named.
    pub(crate) only: Vec<MacAddr>,
    pub(crate) uplink: bool,
    pub(crate) private: bool,
    pub(crate) vlans: Option<VlanSet>,
    /// Of what comes in.
    pub(crate) bounds: Bounds,
    pub(crate) rate_out: Option<Meter>,
    alive: AtomicBool,
    /// Since when a sender waits for it, plus one; 0 while none does.
    held_since: AtomicU64,
    /// How much of others' patience it has used up.
    owed: AtomicU64,
    /// Who sends through this port and waits for room elsewhere, each until its deadline.
    waiting: Mutex<Vec<(Arc<dyn Wake>, Nanos)>>,
}

/// How long it has been since `since`, which is a time plus one, or 0 for never.
fn waited(since: u64, now: Nanos) -> Nanos {
    match since {
        0 => 0,
        since => now.saturating_sub(since - 1),
    }
}

impl Port {
    pub(crate) fn new(
        id: PortId,
        name: String,
        sink: Arc<dyn Sink>,
        config: &PortConfig,
        now: Nanos,
    ) -> Port {
        Port {
            id,
            name,
            sink,
            counters: Counters::default(),
            waits: config.waits,
            only: config.only.clone(),
            uplink: config.uplink,
            private: config.private,
            vlans: config.vlans.clone(),
            bounds: Bounds::new(config.rate_in, config.storm, now),
            rate_out: Meter::new(config.rate_out, now),
            alive: AtomicBool::new(true),
            held_since: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Whether frames from here may come from `source`.
    pub(crate) fn may_be(&self, source: MacAddr) -> bool {
        self.only.is_empty() || self.only.contains(&source)
    }

    /// Whether frames from here may go to `to`, so far as one of the two is private.
    pub(crate) fn may_reach(&self, to: &Port) -> bool {
        (!self.private || to.uplink) && (!to.private || self.uplink)
    }

    /// Whether no more may leave here for now.
    pub(crate) fn is_rate_spent(&self) -> bool {
        self.rate_out.as_ref().is_some_and(|rate| !rate.is_open())
    }

    /// Whether frames of this VLAN may pass here.
    pub(crate) fn is_member(&self, vlan: u16) -> bool {
        self.vlans.as_ref().is_none_or(|set| set.contains(vlan))
    }

    pub(crate) fn close(&self) {
        self.alive.store(false, Ordering::Release);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Notes how many frames the sink took of what it was offered.
    ///
    /// Others wait for a port up to `bound` in all, not each time anew: one that took a frame just
    /// before the bound, again and again, could slow its senders down to fifty frames a second.
    /// Every frame taken buys a tenth of the bound back, and nothing else does.
    pub(crate) fn note_progress(&self, moved: usize, now: Nanos, bound: Nanos) {
        let since = self.held_since.load(Ordering::Relaxed);
        let owed = self.owed.load(Ordering::Relaxed);
        if since == 0 && (owed == 0 || moved == 0) {
            return;
        }
        let bought = (moved as u64).saturating_mul(bound / FRAMES_PER_BOUND);
        let owed = owed.saturating_add(waited(since, now)).min(bound);
        self.owed
            .store(owed.saturating_sub(bought), Ordering::Relaxed);
        // While nothing moves, whoever waits still does.
        let since = if since == 0 || moved > 0 { 0 } else { now + 1 };
        self.held_since.store(since, Ordering::Relaxed);
    }

    /// Notes that a sender waits from now on.
    pub(crate) fn note_held(&self, now: Nanos) {
        if self.held_since.load(Ordering::Relaxed) == 0 {
            self.held_since.store(now + 1, Ordering::Relaxed);
        }
    }

    /// How much longer others wait for it.
    pub(crate) fn patience(&self, now: Nanos, bound: Nanos) -> Nanos {
        let waited = waited(self.held_since.load(Ordering::Relaxed), now);
        let owed = self.owed.load(Ordering::Relaxed);
        bound.saturating_sub(owed.saturating_add(waited))
    }

    /// Whether it has used up all patience, so that nobody waits for it.
    pub(crate) fn is_stalled(&self, now: Nanos, bound: Nanos) -> bool {
        self.patience(now, bound) == 0
    }

    fn wait_until(&self, waker: &Arc<dyn Wake>, deadline: Nanos) {
        let mut waiting = self.waiting.lock();
        match waiting.iter_mut().find(|(w, _)| Arc::ptr_eq(w, waker)) {
            Some(entry) => entry.1 = deadline,
            None => waiting.push((waker.clone(), deadline)),
        }
    }

    pub(crate) fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.iter().for_each(|(waker, _)| waker.wake());
    }

    /// Wakes those whose deadline has come; returns the earliest of the others.
    pub(crate) fn wake_due(&self, now: Nanos) -> Option<Nanos> {
        let mut waiting = self.waiting.lock();
        // `Wake::wake` never blocks and calls nobody back, so the lock may be held.
        waiting.retain(|(waker, deadline)| {
            let due = *deadline <= now;
            if due {
                waker.wake();
            }
            !due
        });
        waiting.iter().map(|(_, deadline)| *deadline).min()
    }
}

/// The way into the switch: deliver here what a NIC sends or an inlet receives.
///
/// Deliveries into one port are put in a row; those into different ports run in parallel.
pub struct SwitchPort {
    shared: Arc<Shared>,
    port: Arc<Port>,
    /// Belongs to the delivery under way. Held while other ports' sinks are called, which is safe
    /// because sinks never call back into the sender.
    scratch: Mutex<Scratch>,
    /// What the last short delivery was short of.
    blocked_on: Mutex<BlockedOn>,
}

/// Why frames stay with their sender.
pub(crate) enum Blocked {
    /// This port has no room.
    Full(Arc<Port>),
    /// The sender has used up its rate until then.
    Paced(Nanos),
}

#[derive(Clone, Debug, Default)]
enum BlockedOn {
    #[default]
    Nothing,
    Full(Weak<Port>),
    Paced(Nanos),
}

impl SwitchPort {
    pub(crate) fn new(shared: Arc<Shared>, port: Arc<Port>) -> SwitchPort {
        SwitchPort {
            shared,
            port,
            scratch: Mutex::default(),
            blocked_on: Mutex::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.port.name
    }

    /// Frames that entered here and were refused for their source or their VLAN.
    pub fn fouls(&self) -> u64 {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        of(&self.port.counters.drop_spoofed) + of(&self.port.counters.drop_vlan)
    }

    /// Whether it is still part of the switch.
    pub fn is_attached(&self) -> bool {
        self.port.is_alive()
    }
}

impl fmt::Debug for SwitchPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchPort")
            .field("name", &self.port.name)
            .field("attached", &self.is_attached())
            .finish_non_exhaustive()
    }
}

impl Sink for SwitchPort {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if !self.port.is_alive() {
            add(&self.port.counters.drop_port_gone, picks.len() as u64);
            return picks.len();
        }
        let mut scratch = self.scratch.lock();
        let mut done = 0;
        for chunk in picks.chunks(MAX_BATCH) {
            let (dealt, blocked) = scratch.forward(&self.shared, &self.port, batch, chunk);
            done += dealt;
            if let Some(blocked) = blocked {
                *self.blocked_on.lock() = match blocked {
                    Blocked::Full(port) => BlockedOn::Full(Arc::downgrade(&port)),
                    Blocked::Paced(until) => BlockedOn::Paced(until),
                };
                break;
            }
        }
        done
    }

    /// Everything: what a destination cannot take is done for that destination alone.
    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        let blocked_on = self.blocked_on.lock().clone();
        let now = self.shared.now();
        let (port, deadline) = match blocked_on {
            BlockedOn::Nothing => return waker.wake(),
            BlockedOn::Paced(until) => (None, until),
            BlockedOn::Full(port) => {
                let Some(port) = port.upgrade() else {
                    return waker.wake();
                };
                let patience = port.patience(now, self.shared.stall_bound());
                let mut deadline = now.saturating_add(patience);
                if let Some(rate) = &port.rate_out {
                    // Room that comes with time: its sink does not know of it.
                    deadline = deadline.min(rate.worthwhile_at().max(now + 1));
                }
                (Some(port), deadline)
            }
        };
        self.port.wait_until(waker, deadline);
        // Only after that: a port detached before wakes here, one detached later wakes the waiters,
        // and so does an alarm that is cleared.
        let gone = port.as_ref().is_some_and(|port| !port.is_alive());
        if gone || !self.port.is_alive() || !self.shared.may_hold_up() {
            return waker.wake();
        }
        self.shared.sound_alarm(deadline);
        if let Some(port) = port {
            port.sink.want_room(waker);
        }
    }
}

impl Counted for SwitchPort {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.port.counters.visit(visit);
    }
}
