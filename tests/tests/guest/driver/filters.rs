//! Which frames reach the guest: multicast joins, further addresses, promiscuous modes.

use hypernic_tests::peer::udp;
use hypernic_tests::{Result, Wired, guests};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    multicast_joins_let_through_what_was_joined,
    promiscuous_modes_and_further_addresses,
}

/// Sends one frame to each address and says how many the NIC let through.
fn passed(wired: &Wired, to: &[[u8; 6]]) -> Result<u64> {
    let frames: Vec<_> = to
        .iter()
        .map(|mac| {
            let mut frame = udp(wired.target(None), b"filtered?");
            frame[..6].copy_from_slice(mac);
            frame
        })
        .collect();
    wired.passed(&frames)
}

/// A guest that says little of its own, so that nothing else is answered.
fn quiet(kernel: Kernel, name: &str) -> Wired {
    let wired = Wired::new(GuestConfig::new(name).kernel(kernel)).unwrap();
    wired.hush().unwrap();
    wired
}

fn words(mac: &[u8; 6]) -> String {
    let bytes: Vec<_> = mac.iter().map(|b| format!("{b:02x}")).collect();
    bytes.join(":")
}

fn join(wired: &Wired, verb: &str, groups: &[[u8; 6]]) {
    let interface = &wired.interface;
    let commands: Vec<_> = groups
        .iter()
        .map(|g| format!("ip maddr {verb} {} dev {interface}", words(g)))
        .collect();
    wired.guest.run(&commands.join(" && ")).unwrap();
}

/// Groups whose place in the chip's table of 4096 bits is the same (bits 47:36 of the address), but the address not.
fn alike(count: u8) -> Vec<[u8; 6]> {
    (0..count)
        .map(|n| [0x33, 0x11, 0x22, n, 0xa7, 0x5c])
        .collect()
}

/// Groups with a place each.
fn different(count: u8) -> Vec<[u8; 6]> {
    (0..count)
        .map(|n| [0x33, 0x11, 0x22, 0x44, 0xb0, n])
        .collect()
}

fn multicast_joins_let_through_what_was_joined(kernel: Kernel) {
    let wired = quiet(kernel, "groups");
    let groups = different(60);
    let (mine, others) = groups.split_at(40);
    assert_eq!(passed(&wired, &groups).unwrap(), 0);
    // A few groups are filtered exactly, by address.
    join(&wired, "add", &mine[..5]);
    assert_eq!(passed(&wired, mine).unwrap(), 5);
    // More go into the table.
    join(&wired, "add", &mine[5..]);
    assert_eq!(passed(&wired, mine).unwrap(), 40);
    assert_eq!(passed(&wired, others).unwrap(), 0);
    join(&wired, "del", &mine[10..]);
    assert_eq!(passed(&wired, &groups).unwrap(), 10);
    join(&wired, "del", &mine[..10]);
    assert_eq!(passed(&wired, &groups).unwrap(), 0);
    // The table knows only twelve bits of an address: once it is needed, strangers with the same bits pass.
    let alike = alike(41);
    let (mine, stranger) = alike.split_at(40);
    join(&wired, "add", &mine[..5]);
    assert_eq!(passed(&wired, stranger).unwrap(), 0);
    join(&wired, "add", &mine[5..]);
    assert_eq!(passed(&wired, &alike).unwrap(), 41);
    join(&wired, "del", mine);
    assert_eq!(passed(&wired, &alike).unwrap(), 0);

    // A real group, joined by the kernel and answered.
    let interface = &wired.interface;
    let reports = wired.peer.record();
    wired
        .guest
        .run(&format!(
            "echo 0 > /proc/sys/net/ipv4/icmp_echo_ignore_broadcasts; \
             ip addr add 239.1.2.3/32 dev {interface} autojoin"
        ))
        .unwrap();
    let group = [0x01, 0x00, 0x5e, 0x01, 0x02, 0x03];
    let report = reports
        .iter()
        .find(|frame| frame[12..14] == [8, 0] && frame[23] == 2);
    assert!(report.is_some(), "an IGMP report");
    assert_eq!(passed(&wired, &[group]).unwrap(), 1);
    wired
        .guest
        .run(&format!("ip addr del 239.1.2.3/32 dev {interface}"))
        .unwrap();
    assert_eq!(passed(&wired, &[group]).unwrap(), 0);
    wired.assert_quiet();
}

