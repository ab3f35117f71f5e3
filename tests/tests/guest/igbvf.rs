//! Stock Linux on virtual functions of an 82576: its igbvf driver takes them for what they are, with no
//! physical function in sight.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::peer::{self, Target, tagged, udp};
use hypernic_tests::{
    Card, Counters, Holdings, LONG, Lab, Launch, Wired, Wiring, mac, offloads, torture, wired,
};
use rig::{Guest, GuestConfig};

const MACS: [&str; 2] = ["52:54:00:76:00:0a", "52:54:00:76:00:0b"];

/// A chip with two VFs, whose wire is the user network.
fn config(lab: &Lab) -> PathBuf {
    let sockets = lab.path("vf{}.sock");
    let mut toml = format!(
        "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = {sockets:?}\nport = \"user\"\n"
    );
    for (index, mac) in MACS.iter().enumerate() {
        toml += &format!("[[nic.vf]]\nindex = {index}\nmac = \"{mac}\"\n");
    }
    let file = lab.path("host.toml");
    std::fs::write(&file, toml).expect("configuration");
    file
}

/// The interface of the second VF in a namespace of its own, so that the kernel does not shorten the
/// way between the two.
fn part(guest: &Guest, interface: &str) {
    guest
        .run(&format!(
            "mkdir -p /run/netns; ip netns add other; ip link set {interface} netns other; \
             ip netns exec other ip addr add 10.9.0.2/24 dev {interface}; \
             ip netns exec other ip link set {interface} up"
        ))
        .unwrap();
}

#[test]
fn the_stock_vf_driver_gets_its_address_and_moves_traffic_out_and_to_its_neighbour() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let daemon = Launch::new()
        .unwrap()
        .arg("serve")
        .arg(config(&lab))
        .start()
        .unwrap();
    let guest = GuestConfig::new("igbvf")
        .nic(lab.nic("vf0"))
        .nic(lab.nic("vf1"));
    let guest = lab.rig.start(guest).unwrap();
    guest.run("mp igbvf").unwrap();
    // By the mailbox: nothing else says these addresses.
    let [a, b] = MACS.map(|mac| guest.interface(mac, LONG).unwrap());
    let id = guest.run(&format!("cat /sys/class/net/{a}/device/device"));
    assert_eq!(id.unwrap().trim(), "0x10ca");
    guests::dhcp(&guest, &a).unwrap();
    guests::ping_all(&guest, GATEWAY, 5).unwrap();
    guests::round_trip(&guest, &guests::noise(300_000)).unwrap();

    // From one to the other, inside the chip.
    part(&guest, &b);
    guest
        .run(&format!("ip addr add 10.9.0.1/24 dev {a}"))
        .unwrap();
    guest
        .wait_for(
            &format!("[ \"$(ip netns exec other cat /sys/class/net/{b}/carrier)\" = 1 ]"),
            LONG,
        )
        .unwrap();
    guests::ping_all(&guest, "10.9.0.2", 10).unwrap();
    guest
        .run("ip netns exec other iperf3 -s -D >/dev/null 2>&1")
        .unwrap();
    guest
        .wait_for(
            "ip netns exec other grep -qs ':1451 [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6",
            LONG,
        )
        .unwrap();
    for direction in [guests::Direction::Out, guests::Direction::In] {
        let rate = guests::tcp(&guest, "10.9.0.2", 5201, 1, direction).unwrap();
        assert!(rate > 0.0);
    }

    // Down, up, and the driver anew: each time a reset and its mailbox.
    for _ in 0..5 {
        guest
            .run(&format!("ip link set {a} down && ip link set {a} up"))
            .unwrap();
        guests::wait_carrier(&guest, &a, true).unwrap();
    }
    guests::ping_all(&guest, "10.9.0.2", 5).unwrap();
    // VLANs and jumbo frames are asked of the mailbox too.
    guest
        .run(&format!(
            "mp 8021q; ip link set {a} mtu 9000; ip netns exec other ip link set {b} mtu 9000; \
             ip link add link {a} name v7 type vlan id 7; ip addr add 10.7.0.1/24 dev v7; ip link set v7 up; \
             ip netns exec other ip link add link {b} name v7 type vlan id 7; \
             ip netns exec other ip addr add 10.7.0.2/24 dev v7; ip netns exec other ip link set v7 up"
        ))
        .unwrap();
    guests::wait_carrier(&guest, &a, true).unwrap();
    guests::ping_all(&guest, "10.7.0.2", 5).unwrap();
    guest
        .run("ping -c 3 -i 0.05 -s 8000 -M do 10.9.0.2")
        .unwrap();
    let counters = daemon.counters().unwrap();
    println!(
        "{counters}\n{}",
        guest.run("dmesg | grep -i igbvf").unwrap()
    );
    guest
        .run("ip netns del other; rmmod igbvf && mp igbvf")
        .unwrap();
    guest.interface(MACS[0], LONG).unwrap();
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

