//! Where a PF controls its VFs by registers (datasheet §7.10.2, §8.14): the channels of all of them, and
//! what follows for the on-chip switch.
//!
//! Registers are written by the PF's thread, VFs are reset and write to their mailboxes in theirs.
//! What both change, VFRE and VFTE, is changed under the lock of the in_force, and so is what follows:
//! the switch hears of every change, and in order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use eswitch::{Fabric, FunctionPolicy, Owner, StormWindows};
use frame::Wake;
use model::Nanos;
use parking_lot::Mutex;
use regs::File;

use crate::core::function::Function;
use crate::core::stats::Stats;
use crate::regs as r;
use crate::regs::bits::ctrl_ext;
use crate::regs::pools;
use crate::sriov::channel::{Event, Grant, VfChannel, VfListener};
use crate::sriov::mailbox::{Causes, Mailbox};

/// Most VFs of the chip: the eighth pool is the PF's.
pub const MAX_VFS: u32 = pools::POOLS - 1;

/// MBVFICR: messages, and behind them that some were read.
const READ_SHIFT: u32 = 16;

/// Who carries out what the registers say, at the switch between the functions.
pub trait Enforcer: Send + Sync {
    /// From now on this holds for a function. Called in order, with a lock held: it calls nothing of the
    /// model.
    fn enforce(&self, owner: Owner, policy: &FunctionPolicy);
    /// From now on this holds for all pools together, and for what floods in from the wire. Called as the
    /// other.
    fn enforce_all(&self, fabric: &Fabric<Owner>, storm: &StormWindows);
}

/// What has happened to VFs since a PF looked last, by their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub mail: u32,
    pub resets: u32,
    pub spoofed: u32,
}

/// What holds now.
struct InForce {
    pf: Weak<Function>,
    own: FunctionPolicy,
    vfs: Vec<FunctionPolicy>,
    for_all: (Fabric<Owner>, StormWindows),
}

/// The channels of a chip's VFs, and the PF whose registers control them; without one they are silent.
pub struct Hub {
    channels: Vec<Arc<VfChannel>>,
    enforcer: Arc<dyn Enforcer>,
    in_force: Mutex<InForce>,
    bell: Mutex<Option<Arc<dyn Wake>>>,
    /// VFs that SR-IOV's registers have enabled; changed with the in_force.
    enabled: AtomicU32,
    mail: AtomicU32,
    resets: AtomicU32,
    spoofed: AtomicU32,
    messages: AtomicU64,
    restarts: AtomicU64,
    fouls: AtomicU64,
}

/// A VF's word to its PF.
struct Listener {
    hub: Weak<Hub>,
    vf: u32,
}

impl VfListener for Listener {
    fn happened(&self, _now: Nanos, event: Event) {
        let Some(hub) = self.hub.upgrade() else {
            return;
        };
        let bit = 1 << self.vf;
        match event {
            Event::Reset => hub.vf_reset(self.vf),
            _ if self.vf >= hub.there() => return,
            Event::Request(_) | Event::Acknowledged => {
                hub.messages.fetch_add(1, Ordering::Relaxed);
                hub.mail.fetch_or(bit, Ordering::AcqRel);
            }
            Event::Loaded(_) => hub.vf_loaded(self.vf),
            Event::Freed => return,
        }
        hub.ring();
    }
}

impl Hub {
    /// One for `vfs` VFs, at most [`MAX_VFS`].
    pub fn new(vfs: u32, enforcer: Arc<dyn Enforcer>) -> Arc<Hub> {
        let vfs = vfs.min(MAX_VFS);
        Arc::new_cyclic(|hub| {
            let channel = |vf| {
                let channel = VfChannel::of_registers();
                channel.listen(Some(Arc::new(Listener {
                    hub: Weak::clone(hub),
                    vf,
                })));
                channel.mailbox(|mailbox| mailbox.set_pf_reset(true));
                channel
            };
            Hub {
                channels: (0..vfs).map(channel).collect(),
                enforcer,
                in_force: Mutex::new(InForce {
                    pf: Weak::new(),
                    own: FunctionPolicy::default(),
                    vfs: vec![FunctionPolicy::default(); vfs as usize],
                    for_all: Default::default(),
                }),
                bell: Mutex::default(),
                enabled: AtomicU32::new(0),
                mail: AtomicU32::new(0),
                resets: AtomicU32::new(0),
                spoofed: AtomicU32::new(0),
                messages: AtomicU64::new(0),
                restarts: AtomicU64::new(0),
                fouls: AtomicU64::new(0),
            }
        })
    }

