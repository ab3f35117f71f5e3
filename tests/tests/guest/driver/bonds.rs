//! Two of our NICs bonded: when one's cable is pulled, the other takes over.

use std::time::Instant;

use hypernic_tests::guests::{self, wait_carrier};
use hypernic_tests::peer::{self, Target};
use hypernic_tests::wired::HOST;
use hypernic_tests::{LONG, Wired, mac, wired};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    a_bond_of_two_nics_fails_over_when_a_cable_is_pulled,
}

/// The bond answers, at the cable where it was last heard.
fn works(wired: &Wired, target: Target) {
    let pings = [guests::noise(18), guests::noise(1472), guests::noise(9000)];
    if let Err(why) = wired.peer.ping(target, 1500, &pings) {
        panic!("{why}\n{}", wired.diagnosis());
    }
}

fn active(wired: &Wired) -> String {
    let file = "/sys/class/net/bond0/bonding/active_slave";
    wired
        .guest
        .run(&format!("cat {file}"))
        .unwrap()
        .trim()
        .to_owned()
}

fn a_bond_of_two_nics_fails_over_when_a_cable_is_pulled(kernel: Kernel) {
    let wired = Wired::bare(GuestConfig::new("bond").kernel(kernel), &["n0", "n1"]).unwrap();
    let guest = &wired.guest;
    let first = wired.interface.clone();
    let second = guests::load_driver(guest, &mac("n1")).unwrap();
    guest
        .run(&format!(
            "mp bonding max_bonds=0 && ip link add bond0 type bond mode active-backup miimon 50 && \
             echo 1 > /proc/sys/net/ipv6/conf/bond0/disable_ipv6 && \
             ip link set {first} master bond0 && ip link set {second} master bond0 && \
             ip addr add 10.9.0.{HOST}/24 dev bond0 && ip link set bond0 up"
        ))
        .unwrap();
    guest
        .push_file("/tmp/noise", 0o644, &guests::noise(256 * 1024))
        .unwrap();
    for interface in [&first, &second] {
        wait_carrier(guest, interface, true).unwrap();
    }
    let bond = guest.run("cat /sys/class/net/bond0/address").unwrap();
    let target = Target {
        mac: wired::mac_bytes(bond.trim()),
        tag: None,
        host: HOST,
    };
    let ping = format!("ping -n -c 1 -W 1 {} >/dev/null", peer::IP);
    guest.wait_for(&ping, LONG).unwrap();
    // A transfer goes on all the time; TCP repeats what a failover loses.
    let transfers = guest
        .spawn(&format!(
            "while [ ! -e /tmp/stop ]; do nc {} 7 </tmp/noise | cmp - /tmp/noise || exit 1; done",
            peer::IP
        ))
        .unwrap();
    for round in 0..2 {
        for (cable, from, to) in [(0, &first, &second), (1, &second, &first)] {
            if active(&wired) != *from {
                guest
                    .run(&format!(
                        "echo {from} > /sys/class/net/bond0/bonding/active_slave"
                    ))
                    .unwrap();
            }
            works(&wired, target);
            assert_eq!(wired.peer.place(target.mac), Some(cable));
            let start = Instant::now();
            wired.peer.pull(cable);
            wait_carrier(guest, from, false).unwrap();
            guest
                .wait_for(
                    &format!("grep -qx {to} /sys/class/net/bond0/bonding/active_slave"),
                    LONG,
                )
                .unwrap();
            println!(
                "{from} -> {to} after {:.2} s",
                start.elapsed().as_secs_f64()
            );
            // The bond says by itself where it is now, or our pings would go to the wrong cable.
            let there = 1 - cable;
            let deadline = Instant::now() + LONG;
            while wired.peer.place(target.mac) != Some(there) {
                assert!(Instant::now() < deadline, "round {round}: {from} -> {to}");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // It sends through its new slave a moment before it listens to it.
            guest.wait_for(&ping, LONG).unwrap();
            works(&wired, target);
            wired.peer.insert(cable).unwrap();
            wait_carrier(guest, from, true).unwrap();
        }
    }
    guest.run("touch /tmp/stop").unwrap();
    let moved = guest.finish(&transfers, 2 * LONG).unwrap();
    assert!(moved.ok(), "{}", moved.text);
    let state = guest.run("cat /proc/net/bonding/bond0").unwrap();
    assert_eq!(state.matches("MII Status: up").count(), 3, "{state}");
    assert_eq!(state.matches("Link Failure Count: 2").count(), 2, "{state}");
    wired.no_faults().unwrap();
    // Both went down when their cables were pulled, and nothing worse.
    let complaints = guests::complaints(guest).unwrap();
    assert_eq!(complaints, Vec::<String>::new());
}
