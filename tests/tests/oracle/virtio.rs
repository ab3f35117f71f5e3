//! Our virtio-net against QEMU's: every difference is on the list, and everything on the list is met.
//! `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose how many walks there are, and from which seed on.

use std::path::Path;

use hypernic_tests::oracle::setting;
use hypernic_tests::oracle::virtio::{DIFFERENCES, Ours, Qemu, Seen, compare, page, walk};

/// Walks in each run of the tests.
const WALKS: u64 = 300;
/// Walks in the long run.
const MANY: u64 = 20_000;
/// Its first seed.
const MANY_FROM: u64 = 1_041_000_000;

fn rig() -> rig::Rig {
    rig::Rig::prepare().unwrap_or_else(|why| panic!("{why}"))
}

/// Walks through both. Returns the entries of the list that were met.
fn walks(first: u64, count: u64) -> (u64, Vec<&'static str>) {
    let rig = rig();
    let mut qemu = Qemu::start(&rig).expect("QEMU starts");
    let count = setting("HYPERNIC_ORACLE_SCRIPTS", count);
    let from = setting("HYPERNIC_ORACLE_SEED", first);
    let mut met = Vec::new();
    let mut failed = Vec::new();
    for seed in from..from + count {
        let (features, ours) = walk(&mut Ours::default(), seed).expect("our model");
        let (_, theirs) = walk(&mut qemu, seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let differ = compare(features, &ours, &theirs, &mut met);
        // What waits in front of a broken ring goes with its QEMU.
        let broken = |seen: &Seen| matches!(seen, Seen::Register("status", 0x40..));
        if differ.is_err() || theirs.iter().any(broken) {
            qemu = Qemu::start(&rig).expect("QEMU starts");
        }
        if let Err(why) = differ {
            failed.push(format!("seed {seed}, {why}"));
        }
    }
    let shown = &failed[..failed.len().min(3)];
    let n = failed.len();
    assert!(failed.is_empty(), "{n} of {count}:\n{}", shown.join("\n"));
    (count, met)
}

#[test]
fn walks_differ_only_as_the_list_says() {
    let (count, met) = walks(1, WALKS);
    if count >= WALKS {
        let stale = DIFFERENCES.iter().filter(|known| !met.contains(&known.id));
        let stale: Vec<_> = stale.map(|known| known.id).collect();
        assert_eq!(stale, [""; 0], "entries that explain nothing any more");
    }
}

/// From a seed of its own, unless you give another: give one to look for new differences.
#[test]
#[ignore = "long: make test-long"]
fn long_very_many_walks_differ_only_as_the_list_says() {
    walks(MANY_FROM, MANY);
}

/// The comparison sees what it should: any other machine than QEMU's fails it.
#[test]
fn a_wrong_answer_is_noticed() {
    let (features, good) = walk(&mut Ours::default(), 7).expect("our model");
    let notices = |change: &dyn Fn(&mut Seen) -> bool| {
        let mut wrong = good.clone();
        let changed = wrong.iter_mut().any(change);
        assert!(changed, "nothing like that in this walk");
        compare(features, &good, &wrong, &mut Vec::new()).is_err()
    };
    assert!(compare(features, &good, &good, &mut Vec::new()).is_ok());
    assert!(notices(&|seen| match seen {
        Seen::Sent(frames) if !frames.is_empty() => frames.pop().is_some(),
        _ => false,
    }));
    assert!(notices(&|seen| match seen {
        Seen::Used(0, buffers) if !buffers.is_empty() => {
            buffers[0].1[20] ^= 1;
            true
        }
        _ => false,
    }));
    assert!(notices(&|seen| match seen {
        Seen::Used(1, buffers) => buffers.pop().is_some(),
        _ => false,
    }));
    assert!(notices(&|seen| match seen {
        Seen::Answer(.., answer) => {
            *answer ^= 1;
            true
        }
        _ => false,
    }));
    assert!(notices(&|seen| match seen {
        Seen::Register("isr", value @ 1) => {
            *value = 0;
            true
        }
        _ => false,
    }));
    assert!(compare(features, &good, &good[1..], &mut Vec::new()).is_err());
}

/// `HYPERNIC_WRITE_DOCS=1` writes the page again.
#[test]
fn the_page_is_what_the_list_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/oracle-virtio-net.md");
    if std::env::var_os("HYPERNIC_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).expect("the page can be written");
    }
    let text = std::fs::read_to_string(&path).expect("the page");
    assert_eq!(text, page(), "HYPERNIC_WRITE_DOCS=1 writes it again");
}
