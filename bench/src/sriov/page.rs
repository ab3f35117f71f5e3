//! What the page says: theirs beside ours, targets and verdicts.

use serde_json::Value;

use super::plan::{
    AWAKE, BEYOND, COUNTS, FEW, Interrupts, LINE, LOADS, MASKINGS, PAIRS, POLICIES, PORTS, RINGS,
    Scale,
};
use super::sums::{APPLICATION, slope, spread};
use crate::error::{Error, Result};
use crate::page::Page;
use crate::plot::{Scale as Axis, Whose, lines, set};
use crate::stats::{Column, Summary, figure};

/// The targets: how far throughput may spread from 10 to 60 VMs, percent of a core one more VM may cost,
/// percent of a core and KiB that idle functions may, VF to VF over e1000 to e1000.
const FLAT: f64 = 0.05;
const ONE_MORE: f64 = 1.0;
const IDLE: f64 = 2.0;
const MEMORY: f64 = 128.0;
const RATIO: f64 = 0.9;

fn published() -> Result<Value> {
    serde_json::from_str(include_str!("../../papers/sriov.json"))
        .map_err(|e| Error::Usage(format!("bench/papers/sriov.json: {e}")))
}

/// The median of something counted beside the figure.
pub fn raw(column: &Column, name: &str) -> f64 {
    let values: Vec<f64> = column
        .readings()
        .filter_map(|r| r.raw[name].as_f64())
        .collect();
    Summary::of(&values).map_or(f64::NAN, |s| s.median)
}

fn verdict(holds: bool) -> &'static str {
    if holds { "met" } else { "**missed**" }
}

/// As raw data.
pub fn json(columns: &[Column]) -> Vec<Value> {
    columns.iter().map(Column::json).collect()
}

