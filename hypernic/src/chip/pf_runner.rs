//! The software PF at work: between the VFs' channels, the on-chip switch, and the clock.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use igb::{Event, Grant, VfChannel};
use model::{Clock, Nanos};
use parking_lot::{Condvar, Mutex};
use pf::{
    Change, Down, Effect, Granted, PolicyError, PortVlan, Settings, SoftwarePf, Status, VfId, What,
};
use vale::{PortInfo, Switch};

use super::function_port::FunctionPort;
use crate::config::VfConfig;
use crate::report::Section;

const SECOND: Nanos = 1_000_000_000;

/// What a VF did that the switch refused, by the counters of its port.
const WATCHED: [(&str, What); 3] = [
    ("drop_spoofed", What::Spoofed),
    ("drop_vlan", What::Spoofed),
    ("drop_storm", What::Storm),
];

/// The runner of a chip's VFs.
pub(super) struct PfRunner {
    chip: String,
    clock: Arc<dyn Clock>,
    switch: Switch,
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    pf: SoftwarePf,
    vfs: BTreeMap<VfId, VfEntry>,
    stop: bool,
}

/// A VF as it is reached.
struct VfEntry {
    nic: String,
    channel: Arc<VfChannel>,
    /// The switch's counters as last reported to the software PF.
    seen: [u64; WATCHED.len()],
    port: FunctionPort,
}

/// A VF's word to its runner.
struct Listener {
    runner: Weak<PfRunner>,
    vf: VfId,
}

impl igb::VfListener for Listener {
    fn happened(&self, now: Nanos, event: Event) {
        let Some(runner) = self.runner.upgrade() else {
            return;
        };
        runner.with(Some(self.vf), |pf| match event {
            Event::Reset => pf.reset(self.vf),
            Event::Request(words) => pf.request(self.vf, &words, now),
            Event::Acknowledged => pf.acknowledged(self.vf, now),
            Event::Freed => pf.free(self.vf),
            Event::Loaded(_) => pf.loaded(self.vf),
        });
    }
}

