//! virtio-net: guests over vhost-user beside DPDK's vhost, memif and OVS-DPDK on the same two processors; segments that cross whole
//! beside a bare copy; interrupts for received frames.

mod calls;
mod found;
mod load;
mod page;
mod party;

use ceiling::{Loop, Shape};
use rig::Rig;
use serde_json::json;

use self::found::{BURST, Case, Found, within};
use self::load::{LENGTHS, Load};
use self::party::{Ground, PARTIES, Running};
use crate::error::{Error, Result};
use crate::inside::virtio::{Rings, VirtioPair, VirtioSpec};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::quiet::Quiet;
use crate::report::Report;
use crate::stats::{Column, Reading, figure, in_turns};

/// Parts of the module, for `--only`.
const PAIRS: &str = "pairs";
const TWO: &str = "two";
const INSIDE: &str = "inside";
const CALLS: &str = "calls";

/// Most frames that a guest hands over at once.
const BURSTS: [u32; 5] = [1, 4, 32, 64, 256];
fn seconds(options: &Options) -> f64 {
    if options.quick { 0.15 } else { 0.3 }
}

fn bursts(options: &Options) -> Vec<u32> {
    let short = [1, 32, 64];
    let all = BURSTS.into_iter();
    all.filter(|burst| !options.quick || short.contains(burst))
        .collect()
}

/// What goes round with so many pairs of queues.
fn loads(options: &Options, queues: u32) -> Vec<Load> {
    let bursts = if queues > 1 {
        vec![BURST]
    } else {
        bursts(options)
    };
    let of = |lengths| {
        let one = move |&burst: &u32| Load { lengths, burst };
        bursts.iter().map(one).collect::<Vec<_>>()
    };
    LENGTHS.into_iter().flat_map(of).collect()
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let mut sum = 5.0;
    for (part, queues) in [(PAIRS, 1), (TWO, 2)] {
        if options.wants(part) {
            let cases = (loads(options, queues).len() * PARTIES.len()) as f64;
            sum += 20.0 + cases * (0.6 + options.rounds() as f64 * (seconds(options) + 0.08));
        }
    }
    if options.wants(INSIDE) {
        sum += within().len() as f64 * (0.1 + 0.04 * options.rounds() as f64);
    }
    sum
}

/// Runs the module.
///
/// # Errors
/// When a measurement fails. Peers that are not to be had are part of the report.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("virtio", "virtio-net, beside its peers");
    let mut quiet = options.quiet();
    let mut found = Found::default();
    if options.wants(CALLS) {
        for way in calls::ways() {
            for pace in calls::PACES {
                found.calls.push((way, pace, calls::play(&way, &pace)));
            }
        }
    }
    if options.wants(INSIDE) {
        found.within = inside(options, &mut quiet)?;
    }
    if options.wants(PAIRS) || options.wants(TWO) {
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        for (part, queues) in [(PAIRS, 1), (TWO, 2)] {
            if options.wants(part) {
                switched(options, &rig, queues, &mut quiet, &mut found)?;
            }
        }
    }
    page::write(&mut page, &found);
    Ok(page.finish(&quiet))
}

