//! `ethtool -G`, `-C` and `-A`, and the MTU, each with traffic checked byte by byte.

use std::time::Instant;

use hypernic_tests::wired::{Card, Wiring, payloads};
use hypernic_tests::{LONG, Result, Wired, peer};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    frames_of_any_length_up_to_the_longest_mtu_go_both_ways,
    rings_and_pause_settings_move_every_byte,
    coalescing_settings_move_every_byte,
}

long_on_every_kernel! {
    speeds_are_negotiated_and_forced,
    interrupt_rates_move_every_byte,
    every_mtu_around_every_buffer_size,
    rings_of_every_size,
    interrupt_rates_of_every_kind,
}

/// Sets the MTU at both ends and moves traffic of every length that means something there.
fn at_mtu(wired: &Wired, mtu: usize) -> Result<()> {
    let start = Instant::now();
    let interface = &wired.interface;
    wired
        .guest
        .run(&format!("ip link set {interface} mtu {mtu}"))?;
    wired.settled()?;
    wired.exchange(mtu)?;
    assert_eq!(wired.peer.received().longest, mtu + 14, "MTU {mtu}");
    println!("MTU {mtu}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn frames_of_any_length_up_to_the_longest_mtu_go_both_ways(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("mtu").kernel(kernel)).unwrap();
    // Ascending, so that the longest frame seen so far is that of this MTU.
    for mtu in [1500, 1501, 2031, 4083, 9000, 16_110] {
        at_mtu(&wired, mtu).unwrap_or_else(|e| panic!("MTU {mtu}: {e}"));
    }
    over_the_limit_is_refused(&wired);
    wired.assert_quiet();
}

fn over_the_limit_is_refused(wired: &Wired) {
    let interface = &wired.interface;
    let refused = wired
        .guest
        .sh(&format!("ip link set {interface} mtu 16111"))
        .unwrap();
    assert!(!refused.ok(), "{}", refused.text);
    wired.exchange(16_110).unwrap();
}

/// Around every size of receive buffer the driver may choose (RCTL.BSIZE: 256 to 16384), less header and check
/// sequence, and with and without room for a tag.
fn every_mtu_around_every_buffer_size(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("mtus").kernel(kernel)).unwrap();
    let mut mtus = vec![
        1500, 1501, 1502, 1503, 1504, 1600, 9000, 12_000, 16_109, 16_110,
    ];
    for buffer in [2048, 3072, 4096, 8192, 16_384_usize] {
        let near = [
            buffer - 24,
            buffer - 22,
            buffer - 18,
            buffer - 14,
            buffer - 4,
            buffer,
        ];
        mtus.extend(near.iter().flat_map(|&n| [n - 1, n, n + 1]));
    }
    mtus.retain(|mtu| *mtu <= 16_110);
    mtus.sort_unstable();
    mtus.dedup();
    for mtu in mtus {
        at_mtu(&wired, mtu).unwrap_or_else(|e| panic!("MTU {mtu}: {e}"));
    }
    over_the_limit_is_refused(&wired);
    wired.assert_quiet();
}

/// Sets the rings' sizes, which the driver rounds up to a multiple of 8.
fn with_rings(wired: &Wired, rx: u32, tx: u32) -> Result<()> {
    let start = Instant::now();
    wired.ethtool("-G", &format!("rx {rx} tx {tx}"))?;
    wired.settled()?;
    let shown = wired.ethtool("-g", "")?;
    let (_, now) = shown.split_once("Current").unwrap_or_default();
    for (name, size) in [("RX", rx), ("TX", tx)] {
        let line = now
            .lines()
            .find_map(|l| l.strip_prefix(&format!("{name}:")));
        let value: u32 = line.unwrap_or_default().trim().parse().unwrap_or(0);
        assert_eq!(value, size.next_multiple_of(8), "{shown}");
    }
    wired.exchange(1500)?;
    println!("-G {rx} {tx}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn rings_and_pause_settings_move_every_byte(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("settings").kernel(kernel)).unwrap();
    for (rx, tx) in [(80, 80), (4096, 4096), (104, 2048)] {
        with_rings(&wired, rx, tx).unwrap_or_else(|e| panic!("-G {rx} {tx}: {e}"));
    }
    for pause in [Pause::Both, Pause::Neither, Pause::Negotiated] {
        with_pause(&wired, pause).unwrap();
    }
    wired.assert_quiet();
}

fn rings_of_every_size(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("rings").kernel(kernel)).unwrap();
    let sizes = [
        80, 81, 88, 96, 120, 128, 200, 256, 504, 512, 1000, 1024, 2040, 2048, 4088, 4096,
    ];
    for size in sizes {
        with_rings(&wired, size, size).unwrap_or_else(|e| panic!("-G {size}: {e}"));
    }
    for (rx, tx) in [(80, 4096), (4096, 80)] {
        with_rings(&wired, rx, tx).unwrap_or_else(|e| panic!("-G {rx} {tx}: {e}"));
        // Long frames want several of a small ring's buffers each.
        at_mtu(&wired, 9000).unwrap();
        wired
            .guest
            .run(&format!("ip link set {} mtu 1500", wired.interface))
            .unwrap();
        wired.settled().unwrap();
    }
    wired.assert_quiet();
}

/// The driver's parameters for moderation, in the chip's units; 1, 3 and 4 are modes in which it adapts the rate.
const MODERATION: [&str; 9] = [
    "InterruptThrottleRate=0",
    "InterruptThrottleRate=1",
    "InterruptThrottleRate=3",
    "InterruptThrottleRate=4",
    "InterruptThrottleRate=100",
    "InterruptThrottleRate=100000",
    "InterruptThrottleRate=0 RxIntDelay=100 RxAbsIntDelay=1000 TxIntDelay=1 TxAbsIntDelay=1",
    "InterruptThrottleRate=8000 RxIntDelay=0 RxAbsIntDelay=0 TxIntDelay=1000 TxAbsIntDelay=2000",
    "InterruptThrottleRate=20000 RxIntDelay=65535 RxAbsIntDelay=200 TxIntDelay=65535 TxAbsIntDelay=100",
];

