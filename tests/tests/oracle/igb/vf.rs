//! The same with virtual functions.

use hypernic_tests::oracle::{IGB_VF, Pair};

/// New scripts in each run of the tests.
const SCRIPTS: u64 = 400;
/// New scripts in the long run.
const MANY: u64 = 10_000;
/// Its first seed.
const MANY_FROM: u64 = 82_576_700_000;

#[test]
fn new_scripts_with_vfs_differ_only_as_the_list_says() {
    let mut pair = Pair::start(&IGB_VF);
    let mut known = pair.run(IGB_VF.walk());
    let (count, more) = pair.run_new(1, SCRIPTS);
    known.extend(more);
    if count >= SCRIPTS {
        let stale = IGB_VF.stale(&known);
        assert_eq!(stale, [""; 0], "entries that explain nothing any more");
    }
}

/// From a seed of its own, unless you give another: give one to look for new differences.
#[test]
#[ignore = "long: make test-long"]
fn long_very_many_scripts_with_vfs_differ_only_as_the_list_says() {
    Pair::start(&IGB_VF).run_new(MANY_FROM, MANY);
}

/// Scripts that once showed a bug of ours.
#[test]
fn what_was_once_wrong_with_vfs_stays_right() {
    Pair::start(&IGB_VF).regressions();
}

/// Entries of the list that new scripts meet too seldom to count on it.
#[test]
fn rare_differences_with_vfs_are_met_by_scripts_of_their_own() {
    Pair::start(&IGB_VF).rare();
}

/// `HYPERNIC_WRITE_DOCS=1` writes the page again.
#[test]
fn the_page_of_vfs_is_what_the_list_says() {
    IGB_VF.check_page();
}
