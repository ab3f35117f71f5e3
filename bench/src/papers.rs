//! The tables and figures of the papers, measured again: theirs beside ours.
//!
//! Guests run under translation where there is no KVM, so the result is not a rate but how much faster than a table's own
//! first row each other row is, and what a packet costs in things that can be counted.

mod bed;
mod found;
mod lan;
mod outcome;
mod page;
mod plan;
mod plots;
mod published;
mod sample;
mod targets;
pub mod work;

use std::collections::BTreeMap;
use std::time::Instant;

use crate::error::Result;
use crate::options::Options;
use crate::page::Page;
use crate::pairs::since;
use crate::quiet::Quiet;
use crate::report::Report;
use crate::stats::Reading;

use bed::Bed;
use outcome::Outcomes;
use plan::{Experiment, Job, Setting};

/// How often a bed that died is made again.
const BEDS: usize = 4;

/// All rows that compare virtio-nets, for `--only`.
const VIRTIO: &str = "v";

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.6 } else { 2.0 }
}

fn rounds(options: &Options) -> usize {
    let default = if options.quick { 1 } else { 3 };
    options.rounds.unwrap_or(default).max(1)
}

fn chosen(options: &Options) -> Vec<Experiment> {
    let mut all = plan::experiments(options.quick);
    let all_virtio = options.only.iter().any(|id| id == VIRTIO);
    all.retain(|e| options.wants(e.id) || all_virtio && e.compares_virtio());
    all
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let jobs = plan::jobs(&chosen(options));
    let beds = jobs.iter().map(|j| j.vcpus).max().unwrap_or(1);
    let each = seconds(options) + 0.9;
    let drivers = jobs.chunk_by(|a, b| (a.vcpus, a.driver) == (b.vcpus, b.driver));
    f64::from(beds) * 40.0
        + drivers.count() as f64 * 4.0
        + jobs.len() as f64 * rounds(options) as f64 * each
}

/// Runs the module.
///
/// # Errors
/// When the papers' numbers cannot be read; what fails while measuring is part of the report.
pub fn run(options: &Options) -> Result<Report> {
    let published = published::Published::read()?;
    let experiments = chosen(options);
    // These alone have a page of their own, as they say nothing of the rest.
    let mut page = if experiments.iter().all(Experiment::compares_virtio) {
        let title = "The papers' rows of virtio-net, with ours beside QEMU's";
        Page::new("papers_virtio", title).made_by("papers --only v")
    } else {
        Page::new("papers", "The papers' tables and figures, measured again")
    };
    let jobs = plan::jobs(&experiments);
    // A short run stays short.
    let tries = if options.quick {
        options.tries.min(3)
    } else {
        options.tries
    };
    let mut quiet = Quiet::new(options.any_load, tries);
    let mut outcomes = Outcomes::new();
    let start = Instant::now();
    eprintln!(
        "  {} measurements of {} s, {} round(s)",
        jobs.len(),
        seconds(options),
        rounds(options)
    );
    let pv = jobs.iter().any(|job| job.setting.lan.pv());
    let mut state = State::new(options, pv);
    // What shares guests and driver is measured in turns.
    for group in jobs.chunk_by(|a, b| (a.vcpus, a.driver) == (b.vcpus, b.driver)) {
        eprint!(
            "  {} VCPU(s), driver {:?}, {} interrupts/s, {} measurements ",
            group[0].vcpus,
            group[0].driver.load,
            group[0]
                .driver
                .rate
                .map_or("its own".to_owned(), |r| r.to_string()),
            group.len()
        );
        for round in 0..rounds(options) {
            let mut order: Vec<&Job> = group.iter().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for job in order {
                let outcome = outcomes.entry(*job).or_default();
                // A guest that died may have died of something else; twice is enough.
                for _ in outcome.failures.len()..2 {
                    let taken = state.ready(job).and_then(|()| {
                        quiet.take(|| state.sample(job, seconds(options), round == 0))
                    });
                    match taken {
                        Ok(taken) => {
                            outcome.readings.push(taken.map(|t| t.value));
                            eprint!(".");
                            break;
                        }
                        Err(error) => {
                            eprint!("x ({error}) ");
                            outcome.failures.push(error.to_string());
                            state.check();
                        }
                    }
                }
            }
        }
        eprintln!(" {}", since(start));
    }
    state.describe(&mut page);
    let how_long = (seconds(options), rounds(options));
    page::write(&mut page, &published, &experiments, &outcomes, how_long);
    Ok(page.finish(&quiet))
}

