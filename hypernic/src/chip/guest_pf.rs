//! The PF of a chip when a guest drives it: its hub, its cable, and the ports of its functions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use eswitch::Owner;
use frame::{Batch, Caps, Hot, Mix, Run, Sink, Wake};
use igb::{Enforcer, Hub, VfChannel};
use parking_lot::Mutex;
use vale::{Switch, SwitchPort};

use super::eswitch_sync::EswitchSync;

type SetLink = Box<dyn Fn(bool) + Send + Sync>;

/// The PF that a guest drives, and the eswitch sync that carries out its registers.
pub struct GuestPf {
    hub: Arc<Hub>,
    eswitch_sync: Arc<EswitchSync>,
    /// The PF's cable, while there is a PF, and whether it is in.
    cable: Mutex<(Option<SetLink>, bool)>,
}

impl GuestPf {
    /// For `vfs` VFs.
    #[must_use]
    pub fn new(vfs: u32, switch: Switch) -> Arc<GuestPf> {
        let eswitch_sync = Arc::new(EswitchSync::new(switch));
        Arc::new(GuestPf {
            hub: Hub::new(vfs, Arc::clone(&eswitch_sync) as Arc<dyn Enforcer>),
            eswitch_sync,
            cable: Mutex::new((None, true)),
        })
    }

    /// The hub that the PF is made with.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The channel of a VF.
    pub(super) fn channel(&self, vf: u32) -> Option<Arc<VfChannel>> {
        self.hub.channel(vf).cloned()
    }

    /// A function has its port at the switch. Returns where what it sends goes.
    pub fn joined(&self, owner: Owner, port: Arc<SwitchPort>) -> Arc<dyn Sink> {
        self.eswitch_sync.joined(owner, Some(port.name()));
        match owner {
            Owner::Pf => port,
            Owner::Vf(vf) => Arc::new(SpoofWatch {
                seen: AtomicU64::new(port.fouls()),
                port,
                hub: Arc::downgrade(&self.hub),
                vf,
            }),
        }
    }

    /// A function is taken away.
    pub(super) fn remove(&self, owner: Owner) {
        self.eswitch_sync.joined(owner, None);
        match owner {
            Owner::Pf => {
                self.cable.lock().0 = None;
                self.hub.set_bell(None);
                self.hub.vacate();
            }
            Owner::Vf(vf) => {
                if let Some(channel) = self.hub.channel(vf) {
                    channel.set_bell(None);
                }
            }
        }
    }

    /// The PF runs: `cable` sets its link, `bell` has it look at what its VFs did.
    pub(super) fn started(&self, bell: Arc<dyn Wake>, cable: SetLink) {
        let mut known = self.cable.lock();
        cable(known.1);
        known.0 = Some(cable);
        drop(known);
        self.hub.set_bell(Some(bell));
    }

    /// The cable goes in or out.
    pub(super) fn link(&self, up: bool) {
        let mut known = self.cable.lock();
        known.1 = up;
        if let Some(cable) = &known.0 {
            cable(up);
        }
    }
}

/// The way of a VF into the switch; tells the PF of the frames that are refused there.
struct SpoofWatch {
    port: Arc<SwitchPort>,
    hub: Weak<Hub>,
    vf: u32,
    seen: AtomicU64,
}

impl Sink for SpoofWatch {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let dealt = self.port.deliver(batch, picks);
        let fouls = self.port.fouls();
        let seen = self.seen.swap(fouls, Ordering::Relaxed);
        if fouls != seen
            && let Some(hub) = self.hub.upgrade()
        {
            hub.spoofed(self.vf, fouls.saturating_sub(seen));
        }
        dealt
    }

    /// What is refused is in no run.
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.port.deliver_run(run)
    }

    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.port.deliver_mix(mix)
    }

    fn hot(&self, hot: &mut Hot) {
        self.port.hot(hot);
    }

    fn prefetch(&self) {
        self.port.prefetch();
    }

    fn caps(&self) -> Caps {
        self.port.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.port.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.port.give_up(batch, picks);
    }
}
