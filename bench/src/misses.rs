//! Cache misses of a frame with ten senders and with a thousand, beside the raw loop over as many rings, as valgrind's `cachegrind`
//! counts them: what a busy machine does not blur. The caches are those of [`CACHES`], whatever this machine has.
//!
//! `hypernic-bench misses` prints the table. Each case runs twice, with few and with many rounds; the difference leaves out set-up.

use std::process::Command;

use ceiling::Loop;

use crate::error::{Error, Result};
use crate::inside::fleet::Fleet;
use crate::spec::Spec;

/// The word that prints the table; with a case, a number of NICs and one of rounds behind it, what is counted.
pub const WORD: &str = "misses";
/// Of one processor: first level, and all that it does not share.
const CACHES: [&str; 2] = ["--D1=32768,8,64", "--LL=2097152,16,64"];
const NICS: [u16; 2] = [10, 1000];
/// Rounds of the two runs of a case.
const ROUNDS: [u32; 2] = [2, 6];

fn spec() -> Spec {
    Spec::frames(60, 128, 32)
}

/// The table, or with a case, a number of NICs and one of rounds what is counted for it.
///
/// # Errors
/// No such case, or no valgrind.
pub fn run(words: &[&str]) -> Result<()> {
    if let [case, nics, rounds] = words {
        let numbers = (nics.parse(), rounds.parse());
        let (Ok(nics), Ok(rounds)) = numbers else {
            return Err(Error::Usage("not a number".to_owned()));
        };
        println!("{}", frames(case, nics, rounds));
        return Ok(());
    }
    println!(
        "60 bytes, bursts of 32, rings of 128        NICs   beyond 32 KiB   beyond 2 MiB   (misses per frame)"
    );
    for case in ["82540EM", "82576 VF", "raw"] {
        for nics in NICS {
            let [few, many] = ROUNDS.map(|rounds| count(case, nics, rounds));
            let (few, many) = (few?, many?);
            let each = |at: usize| (many[at] - few[at]) as f64 / (many[2] - few[2]) as f64;
            println!("{case:<40} {nics:>7} {:>15.2} {:>14.2}", each(0), each(1));
        }
    }
    Ok(())
}

/// Frames that were moved in so many rounds.
fn frames(case: &str, nics: u16, rounds: u32) -> u64 {
    if case == "raw" {
        let mut loops: Vec<_> = (0..nics / 2).map(|_| Loop::new(spec().shape())).collect();
        let mut round = || -> u64 {
            let each = loops.iter_mut();
            each.map(|raw| (0..2).map(|_| raw.burst(32) as u64).sum::<u64>())
                .sum()
        };
        (0..4).for_each(|_| {
            round();
        });
        return (0..rounds).map(|_| round()).sum();
    }
    let spec = match case {
        "82576 VF" => spec().between_vfs(),
        _ => spec(),
    };
    let mut fleet = Fleet::watched(nics, spec);
    let before = fleet.arrived();
    (0..rounds).for_each(|_| fleet.round());
    fleet.arrived() - before
}

/// Misses of the first level, misses of both, frames.
fn count(case: &str, nics: u16, rounds: u32) -> Result<[u64; 3]> {
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    let output = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=yes",
            "--cachegrind-out-file=/dev/null",
        ])
        .args(CACHES)
        .arg(program)
        .args([WORD, case, &nics.to_string(), &rounds.to_string()])
        .output()
        .map_err(Error::io("run valgrind (Debian's package `valgrind`)"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let of = |name: &str| {
        let line = told.lines().find_map(|line| line.split_once(name))?.1;
        let number: String = line.trim().split(' ').next()?.replace(',', "");
        number.parse().ok()
    };
    let moved = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    match (of("D1  misses:"), of("LLd misses:"), moved) {
        (Some(first), Some(last), Some(frames)) => Ok([first, last, frames]),
        _ => Err(Error::tool("valgrind", "it has counted nothing")),
    }
}