    /// The channel of a VF, if there is such a one.
    pub fn channel(&self, vf: u32) -> Option<&Arc<VfChannel>> {
        self.channels.get(vf as usize)
    }

    /// The mailboxes of all VFs as they are, and how often each was changed: for the process that goes on.
    pub fn mailboxes(&self) -> Vec<(u64, Mailbox)> {
        let channels = self.channels.iter();
        channels.map(|channel| channel.copy()).collect()
    }

    /// The PF is about to go on that had saved these. Of each the later counts, this or its VF's.
    pub fn resume(&self, mailboxes: Vec<(u64, Mailbox)>) {
        for (channel, mailbox) in self.channels.iter().zip(mailboxes) {
            channel.go_on(mailbox);
        }
    }

    /// Sets what has the PF look at what its VFs did ([`model::Control::attend`]).
    pub fn set_bell(&self, bell: Option<Arc<dyn Wake>>) {
        *self.bell.lock() = bell;
    }

    /// The switch has refused frames of a VF: not from its address, or not of its VLANs.
    pub fn spoofed(&self, vf: u32, frames: u64) {
        if self.channel(vf).is_some() && frames > 0 {
            self.fouls.fetch_add(frames, Ordering::Relaxed);
            self.spoofed.fetch_or(1 << vf, Ordering::AcqRel);
            self.ring();
        }
    }

    /// The PF is taken away: its VFs are silent until another comes.
    pub fn vacate(&self) {
        self.enable(0);
        self.in_force.lock().pf = Weak::new();
        self.pf_reset();
        self.carry_out();
    }

    /// Brings in the PF.
    pub(crate) fn occupy(&self, pf: &Arc<Function>) {
        let mut in_force = self.in_force.lock();
        in_force.pf = Arc::downgrade(pf);
        pf.vfs.store(self.there(), Ordering::Release);
        pf.setup.changed();
    }

    /// What all VFs count.
    pub(crate) fn stats(&self) -> Vec<Arc<Stats>> {
        self.channels
            .iter()
            .map(|channel| Arc::clone(channel.stats()))
            .collect()
    }

    /// VFs that there can be.
    pub(crate) fn vfs(&self) -> u32 {
        self.channels.len() as u32
    }

    /// VFs that SR-IOV's registers have enabled.
    pub(crate) fn enabled(&self) -> u32 {
        self.enabled.load(Ordering::Acquire)
    }

    /// VFs that there are. Where none is enabled there are all: nearly every VMM hides SR-IOV,
    /// and a driver that controls VFs by registers alone shall have them.
    fn there(&self) -> u32 {
        match self.enabled() {
            0 => self.vfs(),
            vfs => vfs,
        }
    }

    /// The channel of a VF whose queues and vectors the PF finds among its own: one that SR-IOV has enabled,
    /// or that has a pool.
    pub(crate) fn shown(&self, file: &File, vf: u32) -> Option<&Arc<VfChannel>> {
        let shown = self.enabled() > 0 || pools::are_on(file);
        self.channel(vf).filter(|_| shown && vf < self.there())
    }

