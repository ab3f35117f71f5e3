//! Stock Linux and its own e1000 driver on our 82540EM, alone with the user network. Times are printed, never
//! asserted.

use std::time::Instant;

use hypernic_tests::guests::{self, Direction, GATEWAY};
use hypernic_tests::host;
use hypernic_tests::{Counters, LONG, Lab, Result, mac};
use rig::{Guest, GuestConfig};

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn show(what: &str, since: Instant) {
    println!("{what}: {:.2} s", since.elapsed().as_secs_f64());
}

/// The link works, to the user network and beyond.
fn works(guest: &Guest) -> Result<()> {
    guests::ping_all(guest, GATEWAY, 5)?;
    guests::round_trip(guest, &guests::noise(100_000))
}

/// Nothing that a good driver does is refused, and interrupts are neither lost nor a storm.
fn counters_are_sane(counters: &Counters, nic: &str) {
    for counter in [
        "malformed_size",
        "malformed_payload",
        "refused_busy",
        "refused_no_version",
        "refused_bad_version",
        "refused_unknown_command",
        "refused_wrong_direction",
        "refused_unsupported",
        "refused_bad_range",
        "refused_bad_irq",
        "refused_bad_eventfd",
        "dma_maps_refused",
        "dma_unmaps_refused",
        "unexpected_replies",
        "accept_errors",
    ] {
        assert_eq!(counters.nic(nic, counter), 0, "{counter}\n{counters}");
    }
    let frames = counters.nic(nic, "tx_frames") + counters.nic(nic, "rx_frames");
    let interrupts = counters.nic(nic, "irq_triggers");
    assert!(frames > 0 && interrupts > 0, "{counters}");
    assert!(
        interrupts <= 2 * frames + 100,
        "an interrupt storm: {counters}"
    );
}

