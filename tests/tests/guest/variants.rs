//! Stock Linux on the other chips of the family: its e1000 driver takes each for what it is.

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Lab, mac};
use rig::GuestConfig;

/// Boots a guest on a NIC of this model and moves some traffic. Returns what the driver said of it.
fn boot(model: &str, device: &str) -> String {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let daemon = lab.run_of(model, "n0", "user").unwrap();
    let guest = lab
        .rig
        .start(GuestConfig::new(model).nic(lab.nic("n0")))
        .unwrap();
    let link = guests::bring_up(&guest, &mac("n0")).unwrap();
    let id = guest
        .run(&format!(
            "cat /sys/class/net/{}/device/device",
            link.interface
        ))
        .unwrap();
    assert_eq!(id.trim(), device);
    guests::ping_all(&guest, GATEWAY, 5).unwrap();
    guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
    // Down, up, and the driver anew: every reset path it has.
    guest
        .run(&format!(
            "ip link set {0} down && ip link set {0} up",
            link.interface
        ))
        .unwrap();
    guests::wait_carrier(&guest, &link.interface, true).unwrap();
    guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    let test = guests::self_test(&guest, &link.interface).unwrap();
    assert!(test.contains("The test result is PASS"), "{test}");
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    let log = guest.run("dmesg | grep e1000").unwrap();
    println!("{log}\n{}", daemon.counters().unwrap());
    log
}

#[test]
fn an_82545em_is_a_64_bit_pci_x_device() {
    let log = boot("82545em", "0x100f");
    assert!(log.contains("(PCI-X:133MHz:64-bit)"), "{log}");
}

#[test]
#[ignore = "long: make test-long"]
fn long_an_82544gc_is_a_32_bit_pci_device() {
    let log = boot("82544gc", "0x100c");
    assert!(log.contains("(PCI:33MHz:32-bit)"), "{log}");
}
