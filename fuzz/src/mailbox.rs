//! VFs of an 82576, their mailboxes, and the software PF that answers: messages of any words, floods,
//! resets of either side, and policies that change in between.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use eswitch::{AddressFilter, Storm};
use guest_mem::Memory;
use igb::{Event, Grant, VfChannel};
use intel_offsets::igbvf::long::{V2PMAILBOX, VMBMEM, VTCTRL, VTEICR};
use intel_offsets::igbvf::mailbox::{PFU, REQ, RSTD, RSTI, VFU};
use model::{Clock, Env, Nanos, Nic, PciState, ResetKind};
use model_testkit::{Silent, Time};
use pf::{Change, Down, Effect, LinkState, Policy, PortVlan, Settings, SoftwarePf, VfId, What};
use registry::Function;
use wire::MacAddr;

use crate::input::Input;
use crate::nic::nic;

/// A message that was refused.
const NACK: u32 = 0x4000_0000;
/// VFs there are at most.
const VFS: VfId = 3;
/// What one thing that happens may lead to: for each VF it is told of a reset, its settings change, it
/// hears of both, and is shut down; some more for whom it is about.
const EFFECTS: usize = 4 * VFS as usize + 8;
/// Addresses, groups and records that are kept of a VF, whatever it says.
const MACS: usize = 16;
const HASHES: usize = 30;
const RECORDS: usize = 16;

fn mac(n: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, n])
}

/// The software PF, the channels of its VFs, and what was seen of its decisions.
struct Hub {
    pf: SoftwarePf,
    channels: BTreeMap<VfId, Arc<VfChannel>>,
    /// Replies that refuse something, since the VF was added.
    refused: BTreeMap<VfId, u64>,
    /// Those that were shut down, in this step.
    shut: Vec<VfId>,
}

impl Hub {
    /// Does what the software PF has decided, as the daemon does.
    fn carry_out(&mut self) {
        let mut done = 0;
        loop {
            let effects: Vec<_> = self.pf.drain().collect();
            if effects.is_empty() {
                return;
            }
            done += effects.len();
            assert!(done <= EFFECTS, "{done} effects of one cause: {effects:?}");
            for effect in effects {
                self.carry_out_one(effect);
            }
        }
    }

    fn carry_out_one(&mut self, effect: Effect) {
        let (Effect::Reply { vf, .. }
        | Effect::Read { vf }
        | Effect::Notify { vf, .. }
        | Effect::Settings { vf }
        | Effect::Reset { vf, .. }
        | Effect::ShutDown { vf, .. }) = effect;
        let Some(channel) = self.channels.get(&vf) else {
            return;
        };
        match effect {
            Effect::Reply { message, .. } => {
                if message.words()[0] & NACK != 0 {
                    *self.refused.entry(vf).or_default() += 1;
                }
                channel.mailbox(|mailbox| {
                    mailbox.acknowledge();
                    mailbox.put(message.words());
                });
            }
            Effect::Read { .. } => channel.mailbox(|mailbox| mailbox.acknowledge()),
            Effect::Notify { message, .. } => {
                if !channel.mailbox(|mailbox| mailbox.put(message.words())) {
                    self.pf.unsent(vf);
                }
            }
            Effect::Reset { active, .. } => channel.mailbox(|mailbox| mailbox.set_pf_reset(active)),
            Effect::Settings { .. } => {
                if let Some(settings) = self.pf.settings(vf) {
                    channel.set_grant(granted(settings));
                }
            }
            Effect::ShutDown { .. } => self.shut.push(vf),
        }
    }
}

/// What the settings mean for the VF itself.
fn granted(settings: &Settings) -> Grant {
    let gap = |rate: u32| 1_000_000_000 / u64::from(rate.max(1));
    Grant {
        enabled: settings.enabled(),
        link: settings.link,
        max_frame: settings.max_frame,
        tag: settings.tag.map(|tag| tag.id | u16::from(tag.qos) << 13),
        interrupt_gap: settings.interrupts.map_or(0, gap),
    }
}

fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock().unwrap_or_else(|e| e.into_inner())
}

/// A VF's word to its PF.
struct Listener {
    hub: Arc<Mutex<Hub>>,
    vf: VfId,
}

/// The VF behind this channel.
fn function(vf: VfId, channel: Arc<VfChannel>) -> Nic {
    let settings = registry::Settings::new(mac(vf as u8).0);
    nic("82576", &settings, &Function::Vf(channel))
}

