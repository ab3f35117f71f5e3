//! Instructions per frame between two guests in one process, as valgrind's `callgrind` counts them: the one figure of
//! the data path that is the same on a busy machine and on an idle one.
//!
//! `hypernic-bench instructions` prints the table, with a name behind it what begins so. Each case runs twice, with few and with many bursts; the difference
//! leaves out set-up. Where a driver and a server set up in turns, only the bursts are counted.

use std::process::Command;

use crate::error::{Error, Result};
use crate::inside::Pair;
use crate::inside::csb::{CsbPair, RealtekCsbPair};
use crate::inside::paged::{Chip, PagedPair};
use crate::inside::realtek::RealtekPair;
use crate::inside::virtio::{Rings, VirtioPair, VirtioSpec};
use crate::spec::{Mix, Spec};

/// The word that prints the table; with a case and a number of bursts behind it, what is counted.
pub const WORD: &str = "instructions";
/// Bursts of the two runs of a case.
const BURSTS: [u32; 2] = [50, 250];
const RING: u32 = 256;

fn cases() -> Vec<(&'static str, Spec)> {
    let tso = tso();
    let mut cases = vec![
        ("82540EM, 60 bytes, one by one", Spec::frames(60, RING, 1)),
        (
            "82540EM, 60 bytes, bursts of 32",
            Spec::frames(60, RING, 32),
        ),
        (
            "82540EM, 60 bytes, bursts of 128",
            Spec::frames(60, RING, 128),
        ),
        (
            "82540EM, 1514 bytes, bursts of 32",
            Spec::frames(1514, RING, 32),
        ),
        ("82540EM, 64 KiB of TSO, per segment", tso),
        (
            "82540EM, 60 bytes of UDP, bursts of 32",
            Spec::frames(60, RING, 32).of_udp(),
        ),
        (
            "82540EM, 1514 bytes of UDP, bursts of 32",
            Spec::frames(1514, RING, 32).of_udp(),
        ),
        (
            "82576 VFs, 60 bytes, one by one",
            Spec::frames(60, RING, 1).between_vfs(),
        ),
        (
            "82576 VFs, 60 bytes, bursts of 32",
            Spec::frames(60, RING, 32).between_vfs(),
        ),
        (
            "82576 VFs, 60 bytes, bursts of 128",
            Spec::frames(60, RING, 128).between_vfs(),
        ),
        (
            "82576 VFs, 1514 bytes, bursts of 32",
            Spec::frames(1514, RING, 32).between_vfs(),
        ),
        (
            "82576 VFs, 60 bytes of UDP, bursts of 32",
            Spec::frames(60, RING, 32).between_vfs().of_udp(),
        ),
        mixed("82540EM, imix, bursts of 32", Mix::Imix, false),
        mixed(
            "82540EM, to two in turn, bursts of 32",
            Mix::Alternating,
            false,
        ),
        mixed(
            "82540EM, 64 flows to eight, bursts of 32",
            Mix::Flows,
            false,
        ),
        mixed("82576 VFs, imix, bursts of 32", Mix::Imix, true),
        mixed(
            "82576 VFs, to two in turn, bursts of 32",
            Mix::Alternating,
            true,
        ),
        mixed(
            "82576 VFs, 64 flows to eight, bursts of 32",
            Mix::Flows,
            true,
        ),
        (
            "82540EM, 60 bytes of UDP, one by one",
            Spec::frames(60, RING, 1).of_udp(),
        ),
        (
            "82576 VFs, 60 bytes of UDP, one by one",
            Spec::frames(60, RING, 1).between_vfs().of_udp(),
        ),
    ];
    cases.extend(kept());
    cases
}

/// Large packets to be cut.
fn tso() -> Spec {
    Spec {
        mss: Some(1460),
        ..Spec::frames(65_000, RING, 1)
    }
}

/// What runs between NICs that would go on after their process died.
fn kept() -> Vec<(&'static str, Spec)> {
    vec![
        (
            "82540EM with a keeper, 60 bytes, one by one",
            Spec::frames(60, RING, 1).kept(),
        ),
        (
            "82540EM with a keeper, 60 bytes, bursts of 32",
            Spec::frames(60, RING, 32).kept(),
        ),
        (
            "82540EM with a keeper, 60 bytes, bursts of 128",
            Spec::frames(60, RING, 128).kept(),
        ),
        (
            "82540EM with a keeper, 1514 bytes, bursts of 32",
            Spec::frames(1514, RING, 32).kept(),
        ),
        (
            "82540EM with a keeper, 64 KiB of TSO, per segment",
            tso().kept(),
        ),
        (
            "82576 VFs with a keeper, 60 bytes, one by one",
            Spec::frames(60, RING, 1).between_vfs().kept(),
        ),
        (
            "82576 VFs with a keeper, 60 bytes, bursts of 32",
            Spec::frames(60, RING, 32).between_vfs().kept(),
        ),
        (
            "82576 VFs with a keeper, 60 bytes, bursts of 128",
            Spec::frames(60, RING, 128).between_vfs().kept(),
        ),
        (
            "82576 VFs with a keeper, 1514 bytes, bursts of 32",
            Spec::frames(1514, RING, 32).between_vfs().kept(),
        ),
        (
            "82576 VFs with a keeper, UDP, bursts of 32",
            Spec::frames(60, RING, 32).between_vfs().of_udp().kept(),
        ),
    ]
}

