//! The stock e1000 drivers of other kernels than the one most tests use: the oldest that Debian still carries, and the
//! newest it has. Times are printed, never asserted.

use std::time::Instant;

use hypernic_tests::guests::{self, Direction, GATEWAY};
use hypernic_tests::host;
use hypernic_tests::{Lab, mac};
use rig::{GuestConfig, Kernel};

/// What stock Linux must be able to do on our NIC, whatever its age.
fn the_basics(kernel: Kernel, right: impl Fn((u32, u32)) -> bool) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    lab.rig.image(kernel).unwrap_or_else(|why| panic!("{why}"));
    let daemon = lab.run("n0", "user").unwrap();
    let start = Instant::now();
    let config = GuestConfig::new("kernel").kernel(kernel);
    let guest = lab.rig.start(config.nic(lab.nic("n0"))).unwrap();
    let release = guest.run("uname -r").unwrap();
    let mut parts = release.split('.').map_while(|p| p.parse().ok());
    let version = parts.next().zip(parts.next());
    assert!(version.is_some_and(right), "{release}");
    println!("{}: {:.1} s", release.trim(), start.elapsed().as_secs_f64());

    let link = guests::bring_up(&guest, &mac("n0")).unwrap();
    println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
    guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
    let (_server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, GATEWAY, port, 20, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    let tested = guests::self_test(&guest, &link.interface).unwrap();
    assert!(tested.contains("The test result is PASS"), "{tested}");
    assert_eq!(tested.matches("\t 0").count(), 5, "{tested}");
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    println!("all: {:.1} s", start.elapsed().as_secs_f64());
}

#[test]
#[ignore = "long: make test-long"]
fn long_linux_6_1_does_the_basics_and_passes_its_self_test() {
    the_basics(Kernel::Oldest, |version| version == (6, 1));
}

#[test]
fn the_newest_linux_of_debian_does_the_basics_and_passes_its_self_test() {
    // Newer than the one that other tests use, whatever it is by now.
    the_basics(Kernel::Newest, |version| version > (6, 12));
}
