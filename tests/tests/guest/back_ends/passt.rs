//! passt: a user network of another make. A guest on a NIC of ours gets its address from it, and reaches the host through
//! it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use hypernic_tests::guests::{self, Direction, GATEWAY};
use hypernic_tests::{Counters, Daemon, Lab, mac};
use rig::{Guest, Root};

/// Ends with the test.
struct Passt(Child);

impl Drop for Passt {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Passt {
    /// One that listens at a path, or takes a connection.
    fn start(root: &Root, lab: &Lab, at: Result<&str, UnixStream>) -> Self {
        let words = root.program("passt").unwrap();
        let mut command = rig::Daemon::command(&words[0]);
        command.args(&words[1..]);
        command.args(["--foreground", "--vhost-user", "--ipv4-only"]);
        // As libslirp has it: the gateway is the host.
        command.args(["--address", "10.0.2.15", "--netmask", "24"]);
        command.args(["--gateway", GATEWAY, "--map-host-loopback", GATEWAY]);
        let stdin = match at {
            Ok(name) => {
                command.arg("--socket-path").arg(lab.path(name));
                Stdio::null()
            }
            Err(connection) => {
                command.args(["--fd", "0"]);
                OwnedFd::from(connection).into()
            }
        };
        let log = std::fs::File::create(lab.path("passt.log")).unwrap();
        command
            .stdin(stdin)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Self(command.spawn().unwrap())
    }
}

fn port(counters: &Counters, counter: &str) -> u64 {
    counters.total("port", counter)
}

/// Bytes cross both ways, unchanged.
fn works(lab: &Lab, guest: &Guest) {
    guests::round_trip(guest, &guests::noise(2_000_000)).unwrap();
    let log = lab.path("iperf3.log");
    let (_server, port) = hypernic_tests::host::serve_iperf3(&lab.rig, &log).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(guest, GATEWAY, port, 20, direction).unwrap();
        println!("  TCP {direction:?}: {rate:.0} Mbit/s");
    }
}

fn is_content(daemon: &Daemon) {
    let counters = daemon.counters().unwrap();
    for counter in [
        "vhost_broken_ring",
        "vhost_bad_header",
        "vhost_runt",
        "vhost_cannot_take",
    ] {
        assert_eq!(port(&counters, counter), 0, "{counter}\n{counters}");
    }
}

#[test]
#[ignore = "long: more packages"]
fn long_a_guest_reaches_the_host_through_passt_and_passt_may_die() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let root = lab.rig.packages("passt", &["passt"]).unwrap();
    // It connects, or is given a connection to a port that listens.
    for listens in [false, true] {
        let path = lab.path(if listens { "ours" } else { "theirs" });
        let how = if listens { "listen=" } else { "" };
        let name = format!("vhost-user:{how}{}", path.display());
        println!("{name}");
        let start = || {
            let at = if listens {
                Err(UnixStream::connect(&path).unwrap())
            } else {
                let _ = std::fs::remove_file(&path);
                Ok("theirs")
            };
            Passt::start(&root, &lab, at)
        };
        let daemon = lab.run("n0", &name).unwrap();
        let connects = |times: u64| {
            let holds = |counters: &Counters| port(counters, "vhost_connects") == times;
            daemon.wait_counters("passt comes", holds).unwrap();
        };
        let passt = start();
        connects(1);
        let guest = lab.guest("n0").unwrap();
        let link = guests::bring_up(&guest, &mac("n0")).unwrap();
        assert_eq!(link.address, "10.0.2.15");
        works(&lab, &guest);
        // Killed, and another one in its place.
        drop(passt);
        let down = |counters: &Counters| port(counters, "vhost_disconnects") == 1;
        daemon.wait_counters("it is missed", down).unwrap();
        let _passt = start();
        connects(2);
        guests::wait_carrier(&guest, &link.interface, true).unwrap();
        works(&lab, &guest);
        println!("{}", daemon.counters().unwrap());
        is_content(&daemon);
    }
}
