#![forbid(unsafe_code)]
//! `hypernic-bench`: each published table and figure, measured again, one module each.

mod adding;
mod audit;
mod bed;
mod ceilings;
mod cells;
mod copies;
mod counts;
mod doorbells;
mod draw;
mod e1000_vs_qemu;
mod error;
mod fabric;
mod flow;
mod guest_to_guest;
mod guest_to_tap;
mod hot;
mod inside;
mod instructions;
mod latency;
mod lines;
mod livelock;
mod load;
mod looking;
mod machine;
mod misses;
mod moving;
mod options;
mod page;
mod pairs;
mod papers;
mod peers;
mod plot;
mod quiet;
mod replot;
mod report;
mod scale;
mod scale_inside;
mod send;
mod spec;
mod sriov;
mod stats;
mod timeline;
mod traffic;
mod under_kvm;
mod vfs;
mod virtio;
mod which_nic;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::report::Report;

/// Measures hypernic beside its peers.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// A module, `all`, or `list`.
    #[arg(default_value = "list")]
    module: String,
    #[command(flatten)]
    options: Options,
}

/// A module: its name, what it is, how long it takes, how it runs.
struct Module {
    name: &'static str,
    about: &'static str,
    estimate: fn(&Options) -> f64,
    run: fn(&Options) -> Result<Report>,
}

const MODULES: [Module; 18] = [
    Module {
        name: "ceiling",
        about: "bare copies and the raw loop between two rings: what this machine can move",
        estimate: ceilings::estimate,
        run: ceilings::run,
    },
    Module {
        name: "guest_to_guest",
        about: "frames of 60 bytes to 64 KiB, bursts, one and two workers, one way and both, as a share of the ceiling",
        estimate: guest_to_guest::estimate,
        run: guest_to_guest::run,
    },
    Module {
        name: "guest_to_tap",
        about: "guest to TAP and back, plain and 64 KiB, beside bare writes, warm and cold, and reads",
        estimate: guest_to_tap::estimate,
        run: guest_to_tap::run,
    },
    Module {
        name: "peers",
        about: "guest to guest beside a kernel bridge, vde_switch, DPDK (vhost-user, memif) and OVS-DPDK; both cores told apart",
        estimate: peers::estimate,
        run: peers::run,
    },
    Module {
        name: "scale",
        about: "1, 10, 100 and 1000 NICs: rate, fairness, memory, idle cost, time to add one",
        estimate: scale::estimate,
        run: scale::run,
    },
    Module {
        name: "latency",
        about: "round trips at 10 000 and 100 000 frames/s, alone and beside a flood, bare wake-ups, the daemon's part",
        estimate: latency::estimate,
        run: latency::run,
    },
    Module {
        name: "livelock",
        about: "offered and delivered load up to 20 times capacity",
        estimate: livelock::estimate,
        run: livelock::run,
    },
    Module {
        name: "moving",
        about: "saving and loading a NIC's state, as a VMM does that moves its guest",
        estimate: moving::estimate,
        run: moving::run,
    },
    Module {
        name: "counts",
        about: "messages, system calls, interrupts, descriptors, ways, cache lines and copies per frame, for each kind of doorbell",
        estimate: counts::estimate,
        run: counts::run,
    },
    Module {
        name: "doorbells",
        about: "tail registers as messages, as memory and by CSB: accesses, time to answer, guest to guest, idle cost",
        estimate: doorbells::estimate,
        run: doorbells::run,
    },
    Module {
        name: "cells",
        about: "what a crossing between two cells costs, and what a hostile guest in one does to others",
        estimate: cells::estimate,
        run: cells::run,
    },
    Module {
        name: "sriov",
        about: "82576: the figures of the SR-IOV paper again: 10 to 1000 VMs on VFs, interrupts, VM to VM",
        estimate: sriov::estimate,
        run: sriov::run,
    },
    Module {
        name: "which_nic",
        about: "every model of ours and QEMU's e1000, igb and virtio-net in one guest: round trips, TCP, small frames, CPU",
        estimate: which_nic::estimate,
        run: which_nic::run,
    },
    Module {
        name: "under_kvm",
        about: "the same NICs in one guest of KVM: exits, interrupts and messages for a round trip and a frame, counted",
        estimate: under_kvm::estimate,
        run: under_kvm::run,
    },
    Module {
        name: "virtio",
        about: "virtio-net guests over vhost-user beside DPDK's vhost, memif and OVS-DPDK; 64 KiB segments beside a bare copy; interrupts",
        estimate: virtio::estimate,
        run: virtio::run,
    },
    Module {
        name: "e1000_vs_qemu",
        about: "our e1000 and QEMU's own in one guest: RTT, TCP, small packets, cost per packet",
        estimate: e1000_vs_qemu::estimate,
        run: e1000_vs_qemu::run,
    },
    Module {
        name: "timeline",
        about: "where a round trip's time goes: each step of ours, of QEMU and the guest, and of the host, on a time axis",
        estimate: timeline::estimate,
        run: timeline::run,
    },
    Module {
        name: "papers",
        about: "the tables and figures of the thesis, of ANCS 2013 and of nic-emu, theirs beside ours, counts per packet",
        estimate: papers::estimate,
        run: papers::run,
    },
];

