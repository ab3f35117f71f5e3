//! The page: ratios with their spread, what a frame costs, where a round trip's time goes.

use std::fmt::Write as _;

use rig::paired::{Side, median, percentile};
use serde_json::{Value, json};

use crate::bed::Delta;
use crate::pairs::{Series, Target};
use crate::plot::{self, Plot, Row, Scale, Whose};
use crate::report::Report;
use crate::stats::figure;

/// One point of the receive curve.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// Datagrams offered per second.
    pub offered: f64,
    /// Received per second, by end and round.
    pub received: [Vec<f64>; 2],
    /// Frames per interrupt, by end and round.
    pub per_interrupt: [Vec<f64>; 2],
}

/// Puts a side-by-side module's result together.
pub fn build(name: &'static str, shared: Value, series: &[Series], curve: &[Point]) -> Report {
    let with_qemu = shared["with_qemu"] == true;
    let label = |i: usize| shared["names"][i].as_str().unwrap_or("?").to_owned();
    let names = [label(0), label(1)];
    let names = [names[0].as_str(), names[1].as_str()];
    let plots = plots(series, curve, names);
    let mut text = heading(&shared, names);
    targets(&mut text, series, names);
    for plot in &plots {
        let _ = writeln!(text, "![{}](plots/{name}-{}.svg)\n", plot.title, plot.name);
    }
    if with_qemu {
        costs(&mut text, series, &shared["audit"]);
        round_trip_budget(&mut text, series, &shared["audit"]["access_cost_us"]);
    }
    time(&mut text, series, names);
    method(&mut text, &shared);
    let mut data = shared;
    data["module"] = json!(name);
    data["scenarios"] = series.iter().map(Series::json).collect();
    data["udp_rx_curve"] = curve
        .iter()
        .map(|p| {
            json!({
                "offered": p.offered, "received": p.received.each_ref().map(|v| rounded(v, 1.0)),
                "frames_per_interrupt": p.per_interrupt.each_ref().map(|v| rounded(v, 100.0)),
            })
        })
        .collect();
    Report::new(name, text, data, plots)
}

fn rounded(values: &[f64], parts: f64) -> Vec<f64> {
    values.iter().map(|v| (v * parts).round() / parts).collect()
}

fn heading(shared: &Value, names: [&str; 2]) -> String {
    let e = &shared["environment"];
    let word = |key: &str| e[key].as_str().unwrap_or("?").to_owned();
    let mut text = format!("# e1000: {} beside {}\n\n", names[1], names[0]);
    let _ = writeln!(
        text,
        "One guest with both NICs in it, {} pairs of runs taken alternately (the order turns each round), a second run \
         of QEMU's in each round as control. {} s in all.\n",
        shared["plan"]["pairs"], shared["seconds"]
    );
    let _ = writeln!(
        text,
        "- Host: {}, {} CPUs{}, {} MiB, Linux {}, {}; load {} at start, {} at end, steal {} % in the worst run\n\
         - Guest: {}, Linux {}, under {}, {}\n- Source: {}",
        word("cpu"),
        e["cpus"],
        if e["virtual_machine"] == true {
            " (itself a virtual machine)"
        } else {
            ""
        },
        e["memory_mib"],
        word("kernel"),
        word("system"),
        e["load_at_start"],
        e["load_at_end"],
        figure(e["worst_steal_of_a_run"].as_f64().unwrap_or(0.0) * 100.0),
        word("guest"),
        word("guest_kernel"),
        if e["accelerator"] == "tcg" {
            "TCG (translated: compare ratios, not absolute figures)"
        } else {
            "KVM"
        },
        word("qemu"),
        word("source"),
    );
    for driver in e["drivers"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "- {}", driver.as_str().unwrap_or_default());
    }
    text.push('\n');
    text
}

fn targets(text: &mut String, series: &[Series], names: [&str; 2]) {
    let _ = writeln!(
        text,
        "## Side by side\n\nMedians of all runs; the ratio is the median over pairs, with the middle half and all \
         pairs in brackets; the control is {0} over {0}.\n\n\
         | | unit | {0} | {1} | ratio | control | target | verdict |\n|---|---|---|---|---|---|---|---|",
        names[0], names[1]
    );
    for s in series {
        for j in s.judge() {
            let _ = writeln!(
                text,
                "| {}: {} | {} | {} | {} | **{:.2}** ({:.2}–{:.2}; {:.2}–{:.2}) | {:.2} ({:.2}–{:.2}) | {} | {} |",
                s.scenario.title,
                j.metric.title,
                j.metric.unit,
                figure(j.theirs()),
                figure(j.ours()),
                j.ratio.median,
                j.quartiles.0,
                j.quartiles.1,
                j.ratio.min,
                j.ratio.max,
                j.control.median,
                j.control.min,
                j.control.max,
                j.target(),
                j.verdict(),
            );
        }
    }
    text.push('\n');
}

