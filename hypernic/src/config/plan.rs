//! From a host that runs to one that a file describes: what has to be done, in order, and what cannot be.

mod live;
mod unit;

use std::collections::{BTreeMap, BTreeSet};

use control::{Act, Cannot};
use pf::Change;

use self::live::Live;
use self::unit::{Unit, differs};
use super::access::Access;
use super::text::table;
use super::types::{ChipConfig, HostConfig, NicConfig, Profile, SocketSpec, SwitchConfig};
use crate::spec::PortSpec;

/// One change of a running host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes a NIC away.
    RemoveNic(String),
    /// Closes a chip, whose functions are gone.
    RemoveChip(String),
    /// Closes a port of a switch.
    RemovePort(String, PortSpec),
    /// Closes a switch.
    RemoveSwitch(String),
    /// Has other defaults for what comes.
    SetProfile(Profile),
    /// Changes words of a switch that runs, not its ports.
    SetSwitch(SwitchConfig),
    /// Makes a switch.
    AddSwitch(SwitchConfig),
    /// Opens a port of a switch.
    AddPort(String, PortSpec),
    /// Makes a chip.
    AddChip(ChipConfig),
    /// Makes a NIC.
    AddNic(Box<NicConfig>),
    /// Changes words of a NIC whose VMM keeps it.
    SetNic(Box<NicConfig>),
    /// Changes words of a chip whose functions stay.
    SetChip(ChipConfig),
    /// Changes what is laid down for a virtual function.
    SetVf(String, Vec<Change>),
    /// Gives users and groups other roles.
    SetAccess(Access),
}

/// What leads from one host to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// The same for people.
    pub told: Vec<control::Step>,
    /// What is left as it is.
    pub cannot: Vec<Cannot>,
}

const AGAIN: &str = "start the daemon again";
const HELD: &str = "a VMM has it: unplug it there first, or allow that with --disconnect";

fn cannot(kind: &str, name: &str, why: String) -> Cannot {
    Cannot {
        kind: kind.to_owned(),
        name: name.to_owned(),
        why,
    }
}

fn units(host: &HostConfig) -> BTreeMap<&str, Unit<'_>> {
    let mut units = BTreeMap::new();
    for chip in &host.chips {
        let unit = Unit {
            chip: Some(chip),
            nics: Vec::new(),
        };
        units.insert(chip.name.as_str(), unit);
    }
    for nic in &host.nics {
        let name = nic.of_chip().unwrap_or(&nic.name).as_str();
        let new = || Unit {
            chip: None,
            nics: Vec::new(),
        };
        units.entry(name).or_insert_with(new).nics.push(nic);
    }
    // The order of a host's VFs is that of their names where it runs, and of their numbers in a file.
    for unit in units.values_mut() {
        unit.nics
            .sort_by_key(|nic| nic.vf.as_ref().map(|vf| vf.index));
    }
    units
}

/// What is done to NICs and chips.
#[derive(Default)]
struct Fates<'a> {
    goes: BTreeSet<&'a str>,
    comes: BTreeSet<&'a str>,
    /// Of those that go and come again: the words that differ.
    words: BTreeMap<&'a str, Vec<String>>,
    /// Those that change and are not made anew.
    live: BTreeMap<&'a str, Live>,
    cannot: Vec<Cannot>,
}

