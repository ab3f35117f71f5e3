//! Real guests whose daemon becomes another process while they talk.

use std::time::Duration;

use hypernic_tests::{Daemon, LONG, Lab, guests, mac};
use rig::GuestConfig;
use rustix::process::Signal;

/// Every kind of NIC over vfio-user, with the driver that takes it. Two are VFs of one chip.
const NICS: [(&str, &str, &str); 6] = [
    ("n0", "e1000", "e1000"),
    ("n1", "r8168", "r8169"),
    ("n2", "virtio-net", "virtio_net"),
    ("n3", "82576", "igb"),
    ("vf0", "", "igbvf"),
    ("vf1", "", "igbvf"),
];

/// Each NIC in a name space of its own, each of which has a file for the others.
const INSIDE: &str = r#"
set -e
mkdir -p /run/netns
mp realtek; for driver in DRIVERS; do mp $driver; done
at() { grep -ls "$1" /sys/class/net/*/address | cut -d/ -f5; }
n=1
head -c 300000 /dev/urandom > /tmp/sent
for mac in MACS; do
    until [ -n "$(at $mac)" ]; do usleep 50000; done
    ip netns add s$n; ip -n s$n link set lo up
    ip link set $(at $mac) netns s$n name eth0
    ip -n s$n addr add 10.7.0.$n/24 dev eth0; ip -n s$n link set eth0 up
    ip netns exec s$n busybox httpd -p 80 -h /tmp
    n=$((n+1))
done
"#;

/// Fetches the file from the next one again and again, and says so each time.
const FETCHES: &str = r#"
fetch() {
    while [ ! -e /tmp/stop ]; do
        ip netns exec s$1 wget -q -O /tmp/got$1 http://10.7.0.$2/sent && cmp -s /tmp/sent /tmp/got$1 \
            && echo x >> /tmp/good$1 || echo "$1 from $2" >> /tmp/bad
        rm -f /tmp/got$1
    done
    touch /tmp/over$1
}
for n in 1 2 3 4 5 6; do fetch $n $((n % 6 + 1)) > /dev/null 2>&1 & done
"#;

/// Whether everybody has fetched it more than COUNT times.
const ALL_MOVED: &str = "(for n in 1 2 3 4 5 6; do \
                         [ $(cat /tmp/good$n 2>/dev/null | wc -l) -gt COUNT ] || exit 1; done)";

#[test]
fn guests_of_every_model_notice_nothing_of_upgrades() {
    let lab = Lab::open(1).unwrap();
    let sockets = lab.path("vf{}.sock");
    let mut toml = format!(
        "keeper = true\n[[switch]]\nname = \"lan\"\n\
         [[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = {sockets:?}\n\
         port = \"switch:lan\"\n"
    );
    let mut nics = String::new();
    for (n, (nic, model, _)) in NICS.iter().enumerate() {
        let (socket, mac) = (lab.socket(nic), mac(nic));
        if model.is_empty() {
            let index = n - 4;
            toml += &format!("[[nic.vf]]\nindex = {index}\nmac = \"{mac}\"\n");
        } else {
            let page = if *model == "82576" {
                "doorbell = \"page\"\n"
            } else {
                ""
            };
            nics += &format!(
                "[[nic]]\nname = \"{nic}\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\n\
                 mac = \"{mac}\"\nport = \"switch:lan\"\n{page}"
            );
        }
    }
    let mut daemon = Daemon::serve(&lab.path("host.toml"), &(toml + &nics)).unwrap();
    let mut config = GuestConfig::new("six");
    config.nics = NICS.map(|(nic, _, _)| lab.nic(nic).rom("")).to_vec();
    let guest = lab.rig.start(config).unwrap();
    let list = |of: fn(&(&str, &str, &str)) -> String| NICS.iter().map(of).collect::<Vec<_>>();
    let script = INSIDE
        .replace("DRIVERS", &list(|nic| nic.2.to_owned()).join(" "))
        .replace("MACS", &list(|nic| mac(nic.0)).join(" "));
    guest.run_within(&script, LONG).unwrap();
    for n in 1..=NICS.len() {
        let carrier = format!("[ $(ip netns exec s{n} cat /sys/class/net/eth0/carrier) = 1 ]");
        guest.wait_for(&carrier, LONG).unwrap();
    }
    let changes = "for n in 1 2 3 4 5 6; do \
                   ip netns exec s$n cat /sys/class/net/eth0/carrier_changes; done";
    let before = guest.run(changes).unwrap();
    guest.run(FETCHES).unwrap();
    guest
        .wait_for(&ALL_MOVED.replace("COUNT", "0"), LONG)
        .unwrap();
    for round in 1..=6 {
        std::thread::sleep(Duration::from_millis(700));
        let worker = daemon.worker();
        let lines = daemon.log_position();
        daemon.signal(Signal::USR2).unwrap();
        daemon.wait_log_after(lines, "\"serving\"").unwrap();
        assert_ne!(daemon.worker(), worker, "round {round}");
    }
    let moved = guest.run("cat /tmp/good* | wc -l").unwrap();
    // All go on.
    let more: u32 = guest
        .run("cat /tmp/good1 | wc -l")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    guest
        .wait_for(&ALL_MOVED.replace("COUNT", "3"), LONG)
        .unwrap_or_else(|why| {
            panic!(
                "{moved} in all, {more} of the first: {why}\n{}",
                daemon.log()
            )
        });
    guest.run("touch /tmp/stop").unwrap();
    let over = "(for n in 1 2 3 4 5 6; do [ -e /tmp/over$n ] || exit 1; done)";
    guest.wait_for(over, LONG).unwrap();
    println!(
        "{} files moved",
        guest.run("cat /tmp/good* | wc -l").unwrap()
    );
    let bad = guest.run("cat /tmp/bad 2>/dev/null || true").unwrap();
    assert_eq!(bad.trim(), "", "{}", daemon.log());
    assert_eq!(guest.run(changes).unwrap(), before, "a link has changed");
    let complaints = guests::complaints(&guest).unwrap();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let log = daemon.log();
    assert_eq!(
        log.matches("goes on where").count(),
        6 * NICS.len(),
        "{log}"
    );
    assert!(!log.contains("loses it"), "{log}");
}
