//! Stock Linux and its own virtio_net driver on a virtio-net of QEMU's, whose rings are ours over vhost-user. Times are
//! printed, never asserted.

mod failover;
mod moves;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use hypernic_tests::guests::{self, Direction, GATEWAY};
use hypernic_tests::{Counters, Daemon, LONG, Lab, Launch, mac};
use rig::{GuestConfig, Netdev, Nic};
use rustix::process::Signal;
use serde_json::{Value, json};

fn lab(guests: usize) -> Lab {
    Lab::open(guests).unwrap_or_else(|why| panic!("{why}"))
}

/// A guest whose NICs of these names are behind sockets of the lab's.
fn config(lab: &Lab, name: &str, nics: &[&str], properties: &[(&str, Value)]) -> GuestConfig {
    nics.iter().fold(GuestConfig::new(name), |config, nic| {
        behind(config, nic, &lab.socket(nic), properties)
    })
}

/// The guest with one NIC more, behind this socket.
fn behind(
    config: GuestConfig,
    nic: &str,
    socket: &Path,
    properties: &[(&str, Value)],
) -> GuestConfig {
    let several = properties.iter().any(|(property, _)| *property == "mq");
    let queues = if several { 2 } else { 1 };
    let front = format!("front-{nic}");
    let netdev = json!({"type": "vhost-user", "chardev": front, "queues": queues});
    let device = Nic::qemu(nic, "virtio-net-pci", Some(Netdev::Json(netdev)));
    let device = properties
        .iter()
        .fold(device.mac(&mac(nic)).rom(""), |nic, (name, value)| {
            nic.property(name, value.clone())
        });
    config.nic(device).args([
        "-chardev".to_owned(),
        format!(
            "socket,id={front},path={},reconnect-ms=100",
            socket.display()
        ),
    ])
}

/// Nothing that a good front end and a good driver do is refused or counted against them.
fn is_blameless(counters: &Counters, nic: &str) {
    for counter in [
        "tx_runt",
        "tx_too_long",
        "tx_not_agreed",
        "tx_bad_csum",
        "tx_bad_gso",
        "tx_unfinished",
        "rx_too_long",
        "rx_invalid",
        "broken_avail_index",
        "broken_unmapped",
        "broken_direction",
        "rings_broken",
        "rings_refused",
        "rings_lost",
        "refused_violations",
        "refused_requests",
        "refused_bad_eventfd",
        "malformed",
        "surplus_fds",
        "log_marks_outside",
    ] {
        assert_eq!(counters.nic(nic, counter), 0, "{counter}\n{counters}");
    }
}

#[test]
fn a_guest_over_vhost_user_gets_an_address_and_moves_every_byte() {
    for (packed, pairs) in [(false, 1), (true, 2)] {
        let lab = lab(1);
        let daemon = Launch::new()
            .unwrap()
            .args(lab.run_args_of("virtio-net", "n0", "user"))
            .args(["--transport", "vhost-user"])
            .args(["--queue-pairs", &pairs.to_string()]);
        let daemon = daemon.start().unwrap();
        let mut properties = vec![("packed", json!(packed))];
        if pairs > 1 {
            properties.extend([("mq", json!(true)), ("vectors", json!(2 * pairs + 2))]);
        }
        let mut config = config(&lab, "vhost", &["n0"], &properties);
        config.smp = pairs;
        let guest = lab.rig.start(config).unwrap();
        let link = guests::bring_up_with(&guest, "virtio_net", &mac("n0")).unwrap();
        let interface = &link.interface;
        let file = format!("/sys/class/net/{interface}/device/features");
        let features = guest.run(&format!("cat {file}")).unwrap();
        assert_eq!(features.as_bytes()[34] == b'1', packed, "{features}");
        println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
        guests::round_trip(&guest, &guests::noise(4_000_000)).unwrap();
        let (_server, port) =
            hypernic_tests::host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
        for direction in [Direction::Out, Direction::In] {
            let rate = guests::tcp(&guest, GATEWAY, port, 50, direction).unwrap();
            println!("packed {packed}: TCP {direction:?}: {rate:.0} Mbit/s");
        }
        let works = || guests::round_trip(&guest, &guests::noise(200_000)).unwrap();
        let up = format!(
            "ip link set {interface} down; ip link set {interface} up; ip route replace default via {GATEWAY}"
        );
        guest.run(&up).unwrap();
        works();
        for change in ["tso off", "tx off", "tx on tso on"] {
            guest
                .run(&format!("ethtool -K {interface} {change}"))
                .unwrap();
            works();
        }
        if pairs > 1 {
            for n in [2, 1, 2] {
                guest
                    .run(&format!("ethtool -L {interface} combined {n}"))
                    .unwrap();
                works();
                works();
            }
        }
        // Its rings stop, and start at 0 again.
        guest.run("rmmod virtio_net").unwrap();
        guests::bring_up_with(&guest, "virtio_net", &mac("n0")).unwrap();
        works();
        let counters = daemon.counters().unwrap();
        println!("{counters}");
        assert!(counters.nic("n0", "tx_tso_frames") > 0, "{counters}");
        assert_eq!(counters.nic("n0", "ring_bases_corrected"), 0, "{counters}");
        is_blameless(&counters, "n0");
        assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    }
}

