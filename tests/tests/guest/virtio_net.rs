//! Stock Linux and its own virtio_net driver on our virtio-net. Times are printed, never asserted.

mod kernels;

use hypernic_tests::guests::{self, Direction, GATEWAY, Link};
use hypernic_tests::{Counters, Daemon, LONG, Lab, Launch, host, mac};
use rig::{Boot, Guest, GuestConfig};

use crate::igb::rom;

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn boot(lab: &Lab) -> (Daemon, Guest, Link) {
    boot_with(lab, &[], 1)
}

/// A guest with so many processors, on a NIC with these options.
fn boot_with(lab: &Lab, options: &[&str], processors: u32) -> (Daemon, Guest, Link) {
    let args = lab.run_args_of("virtio-net", "n0", "user");
    let daemon = Launch::new().unwrap().args(args).args(options);
    let daemon = daemon.start().unwrap();
    let mut config = GuestConfig::new("virtio-net").nic(lab.nic("n0"));
    config.smp = processors;
    let guest = lab.rig.resume(config).unwrap();
    let link = guests::bring_up_with(&guest, "virtio_net", &mac("n0")).unwrap();
    (daemon, guest, link)
}

/// Whether the driver has agreed upon packed rings.
fn is_packed(guest: &Guest, link: &Link) -> bool {
    let file = format!("/sys/class/net/{}/device/features", link.interface);
    let bits = guest.run(&format!("cat {file}")).unwrap();
    bits.trim().as_bytes()[34] == b'1'
}

/// Nothing that a good driver does is refused or counted against it.
fn is_blameless(counters: &Counters) {
    for counter in [
        "tx_runt",
        "tx_too_long",
        "tx_not_agreed",
        "tx_bad_csum",
        "tx_bad_gso",
        "tx_unfinished",
        "rx_too_long",
        "rx_invalid",
        "ctrl_refused",
        "features_refused",
        "queue_refused",
        "bad_register_access",
        "bad_notify",
        "broken_avail_index",
        "broken_unmapped",
        "broken_direction",
        "refused_bad_range",
        "refused_bad_irq",
    ] {
        assert_eq!(counters.nic("n0", counter), 0, "{counter}\n{counters}");
    }
}

