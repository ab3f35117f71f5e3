//! A chip with virtual functions: its on-chip switch, its wire, and the PF of its VFs.

mod eswitch_sync;
mod function_port;
mod granted;
mod guest_pf;
mod late_sink;
mod pf_runner;

use std::sync::Arc;
use std::time::Instant;

use eswitch::Owner;
use frame::{Counted, Sink, Wake};
use igb::Hub;
use model::Clock;
use pf::{Change, Status};
use port::{InletEvent, InletThread};
use vale::{Keeper, PortConfig, Switch};

use crate::config::{ChipConfig, PfOwner, VfConfig};
use crate::error::Error;
use crate::gate::Gate;
use crate::nic::Granted;
use crate::ports;
use crate::report::Section;
use crate::spec::PortSpec;
pub use function_port::WIRE;
pub use guest_pf::GuestPf;
use late_sink::LateSink;
use pf_runner::PfRunner;
use program::log::Limit;

/// A running chip. The order of the fields is the order of their end: first what brings frames in.
pub(crate) struct RunningChip {
    inlet: Option<InletThread>,
    pf: Pf,
    switch: Switch,
    _keeper: Keeper,
    port: Option<(String, Arc<dyn Counted>)>,
    /// The switch of the host that it is a port of, that one's name, and its own.
    outer: Option<(Switch, String, String)>,
    out: Arc<LateSink>,
}

/// The PF of the chip.
#[derive(Clone)]
enum Pf {
    /// The software PF: the daemon's, by policies.
    Software(Arc<PfRunner>),
    /// A guest's, by the registers of the PF.
    Guest(Arc<GuestPf>),
}

impl Pf {
    fn link(&self, up: bool) {
        match self {
            Pf::Software(runner) => runner.link(up),
            Pf::Guest(guest) => guest.link(up),
        }
    }
}