impl PfRunner {
    /// One without VFs yet.
    pub(super) fn start(
        chip: &str,
        rate: Option<u32>,
        switch: Switch,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Arc<PfRunner>> {
        let runner = Arc::new(PfRunner {
            chip: chip.to_owned(),
            clock: Arc::clone(clock),
            switch,
            state: Mutex::new(State {
                pf: SoftwarePf::new(rate),
                vfs: BTreeMap::new(),
                stop: false,
            }),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        });
        let name = format!("software-pf {chip}");
        let thread = threads::spawn(name, {
            let runner = Arc::clone(&runner);
            move || runner.run()
        })?;
        *runner.thread.lock() = Some(thread);
        Ok(runner)
    }

    /// Ends its thread.
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there has already been printed on stderr, and the caller can do nothing about it.
            let _ = thread.join();
        }
    }

    /// Answers the messages that wait for their time, and watches VFs with a strict policy.
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            let now = self.clock.now();
            state.pf.tick(now);
            let watching = self.watch(&mut state, now);
            self.carry_out(&mut state, None);
            let due = state.pf.deadline();
            let wait = match (due, watching) {
                (Some(due), true) => Some(due.saturating_sub(now).min(SECOND)),
                (Some(due), false) => Some(due.saturating_sub(now)),
                (None, true) => Some(SECOND),
                (None, false) => None,
            };
            match wait {
                Some(wait) => {
                    let wait = Duration::from_nanos(wait);
                    self.changed.wait_for(&mut state, wait);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Reports to the software PF what the switch has refused. Returns whether any VF has a strict
    /// policy, and is to be watched.
    fn watch(&self, state: &mut State, now: Nanos) -> bool {
        let State { pf, vfs, .. } = state;
        let strict = |vf: &VfId| pf.status(*vf).is_some_and(|status| status.policy.strict);
        if !vfs.keys().any(strict) {
            return false;
        }
        self.note_refused(pf, vfs, now);
        true
    }

    fn note_refused(&self, pf: &mut SoftwarePf, vfs: &mut BTreeMap<VfId, VfEntry>, now: Nanos) {
        let ports = self.switch.ports();
        let by_name: HashMap<&str, &PortInfo> = ports
            .iter()
            .map(|port| (port.name.as_str(), port))
            .collect();
        for (vf, entry) in vfs {
            let Some(port) = by_name.get(entry.nic.as_str()) else {
                continue;
            };
            for ((name, what), seen) in WATCHED.iter().zip(&mut entry.seen) {
                let counted = port.counters.iter().find(|(n, _)| n == name);
                let total = counted.map_or(0, |(_, n)| *n);
                let new = total.saturating_sub(std::mem::replace(seen, total));
                pf.note(*vf, *what, new, now);
            }
        }
    }

    /// Lets the software PF decide, and does what follows. `asker` is the VF that sent a request: it
    /// looks at its channel by itself.
    fn with<R>(&self, asker: Option<VfId>, decide: impl FnOnce(&mut SoftwarePf) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.pf.deadline();
        let result = decide(&mut state.pf);
        self.carry_out(&mut state, asker);
        let after = state.pf.deadline();
        drop(state);
        if after != before && after.is_some() {
            self.changed.notify_one();
        }
        result
    }

    fn carry_out(&self, state: &mut State, asker: Option<VfId>) {
        loop {
            let effects: Vec<Effect> = state.pf.drain().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out_one(state, asker, effect);
            }
        }
    }

    fn carry_out_one(&self, state: &mut State, asker: Option<VfId>, effect: Effect) {
        let (Effect::Reply { vf, .. }
        | Effect::Read { vf }
        | Effect::Notify { vf, .. }
        | Effect::Settings { vf }
        | Effect::Reset { vf, .. }
        | Effect::ShutDown { vf, .. }) = effect;
        let State { pf, vfs, .. } = state;
        let Some(entry) = vfs.get_mut(&vf) else {
            return;
        };
        let channel = &entry.channel;
        match effect {
            Effect::Reply { message, .. } => channel.mailbox(|mailbox| {
                mailbox.acknowledge();
                // A driver that sends a request and keeps the buffer has no use for an answer.
                mailbox.put(message.words());
            }),
            Effect::Read { .. } => channel.mailbox(|mailbox| mailbox.acknowledge()),
            Effect::Notify { message, .. } => {
                if !channel.mailbox(|mailbox| mailbox.put(message.words())) {
                    pf.unsent(vf);
                }
            }
            Effect::Reset { active, .. } => channel.mailbox(|mailbox| mailbox.set_pf_reset(active)),
            Effect::Settings { .. } => {
                if let Some(settings) = pf.settings(vf) {
                    self.enforce(entry, settings);
                }
            }
            Effect::ShutDown { what, .. } => {
                tracing::warn!(chip = %self.chip, vf, "VF shut down: it {what}");
            }
        }
        if asker != Some(vf) {
            entry.channel.ring();
        }
    }

    /// Puts settings in force, at the switch and at the VF.
    fn enforce(&self, entry: &mut VfEntry, settings: &Settings) {
        entry.port.enforce(&self.switch, &settings.eswitch);
        let tag = settings.tag.map(tag);
        let gap = |rate: u32| SECOND / u64::from(rate.max(1));
        entry.channel.set_grant(Grant {
            enabled: settings.enabled(),
            link: settings.link,
            max_frame: settings.max_frame,
            tag,
            interrupt_gap: settings.interrupts.map_or(0, gap),
        });
    }

    /// A new VF.
    pub(super) fn attach_vf(
        self: &Arc<Self>,
        nic: &str,
        vf: &VfConfig,
    ) -> Result<Arc<VfChannel>, PolicyError> {
        let channel = VfChannel::new();
        channel.listen(Some(Arc::new(Listener {
            runner: Arc::downgrade(self),
            vf: vf.index,
        })));
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.pf.add(vf.index, vf.policy.clone(), now)?;
        let entry = VfEntry {
            nic: nic.to_owned(),
            channel: Arc::clone(&channel),
            seen: [0; WATCHED.len()],
            port: FunctionPort::new(Some(nic)),
        };
        state.vfs.insert(vf.index, entry);
        self.carry_out(&mut state, None);
        let strict = vf.policy.strict;
        drop(state);
        if strict {
            self.changed.notify_one();
        }
        Ok(channel)
    }

    /// A VF has its port at the switch, which is to know its policy.
    pub(super) fn joined(&self, vf: VfId) {
        let mut state = self.state.lock();
        let State { pf, vfs, .. } = &mut *state;
        if let (Some(entry), Some(settings)) = (vfs.get_mut(&vf), pf.settings(vf)) {
            self.enforce(entry, settings);
            entry.channel.ring();
        }
    }

    /// What the driver of a VF was granted.
    pub(super) fn granted(&self, vf: VfId) -> Option<Granted> {
        self.state.lock().pf.granted(vf)
    }

    /// What is put into all that a VF sends.
    pub(super) fn tag(&self, vf: VfId) -> Option<u16> {
        self.state.lock().pf.settings(vf)?.tag.map(tag)
    }

    /// A VF is about to go on that was granted this by the process before.
    pub(super) fn resume(&self, vf: VfId, granted: Granted) {
        self.state.lock().pf.resume(vf, granted);
    }

    pub(super) fn leaving(&self, vf: VfId) {
        self.with(None, |pf| pf.leaving(vf));
    }

    pub(super) fn remove(&self, vf: VfId) {
        let entry = {
            let mut state = self.state.lock();
            state.pf.remove(vf);
            self.carry_out(&mut state, None);
            state.vfs.remove(&vf)
        };
        if let Some(entry) = entry {
            entry.channel.listen(None);
            entry.channel.set_bell(None);
        }
    }

    pub(super) fn set(&self, vf: VfId, changes: &[Change]) -> Result<(), PolicyError> {
        self.with(None, |pf| pf.set_all(vf, changes))
    }

    pub(super) fn check(&self, vf: VfId, changes: &[Change]) -> Result<(), PolicyError> {
        self.state.lock().pf.check_all(vf, changes).map(drop)
    }

    pub(super) fn set_rate(&self, rate: Option<u32>) -> Result<(), PolicyError> {
        self.with(None, |pf| pf.set_port_rate(rate))
    }

    pub(super) fn revive(&self, vf: VfId) -> Result<(), PolicyError> {
        let now = self.clock.now();
        self.with(None, |pf| pf.revive(vf, now))
    }

    pub(super) fn link(&self, up: bool) {
        self.with(None, |pf| pf.link(up));
    }

    pub(super) fn reset(&self) {
        self.with(None, SoftwarePf::pf_reset);
        self.with(None, SoftwarePf::pf_ready);
    }

    /// What a VF is told of the link.
    pub(super) fn has_link(&self, vf: VfId) -> Option<bool> {
        let state = self.state.lock();
        state.pf.settings(vf).map(|settings| settings.link)
    }

    pub(super) fn status(&self, vf: VfId) -> Option<Status> {
        let mut state = self.state.lock();
        let State { pf, vfs, .. } = &mut *state;
        self.note_refused(pf, vfs, self.clock.now());
        self.carry_out(&mut state, None);
        state.pf.status(vf)
    }

    pub(super) fn counters(&self, sections: &mut Vec<Section>) {
        let mut state = self.state.lock();
        let State { pf, vfs, .. } = &mut *state;
        self.note_refused(pf, vfs, self.clock.now());
        self.carry_out(&mut state, None);
        for (vf, entry) in &state.vfs {
            let mut values = Vec::new();
            let mut visit = |name, value| values.push((name, value));
            state.pf.counters(*vf, &mut visit);
            if let Some(Status { ready, down, .. }) = state.pf.status(*vf) {
                visit("vf_ready", ready.into());
                visit("vf_leaving", (down == Some(Down::Leaving)).into());
            }
            sections.push(Section {
                kind: "vf",
                name: entry.nic.clone(),
                values,
            });
        }
    }
}

/// A tag as frames have it.
fn tag(vlan: PortVlan) -> u16 {
    vlan.id | u16::from(vlan.qos) << 13
}
