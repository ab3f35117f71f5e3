//! Stock Linux and its own igb driver on our 82576, and iPXE's. Times are printed, never asserted.
#![forbid(unsafe_code)]

use hypernic_tests::guests::{self, Direction, GATEWAY, Link};
use hypernic_tests::{Daemon, LONG, Lab, Launch, host, mac};
use rig::{Boot, Guest, GuestConfig};

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn serve(lab: &Lab, port: &str) -> Daemon {
    let words = lab.run_args("n0", port).into_iter();
    let words = words.map(|word| {
        if word == "e1000" {
            "82576".into()
        } else {
            word
        }
    });
    Launch::new().unwrap().args(words).start().unwrap()
}

fn boot(lab: &Lab) -> (Guest, Link) {
    let guest = lab
        .rig
        .resume(GuestConfig::new("igb").nic(lab.nic("n0")))
        .unwrap();
    let link = guests::bring_up_with(&guest, "igb", &mac("n0")).unwrap();
    (guest, link)
}

/// How often a vector of the interface has interrupted, by its name in `/proc/interrupts`.
fn interrupts(guest: &Guest, interface: &str) -> Vec<(String, u64)> {
    let table = guest
        .run(&format!("grep '{interface}' /proc/interrupts"))
        .unwrap();
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let counts = words[1..].iter().map_while(|word| word.parse::<u64>().ok());
        ((*words.last().unwrap()).to_owned(), counts.sum())
    };
    table.lines().map(line).collect()
}

#[test]
fn the_stock_igb_driver_gets_a_link_and_moves_traffic() {
    let lab = lab();
    let daemon = serve(&lab, "user");
    let (guest, link) = boot(&lab);
    let interface = &link.interface;
    let log = guest.run("dmesg | grep igb").unwrap();
    assert!(log.contains("Using MSI-X interrupts"), "{log}");
    let driver = guest.run(&format!("ethtool -i {interface}")).unwrap();
    assert!(driver.contains("firmware-version: 2.1.0"), "{driver}");
    let speed = guest.run(&format!("ethtool {interface}")).unwrap();
    assert!(
        speed.contains("Speed: 1000Mb/s") && speed.contains("Link detected: yes"),
        "{speed}"
    );

    println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
    guests::round_trip(&guest, &guests::noise(2_000_000)).unwrap();
    let (_server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, GATEWAY, port, 20, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    let counts = interrupts(&guest, interface);
    println!("{counts:?}");
    assert!(
        counts
            .iter()
            .any(|(name, n)| name.to_lowercase().contains("rx") && *n > 0),
        "{counts:?}"
    );
    // Down, up, and the driver anew: every reset path it has.
    guest
        .run(&format!(
            "ip link set {interface} down && ip link set {interface} up"
        ))
        .unwrap();
    guests::wait_carrier(&guest, interface, true).unwrap();
    guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    guest.run("rmmod igb").unwrap();
    let link = guests::bring_up_with(&guest, "igb", &mac("n0")).unwrap();
    guests::ping_all(&guest, GATEWAY, 5).unwrap();
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    println!("{link:?}\n{}", daemon.counters().unwrap());
}

#[test]
fn the_stock_igb_drivers_self_test_passes() {
    let lab = lab();
    let daemon = serve(&lab, "user");
    let (guest, link) = boot(&lab);
    let test = guest
        .run_within(&format!("ethtool -t {} offline", link.interface), 4 * LONG)
        .unwrap();
    println!("{test}");
    assert!(test.contains("The test result is PASS"), "{test}");
    for part in ["Register", "Eeprom", "Interrupt", "Loopback", "Link"] {
        let line = test.lines().find(|line| line.contains(part));
        let line = line.unwrap_or_else(|| panic!("no {part} in\n{test}"));
        assert!(line.trim_end().ends_with('0'), "{test}");
    }
    guests::wait_carrier(&guest, &link.interface, true).unwrap();
    guests::ping_all(&guest, GATEWAY, 5).unwrap();
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    println!("{}", daemon.counters().unwrap());
}

/// The stock ROM of another chip of the same iPXE driver, made one of the 82576 by its ids, as QEMU
/// does it for its own devices.
fn rom(stock: &[u8]) -> Vec<u8> {
    let mut rom = stock.to_vec();
    let pcir = usize::from(u16::from_le_bytes([rom[0x18], rom[0x19]]));
    assert_eq!(rom[pcir..pcir + 4], *b"PCIR");
    let device = pcir + 6..pcir + 8;
    let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let before = sum(&rom[device.clone()]);
    rom[device.clone()].copy_from_slice(&0x10c9u16.to_le_bytes());
    let after = sum(&rom[device]);
    // Byte 6 is nobody's, and has the sum of all come to 0.
    rom[6] = rom[6].wrapping_add(before).wrapping_sub(after);
    rom
}

#[test]
fn ipxes_driver_gets_a_link_an_address_and_a_script() {
    let lab = lab();
    let tftp = lab.path("tftp");
    std::fs::create_dir(&tftp).unwrap();
    let padding = "# a script of some length\n".repeat(2000);
    std::fs::write(
        tftp.join("boot.ipxe"),
        format!("#!ipxe\n{padding}echo the script ${{net0/mac}} ${{ip}} arrived\n"),
    )
    .unwrap();
    let daemon = serve(
        &lab,
        &format!("user:tftp={},bootfile=boot.ipxe", tftp.display()),
    );
    let stock = lab.rig.root().dir().join("usr/share/qemu/pxe-e1000.rom");
    let file = lab.path("82576.rom");
    std::fs::write(&file, rom(&std::fs::read(stock).unwrap())).unwrap();
    let nic = lab.nic("n0").rom(&file).boot_index(0);
    let guest = lab
        .rig
        .start(GuestConfig::new("ipxe").boot(Boot::Firmware).nic(nic))
        .unwrap();
    guest.expect_console("iPXE", LONG).unwrap();
    guest
        .expect_console(&format!("the script {} 10.0.2.15 arrived", mac("n0")), LONG)
        .unwrap();
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    assert!(counters.nic("n0", "rx_frames") > 30, "{counters}");
}