/// A guest whose only NIC is a virtual function, whose chip's cable ends in the test.
fn plugged(name: &str) -> Wired {
    Wired::of(GuestConfig::new(name), Wiring::one(Card::IgbVf))
        .unwrap_or_else(|why| panic!("{why}"))
}

/// Nothing that a good driver does is refused or counted against it.
fn is_blameless(wired: &Wired) {
    let counters = wired.daemon.counters().unwrap();
    for counter in [
        "rx_bad_ring",
        "tx_bad_ring",
        "rx_dma_fault",
        "tx_dma_fault",
        "tx_bad_desc",
    ] {
        assert_eq!(
            counters.nic(&wired.nic(), counter),
            0,
            "{counter}\n{counters}"
        );
    }
    wired.assert_quiet();
}

/// What the chip signals to the driver, and what an operator does to it: each time the driver goes on, without a
/// change in the guest.
#[test]
fn the_stock_vf_driver_hears_of_links_and_lives_through_resets_and_removal() {
    let wired = plugged("events");
    let carrier = |up| guests::wait_carrier(&wired.guest, &wired.interface, up).unwrap();
    let works = |what: &str| {
        let done = wired.settled().and_then(|()| wired.exchange(1500));
        done.unwrap_or_else(|e| panic!("{what}: {e}\n{}", wired.diagnosis()));
    };
    works("first");
    for (words, up) in [
        ("set p0vf0 state disable", false),
        ("set p0vf0 state auto", true),
        ("leave p0vf0", false),
        ("revive p0vf0", true),
    ] {
        wired.vf(words).unwrap();
        carrier(up);
        if up {
            works(words);
        }
    }
    wired.peer.pull(0);
    carrier(false);
    wired.peer.insert(0).unwrap();
    carrier(true);
    works("the cable");
    // With frames on their way both ways, and with none: then the driver has nothing but the mailbox to learn from, and
    // goes down for some seconds.
    let flood = wired.peer.flood(wired.target(None), 1500, torture::PAUSE);
    wired.vf("reset p0").unwrap();
    works("a reset of the chip");
    drop(flood);
    let messages = || {
        let counters = wired.daemon.counters().unwrap();
        counters.find("vf", &wired.nic(), "vf_messages").unwrap()
    };
    let before = messages();
    wired.vf("reset p0").unwrap();
    carrier(false);
    works("a reset of the chip at rest");
    assert!(messages() > before, "it has asked for everything again");
    is_blameless(&wired);
}

