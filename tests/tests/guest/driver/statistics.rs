//! `ethtool -S` equals what was sent and received.

use std::time::Duration;

use hypernic_tests::peer::{MAC, udp};
use hypernic_tests::{Result, Wired, guests, peer};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    received_frames_are_counted_to_the_byte,
    checksum_verdicts_are_counted_one_by_one,
    sent_frames_are_counted_to_the_byte,
    segments_are_counted_as_they_are_on_the_wire,
    what_a_stopped_guest_misses_is_counted,
    what_a_stopped_guest_cannot_take_waits_on_a_cable_of_its_own,
}

/// What `ethtool -S` may show other than zero on a good link, here in the order in which it is compared.
const RECEIVED: [&str; 5] = [
    "rx_packets",
    "rx_bytes",
    "rx_long_byte_count",
    "rx_broadcast",
    "rx_multicast",
];
const SENT: [&str; 4] = ["tx_packets", "tx_bytes", "tx_broadcast", "tx_multicast"];

/// A guest that says nothing of its own.
fn silent(kernel: Kernel, name: &str) -> Wired {
    silenced(Wired::bare(GuestConfig::new(name).kernel(kernel), &["n0"]).unwrap())
}

fn silenced(wired: Wired) -> Wired {
    let interface = &wired.interface;
    wired
        .guest
        .run(&format!(
            "echo 1 > /proc/sys/net/ipv6/conf/{interface}/disable_ipv6; ip link set {interface} up"
        ))
        .unwrap();
    guests::wait_carrier(&wired.guest, interface, true).unwrap();
    wired
}

/// Waits until the driver has received this many frames in all.
fn received(wired: &Wired, frames: u64) -> Result<()> {
    let interface = &wired.interface;
    let file = format!("/sys/class/net/{interface}/statistics/rx_packets");
    let condition = format!("[ \"$(cat {file})\" -ge {frames} ]");
    Ok(wired.guest.wait_for(&condition, hypernic_tests::LONG)?)
}

fn received_frames_are_counted_to_the_byte(kernel: Kernel) {
    let wired = silent(kernel, "received");
    let target = wired.target(None);
    let before = wired.statistics().unwrap();
    let start = wired.peer.sent();
    let noise = guests::noise(1500);
    let group = [0x01, 0x00, 0x5e, 0x00, 0x00, 0x01];
    let mut frames = 0;
    for length in [0, 17, 18, 19, 81, 82, 209, 210, 465, 466, 977, 978, 1472] {
        for (to, count) in [(wired.mac, 3), ([0xff; 6], 2), (group, 1)] {
            let mut frame = udp(target, &noise[..length]);
            frame[..6].copy_from_slice(&to);
            for _ in 0..count {
                wired.peer.send(frame.clone());
                frames += 1;
            }
        }
    }
    received(&wired, frames).unwrap();
    let sent = wired.peer.sent().since(&start);
    assert_eq!(sent.frames, frames);
    // None of these passes the filters: not counted at all.
    let mut stranger = udp(target, &noise[..100]);
    stranger[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 0x99]);
    // Longer than 1522 bytes: counted as too long only. So the last one, of just that length, is the one to wait for.
    let mut long = udp(target, &noise[..1400]);
    long.resize(1519, 0);
    let mut longest = udp(target, &noise[..1400]);
    longest.resize(1518, 0);
    let mut unknown = udp(target, &noise[..100]);
    unknown[..6].copy_from_slice(&[0x01, 0x00, 0x5e, 0x7f, 0, 1]);
    for frame in [&stranger, &unknown, &long, &long, &longest] {
        wired.peer.send(frame.clone());
    }
    received(&wired, frames + 1).unwrap();

    let after = wired.statistics().unwrap();
    let grown = |name| after.grown(&before, name);
    let bytes = sent.bytes + 1522;
    assert_eq!(
        RECEIVED.map(grown),
        [frames + 1, bytes, bytes, sent.broadcast, sent.multicast]
    );
    let errors = ["rx_length_errors", "rx_long_length_errors"];
    assert_eq!(errors.map(grown), [2, 2]);
    // The driver starts with the chip's checksums on, whatever `ethtool -k` says until it is asked to change them.
    assert_eq!(grown("rx_csum_offload_good"), frames + 1);
    assert_eq!(grown("multicast"), sent.multicast);
    let known = [
        &RECEIVED[..],
        &SENT,
        &errors,
        &["rx_csum_offload_good", "multicast"],
    ]
    .concat();
    assert_eq!(after.others(&known), Vec::<String>::new());
    assert_eq!(SENT.map(grown), [0; 4], "a silent guest");
    wired.assert_quiet();
}

