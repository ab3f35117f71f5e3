//! A switch of the host and its ports besides NICs, which come and go while it runs.

use std::sync::Arc;

use frame::Counted;
use model::Clock;
use port::InletThread;
use vale::{Keeper, Switch, Witnesses};

use super::inlets::inlet;
use crate::config::{LinkLocal, SwitchConfig};
use crate::error::Error;
use crate::gate::Gate;
use crate::nic::Lookout;
use crate::ports;
use crate::report::Section;
use crate::spec::PortSpec;

/// The order of the fields is the order of their end: first the threads that bring frames in.
pub(super) struct RunningSwitch {
    ports: Vec<RunningPort>,
    _keeper: Keeper,
    pub(super) switch: Switch,
    /// What it is, with the ports that it has now.
    pub(super) config: SwitchConfig,
}

struct RunningPort {
    spec: PortSpec,
    /// Its name on the switch.
    name: String,
    counters: Arc<dyn Counted>,
    /// Those who are shown what it loses.
    witnesses: Arc<Witnesses>,
    inlet: Option<InletThread>,
}

impl RunningSwitch {
    /// Makes a switch with its ports.
    ///
    /// # Errors
    /// A port that cannot be opened, with its cure.
    pub(super) fn start(
        config: &SwitchConfig,
        clock: Arc<dyn Clock>,
        gate: Option<&Arc<Gate>>,
    ) -> Result<Self, Error> {
        let (switch, keeper) = ports::new_switch(config, clock).map_err(|source| Error::Os {
            what: "cannot start a thread",
            source,
        })?;
        let mut running = RunningSwitch {
            ports: Vec::new(),
            _keeper: keeper,
            switch,
            config: SwitchConfig {
                ports: Vec::new(),
                ..config.clone()
            },
        };
        for spec in &config.ports {
            running.add_port(spec, gate)?;
        }
        Ok(running)
    }

    /// Opens a port.
    ///
    /// # Errors
    /// It cannot be opened, with the cure; nothing has changed.
    pub(super) fn add_port(
        &mut self,
        spec: &PortSpec,
        gate: Option<&Arc<Gate>>,
    ) -> Result<(), Error> {
        let failed = |message| Error::Port {
            owner: self.config.name.clone(),
            port: spec.to_string(),
            message,
        };
        let port = ports::open(spec).map_err(failed)?;
        let may = ports::of_uplink(&self.config.uplink_guard);
        let witnesses = Arc::<Witnesses>::default();
        let counters = Arc::clone(&port.counters);
        let sink = Lookout::new(&port.name, port.sink, counters, Arc::clone(&witnesses));
        let entry = self
            .switch
            .attach(&port.name, sink, may)
            .map_err(|error| failed(error.to_string()))
            .inspect_err(|_| ports::forget(spec))?;
        let inlet = match port.inlet {
            Some(source) => {
                let shown = format!("{}/{}", self.config.name, port.name);
                let thread = format!("port {shown}");
                let started = inlet(&thread, source, entry, shown, |_| {}, gate);
                Some(started.inspect_err(|_| {
                    self.switch.detach(&port.name);
                    ports::forget(spec);
                })?)
            }
            None => None,
        };
        self.ports.push(RunningPort {
            spec: spec.clone(),
            name: port.name,
            counters: port.counters,
            witnesses,
            inlet,
        });
        self.config.ports.push(spec.clone());
        Ok(())
    }

    /// Has other words from now on; its ports stay.
    pub(super) fn set(&mut self, config: &SwitchConfig) {
        self.switch.set_ageing(config.ageing);
        let pass = config.link_local == LinkLocal::Pass;
        self.switch.set_link_local(pass);
        if self.config.uplink_guard != config.uplink_guard {
            let may = ports::of_uplink(&config.uplink_guard);
            for port in &self.ports {
                self.switch.set_port(&port.name, &may);
            }
        }
        self.config = SwitchConfig {
            ports: std::mem::take(&mut self.config.ports),
            ..config.clone()
        };
    }

    /// Closes a port; others notice nothing. `false` when it has none that is written so.
    pub(super) fn remove_port(&mut self, spec: &PortSpec) -> bool {
        let Some(at) = self.ports.iter().position(|port| port.spec == *spec) else {
            return false;
        };
        let port = self.ports.remove(at);
        self.config.ports.remove(at);
        ports::forget(spec);
        self.switch.detach(&port.name);
        drop(port);
        true
    }

    /// Its ports are about to be closed for good.
    pub(super) fn forget(&self) {
        for port in &self.ports {
            ports::forget(&port.spec);
        }
    }

    /// Lets nothing more in.
    pub(super) fn shut(&mut self) {
        for port in &mut self.ports {
            drop(port.inlet.take());
        }
    }

    /// Its ports: as they are written, and the names of their counters.
    pub(super) fn ports(&self) -> impl Iterator<Item = (&PortSpec, String)> {
        let named = |port: &RunningPort| format!("{}/{}", self.config.name, port.name);
        self.ports.iter().map(move |port| (&port.spec, named(port)))
    }

    /// Those who are shown what a port loses, and its name on the switch. It may be called as it is written, or as its
    /// counters are.
    pub(super) fn witnesses_of(&self, port: &str) -> Option<(&Arc<Witnesses>, &str)> {
        let is_it = |one: &&RunningPort| one.name == port || one.spec.to_string() == port;
        let port = self.ports.iter().find(is_it)?;
        Some((&port.witnesses, &port.name))
    }

    /// What all its ports count.
    pub(super) fn counters(&self, sections: &mut Vec<Section>) {
        let name = &self.config.name;
        sections.extend(ports::switch_sections(name, &self.switch));
        for port in &self.ports {
            let shown = format!("{name}/{}", port.name);
            if let Some(inlet) = &port.inlet {
                sections.push(Section::of("inlet", shown.clone(), &*inlet.counters()));
            }
            sections.push(Section::of("port", shown, &*port.counters));
        }
    }
}