impl igb::VfListener for Listener {
    fn happened(&self, now: Nanos, event: Event) {
        let mut hub = lock(&self.hub);
        match event {
            Event::Reset => hub.pf.reset(self.vf),
            Event::Request(words) => hub.pf.request(self.vf, &words, now),
            Event::Acknowledged => hub.pf.acknowledged(self.vf, now),
            Event::Freed => hub.pf.free(self.vf),
            Event::Loaded(_) => hub.pf.loaded(self.vf),
        }
        hub.carry_out();
    }
}

/// The VFs, their PF, and the time.
struct Chip {
    hub: Arc<Mutex<Hub>>,
    vfs: BTreeMap<VfId, Nic>,
    env: Env,
    time: Arc<Time>,
    /// What was counted of each VF.
    counters: BTreeMap<VfId, Vec<u64>>,
    /// When each VF was added, and how many messages it had answered then: none.
    since: BTreeMap<VfId, Nanos>,
    /// The mailbox's rate and burst of all.
    rate: (u32, u32),
}

/// What VFs say to the software PF by their mailboxes, and what becomes of it.
///
/// One cause has few effects; messages are answered no faster than the mailbox's rate; no VF has
/// another's address, or may send without having completed a reset; what is refused is counted; what
/// is kept of a VF is bounded; no access touches guest memory.
pub fn mailbox(data: &[u8]) {
    let mut input = Input::new(data);
    let setup = input.u8();
    let mut chip = Chip::new(setup);
    for _ in 0..200 {
        let Some(op) = input.op() else { break };
        chip.step(op, &mut input);
        chip.check();
    }
}

impl Chip {
    fn new(setup: u8) -> Chip {
        let time = Arc::new(Time::at(2_000_000_000));
        let env = Env {
            memory: Memory::new(),
            irq: Arc::new(Silent),
            clock: time.clone(),
            timer: time.clone(),
        };
        let pf = SoftwarePf::new((setup & 1 != 0).then_some(1000));
        let hub = Hub {
            pf,
            channels: BTreeMap::new(),
            refused: BTreeMap::new(),
            shut: Vec::new(),
        };
        let rates = [(1000, 256), (10, 2), (0, 0), (100, 40)];
        let mut chip = Chip {
            hub: Arc::new(Mutex::new(hub)),
            vfs: BTreeMap::new(),
            env,
            time,
            counters: BTreeMap::new(),
            since: BTreeMap::new(),
            rate: rates[usize::from(setup >> 1 & 3)],
        };
        for vf in 0..2 {
            chip.add(vf, setup >> 3);
        }
        chip.rule(|pf| pf.link(true));
        chip
    }

    fn now(&self) -> Nanos {
        self.time.now()
    }

    /// the software PF decides something, and all VFs look at their channels.
    fn rule<R>(&mut self, decide: impl FnOnce(&mut SoftwarePf) -> R) -> R {
        let mut hub = lock(&self.hub);
        let result = decide(&mut hub.pf);
        hub.carry_out();
        drop(hub);
        for nic in self.vfs.values_mut() {
            nic.control.attend(&self.env);
        }
        result
    }

    fn add(&mut self, vf: VfId, bits: u8) {
        let mut policy = Policy::new(mac(vf as u8 + 1));
        policy.mac_set = bits & 1 != 0;
        policy.trust = bits & 2 != 0;
        policy.strict = bits & 4 != 0;
        (policy.mailbox_rate, policy.mailbox_burst) = self.rate;
        if bits & 8 != 0 {
            policy.vlan = Some(PortVlan { id: 7, qos: 3 });
        }
        let channel = VfChannel::new();
        channel.listen(Some(Arc::new(Listener {
            hub: Arc::clone(&self.hub),
            vf,
        })));
        let now = self.now();
        let mut hub = lock(&self.hub);
        if hub.pf.add(vf, policy, now).is_err() {
            return;
        }
        hub.refused.insert(vf, 0);
        hub.channels.insert(vf, Arc::clone(&channel));
        hub.carry_out();
        drop(hub);
        let mut nic = function(vf, channel);
        let pci = PciState {
            bus_master: true,
            msix: true,
            ..PciState::default()
        };
        nic.control.pci(&self.env, pci);
        nic.control.attend(&self.env);
        self.vfs.insert(vf, nic);
        self.counters.remove(&vf);
        self.since.insert(vf, now);
    }

    fn remove(&mut self, vf: VfId) {
        self.rule(|pf| pf.remove(vf));
        let mut hub = lock(&self.hub);
        if let Some(channel) = hub.channels.remove(&vf) {
            channel.listen(None);
        }
        hub.refused.remove(&vf);
        drop(hub);
        self.vfs.remove(&vf);
        self.since.remove(&vf);
    }

