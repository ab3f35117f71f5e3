//! Our e1000 beside QEMU's own: one guest, one kernel, both NICs in it, runs taken alternately.
//!
//! What the thesis of the nearest peer measured (its chapter 6: iperf3 both ways, latency distributions) and more:
//! small packets both ways, and what each packet costs in register accesses, messages, system calls and interrupts.

mod page;

use std::ffi::OsStr;
use std::time::Instant;

use rig::paired::median;
use serde_json::{Value, json};

use self::page::Point;
use crate::audit;
use crate::bed::{Bed, Candidate, Delta, End};
use crate::error::{Error, Result};
use crate::machine;
use crate::options::Options;
use crate::pairs::{self, Metric, Outcome, Plan, Scenario, Series, Target, since};
use crate::report::Report;
use crate::traffic::{self, SMALL};

/// Frames per second offered when as many as possible are wanted.
const FLOOD: f64 = 150_000.0;

/// Offered rates of the receive curve, per second.
const OFFERED: [f64; 8] = [5e3, 10e3, 20e3, 30e3, 45e3, 70e3, 100e3, 150e3];

const RTT: [Metric; 2] = [
    Metric {
        title: "RTT median",
        unit: "us",
        target: Target::AtMost(1.5),
    },
    Metric {
        title: "RTT p99",
        unit: "us",
        target: Target::AtMost(1.5),
    },
];

const fn rate(title: &'static str, unit: &'static str) -> Metric {
    Metric {
        title,
        unit,
        target: Target::AtLeast(1.0),
    }
}

/// What is measured, in this order.
static SCENARIOS: [Scenario; 7] = [
    Scenario {
        id: "ping_out",
        title: "guest pings host, every 10 ms",
        metrics: &RTT,
        seconds: 2.3,
        run: |bed, end, plan| ping(bed, end, plan, true),
    },
    Scenario {
        id: "ping_in",
        title: "host pings guest, every 10 ms",
        metrics: &RTT,
        seconds: 2.3,
        run: |bed, end, plan| ping(bed, end, plan, false),
    },
    Scenario {
        id: "tcp_tx",
        title: "TCP, guest sends (iperf3)",
        metrics: &[rate("TCP guest to host", "Mbit/s")],
        seconds: 5.0,
        run: |bed, end, plan| tcp(bed, end, plan, false),
    },
    Scenario {
        id: "tcp_rx",
        title: "TCP, guest receives (iperf3 -R)",
        metrics: &[rate("TCP host to guest", "Mbit/s")],
        seconds: 5.0,
        run: |bed, end, plan| tcp(bed, end, plan, true),
    },
    Scenario {
        id: "pktgen_tx",
        title: "60-byte frames, guest sends (pktgen)",
        metrics: &[rate("small frames sent", "frames/s")],
        seconds: 1.5,
        run: pktgen,
    },
    Scenario {
        id: "udp_tx",
        title: "18-byte UDP, guest sends (iperf3 -u)",
        metrics: &[rate("small UDP sent and received", "datagrams/s")],
        seconds: 3.5,
        run: udp_tx,
    },
    Scenario {
        id: "udp_rx",
        title: "18-byte UDP at 150 000/s, guest receives",
        metrics: &[rate("small UDP received", "datagrams/s")],
        seconds: 3.0,
        run: |bed, end, plan| {
            let (received, _) = flood(bed, end, FLOOD, 2.0 * plan.scale)?;
            Ok(Outcome {
                values: vec![received],
                samples: Vec::new(),
            })
        },
    },
];

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let plan = options.plan();
    let once: f64 = SCENARIOS.iter().map(|s| s.seconds * plan.scale + 0.5).sum();
    let pairs = once * 3.0 * plan.rounds as f64;
    let curve = OFFERED.len() as f64 * (plan.scale + 1.0) * 2.0 * curve_rounds(plan) as f64;
    let audits = if options.both_qemu {
        0.0
    } else {
        once * 2.0 + 25.0
    };
    20.0 + pairs + curve + audits
}

fn curve_rounds(plan: Plan) -> usize {
    (plan.rounds / 3).max(1)
}