impl Plan {
    /// What leads from `is` to `wanted`. NICs that a VMM has (`held`) are left as they are, unless they may be
    /// disconnected.
    pub fn of(
        is: &HostConfig,
        wanted: &HostConfig,
        held: &dyn Fn(&str) -> bool,
        disconnect: bool,
    ) -> Self {
        let (is, wanted) = (&is.clone().absolute(), &wanted.clone().absolute());
        let (old, new) = (units(is), units(wanted));
        let kept = |nic: &str| !disconnect && held(nic);
        let mut fates = fates(&old, &new, &kept);
        let mut switches = Switches::default();
        switches.look(is, wanted, &old, &fates);
        fates.conflicts(&old, &new);
        let mut plan = Plan::default();
        plan.head(is, wanted);
        plan.take_away(&old, &fates, &switches);
        if is.profile != wanted.profile {
            plan.steps.push(Step::SetProfile(wanted.profile));
            plan.tell(Act::Change, "head", "profile", Vec::new());
        }
        for (switch, words) in &switches.set {
            plan.tell(Act::Change, "switch", &switch.name, words.clone());
            plan.steps.push(Step::SetSwitch(switch.clone()));
        }
        for (name, live) in &fates.live {
            plan.change(old.get(name).and_then(|unit| unit.chip), live);
        }
        plan.put_in(&new, &fates, &switches);
        if is.access != wanted.access {
            plan.steps.push(Step::SetAccess(wanted.access.clone()));
            plan.tell(Act::Change, "head", "control roles", Vec::new());
        }
        plan.cannot.extend(fates.cannot);
        plan.cannot.extend(switches.cannot);
        plan
    }

    fn tell(&mut self, act: Act, kind: &str, name: &str, words: Vec<String>) {
        self.told.push(control::Step {
            act,
            kind: kind.to_owned(),
            name: name.to_owned(),
            words,
            anew: None,
        });
    }

    /// What goes and comes again, told.
    fn tell_anew(&mut self, kind: &str, name: &str, words: Vec<String>) {
        self.tell(Act::Change, kind, name, words);
        if let Some(step) = self.told.last_mut() {
            step.anew = Some(true);
        }
    }

    /// What changes and is not made anew.
    fn change(&mut self, is: Option<&ChipConfig>, live: &Live) {
        // What VFs are promised is always less than what there is.
        let less = |to: &ChipConfig| is.is_some_and(|is| to.rate < is.rate);
        let later = live.chip.as_ref().is_some_and(less);
        if let Some(chip) = &live.chip {
            let words = live::chip_words(is, chip);
            self.tell(Act::Change, "chip", &chip.name, words);
            if !later {
                self.steps.push(Step::SetChip(chip.clone()));
            }
        }
        for (nic, words) in &live.nics {
            self.tell(Act::Change, "NIC", &nic.name, words.clone());
            self.steps.push(Step::SetNic(Box::new(nic.clone())));
        }
        for (nic, changes) in &live.policies {
            let words = changes.iter().map(|change| live::word(change).into());
            self.tell(Act::Change, "VF", nic, words.collect());
            self.steps.push(Step::SetVf(nic.clone(), changes.clone()));
        }
        if let Some(chip) = live.chip.as_ref().filter(|_| later) {
            self.steps.push(Step::SetChip(chip.clone()));
        }
    }

    /// What a process has only once.
    fn head(&mut self, is: &HostConfig, wanted: &HostConfig) {
        for (word, same) in [
            ("workers", is.workers == wanted.workers),
            ("keeper", is.keeper == wanted.keeper),
            ("cells", is.cells == wanted.cells),
            ("control", is.control == wanted.control),
            ("control-persist", is.persist == wanted.persist),
            (
                "control-group, control-mode",
                is.control_socket == wanted.control_socket,
            ),
            ("socket-group, socket-mode", is.sockets == wanted.sockets),
            ("sandbox", is.sandbox.mode == wanted.sandbox.mode),
            ("sandbox-paths", is.sandbox.paths == wanted.sandbox.paths),
            (
                "sandbox-network",
                is.sandbox.network == wanted.sandbox.network,
            ),
        ] {
            if !same {
                let why = format!("it holds from the start of the process: {AGAIN}");
                self.cannot.push(cannot("head", word, why));
            }
        }
    }