#[test]
fn a_cold_guest_moves_everything_both_ways_with_every_offload_on_and_off() {
    let lab = lab();
    let daemon = lab.run("n0", "user").unwrap();
    let start = Instant::now();
    let guest = lab
        .rig
        .start(GuestConfig::new("cold").nic(lab.nic("n0")))
        .unwrap();
    show("cold boot", start);
    let link = guests::bring_up(&guest, &mac("n0")).unwrap();
    show("address", start);
    let interface = &link.interface;

    let driver = guest.run(&format!("ethtool -i {interface}")).unwrap();
    assert!(driver.contains("driver: e1000\n"), "{driver}");
    let log = guest.run("dmesg | grep e1000").unwrap();
    assert!(
        log.contains("Intel(R) PRO/1000 Network Connection"),
        "{log}"
    );
    assert!(log.contains(&mac("n0")), "{log}");
    let speed = guest.run(&format!("ethtool {interface}")).unwrap();
    assert!(
        speed.contains("Speed: 1000Mb/s") && speed.contains("Link detected: yes"),
        "{speed}"
    );
    let eeprom = guest
        .run(&format!(
            "ethtool -e {interface} length 6 raw on | hexdump -e '6/1 \"%02x:\"'"
        ))
        .unwrap();
    assert_eq!(eeprom.trim_end_matches(':'), mac("n0"));

    println!("{:?}", guests::ping_all(&guest, GATEWAY, 50).unwrap());
    let (_server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, GATEWAY, port, 100, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    guests::round_trip(&guest, &guests::noise(4_000_000)).unwrap();
    for offloads in [
        "tso off",
        "tso off tx off sg off rx off gso off",
        "rx on tx on sg on tso on gso on",
    ] {
        guest
            .run(&format!("ethtool -K {interface} {offloads}"))
            .unwrap();
        // Changing receive checksums resets the NIC, and the link comes back in its own time.
        guests::wait_carrier(&guest, interface, true).unwrap();
        guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
    }

    let statistics = guest.run(&format!("ethtool -S {interface}")).unwrap();
    let value = |name: &str| -> u64 {
        let line = statistics
            .lines()
            .find_map(|l| l.trim().strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{statistics}"))
            .parse()
            .unwrap()
    };
    for error in [
        "rx_errors",
        "tx_errors",
        "rx_crc_errors",
        "rx_csum_offload_errors",
        "rx_length_errors",
    ] {
        assert_eq!(value(error), 0, "{error}\n{statistics}");
    }
    assert!(
        value("rx_csum_offload_good") > 0,
        "receive checksums were never offloaded\n{statistics}"
    );
    assert!(
        value("tx_tcp_seg_good") > 0,
        "segmentation was never offloaded\n{statistics}"
    );
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    counters_are_sane(&counters, "n0");
    show("all", start);
}

#[test]
fn a_hot_plugged_nic_survives_down_and_up_driver_reloads_and_replugging() {
    let lab = lab();
    let daemon = lab.run("n0", "user").unwrap();
    let start = Instant::now();
    let guest = lab.guest("n0").unwrap();
    let link = guests::bring_up(&guest, &mac("n0")).unwrap();
    show("resumed, plugged, address", start);
    works(&guest).unwrap();
    for _ in 0..3 {
        guest
            .run(&format!(
                "ip link set {0} down; ip link set {0} up",
                link.interface
            ))
            .unwrap();
        guests::wait_carrier(&guest, &link.interface, true).unwrap();
        guest
            .run(&format!("ip route replace default via {GATEWAY}"))
            .unwrap();
        works(&guest).unwrap();
    }
    for _ in 0..3 {
        guest.run("rmmod e1000").unwrap();
        guests::bring_up(&guest, &mac("n0")).unwrap();
        works(&guest).unwrap();
    }
    guest.unplug(&lab.nic("n0")).unwrap();
    guest
        .wait_for("! lspci -n | grep -q 8086:100e", LONG)
        .unwrap();
    guest.hotplug(&lab.nic("n0")).unwrap();
    guests::bring_up(&guest, &mac("n0")).unwrap();
    works(&guest).unwrap();
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    let counters = daemon.counters().unwrap();
    assert_eq!(counters.nic("n0", "clients"), 2, "{counters}");
    counters_are_sane(&counters, "n0");
    show("all", start);
}

#[test]
fn the_driver_passes_its_own_self_tests_and_rare_settings_work() {
    let lab = lab();
    let daemon = lab.run("n0", "user").unwrap();
    let guest = lab.guest("n0").unwrap();
    let link = guests::bring_up(&guest, &mac("n0")).unwrap();
    let interface = &link.interface;
    // Registers, EEPROM, interrupts, PHY loopback, link.
    let tested = guests::self_test(&guest, interface).unwrap();
    assert!(tested.contains("The test result is PASS"), "{tested}");
    assert_eq!(tested.matches("\t 0").count(), 5, "{tested}");
    for settings in [
        format!("ethtool -s {interface} autoneg off speed 100 duplex full"),
        format!("ethtool -s {interface} autoneg on"),
        format!("ethtool -G {interface} rx 80 tx 80"),
        format!("ethtool -G {interface} rx 4096 tx 4096"),
        format!("ip link set {interface} mtu 9000"),
        format!("ip link set {interface} mtu 1500"),
        format!("ip link set {interface} promisc on"),
        format!("ethtool -K {interface} rxvlan off txvlan off"),
    ] {
        guest
            .run(&settings)
            .unwrap_or_else(|e| panic!("{settings}: {e}"));
        guests::wait_carrier(&guest, interface, true).unwrap();
        guests::round_trip(&guest, &guests::noise(100_000))
            .unwrap_or_else(|e| panic!("{settings}: {e}"));
    }
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    counters_are_sane(&daemon.counters().unwrap(), "n0");
}

#[test]
fn a_rebooted_guest_finds_its_nic_again() {
    let lab = lab();
    let daemon = lab.run("n0", "user").unwrap();
    let mut config = GuestConfig::new("reboot").nic(lab.nic("n0"));
    config.allow_reboot = true;
    let start = Instant::now();
    let guest = lab.rig.resume(config).unwrap();
    guests::bring_up(&guest, &mac("n0")).unwrap();
    works(&guest).unwrap();
    let resets = daemon.counters().unwrap().nic("n0", "resets");
    guest.reboot().unwrap();
    show("up again", start);
    guests::bring_up(&guest, &mac("n0")).unwrap();
    works(&guest).unwrap();
    let counters = daemon.counters().unwrap();
    assert!(
        counters.nic("n0", "resets") > resets,
        "QEMU resets the device\n{counters}"
    );
    counters_are_sane(&counters, "n0");
    show("all", start);
}

#[test]
fn one_daemon_serves_one_vm_after_the_other() {
    let lab = lab();
    let mut daemon = lab.run("n0", "user").unwrap();
    let start = Instant::now();
    for round in 1..=3 {
        let guest = lab.guest("n0").unwrap();
        guests::bring_up(&guest, &mac("n0")).unwrap();
        works(&guest).unwrap();
        if round == 1 {
            let _ = guest.sh("poweroff -f");
            guest.wait_exit(LONG).unwrap();
        }
        drop(guest);
        let gone = |c: &Counters| c.nic("n0", "clients_gone") == round;
        daemon.wait_counters("the VMM is gone", gone).unwrap();
    }
    daemon.wait_log("VMM disconnected").unwrap();
    counters_are_sane(&daemon.counters().unwrap(), "n0");
    assert!(daemon.stop().unwrap().success());
    assert!(!lab.socket("n0").exists(), "the socket is left behind");
    show("three guests", start);
}