/// The bed there is, if there is one.
struct State<'a> {
    options: &'a Options,
    /// Guests have all virtio-nets.
    pv: bool,
    bed: Option<(u32, Bed)>,
    made: BTreeMap<u32, usize>,
    /// Why no more beds are made.
    refused: BTreeMap<u32, String>,
    environment: Vec<(&'static str, String)>,
}

impl<'a> State<'a> {
    fn new(options: &'a Options, pv: bool) -> Self {
        Self {
            options,
            pv,
            bed: None,
            made: BTreeMap::new(),
            refused: BTreeMap::new(),
            environment: Vec::new(),
        }
    }

    /// Has guests, driver and settings as a measurement wants them.
    fn ready(&mut self, job: &Job) -> Result<()> {
        if self
            .bed
            .as_ref()
            .is_none_or(|(vcpus, _)| *vcpus != job.vcpus)
        {
            self.bed = None;
            self.make(job.vcpus)?;
        }
        let Some((_, bed)) = &mut self.bed else {
            return Ok(());
        };
        bed.load(job.driver)?;
        let Setting {
            lan,
            offloads,
            setup,
            ..
        } = job.setting;
        bed.tune(lan, offloads, setup)
    }

    fn make(&mut self, vcpus: u32) -> Result<()> {
        if let Some(why) = self.refused.get(&vcpus) {
            return Err(crate::error::Error::Usage(why.clone()));
        }
        let made = self.made.entry(vcpus).or_default();
        *made += 1;
        let last = *made >= BEDS;
        eprint!("(guests boot) ");
        match Bed::new(&self.options.hypernic(), vcpus, self.pv) {
            Ok(bed) => {
                if self.environment.is_empty() {
                    self.environment = facts(&bed);
                }
                self.bed = Some((vcpus, bed));
                if last {
                    let why = format!("the guests with {vcpus} VCPU(s) ended {BEDS} times");
                    self.refused.insert(vcpus, why);
                }
                Ok(())
            }
            Err(error) => {
                let why = format!("no guests with {vcpus} VCPU(s): {error}");
                self.refused.insert(vcpus, why);
                Err(error)
            }
        }
    }

    fn sample(&self, job: &Job, seconds: f64, traced: bool) -> Result<Reading> {
        match &self.bed {
            Some((_, bed)) => sample::take(bed, job, seconds, traced),
            None => Err(crate::error::Error::Usage("there are no guests".to_owned())),
        }
    }

    /// After a failure: guests that do not answer any more are given up.
    fn check(&mut self) {
        if self.bed.as_ref().is_some_and(|(_, bed)| !bed.lives()) {
            self.bed = None;
        }
    }

    fn describe(&self, page: &mut Page) {
        for (key, value) in &self.environment {
            page.environment(key, value.clone());
        }
    }
}

/// What the guests are.
fn facts(bed: &Bed) -> Vec<(&'static str, String)> {
    let kernel = bed.guests[0].run("uname -rv").unwrap_or_default();
    let accelerator = bed.rig.accel().map(|a| a.to_string());
    vec![
        ("qemu", bed.rig.qemu().version().to_owned()),
        ("accelerator", accelerator.unwrap_or_default()),
        ("guest_kernel", kernel.trim().to_owned()),
    ]
}
