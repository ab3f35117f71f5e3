//! What lies between a VF and its PF.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use frame::Wake;
use model::{Env, Nanos};
use parking_lot::Mutex;

use crate::core::function::Function;
use crate::core::stats::{Stat, Stats};
use crate::regs::settings::VfSettings;
use crate::sriov::mailbox::{Mailbox, WORDS};

/// What a PF grants a VF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// It may send and receive (VFTE, VFRE).
    pub enabled: bool,
    /// Its link is up.
    pub link: bool,
    /// Longest frame it receives, FCS included (VMOLR.RLPML).
    pub max_frame: u16,
    /// A tag for all that it sends: the TCI (VMVIR).
    pub tag: Option<u16>,
    /// Least time between two interrupts of a vector, whatever VTEITR says; zero for none.
    pub interrupt_gap: Nanos,
}

/// What a VF tells its PF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was reset (VFLRE).
    Reset,
    /// It has sent a message, which is given as it was then.
    Request([u32; WORDS]),
    /// It has read what was in its mailbox.
    Acknowledged,
    /// Its mailbox's buffer is free.
    Freed,
    /// It goes on as another that was saved ([`crate::vf_state`]), to which so much was granted, says
    /// the state. What is on the channel is in force.
    Loaded(Grant),
}

/// The PF of a VF. Called from the VF's register accesses, with no lock of the channel held: it may use
/// the channel at once, and the VF looks at it before the access is answered.
pub trait VfListener: Send + Sync {
    /// Something has happened.
    fn happened(&self, now: Nanos, event: Event);
}

/// What the statistics registers of a VF count.
const COUNTED: [Stat; 5] = [Stat::Gprc, Stat::Gptc, Stat::Gorc, Stat::Gotc, Stat::Mprc];

/// The channel of one VF: its mailbox, what is granted to it, and its PF.
///
/// The PF changes it whenever it likes, from any thread, and then has the VF's
/// [`attend`](model::Control::attend) called.
#[derive(Default)]
pub struct VfChannel {
    mailbox: Mutex<Versioned>,
    grant: Mutex<(Grant, VfSettings)>,
    listener: Mutex<Option<Arc<dyn VfListener>>>,
    bell: Mutex<Option<Arc<dyn Wake>>>,
    /// What VFs that were attached here have counted: their port's statistics go on when they are gone.
    stats: Arc<Stats>,
    /// What had been counted where the statistics registers showed 0.
    past: Mutex<[u32; COUNTED.len()]>,
    /// The VF attached here, and what it runs with.
    attached: Mutex<Option<(Weak<Function>, Env)>>,
    /// Its PF has written to its queues.
    poked: AtomicBool,
    /// Its PF reads MBVFICR: a message stays there until that is cleared.
    by_registers: bool,
}

/// A mailbox, and how often it was changed: where both sides have saved it, the one that was changed more often is the later.
#[derive(Default)]
struct Versioned {
    mailbox: Mailbox,
    version: u64,
    /// It is one that was saved.
    goes_on: bool,
    /// The version of the one that its VF is about to go on with.
    expected: Option<u64>,
}

impl VfChannel {
    /// One without a PF yet.
    pub fn new() -> Arc<VfChannel> {
        Arc::default()
    }

    /// One whose PF has registers.
    pub(crate) fn of_registers() -> Arc<VfChannel> {
        Arc::new(VfChannel {
            by_registers: true,
            ..VfChannel::default()
        })
    }

    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    fn counted(&self) -> [u32; COUNTED.len()] {
        COUNTED.map(|stat| self.stats.total(stat) as u32)
    }

    /// What the statistics registers show: packets received and sent, octets received and sent, packets
    /// for groups. They wrap, and nothing clears them.
    pub(crate) fn statistics(&self) -> [u32; COUNTED.len()] {
        let (now, past) = (self.counted(), *self.past.lock());
        std::array::from_fn(|at| now[at].wrapping_sub(past[at]))
    }

    /// Has the statistics registers show these values.
    pub(crate) fn show(&self, values: [u32; COUNTED.len()]) {
        let now = self.counted();
        *self.past.lock() = std::array::from_fn(|at| now[at].wrapping_sub(values[at]));
    }

    /// Attaches the VF that runs.
    pub(crate) fn attach(&self, function: &Arc<Function>, env: &Env) {
        *self.attached.lock() = Some((Arc::downgrade(function), env.clone()));
    }

    /// Detaches it, and with it its guest's memory.
    pub(crate) fn leave(&self, function: &Arc<Function>) {
        let own =
            |(current, _): &mut (Weak<Function>, Env)| current.as_ptr() == Arc::as_ptr(function);
        self.attached.lock().take_if(own);
    }