fn checksum_verdicts_are_counted_one_by_one(kernel: Kernel) {
    let wired = silent(kernel, "verdicts");
    wired.ethtool("-K", "rx on").unwrap();
    guests::wait_carrier(&wired.guest, &wired.interface, true).unwrap();
    let target = wired.target(None);
    let noise = guests::noise(1400);
    let (ip, l4) = (14, 34);
    let good = udp(target, &noise[..300]);
    let changed = |at: usize| {
        let mut frame = good.clone();
        frame[at] ^= 0x10;
        frame
    };
    let mut no_checksum = good.clone();
    no_checksum[l4 + 6..l4 + 8].fill(0);
    let parts = peer::fragments(target, peer::UDP, 7, &good[l4..], 200);
    let other = [&MAC[..], &wired.mac, &[0x88, 0xb5], &noise[..60]].concat();
    let other = [&other[6..12], &other[..6], &other[12..]].concat();
    let before = wired.statistics().unwrap();
    let base: u64 = wired
        .guest
        .run(&format!(
            "cat /sys/class/net/{}/statistics/rx_packets",
            wired.interface
        ))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let mut count = 0;
    let mut send = |frame: &Vec<u8>, times: usize| {
        for _ in 0..times {
            wired.peer.send(frame.clone());
            count += 1;
        }
    };
    send(&good, 5);
    // A wrong byte in the payload, the UDP header's checksum, the IP header's checksum.
    send(&changed(l4 + 100), 3);
    send(&changed(l4 + 6), 2);
    send(&changed(ip + 10), 4);
    // Nothing to be said of these.
    send(&no_checksum, 6);
    for part in &parts {
        send(part, 1);
    }
    send(&other, 1);
    received(&wired, base + count).unwrap();
    let after = wired.statistics().unwrap();
    let grown = |name| after.grown(&before, name);
    // The driver asks the chip for the verdict on TCP and UDP alone: a frame whose IP header alone is wrong is good
    // to it, and the kernel finds out by itself.
    assert_eq!(grown("rx_packets"), count);
    assert_eq!(grown("rx_csum_offload_errors"), 5);
    assert_eq!(grown("rx_csum_offload_good"), 5 + 4);
    assert_eq!(grown("rx_errors"), 0);
}

fn sent_frames_are_counted_to_the_byte(kernel: Kernel) {
    let wired = silent(kernel, "sent");
    let interface = &wired.interface;
    wired.guest.run("mp pktgen").unwrap();
    let before = wired.statistics().unwrap();
    let start = wired.peer.received();
    let mut frames = 0;
    // pktgen's sizes are without check sequence; 7 of each, their checksums left to the chip and verified by the peer.
    for (to, sizes) in [
        (
            "52:54:00:fe:ed:01",
            "60 61 123 124 251 252 507 508 1019 1020 1514",
        ),
        ("ff:ff:ff:ff:ff:ff", "60 1514"),
        ("01:00:5e:01:02:03", "64 700"),
    ] {
        let script = format!(
            "cd /proc/net/pktgen; echo rem_device_all > kpktgend_0; echo add_device {interface} > kpktgend_0; \
             p() {{ echo \"$1\" > {interface}; }}; \
             p 'count 7'; p 'dst 10.9.0.1'; p 'dst_mac {to}'; p 'flag UDPCSUM'; \
             for s in {sizes}; do p \"pkt_size $s\"; echo start > pgctrl; done"
        );
        wired.guest.run(&script).unwrap();
        frames += 7 * sizes.split(' ').count() as u64;
    }
    wired
        .peer
        .wait_received("all frames are out", |r| r.since(&start).frames >= frames)
        .unwrap();
    let seen = wired.peer.received().since(&start);
    assert_eq!(seen.frames, frames);
    assert_eq!((seen.broadcast, seen.multicast), (14, 14));
    assert_eq!(seen.by_size, [14, 21, 14, 14, 21, 21], "{seen:?}");
    let after = wired.statistics().unwrap();
    let grown = |name| after.grown(&before, name);
    assert_eq!(
        SENT.map(grown),
        [frames, seen.bytes, seen.broadcast, seen.multicast]
    );
    assert_eq!(RECEIVED.map(grown), [0; 5]);
    let known = [&RECEIVED[..], &SENT].concat();
    assert_eq!(after.others(&known), Vec::<String>::new());
    wired.assert_quiet();
}

