//! The recipes by which a guest with a NIC over vfio-user moves to another host, with stock QEMU and stock Linux.

use std::path::PathBuf;
use std::process::Command;

use hypernic_tests::{Counters, Daemon, LONG, Lab, Launch, binary, mac};
use rig::{Guest, GuestConfig, Nic};
use serde_json::json;

use super::moves::{MIB, arriving, status, until};
use super::{behind, lab};

/// One of the two hosts.
struct Host {
    daemon: Daemon,
    control: PathBuf,
}

impl Host {
    /// Its daemon, with these NICs on a switch with a user network.
    fn new(lab: &Lab, name: &str, nics: &str) -> Self {
        let control = lab.path(&format!("{name}-control"));
        let file = lab.path(&format!("{name}.toml"));
        let head =
            format!("control = {control:?}\n[[switch]]\nname = \"lan\"\nports = [\"user\"]\n");
        std::fs::write(&file, head + nics).unwrap();
        let daemon = Launch::new().unwrap().arg("serve").arg(file);
        Self {
            daemon: daemon.start().unwrap(),
            control,
        }
    }

    /// Waits until so many frames more have gone through a NIC, both ways.
    fn waits_for_traffic(&self, nic: &str) -> Counters {
        const FRAMES: u64 = 20;
        let both = |c: &Counters| [c.nic(nic, "rx_frames"), c.nic(nic, "tx_frames")];
        let before = both(&self.daemon.counters().unwrap());
        let counters = self.daemon.wait_counters(nic, |counters| {
            let now = both(counters);
            now.iter()
                .zip(before)
                .all(|(now, before)| *now >= before + FRAMES)
        });
        counters.unwrap()
    }
}

/// A NIC of the guest's one address.
fn nic(lab: &Lab, name: &str, socket: &str, words: &str) -> String {
    format!(
        "[[nic]]\nname = \"{name}\"\nmac = \"{}\"\nport = \"switch:lan\"\nsocket-path = {:?}\n{words}\n",
        mac("n0"),
        lab.socket(socket),
    )
}

/// `hypernic migrate …` from one host to the other.
fn hypernic(from: &Host, to: &Host, words: &[&str]) -> String {
    let mut command = Command::new(binary().unwrap());
    command.arg("migrate").args(words);
    command.arg("--control").arg(&from.control);
    command.arg("--to").arg(&to.control);
    let output = command.output().unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {wrong}");
    String::from_utf8(output.stdout).unwrap()
}

fn machine(name: &str) -> GuestConfig {
    let mut machine = GuestConfig::new(name);
    machine.mem_mib = MIB as u32;
    machine
}

/// The two QEMUs: the guest is in the first, and the second waits for it.
fn start(lab: &Lab, here: GuestConfig, there: GuestConfig) -> [Guest; 2] {
    let incoming = format!("unix:{}", lab.path("incoming").display());
    let there = arriving(lab, there, &incoming);
    [here, there].map(|config| lab.rig.start(config).unwrap())
}

/// Moves the VM, and has it go on there.
fn migrate(lab: &Lab, here: &Guest, there: &Guest) {
    let uri = format!("unix:{}", lab.path("incoming").display());
    here.qmp("migrate", json!({"uri": uri})).unwrap();
    until("the guest has moved", || {
        let status = status(here, "query-migrate");
        let why = here.qemu_messages();
        assert_ne!(status.as_deref(), Some("failed"), "{why}");
        status.as_deref() == Some("completed")
    });
    until("it waits", || {
        let status = status(there, "query-status");
        status.as_deref() == Some("paused")
    });
    there.qmp("cont", json!({})).unwrap();
}

