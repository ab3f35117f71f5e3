//! Our 82540EM against QEMU's `e1000`: every difference is on the list, and everything on the list
//! is met. `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose how many new scripts run and
//! from which seed on.

use hypernic_tests::oracle::{E1000, Pair, Script, Trace, compare};

/// New scripts in each run of the tests.
const SCRIPTS: u64 = 3000;
/// New scripts in the long run.
const MANY: u64 = 50_000;
/// Its first seed.
const MANY_FROM: u64 = 20_779_000_000;

#[test]
fn new_scripts_differ_only_as_the_list_says() {
    let (count, known) = Pair::start(&E1000).run_new(1, SCRIPTS);
    if count >= SCRIPTS {
        let stale = E1000.stale(&known);
        assert_eq!(stale, [""; 0], "entries that explain nothing any more");
    }
}

/// From a seed of its own, unless you give another: give one to look for new differences.
#[test]
#[ignore = "long: make test-long"]
fn long_very_many_scripts_differ_only_as_the_list_says() {
    Pair::start(&E1000).run_new(MANY_FROM, MANY);
}

/// Scripts that once showed a bug of ours.
#[test]
fn what_was_once_wrong_stays_right() {
    Pair::start(&E1000).regressions();
}

/// Entries of the list that new scripts meet too seldom to count on it: each has a script of its
/// name.
#[test]
fn rare_differences_are_met_by_scripts_of_their_own() {
    Pair::start(&E1000).rare();
}

/// The comparison sees what it should: any other machine than QEMU's fails it.
#[test]
fn a_wrong_answer_is_noticed() {
    let script: Script = "w4 0 0x41\nlook".parse().expect("a script");
    let (ours, good) = Pair::start(&E1000).traces(&script);
    let unknown = |ours: &Trace| compare(&E1000, &script, ours, &good).unknown;
    assert_eq!(unknown(&ours), [""; 0]);
    let mut wrong = ours.clone();
    wrong.looks[0].watched[3] ^= 1;
    assert_ne!(unknown(&wrong), [""; 0]);
    let mut wrong = ours.clone();
    wrong.end.arena[0x2_0000] ^= 1;
    assert_ne!(unknown(&wrong), [""; 0]);
    let mut wrong = ours.clone();
    wrong.looks[0].line ^= true;
    assert_ne!(unknown(&wrong), [""; 0]);
    let mut wrong = ours;
    wrong.looks[0].sent.push(vec![0; 60]);
    assert_ne!(unknown(&wrong), [""; 0]);
}

/// `HYPERNIC_WRITE_DOCS=1` writes the page again.
#[test]
fn the_page_is_what_the_list_says() {
    E1000.check_page();
}
