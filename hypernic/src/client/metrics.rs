//! `hypernic metrics`.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use control::{
    AskError, Client, MetricsGet, NicInfo, NicList, PATIENCE, Section, Sections, StatusGet,
};

use super::exposition::{Exposition, Families, Kind};
use super::place::{Place, with};
use crate::error::Error;
use crate::explain::{self, Class, Reason};
use crate::worker::histogram;

/// Counters of NICs that are always told. The others are many, and told if asked for.
const USUAL: &[&str] = &[
    "tx_frames",
    "tx_bytes",
    "rx_frames",
    "rx_bytes",
    "reg_reads",
    "reg_writes",
    "tx_doorbells",
    "rx_doorbells",
    "irq_triggers",
    "calls",
    "kicks",
    "clients",
    "work_ns",
];

/// Losses that are told while they are zero too: an alert needs the zero before the first.
const COMMON: &[&str] = &[
    "rx_missed",
    "rx_no_client",
    "rx_dma_fault",
    "tx_dma_fault",
    "rx_back_pressure",
    "drop_no_room",
    "drop_spoofed",
    "drop_storm",
    "drop_rate_in",
    "vf_refused_spoofed",
    "control_not_allowed",
    "fallen",
    "log_lines_lost",
    "worker_restarts",
    "nics_quarantined",
];

/// `hypernic metrics`.
#[derive(Args, Debug)]
pub struct MetricsCommand {
    #[command(flatten)]
    place: Place,
    /// openmetrics, or prometheus for node_exporter's textfile collector.
    #[arg(long, value_enum, default_value_t)]
    format: Exposition,
    /// Every counter of every NIC, too.
    #[arg(long)]
    all: bool,
}

impl MetricsCommand {
    /// Asks the daemon. Returns the text that a scraper reads.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self) -> Result<String, Error> {
        let mut client = self.place.connect()?;
        let mut families = Families::new(usize::MAX);
        let mut scraper = Scraper::new(self.all);
        with(scraper.look(&mut client, PATIENCE, &mut families))?;
        Ok(families.text(self.format))
    }
}

/// Asks for all that a scraper reads, again and again.
pub(crate) struct Scraper {
    all: bool,
    /// Counters that are told while they are 0.
    zeros: Vec<String>,
    /// Losses that were not 0 once: who has seen one sees it until its owner goes.
    seen: HashSet<(String, &'static str)>,
}

impl Scraper {
    /// With every counter of every NIC, or with the usual ones.
    pub fn new(all: bool) -> Self {
        let told = |reason: &&Reason| match reason.class {
            Class::Count if reason.kind == "nic" => all || USUAL.contains(&reason.name),
            Class::Count | Class::Gauge => true,
            _ => COMMON.contains(&reason.name),
        };
        let zeros = explain::all().filter(told).map(|r| r.name.to_owned());
        Self {
            all,
            zeros: zeros.collect(),
            seen: HashSet::new(),
        }
    }

    /// Asks once. Each answer may take so long.
    pub fn look(
        &mut self,
        client: &mut Client,
        patience: Duration,
        families: &mut Families,
    ) -> Result<(), AskError> {
        let status = client.ask(&StatusGet {}, patience)?;
        let nics = client.ask(&NicList { name: None }, patience)?;
        let zeros = Some(self.zeros.clone());
        let get = MetricsGet { kind: None, zeros };
        let sections = client.ask(&get, patience)?;
        let version = [("version", status.version.as_str())];
        let help = "The version of the daemon";
        families.add(Kind::Info, "hypernic_build", help, &version, 1);
        for nic in &nics.nics {
            of_nic(families, nic);
        }
        let mut before = std::mem::take(&mut self.seen);
        for section in &sections.sections {
            if section.kind == "sandbox" {
                of_sandbox(families, section);
                continue;
            }
            if section.kind == "worker" {
                of_replies(families, section);
            }
            for (name, value) in &section.values {
                if let Some(reason) = explain::find(&section.kind, name) {
                    of_counter(families, section, reason, *value, self.all);
                    if reason.class.needs_cure() {
                        let key = (section.name.clone(), reason.name);
                        before.remove(&key);
                        self.seen.insert(key);
                    }
                }
            }
        }
        self.not_forgotten(before, &sections, families);
        Ok(())
    }

    /// A daemon that was started again counts from 0, and does not tell that.
    fn not_forgotten(
        &mut self,
        before: HashSet<(String, &'static str)>,
        sections: &Sections,
        families: &mut Families,
    ) {
        if before.is_empty() {
            return;
        }
        for section in &sections.sections {
            let of_it = before.iter().filter(|(name, _)| *name == section.name);
            for (_, counter) in of_it {
                if let Some(reason) = explain::find(&section.kind, counter) {
                    tell_loss(families, section, reason, 0);
                    self.seen.insert((section.name.clone(), reason.name));
                }
            }
        }
    }
}

/// Its layers, in words.
fn of_sandbox(families: &mut Families, section: &Section) {
    let values: Vec<_> = section
        .values
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_string()))
        .collect();
    let mut labels = vec![("mode", section.name.as_str())];
    labels.extend(values.iter().map(|(name, value)| (*name, value.as_str())));
    let help = "What the daemon has given up: docs/sandbox.md";
    families.add(Kind::Info, "hypernic_sandbox", help, &labels, 1);
}

