//! The way into the switch that each port is handed out as.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use frame::{Batch, Caps, Counted, Hot, Lines, MAX_BATCH, Mix, Run, Sink, Wake};
use parking_lot::Mutex;

use crate::config::Nanos;
use crate::counters::add;
use crate::forward::Scratch;
use crate::port::{Blocked, Kept, Port};
use crate::state::SwitchState;

/// The way into the switch: deliver here what a NIC sends or an inlet receives.
///
/// Deliveries into one port are put in a row; those into different ports run in parallel.
///
/// In this order, and so in each of its parts: a delivery in the short way touches one cache line of it.
#[repr(C, align(64))]
pub struct SwitchPort {
    state: Arc<SwitchState>,
    kept: Arc<Kept>,
    /// The port as it was at the last delivery, and what belongs to the delivery under way. Held while other ports' sinks are
    /// called, which is safe because sinks never call back into the sender.
    entry: Mutex<Entry>,
    /// What the last short delivery was short of; nothing, if it may go on at once.
    blocked_on: Mutex<BlockedOn>,
}

#[repr(C)]
struct Entry {
    port: Arc<Port>,
    scratch: Scratch,
}

impl Entry {
    /// The port as it is now.
    #[inline]
    fn now(&mut self) -> (&Arc<Port>, &mut Scratch) {
        if let Some(port) = self.port.successor() {
            self.port = port;
            // The old one could have let more pass.
            self.scratch.forget();
        }
        (&self.port, &mut self.scratch)
    }
}

#[derive(Clone, Debug, Default)]
enum BlockedOn {
    #[default]
    Nothing,
    Full(Weak<Port>),
    Paced(Nanos),
}

impl SwitchPort {
    /// Bytes of it that are fetched ahead: the line of deliveries, and what they will touch elsewhere.
    const HOT: usize = 384;

    pub(crate) fn new(state: Arc<SwitchState>, port: Arc<Port>) -> SwitchPort {
        SwitchPort {
            state,
            kept: Arc::clone(port.kept()),
            entry: Mutex::new(Entry {
                port,
                scratch: Scratch::default(),
            }),
            blocked_on: Mutex::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.kept.name
    }

    /// Frames that entered here and were refused for their source or their VLAN.
    pub fn fouls(&self) -> u64 {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        of(&self.kept.counters.drop_spoofed) + of(&self.kept.counters.drop_vlan)
    }

    /// Whether it is still part of the switch.
    pub fn is_attached(&self) -> bool {
        self.kept.is_alive()
    }
}

impl fmt::Debug for SwitchPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchPort")
            .field("name", &self.kept.name)
            .field("attached", &self.is_attached())
            .finish_non_exhaustive()
    }
}

impl Sink for SwitchPort {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if !self.kept.is_alive() {
            add(&self.kept.counters.drop_port_gone, picks.len() as u64);
            return picks.len();
        }
        let mut entry = self.entry.lock();
        let (port, scratch) = entry.now();
        let mut done = 0;
        for chunk in picks.chunks(MAX_BATCH) {
            let (dealt, blocked) = scratch.forward(&self.state, port, batch, chunk);
            done += dealt;
            if dealt < chunk.len() {
                *self.blocked_on.lock() = match blocked {
                    None => BlockedOn::Nothing,
                    Some(Blocked::Full(port)) => BlockedOn::Full(Arc::downgrade(&port)),
                    Some(Blocked::Paced(until)) => BlockedOn::Paced(until),
                };
                break;
            }
        }
        done
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        if !self.kept.is_alive() {
            return None;
        }
        let mut entry = self.entry.lock();
        let (port, scratch) = entry.now();
        scratch.run(&self.state, port, run)
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        if !self.kept.is_alive() {
            return None;
        }
        let mut entry = self.entry.lock();
        let (port, scratch) = entry.now();
        scratch.mix(&self.state, port, mix)
    }

    fn hot(&self, hot: &mut Hot) {
        hot.add(Lines::first(self, Self::HOT));
        hot.add(Lines::first(&*self.kept, Kept::HOT));
    }

    fn prefetch(&self) {
        // Whoever has the lock delivers already.
        if let Some(mut entry) = self.entry.try_lock() {
            entry.scratch.prefetch(&self.state);
        }
    }

    /// Everything: what a destination cannot take is done for that destination alone.
    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        let blocked_on = self.blocked_on.lock().clone();
        let now = self.state.now();
        let (port, deadline) = match blocked_on {
            BlockedOn::Nothing => return waker.wake(),
            BlockedOn::Paced(until) => (None, until),
            BlockedOn::Full(port) => {
                let Some(port) = port.upgrade() else {
                    return waker.wake();
                };
                let patience = port.patience(now, self.state.stall_bound());
                let mut deadline = now.saturating_add(patience);
                if let Some(rate) = &port.rate_out {
                    // Room that comes with time: its sink does not know of it.
                    deadline = deadline.min(rate.worthwhile_at().max(now + 1));
                }
                (Some(port), deadline)
            }
        };
        self.kept.wait_until(waker, deadline);
        // Only after that: a port detached before wakes here, one detached later wakes the waiters,
        // and so does a timer that is cleared.
        let gone = port.as_ref().is_some_and(|port| !port.is_alive());
        if gone || !self.kept.is_alive() || !self.state.may_hold_up() {
            return waker.wake();
        }
        self.state.arm_timer(deadline);
        if let Some(port) = port {
            port.sink.want_room(waker);
        }
    }
}

impl Counted for SwitchPort {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.kept.counters.visit(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lab;

    fn at<T>(of: &SwitchPort, field: &T) -> usize {
        let field = std::ptr::from_ref(field).addr() + size_of::<T>();
        field - std::ptr::from_ref(of).addr()
    }

    #[test]
    fn a_delivery_touches_one_line_of_its_way_in() {
        let lab = Lab::new(true);
        let port = &*lab.ports[0];
        let entry = port.entry.lock();
        let ends = [
            at(port, &port.state),
            at(port, &port.kept),
            at(port, &entry.port),
            entry.scratch.short_ways_end(port),
        ];
        assert!(ends.iter().all(|end| *end <= 64), "{ends:?}");
        assert_eq!(align_of::<SwitchPort>(), 64);
    }

    #[test]
    fn what_a_delivery_will_touch_is_known_once_one_went_there() {
        use crate::testing::{How, One, Step};
        let lab = Lab::new(true);
        let frame = |src, dst| One {
            src,
            dst,
            len: 60,
            noted: 9,
        };
        let send = |from: usize| {
            let frames = vec![frame(from as u64, 1 - from as u64)];
            lab.step(&Step {
                from,
                room: (1 - from, 4),
                passed: 1,
                how: How::Batch,
                frames,
            })
        };
        let ahead = || {
            lab.ports[0].prefetch();
            lab.ports[0].entry.lock().scratch.ahead_count()
        };
        assert_eq!(ahead(), 0);
        for from in [1, 0, 0] {
            send(from);
        }
        // A way, a port, what stays of it; its sink tells of nothing.
        assert!((4..=6).contains(&ahead()), "{}", ahead());
    }
}
