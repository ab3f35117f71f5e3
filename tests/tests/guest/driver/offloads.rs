//! `ethtool -K`: every offload on and off, with traffic checked byte by byte at each setting.

use std::time::Instant;

use hypernic_tests::peer::udp;
use hypernic_tests::wired::payloads;
use hypernic_tests::{LONG, Wired, guests, offloads};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    every_offload_on_and_off_moves_every_byte,
    check_sequences_that_are_kept_are_right,
}

long_on_every_kernel! {
    a_hundred_resets_by_a_change_of_offloads,
    every_mixture_of_offloads_moves_every_byte,
}

fn every_offload_on_and_off_moves_every_byte(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("offloads").kernel(kernel)).unwrap();
    let needed = ["rx", "tx", "sg", "tso", "rxvlan", "rx-fcs", "rx-all"];
    offloads::each_on_and_off(&wired, &needed, |name, on| {
        let before = wired.statistics()?;
        wired.exchange(1500)?;
        if name == "rx" {
            let good = wired.statistics()?.grown(&before, "rx_csum_offload_good");
            assert_eq!(good > 0, on, "{name} {on}");
        }
        Ok(())
    });
    let statistics = wired.statistics().unwrap();
    for error in ["rx_errors", "tx_errors", "rx_csum_offload_errors"] {
        assert_eq!(statistics.get(error), 0, "{error}");
    }
    assert_eq!(wired.peer.received().longest, 1514);
    wired.assert_quiet();
}

/// `rx-fcs on` leaves the check sequence in the packets, for programs that capture them.
fn check_sequences_that_are_kept_are_right(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("fcs").kernel(kernel)).unwrap();
    let interface = &wired.interface;
    wired.ethtool("-K", "rx-fcs on").unwrap();
    wired.settled().unwrap();
    let noise = guests::noise(1472);
    let frames: Vec<_> = [0, 1, 18, 19, 200, 201, 202, 203, 1471, 1472]
        .iter()
        .map(|length| udp(wired.target(None), &noise[..*length]))
        .collect();
    let capture = wired
        .guest
        .spawn(&format!(
            "tcpdump -Z root -U -n -i {interface} -c {} -w /tmp/capture udp and dst port 9",
            frames.len()
        ))
        .unwrap();
    let flags = format!("grep -q 0x11 /sys/class/net/{interface}/flags");
    wired.guest.wait_for(&flags, LONG).unwrap();
    // The interface listens before the capture's filter is in place.
    wired.guest.wait_for("[ -s /tmp/capture ]", LONG).unwrap();
    for frame in &frames {
        wired.peer.send(frame.clone());
    }
    let captured = wired.guest.finish(&capture, LONG).unwrap();
    assert!(captured.ok(), "{}", captured.text);
    let file = wired.guest.pull_file("/tmp/capture").unwrap();
    let mut rest = &file[24..];
    for frame in &frames {
        let (head, body) = rest.split_at(16);
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let (packet, after) = body.split_at(length);
        rest = after;
        let mut expected = frame.clone();
        expected.resize(frame.len().max(60), 0);
        let fcs = crc32fast::hash(&expected);
        expected.extend_from_slice(&fcs.to_le_bytes());
        assert_eq!(packet, expected, "{} bytes", frame.len());
    }
    assert!(rest.is_empty());
}

/// All 128 mixtures of what matters, without and with a tag, at two MTUs.
fn every_mixture_of_offloads_moves_every_byte(kernel: Kernel) {
    const NAMES: [&str; 7] = ["rx", "tx", "sg", "tso", "gso", "gro", "rxvlan"];
    let wired = Wired::new(GuestConfig::new("mixtures").kernel(kernel)).unwrap();
    let interface = &wired.interface;
    wired.peer.join_vlan(5);
    wired
        .guest
        .run(&format!(
            "mp 8021q && ip link add link {interface} name v5 type vlan id 5 && \
             ip addr add 10.9.5.2/24 dev v5 && ip link set v5 up"
        ))
        .unwrap();
    let start = Instant::now();
    for mtu in [1500, 9000] {
        let change = format!("ip link set {interface} mtu {mtu}; ip link set v5 mtu {mtu}");
        wired.guest.run(&change).unwrap();
        for mixture in 0..1_u32 << NAMES.len() {
            // One changes at a time (Gray's order), which spares most of the resets.
            let mixture = mixture ^ (mixture >> 1);
            let words: Vec<_> = (0..)
                .zip(NAMES)
                .map(|(bit, name)| {
                    let on = mixture >> bit & 1 == 1;
                    format!("{name} {}", if on { "on" } else { "off" })
                })
                .collect();
            let words = words.join(" ");
            // ethtool reports, and does not refuse, what depends on a feature that is off.
            let set = format!("ethtool -K {interface} {words}");
            wired.guest.sh(&set).unwrap();
            wired
                .settled()
                .and_then(|()| wired.exchange(mtu))
                .and_then(|()| wired.echo("10.9.5.1"))
                .and_then(|()| {
                    let lengths = payloads(mtu, 4000);
                    wired.peer.ping(wired.target(Some(5)), mtu, &lengths)
                })
                .unwrap_or_else(|e| panic!("MTU {mtu}, {words}: {e}"));
        }
        println!("MTU {mtu}: {:.1} s", start.elapsed().as_secs_f64());
    }
    wired.assert_quiet();
}

/// The driver resets the chip to change what it does with receive checksums, and has the link negotiated again.
fn a_hundred_resets_by_a_change_of_offloads(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("resets").kernel(kernel)).unwrap();
    for round in 0..100 {
        offloads::set(&wired, "rx", round % 2 == 0)
            .unwrap_or_else(|e| panic!("round {round}: {e}"));
        wired
            .exchange(1500)
            .unwrap_or_else(|e| panic!("round {round}: {e}\n{}", wired.diagnosis()));
    }
    wired.assert_quiet();
}