fn plots(series: &[Series], curve: &[Point], names: [&str; 2]) -> Vec<Plot> {
    let mut plots = Vec::new();
    let mut rows = Vec::new();
    for s in series {
        for j in s.judge() {
            let (Target::AtLeast(target) | Target::AtMost(target)) = j.metric.target;
            rows.push(Row {
                title: format!(
                    "{} {}",
                    s.scenario.id,
                    j.metric.title.strip_prefix("RTT ").unwrap_or("")
                ),
                ours: (
                    j.ratio.min,
                    j.quartiles.0,
                    j.ratio.median,
                    j.quartiles.1,
                    j.ratio.max,
                ),
                control: (j.control.min, j.control.median, j.control.max),
                target,
            });
        }
    }
    let title = "Ratios of pairs, with the control and the target";
    let unit = format!("{} / {} (log)", names[1], names[0]);
    plots.push(plot::ratios("ratios", title, &unit, rows));
    let whose = [Whose::Peer, Whose::Ours];
    for s in series.iter().filter(|s| s.scenario.id.starts_with("ping")) {
        let (theirs, ours) = round_trips(s);
        let title = format!("Round trips: {}", s.scenario.title);
        let sets = [
            (names[0].to_owned(), whose[0], theirs),
            (names[1].to_owned(), whose[1], ours),
        ];
        plots.push(plot::distributions(
            s.scenario.id,
            &title,
            "us (log)",
            &sets,
        ));
    }
    if !curve.is_empty() {
        let middle = |v: &[f64]| median(v).unwrap_or(f64::NAN);
        let sets = [0, 1].map(|i| {
            let points = curve.iter().map(|p| (p.offered, middle(&p.received[i])));
            plot::set(names[i], whose[i], points)
        });
        plots.push(plot::lines(
            "udp_rx",
            "18-byte UDP: received by the guest over offered",
            Scale::linear("offered/s"),
            Scale::linear("received/s"),
            sets.to_vec(),
        ));
    }
    plots
}

/// What a frame costs.
fn costs(text: &mut String, series: &[Series], audit: &Value) {
    let _ = writeln!(
        text,
        "## Cost per frame\n\nFrames are those the guest's driver counts, both directions (a segment of 1448 bytes is \
         one). Ours by the daemon's counters; interrupts by the guest's `/proc/interrupts`. In brackets, counts from \
         runs of their own: system calls by `perf stat -e raw_syscalls:sys_enter`, QEMU's accesses by its trace of \
         memory regions (which slows it).\n\n\
         | | frames per interrupt QEMU | ours | register reads QEMU | ours | writes QEMU | ours | messages ours | \
         system calls ours | QEMU's process for its own | for ours | interrupts raised ours |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for s in series {
        let (theirs, ours) = (s.sum(Side::A), s.sum(Side::B));
        let per = |n: u64, d: &Delta| n as f64 / d.total().max(1) as f64;
        let row = audit["rows"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|r| r["id"] == s.scenario.id);
        let counted = |which: &str, field: &str| {
            row.and_then(|r| r[which][field].as_f64())
                .map_or("–".to_owned(), |v| format!("({})", figure(v)))
        };
        let frames = |d: &Delta| figure(d.total() as f64 / d.interrupts.max(1) as f64);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} {} | {} | {} | {} |",
            s.scenario.id,
            frames(&theirs),
            frames(&ours),
            counted("qemu_accesses", "reads_per_frame"),
            figure(per(ours.counter("region_reads"), &ours)),
            counted("qemu_accesses", "writes_per_frame"),
            figure(per(ours.counter("region_writes"), &ours)),
            figure(per(ours.counter("messages"), &ours)),
            figure(per(ours.syscalls(), &ours)),
            counted("daemon_syscalls", "per_frame"),
            counted("qemu_syscalls", "per_frame"),
            counted("qemu_syscalls_for_ours", "per_frame"),
            figure(per(ours.counter("irq_triggers"), &ours)),
        );
    }
    let cost = &audit["access_cost_us"];
    if let (Some(qr), Some(qw), Some(or), Some(ow)) = (
        cost["qemu"]["read"].as_f64(),
        cost["qemu"]["write"].as_f64(),
        cost["hypernic"]["read"].as_f64(),
        cost["hypernic"]["write"].as_f64(),
    ) {
        let _ = writeln!(
            text,
            "\nOne register read costs {qr:.1} us on QEMU's own e1000 and {or:.1} us on ours, so vfio-user adds {:.1} us; \
             a write {qw:.1} and {ow:.1} us, it adds {:.1} us (QEMU told over its qtest socket, whose own cost is in \
             both; idle daemon, so each read wakes it).\n",
            or - qr,
            ow - qw
        );
    }
}

