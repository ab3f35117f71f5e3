//! The physical function of our 82576 against QEMU's `igb`: every difference is on the list, and
//! everything on the list is met. `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose how many
//! new scripts run and from which seed on.

mod vf;

use hypernic_tests::oracle::{IGB, Pair, Script, Trace, compare};

/// New scripts in each run of the tests.
const SCRIPTS: u64 = 800;
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

/// From a seed of its own, unless you give another: give one to look for new differences.
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

/// The comparison sees what it should: any other machine than QEMU's fails it.
#[test]
fn a_wrong_answer_is_noticed() {
    let script: Script = "msix\nw4 0x0000 0x41\nlook".parse().expect("a script");
    let (ours, good) = Pair::start(&IGB).traces(&script);
    let unknown = |ours: &Trace| compare(&IGB, &script, ours, &good).unknown;
    assert_eq!(unknown(&ours), [""; 0]);
    let wrong = |change: &dyn Fn(&mut Trace)| {
        let mut wrong = ours.clone();
        change(&mut wrong);
        unknown(&wrong)
    };
    assert_ne!(wrong(&|trace| trace.looks[0].watched[3] ^= 1), [""; 0]);
    assert_ne!(wrong(&|trace| trace.looks[0].line ^= true), [""; 0]);
    assert_ne!(wrong(&|trace| trace.looks[0].messages ^= 1), [""; 0]);
    assert_ne!(wrong(&|trace| trace.looks[0].rx_ring[0] ^= 1), [""; 0]);
    assert_ne!(
        wrong(&|trace| trace.looks[0].sent.push(vec![0; 60])),
        [""; 0]
    );
    assert_ne!(wrong(&|trace| trace.end.arena[0x2_0000] ^= 1), [""; 0]);
}

/// `HYPERNIC_WRITE_DOCS=1` writes the page again.
#[test]
fn the_page_is_what_the_list_says() {
    IGB.check_page();
}