/// The neighbour's frames go on without loss, what the dead one held is given back, and its socket serves the next.
#[test]
fn a_vm_killed_in_mid_traffic_costs_its_neighbour_nothing() {
    const ROUNDS: u64 = 3;
    let wiring = Wiring {
        spare: &["vf1"],
        ..Wiring::one(Card::IgbVf)
    };
    let wired = Wired::of(GuestConfig::new("neighbour"), wiring).unwrap_or_else(|e| panic!("{e}"));
    wired.exchange(1500).unwrap();
    let before = Holdings::at_rest(wired.daemon.server());
    let theirs = wired::mac_bytes(&mac("vf1"));
    for round in 1..=ROUNDS {
        let config = GuestConfig::new("victim").nic(wired.lab.nic("vf1"));
        let victim = wired.lab.rig.resume(config).unwrap();
        let interface = guests::load(&victim, "igbvf", &mac("vf1")).unwrap();
        victim
            .run(&format!(
                "ip addr add 10.9.0.3/24 dev {interface}; ip link set {interface} up"
            ))
            .unwrap();
        guests::wait_carrier(&victim, &interface, true).unwrap();
        guests::ping_all(&victim, peer::IP, 5).unwrap();
        victim
            .run(&format!(
                "head -c 4000000 /dev/zero > /tmp/zero; \
                 (while :; do nc {} 7 < /tmp/zero > /dev/null; done) > /dev/null 2>&1 & \
                 ping -f -q -s 1400 10.9.0.2 > /dev/null 2>&1 &",
                peer::IP
            ))
            .unwrap();
        let start = wired.daemon.counters().unwrap();
        let flood = wired.peer.flood(
            Target {
                mac: theirs,
                ..wired.target(None)
            },
            1500,
            torture::PAUSE,
        );
        let over = AtomicBool::new(false);
        let exchanges = std::thread::scope(|scope| {
            let talk = scope.spawn(|| {
                let mut exchanges = 0u32;
                while !over.load(Ordering::Relaxed) {
                    // None of these may be lost: the peer does not ask again.
                    let lengths = wired::payloads(1500, 8000);
                    let held_up = starved(&wired);
                    match wired.peer.ping(wired.target(None), 1500, &lengths) {
                        Ok(()) => exchanges += 1,
                        Err(_) if starved(&wired) > held_up => {}
                        Err(lost) => return Err(lost),
                    }
                }
                Ok::<_, hypernic_tests::Error>(exchanges)
            });
            let busy = |c: &Counters| {
                let grown = c.since(&start);
                ["rx_frames", "tx_frames"].map(|name| grown.nic("p0vf1", name) > 300) == [true; 2]
            };
            let busy = wired.daemon.wait_counters("the victim is busy", busy);
            victim.kill();
            let gone = |c: &Counters| c.nic("p0vf1", "clients_gone") == round;
            let gone = wired.daemon.wait_counters("the victim is gone", gone);
            std::thread::sleep(Duration::from_millis(300));
            over.store(true, Ordering::Relaxed);
            busy.and(gone).unwrap_or_else(|e| panic!("{e}"));
            talk.join().expect("no panic")
        });
        drop(flood);
        let exchanges = exchanges.unwrap_or_else(|e| panic!("round {round}: {e}"));
        println!("round {round}: {exchanges} exchanges beside it");
        before
            .wait_back(wired.daemon.server())
            .unwrap_or_else(|now| panic!("held {before:?}, now {now:?}"));
        wired.exchange(1500).unwrap();
    }
    let counters = wired.daemon.counters().unwrap();
    for counter in ["drop_no_room", "drop_flood_no_room"] {
        let lost = counters.find("switch-port", "p0/p0vf0", counter).unwrap();
        assert!(lost == 0 || starved(&wired) > 0, "{counter}\n{counters}");
    }
    is_blameless(&wired);
}

/// Frames for the neighbour that came while the host had taken the processor from another sender in the middle of its
/// copy: a busy host may lose those, and only those.
fn starved(wired: &Wired) -> u64 {
    let counters = wired.daemon.counters().unwrap();
    counters.nic("p0vf0", "rx_held_up")
}

