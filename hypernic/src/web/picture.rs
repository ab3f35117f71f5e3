//! The host as a page draws it: its shape, which seldom changes, and rates as numbers.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use control::{NicInfo, PortList, StatusGet, SwitchList};
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::with;
use crate::error::Error;
use crate::explain;
use crate::top::{Look, LossRow, Sample, View};

/// After a longer time without a look, rates begin anew.
const LONG: Duration = Duration::from_secs(10);
/// Most reasons of losses that are told: those for which most is lost now.
const REASONS: usize = 40;
/// Most of those who lose for a reason.
const LOSERS: usize = 8;

/// What a host is made of.
#[derive(Serialize)]
struct Shape {
    version: String,
    role: String,
    nics: Vec<Nic>,
    switches: Vec<Switch>,
    ports: Vec<Port>,
}

#[derive(Serialize)]
struct Nic {
    name: String,
    model: String,
    state: &'static str,
    port: String,
    tenant: String,
    mac: String,
    transport: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    chip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vf: Option<u32>,
}

#[derive(Serialize)]
struct Switch {
    name: String,
    nics: usize,
    chips: Vec<String>,
}

#[derive(Serialize)]
struct Port {
    switch: String,
    port: String,
}

/// A look, told.
pub(super) struct Now {
    shape: String,
    shape_id: String,
    /// The members of an object.
    rates: String,
}

impl Now {
    /// All of it as JSON, but the shape for one that has it. `log` is JSON.
    pub fn text(&self, shape: &str, log: &str, changes: bool) -> String {
        let (id, rates) = (&self.shape_id, &self.rates);
        let shape = match shape == id {
            true => String::new(),
            false => format!("\"shape\":{},", self.shape),
        };
        format!(
            "{{\"up\":true,\"changes\":{changes},\"shape_id\":\"{id}\",{shape}\"log\":{log},{rates}}}"
        )
    }
}

/// What was there at the last look.
#[derive(Default)]
pub(super) struct Picture {
    before: Option<Sample>,
}

impl Picture {
    pub fn look(&mut self, look: &mut Look) -> Result<Now, Error> {
        let sample = look.look()?;
        let client = look.client();
        let status = with(client.call(&StatusGet {}))?;
        let switches = with(client.call(&SwitchList { name: None }))?.switches;
        let ports = with(client.call(&PortList { switch: None }))?.ports;
        let recent = |before: &Sample| sample.at.duration_since(before.at) < LONG;
        let before = self.before.take().filter(recent);
        let view = View::between(before.as_ref().unwrap_or(&sample), &sample);
        let states: HashMap<_, _> = view
            .nics
            .iter()
            .map(|row| (row.nic.as_str(), row.state))
            .collect();
        let nic = |nic: &NicInfo| {
            let config = &nic.config;
            let text = |word: &Option<String>| word.clone().unwrap_or_default();
            Nic {
                name: config.name.clone(),
                model: text(&config.model),
                state: states
                    .get(config.name.as_str())
                    .copied()
                    .unwrap_or("failed"),
                port: config.port.clone(),
                tenant: text(&config.tenant),
                mac: text(&config.mac),
                transport: text(&config.transport),
                chip: nic.chip.clone(),
                vf: nic.vf,
            }
        };
        let rates = rates(&view, &ports, before.is_some(), status.generation);
        let shape = Shape {
            version: status.version,
            role: status.role,
            nics: sample.nics.iter().map(nic).collect(),
            switches: switches
                .into_iter()
                .map(|switch| Switch {
                    name: switch.config.name,
                    nics: switch.nics.len(),
                    chips: switch.chips,
                })
                .collect(),
            ports: ports
                .into_iter()
                .map(|port| Port {
                    switch: port.switch,
                    port: port.port,
                })
                .collect(),
        };
        let shape = serde_json::to_string(&shape).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        shape.hash(&mut hasher);
        self.before = Some(sample);
        Ok(Now {
            shape,
            shape_id: format!("{:016x}", hasher.finish()),
            rates,
        })
    }
}