fn of_nic(families: &mut Families, info: &NicInfo) {
    let config = &info.config;
    let nic = config.name.as_str();
    let word = |word: &'static str, said: &Option<String>| (word, said.clone().unwrap_or_default());
    let words = [
        word("model", &config.model),
        word("mac", &config.mac),
        word("transport", &config.transport),
        word("tenant", &config.tenant),
    ];
    let mut labels = vec![("nic", nic), ("port", config.port.as_str())];
    labels.extend(words.iter().map(|(word, said)| (*word, said.as_str())));
    families.add(Kind::Info, "hypernic_nic", "A NIC, in words", &labels, 1);
    for (name, help, on) in [
        (
            "hypernic_nic_client_connected",
            "1: a VMM has the NIC",
            info.connected,
        ),
        (
            "hypernic_nic_link_up",
            "1: the cable of the NIC is in",
            info.link,
        ),
        (
            "hypernic_nic_failed",
            "1: the model of the NIC panicked, and the NIC was taken off",
            info.failed,
        ),
    ] {
        families.add(Kind::Gauge, name, help, &[("nic", nic)], u8::from(on));
    }
}

/// One counter of the table, under the name that its readers expect.
fn of_counter(families: &mut Families, of: &Section, reason: &Reason, value: u64, all: bool) {
    let (kind, counter) = (reason.kind, reason.name);
    match reason.class {
        Class::Count if kind == "nic" && !all && !USUAL.contains(&counter) => {}
        // They are told as one histogram.
        Class::Count if kind == "worker" && counter.starts_with("replies_") => {}
        Class::Count => {
            let (name, help) = named(reason);
            let label = [(label(kind), of.name.as_str())];
            match name.strip_suffix("_ns") {
                Some(name) => {
                    let name = format!("{name}_seconds");
                    let help = help.replace("Nanoseconds", "Seconds");
                    families.add(Kind::Counter, &name, &help, &label, value as f64 / 1e9);
                }
                None => families.add(Kind::Counter, &name, &help, &label, value),
            }
        }
        // They are told with the NIC's words.
        Class::Gauge if kind == "nic" => {}
        Class::Gauge => {
            let label = [(label(kind), of.name.as_str())];
            let name = format!("hypernic_{}_{counter}", kind.replace('-', "_"));
            match name.strip_suffix("_ns") {
                Some(name) => {
                    let name = format!("{name}_seconds");
                    let help = reason.meaning.replace("nanoseconds", "seconds");
                    families.add(Kind::Gauge, &name, &help, &label, value as f64 / 1e9);
                }
                None => families.add(Kind::Gauge, &name, reason.meaning, &label, value),
            }
        }
        _ if value > 0 || COMMON.contains(&counter) => tell_loss(families, of, reason, value),
        _ => {}
    }
}

fn tell_loss(families: &mut Families, of: &Section, reason: &Reason, value: u64) {
    let (name, what) = match reason.class {
        Class::Drop => ("hypernic_drops", "Frames lost"),
        Class::Refusal => ("hypernic_refusals", "What was asked for and refused"),
        Class::Fault => ("hypernic_faults", "What broke"),
        _ => ("hypernic_delays", "Times that something waited"),
    };
    let help = format!("{what}, by reason; hypernic explain REASON says why, and what to do");
    let labels = [
        ("kind", reason.kind),
        ("name", of.name.as_str()),
        ("reason", reason.name),
    ];
    families.add(Kind::Counter, name, &help, &labels, value);
}

/// How long messages waited at one worker.
fn of_replies(families: &mut Families, of: &Section) {
    let get = |name: &str| of.values.get(name).copied().unwrap_or(0);
    let (bounds, later, sum) = histogram();
    let within: Vec<_> = bounds.iter().map(|(le, name)| (*le, get(name))).collect();
    let help = "How long messages of VMMs waited for their answers at a worker; a virtual CPU waits as long";
    let rest = (get(later), get(sum) as f64 / 1e9);
    let label = ("worker", of.name.as_str());
    families.histogram("hypernic_reply_seconds", help, label, &within, rest);
}

/// What a thing of a kind is called in a label.
fn label(kind: &'static str) -> &'static str {
    match kind {
        "switch-port" => "port",
        "vf" => "nic",
        kind => kind,
    }
}

/// The family of a counter and its help: those of NICs have the names of node_exporter's network devices.
fn named(reason: &Reason) -> (String, String) {
    let both = |direction: &str, what: &str| {
        let name = format!("hypernic_nic_{direction}_{what}");
        (name, format!("{}; as the guest sees it", reason.meaning))
    };
    match (reason.kind, reason.name) {
        ("nic", "rx_frames") => both("receive", "packets"),
        ("nic", "rx_bytes") => both("receive", "bytes"),
        ("nic", "tx_frames") => both("transmit", "packets"),
        ("nic", "tx_bytes") => both("transmit", "bytes"),
        ("nic", "irq_triggers" | "calls") => {
            let name = "hypernic_nic_interrupts".to_owned();
            (name, "Interrupts signalled to the guest".to_owned())
        }
        (kind, name) => {
            let kind = kind.replace('-', "_");
            let name = name.strip_prefix(&format!("{kind}_")).unwrap_or(name);
            (format!("hypernic_{kind}_{name}"), reason.meaning.to_owned())
        }
    }
}