#[test]
#[ignore = "long: two QEMUs and a migration"]
fn long_a_failover_pair_moves_with_a_primary_over_vfio_user() {
    let lab = lab(2);
    let [from, to] = ["from", "to"].map(|name| {
        let standby = "model = \"virtio-net\"\ntransport = \"vhost-user\"\nstandby = true";
        let standby = nic(&lab, "standby", &format!("{name}-standby"), standby);
        let primary = nic(
            &lab,
            "primary",
            &format!("{name}-primary"),
            "model = \"e1000\"",
        );
        Host::new(&lab, name, &(standby + &primary))
    });
    let pair = |name: &str| {
        let socket = lab.socket(&format!("{name}-standby"));
        let machine = behind(machine(name), "n0", &socket, &[("failover", json!(true))]);
        let primary = Nic::vfio_user("primary", lab.socket(&format!("{name}-primary")));
        let primary = primary.property("failover_pair_id", json!("n0"));
        machine.nic(primary.bus("rp0"))
    };
    let [here, there] = start(&lab, pair("from"), pair("to"));
    // Both drivers; the pair's own interface is the one with others below it.
    here.run("mp e1000; mp virtio_net").unwrap();
    let above = "m=; for d in /sys/class/net/*; do ls $d | grep -q ^lower_ && m=${d##*/}; done";
    let both =
        format!("{above}; [ -n \"$m\" ] && [ $(ls -d /sys/class/net/$m/lower_* | wc -l) = 2 ]");
    here.wait_for(&both, LONG).unwrap();
    here.run(&format!(
        "{above}; ip addr add 10.0.2.15/24 dev $m; ip link set $m up"
    ))
    .unwrap();
    here.run("ping -i 0.05 10.0.2.2 > /dev/null 2>&1 < /dev/null &")
        .unwrap();
    let counters = from.waits_for_traffic("primary");
    println!("{counters}");
    assert_eq!(counters.nic("standby", "tx_frames"), 0, "{counters}");
    migrate(&lab, &here, &there);
    // The primary was taken away before, and is there again: it has no past, and the guest's driver sets it up.
    to.waits_for_traffic("primary");
    let counters = to.daemon.counters().unwrap();
    println!("{}\n{counters}", from.daemon.counters().unwrap());
    assert_eq!(counters.nic("primary", "clients"), 1, "{counters}");
    let log = from.daemon.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
#[ignore = "long: two QEMUs and a migration"]
fn long_a_nic_is_unplugged_moves_with_its_vm_and_is_plugged_again() {
    let lab = lab(2);
    let words = "model = \"e1000\"\nguard = { tx-rate = \"3gbit\" }";
    let from = Host::new(&lab, "from", &nic(&lab, "n0", "n0", words));
    let to = Host::new(&lab, "to", "");
    let [here, there] = start(&lab, machine("from"), machine("to"));
    // Whenever it has a NIC, it uses it.
    here.run("mp e1000").unwrap();
    here.run(
        "(while sleep 0.2; do for d in /sys/class/net/eth*; do i=${d##*/}; [ -e $d ] || continue; ip link set $i up; \
         ip addr add 10.0.2.15/24 dev $i; ping -c 10 -i 0.05 -W 1 10.0.2.2; done; done) > /dev/null 2>&1 < /dev/null &",
    )
    .unwrap();
    let plugged = Nic::vfio_user("n0", lab.socket("n0"));
    here.hotplug(&plugged).unwrap();
    from.waits_for_traffic("n0");
    here.unplug(&plugged).unwrap();
    let socket = lab.socket("there").display().to_string();
    hypernic(
        &from,
        &to,
        &["prepare", "vm7", "n0", "--socket-path", &socket],
    );
    migrate(&lab, &here, &there);
    hypernic(&from, &to, &["commit", "vm7"]);
    let plugged = Nic::vfio_user("n0", lab.socket("there"));
    there.hotplug(&plugged).unwrap();
    let counters = to.waits_for_traffic("n0");
    println!("{counters}");
    assert_eq!(counters.nic("n0", "announced"), 1, "{counters}");
    assert!(!lab.socket("n0").exists(), "it is gone at the source");
}