/// The refusal of what an operator wants of VFs whose PF is a guest's.
pub(crate) fn not_ours() -> String {
    "a guest controls it (pf = \"guest\"), and only that guest's driver can change this; ask that \
     guest, or leave out pf"
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
        gate: Option<&Arc<Gate>>,
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
        let time = crate::time::of_turns(Arc::clone(clock));
        let switch = Switch::on_chip(Default::default(), time);
        let keeper = Keeper::start(&switch).map_err(thread)?;
        let pf = match config.pf {
            PfOwner::Daemon => Pf::Software(
                PfRunner::start(&config.name, config.rate, switch.clone(), clock)
                    .map_err(thread)?,
            ),
            PfOwner::Guest => Pf::Guest(GuestPf::new(config.vfs, switch.clone())),
        };
        let out = Arc::new(LateSink::default());
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
            pf,
            switch,
            _keeper: keeper,
            port: None,
            outer: None,
            out,
        };
        if let PortSpec::Switch(name) = &config.port {
            let outer = outer
                .ok_or_else(|| failed(format!("there is no switch \"{name}\"; add it first")))?;
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
            let owner = format!("chip {}", config.name);
            let port = ports::open(&config.port, &owner).map_err(failed)?;
            chip.out.set(Some(port.sink));
            chip.port = Some((port.name.clone(), port.counters));
            if let Some(source) = port.inlet {
                let pf = chip.pf.clone();
                let shown = format!("{}/{}", config.name, port.name);
                let limit = Limit::default();
                let events = move |event: InletEvent| {
                    if !matches!(event, InletEvent::Note(_)) {
                        pf.link(matches!(event, InletEvent::LinkUp));
                    }
                    log_event(&limit, &shown, event);
                };
                let name = format!("port {}", config.name);
                let source = match gate {
                    Some(gate) => gate.hold(source),
                    None => source,
                };
                let inlet = InletThread::spawn(&name, source, entry, events).map_err(thread)?;
                chip.inlet = Some(inlet);
            }
        }
        chip.pf.link(true);
        Ok(chip)
    }

    /// Its port leads nowhere.
    pub(crate) fn cut(&self) {
        self.pf.link(false);
    }

    /// The switch on the chip.
    pub(crate) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The name of the switch of the host that it is a port of.
    pub(crate) fn outer_name(&self) -> Option<&str> {
        self.outer.as_ref().map(|(_, name, _)| name.as_str())
    }

    /// The switch of the host that it is a port of forgets who is behind it.
    pub(crate) fn forget_addresses(&self) {
        if let Some((outer, _, own)) = &self.outer {
            outer.forget(own);
        }
    }

    /// A channel for a VF, controlled from now on by its policy or by the registers of its PF.
    ///
    /// # Errors
    /// A policy or a VF that cannot be.
    pub(crate) fn attach_vf(
        &self,
        nic: &str,
        vf: &VfConfig,
    ) -> Result<Arc<igb::VfChannel>, String> {
        match &self.pf {
            Pf::Software(runner) => runner.attach_vf(nic, vf).map_err(|error| error.to_string()),
            Pf::Guest(guest) => guest
                .channel(vf.index)
                .ok_or_else(|| format!("there is no VF {}", vf.index)),
        }
    }

    /// The hub of a PF that a guest drives.
    ///
    /// # Errors
    /// The PF is the daemon's.
    pub(crate) fn hub(&self) -> Result<Arc<Hub>, String> {
        match &self.pf {
            Pf::Software(_) => Err("the daemon controls its VFs: write pf = \"guest\"".into()),
            Pf::Guest(guest) => Ok(Arc::clone(guest.hub())),
        }
    }

    /// The guest's PF runs.
    pub(crate) fn started(
        &self,
        bell: Arc<dyn Wake>,
        cable: impl Fn(bool) + Send + Sync + 'static,
    ) {
        if let Pf::Guest(guest) = &self.pf {
            guest.started(bell, Box::new(cable));
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
        Ok(match (&self.pf, owner) {
            (Pf::Guest(guest), _) => guest.joined(owner, port),
            (Pf::Software(runner), Owner::Vf(vf)) => {
                runner.joined(vf);
                port
            }
            (Pf::Software(_), Owner::Pf) => port,
        })
    }

    /// Tells a VF that it will be taken away.
    ///
    /// # Errors
    /// Its PF is a guest's, and so is the mailbox.
    pub(crate) fn leaving(&self, vf: u32) -> Result<(), String> {
        match &self.pf {
            Pf::Software(runner) => {
                runner.leaving(vf);
                Ok(())
            }
            Pf::Guest(_) => Err(not_ours()),
        }
    }

    /// Takes a function off the switch and forgets it.
    pub(crate) fn remove(&self, nic: &str, owner: Owner) {
        self.switch.detach(nic);
        match (&self.pf, owner) {
            (Pf::Guest(guest), _) => guest.remove(owner),
            (Pf::Software(runner), Owner::Vf(vf)) => runner.remove(vf),
            (Pf::Software(_), Owner::Pf) => {}
        }
    }

    /// What a function has to keep, for a process that goes on with it, of what the chip knows.
    pub(crate) fn granted_to(&self, owner: Owner) -> Option<Box<dyn Granted>> {
        match (&self.pf, owner) {
            (Pf::Software(runner), Owner::Vf(vf)) => Some(Box::new(granted::OfVf::new(runner, vf))),
            (Pf::Software(_), Owner::Pf) => None,
            (Pf::Guest(guest), Owner::Vf(vf)) => {
                Some(Box::new(granted::OfChannel(guest.channel(vf)?)))
            }
            (Pf::Guest(guest), Owner::Pf) => {
                Some(Box::new(granted::OfHub(Arc::clone(guest.hub()))))
            }
        }
    }

    /// Lets nothing more in.
    pub(crate) fn shut(&mut self) {
        drop(self.inlet.take());
    }

    /// Changes the policy of a VF.
    ///
    /// # Errors
    /// As the runner.
    pub(crate) fn set(&self, vf: u32, changes: &[Change]) -> Result<(), String> {
        match &self.pf {
            Pf::Software(runner) => runner.set(vf, changes).map_err(|error| error.to_string()),
            Pf::Guest(_) => Err(not_ours()),
        }
    }

    /// Whether the policy of a VF can be changed so.
    ///
    /// # Errors
    /// As [`RunningChip::set`].
    pub(crate) fn check(&self, vf: u32, changes: &[Change]) -> Result<(), String> {
        match &self.pf {
            Pf::Software(runner) => runner.check(vf, changes).map_err(|error| error.to_string()),
            Pf::Guest(_) => Err(not_ours()),
        }
    }

    /// Changes what its VFs share of the wire.
    ///
    /// # Errors
    /// More than that is promised to them.
    pub(crate) fn set_rate(&self, rate: Option<u32>) -> Result<(), String> {
        match &self.pf {
            Pf::Software(runner) => runner.set_rate(rate).map_err(|error| error.to_string()),
            // It has none.
            Pf::Guest(_) => Ok(()),
        }
    }

    /// Lets a VF that was shut down try again.
    ///
    /// # Errors
    /// As the runner.
    pub(crate) fn revive(&self, vf: u32) -> Result<(), String> {
        match &self.pf {
            Pf::Software(runner) => runner.revive(vf).map_err(|error| error.to_string()),
            Pf::Guest(_) => Err(not_ours()),
        }
    }

    /// Whether a VF is told of a link. `None`: its PF is a guest's, who tells it.
    pub(crate) fn vf_link(&self, vf: u32) -> Option<bool> {
        match &self.pf {
            Pf::Software(runner) => runner.has_link(vf),
            Pf::Guest(_) => None,
        }
    }

    /// A VF, for display.
    pub(crate) fn status(&self, vf: u32) -> Option<Status> {
        match &self.pf {
            Pf::Software(runner) => runner.status(vf),
            Pf::Guest(_) => None,
        }
    }

    /// The chip is reset: all VFs start anew.
    ///
    /// # Errors
    /// Its PF is a guest's, and so is the reset.
    pub(crate) fn reset(&self) -> Result<(), String> {
        match &self.pf {
            Pf::Software(runner) => {
                runner.reset();
                Ok(())
            }
            Pf::Guest(_) => Err(not_ours()),
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
        if let Pf::Software(runner) = &self.pf {
            runner.counters(sections);
        }
    }
}

impl Drop for RunningChip {
    fn drop(&mut self) {
        drop(self.inlet.take());
        if let Pf::Software(runner) = &self.pf {
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
    let up = match event {
        InletEvent::Closed(why) => return tracing::error!(port, "closed: {why}"),
        InletEvent::Note(note) => return tracing::error!(port, "{note}"),
        InletEvent::LinkUp => true,
        InletEvent::LinkDown => false,
    };
    if let Some(held_back) = limit.pass(Instant::now()) {
        tracing::info!(port, held_back, up, "link");
    }
}