/// A switch `lan` with these NICs: model, and whether over vhost-user.
fn switch(lab: &Lab, nics: &[(&str, &str, bool)]) -> String {
    let mut toml = "[[switch]]\nname = \"lan\"\n".to_owned();
    for (name, model, vhost) in nics {
        let transport = if *vhost { "vhost-user" } else { "vfio-user" };
        let _ = write!(
            toml,
            "[[nic]]\nname = \"{name}\"\nmodel = \"{model}\"\ntransport = \"{transport}\"\n\
             socket-path = {:?}\nmac = \"{}\"\nmac-lock = true\nport = \"switch:lan\"\n",
            lab.socket(name),
            mac(name)
        );
    }
    toml
}

#[test]
fn a_guest_over_vhost_user_meets_an_e1000_on_one_switch() {
    let lab = lab(2);
    let nics = [("v", "virtio-net", true), ("e", "e1000", false)];
    let daemon = Daemon::serve(&lab.path("host.toml"), &switch(&lab, &nics)).unwrap();
    let modern = lab.rig.start(config(&lab, "modern", &["v"], &[])).unwrap();
    let legacy = lab.guest("e").unwrap();
    guests::bring_up_static(&legacy, &mac("e"), "10.9.0.2/24").unwrap();
    let interface = guests::load(&modern, "virtio_net", &mac("v")).unwrap();
    modern
        .run(&format!(
            "ip addr add 10.9.0.1/24 dev {interface}; ip link set {interface} up"
        ))
        .unwrap();
    modern
        .wait_for("ping -c 1 -W 1 10.9.0.2 >/dev/null 2>&1", LONG)
        .unwrap();
    println!("{:?}", guests::ping_all(&modern, "10.9.0.2", 20).unwrap());
    println!("{:?}", guests::ping_all(&legacy, "10.9.0.1", 20).unwrap());
    for (from, to, address) in [
        (&modern, &legacy, "10.9.0.1"),
        (&legacy, &modern, "10.9.0.2"),
    ] {
        let sent = guests::serve_random_file(from, 8).unwrap();
        let get = format!("wget -q -O /tmp/got http://{address}/file");
        to.run_within(&get, LONG).unwrap();
        assert_eq!(guests::sha256(to, "/tmp/got").unwrap(), sent);
    }
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    is_blameless(&counters, "v");
    for guest in [&modern, &legacy] {
        assert_eq!(guests::complaints(guest).unwrap(), Vec::<String>::new());
    }
}

