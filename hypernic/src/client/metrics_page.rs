//! docs/metrics.md, from what a scrape tells.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use control::{CountsOf, NicConfig, NicInfo};

use super::exposition::{Families, Kind};
use super::metrics::{of_build, of_nic, of_replies, of_sandbox, plan, tell};
use crate::{explain, sandbox};

/// Everything that a scrape of a daemon with one of everything tells.
fn told(all: bool) -> Families {
    let mut families = Families::new(usize::MAX);
    of_build(&mut families, "");
    let nic = NicInfo {
        config: NicConfig::default(),
        connected: false,
        link: false,
        failed: false,
        chip: None,
        vf: None,
        model_revision: None,
    };
    of_nic(&mut families, &nic);
    let section = |kind, values: &[(&'static str, u64)]| {
        let mut values: Vec<_> = values.iter().map(|(name, _)| (*name, 0)).collect();
        // As a daemon tells them.
        values.sort_unstable();
        CountsOf {
            kind,
            name: "".into(),
            values,
        }
    };
    of_sandbox(
        &mut families,
        &section("sandbox", &sandbox::counters().values),
    );
    of_replies(&mut families, &section("worker", &[]));
    for reason in explain::all() {
        let how = plan(&mut families, reason.kind, reason.name, all);
        tell(&mut families, "", how, 0);
    }
    families
}

/// The whole page.
pub fn page() -> String {
    let mut text = String::from(
        "# Every metric\n\n\
         `hypernic metrics` prints these, and `hypernic exporter` serves them ([looking](looking.md#exporter)), with some of its own. \
         `make docs` writes this page from the code that tells them.\n\n\
         Of `hypernic_drops_total`, `_refusals_total`, `_faults_total` and `_delays_total` each label `reason` is a counter of \
         [drops.md](drops.md). Metrics with \u{2020} are told with `--all` only.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    let (usual, all) = (told(false), told(true));
    let usual: Vec<_> = usual.each().map(|(name, ..)| name).collect();
    let by_name: BTreeMap<_, _> = all
        .each()
        .map(|(name, kind, help, labels)| (name, (kind, help, labels)))
        .collect();
    for (name, (kind, help, labels)) in by_name {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
            Kind::Histogram => "histogram",
        };
        let mark = if usual.contains(&name) {
            ""
        } else {
            " \u{2020}"
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{name}`{mark} | {kind} | {} | {help} |",
            labels.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        let kept = std::fs::read_to_string(path).expect("docs/metrics.md");
        assert!(kept == page(), "docs/metrics.md is stale: make docs");
    }

    #[test]
    fn the_usual_ones_have_no_mark_and_others_have() {
        let page = page();
        assert!(page.contains("| `hypernic_nic_receive_packets_total` | counter | nic |"));
        assert!(page.contains("| `hypernic_drops_total` | counter | kind, name, reason |"));
        assert!(page.contains("\u{2020} | counter | nic |"));
    }
}
