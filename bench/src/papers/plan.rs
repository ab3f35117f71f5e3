//! What is measured: each table and figure of the papers as lines, each line as one or several measurements.

mod ancs;
mod chips;
mod nic_emu;
mod settings;
mod terms;
mod thesis;
mod virtio;

pub use terms::{Experiment, Job, Line, Look, Setting, Stream};

use ancs::ancs;
use chips::chips;
use nic_emu::nic_emu;
use thesis::thesis;
use virtio::virtio;

/// All tables and figures; with `quick`, fewer points and one processor where two add nothing new.
pub fn experiments(quick: bool) -> Vec<Experiment> {
    let mut all = thesis(quick);
    all.extend(ancs(quick));
    all.extend(nic_emu());
    all.extend(chips());
    all.extend(virtio(quick));
    all
}

/// All measurements of these, each once, in an order that loads drivers seldom.
pub fn jobs(experiments: &[Experiment]) -> Vec<Job> {
    let lines = experiments.iter().flat_map(|e| &e.lines);
    let mut jobs: Vec<Job> = lines.flat_map(|l| l.jobs.iter().copied()).collect();
    jobs.sort();
    jobs.dedup();
    jobs
}

#[cfg(test)]
mod tests {
    use super::super::published::Published;
    use super::*;

    #[test]
    fn every_table_and_figure_of_the_issue_is_there_and_has_its_place() {
        let published = Published::read().unwrap();
        for quick in [true, false] {
            let ids: Vec<_> = experiments(quick).iter().map(|e| e.id).collect();
            let wanted = [
                "t3.1", "t3.2", "t3.3", "f3.3", "f3.4", "f3.5", "t4.1", "t4.2", "t4.3", "a3",
                "a4.out", "a4.in", "a4.tap", "a4.vale", "a6", "a7", "a8", "a9", "n6.1", "n6.2",
                "n6.3", "c4.out", "c4.in", "c4.vale", "v4.1", "v4.2", "v4.3", "v.out", "v.in",
                "v.tap", "v.vale",
            ];
            assert_eq!(ids, wanted);
            assert!(
                wanted
                    .iter()
                    .all(|id| published.place(id).contains("figure")
                        || published.place(id).contains("table"))
            );
        }
    }

    #[test]
    fn rows_the_papers_have_are_measured() {
        let published = Published::read().unwrap();
        let has = |id: &str, row: &str, metric: &str, vcpus: u32| {
            published.figure(id, row, vcpus, metric).is_some()
        };
        for e in experiments(false)
            .iter()
            .filter(|e| e.id.starts_with(['t', 'a']))
        {
            if matches!(e.look, Look::Polls | Look::Curves) {
                continue;
            }
            let found = e
                .lines
                .iter()
                .filter(|l| has(l.theirs.0, l.theirs.1, l.metric, l.jobs[0].vcpus));
            assert!(found.count() >= 2, "{}", e.id);
        }
    }

    #[test]
    fn a_measurement_is_made_once_and_drivers_are_loaded_once_a_bed() {
        let jobs = jobs(&experiments(true));
        let changes = jobs
            .windows(2)
            .filter(|w| (w[0].vcpus, w[0].driver) != (w[1].vcpus, w[1].driver));
        assert!(changes.count() < 24);
        let mut keys: Vec<_> = jobs.iter().map(|j| (j.key(), j.setting)).collect();
        keys.sort();
        let before = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), before);
    }
}
