//! Open vSwitch with DPDK: what goes into one of its ports comes out of the other.

use hypernic_tests::Lab;
use rig::{Error, Ovs, OvsSetup};

use super::{End, Way, crosses};

#[test]
#[ignore = "long: more packages, and huge pages"]
fn long_frames_cross_an_ovs_between_two_ports() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let setup = OvsSetup {
        cores: (0, 1),
        memory: 300,
        options: &["other_config:userspace-tso-enable=true"],
    };
    let ovs = match Ovs::start(&lab.rig, &lab.path("ovs"), &setup) {
        Ok(ovs) => ovs,
        Err(Error::CannotRun(why)) => {
            eprintln!("SKIPPED: {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let way = Way {
        listens: true,
        packed: false,
        pairs: 1,
    };
    let names = ["p10", "p11"];
    let ends = names.map(|name| End::open(ovs.path(name), way));
    for (name, number) in names.iter().zip([10, 11]) {
        ovs.add_port(name, number).unwrap();
    }
    ovs.join(10, 11).unwrap();
    let [a, b] = &ends;
    for end in &ends {
        end.meets(1);
    }
    crosses(a, b, 50_000);
    crosses(b, a, 50_000);
    for end in &ends {
        // It does not say that it knows ECN, without which none is left whole.
        assert!(!end.sink.caps().tso4);
        println!("  {}", end.shown());
        end.is_content();
    }
}
