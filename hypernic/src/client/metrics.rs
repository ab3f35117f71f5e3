//! `hypernic metrics`.

use clap::Args;
use control::{MetricsGet, NicInfo, NicList, Section, StatusGet};

use super::exposition::{Exposition, Families, Kind};
use super::place::{Place, with};
use crate::error::Error;
use crate::explain::{self, Class, Reason};

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
        let status = with(client.call(&StatusGet {}))?;
        let nics = with(client.call(&NicList { name: None }))?;
        let sections = with(client.call(&MetricsGet { kind: None }))?;
        let mut families = Families::default();
        let version = [("version", status.version.as_str())];
        let help = "The version of the daemon";
        families.add(Kind::Info, "hypernic_build", help, &version, 1);
        for nic in &nics.nics {
            of_nic(&mut families, nic);
        }
        for section in &sections.sections {
            for (name, value) in &section.values {
                if let Some(reason) = explain::find(&section.kind, name) {
                    of_counter(&mut families, section, reason, *value, self.all);
                }
            }
        }
        Ok(families.text(self.format))
    }
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
        Class::Count => {
            let (name, help) = named(reason);
            let label = [(label(kind), of.name.as_str())];
            families.add(Kind::Counter, &name, &help, &label, value);
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
        class if value > 0 || COMMON.contains(&counter) => {
            let (name, what) = match class {
                Class::Drop => ("hypernic_drops", "Frames lost"),
                Class::Refusal => ("hypernic_refusals", "What was asked for and refused"),
                Class::Fault => ("hypernic_faults", "What broke"),
                _ => ("hypernic_delays", "Times that something waited"),
            };
            let help =
                format!("{what}, by reason; hypernic explain REASON says why, and what to do");
            let labels = [
                ("kind", kind),
                ("name", of.name.as_str()),
                ("reason", counter),
            ];
            families.add(Kind::Counter, name, &help, &labels, value);
        }
        _ => {}
    }
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
