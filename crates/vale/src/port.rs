//! What the switch keeps of a port.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use eswitch::{Rate, Storm, VlanSet};
use frame::{Hot, Lines, Sink, Wake};
use parking_lot::Mutex;
use wire::MacAddr;

use crate::config::{Nanos, PortConfig};
use crate::counters::Counters;
use crate::guard::Bounds;
use crate::guard::rate::Meter;
use crate::table::PortId;

/// Frames that buy back the patience of a whole stall bound.
const FRAMES_PER_BOUND: Nanos = 10;

/// A port as it is: where it leads, and what it may do. To change that, another takes its place, and a batch has one or the
/// other. What both have is [`Kept`].
///
/// In this order: what the short ways look at is together.
#[repr(C)]
pub(crate) struct Port {
    pub(crate) id: PortId,
    /// Whether frames from here may be left with their sender.
    pub(crate) waits: bool,
    pub(crate) uplink: bool,
    pub(crate) private: bool,
    pub(crate) mesh: bool,
    pub(crate) sink: Arc<dyn Sink>,
    kept: Arc<Kept>,
    pub(crate) rate_out: Option<Arc<Meter>>,
    /// The only addresses frames may come from here, if any are named.
    pub(crate) only: Vec<MacAddr>,
    pub(crate) vlans: Option<VlanSet>,
    /// What its meters were made from.
    limits: Limits,
}

/// The limits of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Limits {
    rate_in: Option<Rate>,
    storm: Storm,
    rate_out: Option<Rate>,
}

impl Limits {
    fn of(config: &PortConfig) -> Self {
        Self {
            rate_in: config.rate_in,
            storm: config.storm,
            rate_out: config.rate_out,
        }
    }
}

/// What stays of a port for as long as it is there. In this order: a delivery to it in the short way touches one cache line of it, one
/// from it another.
#[repr(C, align(64))]
pub(crate) struct Kept {
    alive: AtomicBool,
    /// There is another port in its place, which its way in does not know yet.
    is_renewed: AtomicBool,
    /// Of what comes in.
    pub(crate) bounds: Bounds,
    /// Since when a sender waits for it, plus one; 0 while none does.
    held_since: AtomicU64,
    /// How much of others' patience it has used up.
    owed: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) name: String,
    renewed: Mutex<Weak<Port>>,
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

impl Deref for Port {
    type Target = Kept;

    #[inline]
    fn deref(&self) -> &Kept {
        &self.kept
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
        let rate_out = Meter::new(config.rate_out, now).map(Arc::new);
        let kept = Arc::new(Kept {
            name,
            counters: Counters::default(),
            bounds: Bounds::new(config.rate_in, config.storm, now),
            alive: AtomicBool::new(true),
            is_renewed: AtomicBool::new(false),
            renewed: Mutex::default(),
            held_since: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            waiting: Mutex::default(),
        });
        Port {
            id,
            sink,
            waits: config.waits,
            only: config.only.clone(),
            uplink: config.uplink,
            private: config.private,
            mesh: config.mesh,
            vlans: config.vlans.clone(),
            rate_out,
            limits: Limits::of(config),
            kept,
        }
    }

    /// What takes its place: the same port, that may do other things. Limits that stay go on as they are.
    pub(crate) fn with(&self, config: &PortConfig, now: Nanos) -> Arc<Port> {
        let (is, limits) = (self.limits, Limits::of(config));
        if (is.rate_in, is.storm) != (limits.rate_in, limits.storm) {
            self.bounds.set(limits.rate_in, limits.storm, now);
        }
        let rate_out = if is.rate_out == limits.rate_out {
            self.rate_out.clone()
        } else {
            Meter::new(limits.rate_out, now).map(Arc::new)
        };
        let new = Arc::new(Port {
            id: self.id,
            sink: Arc::clone(&self.sink),
            waits: config.waits,
            only: config.only.clone(),
            uplink: self.uplink,
            private: config.private,
            mesh: self.mesh,
            vlans: config.vlans.clone(),
            rate_out,
            limits,
            kept: Arc::clone(&self.kept),
        });
        *self.renewed.lock() = Arc::downgrade(&new);
        self.is_renewed.store(true, Ordering::Release);
        new
    }

