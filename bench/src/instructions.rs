//! Instructions per frame between two guests in one process, as valgrind's `callgrind` counts them: the one figure of
//! the data path that is the same on a busy machine and on an idle one.
//!
//! `hypernic-bench instructions` prints the table, with a name behind it what begins so. Each case runs twice, with few and with many bursts; the difference
//! leaves out set-up.

use std::process::Command;

use crate::error::{Error, Result};
use crate::inside::Pair;
use crate::inside::realtek::RealtekPair;
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

fn mixed(name: &'static str, mix: Mix, vf: bool) -> (&'static str, Spec) {
    let spec = Spec::frames(60, RING, 32).mixed(mix);
    (name, Spec { vf, ..spec })
}

/// The table, of it what begins with a name, or with a case and a number of bursts what is counted for it.
///
/// # Errors
/// No such case, or no valgrind.
pub fn run(words: &[&str]) -> Result<()> {
    if let [case, bursts] = words {
        return bursts_of(case, bursts);
    }
    println!("{:<50} instructions per frame", "between two guests");
    let wanted = words.first().copied().unwrap_or_default();
    for (name, count) in table(&|name| name.starts_with(wanted)) {
        println!("{name:<50} {:>8.1}", count?);
    }
    Ok(())
}

/// The wanted rows of the table, counted when they are asked for.
fn table(wanted: &dyn Fn(&str) -> bool) -> impl Iterator<Item = (String, Result<f64>)> {
    let (intel, realtek) = (cases(), realtek());
    // What the drivers of the last do themselves is counted behind them, and is no part of a NIC.
    let names = intel.iter().chain(&realtek).chain(&realtek);
    let drivers = intel.len() + realtek.len();
    let rows = names
        .enumerate()
        .map(|(case, (name, _))| match case < drivers {
            true => (case, (*name).to_owned()),
            false => (case, format!("{name}: drivers")),
        });
    let rows: Vec<_> = rows.filter(|(_, name)| wanted(name)).collect();
    rows.into_iter().map(|(case, name)| (name, each(case)))
}

/// Instructions of a case for each frame.
fn each(case: usize) -> Result<f64> {
    let [few, many] = BURSTS.map(|bursts| count(case, bursts));
    let ((few, few_frames), (many, many_frames)) = (few?, many?);
    Ok((many - few) as f64 / (many_frames - few_frames) as f64)
}

fn bursts_of(case: &str, bursts: &str) -> Result<()> {
    let none = || Error::Usage("no such case".to_owned());
    let (Ok(case), Ok(bursts)) = (case.parse::<usize>(), bursts.parse::<u32>()) else {
        return Err(none());
    };
    let intel = cases();
    let arrived = match intel.get(case) {
        Some((_, spec)) => {
            let mut pair = Pair::new(*spec);
            (0..bursts).for_each(|_| pair.burst());
            pair.arrived()
        }
        None => {
            let realtek = realtek();
            let case = case - intel.len();
            let drivers = case / realtek.len();
            let (_, spec) = realtek.get(case % realtek.len()).ok_or_else(none)?;
            if drivers > 1 {
                return Err(none());
            }
            let mut pair = RealtekPair::new(*spec);
            if drivers == 1 {
                (0..bursts).map(|_| pair.drive()).sum()
            } else {
                (0..bursts).for_each(|_| pair.burst());
                pair.arrived()
            }
        }
    };
    println!("{arrived}");
    Ok(())
}

/// Instructions of a run, and the frames that arrived in it.
fn count(case: usize, bursts: u32) -> Result<(u64, u64)> {
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
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