/// What runs between two RTL8168Cs.
fn realtek() -> Vec<(&'static str, Spec)> {
    vec![
        (
            "RTL8168C with a keeper, 60 bytes, one by one",
            Spec::frames(60, RING, 1).kept(),
        ),
        (
            "RTL8168C with a keeper, 60 bytes, bursts of 32",
            Spec::frames(60, RING, 32).kept(),
        ),
        (
            "RTL8168C with a keeper, 60 bytes, bursts of 128",
            Spec::frames(60, RING, 128).kept(),
        ),
        (
            "RTL8168C with a keeper, 1514 bytes, bursts of 32",
            Spec::frames(1514, RING, 32).kept(),
        ),
        ("RTL8168C, 60 bytes, one by one", Spec::frames(60, RING, 1)),
        (
            "RTL8168C, 60 bytes, bursts of 32",
            Spec::frames(60, RING, 32),
        ),
        (
            "RTL8168C, 60 bytes, bursts of 128",
            Spec::frames(60, RING, 128),
        ),
        (
            "RTL8168C, 1514 bytes, bursts of 32",
            Spec::frames(1514, RING, 32),
        ),
    ]
}

/// Whole frames, as in the tables of what a keeper costs.
fn whole() -> [(&'static str, Spec); 4] {
    [
        ("60 bytes, one by one", Spec::frames(60, RING, 1)),
        ("60 bytes, bursts of 32", Spec::frames(60, RING, 32)),
        ("60 bytes, bursts of 128", Spec::frames(60, RING, 128)),
        ("1514 bytes, bursts of 32", Spec::frames(1514, RING, 32)),
    ]
}

/// What runs where tails are in memory: in doorbell pages, behind real servers, and in Communication Status Blocks.
fn in_memory() -> Vec<(String, Case)> {
    type Make = fn(Spec) -> Case;
    let kinds: [(&str, Make); 4] = [
        ("82540EM with pages", |spec| Case::Paged(Chip::E1000, spec)),
        ("82576 with pages", |spec| Case::Paged(Chip::Igb, spec)),
        ("82540EM with a CSB", Case::Csb),
        ("RTL8168C with a CSB", Case::RealtekCsb),
    ];
    let mut all = Vec::new();
    for (chip, make) in kinds {
        let plain = whole().map(|(what, spec)| (format!("{chip}, {what}"), make(spec)));
        let kept = whole().map(|(what, spec)| {
            let name = format!("{chip} and a keeper, {what}");
            (name, make(spec.kept()))
        });
        all.extend(plain.into_iter().chain(kept));
    }
    all
}

fn mixed(name: &'static str, mix: Mix, vf: bool) -> (&'static str, Spec) {
    let spec = Spec::frames(60, RING, 32).mixed(mix);
    (name, Spec { vf, ..spec })
}

/// What runs between two virtio-nets.
fn virtio() -> Vec<(String, VirtioSpec)> {
    let mut all = Vec::new();
    let kinds = [
        Rings::Split,
        Rings::SplitInOrder,
        Rings::Packed,
        Rings::PackedInOrder,
    ];
    for rings in kinds {
        let mut add = |what: &str, spec| {
            all.push((format!("virtio-net {}, {what}", rings.words()), spec));
        };
        for (what, burst) in [
            ("one by one", 1),
            ("bursts of 32", 32),
            ("bursts of 128", 128),
        ] {
            let spec = VirtioSpec::frames(60, burst, rings);
            add(&format!("60 bytes, {what}"), spec);
        }
        add(
            "1514 bytes, bursts of 32",
            VirtioSpec::frames(1514, 32, rings),
        );
        add("imix, bursts of 32", VirtioSpec::imix(32, rings));
        for (what, burst) in [
            ("one by one", 1),
            ("bursts of 32", 32),
            ("bursts of 128", 128),
        ] {
            let spec = VirtioSpec::frames(60, burst, rings).kept();
            add(&format!("with a keeper, 60 bytes, {what}"), spec);
        }
        let spec = VirtioSpec::frames(1514, 32, rings).kept();
        add("with a keeper, 1514 bytes, bursts of 32", spec);
        for (what, buffer) in [("64 KiB", 1 << 16), ("4 KiB", 4096)] {
            let spec = VirtioSpec::segments(4, rings, buffer);
            add(&format!("64 KiB of TSO, buffers of {what}"), spec);
        }
    }
    all
}

/// What is counted.
enum Case {
    /// Two 82540EMs or VFs.
    Intel(Spec),
    /// Two RTL8168Cs; of their drivers only the part that is no part of a NIC.
    Realtek(Spec, bool),
    /// Two virtio-nets; the same.
    Virtio(VirtioSpec, bool),
    /// Two NICs with doorbell pages, and their servers.
    Paged(Chip, Spec),
    /// Two 82540EMs with a Communication Status Block.
    Csb(Spec),
    /// Two RTL8168Cs with one.
    RealtekCsb(Spec),
}

impl Case {
    /// The one function of which something is counted; `None`: all that runs.
    fn counted(&self) -> Option<&'static str> {
        matches!(self, Case::Paged(..)).then_some(PagedPair::COUNTED)
    }
}

