//! The page's plots.

use super::found::Found;
use super::lan::Way;
use super::outcome::Outcomes;
use super::plan::{Experiment, Stream};
use super::published::Published;
use crate::page::Page;
use crate::plot::{self, Bar, Scale, Whose};
use crate::stats::figure;

/// Speed-ups, theirs and ours in turn; a plot for each figure, sender, way and number of VCPUs.
pub fn bars(page: &mut Page, published: &Published, experiment: &Experiment, found: &[Found<'_>]) {
    let kind = |f: &Found<'_>| {
        let pktgen = f
            .line
            .jobs
            .first()
            .is_some_and(|j| j.stream == Stream::Kernel);
        let job = f.line.jobs.first();
        let place = job.map(|j| (j.way, j.setting.lan.switched()));
        (f.vcpus(), f.line.metric, pktgen, place)
    };
    // One against another is no bar among those of a base.
    let drawn = |f: &&Found<'_>| {
        let first = f.line.jobs.first();
        first.is_some_and(|j| j.stream != Stream::RrOver)
    };
    let mut kinds: Vec<_> = found.iter().filter(drawn).map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let several = {
        let mut places: Vec<_> = kinds.iter().map(|k| k.3).collect();
        places.dedup();
        places.len() > 1
    };
    for (vcpus, metric, pktgen, place) in kinds {
        let mut rows: Vec<Bar> = Vec::new();
        let mut measured = false;
        for f in found
            .iter()
            .filter(drawn)
            .filter(|f| kind(f) == (vcpus, metric, pktgen, place))
        {
            let base = found.iter().find(|b| b.beside(f));
            let theirs = f.theirs(published, metric).zip(
                base.and_then(|b| b.theirs(published, metric))
                    .filter(|b| *b > 0.0),
            );
            if let Some((value, base)) = theirs {
                let up = value / base;
                rows.push(Bar {
                    name: format!("{}, paper", f.line.label),
                    whose: Whose::Peer,
                    median: up,
                    spread: (up, up),
                });
            }
            let summary = f.best.and_then(|(_, o)| o.summary());
            if let Some((s, base)) = summary.zip(base.and_then(Found::value)) {
                let up = |v: f64| v / base;
                rows.push(Bar {
                    name: f.line.label.clone(),
                    whose: f.line.whose(),
                    median: up(s.median),
                    spread: (up(s.min), up(s.max)),
                });
                measured = true;
            }
        }
        if !measured {
            continue;
        }
        let sender = if pktgen { "-pktgen" } else { "" };
        let place = match place {
            Some((_, true)) if several => "-switch",
            Some((Way::Out, _)) if several => "-out",
            Some((Way::In, _)) if several => "-in",
            _ => "",
        };
        let name = format!("{}-{metric}{sender}{place}-{vcpus}", plain(experiment.id));
        let title = format!(
            "{}: {}{}{}, {vcpus} VCPU",
            experiment.title,
            metric.to_uppercase(),
            place.replace('-', ", "),
            if pktgen { " by pktgen" } else { "" },
        );
        page.plot(plot::bars(&name, &title, "times base", rows));
    }
}

/// The number in "mair=4000".
fn number(label: &str) -> Option<f64> {
    label.split_once('=')?.1.parse().ok()
}

/// A figure over the number in the lines' names.
pub fn sweep(page: &mut Page, experiment: &Experiment, found: &[Found<'_>]) {
    let points: Vec<(f64, f64)> = found
        .iter()
        .filter_map(|f| Some((number(&f.line.label)?, f.value()?)))
        .collect();
    if points.is_empty() {
        return;
    }
    page.plot(plot::lines(
        &plain(experiment.id),
        experiment.title,
        Scale::log("interrupts allowed, 1/s (log)"),
        Scale::linear("kpps"),
        vec![plot::set("ours", Whose::Ours, points)],
    ));
}

/// Received over offered, as a table and a plot.
pub fn curves(page: &mut Page, experiment: &Experiment, outcomes: &Outcomes) {
    let mut sets = Vec::new();
    let mut rows = Vec::new();
    for line in &experiment.lines {
        let mut points: Vec<(f64, f64)> = line
            .jobs
            .iter()
            .filter_map(|job| {
                let outcome = outcomes.get(job)?;
                let offered = outcome.field(&|r| r.raw["offered_kpps"].as_f64())?;
                Some((offered, outcome.value()?))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let peak = points.iter().map(|p| p.1).fold(0.0, f64::max);
        if let (Some(last), true) = (points.last(), peak > 0.0) {
            rows.push(vec![
                line.label.clone(),
                points
                    .iter()
                    .map(|(x, y)| format!("{} → {}", figure(*x), figure(*y)))
                    .collect::<Vec<_>>()
                    .join(", "),
                figure(peak),
                figure(last.0 / peak),
                format!("**{}**", figure(last.1 / peak)),
            ]);
        }
        sets.push(plot::set(&line.label, line.whose(), points));
    }
    page.table(
        &[
            "",
            "offered → received, kpps",
            "peak",
            "most offered / peak",
            "received then / peak",
        ],
        &rows,
    );
    if sets.iter().all(|s| s.points.is_empty()) {
        return;
    }
    page.plot(plot::lines(
        &plain(experiment.id),
        experiment.title,
        Scale::log("offered, kpps (log)"),
        Scale::linear("received by the program, kpps"),
        sets,
    ));
}

/// An id as part of a file's name.
pub fn plain(id: &str) -> String {
    id.replace('.', "_")
}
