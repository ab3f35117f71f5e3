//! U-Boot's own e1000 driver, of yet another family: it reads the EEPROM bit by bit, waits for the link, polls
//! descriptors and never enables an interrupt. And its rtl8169, with rings of one and four descriptors: Debian builds no
//! U-Boot for QEMU with it, so `HYPERNIC_UBOOT_RTL8169` names one (CONTRIBUTING.md says how to build it). Without it those tests
//! say so and do nothing. Times are printed, never asserted.

use std::path::PathBuf;
use std::time::Instant;

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{LONG, Lab, Result, mac};
use rig::{Boot, Guest, GuestConfig};

/// Types a command and returns all it printed.
fn command(guest: &Guest, text: &str) -> Result<String> {
    let start = Instant::now();
    // The mark as typed is not the mark as printed, so the echo is not taken for the end.
    guest.type_text(&format!("{text}; echo that was'' all\n"))?;
    guest.expect_console("echo that was'' all", LONG)?;
    let output = guest.expect_console("that was all", 2 * LONG)?;
    guest.expect_console("=> ", LONG)?;
    println!("{text}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(output.replace('\r', ""))
}

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn loads_a_file(model: &str, length: usize) {
    let lab = lab();
    let rom = lab.rig.uboot("qemu-x86/u-boot.rom");
    let config = on_a_pc(&lab, rom);
    loads_a_file_on(&lab, config, model, length);
}

fn on_a_pc(lab: &Lab, rom: PathBuf) -> GuestConfig {
    let nic = lab.nic("n0").addr("5").rom("");
    GuestConfig::new("uboot").boot(Boot::Rom(rom)).nic(nic)
}

fn loads_a_file_on(lab: &Lab, config: GuestConfig, model: &str, length: usize) {
    let tftp = lab.path("tftp");
    std::fs::create_dir(&tftp).unwrap();
    let content = guests::noise(length);
    std::fs::write(tftp.join("blob"), &content).unwrap();
    let port = format!("user:tftp={}", tftp.display());
    let daemon = lab.run_of(model, "n0", &port).unwrap();
    let start = Instant::now();
    let guest = lab.rig.start(config).unwrap();
    guest.expect_console("Hit any key", LONG).unwrap();
    guest.type_text(" ").unwrap();
    guest.expect_console("=> ", LONG).unwrap();
    println!("prompt: {:.1} s", start.elapsed().as_secs_f64());

    let found = command(&guest, "pci enum; virtio scan; net list").unwrap();
    let driver = if model.starts_with("r81") {
        "eth_rtl8169"
    } else if model == "virtio-net" {
        "virtio-net#"
    } else {
        "e1000#"
    };
    assert!(found.contains(driver), "{found}");
    assert!(found.contains(&mac("n0")), "{found}");
    let lease = command(&guest, "setenv autoload no; dhcp").unwrap();
    assert!(
        lease.contains("DHCP client bound to address 10.0.2.15"),
        "{lease}"
    );
    let ping = command(&guest, &format!("ping {GATEWAY}")).unwrap();
    assert!(ping.contains(&format!("host {GATEWAY} is alive")), "{ping}");
    let loaded = command(&guest, &format!("tftpboot 0x2000000 {GATEWAY}:blob")).unwrap();
    assert!(
        loaded.contains(&format!("Bytes transferred = {}", content.len())),
        "{loaded}"
    );
    let sum = command(&guest, "crc32 0x2000000 ${filesize}").unwrap();
    let wanted = format!("==> {:08x}", crc32fast::hash(&content));
    assert!(sum.contains(&wanted), "not {wanted}: {sum}");

    let counters = daemon.counters().unwrap();
    println!("{counters}\nall: {:.1} s", start.elapsed().as_secs_f64());
    // A block of TFTP is a frame.
    let frames = counters.nic("n0", "rx_frames");
    assert!(frames > length as u64 / 1500, "{counters}");
}

#[test]
fn u_boot_gets_an_address_pings_and_loads_a_file_whole() {
    loads_a_file("e1000", 8_000_003);
}

#[test]
fn u_boot_does_so_on_an_82545em() {
    loads_a_file("82545em", 1_000_003);
}

#[test]
fn u_boot_does_so_on_an_82544gc() {
    loads_a_file("82544gc", 1_000_003);
}

#[test]
#[ignore = "long: `make test-long`"]
fn long_u_boots_virtio_driver_loads_a_file_whole() {
    loads_a_file("virtio-net", 8_000_003);
}

/// On a PowerPC the driver swaps every register and descriptor.
#[test]
#[ignore = "long: another architecture"]
fn long_big_endian_u_boot_loads_a_file_whole() {
    let lab = lab();
    let rom = lab.rig.uboot("qemu-ppce500/uboot.elf");
    let mut config = GuestConfig::new("ppc").boot(Boot::Rom(rom));
    config.qemu = Some(lab.rig.qemu_for("ppc", "qemu-system-ppc").unwrap());
    config.machine = "ppce500".into();
    let config = config.nic(lab.nic("n0").rom(""));
    loads_a_file_on(&lab, config, "e1000", 8_000_003);
}

/// On a chip of the r8169's family, where a U-Boot is given.
fn loads_a_file_by_rtl8169(model: &str) {
    const GIVEN: &str = "HYPERNIC_UBOOT_RTL8169";
    let Some(rom) = std::env::var_os(GIVEN) else {
        println!("not tried: {GIVEN} names no U-Boot with CONFIG_RTL8169");
        return;
    };
    let lab = lab();
    let config = on_a_pc(&lab, rom.into());
    loads_a_file_on(&lab, config, model, 1_000_003);
}

#[test]
#[ignore = "long, and a U-Boot of yours: `make test-long`"]
fn long_u_boots_rtl8169_driver_loads_a_file_whole() {
    loads_a_file_by_rtl8169("r8168");
}

#[test]
#[ignore = "long, and a U-Boot of yours: `make test-long`"]
fn long_u_boots_rtl8169_driver_does_so_on_an_rtl8168h() {
    loads_a_file_by_rtl8169("r8168h");
}

#[test]
#[ignore = "long, and a U-Boot of yours: `make test-long`"]
fn long_u_boots_rtl8169_driver_does_so_on_an_rtl8169s() {
    loads_a_file_by_rtl8169("r8169s");
}
