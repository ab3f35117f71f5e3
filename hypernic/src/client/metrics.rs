//! `hypernic metrics`.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use clap::Args;
use control::{
    AskError, Client, Counts, CountsOf, MetricsGet, NicInfo, NicList, PATIENCE, StatusGet,
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
    /// What is asked for.
    wanted: MetricsGet,
    /// Losses that are not common and were not 0 once: a scraper that has seen one sees it until its owner goes.
    seen: BTreeSet<(String, &'static str)>,
}

/// How a counter is told.
#[derive(Clone, Copy)]
pub(super) enum Told {
    Not,
    /// In a family, with this label; as seconds, if it counts nanoseconds.
    Sample {
        family: usize,
        label: &'static str,
        seconds: bool,
    },
    /// As a reason of a loss; while it is 0, too, if it is common.
    Loss {
        family: usize,
        reason: &'static Reason,
        common: bool,
    },
}

/// Whether a counter is told, and whether while it is 0.
fn is_told(reason: &Reason, all: bool) -> (bool, bool) {
    match reason.class {
        Class::Count if reason.kind == "nic" => {
            let told = all || USUAL.contains(&reason.name);
            (told, told)
        }
        // They are told with the NIC's words.
        Class::Gauge if reason.kind == "nic" => (false, false),
        Class::Count | Class::Gauge => (true, true),
        _ => (true, COMMON.contains(&reason.name)),
    }
}

impl Scraper {
    /// With every counter of every NIC, or with the usual ones.
    pub fn new(all: bool) -> Self {
        let named = |is: fn((bool, bool)) -> bool| {
            let rows = explain::all().filter(|row| is(is_told(row, all)));
            let mut names: Vec<_> = rows.map(|row| row.name.to_owned()).collect();
            names.sort();
            names.dedup();
            Some(names)
        };
        let wanted = MetricsGet {
            kind: None,
            things: None,
            names: named(|(told, _)| told),
            zeros: named(|(_, zero)| zero),
        };
        Self {
            all,
            wanted,
            seen: BTreeSet::new(),
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
        of_build(families, &status.version);
        for nic in &nics.nics {
            of_nic(families, nic);
        }
        let (all, seen) = (self.all, &mut self.seen);
        client.ask_in_place(&self.wanted, patience, |reply| {
            tell_all(&reply.parameters()?, all, seen, families);
            Ok(())
        })
    }
}

/// Tells what is counted. `seen` are losses that are told while they are 0, too.
fn tell_all(
    counts: &Counts<'_>,
    all: bool,
    seen: &mut BTreeSet<(String, &'static str)>,
    families: &mut Families,
) {
    let mut before = std::mem::take(seen);
    // There are many of a kind, and how their counters are told is found out once.
    let mut plans: HashMap<&str, Plan<'_>> = HashMap::new();
    for section in &counts.sections {
        match section.kind {
            "sandbox" => of_sandbox(families, section),
            "worker" => of_replies(families, section),
            _ => {}
        }
        let of_kind = plans.entry(section.kind).or_default();
        let mut place = 0;
        for (name, value) in &section.values {
            let told = of_kind.get(&mut place, name, || plan(families, section.kind, name, all));
            let rare = tell(families, &section.name, told, *value);
            if let Some(counter) = rare {
                let key = (section.name.to_string(), counter);
                before.remove(&key);
                seen.insert(key);
            }
        }
    }
    not_forgotten(before, counts, seen, families);
}

/// How the counters of a kind of thing are told, by name.
#[derive(Default)]
struct Plan<'m>(Vec<(&'m str, Told)>);

impl<'m> Plan<'m> {
    /// How one is told: most come in their order, and `place` is where the next is then.
    fn get(&mut self, place: &mut usize, name: &'m str, find: impl FnOnce() -> Told) -> Told {
        let at = match self.0.get(*place) {
            Some((known, _)) if *known == name => *place,
            _ => match self.0.binary_search_by_key(&name, |(known, _)| known) {
                Ok(at) => at,
                Err(at) => {
                    self.0.insert(at, (name, find()));
                    at
                }
            },
        };
        *place = at + 1;
        self.0[at].1
    }
}

/// A daemon that was started again counts from 0, and does not tell that.
fn not_forgotten(
    before: BTreeSet<(String, &'static str)>,
    counts: &Counts<'_>,
    seen: &mut BTreeSet<(String, &'static str)>,
    families: &mut Families,
) {
    if before.is_empty() {
        return;
    }
    for section in &counts.sections {
        let name = &*section.name;
        let of_it = before.range((name.to_owned(), "")..);
        for (name, counter) in of_it.take_while(|(of, _)| of == name) {
            if let Some(reason) = explain::find(section.kind, counter) {
                let family = losses(families, reason.class);
                tell_loss(families, family, name, reason, 0);
                seen.insert((name.clone(), counter));
            }
        }
    }
}

/// How a counter of a kind of thing is told.
pub(super) fn plan(families: &mut Families, kind: &str, name: &str, all: bool) -> Told {
    let Some(reason) = explain::find(kind, name) else {
        return Told::Not;
    };
    let (told, common) = is_told(reason, all);
    // Those of workers that begin so are told as one histogram; the sandbox's are labels.
    if !told || (kind == "worker" && name.starts_with("replies_")) || kind == "sandbox" {
        return Told::Not;
    }
    let (what, (name, help)) = match reason.class {
        Class::Count => (Kind::Counter, named(reason)),
        Class::Gauge => {
            let name = format!("hypernic_{}_{name}", kind.replace('-', "_"));
            (Kind::Gauge, (name, reason.meaning.to_owned()))
        }
        class => {
            return Told::Loss {
                family: losses(families, class),
                reason,
                common,
            };
        }
    };
    let seconds = name
        .strip_suffix("_ns")
        .map(|name| format!("{name}_seconds"));
    let label = label(reason.kind);
    Told::Sample {
        label,
        seconds: seconds.is_some(),
        family: match seconds {
            Some(name) => {
                let help = help.replace("Nanoseconds", "Seconds");
                families.family(what, &name, &help.replace("nanoseconds", "seconds"))
            }
            None => families.family(what, &name, &help),
        },
    }
}

/// Tells a counter of a thing. Returns its name, if it is to be told from now on while it is 0, too.
pub(super) fn tell(
    families: &mut Families,
    of: &str,
    told: Told,
    value: u64,
) -> Option<&'static str> {
    match told {
        Told::Not => {}
        Told::Sample {
            family,
            label,
            seconds: true,
        } => families.add_to(family, &[(label, of)], value as f64 / 1e9),
        Told::Sample { family, label, .. } => families.add_to(family, &[(label, of)], value),
        Told::Loss {
            family,
            reason,
            common,
        } => {
            tell_loss(families, family, of, reason, value);
            return (!common).then_some(reason.name);
        }
    }
    None
}

/// The family of losses of a class.
fn losses(families: &mut Families, class: Class) -> usize {
    let (name, what) = match class {
        Class::Drop => ("hypernic_drops", "Frames lost"),
        Class::Refusal => ("hypernic_refusals", "What was asked for and refused"),
        Class::Fault => ("hypernic_faults", "What broke"),
        _ => ("hypernic_delays", "Times that something waited"),
    };
    let help = format!("{what}, by reason; hypernic explain REASON says why, and what to do");
    families.family(Kind::Counter, name, &help)
}

fn tell_loss(families: &mut Families, family: usize, of: &str, reason: &Reason, value: u64) {
    let labels = [("kind", reason.kind), ("name", of), ("reason", reason.name)];
    families.add_to(family, &labels, value);
}

/// Which program it is.
pub(super) fn of_build(families: &mut Families, version: &str) {
    let version = [("version", version)];
    let help = "The version of the daemon";
    families.add(Kind::Info, "hypernic_build", help, &version, 1);
}

/// Its layers, in words.
pub(super) fn of_sandbox(families: &mut Families, section: &CountsOf<'_>) {
    let values = section.values.iter();
    let values: Vec<_> = values
        .map(|(name, value)| (*name, value.to_string()))
        .collect();
    let mut labels = vec![("mode", &*section.name)];
    labels.extend(values.iter().map(|(name, value)| (*name, value.as_str())));
    let help = "What the daemon has given up: docs/sandbox.md";
    families.add(Kind::Info, "hypernic_sandbox", help, &labels, 1);
}

pub(super) fn of_nic(families: &mut Families, info: &NicInfo) {
    let config = &info.config;
    let nic = config.name.as_str();
    let labels = [
        ("nic", nic),
        ("port", config.port.as_str()),
        ("model", config.model.as_deref().unwrap_or_default()),
        ("mac", config.mac.as_deref().unwrap_or_default()),
        ("transport", config.transport.as_deref().unwrap_or_default()),
        ("tenant", config.tenant.as_deref().unwrap_or_default()),
    ];
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

/// How long messages waited at one worker.
pub(super) fn of_replies(families: &mut Families, of: &CountsOf<'_>) {
    let get = |name: &str| {
        let mut values = of.values.iter();
        values
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, n)| *n)
    };
    let (bounds, later, sum) = histogram();
    let within: Vec<_> = bounds.iter().map(|(le, name)| (*le, get(name))).collect();
    let help = "How long messages of VMMs waited for their answers at a worker; a virtual CPU waits as long";
    let rest = (get(later), get(sum) as f64 / 1e9);
    let label = ("worker", &*of.name);
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
