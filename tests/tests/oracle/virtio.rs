//! Our virtio-net against QEMU's: every difference is on the list, and everything on the list is met.
//! `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose how many walks there are, and from which seed on.

use hypernic_tests::oracle::setting;
use hypernic_tests::oracle::virtio::{DIFFERENCES, Ours, Qemu, Seen, compare, walk};

/// Walks in each run of the tests.
const WALKS: u64 = 300;

#[test]
fn walks_differ_only_as_the_list_says() {
    let rig = rig::Rig::prepare().unwrap_or_else(|why| panic!("{why}"));
    let mut qemu = Qemu::start(&rig).expect("QEMU starts");
    let (count, from) = (
        setting("HYPERNIC_ORACLE_SCRIPTS", WALKS),
        setting("HYPERNIC_ORACLE_SEED", 1),
    );
    let mut met = Vec::new();
    for seed in from..from + count {
        let (features, ours) = walk(&mut Ours::default(), seed).expect("our model");
        let (_, theirs) = walk(&mut qemu, seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        // What waits in front of a broken ring goes with its QEMU.
        let broken = |seen: &Seen| matches!(seen, Seen::Register("status", 0x40..));
        if theirs.iter().any(broken) {
            qemu = Qemu::start(&rig).expect("QEMU starts");
        }
        if let Err(why) = compare(features, &ours, &theirs, &mut met) {
            panic!("seed {seed}, {why}");
        }
    }
    if count >= WALKS {
        let stale = DIFFERENCES.iter().filter(|known| !met.contains(&known.id));
        let stale: Vec<_> = stale.map(|known| known.id).collect();
        assert_eq!(stale, [""; 0], "entries that explain nothing any more");
    }
}