    fn write(&mut self, vf: VfId, at: u64, bytes: &[u8]) {
        if let Some(nic) = self.vfs.get_mut(&vf) {
            nic.control.write(&self.env, 0, at, bytes);
            nic.control.take_work();
        }
    }

    fn read(&mut self, vf: VfId, at: u64) -> u32 {
        let mut bytes = [0; 4];
        if let Some(nic) = self.vfs.get_mut(&vf) {
            nic.control.read(&self.env, 0, at, &mut bytes);
        }
        u32::from_le_bytes(bytes)
    }

    /// A message as igbvf sends it.
    fn send(&mut self, vf: VfId, words: &[u32]) {
        self.write(vf, V2PMAILBOX, &VFU.to_le_bytes());
        for (i, word) in (0..).zip(words) {
            self.write(vf, VMBMEM + i * 4, &word.to_le_bytes());
        }
        self.write(vf, V2PMAILBOX, &REQ.to_le_bytes());
    }

    fn step(&mut self, op: u8, input: &mut Input<'_>) {
        let more = op >> 4;
        let vf = VfId::from(more % 4).min(VFS - 1);
        match op & 15 {
            0..=2 => {
                let words = message(input);
                self.send(vf, &words);
            }
            3 => {
                // The same many times.
                let words = message(input);
                for _ in 0..input.u8() {
                    self.send(vf, &words);
                }
            }
            4 => {
                let value = input.u8();
                self.write(vf, V2PMAILBOX, &u32::from(value).to_le_bytes());
            }
            5 => {
                let at = VMBMEM + u64::from(input.u8() & 15) * 4;
                let value = input.value();
                self.write(vf, at, &value.to_le_bytes());
            }
            6 => {
                let flags = self.read(vf, V2PMAILBOX);
                assert_ne!(flags & (VFU | PFU), VFU | PFU, "both have the buffer");
                assert_ne!(flags & (RSTI | RSTD), RSTI | RSTD, "in reset and not");
                let again = self.read(vf, V2PMAILBOX);
                assert_eq!(again & !(VFU | PFU | RSTI), 0, "cleared by reading");
                self.read(vf, VTEICR);
            }
            7 => self.write(vf, VTCTRL, &(1u32 << 26).to_le_bytes()),
            8 => {
                // Any access near the mailbox.
                let at = u64::from(input.u16()) % 0x1000;
                let len = usize::from(input.u8() % 9);
                let bytes = input.bytes(len);
                self.write(vf, at, bytes);
            }
            9 => {
                let passed = u64::from(input.u16()) << (input.u8() % 24);
                let now = self.now() + passed;
                self.time.now.store(now, Ordering::Relaxed);
                let due = lock(&self.hub).pf.deadline();
                if more & 4 == 0 || due.is_some_and(|due| due <= now) {
                    self.rule(|pf| pf.tick(now));
                }
                let left = lock(&self.hub).pf.deadline();
                assert!(left.is_none_or(|left| left > now || more & 4 != 0));
            }
            10 => self.change(vf, input),
            11 => match more >> 2 {
                0 => self.rule(|pf| pf.link(more & 1 != 0)),
                1 => self.rule(SoftwarePf::pf_reset),
                _ => self.rule(SoftwarePf::pf_ready),
            },
            12 => match input.u8() % 6 {
                0 => self.rule(|pf| pf.leaving(vf)),
                1 => self.remove(vf),
                2 | 3 => self.add(vf, input.u8()),
                _ => {
                    let now = self.now();
                    // There may be none.
                    let _ = self.rule(|pf| pf.revive(vf, now));
                }
            },
            13 => {
                let what = What::ALL[usize::from(input.u8()) % What::ALL.len()];
                let count = u64::from(input.u16());
                let now = self.now();
                self.rule(|pf| pf.note(vf, what, count, now));
            }
            14 => self.move_on(vf),
            _ => {
                if let Some(nic) = self.vfs.get_mut(&vf) {
                    nic.control.reset(&self.env, ResetKind::Bus);
                    nic.control.attend(&self.env);
                }
            }
        }
    }

