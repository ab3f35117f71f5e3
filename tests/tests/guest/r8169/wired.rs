//! With the test at the other end of the cable: it looks at every frame, and compares every byte that goes through TCP over
//! IPv4 and IPv6, both ways.

use hypernic_tests::{Card, Wired, Wiring, offloads, peer};
use rig::{GuestConfig, Kernel};

fn wired(card: Card, kernel: Kernel) -> Wired {
    let config = GuestConfig::new("wired").kernel(kernel);
    Wired::of(config, Wiring::one(card)).unwrap()
}

pub(super) fn each_offload(card: Card, kernel: Kernel) {
    let wired = wired(card, kernel);
    // The driver's own choice is neither scatter-gather nor segmentation.
    wired.ethtool("-K", "sg on tso on").unwrap();
    let needed = ["rx", "tx", "sg", "tso", "rxvlan"];
    offloads::each_on_and_off(&wired, &needed, |_, _| wired.exchange(1500));
    super::is_blameless(&wired.daemon.counters().unwrap());
    wired.assert_quiet();
}

#[test]
fn each_offload_moves_every_byte_of_ipv4_and_ipv6() {
    each_offload(Card::R8169, Kernel::Stable);
}

#[test]
#[ignore = "long: make test-long"]
fn long_each_offload_moves_every_byte_of_ipv4_and_ipv6_on_an_rtl8168h() {
    each_offload(Card::R8168H, Kernel::Stable);
}

/// Large packets of each family go by themselves, and none when both are off.
#[test]
#[ignore = "long: make test-long"]
fn long_ipv6_is_segmented_by_the_nic_as_ipv4_is() {
    for card in [Card::R8169, Card::R8168H] {
        let wired = wired(card, Kernel::Stable);
        let large = |address: &str| {
            let before = wired.daemon.counters().unwrap();
            wired.echo(address).unwrap();
            let grown = wired.daemon.counters().unwrap().since(&before);
            grown.nic("n0", "tx_tso_frames")
        };
        for (v4, v6) in [(true, true), (true, false), (false, true), (false, false)] {
            let word = |on: bool| if on { "on" } else { "off" };
            let change = format!(
                "tx on sg on tx-tcp-segmentation {} tx-tcp6-segmentation {}",
                word(v4),
                word(v6)
            );
            wired.ethtool("-K", &change).unwrap();
            wired.settled().unwrap();
            let sent = [peer::IP, peer::IP6].map(large);
            assert_eq!(sent.map(|n| n > 0), [v4, v6], "{change}: {sent:?}");
        }
        wired.no_faults().unwrap();
        super::is_blameless(&wired.daemon.counters().unwrap());
        wired.assert_quiet();
    }
}