/// Runs the module.
///
/// # Errors
/// When this machine cannot run it, or a measurement fails.
pub fn run(options: &Options) -> Result<Report> {
    let start = Instant::now();
    let plan = options.plan();
    let mut environment = machine::host();
    let ours = Candidate::Hypernic(options.hypernic());
    let (candidates, labels) = match &options.against {
        _ if options.both_qemu => ([Candidate::Qemu, Candidate::Qemu], ["QEMU", "QEMU again"]),
        Some(other) => (
            [Candidate::Hypernic(other.clone()), ours],
            ["other hypernic", "hypernic"],
        ),
        None => ([Candidate::Qemu, ours], ["QEMU", "hypernic"]),
    };
    let with_qemu = candidates[0] == Candidate::Qemu && candidates[1] != Candidate::Qemu;
    eprintln!("  booting the guest with both NICs");
    let bed = Bed::new(&candidates, labels)?;
    describe(&bed, &mut environment)?;
    eprintln!("  {} after {}", environment["guest_kernel"], since(start));

    let idle = idle(&bed, plan)?;
    let mut series = Vec::new();
    for scenario in SCENARIOS.iter().filter(|s| options.wants(s.id)) {
        series.push(pairs::run(&bed, scenario, plan)?);
    }
    let curve = if options.wants("udp_rx") {
        curve(&bed, plan)?
    } else {
        Vec::new()
    };
    let audit = if with_qemu {
        audits(&bed, options, plan)?
    } else {
        Value::Null
    };
    environment["load_at_end"] = json!(machine::load());
    let steal = series.iter().map(Series::worst_steal).fold(0.0, f64::max);
    environment["worst_steal_of_a_run"] = json!((steal * 1e4).round() / 1e4);
    let shared = json!({
        "plan": {"pairs": plan.rounds, "scale": plan.scale},
        "seconds": start.elapsed().as_secs(),
        "names": labels, "with_qemu": with_qemu,
        "environment": environment, "idle": idle, "audit": audit,
    });
    Ok(page::build("e1000_vs_qemu", shared, &series, &curve))
}

fn describe(bed: &Bed, environment: &mut Value) -> Result<()> {
    environment["qemu"] = json!(bed.rig.qemu().version());
    environment["accelerator"] = json!(bed.rig.accel()?.to_string());
    environment["guest_kernel"] = json!(bed.guest.run("uname -rv")?.trim());
    environment["guest"] = json!("q35, 1 vCPU, 256 MiB shared memfd");
    environment["source"] = json!(machine::revision());
    let mut drivers = Vec::new();
    for end in &bed.ends {
        let line = bed.guest.run(&format!(
            "ethtool -k {0} | grep -E '^(tcp-seg|tx-check|rx-check|generic-rec)'; \
             ethtool -i {0} | grep -E '^(driver|bus)'; grep -w {0} /proc/interrupts",
            end.interface
        ))?;
        let words: Vec<_> = line
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        drivers.push(format!(
            "{} ({}): {}",
            end.label,
            end.interface,
            words.join("; ")
        ));
    }
    environment["drivers"] = json!(drivers);
    Ok(())
}

