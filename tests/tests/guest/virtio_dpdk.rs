//! DPDK's virtio drivers, which poll: `net_virtio` in a guest, on our PCI function, and `net_virtio_user` on the host, at
//! our vhost-user sockets. At the other end of a switch sits this test, and counts every frame. Rates are printed, never
//! asserted.

use std::sync::Mutex;

use hypernic_tests::{Counters, Lab, mac};
use rig::{Root, Testpmd, TestpmdSetup};

use super::dpdk::{Console, Device, TestPmd, lan, receives, sends, swaps};

/// The driver, which stands in a package of its own; the bus of its other half must be there for it to load.
const PACKAGES: [&str; 2] = ["librte-net-virtio25", "librte-bus-vdev25"];
const DRIVERS: [&str; 2] = [
    "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0/librte_bus_vdev.so.25.0",
    "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0/librte_net_virtio.so.25.0",
];

/// The driver keeps the buffers of a full ring, three a packet here, until it wants room.
const BUFFERS: &str = "--total-num-mbufs=12288";

/// testpmd on the host.
struct OnHost(Mutex<Testpmd>);

impl Console for OnHost {
    fn command(&self, text: &str) -> String {
        self.0.lock().unwrap().ask(text).unwrap()
    }
}

/// Nothing that the driver does is refused or counted against it.
fn is_content(counters: &Counters) {
    for counter in [
        "tx_runt",
        "tx_too_long",
        "tx_not_agreed",
        "tx_bad_csum",
        "tx_bad_gso",
        "tx_unfinished",
        "rx_too_long",
    ] {
        assert_eq!(counters.nic("n0", counter), 0, "{counter}\n{counters}");
    }
}

/// A guest with the driver on a NIC over vfio-user, whose lines in the file are `words`; `how` are the driver's options.
fn in_a_guest(words: &'static str, how: &str, more: impl FnOnce(&TestPmd)) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let device = Device::Virtio(words);
    let (daemon, mut peer) = lan(&lab, device);
    let mut config = TestPmd::guest(&lab);
    let tools = lab.rig.packages("dpdk-virtio", &PACKAGES).unwrap();
    let drivers = DRIVERS.map(std::path::Path::new);
    config.files.extend(tools.files(&drivers).unwrap());
    let guest = lab.rig.start(config).unwrap();
    let place = TestPmd::bind(&guest, "1af4");
    let pmd = TestPmd::prompt(
        guest,
        device,
        &format!("-a {place}{how}"),
        BUFFERS,
        peer.mac(),
    );
    for lengths in ["64", "1514", "64,700,750"] {
        sends(&daemon, &pmd, &mut peer, 30_000, lengths);
    }
    receives(&daemon, &pmd, &mut peer, 6000);
    swaps(&daemon, &pmd, &mut peer, 10_000);
    pmd.command("port stop 0");
    pmd.command("port start 0");
    swaps(&daemon, &pmd, &mut peer, 5000);
    more(&pmd);
    let counters = daemon.counters().unwrap();
    is_content(&counters);
    println!("{counters}");
}

#[test]
#[ignore = "long: more packages"]
fn long_dpdks_virtio_driver_moves_frames_on_packed_rings() {
    in_a_guest("", "", |_| ());
}

#[test]
#[ignore = "long: more packages"]
fn long_dpdks_virtio_driver_moves_frames_on_split_rings() {
    in_a_guest("split-rings = true", "", |_| ());
}

#[test]
#[ignore = "long: more packages"]
fn long_dpdks_virtio_driver_moves_frames_with_vectors() {
    in_a_guest("", ",vectorized=1", |_| ());
}

fn on_host(root: &Root, lab: &Lab, name: &str, rings: &str, peer: [u8; 6]) -> TestPmd<OnHost> {
    let [a, b, c, d, e, f] = peer;
    let testpmd = Testpmd::start(&TestpmdSetup {
        root,
        name,
        dir: &lab.path(name),
        devices: &[format!(
            "net_virtio_user0,path={},mac={},queue_size=1024,{rings}",
            lab.socket("n0").display(),
            mac("n0")
        )],
        options: &[format!(
            "--eth-peer=0,{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"
        )],
        cores: (0, 1),
        also: None,
    })
    .unwrap_or_else(|e| panic!("{rings}: {e}"));
    TestPmd {
        guest: OnHost(Mutex::new(testpmd)),
        device: Device::Virtio(""),
    }
}

#[test]
#[ignore = "long: more packages"]
fn long_dpdks_virtio_user_moves_frames_on_rings_of_every_kind() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let root = lab.rig.dpdk().unwrap();
    let device = Device::Virtio("transport = \"vhost-user\"");
    let (daemon, mut peer) = lan(&lab, device);
    for (name, rings) in [
        ("split", "packed_vq=0"),
        ("split-in-order", "packed_vq=0,in_order=1,mrg_rxbuf=0"),
        ("packed", "packed_vq=1"),
        ("packed-in-order", "packed_vq=1,in_order=1,mrg_rxbuf=0"),
        (
            "packed-vectors",
            "packed_vq=1,in_order=1,mrg_rxbuf=0,vectorized=1",
        ),
    ] {
        println!("{rings}:");
        std::fs::create_dir(lab.path(name)).unwrap();
        let pmd = on_host(&root, &lab, name, rings, peer.mac());
        for lengths in ["64", "1514", "64,700,750"] {
            sends(&daemon, &pmd, &mut peer, 100_000, lengths);
        }
        receives(&daemon, &pmd, &mut peer, 6000);
        swaps(&daemon, &pmd, &mut peer, 50_000);
        pmd.command("port stop 0");
        pmd.command("port start 0");
        swaps(&daemon, &pmd, &mut peer, 10_000);
        is_content(&daemon.counters().unwrap());
    }
    println!("{}", daemon.counters().unwrap());
}
