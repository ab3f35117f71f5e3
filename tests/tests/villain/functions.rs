//! Every hostile guest of an 82576's functions against the bare model, VFs under a software PF of their
//! own: the next good request is answered, what was refused is counted, nothing has leaked and the
//! function at the other end of the cable has not noticed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drivers::{Bus, BusError, ModelBus, Recorder};
use igb::{Event, Grant, VfChannel};
use pf::{Effect, Policy, PortVlan, SoftwarePf};
use villain::functions::next_good_request;
use villain::{GuestDeed, Moves, VfDeed, Villain};
use wire::MacAddr;

/// Longest frame the chip sends, and two tags.
const LONGEST: usize = 16_384 + 8;
const SECOND: u64 = 1_000_000_000;
/// The only VF of each chip here, and one that is there to have an address.
const OURS: u32 = 0;
const OTHER: u32 = 1;

fn mac(last: u8) -> [u8; 6] {
    [0x52, 0x54, 0x00, 0x76, 0x00, last]
}

/// A software PF with one VF's channel.
struct Chip {
    channel: Arc<VfChannel>,
    pf: Mutex<SoftwarePf>,
}

impl Chip {
    fn new(last: u8, policy: &str) -> Arc<Chip> {
        let mut pf = SoftwarePf::new(None);
        pf.add(OURS, laid_down(last, policy), 0).expect("a VF");
        let other = Policy::new(MacAddr(mac(last ^ 0x10)));
        pf.add(OTHER, other, 0).expect("a VF");
        pf.link(true);
        let channel = VfChannel::new();
        let chip = Arc::new(Chip {
            channel,
            pf: Mutex::new(pf),
        });
        chip.channel
            .listen(Some(Arc::new(Ear(Arc::downgrade(&chip)))));
        chip.carry_out(&mut chip.pf());
        chip
    }

    fn pf(&self) -> MutexGuard<'_, SoftwarePf> {
        self.pf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the software PF has decided, for the VF that has a channel.
    fn carry_out(&self, pf: &mut SoftwarePf) {
        loop {
            let effects: Vec<Effect> = pf.drain().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Reply { vf: OURS, message } => self.channel.mailbox(|mailbox| {
                        mailbox.acknowledge();
                        mailbox.put(message.words());
                    }),
                    Effect::Read { vf: OURS } => self.channel.mailbox(|m| m.acknowledge()),
                    Effect::Notify { vf: OURS, message } => {
                        let sent = self.channel.mailbox(|m| m.put(message.words()));
                        if !sent {
                            pf.unsent(OURS);
                        }
                    }
                    Effect::Reset { vf: OURS, active } => {
                        self.channel.mailbox(|m| m.set_pf_reset(active));
                    }
                    Effect::Settings { vf: OURS } => {
                        let settings = pf.settings(OURS).expect("its settings");
                        self.channel.set_grant(Grant {
                            enabled: settings.enabled(),
                            link: settings.link,
                            max_frame: settings.max_frame,
                            tag: settings.tag.map(|tag| tag.id | u16::from(tag.qos) << 13),
                            interrupt_gap: settings.interrupts.map_or(0, |n| SECOND / u64::from(n)),
                        });
                    }
                    _ => {}
                }
            }
        }
    }

    fn tick(&self, now: u64) {
        let mut pf = self.pf();
        pf.tick(now);
        self.carry_out(&mut pf);
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        self.pf().counters(OURS, &mut |name, value| {
            all.insert(name, value);
        });
        all
    }
}

struct Ear(std::sync::Weak<Chip>);

impl igb::VfListener for Ear {
    fn happened(&self, now: u64, event: Event) {
        let Some(chip) = self.0.upgrade() else { return };
        let mut pf = chip.pf();
        match event {
            Event::Reset => pf.reset(OURS),
            Event::Request(words) => pf.request(OURS, &words, now),
            Event::Acknowledged => pf.acknowledged(OURS, now),
            Event::Freed => pf.free(OURS),
            Event::Loaded(_) => pf.loaded(OURS),
        }
        chip.carry_out(&mut pf);
    }
}

/// The words of `[[nic.vf]]` that a switch has no part in.
fn laid_down(last: u8, words: &str) -> Policy {
    let mut policy = Policy::new(MacAddr(mac(last)));
    policy.mac_set = true;
    for line in words.lines() {
        match line {
            "trust = true" => policy.trust = true,
            "vlan = 100" => policy.vlan = Some(PortVlan { id: 100, qos: 0 }),
            "interrupts = 100" => policy.interrupts = Some(100),
            // What frames are held against it is the switch's to say.
            line if line.starts_with("storm") || line.starts_with("strict") => {}
            other => panic!("not known here: {other}"),
        }
    }
    policy
}

/// A function in its machine, and its PF.
struct Lab {
    bus: ModelBus,
    recorder: Arc<Recorder>,
    chip: Option<Arc<Chip>>,
}

fn vf(last: u8, policy: &str) -> (model::Nic, Arc<Chip>) {
    let chip = Chip::new(last, policy);
    let nic = igb::vf(&igb::Config::new(mac(last)), Arc::clone(&chip.channel));
    (nic, chip)
}

fn pf(last: u8) -> model::Nic {
    igb::pf(&igb::Config::new(mac(last)))
}

fn rule(bus: &mut ModelBus, chip: &Arc<Chip>) {
    let chip = Arc::clone(chip);
    bus.set_listener(Box::new(move |now| chip.tick(now)));
}

impl Lab {
    fn of_pf() -> Lab {
        let (bus, recorder) = ModelBus::recorded(pf(1));
        Lab {
            bus,
            recorder,
            chip: None,
        }
    }

