//! Sleep and wake-up of the stock driver.
//!
//! PME is a message between devices that no VMM passes on for a device of another process. So the guest's own clock ends its
//! sleep, or its poll of PME's status does, and the NIC's counter says what would have woken it.

use std::time::{Duration, Instant};

use hypernic_tests::{Card, LONG, Wired, Wiring, guests, peer};
use rig::{GuestConfig, Kernel};

const CARDS: [Card; 2] = [Card::R8169, Card::R8168H];

fn wired(card: Card, kernel: Kernel) -> Wired {
    let config = GuestConfig::new("power").kernel(kernel);
    Wired::of(config, Wiring::one(card)).unwrap()
}

fn woken(wired: &Wired) -> u64 {
    wired.daemon.counters().unwrap().nic("n0", "wake_ups")
}

/// Six bytes of ones and sixteen times the address, to all, in a datagram as `etherwake` sends it.
fn magic(wired: &Wired) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(peer::MAC);
    frame.extend([0x08, 0x42]);
    frame.extend([0xff; 6]);
    (0..16).for_each(|_| frame.extend(wired.mac));
    frame
}

/// Has the guest go through all of a suspend and stay there for some seconds, with all devices asleep.
fn suspend(wired: &Wired, meanwhile: impl FnOnce()) {
    let job = wired
        .guest
        .spawn("echo platform > /sys/power/pm_test && echo freeze > /sys/power/state; echo $?")
        .unwrap();
    meanwhile();
    let done = wired.guest.finish(&job, LONG).unwrap();
    assert_eq!(done.text.trim(), "0", "{}", done.text);
}

/// As long as `show` is repeated, until the NIC has woken its guest; it is shown for the whole of the guest's sleep.
fn until_woken(wired: &Wired, show: impl Fn()) -> bool {
    let start = Instant::now();
    while woken(wired) == 0 {
        if start.elapsed() > Duration::from_secs(12) {
            return false;
        }
        show();
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

#[test]
#[ignore = "long: make test-long"]
fn long_it_suspends_and_resumes_and_a_magic_packet_wakes_if_it_was_asked_for() {
    suspends_and_wakes(Kernel::Stable);
}

pub(super) fn suspends_and_wakes(kernel: Kernel) {
    for card in CARDS {
        let wired = wired(card, kernel);
        let told = wired.ethtool("", "").unwrap();
        assert!(told.contains("Supports Wake-on: pumbg"), "{told}");
        for (wol, want) in [("d", false), ("g", true)] {
            wired.ethtool("-s", &format!("wol {wol}")).unwrap();
            let told = wired.ethtool("", "").unwrap();
            assert!(told.contains(&format!("Wake-on: {wol}")), "{told}");
            suspend(&wired, || {
                let frame = magic(&wired);
                let woke = until_woken(&wired, || wired.peer.send(frame.clone()));
                assert_eq!(woke, want, "wol {wol}");
            });
            wired.settled().unwrap();
            wired.exchange(1500).unwrap();
        }
        super::is_blameless(&wired.daemon.counters().unwrap());
        assert_eq!(
            guests::complaints(&wired.guest).unwrap(),
            Vec::<String>::new()
        );
    }
}

/// The driver lets a NIC without a link sleep after ten seconds, and wants to be woken when the link comes back.
#[test]
fn a_link_that_comes_back_wakes_a_nic_that_sleeps_without_one() {
    is_woken_by_the_link(Kernel::Stable);
}

pub(super) fn is_woken_by_the_link(kernel: Kernel) {
    let wired = wired(Card::R8169, kernel);
    let device = format!("/sys/class/net/{}/device/power", wired.interface);
    wired
        .guest
        .run(&format!("echo auto > {device}/control"))
        .unwrap();
    wired.peer.pull(0);
    guests::wait_carrier(&wired.guest, &wired.interface, false).unwrap();
    let asleep = format!("grep -q suspended {device}/runtime_status");
    wired.guest.wait_for(&asleep, LONG).unwrap();
    assert_eq!(woken(&wired), 0);
    wired.peer.insert(0).unwrap();
    guests::wait_carrier(&wired.guest, &wired.interface, true).unwrap();
    assert_eq!(woken(&wired), 1);
    wired.settled().unwrap();
    wired.exchange(1500).unwrap();
    super::is_blameless(&wired.daemon.counters().unwrap());
}
