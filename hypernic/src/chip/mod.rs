//! A chip with virtual functions: its on-chip switch, its wire, and the PF of its VFs.

mod registers;
mod software_pf;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use ::wire::MacAddr;
use frame::{Counted, Sink, Wake};
use igb::{Hub, Owner};
use model::Clock;
use pf::{Change, Status};
use port::{InletEvent, InletThread};
use vale::{Keeper, PortConfig, Switch};

use crate::config::{ChipConfig, RuledBy, VfConfig};
use crate::error::Error;
use crate::ports;
use crate::report::Section;
use crate::spec::PortSpec;
use program::log::Limit;
pub use registers::Registers;
use software_pf::PfRunner;
use wire::Late;

/// The port of the on-chip switch that leads out.
pub const WIRE: &str = "wire";

/// A running chip. The order of the fields is the order of their end: first what brings frames in.
pub(crate) struct RunningChip {
    inlet: Option<InletThread>,
    rule: Rule,
    switch: Switch,
    _keeper: Keeper,
    port: Option<(String, Arc<dyn Counted>)>,
    /// The switch of the host that it is a port of, that one's name, and its own.
    outer: Option<(Switch, String, String)>,
    out: Arc<Late>,
}

/// Who rules the VFs.
#[derive(Clone)]
enum Rule {
    /// The daemon, by policies.
    Software(Arc<PfRunner>),
    /// A guest, by the registers of the PF.
    Registers(Arc<Registers>),
}

impl Rule {
    fn link(&self, up: bool) {
        match self {
            Rule::Software(runner) => runner.link(up),
            Rule::Registers(registers) => registers.link(up),
        }
    }
}

/// What an operator wants of VFs that a guest rules.
fn not_ours() -> String {
    "its physical function is a guest's (pf = \"guest\"), whose driver sets this; ask that guest, or \
     leave out pf"
        .into()
}

impl RunningChip {
    /// Makes a chip without VFs. `outer` is the switch that its port names, if it does.
    ///
    /// # Errors
    /// A port that cannot be opened, with its cure.
    pub(crate) fn start(
        config: &ChipConfig,
        outer: Option<&Switch>,
        clock: &Arc<dyn Clock>,
    ) -> Result<RunningChip, Error> {
        let thread = |source| Error::Os {
            what: "cannot start a thread",
            source,
        };
        let failed = |message| Error::Port {
            owner: config.name.clone(),
            port: config.port.to_string(),
            message,
        };
        let now = Arc::clone(clock);
        let switch = Switch::on_chip(Default::default(), Arc::new(move || now.now()));
        let keeper = Keeper::start(&switch).map_err(thread)?;
        let rule = match config.pf {
            RuledBy::Daemon => Rule::Software(
                PfRunner::start(&config.name, config.rate, switch.clone(), clock)
                    .map_err(thread)?,
            ),
            RuledBy::Guest => Rule::Registers(Registers::new(config.vfs, switch.clone())),
        };
        let out = Arc::new(Late::default());
        let uplink = PortConfig {
            waits: false,
            uplink: true,
            ..PortConfig::default()
        };
        let entry = switch
            .attach(WIRE, Arc::clone(&out) as Arc<dyn Sink>, uplink)
            .map_err(|error| failed(error.to_string()))?;
        let mut chip = RunningChip {
            inlet: None,
            rule,
            switch,
            _keeper: keeper,
            port: None,
            outer: None,
            out,
        };
        if let PortSpec::Switch(name) = &config.port {
            let outer = outer
                .ok_or_else(|| failed(format!("there is no switch \"{name}\"; make it first")))?;
            // Many are behind it, none of which may hold up the others.
            let config_out = PortConfig {
                waits: false,
                ..PortConfig::default()
            };
            let lan = outer
                .attach(&config.name, entry, config_out)
                .map_err(|error| failed(error.to_string()))?;
            chip.out.set(Some(lan));
            chip.outer = Some((outer.clone(), name.clone(), config.name.clone()));
        } else {
            let port = ports::open(&config.port).map_err(failed)?;
            chip.out.set(Some(port.sink));
            chip.port = Some((port.name.clone(), port.counters));
            if let Some(source) = port.inlet {
                let rule = chip.rule.clone();
                let shown = format!("{}/{}", config.name, port.name);
                let limit = Limit::default();
                let events = move |event: InletEvent| {
                    rule.link(matches!(event, InletEvent::LinkUp));
                    log_event(&limit, &shown, event);
                };
                let name = format!("port {}", config.name);
                let inlet = InletThread::spawn(&name, source, entry, events).map_err(thread)?;
                chip.inlet = Some(inlet);
            }
        }
        chip.rule.link(true);
        Ok(chip)
    }

    /// The name of the switch of the host that it is a port of.
    pub(crate) fn outer_name(&self) -> Option<&str> {
        self.outer.as_ref().map(|(_, name, _)| name.as_str())
    }

    /// A channel for a VF, ruled from now on, by its policy or by the registers of its PF.
    ///
    /// # Errors
    /// A policy or a VF that cannot be.
    pub(crate) fn attach_vf(
        &self,
        nic: &str,
        vf: &VfConfig,
    ) -> Result<Arc<igb::VfChannel>, String> {
        match &self.rule {
            Rule::Software(runner) => runner.attach_vf(nic, vf).map_err(|error| error.to_string()),
            Rule::Registers(registers) => registers
                .channel(vf.index)
                .ok_or_else(|| format!("there is no VF {}", vf.index)),
        }
    }

    /// The channels that a guest's PF rules.
    ///
    /// # Errors
    /// The daemon rules.
    pub(crate) fn hub(&self) -> Result<Arc<Hub>, String> {
        match &self.rule {
            Rule::Software(_) => Err("the daemon rules its VFs: write pf = \"guest\"".into()),
            Rule::Registers(registers) => Ok(Arc::clone(registers.hub())),
        }
    }