/// What the paper says, and how this differs.
///
/// # Errors
/// When the paper's numbers are no JSON.
pub fn begin(page: &mut Page) -> Result<()> {
    let paper = published()?;
    page.text(
        "Drivers of our own play the VMs, over a vfio-user socket each, and a client at each port: all of them are one \
         thread on one processor, the daemon with one worker, which does not stay awake for what might come \
         (`busy-poll-us = 0`), is on the other. So what is measured is the NIC; the paper's \
         percentages are of a whole server with guests, hypervisor and domain 0. There the load comes over a cable from \
         a second machine; here the client is one more VF of the same port, so all frames go through the on-chip switch.",
    );
    page.heading("What the paper says");
    let mut rows = Vec::new();
    for figure in paper["figures"].as_array().into_iter().flatten() {
        let says: Vec<&str> = figure["says"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let values: Vec<String> = figure["values"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
            .collect();
        rows.push(vec![
            figure["place"].as_str().unwrap_or_default().to_owned(),
            says.join(" "),
            values.join("; "),
        ]);
    }
    page.table(&["place", "says", "numbers"], &rows);
    page.data("paper", paper);
    Ok(())
}

/// VM to VM.
pub fn pairs(page: &mut Page, inside: &[Column], columns: &[Column]) {
    page.heading("Between two VMs (figure 12)");
    page.text(&format!(
        "Two VFs of one chip beside two e1000s on one switch, poll-mode drivers on both ends, as fast as it goes, in \
         turns. Rings of {}. The paper: {} Gbit/s, a paravirtualized NIC 4.3.",
        RINGS[1], 2.8
    ));
    page.text(
        "Inside one process (models, switch and both memories, one thread, no sockets): nanoseconds of processor time \
         a frame, and the e1000s' time over the VFs'. An advanced descriptor comes back \
         without its address, so the VF's driver writes both words anew for each frame, which is in its time.",
    );
    let mut rows = Vec::new();
    for (i, (size, burst)) in PAIRS.into_iter().enumerate() {
        let (vf, e1000) = (&inside[2 * i], &inside[2 * i + 1]);
        let ratio = e1000.over(vf).map_or("–".to_owned(), |r| r.words());
        rows.push(vec![
            size.to_string(),
            burst.to_string(),
            vf.words(),
            e1000.words(),
            ratio,
        ]);
    }
    page.table(&["bytes", "burst", "VF: ns", "e1000: ns", "ratio"], &rows);
    page.text(&format!(
        "Over sockets, with a worker that stays awake as long as it does by default (`busy-poll-us = {AWAKE}`):"
    ));
    let mut rows = Vec::new();
    let mut least: Option<Summary> = None;
    for (i, (size, burst)) in PAIRS.into_iter().enumerate() {
        let (vf, e1000) = (&columns[2 * i], &columns[2 * i + 1]);
        let ratio = vf.over(e1000);
        if size == 60
            && let Some(ratio) = ratio
            && least.is_none_or(|least| ratio.median < least.median)
        {
            least = Some(ratio);
        }
        rows.push(vec![
            size.to_string(),
            burst.to_string(),
            vf.words(),
            e1000.words(),
            ratio.map_or("–".to_owned(), |r| r.words()),
            figure(raw(vf, "mpps_per_core")),
            figure(raw(e1000, "mpps_per_core")),
            figure(raw(vf, "gbit")),
        ]);
    }
    page.table(
        &[
            "bytes",
            "burst",
            "VF: Mpps",
            "e1000: Mpps",
            "ratio",
            "VF: Mpps per core of the daemon",
            "e1000's",
            "VF: Gbit/s",
        ],
        &rows,
    );
    if let Some(least) = least {
        page.text(&format!(
            "Target, frames of 60 bytes: at least {RATIO} of e1000 to e1000. {}: {}.",
            least.words(),
            verdict(least.median >= RATIO)
        ));
    }
    page.data("pairs", json(columns));
    page.data("pairs_inside", json(inside));
}

/// From ten VMs to a thousand.
pub fn scale(page: &mut Page, figures: &Scale) {
    let Scale { fixed, full, idle } = figures;
    loads(page, fixed, full);
    growth(page, fixed, full);
    idle_functions(page, idle);
    page.data("fixed_load", json(fixed));
    page.data("full_load", json(full));
    page.data("idle", idle.json());
}

fn loads(page: &mut Page, fixed: &[Column], full: &[Column]) {
    page.heading("From 10 to 60 VMs, and beyond (figures 14 and 15)");
    page.text(&format!(
        "{PORTS} ports, each with the VFs its VMs need and one for the sender; VM n is at port n modulo {PORTS}. All VFs \
         (and e1000s, {PORTS} switches) are connected, those that take no part are idle. Frames of 1514 bytes, rings of {}. \
         *Fixed load* is the paper's aggregate, 9.57 Gbit/s; VMs sleep until they are interrupted, at most 2000 times a \
         second each (EITR; the e1000s by their daemon). *Full load* is as fast as it goes, with VMs that poll.",
        RINGS[0]
    ));
    let name = |column: &Column| column.id.clone();
    let rows = fixed.iter().zip(full).map(|(fixed, full)| {
        vec![
            name(fixed),
            figure(raw(fixed, "gbit")),
            fixed.words(),
            figure(raw(fixed, "vms_cpu")),
            figure(raw(fixed, "interrupts")),
            figure(raw(full, "gbit")),
            full.words(),
        ]
    });
    page.table(
        &[
            "VMs",
            "fixed load: Gbit/s",
            "daemon, % of a core",
            "all VMs and senders, % of a core",
            "interrupts a second",
            "full load: Gbit/s",
            "Mpps",
        ],
        &rows.collect::<Vec<_>>(),
    );
}

/// What more VMs cost, in words and plots.
fn growth(page: &mut Page, fixed: &[Column], full: &[Column]) {
    let points = |of: &[Column], first: usize, what: &dyn Fn(&Column) -> f64| -> Vec<(f64, f64)> {
        let chosen = of[first..2 * COUNTS.len()].iter().step_by(2);
        let counts = COUNTS.iter().map(|n| *n as f64);
        counts.zip(chosen.map(what)).collect()
    };
    let second = |points: &[(f64, f64)]| -> Vec<f64> { points.iter().map(|p| p.1).collect() };
    let gbit = |column: &Column| raw(column, "gbit");
    let [vf_fixed, e1000_fixed] = [0, 1].map(|first| points(fixed, first, &gbit));
    let [vf_full, e1000_full] = [0, 1].map(|first| points(full, first, &gbit));
    let [vf_cpu, e1000_cpu] = [0, 1].map(|first| points(fixed, first, &Column::median));
    let own = |column: &Column| raw(column, "vms_cpu");
    let [vf_own, e1000_own] = [0, 1].map(|first| points(fixed, first, &own));
    let percent = |v: f64| figure(v * 100.0);
    let one_more = slope(&vf_cpu);
    let (flat, all) = (spread(&second(&vf_fixed)), spread(&second(&vf_full)));
    page.list(&[
        format!(
            "Throughput from 10 to 60 VMs at fixed load spreads by {} % (target at most {} %): {}; e1000 {} %.",
            percent(flat),
            percent(FLAT),
            verdict(flat <= FLAT),
            percent(spread(&second(&e1000_fixed)))
        ),
        format!(
            "At full load, which no cable bounds, by {} %: {}; e1000 {} %.",
            percent(all),
            verdict(all <= FLAT),
            percent(spread(&second(&e1000_full)))
        ),
        format!(
            "One more VM at fixed total load costs the daemon {} % of a core (target at most {ONE_MORE}; paper 1.76 \
             paravirtual, 2.8 full, guests and hypervisor included): {}; e1000 {} %. VMs and senders: {} % and {} % more.",
            figure(one_more),
            // What was not carried has no price.
            verdict(one_more <= ONE_MORE && flat <= FLAT),
            figure(slope(&e1000_cpu)),
            figure(slope(&vf_own)),
            figure(slope(&e1000_own))
        ),
    ]);
    let beyond: Vec<(f64, f64)> = BEYOND
        .iter()
        .zip(&fixed[2 * COUNTS.len()..])
        .map(|(n, column)| (*n as f64, gbit(column)))
        .collect();
    let beyond_cpu: Vec<(f64, f64)> = BEYOND
        .iter()
        .zip(&fixed[2 * COUNTS.len()..])
        .map(|(n, column)| (*n as f64, column.median()))
        .collect();
    let paper: Vec<_> = COUNTS.iter().map(|n| (*n as f64, 9.57)).collect();
    let more = |points: &[(f64, f64)], others: &[(f64, f64)]| [points, others].concat();
    page.plot(lines(
        "throughput",
        "Fixed load: throughput of all VMs (figures 14, 15)",
        Axis::log("VMs (log)"),
        Axis::linear("Gbit/s"),
        vec![
            set("VFs", Whose::Ours, more(&vf_fixed, &beyond)),
            set("e1000s", Whose::Ours, e1000_fixed),
            set("the paper's", Whose::Peer, paper),
        ],
    ));
    page.plot(lines(
        "cpu",
        "Fixed load: the daemon's processor time (figures 14, 15)",
        Axis::log("VMs (log)"),
        Axis::linear("% of a core"),
        vec![
            set("VFs", Whose::Ours, more(&vf_cpu, &beyond_cpu)),
            set("e1000s", Whose::Ours, e1000_cpu),
        ],
    ));
}

fn idle_functions(page: &mut Page, idle: &Column) {
    page.heading("Idle functions");
    let (share, each) = (idle.median(), raw(idle, "kib_each"));
    page.text(&format!(
        "{} functions, their VMs waiting for interrupts: {} % of a core (target at most {IDLE}): {}. The daemon's own memory, \
         after all of the above: {} KiB each (target at most {MEMORY}): {}.",
        figure(raw(idle, "functions")),
        figure(share),
        verdict(share <= IDLE),
        figure(each),
        verdict(each <= MEMORY)
    ));
}

/// Figures 6 to 10.
pub fn interrupts(page: &mut Page, figures: &Interrupts) {
    masks(page, &figures.maskings);
    coalescing(page, &figures.policies);
    losses(page, &figures.loads);
    page.data("maskings", json(&figures.maskings));
    page.data("policies", json(&figures.policies));
    page.data("loads", json(&figures.loads));
}

fn masks(page: &mut Page, maskings: &[Column]) {
    page.heading("Masks (figure 6)");
    page.text(&format!(
        "One port at its line's rate, {} frames of 1514 bytes a second, 2 kHz. *Masked and unmasked by the guest*: in the \
         table of MSI-X with every interrupt, as the paper's first guest; a VMM that keeps that table to itself, as QEMU \
         does, is the paper's optimisation, and the NIC sees nothing of it. *By the device*: EIAM, as igbvf does it; the \
         guest only unmasks. *Not masked*: EITR alone.",
        figure(LINE)
    ));
    let mut rows = Vec::new();
    for (i, column) in maskings.iter().enumerate() {
        rows.push(vec![
            FEW[i / MASKINGS.len()].to_string(),
            MASKINGS[i % MASKINGS.len()].1.to_owned(),
            figure(raw(column, "gbit")),
            figure(raw(column, "interrupts")),
            figure(raw(column, "accesses_per_interrupt")),
            figure(raw(column, "writes_per_packet")),
            column.words(),
            figure(raw(column, "vms_cpu")),
        ]);
    }
    page.table(
        &[
            "VMs",
            "its vector is",
            "Gbit/s",
            "interrupts a second",
            "register accesses for each",
            "for each frame",
            "daemon, % of a core",
            "VMs and sender, % of a core",
        ],
        &rows,
    );
    let masks = MASKINGS.iter().enumerate().map(|(k, masking)| {
        let columns = maskings.iter().skip(k).step_by(MASKINGS.len());
        let points = FEW.iter().zip(columns);
        let points = points.map(|(n, column)| (*n as f64, column.median()));
        set(masking.1, Whose::Ours, points)
    });
    page.plot(lines(
        "masks",
        "What masks cost the daemon (figure 6)",
        Axis::linear("VMs of one port"),
        Axis::linear("% of a core"),
        masks.collect(),
    ));
}

fn coalescing(page: &mut Page, policies: &[Column]) {
    page.heading("Coalescing (figures 8 and 9)");
    page.text(
        "One VM at the line's rate; the gap is EITR's, and with AIC the driver sets it 20 times a second by the paper's \
         equations 1 and 2. Moderation is the guest's here, as an 82576 has it by default.",
    );
    let rows = policies.iter().map(|column| {
        vec![
            column.id.clone(),
            figure(raw(column, "gbit")),
            figure(raw(column, "interrupts")),
            figure(raw(column, "writes_per_packet")),
            column.words(),
            figure(raw(column, "vms_cpu")),
        ]
    });
    page.table(
        &[
            "interrupts",
            "Gbit/s",
            "interrupts a second",
            "register accesses a frame",
            "daemon, % of a core",
            "VM and sender, % of a core",
        ],
        &rows.collect::<Vec<_>>(),
    );
    let saved = policies[1].over(&policies[0]);
    let adaptive = policies[2].over(&policies[0]);
    let percent =
        |s: Option<Summary>| s.map_or("–".to_owned(), |s| figure((1.0 - s.median) * 100.0));
    page.text(&format!(
        "2 kHz saves {} % of the daemon's time at 20 kHz, AIC {} %. The paper, of all processor time: 40 % (UDP) and 50 % (TCP), \
         and more with AIC.",
        percent(saved),
        percent(adaptive)
    ));
}

fn losses(page: &mut Page, loads: &[Column]) {
    page.heading("Frames lost for want of buffers (figure 10)");
    page.text(&format!(
        "One VM whose application takes {APPLICATION} frames of an interrupt and loses the rest, as the paper's socket buffer \
         does; rings of {}. In brackets what was sent.",
        RINGS[2]
    ));
    let mut rows = Vec::new();
    for (i, load) in LOADS.into_iter().enumerate() {
        let of = &loads[i * POLICIES.len()..][..POLICIES.len()];
        let mut row = vec![format!("{load}")];
        for column in of {
            let (taken, sent) = (raw(column, "gbit_taken"), raw(column, "gbit_sent"));
            let interrupts = figure(raw(column, "interrupts"));
            row.push(format!(
                "{} ({}) at {interrupts} Hz",
                figure(taken),
                figure(sent)
            ));
        }
        rows.push(row);
    }
    let mut head = vec!["lines offered"];
    head.extend(POLICIES.iter().map(|p| p.1));
    page.table(&head, &rows);
    let sets = POLICIES.iter().enumerate().map(|(k, policy)| {
        let columns = loads[k..].iter().step_by(POLICIES.len());
        let points = columns.map(|c| (raw(c, "gbit_sent"), raw(c, "gbit_taken")));
        set(policy.1, Whose::Ours, points)
    });
    page.plot(lines(
        "losses",
        "Taken by the application over sent (figure 10)",
        Axis::linear("Gbit/s sent"),
        Axis::linear("Gbit/s taken"),
        sets.collect(),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_have_a_place_and_say_something() {
        let paper = published().unwrap();
        let figures = paper["figures"].as_array().unwrap();
        assert_eq!(figures.len(), 8);
        for figure in figures {
            assert!(
                figure["place"]
                    .as_str()
                    .is_some_and(|p| p.contains("section"))
            );
            assert!(figure["says"].as_array().is_some_and(|s| !s.is_empty()));
        }
    }
}