    fn take_away(&mut self, old: &BTreeMap<&str, Unit>, fates: &Fates, switches: &Switches) {
        for nic in fates.live.values().flat_map(|live| &live.goes) {
            self.steps.push(Step::RemoveNic(nic.clone()));
            self.tell(Act::Remove, "NIC", nic, Vec::new());
        }
        for (name, unit) in old.iter().filter(|(name, _)| fates.goes.contains(*name)) {
            let nics = unit.nics.iter().map(|nic| nic.name.clone());
            self.steps.extend(nics.map(Step::RemoveNic));
            if unit.chip.is_some() {
                self.steps.push(Step::RemoveChip((*name).into()));
            }
            if !fates.comes.contains(name) {
                self.tell(Act::Remove, unit.kind(), name, Vec::new());
            }
        }
        for (switch, port) in &switches.close {
            self.steps
                .push(Step::RemovePort(switch.clone(), port.clone()));
            self.tell(Act::Remove, "port", &format!("{switch} {port}"), Vec::new());
        }
        for switch in &switches.goes {
            self.steps.push(Step::RemoveSwitch(switch.clone()));
            self.tell(Act::Remove, "switch", switch, Vec::new());
        }
    }

    fn put_in(&mut self, new: &BTreeMap<&str, Unit>, fates: &Fates, switches: &Switches) {
        for switch in &switches.comes {
            self.tell(Act::Add, "switch", &switch.name, Vec::new());
            self.steps.push(Step::AddSwitch(switch.clone()));
        }
        for (switch, port) in &switches.open {
            self.steps.push(Step::AddPort(switch.clone(), port.clone()));
            self.tell(Act::Add, "port", &format!("{switch} {port}"), Vec::new());
        }
        for (name, unit) in new.iter().filter(|(name, _)| fates.comes.contains(*name)) {
            let again = fates.goes.contains(name);
            let words = fates.words.get(name).cloned().unwrap_or_default();
            if again {
                self.tell_anew(unit.kind(), name, words);
            } else {
                self.tell(Act::Add, unit.kind(), name, words);
            }
            self.steps.extend(unit.chip.cloned().map(Step::AddChip));
            let nics = unit.nics.iter().map(|nic| Box::new((*nic).clone()));
            self.steps.extend(nics.map(Step::AddNic));
        }
        for nic in fates.live.values().flat_map(|live| &live.comes) {
            self.tell(Act::Add, "NIC", &nic.name, Vec::new());
            self.steps.push(Step::AddNic(Box::new(nic.clone())));
        }
    }
}

fn fates<'a>(
    old: &BTreeMap<&'a str, Unit<'a>>,
    new: &BTreeMap<&'a str, Unit<'a>>,
    kept: &dyn Fn(&str) -> bool,
) -> Fates<'a> {
    let mut fates = Fates::default();
    for (name, unit) in old {
        let wanted = new.get(name);
        if wanted.is_some_and(|new| new.chip == unit.chip && new.nics == unit.nics) {
            continue;
        }
        let live = wanted.and_then(|wanted| Live::between(unit, wanted));
        if let Some(live) = live {
            let held: Vec<_> = live.goes.iter().filter(|nic| kept(nic)).collect();
            if held.is_empty() {
                fates.live.insert(name, live);
            } else {
                let held: Vec<&str> = held.into_iter().map(String::as_str).collect();
                let why = format!("{} is to go, and {HELD}", held.join(", "));
                fates.cannot.push(cannot(unit.kind(), name, why));
            }
            continue;
        }
        let words = wanted.map(|wanted| unit.differs(wanted));
        if unit.nics.iter().any(|nic| kept(&nic.name)) {
            let partly = wanted.and_then(|wanted| Live::partly(unit, wanted));
            let done = partly.iter().flat_map(|live| &live.nics);
            let done: BTreeSet<String> = done.flat_map(|(_, words)| words.clone()).collect();
            let what = match words {
                None => "it is to go".to_owned(),
                Some(words) if words.is_empty() => "it is to change".to_owned(),
                Some(words) => {
                    let rest = words.into_iter().filter(|word| !done.contains(word));
                    let rest: Vec<String> = rest.collect();
                    format!(
                        "{} is to change, which a guest has started with",
                        rest.join(", ")
                    )
                }
            };
            let why = format!("{what}, and {HELD}");
            fates.cannot.push(cannot(unit.kind(), name, why));
            fates.live.extend(partly.map(|live| (*name, live)));
            continue;
        }
        fates.goes.insert(name);
        if let Some(words) = words {
            fates.comes.insert(name);
            fates.words.insert(name, words);
        }
    }
    let added = new.keys().filter(|name| !old.contains_key(*name));
    fates.comes.extend(added);
    fates
}

