//! Our 82540EM against QEMU's `e1000`: every difference is on the list, and everything on the list
//! is met. `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose how many new scripts run and
//! from which seed on.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use hypernic_tests::oracle::{
    DIFFERENCES, Ours, Script, Theirs, Verdict, compare, generate, page, shrink,
};

/// New scripts in each run of the tests.
const SCRIPTS: u64 = 3000;
/// New scripts in the long run.
const MANY: u64 = 50_000;
/// Its first seed.
const MANY_FROM: u64 = 20_779_000_000;
/// Failing scripts that are cut down and shown before the run ends.
const SHOWN: usize = 5;

static RIG: LazyLock<rig::Rig> =
    LazyLock::new(|| rig::Rig::prepare().unwrap_or_else(|why| panic!("{why}")));

fn oracle() -> Theirs {
    Theirs::start(&RIG).expect("QEMU starts")
}

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}: `{text}`")),
        Err(_) => default,
    }
}

/// Runs a script through both.
fn check(theirs: &mut Theirs, script: &Script) -> Verdict {
    let ours = Ours.run(script).expect("our model comes to an end");
    let trace = theirs.run(script).expect("QEMU answers");
    compare(script, &ours, &trace)
}

/// Cuts a failing script down to what shows the same first difference, and describes it.
fn report(theirs: &mut Theirs, seed: u64, script: &Script, verdict: &Verdict) -> String {
    let kind = |verdict: &Verdict| {
        let first = verdict.unknown.first()?;
        let (_, what) = first.split_once(": ")?;
        Some(
            what.split(':')
                .next()?
                .replace(|c: char| c.is_ascii_digit(), "#"),
        )
    };
    let wanted = kind(verdict);
    let small = shrink(script, &mut |other| kind(&check(theirs, other)) == wanted);
    let unknown = check(theirs, &small).unknown.join("\n    ");
    let whole = verdict.unknown[..verdict.unknown.len().min(3)].join("\n    ");
    format!("seed {seed}:\n    {whole}\n  cut down:\n    {unknown}\n{small}")
}

/// New scripts from a seed on; gives how often each entry of the list explained something.
fn run(first: u64, count: u64) -> BTreeMap<&'static str, u64> {
    let mut theirs = oracle();
    let start = Instant::now();
    let (mut known, mut compared, mut agreed) = (BTreeMap::new(), 0, 0u64);
    let (mut failures, mut more) = (Vec::new(), Vec::new());
    for seed in first..first + count {
        let script = generate(seed);
        let verdict = check(&mut theirs, &script);
        compared += verdict.compared;
        for (id, n) in &verdict.known {
            *known.entry(*id).or_default() += n;
        }
        if verdict.unknown.is_empty() {
            agreed += 1;
        } else if failures.len() < SHOWN {
            failures.push(report(&mut theirs, seed, &script, &verdict));
        } else {
            more.push(seed);
        }
    }
    eprintln!(
        "oracle: {agreed} of {count} scripts from seed {first} on agree, {compared} values compared in \
         {:.0} s; known differences met: {known:?}",
        start.elapsed().as_secs_f64()
    );
    let shown = failures.join("\n");
    assert_eq!(
        agreed, count,
        "differences that are not on the list:\n{shown}\nand with seeds {more:?}"
    );
    known
}

#[test]
fn new_scripts_differ_only_as_the_list_says() {
    let count = setting("HYPERNIC_ORACLE_SCRIPTS", SCRIPTS);
    let known = run(setting("HYPERNIC_ORACLE_SEED", 1), count);
    if count >= SCRIPTS {
        let rare: Vec<String> = scripts("rare").into_iter().map(|(id, _)| id).collect();
        let stale = DIFFERENCES.iter().map(|entry| entry.id);
        let stale: Vec<_> = stale
            .filter(|id| !known.contains_key(id) && !rare.iter().any(|rare| rare == id))
            .collect();
        assert_eq!(
            stale, [""; 0],
            "entries of the list that explain nothing any more"
        );
    }
}

/// From a seed of its own, unless another is given: whoever looks for new differences gives one.
#[test]
#[ignore = "long: make test-long"]
fn long_very_many_scripts_differ_only_as_the_list_says() {
    let seed = setting("HYPERNIC_ORACLE_SEED", MANY_FROM);
    run(seed, setting("HYPERNIC_ORACLE_SCRIPTS", MANY));
}

/// The scripts of a folder, with their names.
fn scripts(folder: &str) -> Vec<(String, Script)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle_e1000")
        .join(folder);
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of scripts") {
        let path = entry.expect("entry").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let script = text.parse().unwrap_or_else(|why| panic!("{path:?}: {why}"));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        scripts.push((name.into_owned(), script));
    }
    assert!(!scripts.is_empty());
    scripts
}

/// Scripts that once showed a bug of ours.
#[test]
fn what_was_once_wrong_stays_right() {
    let mut theirs = oracle();
    for (name, script) in scripts("regressions") {
        let verdict = check(&mut theirs, &script);
        assert_eq!(verdict.unknown, [""; 0], "{name}");
    }
}

/// Entries of the list that new scripts meet too seldom to count on it: each has a script of its
/// name.
#[test]
fn rare_differences_are_met_by_scripts_of_their_own() {
    let mut theirs = oracle();
    for (name, script) in scripts("rare") {
        let verdict = check(&mut theirs, &script);
        assert_eq!(verdict.unknown, [""; 0], "{name}");
        assert!(verdict.known.contains_key(&*name), "{name}: {verdict:?}");
    }
}

/// The comparison sees what it should: any other machine than QEMU's fails it.
#[test]
fn a_wrong_answer_is_noticed() {
    let mut theirs = oracle();
    let script: Script = "w4 0 0x41\nlook".parse().expect("a script");
    let ours = Ours.run(&script).expect("our model comes to an end");
    let good = theirs.run(&script).expect("QEMU answers");
    assert_eq!(compare(&script, &ours, &good).unknown, [""; 0]);
    let mut wrong = ours.clone();
    wrong.looks[0].watched[3] ^= 1;
    assert_ne!(compare(&script, &wrong, &good).unknown, [""; 0]);
    let mut wrong = ours.clone();
    wrong.end.arena[0x2_0000] ^= 1;
    assert_ne!(compare(&script, &wrong, &good).unknown, [""; 0]);
    let mut wrong = ours.clone();
    wrong.looks[0].line ^= true;
    assert_ne!(compare(&script, &wrong, &good).unknown, [""; 0]);
    let mut wrong = ours;
    wrong.looks[0].sent.push(vec![0; 60]);
    assert_ne!(compare(&script, &wrong, &good).unknown, [""; 0]);
}

/// `HYPERNIC_WRITE_DOCS=1` writes the page again.
#[test]
fn the_page_is_what_the_list_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/oracle.md");
    if std::env::var_os("HYPERNIC_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).expect("docs/oracle.md");
    }
    let text = std::fs::read_to_string(&path).expect("docs/oracle.md");
    assert_eq!(text, page(), "HYPERNIC_WRITE_DOCS=1 writes it again");
}