fn with_moderation(wired: &Wired, parameters: &str) {
    let start = Instant::now();
    wired
        .reload_driver(parameters)
        .and_then(|()| wired.exchange(1500))
        .unwrap_or_else(|e| panic!("{parameters}: {e}"));
    println!("{parameters}: {:.1} s", start.elapsed().as_secs_f64());
}

/// The driver offers `-C` for the 82545 and later only, and says so for this chip; what it would set, its parameters
/// set.
fn interrupt_rates_move_every_byte(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("rates").kernel(kernel)).unwrap();
    let refused = wired
        .guest
        .sh(&format!("ethtool -C {} rx-usecs 125", wired.interface))
        .unwrap();
    assert!(refused.text.contains("not supported"), "{}", refused.text);
    for parameters in [MODERATION[0], MODERATION[5], MODERATION[8]] {
        with_moderation(&wired, parameters);
    }
    wired.assert_quiet();
}

fn interrupt_rates_of_every_kind(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("all rates").kernel(kernel)).unwrap();
    for parameters in MODERATION {
        with_moderation(&wired, parameters);
    }
    wired.assert_quiet();
}

/// In which directions pause frames are used.
enum Pause {
    Both,
    Neither,
    /// What the partner agrees to.
    Negotiated,
}

/// Forced pause settings read back as set; negotiated ones depend on the partner.
fn with_pause(wired: &Wired, pause: Pause) -> Result<()> {
    let (autoneg, both) = match pause {
        Pause::Both => ("off", "on"),
        Pause::Neither => ("off", "off"),
        Pause::Negotiated => ("on", "on"),
    };
    wired.ethtool("-A", &format!("autoneg {autoneg} rx {both} tx {both}"))?;
    wired.settled()?;
    let shown = wired.ethtool("-a", "")?;
    assert!(
        shown.contains(&format!("Autonegotiate:\t{autoneg}\n")),
        "{shown}"
    );
    if !matches!(pause, Pause::Negotiated) {
        assert!(
            shown.contains(&format!("RX:\t\t{both}\nTX:\t\t{both}\n")),
            "{shown}"
        );
    }
    wired.echo(peer::IP)?;
    wired
        .peer
        .ping(wired.target(None), 1500, &payloads(1500, 4000))
}

fn speeds_are_negotiated_and_forced(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("speeds").kernel(kernel)).unwrap();
    for (settings, speed, duplex) in [
        ("autoneg off speed 10 duplex half", "10Mb/s", "Half"),
        ("autoneg off speed 100 duplex full", "100Mb/s", "Full"),
        // Offering one of 10 and 100 at half and full duplex (1, 2, 4, 8), or all and gigabit (20 hexadecimal).
        ("autoneg on advertise 0x04", "100Mb/s", "Half"),
        ("autoneg on advertise 0x02", "10Mb/s", "Full"),
        ("autoneg on advertise 0x2f", "1000Mb/s", "Full"),
    ] {
        let start = Instant::now();
        wired.ethtool("-s", settings).unwrap();
        wired.settled().unwrap();
        let shown = wired.ethtool("", "").unwrap();
        assert!(wired.transmitter_is_on().unwrap());
        for line in [format!("Speed: {speed}"), format!("Duplex: {duplex}")] {
            assert!(shown.contains(&line), "{settings}: {shown}");
        }
        wired.exchange(1500).unwrap();
        println!("{settings}: {:.1} s", start.elapsed().as_secs_f64());
    }
    // Negotiating again is a loss of the link that the driver sees.
    let changes = format!("cat /sys/class/net/{}/carrier_changes", wired.interface);
    let before = wired.guest.run(&changes).unwrap();
    wired.ethtool("-r", "").unwrap();
    wired
        .guest
        .wait_for(&format!("[ $({changes}) -gt {} ]", before.trim()), LONG)
        .unwrap();
    wired.settled().unwrap();
    wired.exchange(1500).unwrap();
    wired.assert_quiet();
}

/// `ethtool -C`, which the driver has for the 82545 and later: 0 to 4 are modes, more is the time between interrupts.
fn coalescing_settings_move_every_byte(kernel: Kernel) {
    let config = GuestConfig::new("coalescing").kernel(kernel);
    let wired = Wired::of(config, Wiring::one(Card::I82545)).unwrap();
    for usecs in [0, 1, 3, 4, 10, 125, 1000, 10_000] {
        let start = Instant::now();
        wired.ethtool("-C", &format!("rx-usecs {usecs}")).unwrap();
        let shown = wired.ethtool("-c", "").unwrap();
        let line = shown.lines().find_map(|l| l.strip_prefix("rx-usecs:"));
        assert_eq!(
            line.unwrap_or_default().trim(),
            usecs.to_string(),
            "{shown}"
        );
        wired
            .exchange(1500)
            .unwrap_or_else(|e| panic!("-C {usecs}: {e}\n{}", wired.diagnosis()));
        println!("-C {usecs}: {:.1} s", start.elapsed().as_secs_f64());
    }
    for refused in ["rx-usecs 5", "rx-usecs 10001"] {
        let command = format!("ethtool -C {} {refused}", wired.interface);
        assert!(!wired.guest.sh(&command).unwrap().ok(), "{refused}");
    }
    wired.assert_quiet();
}