/// Compares all parties, with guests of so many pairs of queues.
fn switched(
    options: &Options,
    rig: &Rig,
    queues: u32,
    quiet: &mut Quiet,
    found: &mut Found,
) -> Result<()> {
    let scratch = machine::scratch()?;
    let mut running: Vec<Option<Running>> = Vec::new();
    let root = rig.dpdk().map_err(|e| e.to_string());
    let (guests, core) = machine::cores();
    for (at, party) in PARTIES.iter().enumerate() {
        let begun = match &root {
            Err(why) => Err(why.clone()),
            Ok(_) if guests == core => Err("guests poll, and there is one processor".to_owned()),
            Ok(dpdk) => {
                let ground = Ground {
                    options,
                    rig,
                    dpdk,
                    dir: scratch.path(),
                    queues,
                };
                ground.begin(party).map_err(|e| e.to_string())
            }
        };
        if let Err(why) = &begun {
            eprintln!("  {} does not run here: {why}", party.name);
            found.absent.push((queues, at, why.clone()));
        }
        running.push(begun.ok());
    }
    for load in loads(options, queues) {
        eprint!(
            "  {queues} pair(s), {}, {} at once",
            load.lengths.words(),
            load.burst
        );
        let there: Vec<usize> = (0..running.len())
            .filter(|&i| running[i].is_some())
            .collect();
        let mut shown: Vec<Column> = there.iter().map(|&i| Column::new(PARTIES[i].id)).collect();
        in_turns(quiet, options.rounds(), &mut shown, |i| {
            let at = there[i];
            let gone = || Error::Usage("it is gone".to_owned());
            let party = running[at].as_mut().ok_or_else(gone)?;
            // One that fails is missing and stops no other.
            party.sample(load, seconds(options)).or_else(|error| {
                eprint!(" {}: {error} ", PARTIES[at].id);
                Ok(Reading {
                    value: f64::NAN,
                    raw: json!({"failed": error.to_string()}),
                })
            })
        })?;
        let mut columns: Vec<Column> = PARTIES.iter().map(|p| Column::new(p.id)).collect();
        for (column, &at) in shown.into_iter().zip(&there) {
            eprint!(" {} {}", column.id, figure(column.median()));
            columns[at] = column;
        }
        eprintln!();
        found.switched.push((queues, load, columns));
    }
    Ok(())
}

enum Ready {
    Raw(Box<Loop>, usize),
    Ours(Box<VirtioPair>),
}

fn inside(options: &Options, quiet: &mut Quiet) -> Result<Vec<(Case, Column)>> {
    let cases = within();
    let mut ready: Vec<Ready> = cases
        .iter()
        .map(|case| match *case {
            Case::Raw(size, burst) => {
                let large = size > 2048;
                let like = VirtioSpec::frames(size, 1, Rings::Split);
                let shape = Shape {
                    size,
                    ring: if large { 64 } else { 256 },
                    stride: like.stride(),
                };
                Ready::Raw(Box::new(Loop::new(shape)), burst)
            }
            Case::Ours(spec) => Ready::Ours(Box::new(VirtioPair::new(spec))),
        })
        .collect();
    let mut columns: Vec<Column> = cases.iter().map(|case| Column::new(case.id())).collect();
    eprint!("  in one process");
    in_turns(quiet, options.rounds(), &mut columns, |i| {
        let size = match cases[i] {
            Case::Raw(size, _) => size,
            Case::Ours(spec) => spec.size,
        };
        let frames = 40_000_000 / (400 + size);
        let ns = match &mut ready[i] {
            Ready::Raw(raw, burst) => raw.sample(*burst, frames),
            Ready::Ours(pair) => pair.sample(frames),
        };
        Ok(Reading::bare(ns))
    })?;
    eprintln!();
    Ok(cases.into_iter().zip(columns).collect())
}

#[cfg(test)]
mod tests {
    use super::found::usual;
    use super::*;

    #[test]
    fn what_the_targets_are_of_is_always_measured() {
        let mut options = Options::of_words(&[]);
        for quick in [true, false] {
            options.quick = quick;
            let loads = loads(&options, 1);
            assert!(loads.contains(&usual(60)) && loads.contains(&usual(1514)));
        }
    }

    #[test]
    fn a_full_run_takes_ten_minutes_and_a_quick_one_four() {
        let mut options = Options::of_words(&[]);
        assert!(estimate(&options) <= 600.0, "{}", estimate(&options));
        options.quick = true;
        assert!(estimate(&options) <= 240.0, "{}", estimate(&options));
    }

    #[test]
    fn every_case_inside_has_its_own_name() {
        let mut names: Vec<_> = within().into_iter().map(Case::id).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
