//! An 82540EM whose doorbells are memory (`doorbell = "page"`), under QEMU: a driver that polls keeps the pages, and one
//! that is interrupted by INTx loses them at its first interrupt and goes on by messages.

use hypernic_tests::{Card, Lab, Wired, Wiring, torture};
use rig::GuestConfig;

use super::dpdk::{Device, TestPmd, is_content, lan, receives, sends, swaps};

/// Has QEMU say when it takes the mappings of a NIC's pages away, and gives them back.
const TRACE: [&str; 2] = ["-trace", "vfio_region_mmaps_set_enabled"];
const TAKEN: &str = "mmaps enabled: 0";
const GIVEN: &str = "mmaps enabled: 1";

/// Both ways, and no frame takes a register access.
#[test]
#[ignore = "a minute: `make test-long`"]
fn long_dpdks_driver_of_an_82540em_rings_doorbells_in_memory() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let device = Device::Paged("e1000");
    let (daemon, mut peer) = lan(&lab, device);
    let config = TestPmd::guest(&lab).args(TRACE);
    let guest = lab.rig.start(config).unwrap();
    let place = TestPmd::bind(&guest, "8086");
    // A change of the link would interrupt, and the pages be gone.
    let quiet = "--no-lsc-interrupt";
    let pmd = TestPmd::prompt(guest, device, &format!("-a {place}"), quiet, peer.mac());
    let before = daemon.counters().unwrap();
    for lengths in ["64", "64,700,750"] {
        sends(&daemon, &pmd, &mut peer, 30_000, lengths);
    }
    receives(&daemon, &pmd, &mut peer, 6000);
    swaps(&daemon, &pmd, &mut peer, 20_000);
    let grown = daemon.counters().unwrap().since(&before);
    println!("{grown}");
    let of = |name| grown.nic("n0", name);
    assert!(of("doorbells") > 1000, "{grown}");
    // None by message.
    let messages = ["region_writes", "posted_writes"].map(of);
    assert_eq!(messages, [0, 0], "{grown}");
    assert_eq!(of("irq_triggers"), 0, "{grown}");
    pmd.command("port stop 0");
    pmd.command("port start 0");
    swaps(&daemon, &pmd, &mut peer, 5000);
    let messages = pmd.guest.qemu_messages();
    assert!(!messages.contains(TAKEN), "{messages}");
    is_content(&daemon.counters().unwrap(), device);
}

/// Every byte goes on by trapped accesses, down and up and with the driver out and in.
#[test]
#[ignore = "a minute: `make test-long`"]
fn long_the_stock_e1000_driver_goes_on_after_qemu_took_its_pages_away() {
    let wiring = Wiring {
        lines: "doorbell = \"page\"",
        ..Wiring::one(Card::E1000)
    };
    let config = GuestConfig::new("pages").args(TRACE);
    let wired = Wired::of(config, wiring).unwrap_or_else(|why| panic!("{why}"));
    let messages = wired.guest.qemu_messages();
    assert!(messages.contains(TAKEN), "{messages}");
    let before = wired.daemon.counters().unwrap();
    for _ in 0..3 {
        wired.exchange(1500).unwrap();
    }
    let grown = wired.daemon.counters().unwrap().since(&before);
    println!("{grown}");
    let of = |name| grown.nic("n0", name);
    assert_eq!(of("doorbells"), 0, "{grown}");
    let frames = of("tx_frames") + of("rx_frames");
    assert!(frames > 500 && of("region_writes") > 100, "{grown}");
    torture::down_and_up(&wired, 3);
    torture::out_and_in(&wired, 1);
    wired.exchange(1500).unwrap();
    let messages = wired.guest.qemu_messages();
    // It gave them once, when it reset the device at its start.
    let (given, taken) = (messages.rfind(GIVEN), messages.find(TAKEN));
    assert!(given < taken, "QEMU gives them back: {messages}");
    wired.assert_quiet();
}
