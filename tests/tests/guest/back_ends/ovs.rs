//! Open vSwitch with DPDK: what goes into one of its ports comes out of the other.

use std::fs;
use std::time::{Duration, Instant};

use hypernic_tests::{LONG, Lab};
use rig::{Error, Ovs, OvsSetup};

use super::{End, Way, crosses, goes_on_while, segments_cross, segments_with_ecn_come_cut};

const NAMES: [&str; 2] = ["p10", "p11"];
const NUMBERS: [usize; 2] = [10, 11];

/// One without ports; nothing where this machine cannot run it.
fn start(lab: &Lab, name: &str) -> Option<Ovs> {
    let setup = OvsSetup {
        cores: (0, 1),
        memory: 300,
        options: &["other_config:userspace-tso-enable=true"],
    };
    match Ovs::start(&lab.rig, &lab.path(name), &setup) {
        Ok(ovs) => Some(ovs),
        Err(Error::CannotRun(why)) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Adds both of its ports, and has each send to the other.
fn plug(ovs: &Ovs, way: Way) {
    for (name, number) in NAMES.into_iter().zip(NUMBERS) {
        if way.listens {
            ovs.add_port(name, number).unwrap();
        } else {
            ovs.add_listening_port(name, number).unwrap();
        }
    }
    join(ovs);
}

/// Waits until it takes frames from all pairs of both ports.
fn settles(ovs: &Ovs, way: Way) {
    let end = Instant::now() + LONG;
    while !NAMES.into_iter().all(|name| ovs.polls(name, way.pairs)) {
        assert!(Instant::now() < end, "not all queues are polled");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn join(ovs: &Ovs) {
    ovs.join(NUMBERS[0], NUMBERS[1]).unwrap();
}

#[test]
#[ignore = "long: more packages, and huge pages"]
fn long_frames_cross_an_ovs_between_two_ports_which_may_die() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    for (n, (packed, pairs, listens)) in [
        (false, 1, true),
        (true, 1, true),
        (true, 2, true),
        (false, 2, false),
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
        let Some(mut ovs) = start(&lab, &format!("ovs{n}")) else {
            return;
        };
        let paths = NAMES.map(|name| ovs.path(name));
        let ends = || paths.clone().map(|path| End::open(path, way));
        // Whichever is first.
        let mut first = listens.then(ends);
        plug(&ovs, way);
        let [a, b] = &first.take().unwrap_or_else(ends);
        for end in [a, b] {
            end.meets(1);
        }
        settles(&ovs, way);
        crosses(a, b, 50_000);
        crosses(b, a, 50_000);
        // It knows segments where it is the one that connects, and ECN nowhere.
        if listens {
            segments_cross(a, b);
            segments_cross(b, a);
        }
        segments_with_ecn_come_cut(a, b);
        goes_on_while(a, b, || {
            std::thread::sleep(Duration::from_millis(300));
            ovs.restart(|| {
                for socket in paths.iter().filter(|_| !listens) {
                    let _ = fs::remove_file(socket);
                }
            })
            .unwrap();
            join(&ovs);
            a.meets(2);
            b.meets(2);
            settles(&ovs, way);
            std::thread::sleep(Duration::from_millis(300));
        });
        crosses(a, b, 20_000);
        for end in [a, b] {
            assert_eq!(end.count("vhost_fewer_pairs"), 0);
            println!("  {}", end.shown());
            end.is_content();
        }
    }
}
