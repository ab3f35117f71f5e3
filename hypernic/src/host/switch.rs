//! A switch of the host and its ports besides NICs, which come and go while it runs.

use std::sync::Arc;

use frame::Counted;
use model::Clock;
use port::{InletThread, Port};
use vale::{Keeper, PortConfig, Switch, Witnesses};

use super::inlets::inlet;
use crate::config::cells::{CellLink, MAIN};
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
    /// What joins it with the same switch in other cells.
    links: Vec<RunningLink>,
    /// Its ports are opened here, and not in the main process only.
    opens: bool,
}

struct RunningLink {
    config: CellLink,
    port: RunningPort,
}

struct RunningPort {
    /// None of what joins cells.
    spec: Option<PortSpec>,
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
        opens: bool,
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
            links: Vec::new(),
            opens,
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
        if !self.opens {
            self.config.ports.push(spec.clone());
            return Ok(());
        }
        let failed = |message| self.failed(spec.to_string(), message);
        let owner = format!("switch {}", self.config.name);
        let port = ports::open(spec, &owner).map_err(failed)?;
        let may = ports::of_uplink(&self.config.uplink_guard);
        let opened = self.attach(port, may, Some(spec), gate);
        self.ports
            .push(opened.inspect_err(|_| ports::forget(spec))?);
        self.config.ports.push(spec.clone());
        Ok(())
    }

    fn failed(&self, port: String, message: String) -> Error {
        Error::Port {
            owner: self.config.name.clone(),
            port,
            message,
        }
    }

    /// Has a port that was opened be one of its own.
    fn attach(
        &self,
        port: Port,
        may: PortConfig,
        spec: Option<&PortSpec>,
        gate: Option<&Arc<Gate>>,
    ) -> Result<RunningPort, Error> {
        let witnesses = Arc::<Witnesses>::default();
        let counters = Arc::clone(&port.counters);
        let sink = Lookout::new(&port.name, port.sink, counters, Arc::clone(&witnesses));
        let entry = self
            .switch
            .attach(&port.name, sink, may)
            .map_err(|error| self.failed(port.name.clone(), error.to_string()))?;
        let inlet = match port.inlet {
            Some(source) => {
                let shown = format!("{}/{}", self.config.name, port.name);
                let thread = format!("port {shown}");
                let started = inlet(&thread, source, entry, shown, |_| {}, gate);
                Some(started.inspect_err(|_| {
                    self.switch.detach(&port.name);
                })?)
            }
            None => None,
        };
        Ok(RunningPort {
            spec: spec.cloned(),
            name: port.name,
            counters: port.counters,
            witnesses,
            inlet,
        })
    }

    /// Has it be joined with these and no others. What cannot be is told in the log: frames between the others go on.
    pub(super) fn set_links(&mut self, own: Option<&str>, wanted: &[CellLink]) {
        let place = |link: &CellLink| (link.cell.clone(), link.path.clone(), link.listens);
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|one| wanted.iter().any(|link| place(link) == place(&one.config)));
        self.links = stay;
        for gone in go {
            self.switch.detach(&gone.port.name);
        }
        for link in wanted {
            let at = self
                .links
                .iter()
                .position(|one| one.config.cell == link.cell);
            let Some(one) = at.map(|at| &mut self.links[at]) else {
                match self.open_link(own, link) {
                    Ok(port) => self.links.push(RunningLink {
                        config: link.clone(),
                        port,
                    }),
                    Err(error) => tracing::error!("{error}"),
                }
                continue;
            };
            if one.config != *link {
                self.switch.set_port(&one.port.name, &ports::of_link(link));
                one.config.clone_from(link);
            }
        }
    }

    /// Forgets where stations of another cell are. Those that are there and nowhere else, it knows again at once.
    pub(super) fn forget_link(&self, cell: &str) {
        let link = self.links.iter().find(|link| link.config.cell == cell);
        if let Some(link) = link {
            self.switch.forget(&link.port.name);
            self.switch
                .set_port(&link.port.name, &ports::of_link(&link.config));
        }
    }

    fn open_link(&self, own: Option<&str>, link: &CellLink) -> Result<RunningPort, Error> {
        let name = format!("{}>{}", own.unwrap_or(MAIN), link.cell);
        let opened = ports::open_link(link, &name);
        let port = opened.map_err(|message| self.failed(name, message))?;
        self.attach(port, ports::of_link(link), None, None)
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
        if !self.opens {
            let at = self.config.ports.iter().position(|port| port == spec);
            return at.map(|at| self.config.ports.remove(at)).is_some();
        }
        let is = |port: &RunningPort| port.spec.as_ref() == Some(spec);
        let Some(at) = self.ports.iter().position(is) else {
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
        for spec in self.ports.iter().filter_map(|port| port.spec.as_ref()) {
            ports::forget(spec);
        }
    }

    /// Lets nothing more in.
    pub(super) fn shut(&mut self) {
        for port in &mut self.ports {
            drop(port.inlet.take());
        }
        for link in &mut self.links {
            drop(link.port.inlet.take());
        }
    }

    /// Its ports: as they are written, and the names of their counters.
    pub(super) fn ports(&self) -> impl Iterator<Item = (&PortSpec, String)> {
        let named = |port: &RunningPort| format!("{}/{}", self.config.name, port.name);
        let ports = self.ports.iter();
        ports.filter_map(move |port| Some((port.spec.as_ref()?, named(port))))
    }

    /// Those who are shown what a port loses, and its name on the switch. It may be called as it is written, or as its
    /// counters are.
    pub(super) fn witnesses_of(&self, port: &str) -> Option<(&Arc<Witnesses>, &str)> {
        let is_it = |one: &&RunningPort| {
            let written = one.spec.as_ref().map(ToString::to_string);
            one.name == port || written.as_deref() == Some(port)
        };
        let port = self.all_ports().find(is_it)?;
        Some((&port.witnesses, &port.name))
    }

    fn all_ports(&self) -> impl Iterator<Item = &RunningPort> {
        let links = self.links.iter().map(|link| &link.port);
        self.ports.iter().chain(links)
    }

    /// What all its ports count.
    pub(super) fn counters(&self, sections: &mut Vec<Section>) {
        let name = &self.config.name;
        sections.extend(ports::switch_sections(name, &self.switch));
        for port in self.all_ports() {
            let shown = format!("{name}/{}", port.name);
            if let Some(inlet) = &port.inlet {
                sections.push(Section::of("inlet", shown.clone(), &*inlet.counters()));
            }
            sections.push(Section::of("port", shown, &*port.counters));
        }
    }
}