    /// For its way in: the port that has taken its place since the last call.
    #[inline]
    pub(crate) fn successor(&self) -> Option<Arc<Port>> {
        if !self.is_renewed.load(Ordering::Relaxed) {
            return None;
        }
        self.is_renewed.swap(false, Ordering::Acquire);
        self.renewed.lock().upgrade()
    }

    /// What a delivery in the short way touches of it and of its sink.
    pub(crate) fn hot(&self, hot: &mut Hot) {
        hot.add(Lines::first(self, std::mem::offset_of!(Port, only)));
        hot.add(Lines::first(&*self.kept, Kept::HOT));
        self.sink.hot(hot);
    }

    /// What stays of it.
    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }

    /// Whether frames from here may come from `source`.
    pub(crate) fn may_be(&self, source: MacAddr) -> bool {
        self.only.is_empty() || self.only.contains(&source)
    }

    /// Whether frames from here may go to `to`, so far as one of the two is private.
    pub(crate) fn may_reach(&self, to: &Port) -> bool {
        (!self.private || to.uplink) && (!to.private || self.uplink)
    }

    /// Whether frames from here may not go to `to` because both lead into the mesh.
    pub(crate) fn is_split_from(&self, to: &Port) -> bool {
        self.mesh && to.mesh
    }

    /// Whether no more may leave here for now.
    pub(crate) fn is_rate_spent(&self) -> bool {
        self.rate_out.as_ref().is_some_and(|rate| !rate.is_open())
    }

    /// Whether frames of this VLAN may pass here.
    pub(crate) fn is_member(&self, vlan: u16) -> bool {
        self.vlans.as_ref().is_none_or(|set| set.contains(vlan))
    }
}

impl Kept {
    /// Bytes of it that deliveries in the short way touch.
    pub(crate) const HOT: usize = 128;

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
        // While nothing moves, the senders still wait.
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

    /// Whether it has used up all patience, so that no sender waits for it.
    pub(crate) fn is_stalled(&self, now: Nanos, bound: Nanos) -> bool {
        self.patience(now, bound) == 0
    }

    /// Whether a sender may wait for it.
    pub(crate) fn may_be_waited_for(&self, now: Nanos, bound: Nanos) -> bool {
        self.is_alive() && !self.is_stalled(now, bound)
    }

    pub(crate) fn wait_until(&self, waker: &Arc<dyn Wake>, deadline: Nanos) {
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
        // `Wake::wake` never blocks and never calls back, so the lock may be held.
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

/// Why frames stay with their sender.
pub(crate) enum Blocked {
    /// This port has no room.
    Full(Arc<Port>),
    /// The sender has used up its rate until then.
    Paced(Nanos),
}

/// Where the port with this id is in the list.
pub(crate) fn slot(ports: &[Arc<Port>], id: PortId) -> Option<usize> {
    ports.binary_search_by_key(&id, |port| port.id).ok()
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of};

    use super::*;

    #[test]
    fn a_delivery_touches_a_line_of_its_destination_and_another_of_its_source() {
        let counters = offset_of!(Kept, counters);
        let to = [
            offset_of!(Kept, alive),
            offset_of!(Kept, held_since),
            offset_of!(Kept, owed),
            counters + offset_of!(Counters, tx_frames),
            counters + offset_of!(Counters, tx_bytes),
        ];
        let from = [
            counters + offset_of!(Counters, rx_frames),
            counters + offset_of!(Counters, rx_bytes),
            counters + offset_of!(Counters, rx_unicast),
        ];
        assert_eq!(align_of::<Kept>(), 64);
        assert!(to.iter().all(|at| at / 64 == 0), "{to:?}");
        assert!(from.iter().all(|at| at / 64 == 1), "{from:?}");
        // Behind the two counts of an `Arc`.
        assert!(2 * size_of::<usize>() + offset_of!(Port, only) <= 64);
    }
}
