//! Down and up, out and in again, while frames keep coming from both ends.

use std::time::Instant;

use hypernic_tests::torture::{PAUSE, down_and_up, out_and_in};
use hypernic_tests::{Wired, guests};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    down_and_up_and_driver_reloads_under_traffic,
}

long_on_every_kernel! {
    the_self_test_passes_while_frames_keep_coming,
    a_random_walk_through_all_settings,
    down_and_up_a_hundred_times_under_traffic,
    the_driver_out_and_in_twenty_times_under_traffic,
}

/// Nothing was lost track of on the way.
fn nothing_leaked(wired: &Wired) {
    let counters = wired.daemon.counters().unwrap();
    for counter in ["rx_bad_ring", "tx_bad_ring", "rx_dma_fault", "tx_dma_fault"] {
        assert_eq!(counters.nic("n0", counter), 0, "{counter}\n{counters}");
    }
    let irqs = wired
        .guest
        .run("grep -c eth /proc/interrupts || true")
        .unwrap();
    assert_eq!(irqs.trim(), "1", "one interrupt handler");
    assert_eq!(
        guests::complaints(&wired.guest).unwrap(),
        Vec::<String>::new()
    );
}

fn down_and_up_and_driver_reloads_under_traffic(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("torture").kernel(kernel)).unwrap();
    down_and_up(&wired, 5);
    out_and_in(&wired, 2);
    nothing_leaked(&wired);
}

/// The five tests of the driver itself, of which one sends frames to itself: those of others are none of its business.
fn the_self_test_passes_while_frames_keep_coming(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("self-test").kernel(kernel)).unwrap();
    let flood = wired.peer.flood(wired.target(None), 1500, PAUSE);
    for test in ["online", "offline", "offline"] {
        let tested = wired.ethtool("-t", test).unwrap();
        assert!(tested.contains("The test result is PASS"), "{tested}");
        assert_eq!(tested.matches("\t 0").count(), 5, "{tested}");
        wired.settled().unwrap();
        wired.exchange(1500).unwrap();
    }
    drop(flood);
    nothing_leaked(&wired);
    wired.assert_quiet();
}

/// Settings that do not go well together are found by trying many, one after the other, on two processors and while
/// frames keep coming.
fn a_random_walk_through_all_settings(kernel: Kernel) {
    const STEPS: usize = 150;
    let mut config = GuestConfig::new("walk").kernel(kernel);
    config.smp = 2;
    let wired = Wired::new(config).unwrap();
    let interface = &wired.interface;
    let flood = wired.peer.flood(wired.target(None), 1500, PAUSE);
    let mut mtu = 1500;
    // The same walk each time: what fails can be tried again.
    let bytes = guests::noise(STEPS * 8);
    let mut dice = bytes
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]) as usize);
    let mut pick = |from: &[&str]| from[dice.next().expect("enough noise") % from.len()].to_owned();
    for step in 0..STEPS {
        let start = Instant::now();
        let kind = pick(&[
            "-K", "-K", "-K", "-K", "-G", "mtu", "mtu", "flags", "down", "cable", "speed", "-A",
            "reload", "-r",
        ]);
        let what = match kind.as_str() {
            "-K" => pick(&[
                "rx on",
                "rx off",
                "tx on",
                "tx off",
                "sg on",
                "sg off",
                "tso on",
                "tso off",
                "gso on",
                "gso off",
                "gro on",
                "gro off",
                "rxvlan on",
                "rxvlan off",
                "rx-fcs on",
                "rx-fcs off",
                "rx-all on",
                "rx-all off",
            ]),
            "-G" => pick(&[
                "rx 80 tx 80",
                "rx 256 tx 256",
                "rx 4096 tx 80",
                "rx 80 tx 4096",
                "rx 4096 tx 4096",
                "rx 2000 tx 1000",
            ]),
            "mtu" => pick(&["1500", "1500", "1504", "2030", "4082", "9000", "16110"]),
            "flags" => pick(&[
                "promisc on",
                "promisc off",
                "allmulticast on",
                "allmulticast off",
            ]),
            "speed" => pick(&[
                "autoneg on advertise 0x2f",
                "autoneg off speed 100 duplex full",
                "autoneg off speed 10 duplex half",
            ]),
            "-A" => pick(&[
                "autoneg off rx on tx on",
                "autoneg off rx off tx off",
                "autoneg on rx on tx on",
            ]),
            _ => pick(&[""]),
        };
        println!("{step}: {kind} {what}");
        let run = |command: &str| wired.guest.sh(command).map(drop);
        match kind.as_str() {
            "-K" | "-G" | "-A" => run(&format!("ethtool {kind} {interface} {what}")).unwrap(),
            "speed" => run(&format!("ethtool -s {interface} {what}")).unwrap(),
            "-r" => run(&format!("ethtool -r {interface}")).unwrap(),
            "flags" => run(&format!("ip link set {interface} {what}")).unwrap(),
            "mtu" => {
                run(&format!("ip link set {interface} mtu {what}")).unwrap();
                mtu = what.parse().unwrap();
            }
            "down" => run(&format!(
                "ip link set {interface} down; ip link set {interface} up"
            ))
            .unwrap(),
            "cable" => {
                wired.peer.pull(0);
                guests::wait_carrier(&wired.guest, interface, false).unwrap();
                wired.peer.insert(0).unwrap();
            }
            _ => {
                wired.reload_driver("").unwrap();
                mtu = 1500;
            }
        }
        wired
            .settled()
            .and_then(|()| wired.exchange(mtu))
            .unwrap_or_else(|e| panic!("step {step}: {kind} {what}: {e}"));
        println!("   {:.1} s", start.elapsed().as_secs_f64());
    }
    drop(flood);
    nothing_leaked(&wired);
    wired.assert_quiet();
}

fn down_and_up_a_hundred_times_under_traffic(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("hundred").kernel(kernel)).unwrap();
    down_and_up(&wired, 100);
    nothing_leaked(&wired);
}

fn the_driver_out_and_in_twenty_times_under_traffic(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("twenty").kernel(kernel)).unwrap();
    out_and_in(&wired, 20);
    nothing_leaked(&wired);
}
