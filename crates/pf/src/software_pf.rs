//! All VFs of a port under one PF.

use std::collections::{BTreeMap, VecDeque};

use eswitch::Nanos;
use wire::MacAddr;

use crate::granted::Granted;
use crate::message::{Message, WORDS};
use crate::policy::{Change, Policy, PolicyError};
use crate::record::{Down, Record, What};
use crate::settings::Settings;
use crate::vf::{Answer, Vf};

/// The number of a VF on its port.
pub type VfId = u32;

const MEGABIT: u64 = 1_000_000;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The VF's message was read, and this is the answer: PFACK, the words, PFSTS.
    Reply {
        /// Whose.
        vf: VfId,
        /// The answer.
        message: Message,
    },
    /// The VF's message was read, and there is no answer: PFACK.
    Read {
        /// Whose.
        vf: VfId,
    },
    /// Something to tell the VF. When its buffer is taken: [`SoftwarePf::unsent`].
    Notify {
        /// Whom.
        vf: VfId,
        /// What.
        message: Message,
    },
    /// [`SoftwarePf::settings`] has changed.
    Settings {
        /// For whom.
        vf: VfId,
    },
    /// The VF sees that its physical function is in reset (RSTI), or no longer (RSTD).
    Reset {
        /// Which.
        vf: VfId,
        /// Whether it is.
        active: bool,
    },
    /// The VF was shut down; the operator wants to know.
    ShutDown {
        /// Which.
        vf: VfId,
        /// The last thing it did.
        what: What,
    },
}

/// A VF, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What was laid down for it.
    pub policy: Policy,
    /// What follows from that and from what its driver asked.
    pub settings: Settings,
    /// Why it does not work, if it does not.
    pub down: Option<Down>,
    /// Its driver has completed a reset.
    pub ready: bool,
    /// Mailbox messages answered.
    pub messages: u64,
    /// Those that had to wait for their time.
    pub delayed: u64,
    /// What it was refused lately.
    pub records: Vec<Record>,
}

/// The PF of all VFs of a port.
#[derive(Debug)]
pub struct SoftwarePf {
    vfs: BTreeMap<VfId, Vf>,
    out: VecDeque<Effect>,
    /// Megabits a second that the VFs share, if it is configured.
    port_rate: Option<u32>,
    link: bool,
    in_reset: bool,
}

impl SoftwarePf {
    /// No VFs yet; the link is down. `port_rate` is what VFs are promised parts of, in megabits a
    /// second.
    pub fn new(port_rate: Option<u32>) -> SoftwarePf {
        SoftwarePf {
            vfs: BTreeMap::new(),
            out: VecDeque::new(),
            port_rate,
            link: false,
            in_reset: false,
        }
    }