    /// SR-IOV's registers enable so many VFs, or none. The others are gone, and their pools the PF's;
    /// those that were enabled go with all that was allowed to them, and come back with the next
    /// PFRSTD. Whether anything has changed, which is then to be carried out.
    pub(crate) fn enable(&self, vfs: u32) -> bool {
        let all = self.vfs();
        let in_force = self.in_force.lock();
        let vfs = vfs.min(all);
        let before = self.enabled.swap(vfs, Ordering::AcqRel);
        if before == vfs {
            return false;
        }
        let pf = in_force.pf.upgrade();
        let gone = if before == 0 { vfs..all } else { 0..all };
        let bits = (1u32 << all) - (1 << gone.start);
        if let Some(pf) = &pf {
            pf.vfs.store(self.there(), Ordering::Release);
            if before > 0 {
                for id in [r::VFRE, r::VFTE] {
                    pf.file.set(id, pf.file.get(id) & !bits);
                }
            }
        }
        if let Some(pf) = &pf {
            pf.setup.changed();
        }
        for channel in &self.channels[gone.start as usize..] {
            channel.mailbox(|mailbox| mailbox.pf_restart());
            channel.ring();
        }
        for news in [&self.mail, &self.resets, &self.spoofed] {
            news.fetch_and(!bits, Ordering::AcqRel);
        }
        true
    }

    fn ring(&self) {
        let bell = self.bell.lock().clone();
        if let Some(bell) = bell {
            bell.wake();
        }
    }

    /// What the PF has not been told of.
    pub(crate) fn take_news(&self) -> News {
        News {
            mail: self.mail.swap(0, Ordering::AcqRel),
            resets: self.resets.swap(0, Ordering::AcqRel),
            spoofed: self.spoofed.swap(0, Ordering::AcqRel),
        }
    }

    /// Changes a register that VFs' resets change too.
    pub(crate) fn change(&self, does: impl FnOnce()) {
        let _books = self.in_force.lock();
        does();
    }

    /// Has what the registers say come true. Costs nothing where nothing has changed.
    pub(crate) fn carry_out(&self) {
        self.carry_out_in(&mut self.in_force.lock());
    }

    fn carry_out_in(&self, in_force: &mut InForce) {
        let pf = in_force.pf.upgrade();
        let own = pf.as_ref().map(|pf| FunctionPolicy {
            pool: pools::of_pf(&pf.file, self.there()),
            ..FunctionPolicy::default()
        });
        let for_all = pf.as_ref().map(|pf| {
            let mbps = pf.mbps.load(Ordering::Acquire);
            (
                pools::fabric(&pf.file, self.there()),
                pools::storm(&pf.file, mbps),
            )
        });
        let for_all = for_all.unwrap_or_default();
        if for_all != in_force.for_all {
            self.enforcer.enforce_all(&for_all.0, &for_all.1);
            in_force.for_all = for_all;
        }
        self.tell(Owner::Pf, &mut in_force.own, own.unwrap_or_default());
        for (vf, known) in (0..).zip(&mut in_force.vfs) {
            self.carry_out_of(pf.as_deref(), vf, known);
        }
    }

    /// What concerns one VF.
    fn carry_out_of(&self, pf: Option<&Function>, vf: u32, known: &mut FunctionPolicy) {
        let Some(channel) = self.channel(vf) else {
            return;
        };
        let (mut grant, mut settings) = (Grant::default(), channel.vf_settings());
        let mut policy = FunctionPolicy::default();
        if let Some(pf) = pf.filter(|_| vf < self.there()) {
            let file = &pf.file;
            let mbps = pf.mbps.load(Ordering::Acquire);
            policy = pools::of_vf(file, vf, mbps);
            let pool = &policy.pool;
            settings = pools::vf_settings(file, vf, pool, mbps);
            grant = Grant {
                enabled: pool.receives || pool.sends,
                link: pf.link_up.load(Ordering::Acquire),
                max_frame: pools::max_frame(file, vf),
                tag: pools::tag(file, vf),
                interrupt_gap: 0,
            };
        }
        self.tell(Owner::Vf(vf), known, policy);
        if channel.set_granted(grant, settings) {
            channel.ring();
        }
    }

    fn tell(&self, owner: Owner, known: &mut FunctionPolicy, policy: FunctionPolicy) {
        if *known != policy {
            self.enforcer.enforce(owner, &policy);
            *known = policy;
        }
    }

