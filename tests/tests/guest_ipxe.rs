//! iPXE, a driver of another family: the stock option ROM that QEMU ships for its own e1000 drives our 82540EM
//! before any operating system, gets an address by DHCP and what to do next by TFTP.
#![forbid(unsafe_code)]

use hypernic_tests::{LONG, Lab, mac};
use rig::{Boot, GuestConfig};

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