/// The sender of small datagrams, started by the modules.
#[derive(Debug, Parser)]
struct Send {
    #[arg(long)]
    to: String,
    #[arg(long)]
    payload: usize,
    #[arg(long)]
    pps: f64,
    #[arg(long)]
    seconds: f64,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let done = if words.get(1).is_some_and(|w| w == "send") {
        let send = Send::parse_from(&words[1..]);
        send::run(&send.to, send.payload, send.pps, send.seconds)
    } else if words.get(1).is_some_and(|w| w == "load") {
        load::run(&load::Load::parse_from(&words[1..]))
    } else if words.get(1).is_some_and(|w| w == timeline::echo::WORD) {
        timeline::echo::run(&timeline::echo::Echoes::parse_from(&words[1..]))
    } else if words.get(1).is_some_and(|w| w == lines::WORD) {
        lines::run(words.get(2).and_then(|w| w.to_str()))
    } else if words.get(1).is_some_and(|w| w == hot::WORD) {
        hot::run(words.get(2).and_then(|w| w.to_str()))
    } else if words.get(1).is_some_and(|w| w == instructions::WORD) {
        let words: Vec<_> = words[2..].iter().filter_map(|w| w.to_str()).collect();
        instructions::run(&words)
    } else if words.get(1).is_some_and(|w| w == misses::WORD) {
        let words: Vec<_> = words[2..].iter().filter_map(|w| w.to_str()).collect();
        misses::run(&words)
    } else if words.get(1).is_some_and(|w| w == "work") {
        papers::work::run(&papers::work::Work::parse_from(&words[1..]))
    } else if words.get(1).is_some_and(|w| w == replot::WORD) {
        replot::run(words.get(2).map(Path::new))
    } else if words.iter().any(|w| w == "--inside") {
        inside::print(words.iter().any(|w| w == "--quick"));
        Ok(())
    } else {
        measure(&Cli::parse())
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hypernic-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    if cli.module == "list" {
        for module in &MODULES {
            println!(
                "{:<16} {} ({})",
                module.name,
                module.about,
                minutes((module.estimate)(options))
            );
        }
        return Ok(());
    }
    let chosen: Vec<_> = MODULES
        .iter()
        .filter(|m| cli.module == "all" || cli.module == m.name)
        .collect();
    if chosen.is_empty() {
        return Err(Error::Usage(format!(
            "no module `{}`; `hypernic-bench list` names them",
            cli.module
        )));
    }
    if !options.both_qemu && !options.hypernic().is_file() {
        return Err(Error::Usage(format!(
            "no daemon at {}; run `cargo build --release -p hypernic` or give --hypernic",
            options.hypernic().display()
        )));
    }
    let total: f64 = chosen.iter().map(|m| (m.estimate)(options)).sum();
    eprintln!(
        "{} module(s), about {} on an idle machine",
        chosen.len(),
        minutes(total)
    );
    let mut failed = Vec::new();
    for (done, module) in chosen.iter().enumerate() {
        eprintln!(
            "{} of {}: {} ({})",
            done + 1,
            chosen.len(),
            module.name,
            minutes((module.estimate)(options))
        );
        // What one module cannot do here, the others may.
        match (module.run)(options) {
            Ok(report) => {
                let files = report.write(&options.out())?;
                println!("{}", report.markdown);
                for file in files {
                    eprintln!("  wrote {}", file.display());
                }
            }
            Err(error) => {
                eprintln!("  {}: {error}", module.name);
                failed.push(module.name);
            }
        }
    }
    write_index(&options.out())?;
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "no figures from {}",
        failed.join(", ")
    )))
}

/// Lists the pages that are there, in the order of the modules.
fn write_index(dir: &Path) -> Result<()> {
    let mut text =
        "# Pages\n\nWritten by `make bench`; each says when and on what it was measured.\n\n"
            .to_owned();
    for module in &MODULES {
        if dir.join(format!("{}.md", module.name)).is_file() {
            text.push_str(&format!(
                "- [{0}]({0}.md): {1}\n",
                module.name, module.about
            ));
        }
    }
    let path = dir.join("index.md");
    std::fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
    std::fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))
}

fn minutes(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", (seconds / 60.0).ceil())
    }
}
