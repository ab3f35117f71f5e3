//! What all parts of a switch share: its ports, its look-up, its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use frame::Wake;
use parking_lot::RwLock;

use crate::config::{Clock, Nanos};
use crate::pools::Pools;
use crate::port::Port;
use crate::table::{PortId, Table};
use crate::witness::Witnesses;

/// Who is where: by what was learned, and on a chip by what its pools say.
pub(crate) struct Lookup {
    pub(crate) table: Table,
    /// Of an on-chip switch, where nothing is learned.
    pub(crate) pools: Option<Arc<Pools>>,
}

impl Lookup {
    pub(crate) fn remove_port(&mut self, port: PortId) {
        self.table.remove_port(port);
        if let Some(pools) = &mut self.pools {
            *pools = Arc::new(pools.with(port, None));
        }
    }
}

/// What the handles, the ports and the deliveries of a switch share.
pub(crate) struct SwitchState {
    /// In the order of their ids. Replaced as a whole, so that senders hold no lock.
    pub(crate) ports: RwLock<Arc<Vec<Arc<Port>>>>,
    /// Changed by [`SwitchState::change_lookup`] only.
    pub(crate) lookup: RwLock<Lookup>,
    /// How often that was: what was looked up before says nothing afterwards.
    pub(crate) lookup_changes: AtomicU64,
    pub(crate) clock: Clock,
    pub(crate) max_ports: usize,
    pub(crate) next_id: AtomicU32,
    pub(crate) backpressure: bool,
    pub(crate) stall_bound: Nanos,
    pub(crate) link_local: AtomicBool,
    /// It is an on-chip switch, and asks its pools.
    pub(crate) is_chip: bool,
    /// Batches between two stations take the direct path. Always, but in tests that compare.
    pub(crate) direct: bool,
    pub(crate) timer: RwLock<Option<Arc<dyn Wake>>>,
    pub(crate) has_timer: AtomicBool,
    /// When the timer will call `tick`.
    pub(crate) armed: AtomicU64,
    /// There is a port that not every other may reach.
    pub(crate) has_private: AtomicBool,
    /// There is a port that is not a member of every VLAN.
    pub(crate) has_vlans: AtomicBool,
    /// There is one of these, or one that leads into a mesh.
    pub(crate) has_guards: AtomicBool,
    pub(crate) witnesses: Witnesses,
}

impl SwitchState {
    pub(crate) fn ports(&self) -> Arc<Vec<Arc<Port>>> {
        self.ports.read().clone()
    }

    /// Changes what is looked up, and makes every sender look anew.
    pub(crate) fn change_lookup<R>(&self, change: impl FnOnce(&mut Lookup) -> R) -> R {
        let mut lookup = self.lookup.write();
        let result = change(&mut lookup);
        // Under the lock: a sender that has seen the count from before and looks up in the old table, or the new
        // one, will see that it has changed.
        self.lookup_changes.fetch_add(1, Ordering::Release);
        result
    }

    /// Whether it asks its pools rather than what it has learned.
    pub(crate) fn is_chip(&self) -> bool {
        self.is_chip
    }

    /// The pools of an on-chip switch as they are now.
    pub(crate) fn pools(&self) -> Option<Arc<Pools>> {
        if !self.is_chip {
            return None;
        }
        self.lookup.read().pools.clone()
    }

    /// The number of changes so far. Ask before the look-up.
    pub(crate) fn lookup_changes(&self) -> u64 {
        self.lookup_changes.load(Ordering::Acquire)
    }

    pub(crate) fn now(&self) -> Nanos {
        (self.clock)()
    }

    pub(crate) fn may_hold_up(&self) -> bool {
        self.backpressure && self.has_timer.load(Ordering::Acquire)
    }

    pub(crate) fn stall_bound(&self) -> Nanos {
        self.stall_bound
    }

    /// There is a new deadline.
    pub(crate) fn arm_timer(&self, deadline: Nanos) {
        if self.armed.fetch_min(deadline, Ordering::SeqCst) > deadline
            && let Some(timer) = self.timer.read().clone()
        {
            timer.wake();
        }
    }

    pub(crate) fn note_guards(&self, ports: &[Arc<Port>]) {
        let private = ports.iter().any(|port| port.private);
        let vlans = ports.iter().any(|port| port.vlans.is_some());
        let guards = private || vlans || ports.iter().any(|port| port.mesh);
        self.has_guards.store(guards, Ordering::Release);
        self.has_private.store(private, Ordering::Release);
        self.has_vlans.store(vlans, Ordering::Release);
    }

    /// Whether frames for groups that no bridge forwards flood.
    pub(crate) fn passes_link_local(&self) -> bool {
        self.link_local.load(Ordering::Relaxed)
    }

    pub(crate) fn has_private(&self) -> bool {
        self.has_private.load(Ordering::Acquire)
    }

    /// Some frames may not go to some ports.
    pub(crate) fn is_guarded(&self) -> bool {
        self.has_guards.load(Ordering::Acquire)
    }

    /// Whether frames may take the short ways. These know nothing of privacy and VLANs; they find no way through a mesh.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct && !self.has_private() && !self.has_vlans() && !self.witnesses.any()
    }

    pub(crate) fn has_vlans(&self) -> bool {
        self.has_vlans.load(Ordering::Acquire)
    }
}
