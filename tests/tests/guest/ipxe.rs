//! iPXE, a driver of another family: the stock option ROM that QEMU ships for its own e1000 drives our 82540EM
//! before any operating system, gets an address by DHCP and what to do next by TFTP.

use std::time::Instant;

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::host::{Http, Inbox};
use hypernic_tests::{LONG, Lab, mac};
use rig::{Boot, CMDLINE, GuestConfig, Kernel};

#[test]
fn the_stock_ipxe_rom_gets_an_address_and_a_script_by_tftp() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let tftp = lab.path("tftp");
    std::fs::create_dir(&tftp).unwrap();
    // More than one TFTP block, so that it takes several frames both ways.
    let padding = "# a script of some length\n".repeat(2000);
    std::fs::write(
        tftp.join("boot.ipxe"),
        format!("#!ipxe\n{padding}echo the script ${{net0/mac}} ${{ip}} arrived\n"),
    )
    .unwrap();
    let daemon = lab
        .run(
            "n0",
            &format!("user:tftp={},bootfile=boot.ipxe", tftp.display()),
        )
        .unwrap();

    let nic = lab.nic("n0").rom("pxe-e1000.rom").boot_index(0);
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

#[test]
fn ipxe_boots_linux_over_dhcp_and_tftp_and_linux_takes_the_nic_over() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let tftp = lab.path("tftp");
    std::fs::create_dir(&tftp).unwrap();
    let image = lab.rig.image(Kernel::Stable).unwrap();
    std::fs::copy(image.bzimage(), tftp.join("vmlinuz")).unwrap();
    std::fs::copy(image.small_initramfs(), tftp.join("initrd")).unwrap();
    let script = format!(
        "#!ipxe\nkernel vmlinuz initrd=initrd {CMDLINE} || goto bad\ninitrd initrd || goto bad\n\
         echo loaded\nboot\n:bad\necho it failed\n"
    );
    std::fs::write(tftp.join("boot.ipxe"), script).unwrap();
    let daemon = lab
        .run(
            "n0",
            &format!("user:tftp={},bootfile=boot.ipxe", tftp.display()),
        )
        .unwrap();
    let start = Instant::now();
    let show = |what: &str| println!("{what}: {:.1} s", start.elapsed().as_secs_f64());

    let nic = lab.nic("n0").rom("pxe-e1000.rom").boot_index(0);
    let guest = lab
        .rig
        .start(GuestConfig::new("netboot").boot(Boot::Firmware).nic(nic))
        .unwrap();
    guest.expect_console("loaded", 4 * LONG).unwrap();
    show("iPXE has loaded both files");
    let by_ipxe = daemon.counters().unwrap();
    println!("{by_ipxe}");
    guest.expect_console("RIG-UP", 4 * LONG).unwrap();
    show("Linux runs");

    // A file of the host goes into the guest and back, by the NIC that it was booted from.
    let content = guests::noise(300_000);
    let http = Http::serve(content.clone()).unwrap();
    let inbox = Inbox::open().unwrap();
    let (from, to) = (http.port, inbox.port);
    guest
        .type_text(&format!(
            "mp e1000 && dhcp eth0 && ping -c 3 {GATEWAY} && wget -q -O /tmp/f http://{GATEWAY}:{from}/ && \
             nc {GATEWAY} {to} < /tmp/f; echo finished\n"
        ))
        .unwrap();
    guest
        .expect_console("3 packets transmitted, 3 packets received", 2 * LONG)
        .unwrap();
    assert!(inbox.content().unwrap() == content, "the file changed");
    show("Linux has used the NIC");
    let by_linux = daemon.counters().unwrap().since(&by_ipxe);
    println!("{by_linux}");
    assert!(
        by_ipxe.nic("n0", "irq_triggers") == 0 && by_linux.nic("n0", "irq_triggers") > 0,
        "iPXE polls, Linux is interrupted"
    );
}

/// OVMF boots from the network, with a driver of its own or the one in the NIC's option ROM, and what it loads drives the
/// NIC by itself.
fn ovmf_boots_from_the_network(model: &str, rom: &str) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let firmware = lab.rig.packages("ovmf", &["ovmf", "ipxe"]).unwrap();
    let tftp = lab.path("tftp");
    std::fs::create_dir(&tftp).unwrap();
    let program = firmware.dir().join("usr/lib/ipxe/ipxe.efi");
    let length = std::fs::copy(program, tftp.join("ipxe.efi")).unwrap();
    let port = format!("user:tftp={},bootfile=ipxe.efi", tftp.display());
    let daemon = lab.run_of(model, "n0", &port).unwrap();
    let nic = lab.nic("n0").rom(rom).boot_index(0);
    let rom = firmware.dir().join("usr/share/ovmf/OVMF.fd");
    let mut config = GuestConfig::new("ovmf")
        .boot(Boot::Rom(rom))
        .nic(nic)
        // Without random numbers OVMF does without the network.
        .args(["-device", "virtio-rng-pci"]);
    config.cpu = Some("max".into());
    let guest = lab.rig.start(config).unwrap();
    guest.expect_console("iPXE", 4 * LONG).unwrap();
    let by_firmware = daemon.counters().unwrap();
    let bytes = by_firmware.nic("n0", "rx_bytes");
    assert!(bytes > length, "{by_firmware}");
    // iPXE runs now, with a driver of its own, and is told to load the same file.
    guest
        .expect_console(&format!("net0: {}", mac("n0")), LONG)
        .unwrap();
    guest.expect_console("ipxe.efi... ok", 4 * LONG).unwrap();
    let by_ipxe = daemon.counters().unwrap().since(&by_firmware);
    assert!(by_ipxe.nic("n0", "rx_bytes") > length, "{by_ipxe}");
}

#[test]
#[ignore = "long: other firmware"]
fn long_ovmf_boots_from_the_network() {
    ovmf_boots_from_the_network("e1000", "efi-e1000.rom");
}

#[test]
#[ignore = "long: other firmware"]
fn long_ovmfs_virtio_driver_boots_from_the_network() {
    ovmf_boots_from_the_network("virtio-net", "");
}