fn segments_are_counted_as_they_are_on_the_wire(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("segments").kernel(kernel)).unwrap();
    let off = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", wired.interface);
    wired.guest.run(&format!("echo 1 > {off}")).unwrap();
    // A quiet moment before and after: nothing passes while the guest is asked, nor is anything still under way.
    let quiet = || loop {
        let then = (wired.peer.sent(), wired.peer.received());
        let statistics = wired.statistics().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let now = (wired.peer.sent(), wired.peer.received());
        if then == now {
            return (now, statistics);
        }
    };
    let segmented = || wired.daemon.counters().unwrap().nic("n0", "tx_tso_frames");
    let (start, before) = quiet();
    let contexts = segmented();
    for _ in 0..3 {
        wired.echo(peer::IP).unwrap();
    }
    let (end, after) = quiet();
    let contexts = segmented() - contexts;
    let (sent, seen) = (end.0.since(&start.0), end.1.since(&start.1));
    let grown = |name| after.grown(&before, name);
    assert!(contexts > 0 && seen.tcp_data > contexts);
    assert_eq!(grown("tx_tcp_seg_good"), contexts);
    assert_eq!(grown("tx_tcp_seg_failed"), 0);
    assert_eq!(
        SENT.map(grown),
        [seen.frames, seen.bytes, seen.broadcast, seen.multicast]
    );
    // A retransmission may have found the ring full; then it is counted as that, and here it is not.
    let lost = grown("rx_missed_errors");
    assert_eq!(grown("rx_packets") + lost, sent.frames);
    if lost == 0 {
        assert_eq!(grown("rx_bytes"), sent.bytes);
    }
    wired.assert_quiet();
}

/// More frames than a ring of 256 and a FIFO of 48 KiB hold, to a guest whose processors stand still.
fn overrun(wired: &Wired) -> [u64; 4] {
    const FRAMES: u64 = 1000;
    let before = wired.statistics().unwrap();
    let start = wired.peer.sent();
    wired.guest.qmp("stop", serde_json::json!({})).unwrap();
    let noise = guests::noise(1000);
    for n in 0..FRAMES {
        let mut payload = noise.clone();
        payload[..8].copy_from_slice(&n.to_be_bytes());
        wired.peer.send(udp(wired.target(None), &payload));
    }
    // Whatever has no place by then has been given up, or waits.
    let came = |c: &hypernic_tests::Counters| {
        c.total("port", "frames_in") == FRAMES || c.nic("n0", "rx_back_pressure") > 0
    };
    wired.daemon.wait_counters("the NIC is full", came).unwrap();
    wired.guest.qmp("cont", serde_json::json!({})).unwrap();
    let all = |c: &hypernic_tests::Counters| c.total("port", "frames_in") == FRAMES;
    wired.daemon.wait_counters("all frames came", all).unwrap();
    let sent = wired.peer.sent().since(&start);
    assert_eq!(sent.frames, FRAMES);
    let deadline = std::time::Instant::now() + hypernic_tests::LONG;
    loop {
        let after = wired.statistics().unwrap();
        let grown = |name| after.grown(&before, name);
        let (packets, missed) = (grown("rx_packets"), grown("rx_missed_errors"));
        if packets + missed == FRAMES {
            assert_eq!(grown("rx_bytes"), packets * (sent.bytes / FRAMES));
            return [
                packets,
                missed,
                grown("rx_no_buffer_count"),
                grown("rx_errors"),
            ];
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{packets} received and {missed} missed of {FRAMES}\n{}",
            wired.daemon.counters().unwrap()
        );
    }
}

fn what_a_stopped_guest_misses_is_counted(kernel: Kernel) {
    let config = GuestConfig::new("missed").kernel(kernel);
    let wired = silenced(Wired::switched(config).unwrap());
    let [packets, missed, no_buffer, errors] = overrun(&wired);
    println!("{packets} received, {missed} missed, {no_buffer} found no buffer");
    assert!(packets >= 255 + 40 && missed > 0 && no_buffer > 0);
    assert_eq!(errors, 0);
    let counters = wired.daemon.counters().unwrap();
    let reasons = ["drop_no_room", "drop_flood_no_room"];
    let dropped: u64 = reasons
        .map(|r| counters.total("switch-port", r))
        .iter()
        .sum();
    assert_eq!(missed, dropped, "{counters}");
    wired.assert_quiet();
}

fn what_a_stopped_guest_cannot_take_waits_on_a_cable_of_its_own(kernel: Kernel) {
    let wired = silent(kernel, "waits");
    let [packets, missed, no_buffer, errors] = overrun(&wired);
    assert_eq!((packets, missed, errors), (1000, 0, 0));
    assert!(no_buffer > 0);
    wired.assert_quiet();
}