    /// The guest's PF runs.
    pub(crate) fn started(
        &self,
        bell: Arc<dyn Wake>,
        cable: impl Fn(bool) + Send + Sync + 'static,
    ) {
        if let Rule::Registers(registers) = &self.rule {
            registers.started(bell, Box::new(cable));
        }
    }

    /// Joins a function to the on-chip switch.
    ///
    /// # Errors
    /// A name that is taken.
    pub(crate) fn attach(
        &self,
        nic: &str,
        owner: Owner,
        to: Arc<dyn Sink>,
    ) -> Result<Arc<dyn Sink>, String> {
        let port = self.switch.attach(nic, to, PortConfig::default());
        let port = port.map_err(|error| error.to_string())?;
        Ok(match (&self.rule, owner) {
            (Rule::Registers(registers), _) => registers.joined(owner, port),
            (Rule::Software(runner), Owner::Vf(vf)) => {
                runner.joined(vf);
                port
            }
            (Rule::Software(_), Owner::Pf) => port,
        })
    }

    /// Tells a VF that it will be taken away.
    ///
    /// # Errors
    /// Its PF is a guest's, and so is the mailbox.
    pub(crate) fn leaving(&self, vf: u32) -> Result<(), String> {
        match &self.rule {
            Rule::Software(runner) => {
                runner.leaving(vf);
                Ok(())
            }
            Rule::Registers(_) => Err(not_ours()),
        }
    }

    /// Takes a function off the switch and forgets it.
    pub(crate) fn remove(&self, nic: &str, owner: Owner) {
        self.switch.detach(nic);
        match (&self.rule, owner) {
            (Rule::Registers(registers), _) => registers.remove(owner),
            (Rule::Software(runner), Owner::Vf(vf)) => runner.remove(vf),
            (Rule::Software(_), Owner::Pf) => {}
        }
    }

    /// Changes the policy of a VF.
    ///
    /// # Errors
    /// As the runner.
    pub(crate) fn set(&self, vf: u32, changes: &[Change]) -> Result<(), String> {
        match &self.rule {
            Rule::Software(runner) => runner.set(vf, changes).map_err(|error| error.to_string()),
            Rule::Registers(_) => Err(not_ours()),
        }
    }

    /// Lets a VF that was shut down try again.
    ///
    /// # Errors
    /// As the runner.
    pub(crate) fn revive(&self, vf: u32) -> Result<(), String> {
        match &self.rule {
            Rule::Software(runner) => runner.revive(vf).map_err(|error| error.to_string()),
            Rule::Registers(_) => Err(not_ours()),
        }
    }

    /// A VF, for display.
    pub(crate) fn status(&self, vf: u32) -> Option<Status> {
        match &self.rule {
            Rule::Software(runner) => runner.status(vf),
            Rule::Registers(_) => None,
        }
    }

    /// The chip is reset: all VFs start anew.
    ///
    /// # Errors
    /// Its PF is a guest's, and so is the reset.
    pub(crate) fn reset(&self) -> Result<(), String> {
        match &self.rule {
            Rule::Software(runner) => {
                runner.reset();
                Ok(())
            }
            Rule::Registers(_) => Err(not_ours()),
        }
    }

    /// Counters of its switch, its wire and what its PF keeps of each VF.
    pub(crate) fn counters(&self, name: &str, sections: &mut Vec<Section>) {
        sections.extend(ports::switch_sections(name, &self.switch));
        if let Some((port, counters)) = &self.port {
            sections.push(Section::of("port", format!("{name}/{port}"), &**counters));
        }
        if let Some(inlet) = &self.inlet {
            let counters = inlet.counters();
            sections.push(Section::of("inlet", name.to_owned(), &*counters));
        }
        if let Rule::Software(runner) = &self.rule {
            runner.counters(sections);
        }
    }
}

impl Drop for RunningChip {
    fn drop(&mut self) {
        drop(self.inlet.take());
        if let Rule::Software(runner) = &self.rule {
            runner.stop();
        }
        if let Some((outer, _, own)) = self.outer.take() {
            outer.detach(&own);
        }
        self.switch.detach(WIRE);
        // Two switches that know each other would never go.
        self.out.set(None);
    }
}

fn log_event(limit: &Limit, port: &str, event: InletEvent) {
    if let InletEvent::Closed(why) = event {
        tracing::error!(port, "closed: {why}");
    } else if let Some(held_back) = limit.pass(Instant::now()) {
        let up = event == InletEvent::LinkUp;
        tracing::info!(port, held_back, up, "link");
    }
}

/// The rules of a VF as a pool of the on-chip switch.
fn pool(rules: &pf::Rules) -> vale::Pool {
    let mut vlans = rules
        .vlans
        .iter()
        .fold(vale::VlanSet::none(), |set, id| set.with(id));
    if rules.untagged {
        vlans = vlans.with_untagged();
    }
    vale::Pool {
        enabled: rules.enabled,
        macs: rules.macs.iter().map(|mac| MacAddr(mac.0)).collect(),
        broadcast: rules.broadcast,
        groups: match &rules.groups {
            pf::Groups::All => vale::Wanted::All,
            pf::Groups::Hashes(list) if list.is_empty() => vale::Wanted::None,
            pf::Groups::Hashes(list) => {
                vale::Wanted::Hashes(vale::HashSet12::of(list.iter().copied()))
            }
        },
        stations: vale::Wanted::None,
        vlans: Some(vlans),
        check_mac: rules.spoof_check,
        check_vlan: rules.spoof_check,
        ..vale::Pool::default()
    }
}