    /// VTCTRL.RST of a VF, or its bus: what was allowed to it is not any more (§4.6.11.2).
    fn vf_reset(&self, vf: u32) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        let mut in_force = self.in_force.lock();
        let pf = in_force.pf.upgrade();
        // One that is gone has nothing: the bits are another's, and its PF does not know of it.
        let is_there = vf < self.there();
        if let Some(pf) = pf.as_ref().filter(|_| is_there) {
            for id in [r::VFRE, r::VFTE] {
                pf.file.set(id, pf.file.get(id) & !(1 << vf));
            }
        }
        if let Some(known) = in_force.vfs.get_mut(vf as usize) {
            self.carry_out_of(pf.as_deref(), vf, known);
        }
        drop(in_force);
        let bit = u32::from(is_there) << vf;
        self.resets.fetch_or(bit, Ordering::AcqRel);
    }

    /// A VF goes on with a mailbox from elsewhere, of which its PF may not have heard.
    fn vf_loaded(&self, vf: u32) {
        let pf = self.in_force.lock().pf.upgrade();
        let ready = pf.is_some_and(|pf| pf.file.get(r::CTRL_EXT) & ctrl_ext::PFRSTD != 0);
        let Some(channel) = self.channel(vf) else {
            return;
        };
        let (mail, reset) = channel.mailbox(|mailbox| {
            mailbox.set_pf_reset(!ready);
            let causes = mailbox.pf_causes();
            let mail = causes.request || causes.acknowledged;
            (mail, mailbox.pf_reset_seen())
        });
        self.mail.fetch_or(u32::from(mail) << vf, Ordering::AcqRel);
        self.resets
            .fetch_or(u32::from(reset) << vf, Ordering::AcqRel);
    }

    /// The PF is in reset: its VFs see RSTI, and what they said is forgotten.
    pub(crate) fn pf_reset(&self) {
        for channel in &self.channels {
            channel.mailbox(|mailbox| mailbox.pf_restart());
            channel.ring();
        }
        self.take_news();
    }

    /// CTRL_EXT.PFRSTD, or a PF that goes on: its VFs see RSTD, if they saw RSTI.
    pub(crate) fn pf_ready(&self, ready: bool) {
        for channel in self.present() {
            channel.mailbox(|mailbox| mailbox.set_pf_reset(!ready));
            channel.ring();
        }
    }

    /// The channels of the VFs that there are.
    fn present(&self) -> &[Arc<VfChannel>] {
        &self.channels[..self.there() as usize]
    }

    /// MBVFICR.
    pub(crate) fn causes(&self) -> u32 {
        (0..).zip(self.present()).fold(0, |bits, (vf, channel)| {
            let causes = channel.mailbox(|mailbox| mailbox.pf_causes());
            bits | (u32::from(causes.request) | u32::from(causes.acknowledged) << READ_SHIFT) << vf
        })
    }

    /// MBVFICR is written: ones clear.
    pub(crate) fn clear_causes(&self, bits: u32) {
        for (vf, channel) in (0..).zip(&self.channels) {
            let bit = |shift: u32| bits >> (shift + vf) & 1 != 0;
            let causes = Causes {
                request: bit(0),
                acknowledged: bit(READ_SHIFT),
            };
            channel.mailbox(|mailbox| mailbox.pf_clear(causes));
        }
    }

    /// VFLRE.
    pub(crate) fn were_reset(&self) -> u32 {
        (0..).zip(self.present()).fold(0, |bits, (vf, channel)| {
            bits | u32::from(channel.mailbox(|mailbox| mailbox.pf_reset_seen())) << vf
        })
    }

    /// VFLRE is written: ones clear.
    pub(crate) fn clear_resets(&self, bits: u32) {
        for (vf, channel) in (0..).zip(&self.channels) {
            if bits >> vf & 1 != 0 {
                channel.mailbox(|mailbox| mailbox.pf_clear_reset());
            }
        }
    }

    /// Counters, for people.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        visit("vf_messages", of(&self.messages));
        visit("vf_resets", of(&self.restarts));
        visit("vf_spoofed", of(&self.fouls));
    }
}
