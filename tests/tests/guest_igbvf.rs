//! Stock Linux on virtual functions of an 82576: its igbvf driver takes them for what they are, with no
//! physical function in sight.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Card, LONG, Lab, Launch, Wired, Wiring, torture};
use rig::{Guest, GuestConfig};

const MACS: [&str; 2] = ["52:54:00:76:00:0a", "52:54:00:76:00:0b"];

/// A chip with two VFs, whose wire is the user network.
fn config(lab: &Lab) -> PathBuf {
    let sockets = lab.path("vf{}.sock");
    let mut toml = format!(
        "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = {sockets:?}\nport = \"user\"\n"
    );
    for (index, mac) in MACS.iter().enumerate() {
        toml += &format!("[[nic.vf]]\nindex = {index}\nmac = \"{mac}\"\n");
    }
    let file = lab.path("host.toml");
    std::fs::write(&file, toml).expect("configuration");
    file
}

/// The interface of the second VF in a namespace of its own, so that the kernel does not shorten the
/// way between the two.
fn part(guest: &Guest, interface: &str) {
    guest
        .run(&format!(
            "mkdir -p /run/netns; ip netns add other; ip link set {interface} netns other; \
             ip netns exec other ip addr add 10.9.0.2/24 dev {interface}; \
             ip netns exec other ip link set {interface} up"
        ))
        .unwrap();
}

#[test]
fn the_stock_vf_driver_gets_its_address_and_moves_traffic_out_and_to_its_neighbour() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let daemon = Launch::new()
        .unwrap()
        .arg("serve")
        .arg(config(&lab))
        .start()
        .unwrap();
    let guest = GuestConfig::new("igbvf")
        .nic(lab.nic("vf0"))
        .nic(lab.nic("vf1"));
    let guest = lab.rig.start(guest).unwrap();
    guest.run("mp igbvf").unwrap();
    // By the mailbox: nothing else says these addresses.
    let [a, b] = MACS.map(|mac| guest.interface(mac, LONG).unwrap());
    let id = guest.run(&format!("cat /sys/class/net/{a}/device/device"));
    assert_eq!(id.unwrap().trim(), "0x10ca");
    guests::dhcp(&guest, &a).unwrap();
    guests::ping_all(&guest, GATEWAY, 5).unwrap();
    guests::round_trip(&guest, &guests::noise(300_000)).unwrap();

    // From one to the other, inside the chip.
    part(&guest, &b);
    guest
        .run(&format!("ip addr add 10.9.0.1/24 dev {a}"))
        .unwrap();
    guest
        .wait_for(
            &format!("[ \"$(ip netns exec other cat /sys/class/net/{b}/carrier)\" = 1 ]"),
            LONG,
        )
        .unwrap();
    guests::ping_all(&guest, "10.9.0.2", 10).unwrap();
    guest
        .run("ip netns exec other iperf3 -s -D >/dev/null 2>&1")
        .unwrap();
    guest
        .wait_for(
            "ip netns exec other grep -qs ':1451 [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6",
            LONG,
        )
        .unwrap();
    for direction in [guests::Direction::Out, guests::Direction::In] {
        let rate = guests::tcp(&guest, "10.9.0.2", 5201, 1, direction).unwrap();
        assert!(rate > 0.0);
    }

    // Down, up, and the driver anew: each time a reset and its mailbox.
    for _ in 0..5 {
        guest
            .run(&format!("ip link set {a} down && ip link set {a} up"))
            .unwrap();
        guests::wait_carrier(&guest, &a, true).unwrap();
    }
    guests::ping_all(&guest, "10.9.0.2", 5).unwrap();
    // VLANs and jumbo frames are asked of the mailbox too.
    guest
        .run(&format!(
            "mp 8021q; ip link set {a} mtu 9000; ip netns exec other ip link set {b} mtu 9000; \
             ip link add link {a} name v7 type vlan id 7; ip addr add 10.7.0.1/24 dev v7; ip link set v7 up; \
             ip netns exec other ip link add link {b} name v7 type vlan id 7; \
             ip netns exec other ip addr add 10.7.0.2/24 dev v7; ip netns exec other ip link set v7 up"
        ))
        .unwrap();
    guests::wait_carrier(&guest, &a, true).unwrap();
    guests::ping_all(&guest, "10.7.0.2", 5).unwrap();
    guest
        .run("ping -c 3 -i 0.05 -s 8000 -M do 10.9.0.2")
        .unwrap();
    let counters = daemon.counters().unwrap();
    println!(
        "{counters}\n{}",
        guest.run("dmesg | grep -i igbvf").unwrap()
    );
    guest
        .run("ip netns del other; rmmod igbvf && mp igbvf")
        .unwrap();
    guest.interface(MACS[0], LONG).unwrap();
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

/// A guest whose only NIC is a virtual function, whose chip's cable ends in the test.
fn wired(name: &str) -> Wired {
    Wired::of(GuestConfig::new(name), Wiring::one(Card::IgbVf))
        .unwrap_or_else(|why| panic!("{why}"))
}

/// Nothing that a good driver does is refused or counted against it.
fn is_blameless(wired: &Wired) {
    let counters = wired.daemon.counters().unwrap();
    for counter in [
        "rx_bad_ring",
        "tx_bad_ring",
        "rx_dma_fault",
        "tx_dma_fault",
        "tx_bad_desc",
    ] {
        assert_eq!(
            counters.nic(&wired.nic(), counter),
            0,
            "{counter}\n{counters}"
        );
    }
    wired.assert_quiet();
}

/// What the driver hears of its chip, and what an operator does to it: each time it goes on, without a hand laid on the
/// guest.
#[test]
fn the_stock_vf_driver_hears_of_links_and_lives_through_resets_and_removal() {
    let wired = wired("events");
    let carrier = |up| guests::wait_carrier(&wired.guest, &wired.interface, up).unwrap();
    let works = |what: &str| {
        let done = wired.settled().and_then(|()| wired.exchange(1500));
        done.unwrap_or_else(|e| panic!("{what}: {e}\n{}", wired.diagnosis()));
    };
    works("first");
    for (words, up) in [
        ("set p0vf0 state disable", false),
        ("set p0vf0 state auto", true),
        ("leave p0vf0", false),
        ("revive p0vf0", true),
    ] {
        wired.vf(words).unwrap();
        carrier(up);
        if up {
            works(words);
        }
    }
    wired.peer.pull(0);
    carrier(false);
    wired.peer.insert(0).unwrap();
    carrier(true);
    works("the cable");
    // With frames on their way both ways, and with none: then the driver has nothing but the mailbox to learn from, and
    // goes down for some seconds.
    let flood = wired.peer.flood(wired.target(None), 1500, torture::PAUSE);
    wired.vf("reset p0").unwrap();
    works("a reset of the chip");
    drop(flood);
    let resets = || {
        wired
            .daemon
            .counters()
            .unwrap()
            .find("vf", "p0vf0", "vf_messages")
    };
    for round in 0..2 {
        let before = resets();
        wired.vf("reset p0").unwrap();
        carrier(false);
        works(&format!("reset {round} of the chip at rest"));
        assert!(resets() > before, "it has asked for everything again");
    }
    is_blameless(&wired);
}