/// Pings and gives every round trip in microseconds.
fn ping(bed: &Bed, end: &End, plan: Plan, out: bool) -> Result<Outcome> {
    let count = (200.0 * plan.scale) as usize;
    let text = if out {
        traffic::ping(&bed.guest, end.host, count)?
    } else {
        let mut ping = bed.tool("ping")?;
        ping.args(["-n", "-c", &count.to_string(), "-i", "0.01", end.guest]);
        let out = ping.output().map_err(Error::io("run ping"))?;
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let samples = traffic::round_trips(&text, count)?;
    let values = [50.0, 99.0].map(|p| rig::paired::percentile(&samples, p).unwrap_or(f64::NAN));
    Ok(Outcome {
        values: values.to_vec(),
        samples,
    })
}

fn iperf(bed: &Bed, end: &End, options: &str, seconds: f64) -> Result<Value> {
    let options = format!("-t {} {options}", (seconds.round() as u64).max(1));
    let answer = traffic::iperf(&bed.guest, end.host, &options, || {})?;
    Ok(answer["end"].clone())
}

fn tcp(bed: &Bed, end: &End, plan: Plan, receive: bool) -> Result<Outcome> {
    let options = if receive { "-O 1 -R" } else { "-O 1" };
    let answer = iperf(bed, end, options, 3.0 * plan.scale)?;
    let rate = answer["sum_received"]["bits_per_second"].as_f64();
    let rate = rate.ok_or_else(|| Error::tool("iperf3", &answer.to_string()))?;
    Ok(Outcome {
        values: vec![rate / 1e6],
        samples: Vec::new(),
    })
}

fn pktgen(bed: &Bed, end: &End, plan: Plan) -> Result<Outcome> {
    let count = (30_000.0 * plan.scale) as u64;
    let rate = traffic::pktgen(&bed.guest, &end.interface, end.host, count)?;
    Ok(Outcome {
        values: vec![rate],
        samples: Vec::new(),
    })
}

/// Datagrams that arrived at the host, per second.
fn udp_tx(bed: &Bed, end: &End, plan: Plan) -> Result<Outcome> {
    let answer = iperf(bed, end, &format!("-u -b 0 -l {SMALL}"), 2.0 * plan.scale)?;
    let field = |name: &str| answer["sum"][name].as_f64();
    let rate = field("packets")
        .zip(field("lost_packets"))
        .zip(field("seconds"));
    let ((sent, lost), seconds) = rate.ok_or_else(|| Error::tool("iperf3", &answer.to_string()))?;
    Ok(Outcome {
        values: vec![(sent - lost) / seconds],
        samples: Vec::new(),
    })
}

/// Offers datagrams to the guest; gives how many per second its UDP saw, and how many were really offered.
fn flood(bed: &Bed, end: &End, pps: f64, seconds: f64) -> Result<(f64, f64)> {
    let command = |program: &OsStr| bed.command(program);
    traffic::flood(&bed.guest, command, end.guest, (pps, seconds))
}

fn curve(bed: &Bed, plan: Plan) -> Result<Vec<Point>> {
    eprint!("  udp_rx curve");
    let mut points = Vec::new();
    for offered in OFFERED {
        let mut point = Point {
            offered,
            ..Point::default()
        };
        for round in 0..curve_rounds(plan) {
            for i in [round % 2, 1 - round % 2] {
                let end = &bed.ends[i];
                let ((received, _), delta) =
                    bed.watch(end, || flood(bed, end, offered, plan.scale))?;
                point.received[i].push(received);
                point.per_interrupt[i].push(delta.total() as f64 / delta.interrupts.max(1) as f64);
            }
        }
        let show = |v: &[f64]| median(v).unwrap_or(f64::NAN);
        eprint!(
            "  {:.0}k: {:.0}/{:.0}",
            offered / 1e3,
            show(&point.received[0]),
            show(&point.received[1])
        );
        points.push(point);
    }
    eprintln!();
    Ok(points)
}

/// What goes on when nothing goes on: the driver looks after its NIC every two seconds.
fn idle(bed: &Bed, plan: Plan) -> Result<Value> {
    let seconds = 4.0 * plan.scale;
    let mut all = Vec::new();
    for end in &bed.ends {
        let ((), delta) = bed.watch(end, || {
            std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
            Ok(())
        })?;
        all.push(json!({"end": end.label, "seconds": seconds, "counted": delta.json()}));
    }
    Ok(json!(all))
}

/// Counts by the kernel's and QEMU's own means, in runs of their own.
fn audits(bed: &Bed, options: &Options, plan: Plan) -> Result<Value> {
    eprint!("  counting system calls and register accesses");
    let plan = Plan {
        rounds: 1,
        scale: plan.scale.min(0.5),
    };
    let per = |n: u64, delta: &Delta| (n as f64 / delta.total().max(1) as f64 * 1e4).round() / 1e4;
    let mut rows = Vec::new();
    for scenario in SCENARIOS.iter().filter(|s| options.wants(s.id)) {
        let mut row = json!({"id": scenario.id});
        let [theirs, ours] = &bed.ends;
        for (name, end, process) in [
            ("qemu_syscalls", theirs, Some(bed.guest.id())),
            ("qemu_syscalls_for_ours", ours, Some(bed.guest.id())),
            ("daemon_syscalls", ours, bed.daemon_id(ours)),
        ] {
            let Some(process) = process else { continue };
            if let Some((calls, delta)) = audit::system_calls(bed, process, end, scenario, plan)? {
                let total = calls.values().sum();
                row[name] = json!({
                    "per_frame": per(total, &delta), "own_count_per_frame": per(delta.syscalls(), &delta),
                    "by_thread": calls, "counted": delta.json(),
                });
            }
        }
        // Whether this QEMU has the trace is found out by asking for it.
        if let Ok((reads, writes, delta)) = audit::register_accesses(bed, theirs, scenario, plan) {
            row["qemu_accesses"] = json!({
                "reads_per_frame": per(reads, &delta), "writes_per_frame": per(writes, &delta),
                "reads": reads, "writes": writes, "counted": delta.json(),
            });
        }
        eprint!(".");
        rows.push(row);
    }
    let mut found = json!({"rows": rows});
    match audit::access_cost(&bed.rig, &options.hypernic(), 4000) {
        Ok((theirs, ours)) => {
            eprintln!(
                " register read {:.1} / {:.1} us, write {:.1} / {:.1} us",
                theirs.read, ours.read, theirs.write, ours.write
            );
            found["access_cost_us"] = json!({
                "qemu": {"read": theirs.read, "write": theirs.write},
                "hypernic": {"read": ours.read, "write": ours.write},
            });
        }
        Err(error) => {
            eprintln!(" no cost of a register access: {error}");
            found["access_cost_us"] = json!(format!("not measured: {error}"));
        }
    }
    Ok(found)
}
