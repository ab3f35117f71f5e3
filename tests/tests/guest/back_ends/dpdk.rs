//! DPDK's vhost library: two ports of testpmd, which passes on what comes at either.

use std::fs;
use std::path::Path;

use hypernic_tests::Lab;
use rig::{Root, Testpmd, TestpmdSetup};

use super::{End, Way, crosses, goes_on_while, segments_cross};

/// Both ports' sockets.
fn sockets(dir: &Path) -> [std::path::PathBuf; 2] {
    [dir.join("p0"), dir.join("p1")]
}

fn start(root: &Root, dir: &Path, name: &str, way: Way) -> Testpmd {
    let client = u8::from(way.listens);
    let devices: Vec<_> = (0..2)
        .map(|n| {
            format!(
                "net_vhost{n},iface={},queues={},client={client},tso=1,legacy-ol-flags=1",
                sockets(dir)[n].display(),
                way.pairs
            )
        })
        .collect();
    let queues = way.pairs;
    // Passes on what comes at either port; what it says of them comes at any time, so it is given no command.
    Testpmd::start(&TestpmdSetup {
        root,
        name,
        dir,
        devices: &devices,
        options: &[
            format!("--rxq={queues}"),
            format!("--txq={queues}"),
            "--no-flush-rx".to_owned(),
            "--auto-start".to_owned(),
        ],
        cores: (1, 0),
        also: None,
    })
    .unwrap_or_else(|error| panic!("{way:?}: {error}"))
}

#[test]
#[ignore = "long: more packages"]
fn long_dpdks_vhost_passes_frames_of_the_port_on_and_may_die() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let root = lab.rig.dpdk().unwrap();
    for (n, (packed, pairs, listens)) in [
        (false, 1, false),
        (true, 1, false),
        (false, 2, true),
        (true, 2, true),
        (true, 2, false),
    ]
    .into_iter()
    .enumerate()
    {
        let way = Way {
            listens,
            packed,
            pairs,
        };
        println!("{way:?}:");
        let dir = lab.path(&format!("d{n}"));
        fs::create_dir(&dir).unwrap();
        let ends = || sockets(&dir).map(|path| End::open(path, way));
        // Whichever is first.
        let mut first = listens.then(ends);
        let mut testpmd = Some(start(&root, &dir, &format!("backend{n}"), way));
        let [a, b] = &first.take().unwrap_or_else(ends);
        for end in [a, b] {
            end.meets(1);
        }
        crosses(a, b, 50_000);
        crosses(b, a, 50_000);
        segments_cross(a, b);
        segments_cross(b, a);
        goes_on_while(a, b, || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            // Killed.
            drop(testpmd.take());
            for socket in sockets(&dir).iter().filter(|_| !listens) {
                let _ = fs::remove_file(socket);
            }
            testpmd = Some(start(&root, &dir, &format!("backend{n}b"), way));
            a.meets(2);
            b.meets(2);
            std::thread::sleep(std::time::Duration::from_millis(300));
        });
        crosses(a, b, 20_000);
        for end in [a, b] {
            assert_eq!(end.count("vhost_fewer_pairs"), 0);
            println!("  {}", end.shown());
            end.is_content();
        }
    }
}
