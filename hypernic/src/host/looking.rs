//! What a host is now, for those who look at it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use guest_mem::RegionInfo;
use model::Peeked;
use port::capture::Probe;
use vale::{Switch, Witnesses};
use vfio_user::VectorInfo;

use super::Host;
use crate::config::{HostConfig, NicConfig};
use crate::nic::{PATIENCE, RunningNic};
use crate::report::Section;
use crate::spec::NicMac;

/// How a NIC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicState {
    /// A VMM has it.
    pub connected: bool,
    /// It has a link: the cable is in, and so is that of its port.
    pub link: bool,
    /// Its model panicked and was taken off.
    pub failed: bool,
}

impl Host {
    /// What it would be made from to be as it is.
    pub fn as_is(&self) -> HostConfig {
        HostConfig {
            workers: self.workers.count(),
            switches: self.switches.values().map(|s| s.config.clone()).collect(),
            chips: self
                .chips
                .values()
                .map(|(_, config)| config.clone())
                .collect(),
            nics: self.nics.values().map(|nic| nic.config.clone()).collect(),
            ..self.head.clone()
        }
    }

    /// Its NICs.
    pub(crate) fn nic_configs(&self) -> impl Iterator<Item = &NicConfig> {
        self.nics.values().map(|nic| &nic.config)
    }

    /// The same with what is laid down for virtual functions by now.
    pub fn configuration(&self) -> HostConfig {
        let mut is = self.as_is();
        for nic in &mut is.nics {
            let status = self.vf_status(&nic.name);
            if let (Some(vf), Some(status)) = (&mut nic.vf, status) {
                vf.policy = status.policy;
                nic.mac = NicMac(vf.policy.mac.0);
            }
        }
        is
    }

    /// All but its switches, chips and NICs.
    pub fn head(&self) -> &HostConfig {
        &self.head
    }

    /// How often it was changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// How a NIC is.
    pub fn nic_state(&self, name: &str) -> Option<NicState> {
        let nic = &self.nics.get(name)?.nic;
        let of_vf = self.vf(name).and_then(|(chip, vf)| chip.vf_link(vf));
        Some(NicState {
            connected: nic.is_attached(),
            link: nic.has_link() && of_vf.unwrap_or(true),
            failed: nic.has_failed(),
        })
    }

    /// A NIC's registers, looked at without effect; none, if its model has no table of them. `None`: there is no such
    /// NIC, or it does not answer.
    pub fn registers(&self, nic: &str) -> Option<Vec<Peeked>> {
        self.nics.get(nic)?.nic.registers()
    }

    /// What a NIC would leave to another program: its VMM's connection, and itself. `None`: nothing.
    pub fn states(&self, nic: &str) -> Option<[Vec<u8>; 2]> {
        self.nics.get(nic)?.nic.states()
    }

    /// The names of all NICs.
    pub fn nic_names(&self) -> impl Iterator<Item = &str> {
        self.nics.keys().map(String::as_str)
    }

    /// How many switches it has besides those of chips.
    pub(crate) fn switch_count(&self) -> usize {
        self.switches.len()
    }

    /// A NIC's interrupts; none, if its VMM has them.
    pub fn vectors(&self, nic: &str) -> Vec<VectorInfo> {
        let vectors = self.nics.get(nic).map(|nic| nic.nic.vectors());
        vectors.unwrap_or_default()
    }

    /// The memory of its guest that a NIC reaches.
    pub fn regions(&self, nic: &str) -> Vec<RegionInfo> {
        let regions = self.nics.get(nic).map(|nic| nic.nic.regions());
        regions.unwrap_or_default()
    }

    /// Those who are shown what a NIC and a port of its own lose.
    pub(crate) fn witnesses_of(&self, nic: &str) -> Option<&Arc<Witnesses>> {
        Some(self.nics.get(nic)?.nic.witnesses())
    }

    /// Those who are shown what a port of a switch loses, the switch, and the port's name there. It is called `SWITCH/PORT`.
    pub(crate) fn witnesses_of_port(&self, port: &str) -> Option<(&Arc<Witnesses>, &Switch, &str)> {
        self.switches.iter().find_map(|(name, running)| {
            let port = port.strip_prefix(name.as_str())?.strip_prefix('/')?;
            let (witnesses, name) = running.witnesses_of(port)?;
            Some((witnesses, &running.switch, name))
        })
    }

    /// Shows each switch, those of chips too.
    pub fn each_switch(&self, visit: &mut dyn FnMut(&str, &Switch)) {
        for (name, running) in &self.switches {
            visit(name, &running.switch);
        }
        for (name, (chip, _)) in &self.chips {
            visit(name, chip.switch());
        }
    }

    /// Where captures of a NIC are attached.
    pub fn probe(&self, nic: &str) -> Option<&Arc<Probe>> {
        Some(self.nics.get(nic)?.capture.probe())
    }

    /// The ports of a switch besides NICs: as they are written, and the names of their counters.
    pub fn ports_of(&self, switch: &str) -> Vec<(String, String)> {
        let running = self.switches.get(switch);
        let ports = running.into_iter().flat_map(|running| running.ports());
        ports.map(|(spec, name)| (spec.to_string(), name)).collect()
    }

    /// All counters: workers, NICs, their ports, switch ports.
    pub fn counters(&self) -> Vec<Section> {
        let mut sections = self.workers.counters();
        // All are asked before the first is waited for: busy workers are waited for once.
        let asked: Vec<_> = self.nics.values().map(|nic| nic.nic.ask()).collect();
        let until = Instant::now() + PATIENCE;
        for ((name, attached), question) in self.nics.iter().zip(asked) {
            let mut section = RunningNic::told(name, question, until);
            let (worker, turns, work) = attached.nic.turns();
            let of_worker = [
                ("worker", worker as u64),
                ("turns", turns),
                ("work_ns", work),
            ];
            section.values.extend(of_worker);
            sections.push(section);
            if let Some((port, counters)) = &attached.port {
                sections.push(Section::of("port", format!("{name}/{port}"), &**counters));
            }
            if let Some(inlet) = &attached.inlet {
                let counters = inlet.counters();
                sections.push(Section::of("inlet", name.clone(), &*counters));
            }
            if let Some(capture) = attached.capture.counters() {
                sections.push(Section::of("capture", name.clone(), &*capture));
            }
        }
        sections.extend(self.tenants.sections());
        for (name, (chip, _)) in &self.chips {
            chip.counters(name, &mut sections);
        }
        for running in self.switches.values() {
            running.counters(&mut sections);
        }
        sections
    }
}