/// One guest, two NICs, each in a name space.
const APART: &str = r#"
set -e
mkdir -p /run/netns
mp virtio_net
at() { grep -ls "$1" /sys/class/net/*/address | cut -d/ -f5; }
until [ -n "$(at MAC0)" ] && [ -n "$(at MAC1)" ]; do usleep 50000; done
A=$(at MAC0); B=$(at MAC1)
for ns in a b; do ip netns add $ns; ip -n $ns link set lo up; done
ip link set $A netns a name eth0; ip link set $B netns b name eth0
ip -n a addr add 10.7.0.1/24 dev eth0; ip -n b addr add 10.7.0.2/24 dev eth0
ip -n a link set eth0 up; ip -n b link set eth0 up
"#;

/// Streams and numbered packets between two NICs of a guest while what serves them dies again and again. Returns what ping says of
/// packets that came twice.
fn goes_on_over(lab: &Lab, daemon: &mut Daemon, deaths: usize, die: impl Fn(&mut Daemon)) -> usize {
    let guest = lab
        .rig
        .start(config(lab, "lasting", &["n0", "n1"], &[]))
        .unwrap();
    let script = APART
        .replace("MAC0", &mac("n0"))
        .replace("MAC1", &mac("n1"));
    guest.run_within(&script, LONG).unwrap();
    let reaches = "ip netns exec a ping -c 1 -W 1 10.7.0.2 >/dev/null 2>&1";
    guest.wait_for(reaches, LONG).unwrap();
    guest
        .run_within(
            "head -c 40000000 /dev/urandom > /tmp/sent; ip netns exec b busybox httpd -p 80 -h /tmp",
            LONG,
        )
        .unwrap();
    guest
        .run(
            "ip netns exec a ping -i 0.02 -c 60000 10.7.0.2 >/tmp/pings 2>&1 </dev/null &
             ip netns exec a sh -c 'while [ ! -f /tmp/stop ]; do wget -q -O /tmp/got http://10.7.0.2/sent &&
             cmp /tmp/sent /tmp/got && echo good || echo bad; done' >/tmp/rounds 2>&1 </dev/null &",
        )
        .unwrap();
    for _ in 0..deaths {
        std::thread::sleep(Duration::from_millis(1500));
        die(daemon);
        daemon
            .wait_counters("frames cross again", |c| {
                c.nic("n0", "rx_frames") > 100 && c.nic("n1", "rx_frames") > 100
            })
            .unwrap();
    }
    let finished =
        "touch /tmp/stop; until ! pidof wget && ! pidof cmp; do sleep 0.1; done; cat /tmp/rounds";
    let rounds = guest.run_within(finished, LONG).unwrap();
    let good = rounds.lines().filter(|line| *line == "good").count();
    println!("{good} transfers");
    assert!(good > 0 && !rounds.contains("bad"), "{rounds}");
    guest.run("pkill -INT ping; sleep 1").unwrap();
    let pings = guest.run("cat /tmp/pings").unwrap();
    let summary = pings.lines().rev().take(3).collect::<Vec<_>>().join("\n");
    println!("{summary}");
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    is_blameless(&counters, "n0");
    is_blameless(&counters, "n1");
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    let twice = pings.matches("DUP!").count();
    // Ping's own count is of the same mind.
    assert_eq!(summary.contains("duplicates"), twice > 0, "{summary}");
    twice
}

const LASTING: [(&str, &str, bool); 2] = [("n0", "virtio-net", true), ("n1", "virtio-net", true)];

#[test]
fn a_guest_goes_on_after_its_daemon_was_killed_and_no_packet_comes_twice() {
    let lab = lab(1);
    let toml = format!("keeper = false\n{}", switch(&lab, &LASTING));
    let mut daemon = Daemon::serve(&lab.path("host.toml"), &toml).unwrap();
    let twice = goes_on_over(&lab, &mut daemon, 3, |daemon| {
        daemon.kill();
        *daemon = Daemon::serve(&lab.path("host.toml"), &toml).unwrap();
    });
    assert_eq!(twice, 0, "packets came twice");
}

/// The next worker finds the rings as they are. A frame can come twice that was under way in the turn in which a worker died: of
/// pings, which go one by one, the question or the answer.
#[test]
#[ignore = "long: make test-long"]
fn long_a_guest_goes_on_with_each_next_worker_of_a_keeper() {
    const DEATHS: usize = 20;
    let lab = lab(1);
    let toml = format!("keeper = true\n{}", switch(&lab, &LASTING));
    let file = lab.path("host.toml");
    std::fs::write(&file, toml).unwrap();
    let launch = Launch::new().unwrap().env("HYPERNIC_TEST_LIFE_MS", "0");
    let mut daemon = launch.arg("serve").arg(&file).start().unwrap();
    let twice = goes_on_over(&lab, &mut daemon, DEATHS, |daemon| {
        let unserved = daemon.end_worker(Signal::KILL).unwrap();
        println!("unserved for {unserved:?}");
    });
    assert!(twice <= 2 * DEATHS, "{twice} packets came twice");
}
