//! What a host is now, for those who look at it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use guest_mem::RegionInfo;
use model::Peeked;
use port::capture::Probe;
use vale::{Switch, Witnesses};
use vfio_user::VectorInfo;

use super::far::NicState;
use super::{Attached, Host};
use crate::config::{ChipConfig, HostConfig, NicConfig};
use crate::nic::{PATIENCE, RunningNic, Values};
use crate::report::Section;
use crate::spec::NicMac;

/// NICs whose counters are kept at once while all are shown: few enough that the memory is used again and again.
const ASKED_AT_ONCE: usize = 64;

impl Host {
    /// What it would be made from to be as it is.
    pub fn as_is(&self) -> HostConfig {
        HostConfig {
            workers: self.workers.count(),
            switches: self.switches.values().map(|s| s.config.clone()).collect(),
            chips: self.chip_configs().cloned().collect(),
            nics: self.nic_configs().cloned().collect(),
            ..self.head.clone()
        }
    }

    /// Its NICs.
    pub(crate) fn nic_configs(&self) -> impl Iterator<Item = &NicConfig> {
        let own = self.nics.values().map(|nic| &nic.config);
        own.chain(self.far.nics.values())
    }

    /// Its chips.
    pub(super) fn chip_configs(&self) -> impl Iterator<Item = &ChipConfig> {
        let own = self.chips.values().map(|(_, config)| config);
        own.chain(self.far.chips.values())
    }

    /// The same with what is laid down for virtual functions by now.
    pub fn configuration(&self) -> HostConfig {
        let mut is = self.as_is();
        is.nics.iter_mut().for_each(|nic| self.lay_down(nic));
        is
    }

    /// The same of one NIC.
    pub(crate) fn nic_configuration(&self, name: &str) -> Option<NicConfig> {
        let mut all = self.nic_configs();
        let mut nic = all.find(|nic| nic.name == name)?.clone();
        self.lay_down(&mut nic);
        Some(nic)
    }

    fn lay_down(&self, nic: &mut NicConfig) {
        let status = self.vf_status(&nic.name);
        if let (Some(vf), Some(status)) = (&mut nic.vf, status) {
            vf.policy = status.policy;
            nic.mac = NicMac(vf.policy.mac.0);
        }
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
        let Some(attached) = self.nics.get(name) else {
            return self.far.state(name);
        };
        let nic = &attached.nic;
        let of_vf = self.vf(name).and_then(|(chip, vf)| chip.vf_link(vf));
        Some(NicState {
            connected: nic.is_attached(),
            link: nic.has_link() && of_vf.unwrap_or(true),
            failed: nic.has_failed(),
            revision: nic.revision(),
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
        let far = self.far.nics.keys();
        self.nics.keys().chain(far).map(String::as_str)
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
        let mut sections = Vec::new();
        self.each_section(&mut |section| sections.push(section));
        sections
    }

    /// Shows all counters, and keeps those of a few NICs at a time.
    pub fn each_section(&self, show: &mut dyn FnMut(Section)) {
        self.workers.counters().into_iter().for_each(&mut *show);
        let nics: Vec<_> = self.nics.iter().collect();
        let until = Instant::now() + PATIENCE;
        for some in nics.chunks(ASKED_AT_ONCE) {
            // All are asked before the first is waited for: busy workers are waited for once.
            let asked: Vec<_> = some.iter().map(|(_, nic)| nic.nic.ask()).collect();
            for ((name, attached), question) in some.iter().zip(asked) {
                attached.each_section(name, question, until, show);
            }
        }
        let mut sections = Vec::new();
        sections.extend(self.tenants.sections());
        sections.extend(self.cell_sections());
        for (name, (chip, _)) in &self.chips {
            chip.counters(name, &mut sections);
        }
        for running in self.switches.values() {
            running.counters(&mut sections);
        }
        sections.into_iter().for_each(show);
    }
}

impl Attached {
    /// Shows its counters, which its worker was asked for and may tell until then, and those of its port and what is beside that.
    fn each_section(
        &self,
        name: &str,
        question: Option<mpsc::Receiver<Values>>,
        until: Instant,
        show: &mut dyn FnMut(Section),
    ) {
        let mut section = RunningNic::told(name, question, until);
        let (worker, turns, work) = self.nic.turns();
        let of_worker = [
            ("worker", worker as u64),
            ("turns", turns),
            ("work_ns", work),
        ];
        section.values.extend(of_worker);
        show(section);
        if let Some((port, counters)) = &self.port {
            show(Section::of("port", format!("{name}/{port}"), &**counters));
        }
        if let Some(inlet) = &self.inlet {
            show(Section::of("inlet", name, &*inlet.counters()));
        }
        if let Some(capture) = self.capture.counters() {
            show(Section::of("capture", name, &*capture));
        }
    }
}