    /// What is to be done since the last call, in its order. Empty it after every other call: only
    /// that bounds it.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect> + use<'_> {
        self.out.drain(..)
    }

    /// What is in force for a VF.
    pub fn settings(&self, vf: VfId) -> Option<&Settings> {
        self.vfs.get(&vf).map(|vf| &vf.settings)
    }

    /// A VF, for display.
    pub fn status(&self, vf: VfId) -> Option<Status> {
        let vf = self.vfs.get(&vf)?;
        Some(Status {
            policy: vf.policy.clone(),
            settings: vf.settings.clone(),
            down: vf.down,
            ready: vf.clear_to_send,
            messages: vf.messages,
            delayed: vf.delayed,
            records: vf.log.iter().copied().collect(),
        })
    }

    /// The counters of a VF.
    pub fn counters(&self, vf: VfId, visit: &mut dyn FnMut(&'static str, u64)) {
        let Some(vf) = self.vfs.get(&vf) else { return };
        visit("vf_messages", vf.messages);
        visit("vf_messages_delayed", vf.delayed);
        for (what, n) in What::ALL.iter().zip(vf.refused) {
            visit(what.name(), n);
        }
        let down = matches!(vf.down, Some(Down::Misbehaved(_)));
        visit("vf_shut_down", down.into());
    }

    /// A new VF, in reset until its driver says otherwise.
    ///
    /// # Errors
    /// A number that is taken, or a policy that cannot be.
    pub fn add(&mut self, vf: VfId, policy: Policy, now: Nanos) -> Result<(), PolicyError> {
        if self.vfs.contains_key(&vf) {
            return Err(PolicyError::Taken(vf));
        }
        self.check(vf, &policy)?;
        self.vfs.insert(vf, Vf::new(policy, now));
        self.out.push_back(Effect::Reset {
            vf,
            active: self.in_reset,
        });
        self.share();
        self.renew(vf, true);
        Ok(())
    }

    /// The operator will take a VF away: its driver sees the link go and its physical function in
    /// reset, and what it sends goes nowhere.
    pub fn leaving(&mut self, vf: VfId) {
        self.put_down(vf, Down::Leaving);
    }

    /// A VF is gone; `false` when there was none.
    pub fn remove(&mut self, vf: VfId) -> bool {
        let there = self.vfs.remove(&vf).is_some();
        self.share();
        there
    }

    /// Changes the policy of a VF. What its driver has to start anew for, it is made to.
    ///
    /// # Errors
    /// No such VF, or a policy that cannot be; nothing changes then.
    pub fn set(&mut self, vf: VfId, change: Change) -> Result<(), PolicyError> {
        self.set_all(vf, &[change])
    }

    /// The policy that changes would lead to.
    ///
    /// # Errors
    /// As [`SoftwarePf::set`].
    pub fn check_all(&self, vf: VfId, changes: &[Change]) -> Result<Policy, PolicyError> {
        let known = self.vfs.get(&vf).ok_or(PolicyError::NoVf(vf))?;
        let mut policy = known.policy.clone();
        for change in changes {
            change.apply(&mut policy);
        }
        self.check(vf, &policy)?;
        Ok(policy)
    }

    /// As [`SoftwarePf::set`], several things at once: all of them or none.
    ///
    /// # Errors
    /// As [`SoftwarePf::set`].
    pub fn set_all(&mut self, vf: VfId, changes: &[Change]) -> Result<(), PolicyError> {
        let policy = self.check_all(vf, changes)?;
        let Some(known) = self.vfs.get_mut(&vf) else {
            return Err(PolicyError::NoVf(vf));
        };
        known.policy = policy;
        if changes.iter().any(|change| change.resets()) {
            // As igb: without the right to send its driver sees a message it must reset upon.
            known.reset();
            self.tell(vf);
        }
        let before = self.vfs.get(&vf).map(|vf| vf.settings.link);
        self.share();
        self.renew(vf, false);
        if self.vfs.get(&vf).map(|vf| vf.settings.link) != before {
            self.tell(vf);
        }
        Ok(())
    }

    /// Changes what all VFs share, in megabits a second.
    ///
    /// # Errors
    /// More than that is promised to them; nothing changes then.
    pub fn set_port_rate(&mut self, rate: Option<u32>) -> Result<(), PolicyError> {
        let promised = self.vfs.values().map(|vf| u64::from(vf.policy.min_tx_rate));
        let sum: u64 = promised.sum();
        match rate {
            None if sum > 0 => return Err(PolicyError::NoPortRate),
            Some(port) if sum > port.into() => {
                let port = port.into();
                return Err(PolicyError::Oversold { sum, port });
            }
            _ => {}
        }
        self.port_rate = rate;
        self.share();
        Ok(())
    }

    /// A VF that was shut down may try again.
    ///
    /// # Errors
    /// No such VF.
    pub fn revive(&mut self, vf: VfId, now: Nanos) -> Result<(), PolicyError> {
        let known = self.vfs.get_mut(&vf).ok_or(PolicyError::NoVf(vf))?;
        if known.down.take().is_some() {
            known.reset();
            known.forgive(now);
            let active = self.in_reset;
            self.out.push_back(Effect::Reset { vf, active });
            self.renew(vf, false);
            self.tell(vf);
        }
        Ok(())
    }

    /// A VF was reset: by its driver (CTRL.RST), by the bus, or because its VMM left (VFLRE).
    pub fn reset(&mut self, vf: VfId) {
        let Some(known) = self.vfs.get_mut(&vf) else {
            return;
        };
        known.reset();
        // A state that was to follow has been refused.
        known.resumes = None;
        self.renew(vf, false);
        let up = !self.in_reset && self.vfs.get(&vf).is_some_and(|vf| vf.down.is_none());
        let active = !up;
        self.out.push_back(Effect::Reset { vf, active });
    }

    /// A VF goes on as another that was saved somewhere (a migration). What its driver had asked for
    /// there is not known here and nothing of it is granted: the driver is made to start anew, as after
    /// a reset of the port.
    ///
    /// Unless [`Self::resume`] has said what it was granted: then its driver notices nothing.
    pub fn loaded(&mut self, vf: VfId) {
        let Some(mut known) = self.vfs.remove(&vf) else {
            return;
        };
        if let Some(granted) = known.resumes.take() {
            let others = &self.vfs;
            known.resume(granted, |mac| others.values().any(|other| other.has(mac)));
            self.vfs.insert(vf, known);
            self.renew(vf, true);
            return;
        }
        let known = self.vfs.entry(vf).or_insert(known);
        known.reset();
        let up = known.down.is_none() && !self.in_reset;
        self.out.push_back(Effect::Reset { vf, active: true });
        self.renew(vf, false);
        if up {
            self.out.push_back(Effect::Reset { vf, active: false });
        }
        self.tell(vf);
    }

    /// What the driver of a VF was granted, for the process that goes on with it.
    pub fn granted(&self, vf: VfId) -> Option<Granted> {
        self.vfs.get(&vf).map(Vf::granted)
    }

    /// A VF will be [loaded](Self::loaded) that was granted this by the process before.
    pub fn resume(&mut self, vf: VfId, granted: Granted) {
        if let Some(known) = self.vfs.get_mut(&vf) {
            known.resumes = Some(granted);
        }
    }

    /// A VF has put a message into its mailbox and asked to read it (REQ).
    pub fn request(&mut self, vf: VfId, words: &[u32; WORDS], now: Nanos) {
        let Some(known) = self.vfs.get_mut(&vf) else {
            return;
        };
        if known.down.is_some() || self.in_reset {
            return;
        }
        if known.waiting.is_some() {
            return self.note(vf, What::Flood, 1, now);
        }
        if !known.admit(now) {
            known.delayed += 1;
            known.waiting = Some(Box::new(*words));
            return;
        }
        self.answer(vf, words, now);
    }

    /// A VF has read what was in its mailbox (ACK).
    pub fn acknowledged(&mut self, vf: VfId, now: Nanos) {
        let in_reset = self.in_reset;
        let Some(known) = self.vfs.get_mut(&vf) else {
            return;
        };
        if known.down.is_some() || in_reset {
            return;
        }
        // igb: a VF that has not completed a reset shall not read either.
        if !known.clear_to_send && known.may_nack(now) {
            let message = Message::nack();
            self.out.push_back(Effect::Notify { vf, message });
        }
        self.free(vf);
    }

    /// The buffer of a VF's mailbox is free.
    pub fn free(&mut self, vf: VfId) {
        if self.vfs.get(&vf).is_some_and(|vf| vf.ping_due) {
            self.tell(vf);
        }
    }

    /// What a VF was to be told found its buffer taken: it is told when the buffer is free.
    pub fn unsent(&mut self, vf: VfId) {
        if let Some(known) = self.vfs.get_mut(&vf) {
            known.ping_due = true;
        }
    }

    /// A VF did something `count` times that the switch refused.
    pub fn note(&mut self, vf: VfId, what: What, count: u64, now: Nanos) {
        let Some(known) = self.vfs.get_mut(&vf).filter(|_| count > 0) else {
            return;
        };
        if known.refuse(what, count, now) {
            self.out.push_back(Effect::ShutDown { vf, what });
            self.after_down(vf);
        }
    }

    /// The port's link has changed; VFs are told.
    pub fn link(&mut self, up: bool) {
        if std::mem::replace(&mut self.link, up) == up {
            return;
        }
        for vf in self.ids() {
            if self.renew(vf, false) {
                self.tell(vf);
            }
        }
    }

    /// The physical function is reset: all VFs stop until it is ready, and then start anew.
    pub fn pf_reset(&mut self) {
        self.in_reset = true;
        for vf in self.ids() {
            self.tell(vf);
            if let Some(known) = self.vfs.get_mut(&vf) {
                known.reset();
            }
            self.out.push_back(Effect::Reset { vf, active: true });
            self.renew(vf, false);
        }
    }

    /// The physical function works again.
    pub fn pf_ready(&mut self) {
        self.in_reset = false;
        for vf in self.ids() {
            // The link is back: a driver that has seen it go looks at its mailbox only where there is one.
            self.renew(vf, false);
            if self.vfs.get(&vf).is_some_and(|vf| vf.down.is_none()) {
                self.out.push_back(Effect::Reset { vf, active: false });
                self.tell(vf);
            }
        }
    }

    /// Answers the messages whose time has come.
    pub fn tick(&mut self, now: Nanos) {
        for vf in self.ids() {
            let Some(known) = self.vfs.get_mut(&vf) else {
                continue;
            };
            if known.nack_again(now) {
                let message = Message::nack();
                self.out.push_back(Effect::Notify { vf, message });
            }
            if known.waiting.is_some()
                && known.admit(now)
                && let Some(words) = known.waiting.take()
            {
                self.answer(vf, &words, now);
            }
        }
    }

    /// When to call [`SoftwarePf::tick`].
    pub fn deadline(&self) -> Option<Nanos> {
        self.vfs.values().filter_map(Vf::next).min()
    }

    /// When to call [`SoftwarePf::tick`] for this VF's sake.
    pub fn deadline_of(&self, vf: VfId) -> Option<Nanos> {
        self.vfs.get(&vf)?.next()
    }

    fn ids(&self) -> Vec<VfId> {
        self.vfs.keys().copied().collect()
    }

    fn check(&self, vf: VfId, policy: &Policy) -> Result<(), PolicyError> {
        policy.check()?;
        let mac = policy.mac;
        let others = || self.vfs.iter().filter(|(id, _)| **id != vf);
        if let Some((vf, _)) = others().find(|(_, other)| other.has(mac)) {
            return Err(PolicyError::MacTaken { mac, vf: *vf });
        }
        let promised = others().map(|(_, vf)| u64::from(vf.policy.min_tx_rate));
        let sum = promised.sum::<u64>() + u64::from(policy.min_tx_rate);
        match self.port_rate {
            None if policy.min_tx_rate > 0 => Err(PolicyError::NoPortRate),
            Some(port) if sum > port.into() => Err(PolicyError::Oversold {
                sum,
                port: port.into(),
            }),
            _ => Ok(()),
        }
    }

    /// What each may send: its own limit, and what the others are promised of the port's rate.
    fn share(&mut self) {
        let promised = self.vfs.values().map(|vf| u64::from(vf.policy.min_tx_rate));
        let promised: u64 = promised.sum();
        let mut changed = Vec::new();
        for (id, vf) in &mut self.vfs {
            let most = Some(u64::from(vf.policy.max_tx_rate)).filter(|rate| *rate > 0);
            let others = promised - u64::from(vf.policy.min_tx_rate);
            let left = match self.port_rate {
                Some(port) if others > 0 => Some(u64::from(port).saturating_sub(others).max(1)),
                _ => None,
            };
            let rate = match (most, left) {
                (Some(most), Some(left)) => Some(most.min(left)),
                (most, left) => most.or(left),
            };
            let rate = rate.map(|megabits| megabits * MEGABIT);
            if std::mem::replace(&mut vf.tx_rate, rate) != rate {
                changed.push(*id);
            }
        }
        for vf in changed {
            self.renew(vf, false);
        }
    }

    /// Brings the settings of a VF up to date, and says so when they have changed.
    fn renew(&mut self, vf: VfId, always: bool) -> bool {
        let up = self.link && !self.in_reset;
        let Some(known) = self.vfs.get_mut(&vf) else {
            return false;
        };
        let changed = known.renew(up) || always;
        if changed {
            self.out.push_back(Effect::Settings { vf });
        }
        changed
    }

    /// Has a VF's driver look: its link, or its right to send, has changed.
    fn tell(&mut self, vf: VfId) {
        if let Some(known) = self.vfs.get_mut(&vf) {
            known.ping_due = false;
            let message = Message::control(known.clear_to_send);
            self.out.push_back(Effect::Notify { vf, message });
        }
    }

    fn answer(&mut self, vf: VfId, words: &[u32; WORDS], now: Nanos) {
        let Some(mut known) = self.vfs.remove(&vf) else {
            return;
        };
        let others = &self.vfs;
        let taken = |mac: MacAddr| others.values().any(|other| other.has(mac));
        let answer = known.answer(words, taken);
        let nack = matches!(answer, Answer::NotReset(_)) && known.may_nack(now);
        self.vfs.insert(vf, known);
        // Settings before the answer: a driver that reads it may send at once.
        self.renew(vf, false);
        let (effect, refused) = match answer {
            Answer::Reply(message, refused) => (Effect::Reply { vf, message }, refused),
            Answer::NotReset(message) if nack => {
                (Effect::Reply { vf, message }, Some(What::NotReset))
            }
            Answer::NotReset(_) => (Effect::Read { vf }, Some(What::NotReset)),
            Answer::Nothing => (Effect::Read { vf }, None),
        };
        self.out.push_back(effect);
        if let Some(what) = refused {
            self.note(vf, what, 1, now);
        }
    }

    fn put_down(&mut self, vf: VfId, why: Down) {
        if let Some(known) = self.vfs.get_mut(&vf) {
            known.down = Some(why);
            self.after_down(vf);
        }
    }

    fn after_down(&mut self, vf: VfId) {
        if let Some(known) = self.vfs.get_mut(&vf) {
            known.clear_to_send = false;
            known.waiting = None;
            known.nack_due = false;
        }
        self.renew(vf, false);
        self.out.push_back(Effect::Reset { vf, active: true });
        self.tell(vf);
    }
}