    /// The VF that is attached.
    pub(crate) fn attached(&self) -> Option<(Arc<Function>, Env)> {
        let attached = self.attached.lock();
        let (function, env) = attached.as_ref()?;
        Some((function.upgrade()?, env.clone()))
    }

    /// Has the VF look at its queues.
    pub(crate) fn poke(&self) {
        self.poked.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether it was to look.
    pub(crate) fn take_poke(&self) -> bool {
        self.poked.swap(false, Ordering::AcqRel)
    }

    /// The VF has a message: all of it, copied once.
    pub(crate) fn request(&self) -> [u32; WORDS] {
        self.mailbox(|mailbox| match self.by_registers {
            true => mailbox.words(),
            false => mailbox.take(),
        })
    }

    /// Sets what the VF tells its PF; `None` leaves the VF without one.
    pub fn listen(&self, listener: Option<Arc<dyn VfListener>>) {
        *self.listener.lock() = listener;
    }

    /// Sets what has the VF look at its channel.
    pub fn set_bell(&self, bell: Option<Arc<dyn Wake>>) {
        *self.bell.lock() = bell;
    }

    /// Has the VF look at its channel.
    pub fn ring(&self) {
        let bell = self.bell.lock().clone();
        if let Some(bell) = bell {
            bell.wake();
        }
    }

    /// Does something with the mailbox.
    pub fn mailbox<R>(&self, does: impl FnOnce(&mut Mailbox) -> R) -> R {
        let mut kept = self.mailbox.lock();
        let before = kept.mailbox.clone();
        let done = does(&mut kept.mailbox);
        if kept.mailbox != before {
            kept.version += 1;
        }
        done
    }

    /// How often the mailbox was changed.
    pub fn version(&self) -> u64 {
        self.mailbox.lock().version
    }

    /// The VF will be loaded with the mailbox as it was when it had been changed so often.
    pub fn expect(&self, version: u64) {
        self.mailbox.lock().expected = Some(version);
    }

    /// The mailbox as it is, and how often it was changed.
    pub(crate) fn copy(&self) -> (u64, Mailbox) {
        let kept = self.mailbox.lock();
        (kept.version, kept.mailbox.clone())
    }

    /// Goes on with a mailbox that its PF has saved, unless the one there is is later.
    pub(crate) fn go_on(&self, (version, mailbox): (u64, Mailbox)) {
        let mut kept = self.mailbox.lock();
        if !kept.goes_on || kept.version < version {
            (kept.mailbox, kept.version, kept.goes_on) = (mailbox, version, true);
        }
    }

    /// The same for its VF. Without a version it counts whatever there is.
    pub(crate) fn load(&self, mailbox: Mailbox) {
        let expected = self.mailbox.lock().expected.take();
        match expected {
            Some(version) => self.go_on((version, mailbox)),
            None => self.mailbox(|live| *live = mailbox),
        }
    }

    /// What is granted.
    pub fn grant(&self) -> Grant {
        self.grant.lock().0
    }

    /// Grants something else.
    pub fn set_grant(&self, grant: Grant) {
        self.grant.lock().0 = grant;
    }

    /// What is granted, and in which manner.
    pub(crate) fn granted(&self) -> (Grant, VfSettings) {
        *self.grant.lock()
    }

    pub(crate) fn vf_settings(&self) -> VfSettings {
        self.grant.lock().1
    }

    /// As [`VfChannel::set_grant`]. Whether it is something else than before.
    pub(crate) fn set_granted(&self, grant: Grant, settings: VfSettings) -> bool {
        let old = std::mem::replace(&mut *self.grant.lock(), (grant, settings));
        old != (grant, settings)
    }

    pub(crate) fn tell(&self, now: Nanos, event: Event) {
        let listener = self.listener.lock().clone();
        if let Some(listener) = listener {
            listener.happened(now, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_mailbox_that_both_sides_have_saved_the_later_counts() {
        let word = |value| {
            let mut mailbox = Mailbox::default();
            mailbox.set_word(0, value);
            mailbox
        };
        let now = |channel: &VfChannel| channel.mailbox(|mailbox| mailbox.word(0));
        for (pf, vf, first, later) in [(7, 5, true, 1), (5, 7, true, 2), (7, 5, false, 1)] {
            let channel = VfChannel::of_registers();
            // What happens before either is there is of no account.
            channel.mailbox(|mailbox| mailbox.set_word(1, 9));
            let by_pf = || channel.go_on((pf, word(1)));
            if first {
                by_pf();
            }
            channel.expect(vf);
            channel.load(word(2));
            if !first {
                by_pf();
            }
            assert_eq!((now(&channel), channel.version()), (later, pf.max(vf)));
            channel.mailbox(|mailbox| mailbox.set_word(0, 3));
            assert_eq!(channel.version(), pf.max(vf) + 1);
            // A migration, which has one side only.
            channel.load(word(4));
            assert_eq!(now(&channel), 4);
        }
    }
}
