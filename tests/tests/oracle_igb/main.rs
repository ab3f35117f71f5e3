//! The physical function of our 82576 against QEMU's `igb`: every difference is on the list, and
//! everything on the list is met. `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose how many
//! new scripts run and from which seed on.
#![forbid(unsafe_code)]

use hypernic_tests::oracle::{IGB, Pair};

/// New scripts in each run of the tests.
const SCRIPTS: u64 = 600;
/// New scripts in the long run.
const MANY: u64 = 20_000;
/// Its first seed.
const MANY_FROM: u64 = 82_576_000_000;

#[test]
fn new_scripts_differ_only_as_the_list_says() {
    let mut pair = Pair::start(&IGB);
    let mut known = pair.run(IGB.walk());
    let (count, more) = pair.run_new(1, SCRIPTS);
    known.extend(more);
    if count >= SCRIPTS {
        let stale = IGB.stale(&known);
        assert_eq!(stale, [""; 0], "entries that explain nothing any more");
    }
}

/// From a seed of its own, unless another is given: whoever looks for new differences gives one.
#[test]
#[ignore = "long: make test-long"]
fn long_very_many_scripts_differ_only_as_the_list_says() {
    Pair::start(&IGB).run_new(MANY_FROM, MANY);
}

/// Scripts that once showed a bug of ours.
#[test]
fn what_was_once_wrong_stays_right() {
    Pair::start(&IGB).regressions();
}

/// Entries of the list that new scripts meet too seldom to count on it: each has a script of its
/// name.
#[test]
fn rare_differences_are_met_by_scripts_of_their_own() {
    Pair::start(&IGB).rare();
}

/// `HYPERNIC_WRITE_DOCS=1` writes the page again.
#[test]
fn the_page_is_what_the_list_says() {
    IGB.check_page();
}