/// Numbers of things by their places in the shape; those of which all are 0 are left out.
fn rates(view: &View, ports: &[control::PortInfo], known: bool, generation: u64) -> String {
    let by_name: HashMap<_, _> = view
        .switches
        .iter()
        .map(|row| (row.port.as_str(), row))
        .collect();
    // What a switch loses of a NIC's frames, it loses on the NIC's port.
    let mut at_switch: HashMap<&str, f64> = HashMap::new();
    for row in view.switches.iter().filter(|row| row.dropped > 0.0) {
        if let Some((_, nic)) = row.port.split_once('/') {
            *at_switch.entry(nic).or_default() += row.dropped;
        }
    }
    let whole =
        |numbers: Vec<f64>| -> Vec<u64> { numbers.iter().map(|n| n.ceil() as u64).collect() };
    let moving = |(_, numbers): &(usize, Vec<u64>)| numbers.iter().any(|n| *n > 0);
    let nics = view.nics.iter().enumerate().map(|(at, row)| {
        let lost = at_switch.get(row.nic.as_str()).copied().unwrap_or(0.0);
        let numbers = vec![
            row.received_packets,
            row.received_bytes,
            row.sent_packets,
            row.sent_bytes,
            row.dropped + lost,
            row.accesses,
            row.interrupts,
            row.work * 1e4,
        ];
        (at, whole(numbers))
    });
    let ports = ports.iter().enumerate().map(|(at, port)| {
        let numbers = by_name.get(port.counters.as_str()).map(|row| {
            let row = [
                row.in_packets,
                row.in_bytes,
                row.out_packets,
                row.out_bytes,
                row.dropped,
            ];
            whole(row.to_vec())
        });
        (at, numbers.unwrap_or_default())
    });
    let (losses, left_out) = losses(view);
    let workers = view.workers.iter().map(|row| {
        json!({
            "name": row.worker, "nics": row.nics, "work": row.work, "looking": row.looking,
            "replies": row.replies, "replies_99_seconds": row.replies_99_seconds,
        })
    });
    let seconds = if known { view.seconds } else { 0.0 };
    let all = json!({
        "generation": generation,
        "seconds": seconds,
        "nics": nics.filter(moving).collect::<Vec<_>>(),
        "ports": ports.filter(moving).collect::<Vec<_>>(),
        "losses": losses,
        "left_out": left_out,
        "workers": workers.collect::<Vec<_>>(),
    });
    let text = all.to_string();
    text.strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .unwrap_or("")
        .to_owned()
}

/// Losses by their reasons: kind, name, a second, all, how many lose, and some of those. Besides, how many reasons are
/// left out.
fn losses(view: &View) -> (Vec<Value>, usize) {
    let mut by_reason: HashMap<_, Vec<&LossRow>> = HashMap::new();
    // The fastest come first, and so they do of each reason.
    for loss in &view.drops {
        let of = by_reason.entry((loss.kind.as_str(), loss.reason));
        of.or_default().push(loss);
    }
    let reasons = by_reason.into_iter().map(|((kind, reason), losers)| {
        let rate: f64 = losers.iter().map(|loss| loss.per_second).sum();
        let all: u64 = losers.iter().map(|loss| loss.all).sum();
        (rate.ceil() as u64, all, kind, reason, losers)
    });
    let mut all: Vec<_> = reasons.collect();
    all.sort_by(|a, b| (b.0, b.1, a.2, a.3).cmp(&(a.0, a.1, b.2, b.3)));
    let left_out = all.len().saturating_sub(REASONS);
    let told = all.into_iter().take(REASONS);
    let told = told.map(|(rate, all, kind, reason, losers)| {
        let some = losers.iter().take(LOSERS);
        let some = some.map(|loss| json!([loss.name, loss.per_second.ceil() as u64, loss.all]));
        json!([
            kind,
            reason,
            rate,
            all,
            losers.len(),
            some.collect::<Vec<_>>()
        ])
    });
    (told.collect(), left_out)
}

/// What every counter means, by kind and name, as JSON.
pub(super) fn reasons() -> String {
    let rows = explain::all().map(|row| {
        let words = [row.class.name(), row.meaning, row.rule, row.cause, row.cure];
        (format!("{} {}", row.kind, row.name), words)
    });
    let rows: HashMap<_, _> = rows.collect();
    serde_json::to_string(&rows).unwrap_or_default()
}