/// Groups are let through by the mailbox's hashes, VLANs by its filters; a frame for others is none of the guest's.
#[test]
fn a_vf_gets_the_groups_and_vlans_it_has_joined() {
    let wired = plugged("joins");
    wired.hush().unwrap();
    let (guest, interface) = (&wired.guest, &wired.interface);
    let to = |mac: [u8; 6]| {
        let mut frame = udp(wired.target(None), b"filtered?");
        frame[..6].copy_from_slice(&mac);
        frame
    };
    // Their hashes differ: bits 47:36 of the address.
    let groups: Vec<[u8; 6]> = (0..20).map(|n| [0x33, 0x11, 0x22, 0x44, 0xb0, n]).collect();
    let frames: Vec<_> = groups.iter().map(|group| to(*group)).collect();
    let change = |verb: &str, from: usize, to: usize| {
        let each = groups[from..to].iter().map(|[a, b, c, d, e, f]| {
            format!(
                "ip maddr {verb} {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} dev {interface}"
            )
        });
        guest.run(&each.collect::<Vec<_>>().join(" && ")).unwrap();
    };
    assert_eq!(wired.passed(&frames).unwrap(), 0);
    change("add", 0, 15);
    assert_eq!(wired.passed(&frames).unwrap(), 15);
    change("del", 0, 5);
    assert_eq!(wired.passed(&frames).unwrap(), 10);
    assert_eq!(wired.passed(&[to([0xff; 6]), to(wired.mac)]).unwrap(), 2);
    assert_eq!(wired.passed(&[to([0x52, 0x54, 0, 0, 0, 0x99])]).unwrap(), 0);

    let on = |id: u16| -> Vec<_> {
        (0..8)
            .map(|priority| tagged(&to(wired.mac), priority << 13 | id))
            .collect()
    };
    assert_eq!(wired.passed(&on(5)).unwrap(), 0);
    guest.run("mp 8021q").unwrap();
    for id in [5, 4094] {
        wired.peer.join_vlan(id);
        let [a, b, c, d] = peer::address(Some(id), 2);
        guest
            .run(&format!(
                "ip link add link {interface} name v{id} type vlan id {id} && \
                 echo 1 > /proc/sys/net/ipv6/conf/v{id}/disable_ipv6 && \
                 ip addr add {a}.{b}.{c}.{d}/24 dev v{id} && ip link set v{id} up"
            ))
            .unwrap();
    }
    for id in [5, 4094] {
        let [a, b, c, d] = peer::address(Some(id), 1);
        wired.echo(&format!("{a}.{b}.{c}.{d}")).unwrap();
        let lengths = wired::payloads(1500, 8000);
        wired
            .peer
            .ping(wired.target(Some(id)), 1500, &lengths)
            .unwrap();
        assert_eq!(wired.passed(&on(id)).unwrap(), 8, "VLAN {id}");
    }
    for id in [4, 6, 37, 4093] {
        assert_eq!(wired.passed(&on(id)).unwrap(), 0, "VLAN {id}");
    }
    guest.run("ip link del v5").unwrap();
    assert_eq!(wired.passed(&on(5)).unwrap(), 0);
    wired.echo(peer::IP).unwrap();
    is_blameless(&wired);
}

#[test]
#[ignore = "minutes: `make test-long`"]
fn long_a_vf_goes_down_and_up_a_hundred_times_under_traffic() {
    let wired = plugged("hundred");
    torture::down_and_up(&wired, 100);
    torture::out_and_in(&wired, 10);
    is_blameless(&wired);
}

#[test]
#[ignore = "minutes: `make test-long`"]
fn long_every_offload_of_a_vf_on_and_off_moves_every_byte() {
    let wired = plugged("offloads");
    offloads::each_on_and_off(&wired, &["rx", "tx", "sg", "tso"], |_, _| {
        wired.exchange(1500)
    });
    is_blameless(&wired);
}

/// With the tail registers in memory the stock driver goes on as it does, and all it writes besides is its interrupts'.
#[test]
#[ignore = "long: make test-long"]
fn long_the_stock_vf_driver_rings_doorbells_in_memory() {
    let wiring = Wiring {
        lines: "doorbell = \"page\"",
        ..Wiring::one(Card::IgbVf)
    };
    let wired = Wired::of(GuestConfig::new("page"), wiring).unwrap_or_else(|e| panic!("{e}"));
    let before = wired.daemon.counters().unwrap();
    for _ in 0..3 {
        wired.exchange(1500).unwrap();
    }
    let grown = wired.daemon.counters().unwrap().since(&before);
    println!("{grown}");
    let of = |name| grown.nic(&wired.nic(), name);
    let frames = of("tx_frames") + of("rx_frames");
    assert!(of("doorbells") > 0 && frames > 500, "{grown}");
    assert!(of("reg_writes") <= 3 * of("irq_triggers") + 100, "{grown}");
    torture::down_and_up(&wired, 3);
    wired.vf("reset p0").unwrap();
    wired.settled().unwrap();
    wired.exchange(1500).unwrap();
    is_blameless(&wired);
}