    fn of_vf(policy: &str) -> Lab {
        let (nic, chip) = vf(1, policy);
        let (mut bus, recorder) = ModelBus::recorded(nic);
        rule(&mut bus, &chip);
        Lab {
            bus,
            recorder,
            chip: Some(chip),
        }
    }

    /// All counters of the model, of its memory and of its PF.
    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut all: BTreeMap<_, _> = self.bus.counters().into_iter().collect();
        self.bus.memory().counters(&mut |name, value| {
            all.insert(name, value);
        });
        if let Some(chip) = &self.chip {
            all.extend(chip.counters());
        }
        all
    }

    /// Lets an operator have his way with a VF that was shut down.
    fn revive(&mut self) {
        let Some(chip) = &self.chip else { return };
        let mut pf = chip.pf();
        pf.revive(OURS, self.bus.now()).expect("a VF");
        chip.carry_out(&mut pf);
    }
}

/// What is counted by the socket and by the switch is not here; the daemon's run looks at it.
fn counted_elsewhere(name: &str) -> bool {
    name.starts_with("drop_")
        || ["beyond_region", "vf_refused_spoofed", "vf_refused_storm"].contains(&name)
}

fn suffer(lab: &mut Lab, villain: &Villain, run: GuestDeed, bad: &mut Vec<String>) {
    let id = villain.id;
    run(&mut lab.bus).unwrap_or_else(|e| panic!("{id}: {e}"));
    let counted = lab.counters();
    for sent in lab.recorder.take() {
        assert!(sent.notes.is_plain(), "{id}");
        let len = sent.bytes.len();
        assert!(len <= LONGEST, "{id}: {len} bytes");
    }
    lab.revive();
    let sent = next_good_request(&mut lab.bus).unwrap_or_else(|e| panic!("after {id}: {e}"));
    let last = lab.recorder.take().pop().map(|frame| frame.bytes);
    let plain = |frame: Vec<u8>| match &lab.chip {
        // What its operator tags it never sees.
        Some(chip) if chip.pf().settings(OURS).is_some_and(|r| r.tag.is_some()) => {
            [&frame[..12], &frame[16..]].concat()
        }
        _ => frame,
    };
    assert_eq!(last.map(plain), Some(sent), "after {id}");
    assert!(lab.bus.memory().regions().is_empty(), "{id} cleans up");
    if let Moves::Counters(names) = villain.moves {
        for name in names.iter().filter(|name| !counted_elsewhere(name)) {
            if counted.get(name).copied().unwrap_or(0) == 0 {
                bad.push(format!("{id}: {name} is 0 in {counted:?}"));
            }
        }
    }
}

fn wanted(villain: &Villain) -> bool {
    std::env::var("VILLAIN").map_or(true, |part| villain.id.contains(&part))
}

#[test]
fn every_villain_of_a_port_is_survived_and_counted() {
    let mut bad = Vec::new();
    for (villain, run) in villain::pfs().filter(|(v, _)| wanted(v)) {
        suffer(&mut Lab::of_pf(), villain, run, &mut bad);
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_villain_with_a_vf_is_survived_and_counted() {
    let mut bad = Vec::new();
    for (villain, deed) in villain::vfs().filter(|(v, _)| wanted(v)) {
        let mut lab = Lab::of_vf(deed.policy);
        suffer(&mut lab, villain, deed.run, &mut bad);
        let by_mailbox = villain.id.starts_with("mailbox");
        let counted = lab.counters();
        // Forgiven by its operator, it is down no more; what it did stays counted.
        assert_eq!(counted.get("vf_shut_down"), Some(&0), "{}", villain.id);
        let records = lab.chip.map(|c| c.pf().status(OURS).expect("a VF").records);
        let ended = records.iter().flatten().any(|record| record.shut_down);
        if ended != (deed.shut_down && by_mailbox) {
            bad.push(format!("{}: shut down: {ended}", villain.id));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn one_function_survives_all_villains_in_a_row() {
    let mut port = Lab::of_pf();
    for (villain, run) in villain::pfs() {
        run(&mut port.bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        port.recorder.take();
    }
    let mut virtual_one = Lab::of_vf("");
    for (villain, VfDeed { run, .. }) in villain::vfs() {
        run(&mut virtual_one.bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        virtual_one.recorder.take();
        virtual_one.revive();
    }
    for lab in [&mut port, &mut virtual_one] {
        let sent = next_good_request(&mut lab.bus).expect("answered");
        let got: Vec<_> = lab.recorder.take().into_iter().map(|f| f.bytes).collect();
        assert_eq!(got, [sent]);
        assert!(lab.bus.memory().regions().is_empty(), "villains clean up");
    }
}

/// The driver at the other end of the cable has come up before, and works afterwards.
#[test]
fn the_neighbour_of_a_villain_keeps_its_frames() {
    let good = |bus: &mut ModelBus, after: &str| -> Result<(), BusError> {
        let sent = next_good_request(bus).map_err(|e| BusError::Gone(format!("{after}: {e}")))?;
        assert_eq!(sent.len(), 60, "{after}");
        Ok(())
    };
    for (villain, VfDeed { run, policy, .. }) in villain::vfs() {
        let (bad, chip) = vf(1, policy);
        let (honest, other) = vf(2, "");
        let (mut bad, mut honest) = ModelBus::pair(bad, honest);
        rule(&mut bad, &chip);
        rule(&mut honest, &other);
        good(&mut honest, villain.id).expect("it comes up");
        run(&mut bad).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        // A receiver without buffers holds up its senders; that a switch gives up is not seen here.
        bad.bus_reset();
        good(&mut honest, villain.id).expect("it works on");
        assert_eq!(other.counters()["vf_shut_down"], 0, "{}", villain.id);
    }
}