/// How much of a longer round trip the register accesses explain.
fn round_trip_budget(text: &mut String, series: &[Series], cost: &Value) {
    let added = |kind: &str| {
        Some((cost["hypernic"][kind].as_f64()? - cost["qemu"][kind].as_f64()?).max(0.0))
    };
    let (Some(read), Some(write)) = (added("read"), added("write")) else {
        return;
    };
    let mut lines = String::new();
    for s in series.iter().filter(|s| s.scenario.id.starts_with("ping")) {
        let ours = s.sum(Side::B);
        let pings: usize = s.of(Side::B).map(|r| r.outcome.samples.len()).sum();
        let per = |name: &str| ours.counter(name) as f64 / pings.max(1) as f64;
        let (theirs, us) = round_trips(s);
        let median = |v: &[f64]| percentile(v, 50.0).unwrap_or(f64::NAN);
        let (reads, writes) = (per("region_reads"), per("region_writes"));
        let _ = writeln!(
            lines,
            "- {}: {:.1} reads, {:.1} writes, {:.1} messages and {:.1} interrupts per ping; {:.0} us longer than \
             QEMU's at the median, of which the accesses' own cost is {:.0} us ({reads:.1} × {read:.1} + {writes:.1} × \
             {write:.1}).",
            s.scenario.id,
            reads,
            writes,
            per("messages"),
            ours.interrupts as f64 / pings.max(1) as f64,
            median(&us) - median(&theirs),
            reads * read + writes * write,
        );
    }
    if !lines.is_empty() {
        let _ = writeln!(
            text,
            "## Where a round trip's time goes\n\n{lines}\nNot every access is on a ping's way: the driver also reads \
             some 60 statistics registers every 2 s, and cleans up after the answer has left.\n"
        );
    }
}

/// Processor time per frame by thread.
fn time(text: &mut String, series: &[Series], names: [&str; 2]) {
    let _ = writeln!(
        text,
        "## Processor time per frame (us)\n\n| | side | vCPU | main loop | other QEMU threads | daemon, NIC thread | \
         daemon, port thread | sum |\n|---|---|---|---|---|---|---|---|"
    );
    for s in series {
        for (side, name) in [(Side::A, names[0]), (Side::B, names[1])] {
            let sum = s.sum(side);
            let us = |wanted: &dyn Fn(&str) -> bool| {
                let seconds: f64 = sum
                    .cpu
                    .iter()
                    .filter(|(k, _)| wanted(k))
                    .map(|(_, v)| v)
                    .sum();
                seconds * 1e6 / sum.total().max(1) as f64
            };
            let parts = [
                us(&|k| k == "QEMU vCPU"),
                us(&|k| k == "QEMU main loop"),
                us(&|k| k.starts_with("QEMU ") && k != "QEMU vCPU" && k != "QEMU main loop"),
                us(&|k| k.starts_with("hypernic nic")),
                us(&|k| k.starts_with("hypernic port")),
            ];
            let cells: Vec<_> = parts.iter().map(|p| figure(*p)).collect();
            let all = us(&|_| true);
            let _ = writeln!(
                text,
                "| {} | {name} | {} | {} |",
                s.scenario.id,
                cells.join(" | "),
                figure(all)
            );
        }
    }
    text.push('\n');
}

fn method(text: &mut String, shared: &Value) {
    let _ = writeln!(
        text,
        "## Method\n\n\
         - Both NICs are e1000 (8086:100e) in slots 5 and 6 of one q35 machine, driven by one stock `e1000` module with \
         its defaults. Each has a TAP of its own in one network namespace, made alike (`vnet_hdr`, as QEMU's tap netdev \
         asks for by default). QEMU's e1000 makes no use of the header; ours takes and gives large segments with it, \
         which is part of what is compared.\n\
         - A run touches one NIC only; the other is up and idle. RTT by iputils ping; TCP and UDP by iperf3, the server \
         in the namespace; pktgen frames go to an address nobody has; datagrams for the guest go to a bound socket that \
         is never read, so they climb the whole stack and draw no answer, and are counted by the guest's UDP.\n\
         - Idle for {} s, counted on each NIC: see `idle` in the raw data.\n\
         - Raw data: `data/e1000_vs_qemu.json.gz`. Run again: `make bench`.",
        shared["idle"][0]["seconds"]
    );
}

/// Round trips of both sides from a series, for plots.
fn round_trips(series: &Series) -> (Vec<f64>, Vec<f64>) {
    let mut theirs = series.samples(Side::A);
    theirs.extend(series.samples(Side::Control));
    (theirs, series.samples(Side::B))
}