    fn change(&mut self, vf: VfId, input: &mut Input<'_>) {
        let value = input.u16();
        let on = value & 1 != 0;
        let change = match input.u8() % 9 {
            0 => Change::Mac(mac(value as u8 & 7)),
            1 => Change::Vlan(on.then_some(PortVlan {
                id: value >> 4,
                qos: (value >> 1) as u8 & 7,
            })),
            2 => Change::Trust(on),
            3 => Change::SpoofCheck(on),
            4 => Change::State(match value % 3 {
                0 => LinkState::Auto,
                1 => LinkState::Enable,
                _ => LinkState::Disable,
            }),
            5 => Change::MaxTxRate(u32::from(value)),
            6 => Change::MinTxRate(u32::from(value)),
            7 => Change::Storm(Storm {
                broadcast: on.then_some(value.into()),
                multicast: None,
                unknown: None,
            }),
            _ => Change::Interrupts(on.then_some(value.into())),
        };
        let policy = |hub: &Hub| hub.pf.status(vf).map(|status| status.policy);
        let before = policy(&lock(&self.hub));
        if self.rule(|pf| pf.set(vf, change)).is_err() {
            assert_eq!(policy(&lock(&self.hub)), before, "a refusal leaves a trace");
        }
    }

    /// The VF goes on as another.
    fn move_on(&mut self, vf: VfId) {
        let channel = lock(&self.hub).channels.get(&vf).cloned();
        let (Some(nic), Some(channel)) = (self.vfs.get_mut(&vf), channel) else {
            return;
        };
        let blob = nic.control.save(&self.env);
        let mut other = function(vf, channel);
        let loaded = other.control.load(&self.env, &blob);
        loaded.expect("its own state");
        *nic = other;
        let ready = lock(&self.hub).pf.status(vf).is_some_and(|s| s.ready);
        assert!(!ready, "what another was granted");
    }

    fn check(&mut self) {
        let now = self.now();
        let mut hub = lock(&self.hub);
        let Hub {
            pf,
            channels,
            refused,
            shut,
        } = &mut *hub;
        let mut macs: Vec<MacAddr> = Vec::new();
        for (vf, channel) in channels.iter() {
            let (settings, status) = (pf.settings(*vf).expect("settings"), pf.status(*vf));
            let pool = &settings.eswitch.pool;
            let status = status.expect("a VF");
            assert_eq!(settings.enabled(), status.ready && status.down.is_none());
            assert_eq!(
                channel.grant(),
                granted(settings),
                "what is granted is what is in force"
            );
            assert!(pool.macs.len() <= MACS && status.records.len() <= RECORDS);
            if let AddressFilter::Hashes(hashes) = &pool.groups {
                assert!(hashes.count() as usize <= HASHES);
            }
            for mac in &pool.macs {
                assert!(mac.is_unicast() && !macs.contains(mac), "{mac} twice");
            }
            macs.extend(&pool.macs);
            if let Some(vlan) = status.policy.vlan {
                assert_eq!(settings.tag, Some(vlan));
                assert!(pool.filters_vlans && pool.vlans.iter().eq([vlan.id]));
            }
            // A burst, and the rate ever since, both at least 1.
            let (rate, burst) = (self.rate.0.max(1), self.rate.1.max(1));
            let passed = u128::from(now - self.since[vf]);
            let most = u128::from(burst) + passed * u128::from(rate) / 1_000_000_000;
            let messages = u128::from(status.messages);
            assert!(messages <= most + 1, "{messages} messages, {most} allowed");
            let mut counters = Vec::new();
            let mut noted = 0;
            pf.counters(*vf, &mut |name, n| {
                if name.starts_with("vf_refused_") {
                    noted += n;
                }
                if name != "vf_shut_down" {
                    counters.push(n);
                }
            });
            assert!(noted >= refused[vf], "a refusal that nobody counted");
            if let Some(old) = self.counters.get(vf) {
                let fallen = old.iter().zip(&counters).any(|(old, new)| new < old);
                assert!(!fallen, "a counter has fallen");
            }
            self.counters.insert(*vf, counters);
            if shut.contains(vf) {
                assert!(matches!(status.down, Some(Down::Misbehaved(_))));
                assert!(!status.records.is_empty(), "shut down without a record");
            }
        }
        shut.clear();
        let touched = self.env.memory.meter().totals().reads;
        assert_eq!(touched, 0, "a mailbox has no business in guest memory");
    }
}

/// Words of a message: one that drivers send, with anything in it, or any.
fn message(input: &mut Input<'_>) -> Vec<u32> {
    let kind = input.u8();
    let first = match kind & 7 {
        0 => input.u32(),
        kind => u32::from(kind),
    };
    let info = if kind & 8 != 0 {
        u32::from(input.u8()) << 16
    } else {
        0
    };
    let mut words = vec![first | info];
    match kind >> 4 & 3 {
        0 => {}
        1 => {
            // An address of one of few, its own among them.
            words.push(0x0000_5452);
            words.push(u32::from(input.u8() & 0xf) << 8);
        }
        2 => words.push(input.value()),
        _ => words.extend((0..15).map(|_| input.u32())),
    }
    words
}
