//! A guest and the host through a TAP, in a network namespace of the test's own.

use std::time::Duration;

use hypernic_tests::guests::{self, Direction};
use hypernic_tests::measure::Ping;
use hypernic_tests::{LONG, Lab, Launch, mac};
use rig::{Error, Netns};
use rustix::process::Signal;

/// A network namespace with the TAP `t0`; `None`, said, where there can be none.
fn with_a_tap(lab: &Lab) -> Option<Netns> {
    let skipped = |why| eprintln!("skipped: {why}");
    let netns = Netns::new(&lab.rig).map_err(skipped).ok()?;
    match netns.tap("t0", Some("10.9.0.1/24")) {
        Ok(()) => Some(netns),
        Err(Error::CannotRun(why)) => {
            skipped(why);
            None
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn guest_and_host_reach_each_other_through_a_tap() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let Some(netns) = with_a_tap(&lab) else {
        return;
    };
    let mut daemon = Launch::within(&netns)
        .unwrap()
        .args(lab.run_args("n0", "tap:t0"))
        .start()
        .unwrap();
    let guest = lab.guest("n0").unwrap();
    guests::bring_up_static(&guest, &mac("n0"), "10.9.0.2/24").unwrap();
    println!(
        "guest -> host: {:?}",
        guests::ping_all(&guest, "10.9.0.1", 20).unwrap()
    );
    let mut ping = netns.tool(&lab.rig, "ping").unwrap();
    let out = ping
        .args(["-n", "-c", "20", "-i", "0.02", "-W", "5", "10.9.0.2"])
        .output()
        .unwrap();
    let answers = Ping::parse(&String::from_utf8_lossy(&out.stdout)).unwrap();
    println!("host -> guest: {answers:?}");
    assert_eq!(answers.received, 20);

    let mut server = netns.tool(&lab.rig, "iperf3").unwrap();
    server.args(["--server", "--forceflush"]);
    let mut server = rig::Daemon::start("iperf3", server, lab.path("iperf3.log")).unwrap();
    server.expect("listening", LONG).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, "10.9.0.1", 5201, 100, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    assert!(
        counters.nic("n0", "tx_tso_frames") > 0,
        "big segments go to the TAP whole\n{counters}"
    );
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    drop(guest);
    assert!(daemon.stop().unwrap().success());
}

/// The interface is the same, and nothing that the host says to the guest is lost: the kernel keeps it for the next process.
#[test]
fn a_tap_stays_attached_over_upgrades_and_crashes() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let Some(netns) = with_a_tap(&lab) else {
        return;
    };
    // One that is there before, and one that goes with its last descriptor.
    let (socket, spare) = (lab.socket("n0"), lab.socket("n1"));
    let toml = format!(
        "keeper = true\n[[nic]]\nname = \"n0\"\nsocket-path = {socket:?}\nmac = \"{}\"\nport = \"tap:t0\"\n\
         [[nic]]\nname = \"n1\"\nsocket-path = {spare:?}\nport = \"tap:t1\"\n",
        mac("n0")
    );
    let file = lab.path("host.toml");
    std::fs::write(&file, toml).unwrap();
    let launch = Launch::within(&netns).unwrap().arg("serve");
    let mut daemon = launch.arg(&file).start().unwrap();
    let index = || {
        let line = netns.ip(["-o", "link", "show", "t1"]).unwrap();
        line.split(':').next().map(str::to_owned)
    };
    let before = index();
    let guest = lab.guest("n0").unwrap();
    guests::bring_up_static(&guest, &mac("n0"), "10.9.0.2/24").unwrap();
    guests::ping_all(&guest, "10.9.0.1", 5).unwrap();
    let mut ping = netns.tool(&lab.rig, "ping").unwrap();
    ping.args(["-n", "-c", "150", "-i", "0.02", "-W", "5", "10.9.0.2"]);
    let ping = ping.stdout(std::process::Stdio::piped()).spawn().unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(600));
        let lines = daemon.log_position();
        daemon.signal(Signal::USR2).unwrap();
        daemon.wait_log_after(lines, "\"serving\"").unwrap();
        assert_eq!(index(), before, "t1 is another interface");
    }
    let out = ping.wait_with_output().unwrap();
    let answers = Ping::parse(&String::from_utf8_lossy(&out.stdout)).unwrap();
    println!("host -> guest: {answers:?}");
    assert_eq!(answers.received, 150);
    drop(guest);
    std::thread::sleep(Duration::from_millis(1300));
    daemon.end_worker(Signal::KILL).unwrap();
    assert_eq!(index(), before, "t1 is another interface");
    assert!(daemon.stop().unwrap().success());
    assert!(
        netns.ip(["-o", "link", "show", "t1"]).is_err(),
        "it is closed"
    );
}