fn promiscuous_modes_and_further_addresses(kernel: Kernel) {
    let wired = quiet(kernel, "promiscuous");
    let interface = &wired.interface;
    let set = |words: &str| {
        wired
            .guest
            .run(&format!("ip link set {interface} {words}"))
            .unwrap()
    };
    let strangers: Vec<[u8; 6]> = (0..20).map(|n| [0x52, 0x54, 1, 2, 3, n]).collect();
    let groups = different(20);
    let both = |wired: &Wired| {
        (
            passed(wired, &strangers).unwrap(),
            passed(wired, &groups).unwrap(),
        )
    };
    assert_eq!(both(&wired), (0, 0));
    set("promisc on");
    assert_eq!(both(&wired), (20, 20));
    set("allmulticast on");
    set("promisc off");
    assert_eq!(both(&wired), (0, 20));
    set("allmulticast off");
    assert_eq!(both(&wired), (0, 0));
    // As a packet capture sets it.
    let capture = wired
        .guest
        .spawn(&format!(
            "tcpdump -Z root -n -i {interface} -c 20 -w /tmp/capture ether src 52:54:00:fe:ed:01 and udp"
        ))
        .unwrap();
    let flags = format!("grep -q 0x11 /sys/class/net/{interface}/flags");
    wired.guest.wait_for(&flags, hypernic_tests::LONG).unwrap();
    assert_eq!(passed(&wired, &strangers).unwrap(), 20);
    let captured = wired.guest.finish(&capture, hypernic_tests::LONG).unwrap();
    assert!(captured.ok(), "{}", captured.text);
    let file = wired.guest.pull_file("/tmp/capture").unwrap();
    for stranger in &strangers {
        assert!(
            file.windows(6).any(|w| w == stranger),
            "{stranger:02x?} is not in the capture"
        );
    }
    assert_eq!(both(&wired), (0, 0));
    // Further station addresses go into the exact filters; more than there are make it promiscuous.
    let fdb = |verb: &str, macs: &[[u8; 6]]| {
        for mac in macs {
            let command = format!("bridge fdb {verb} {} dev {interface} self", words(mac));
            wired.guest.run(&command).unwrap();
        }
    };
    fdb("add", &strangers[..3]);
    assert_eq!(both(&wired), (3, 0));
    fdb("add", &strangers[3..17]);
    assert_eq!(both(&wired), (20, 0));
    fdb("del", &strangers[3..17]);
    assert_eq!(both(&wired), (3, 0));
    fdb("del", &strangers[..3]);
    assert_eq!(both(&wired), (0, 0));
    // Another address altogether.
    set("address 52:54:00:00:11:22");
    let moved = [0x52, 0x54, 0, 0, 0x11, 0x22];
    let target = hypernic_tests::peer::Target {
        mac: moved,
        ..wired.target(None)
    };
    let ping = || {
        wired
            .peer
            .ping(target, 1500, &[guests::noise(500)])
            .unwrap()
    };
    // It forgets its neighbours with its address, and asks for them again.
    ping();
    let before = wired.statistics().unwrap();
    let mut old = udp(target, b"to the old address");
    old[..6].copy_from_slice(&wired.mac);
    wired.peer.send(old);
    ping();
    let after = wired.statistics().unwrap();
    assert_eq!(after.grown(&before, "rx_packets"), 1);
    wired.assert_quiet();
}