impl Fates<'_> {
    /// What stays though it should not may have what others need.
    fn conflicts(&mut self, old: &BTreeMap<&str, Unit>, new: &BTreeMap<&str, Unit>) {
        let stays = old.iter().filter(|(name, _)| !self.goes.contains(*name));
        let stay: Vec<&NicConfig> = stays.flat_map(|(_, unit)| unit.nics.clone()).collect();
        let socket = |nic: &NicConfig| match &nic.socket {
            SocketSpec::Path(path) => path.display().to_string(),
            SocketSpec::Fd(fd) => fd.to_string(),
        };
        let (mut sockets, mut macs) = (BTreeMap::new(), BTreeMap::new());
        for nic in stay {
            sockets.insert(socket(nic), &nic.name);
            macs.insert((nic.mac.0, nic.virtio.standby), &nic.name);
        }
        let mut found = Vec::new();
        for (name, unit) in new.iter().filter(|(name, _)| self.comes.contains(*name)) {
            let has = |nic: &&NicConfig| {
                let mac = (nic.mac.0, nic.virtio.standby);
                let other = sockets.get(&socket(nic)).or(macs.get(&mac))?;
                Some((*other).clone())
            };
            if let Some(other) = unit.nics.iter().find_map(has) {
                found.push((*name, unit.kind(), other));
            }
        }
        for (name, kind, other) in found {
            let why = format!("{other}, which stays, has its socket or its address");
            self.comes.retain(|one| *one != name);
            self.goes.retain(|one| *one != name);
            self.cannot.push(cannot(kind, name, why));
        }
    }
}

/// What is done to switches.
#[derive(Default)]
struct Switches {
    goes: Vec<String>,
    comes: Vec<SwitchConfig>,
    /// Those that have other words, and which.
    set: Vec<(SwitchConfig, Vec<String>)>,
    close: Vec<(String, PortSpec)>,
    open: Vec<(String, PortSpec)>,
    cannot: Vec<Cannot>,
}

impl Switches {
    fn look(
        &mut self,
        is: &HostConfig,
        wanted: &HostConfig,
        old: &BTreeMap<&str, Unit<'_>>,
        fates: &Fates<'_>,
    ) {
        let find = |host: &'_ HostConfig, name: &str| {
            let found = host.switches.iter().find(|switch| switch.name == name);
            found.cloned()
        };
        for switch in &is.switches {
            let Some(to) = find(wanted, &switch.name) else {
                let staying = old.iter().filter(|(name, unit)| {
                    !fates.goes.contains(*name) && unit.switch() == Some(&switch.name)
                });
                let on: Vec<&str> = staying.map(|(name, _)| *name).collect();
                if on.is_empty() {
                    self.goes.push(switch.name.clone());
                } else {
                    let why = format!("{} stays on it", on.join(", "));
                    self.cannot.push(cannot("switch", &switch.name, why));
                }
                continue;
            };
            let near = SwitchConfig {
                ports: switch.ports.clone(),
                ..to.clone()
            };
            if near != *switch {
                let words = differs(&table(&switch.words()), &table(&near.words()));
                self.set.push((near, words));
            }
            self.ports(switch, &to);
        }
        let is_new = |switch: &&SwitchConfig| find(is, &switch.name).is_none();
        self.comes
            .extend(wanted.switches.iter().filter(is_new).cloned());
    }

    fn ports(&mut self, is: &SwitchConfig, to: &SwitchConfig) {
        let mut rest = to.ports.clone();
        for port in &is.ports {
            match rest.iter().position(|other| other == port) {
                Some(at) => drop(rest.remove(at)),
                None => self.close.push((is.name.clone(), port.clone())),
            }
        }
        self.open
            .extend(rest.into_iter().map(|port| (is.name.clone(), port)));
    }
}