/// All rows. What the drivers do themselves, where that is much, is counted behind them.
fn rows() -> Vec<(String, Case)> {
    let intel = cases().into_iter();
    let mut all: Vec<_> = intel.map(|(n, s)| (n.to_owned(), Case::Intel(s))).collect();
    let realtek = |drivers: bool| {
        let one = move |(n, s): (&str, Spec)| (named(n, drivers), Case::Realtek(s, drivers));
        realtek().into_iter().map(one)
    };
    let virtio = |drivers: bool| {
        let one =
            move |(n, s): (String, VirtioSpec)| (named(&n, drivers), Case::Virtio(s, drivers));
        virtio().into_iter().map(one)
    };
    all.extend(realtek(false).chain(realtek(true)));
    all.extend(virtio(false).chain(virtio(true)));
    all.extend(in_memory());
    all
}

fn named(name: &str, drivers: bool) -> String {
    let behind = if drivers { ": drivers" } else { "" };
    format!("{name}{behind}")
}

/// The table, of it what begins with a name, or with a case and a number of bursts what is counted for it.
///
/// # Errors
/// No such case, or no valgrind.
pub fn run(words: &[&str]) -> Result<()> {
    if let [case, bursts] = words {
        return bursts_of(case, bursts);
    }
    println!("{:<66} instructions per frame", "between two guests");
    let wanted = words.first().copied().unwrap_or_default();
    for (number, (name, case)) in rows().iter().enumerate() {
        if name.starts_with(wanted) {
            println!("{name:<66} {:>8.1}", each(number, case.counted())?);
        }
    }
    Ok(())
}

/// Instructions of a case for each frame.
fn each(case: usize, counted: Option<&str>) -> Result<f64> {
    let [few, many] = BURSTS.map(|bursts| count(case, counted, bursts));
    let ((few, few_frames), (many, many_frames)) = (few?, many?);
    Ok((many - few) as f64 / (many_frames - few_frames) as f64)
}

fn bursts_of(case: &str, bursts: &str) -> Result<()> {
    let none = || Error::Usage("no such case".to_owned());
    let (Ok(case), Ok(bursts)) = (case.parse::<usize>(), bursts.parse::<u32>()) else {
        return Err(none());
    };
    let (_, case) = rows().into_iter().nth(case).ok_or_else(none)?;
    let arrived: u64 = match case {
        Case::Intel(spec) => {
            let mut pair = Pair::new(spec);
            (0..bursts).for_each(|_| pair.burst());
            pair.arrived()
        }
        Case::Realtek(spec, drivers) => {
            let mut pair = RealtekPair::new(spec);
            if drivers {
                (0..bursts).map(|_| pair.drive()).sum()
            } else {
                (0..bursts).for_each(|_| pair.burst());
                pair.arrived()
            }
        }
        Case::Virtio(spec, drivers) => {
            let mut pair = VirtioPair::new(spec);
            if drivers {
                (0..bursts).map(|_| pair.drive()).sum()
            } else {
                (0..bursts).for_each(|_| pair.burst());
                pair.arrived()
            }
        }
        Case::Paged(chip, spec) => {
            let mut pair = PagedPair::new(chip, spec);
            pair.counted_bursts(bursts);
            pair.arrived()
        }
        Case::Csb(spec) => {
            let mut pair = CsbPair::new(spec);
            (0..bursts).for_each(|_| pair.burst());
            pair.arrived()
        }
        Case::RealtekCsb(spec) => {
            let mut pair = RealtekCsbPair::new(spec);
            (0..bursts).for_each(|_| pair.burst());
            pair.arrived()
        }
    };
    println!("{arrived}");
    Ok(())
}

/// Instructions of a run, and the frames that arrived in it.
fn count(case: usize, counted: Option<&str>, bursts: u32) -> Result<(u64, u64)> {
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(counted.map(|function| format!("--toggle-collect={function}")))
        .arg(program)
        .args([WORD, &case.to_string(), &bursts.to_string()])
        .output()
        .map_err(Error::io("run valgrind (Debian's package `valgrind`)"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let collected = told
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let arrived = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    match (collected, arrived) {
        (Some(instructions), Some(frames)) => Ok((instructions, frames)),
        _ => Err(Error::tool("valgrind", "it has counted nothing")),
    }
}
