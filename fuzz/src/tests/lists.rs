//! Whatever lists the targets lists all of them: a target that `make fuzz` leaves out is never fuzzed.

use std::path::Path;

use crate::TARGETS;

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The words behind `start`, up to the end of a line that goes on nowhere.
fn words_behind(text: &str, start: &str) -> Vec<String> {
    let at = text.find(start).unwrap_or_else(|| panic!("no `{start}`"));
    let mut words = Vec::new();
    for line in text[at + start.len()..].lines() {
        let more = line.strip_suffix('\\');
        words.extend(more.unwrap_or(line).split_whitespace().map(str::to_owned));
        if more.is_none() {
            break;
        }
    }
    words
}

/// Every target, and nothing else.
fn assert_all(place: &str, listed: impl IntoIterator<Item = String>) {
    let mut listed: Vec<_> = listed.into_iter().collect();
    let mut targets: Vec<_> = TARGETS.iter().map(|target| target.0).collect();
    listed.sort();
    targets.sort_unstable();
    assert_eq!(listed, targets, "the targets listed in {place}");
}

#[test]
fn the_runner_runs_every_target() {
    assert_all("fuzz/run", words_behind(&text("run"), "|| set -- "));
}

/// An empty list means all that the runner lists.
#[test]
fn make_leaves_no_target_out() {
    let makefile = text("../Makefile");
    let listed = words_behind(&makefile, "FUZZ_TARGETS ?=");
    if !listed.is_empty() {
        assert_all("the Makefile", listed);
    }
    for command in ["fuzz/run $(FUZZ_SECONDS) ", "SEED=1 fuzz/run 3 "] {
        let targets = words_behind(&makefile, command);
        assert_eq!(targets, ["$(FUZZ_TARGETS)"], "what `{command}` runs");
    }
}

/// Its table of executions has a row for each.
#[test]
fn the_page_says_how_often_each_target_ran() {
    let page = text("../docs/fuzzing.md");
    let start = page.find("| target | long inputs").expect("the table");
    let rows = page[start..]
        .lines()
        .skip(2)
        .take_while(|l| l.starts_with('|'));
    let names = rows.map(|row| {
        let mut words = row.split(['|', ' ']).filter(|word| !word.is_empty());
        words.next().expect("a name").to_owned()
    });
    assert_all("docs/fuzzing.md", names);
    let count = "Nineteen surfaces";
    assert_eq!(TARGETS.len(), 19, "the page begins with `{count}`");
    assert!(
        page.contains(count),
        "the page no longer begins with `{count}`"
    );
}
