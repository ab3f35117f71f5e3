//! Open vSwitch with DPDK: what goes into one of its ports comes out of the other.

use hypernic_tests::Lab;
use rig::{Error, Ovs, OvsPort, OvsSetup};

use super::{End, Way, crosses, goes_on_while, segments_cross};

#[test]
#[ignore = "long: more packages, and huge pages"]
fn long_frames_cross_an_ovs_between_two_ports_and_it_may_die() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let setup = OvsSetup {
        cores: (0, 1),
        memory: 300,
        options: &["other_config:userspace-tso-enable=true"],
    };
    let mut ovs = match Ovs::start(&lab.rig, &lab.path("ovs"), &setup) {
        Ok(ovs) => ovs,
        Err(Error::CannotRun(why)) => {
            eprintln!("SKIPPED: {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for (n, (kind, packed, pairs)) in [
        (OvsPort::Client, false, 1),
        (OvsPort::Client, true, 2),
        (OvsPort::Server, true, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let way = Way {
            listens: kind == OvsPort::Client,
            packed,
            pairs,
        };
        println!("{way:?}:");
        let numbers = [10 * n + 10, 10 * n + 11];
        let names = numbers.map(|number| format!("p{number}"));
        let open = || {
            let open = |name: &String| End::open(ovs.path(name), way);
            [open(&names[0]), open(&names[1])]
        };
        let mut first = way.listens.then(open);
        for (name, number) in names.iter().zip(numbers) {
            ovs.add_port(name, kind, number, pairs).unwrap();
        }
        ovs.join(numbers[0], numbers[1]).unwrap();
        let ends = first.take().unwrap_or_else(open);
        let [a, b] = &ends;
        for end in &ends {
            end.meets(1);
        }
        crosses(a, b, 50_000);
        crosses(b, a, 50_000);
        segments_cross(a, b);
        segments_cross(b, a);
        if way.listens {
            goes_on_while(a, b, || {
                std::thread::sleep(std::time::Duration::from_millis(300));
                ovs.restart().unwrap();
                for end in &ends {
                    end.meets(2);
                }
                ovs.join(numbers[0], numbers[1]).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(500));
            });
            crosses(a, b, 20_000);
        }
        for end in &ends {
            assert_eq!(end.count("vhost_fewer_pairs"), 0);
            println!("  {}", end.shown());
            end.is_content();
        }
    }
}