#[test]
fn the_stock_virtio_net_driver_gets_an_address_and_moves_every_byte() {
    let lab = lab();
    let (daemon, guest, link) = boot(&lab);
    assert!(is_packed(&guest, &link));
    let interface = &link.interface;
    let driver = guest.run(&format!("ethtool -i {interface}")).unwrap();
    assert!(driver.contains("driver: virtio_net"), "{driver}");
    let speed = guest.run(&format!("ethtool {interface}")).unwrap();
    assert!(
        speed.contains("Speed: 10000Mb/s") && speed.contains("Link detected: yes"),
        "{speed}"
    );
    // A character for each feature: indirect tables, event indices, packed rings.
    let features = guest
        .run(&format!("cat /sys/class/net/{interface}/device/features"))
        .unwrap();
    for bit in [28, 29, 34] {
        assert_eq!(features.as_bytes()[bit], b'1', "{bit} of {features}");
    }
    let vectors = guest.run("grep virtio /proc/interrupts").unwrap();
    assert!(
        vectors.contains("-input.0") && vectors.contains("-output.0"),
        "{vectors}"
    );
    println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
    guests::round_trip(&guest, &guests::noise(4_000_000)).unwrap();
    let (_server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, GATEWAY, port, 50, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    assert!(counters.nic("n0", "tx_tso_frames") > 0, "{counters}");
    assert!(counters.nic("n0", "ctrl_done") > 0, "{counters}");
    is_blameless(&counters);
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

#[test]
fn virtio_net_goes_down_and_up_changes_its_rings_and_its_driver_and_reboots() {
    let lab = lab();
    let daemon = lab.run_of("virtio-net", "n0", "user").unwrap();
    let mut config = GuestConfig::new("virtio-net").nic(lab.nic("n0"));
    config.allow_reboot = true;
    let guest = lab.rig.resume(config).unwrap();
    let link = guests::bring_up_with(&guest, "virtio_net", &mac("n0")).unwrap();
    let interface = &link.interface;
    let works = || {
        guests::wait_carrier(&guest, interface, true).unwrap();
        guest
            .run(&format!("ip route replace default via {GATEWAY}"))
            .unwrap();
        guests::round_trip(&guest, &guests::noise(300_000)).unwrap();
    };
    works();
    for change in [
        "ip link set IF down; ip link set IF up",
        // A reset of each queue by itself.
        "ethtool -G IF rx 64 tx 64",
        "ethtool -G IF rx 1024 tx 1024",
        "ethtool -K IF tso off",
        "ethtool -K IF tx off",
        // By the control queue, while it runs.
        "ethtool -K IF rx-gro-hw off",
        "ethtool -K IF rx-gro-hw on tx on tso on",
        "ip link set IF promisc on",
        "ip link set IF promisc off allmulticast on",
        "ip link set IF allmulticast off",
        "ip maddr add 33:33:00:00:00:77 dev IF",
    ] {
        let change = change.replace("IF", interface);
        guest
            .run(&change)
            .unwrap_or_else(|e| panic!("{change}: {e}"));
        works();
    }
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    assert!(counters.nic("n0", "queue_resets") >= 4, "{counters}");
    is_blameless(&counters);
    for _ in 0..2 {
        guest.run("rmmod virtio_net").unwrap();
        guests::bring_up_with(&guest, "virtio_net", &mac("n0")).unwrap();
        guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    }
    guest.reboot().unwrap();
    guests::bring_up_with(&guest, "virtio_net", &mac("n0")).unwrap();
    guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    is_blameless(&daemon.counters().unwrap());
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

#[test]
fn split_rings_move_every_byte_with_offloads_on_and_off() {
    let lab = lab();
    let (daemon, guest, link) = boot_with(&lab, &["--split-rings"], 1);
    assert!(!is_packed(&guest, &link));
    let interface = &link.interface;
    println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
    for change in [
        "tso off",
        "tx off",
        "rx-gro-hw off",
        "rx-gro-hw on tx on tso on",
    ] {
        guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
        guest
            .run(&format!("ethtool -K {interface} {change}"))
            .unwrap();
    }
    guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
    let (_server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, GATEWAY, port, 50, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    is_blameless(&daemon.counters().unwrap());
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

#[test]
fn pairs_of_queues_serve_as_many_processors_of_a_guest() {
    for rings in [
        &["--queue-pairs", "2"][..],
        &["--queue-pairs", "2", "--split-rings"],
    ] {
        let lab = lab();
        let (daemon, guest, link) = boot_with(&lab, rings, 2);
        let interface = &link.interface;
        let combined = |n: u32| {
            let shown = guest.run(&format!("ethtool -l {interface}")).unwrap();
            let shown: Vec<_> = shown
                .lines()
                .filter(|l| l.starts_with("Combined"))
                .collect();
            assert!(
                shown[0].ends_with('2') && shown[1].ends_with(&n.to_string()),
                "{shown:?}"
            );
        };
        combined(2);
        for pairs in [1, 2, 1, 2] {
            guest
                .run(&format!("ethtool -L {interface} combined {pairs}"))
                .unwrap();
            combined(pairs);
            for _ in 0..4 {
                guests::round_trip(&guest, &guests::noise(200_000)).unwrap();
            }
        }
        let vectors = guest.run("grep virtio /proc/interrupts").unwrap();
        let used = |queue: &str| {
            let line = vectors.lines().find(|line| line.ends_with(queue));
            let line = line.unwrap_or_else(|| panic!("{queue}: {vectors}"));
            let counts = line.split_whitespace().skip(1).take(2);
            counts
                .map(|count| count.parse::<u64>().unwrap())
                .sum::<u64>()
        };
        for queue in ["input.0", "input.1", "output.0", "output.1"] {
            println!("{queue}: {}", used(queue));
        }
        assert!(used("input.0") > 0 && used("input.1") > 0, "{vectors}");
        let counters = daemon.counters().unwrap();
        println!("{counters}");
        is_blameless(&counters);
        assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "long: make test-long"]
fn long_ethtool_sets_how_often_a_virtio_net_interrupts() {
    let lab = lab();
    // What it does without being asked is measured, and not the operator's moderation.
    let (daemon, guest, link) = boot_with(&lab, &["--moderation", "guest"], 1);
    let interface = &link.interface;
    // Replies that come one by one: an interrupt for each, or for 64 of them, or half a second after the first.
    let mut calls = Vec::new();
    for set in ["", "rx-frames 64 rx-usecs 500000", "rx-frames 0 rx-usecs 0"] {
        if !set.is_empty() {
            guest.run(&format!("ethtool -C {interface} {set}")).unwrap();
        }
        let before = daemon.counters().unwrap();
        guest
            .run(&format!("ping -q -i 0.01 -c 256 -W 5 {GATEWAY}"))
            .unwrap();
        let after = daemon.counters().unwrap();
        let grown = |name: &str| after.nic("n0", name) - before.nic("n0", name);
        assert!(grown("rx_frames") >= 256, "{after}");
        calls.push(grown("queue_calls"));
    }
    println!("calls: {calls:?}");
    // Each request that was sent is a call too: of transmit queues nothing was asked.
    assert!(calls[1] + 192 <= calls[0].min(calls[2]), "{calls:?}");
    guests::round_trip(&guest, &guests::noise(300_000)).unwrap();
    is_blameless(&daemon.counters().unwrap());
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

/// It polls split rings and agrees upon next to nothing, where Linux takes packed rings and all features.
#[test]
fn ipxes_virtio_net_driver_gets_an_address_and_a_script() {
    let lab = lab();
    let tftp = lab.path("tftp");
    std::fs::create_dir(&tftp).unwrap();
    let padding = "# a script of some length\n".repeat(2000);
    std::fs::write(
        tftp.join("boot.ipxe"),
        format!("#!ipxe\n{padding}echo the script ${{net0/mac}} ${{ip}} arrived\n"),
    )
    .unwrap();
    let port = format!("user:tftp={},bootfile=boot.ipxe", tftp.display());
    let daemon = lab.run_of("virtio-net", "n0", &port).unwrap();
    let stock = lab.rig.root().dir().join("usr/share/qemu/pxe-virtio.rom");
    let file = lab.path("virtio.rom");
    std::fs::write(&file, rom(&std::fs::read(stock).unwrap(), 0x1041)).unwrap();
    let nic = lab.nic("n0").rom(&file).boot_index(0);
    let guest = lab
        .rig
        .start(GuestConfig::new("ipxe").boot(Boot::Firmware).nic(nic))
        .unwrap();
    guest.expect_console("iPXE", LONG).unwrap();
    guest
        .expect_console(&format!("the script {} 10.0.2.15 arrived", mac("n0")), LONG)
        .unwrap();
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    assert!(counters.nic("n0", "rx_frames") > 30, "{counters}");
    is_blameless(&counters);
}

/// One guest, three NICs on a switch, each in a name space.
const INSIDE: &str = r#"
set -e
mkdir -p /run/netns
mp virtio_net; mp e1000
at() { grep -ls "$1" /sys/class/net/*/address | cut -d/ -f5; }
until [ -n "$(at MAC0)" ] && [ -n "$(at MAC1)" ] && [ -n "$(at MAC2)" ]; do usleep 50000; done
A=$(at MAC0); B=$(at MAC1); C=$(at MAC2)
for ns in a b c; do ip netns add $ns; ip -n $ns link set lo up; done
ip link set $A netns a name eth0; ip link set $B netns b name eth0; ip link set $C netns c name eth0
n=1
for ns in a b c; do ip -n $ns addr add 10.7.0.$n/24 dev eth0; ip -n $ns link set eth0 up; n=$((n+1)); done
"#;

#[test]
fn segments_cross_whole_between_virtio_nets_and_an_e1000() {
    let lab = lab();
    let nics = [("n0", "virtio-net"), ("n1", "virtio-net"), ("n2", "e1000")];
    let mut toml = String::from("[[switch]]\nname = \"a\"\nports = []\n");
    for (nic, model) in nics {
        let (socket, mac) = (lab.socket(nic), mac(nic));
        toml.push_str(&format!(
            "[[nic]]\nname = \"{nic}\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\n\
             port = \"switch:a\"\n"
        ));
    }
    let daemon = Daemon::serve(&lab.path("host.toml"), &toml).unwrap();
    let mut config = GuestConfig::new("three");
    config.nics = nics.map(|(nic, _)| lab.nic(nic).rom("")).to_vec();
    let guest = lab.rig.start(config).unwrap();
    let script = (0..3).fold(INSIDE.to_owned(), |script, n| {
        script.replace(&format!("MAC{n}"), &mac(&format!("n{n}")))
    });
    guest.run_within(&script, LONG).unwrap();
    let random = "head -c 3000000 /dev/urandom > /tmp/sent";
    guest.run(random).unwrap();
    for (from, to, address) in [
        ("a", "b", "10.7.0.2"),
        ("a", "c", "10.7.0.3"),
        ("c", "b", "10.7.0.2"),
    ] {
        let reaches = format!("ip netns exec {from} ping -c 1 -W 1 {address} >/dev/null 2>&1");
        guest.wait_for(&reaches, LONG).unwrap();
        let before = daemon.counters().unwrap();
        let moved = format!(
            "ip netns exec {to} sh -c 'busybox httpd -p 80 -h /tmp || true' && \
             ip netns exec {from} wget -q -O /tmp/got http://{address}/sent && cmp /tmp/sent /tmp/got"
        );
        guest.run_within(&moved, LONG).unwrap();
        let counters = daemon.counters().unwrap().since(&before);
        println!("{from} from {to}: {counters}");
        // The data goes from `to` to `from`, which has it in long segments if it is a virtio-net.
        if from == "a" {
            let frames = counters.nic("n0", "rx_frames");
            let whole = counters.nic("n0", "rx_gso_frames");
            assert!(whole > 0 && frames < 3_000_000 / 1448, "{counters}");
        }
    }
    let counters = daemon.counters().unwrap();
    is_blameless(&counters);
    assert_eq!(counters.nic("n1", "rx_invalid"), 0, "{counters}");
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}
