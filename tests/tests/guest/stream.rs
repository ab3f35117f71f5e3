//! A wire between hypernic and another QEMU: QEMU's own stream framing, with QEMU's own e1000 at the far end.

use hypernic_tests::guests::{self, Direction};
use hypernic_tests::{Lab, mac};
use rig::{GuestConfig, Netdev, Nic};

#[test]
fn a_guest_of_ours_and_a_guest_of_qemus_own_nic_reach_each_other_over_a_stream() {
    let lab = Lab::open(2).unwrap_or_else(|why| panic!("{why}"));
    let wire = lab.path("wire.sock");
    let mut daemon = lab
        .run("n0", &format!("stream:listen={}", wire.display()))
        .unwrap();
    let ours = lab.guest("n0").unwrap();
    let far = "52:54:00:00:00:77";
    let netdev = Netdev::Stream {
        path: wire,
        server: false,
    };
    let nic = Nic::qemu("far", "e1000", Some(netdev)).mac(far);
    let theirs = lab.rig.resume(GuestConfig::new("theirs").nic(nic)).unwrap();
    guests::bring_up_static(&ours, &mac("n0"), "10.9.0.1/24").unwrap();
    guests::bring_up_static(&theirs, far, "10.9.0.2/24").unwrap();
    println!("{:?}", guests::ping_all(&ours, "10.9.0.2", 20).unwrap());
    println!("{:?}", guests::ping_all(&theirs, "10.9.0.1", 20).unwrap());
    let port = guests::serve_iperf3(&theirs).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&ours, "10.9.0.2", port, 30, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    println!("{}", daemon.counters().unwrap());
    assert_eq!(guests::complaints(&ours).unwrap(), Vec::<String>::new());
    drop((ours, theirs));
    assert!(daemon.stop().unwrap().success());
}
