//! VLANs: tags put in, taken out and filtered, by the chip or by the kernel.

use hypernic_tests::peer::{self, tag, tagged, udp};
use hypernic_tests::wired::payloads;
use hypernic_tests::{Result, Wired};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    vlans_are_tagged_stripped_and_filtered,
}

const VLANS: [u16; 3] = [5, 100, 4094];

fn add(wired: &Wired, id: u16) {
    let interface = &wired.interface;
    wired.peer.join_vlan(id);
    let [a, b, c, d] = peer::address(Some(id), 2);
    wired
        .guest
        .run(&format!(
            "mp 8021q && ip link add link {interface} name v{id} type vlan id {id} egress-qos-map 0:3 && \
             echo 1 > /proc/sys/net/ipv6/conf/v{id}/disable_ipv6 && \
             ip addr add {a}.{b}.{c}.{d}/24 dev v{id} && ip link set v{id} up"
        ))
        .unwrap();
}

/// Everything goes both ways on a VLAN, tagged on the wire.
fn works(wired: &Wired, id: u16, mtu: usize) -> Result<()> {
    let start = wired.peer.received();
    let frames = wired.peer.record();
    let [a, b, c, d] = peer::address(Some(id), 1);
    wired.echo(&format!("{a}.{b}.{c}.{d}"))?;
    let seen = wired.peer.received().since(&start);
    assert!(
        seen.tagged == seen.frames && seen.tcp_data > 20,
        "VLAN {id}: {seen:?}"
    );
    // Priority 3, as the interface maps it.
    let tags: Vec<_> = frames.try_iter().filter_map(|f| tag(&f)).collect();
    assert!(
        !tags.is_empty() && tags.iter().all(|t| *t == 3 << 13 | id),
        "VLAN {id}: {tags:04x?}"
    );
    wired
        .peer
        .ping(wired.target(Some(id)), mtu, &payloads(mtu, 10_000))?;
    wired.no_faults()
}

fn vlans_are_tagged_stripped_and_filtered(kernel: Kernel) {
    let wired = Wired::new(GuestConfig::new("vlans").kernel(kernel)).unwrap();
    let interface = &wired.interface;
    wired.hush().unwrap();
    let on = |id: u16| -> Vec<Vec<u8>> {
        let mut target = wired.target(None);
        target.host = 77;
        // Every priority, with and without the CFI bit's neighbours: the VLAN alone decides.
        (0..8)
            .map(|priority| tagged(&udp(target, b"tagged"), priority << 13 | id))
            .collect()
    };
    for id in VLANS {
        add(&wired, id);
    }
    for offload in ["on", "off", "on"] {
        wired.ethtool("-K", &format!("rxvlan {offload}")).unwrap();
        wired.settled().unwrap();
        for id in VLANS {
            works(&wired, id, 1500).unwrap_or_else(|e| panic!("VLAN {id}, {offload}: {e}"));
        }
        for id in VLANS {
            assert_eq!(wired.passed(&on(id)).unwrap(), 8, "VLAN {id}, {offload}");
        }
        // A priority tag (VLAN 0) belongs to no VLAN, and the kernel lets it in.
        assert_eq!(wired.passed(&on(0)).unwrap(), 8, "{offload}");
        // In the same word of the filter table, in others, and at its ends.
        for id in [4, 6, 37, 101, 1, 4093] {
            assert_eq!(wired.passed(&on(id)).unwrap(), 0, "VLAN {id}, {offload}");
        }
    }
    // Frames without a tag are none of the filter's business.
    wired.echo(peer::IP).unwrap();
    // Segmentation and checksums work through a tag, and longer frames too.
    wired
        .guest
        .run(&format!(
            "ip link set {interface} mtu 9000; ip link set v5 mtu 9000"
        ))
        .unwrap();
    wired.settled().unwrap();
    works(&wired, 5, 9000).unwrap();
    assert_eq!(wired.peer.received().longest, 9000 + 18);
    wired.guest.run("ip link del v5").unwrap();
    assert_eq!(wired.passed(&on(5)).unwrap(), 0);
    assert_eq!(wired.passed(&on(100)).unwrap(), 8);
    wired
        .guest
        .run("ip link del v100; ip link del v4094")
        .unwrap();
    wired.settled().unwrap();
    wired.assert_quiet();
}
