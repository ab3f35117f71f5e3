//! Stock Linux and its own r8169 driver on our RTL8168C and RTL8168H, and iPXE's. Times are printed, never asserted.

mod dpdk;
mod kernels;
mod power;
mod wired;

use hypernic_tests::guests::{self, Direction, GATEWAY, Link};
use hypernic_tests::{Counters, Daemon, LONG, Lab, Launch, host, mac};
use rig::{Boot, Guest, GuestConfig, Kernel};

use crate::igb::rom;

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn boot(lab: &Lab) -> (Daemon, Guest, Link) {
    boot_with(lab, Kernel::Stable, &[])
}

fn boot_with(lab: &Lab, kernel: Kernel, options: &[&str]) -> (Daemon, Guest, Link) {
    let args = lab.run_args_of("r8168", "n0", "user");
    let daemon = Launch::new().unwrap().args(args).args(options);
    let daemon = daemon.start().unwrap();
    let config = GuestConfig::new("r8169").kernel(kernel).nic(lab.nic("n0"));
    let guest = lab.rig.resume(config).unwrap();
    let link = bring_up(&guest);
    (daemon, guest, link)
}

/// The driver wants the PHY's driver before it comes.
fn bring_up(guest: &Guest) -> Link {
    guest.run("mp realtek").unwrap();
    guests::bring_up_with(guest, "r8169", &mac("n0")).unwrap()
}

/// Nothing that a good driver does is refused or counted against it.
fn is_blameless(counters: &Counters) {
    for counter in [
        "tx_high_priority",
        "tx_runt",
        "tx_too_long",
        "tx_bad_chain",
        "tx_endless",
        "tx_bad_csum",
        "tx_bad_gso",
        "tx_dma_fault",
        "tx_unfinished",
        "rx_too_long",
        "rx_empty_buffer",
        "rx_invalid",
        "rx_dma_fault",
        "stats_dma_fault",
        "locked_writes",
        "eeprom_writes_refused",
        "refused_bad_range",
        "refused_bad_irq",
    ] {
        assert_eq!(counters.nic("n0", counter), 0, "{counter}\n{counters}");
    }
}

fn has_no_complaints(guest: &Guest) {
    assert_eq!(guests::complaints(guest).unwrap(), Vec::<String>::new());
    // Firmware for the 8168H is optional, and none of the guest's.
    let log = guest.run("dmesg | grep -i r8169 | grep -v rtl_nic/rtl8168h || true");
    let log = log.unwrap();
    for word in ["unknown", "fail", "error", "timed out", "can't"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
}

#[test]
fn the_stock_r8169_driver_gets_an_address_and_moves_every_byte() {
    let lab = lab();
    let (daemon, guest, link) = boot(&lab);
    let interface = &link.interface;
    let log = guest.run("dmesg | grep -i r8169").unwrap();
    println!("{log}");
    assert!(log.contains("XID 3c4"), "{log}");
    let vectors = guest
        .run(&format!("grep {interface} /proc/interrupts"))
        .unwrap();
    println!("{vectors}");
    assert!(
        vectors.to_lowercase().contains("msi-x") || vectors.contains("MSIX"),
        "{vectors}"
    );
    let speed = guest.run(&format!("ethtool {interface}")).unwrap();
    assert!(
        speed.contains("Speed: 1000Mb/s") && speed.contains("Link detected: yes"),
        "{speed}"
    );
    println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
    guests::round_trip(&guest, &guests::noise(4_000_000)).unwrap();
    let (_server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, GATEWAY, port, 20, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    is_blameless(&counters);
    has_no_complaints(&guest);
}

#[test]
fn every_offload_on_and_off_moves_every_byte() {
    let lab = lab();
    let (daemon, guest, link) = boot(&lab);
    let interface = &link.interface;
    // The driver's own choice is neither scatter-gather nor segmentation.
    let mut large = Vec::new();
    for change in [
        "sg on tso on",
        "tso6 off rx off",
        "tx off",
        "rx on",
        "tx on sg on tso on rxvlan off txvlan off",
        "rxvlan on txvlan on",
    ] {
        // What the driver does not let be changed, it says, and changes the rest.
        let shown = guest
            .run(&format!("ethtool -K {interface} {change} 2>&1 || true"))
            .unwrap();
        println!("{change}: {shown}");
        let before = daemon.counters().unwrap();
        guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
        let after = daemon.counters().unwrap().since(&before);
        large.push(after.nic("n0", "tx_tso_frames"));
    }
    println!("{large:?}");
    assert!(large[0] > 0 && large[2] == 0 && large[5] > 0, "{large:?}");
    is_blameless(&daemon.counters().unwrap());
    has_no_complaints(&guest);
}

#[test]
fn ethtool_finds_statistics_registers_rings_and_coalescing() {
    ethtool(Kernel::Stable);
}

fn ethtool(kernel: Kernel) {
    let lab = lab();
    // What the driver does not ask for is not moderated.
    let (daemon, guest, link) = boot_with(&lab, kernel, &["--moderation", "guest"]);
    let interface = &link.interface;
    guests::ping_all(&guest, GATEWAY, 20).unwrap();
    let statistics = guest.run(&format!("ethtool -S {interface}")).unwrap();
    println!("{statistics}");
    let of = |name: &str| {
        let line = statistics.lines().find(|line| line.contains(name));
        let number = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("no {name} in {statistics}"))
    };
    assert!(
        of("tx_packets") >= 20 && of("unicast") >= 20,
        "{statistics}"
    );
    assert_eq!((of("tx_errors"), of("rx_errors")), (0, 0));
    let registers = guest
        .run(&format!("ethtool -d {interface} raw on | wc -c"))
        .unwrap();
    assert_eq!(registers.trim(), "256");
    println!(
        "{}",
        guest.run(&format!("ethtool -d {interface} 2>&1")).unwrap()
    );
    let rings = guest.run(&format!("ethtool -g {interface}")).unwrap();
    assert!(rings.contains("256"), "{rings}");
    // A reply is told when its time is over, and not before.
    for (set, least) in [
        ("rx-usecs 2400 tx-usecs 2400", 2.4),
        ("rx-usecs 0 tx-usecs 0", 0.0),
    ] {
        guest.run(&format!("ethtool -C {interface} {set}")).unwrap();
        let told = guest.run(&format!("ethtool -c {interface}")).unwrap();
        let words: Vec<_> = told.split_whitespace().collect();
        for pair in set.split(' ').collect::<Vec<_>>().chunks(2) {
            let name = format!("{}:", pair[0]);
            let at = words.iter().position(|word| *word == name).unwrap();
            assert_eq!(words[at + 1], pair[1], "{told}");
        }
        let ping = guests::ping_all(&guest, GATEWAY, 20).unwrap();
        println!("{set}: {ping:?}");
        // Not each: another frame may have begun the time before.
        assert!(ping.min_avg_max[1] >= least, "{ping:?}");
    }
    guests::round_trip(&guest, &guests::noise(300_000)).unwrap();
    let counters = daemon.counters().unwrap();
    assert!(counters.nic("n0", "stats_dumps") > 0, "{counters}");
    is_blameless(&counters);
    has_no_complaints(&guest);
}

#[test]
fn r8169_goes_down_and_up_its_driver_goes_and_comes_and_it_reboots() {
    goes_and_comes(Kernel::Stable);
}

fn goes_and_comes(kernel: Kernel) {
    let lab = lab();
    let daemon = lab.run_of("r8168", "n0", "user").unwrap();
    let mut config = GuestConfig::new("r8169").kernel(kernel).nic(lab.nic("n0"));
    config.allow_reboot = true;
    let guest = lab.rig.resume(config).unwrap();
    let link = bring_up(&guest);
    let interface = &link.interface;
    for round in 0..10 {
        guest
            .run(&format!(
                "ip link set {interface} down; ip link set {interface} up"
            ))
            .unwrap();
        guests::wait_carrier(&guest, interface, true).unwrap();
        guest
            .run(&format!("ip route replace default via {GATEWAY}"))
            .unwrap();
        if round % 5 == 0 {
            guests::round_trip(&guest, &guests::noise(300_000)).unwrap();
        }
    }
    for change in [
        "ethtool -s IF speed 100 duplex full autoneg on",
        "ethtool -s IF autoneg on advertise 0x3f",
        "ip link set IF promisc on",
        "ip link set IF promisc off allmulticast on",
        "ip link set IF allmulticast off",
        "ip maddr add 33:33:00:00:00:77 dev IF",
        "ethtool -s IF wol g",
        "ethtool -s IF wol d",
    ] {
        let change = change.replace("IF", interface);
        guest
            .run(&change)
            .unwrap_or_else(|e| panic!("{change}: {e}"));
        guests::wait_carrier(&guest, interface, true).unwrap();
        guests::round_trip(&guest, &guests::noise(50_000)).unwrap();
    }
    for _ in 0..2 {
        guest.run("rmmod r8169").unwrap();
        bring_up(&guest);
        guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    }
    guest.reboot().unwrap();
    bring_up(&guest);
    guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    is_blameless(&daemon.counters().unwrap());
    has_no_complaints(&guest);
}

/// One guest, three NICs on a switch, each in a name space.
const INSIDE: &str = r#"
set -e
mkdir -p /run/netns
mp realtek; mp r8169; mp virtio_net; mp e1000; mp 8021q
at() { grep -ls "$1" /sys/class/net/*/address | cut -d/ -f5; }
until [ -n "$(at MAC0)" ] && [ -n "$(at MAC1)" ] && [ -n "$(at MAC2)" ]; do usleep 50000; done
A=$(at MAC0); B=$(at MAC1); C=$(at MAC2)
for ns in a b c; do ip netns add $ns; ip -n $ns link set lo up; done
ip link set $A netns a name eth0; ip link set $B netns b name eth0; ip link set $C netns c name eth0
n=1
for ns in a b c; do
    ip -n $ns addr add 10.7.0.$n/24 dev eth0; ip -n $ns link set eth0 up
    ip -n $ns link add link eth0 name tagged type vlan id 5
    ip -n $ns addr add 10.8.0.$n/24 dev tagged; ip -n $ns link set tagged up
    n=$((n+1))
done
ip netns exec a ethtool -K eth0 sg on tso on
head -c 2000000 /dev/urandom > /tmp/sent
for ns in a b c; do ip netns exec $ns busybox httpd -p 80 -h /tmp; done
"#;

#[test]
fn segments_tags_and_long_frames_cross_between_an_r8168_and_other_models() {
    crosses(Kernel::Stable);
}

fn crosses(kernel: Kernel) {
    let lab = lab();
    let nics = [("n0", "r8168"), ("n1", "virtio-net"), ("n2", "e1000")];
    let mut toml = String::from("[[switch]]\nname = \"a\"\nports = []\n");
    for (nic, model) in nics {
        let (socket, mac) = (lab.socket(nic), mac(nic));
        toml.push_str(&format!(
            "[[nic]]\nname = \"{nic}\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\n\
             port = \"switch:a\"\n"
        ));
    }
    let daemon = Daemon::serve(&lab.path("host.toml"), &toml).unwrap();
    let mut config = GuestConfig::new("three").kernel(kernel);
    config.nics = nics.map(|(nic, _)| lab.nic(nic).rom("")).to_vec();
    let guest = lab.rig.start(config).unwrap();
    let script = (0..3).fold(INSIDE.to_owned(), |script, n| {
        script.replace(&format!("MAC{n}"), &mac(&format!("n{n}")))
    });
    guest.run_within(&script, LONG).unwrap();
    let fetch = |from: &str, address: &str| {
        let reaches = format!("ip netns exec {from} ping -c 1 -W 1 {address} >/dev/null 2>&1");
        guest.wait_for(&reaches, LONG).unwrap();
        let before = daemon.counters().unwrap();
        let moved = format!(
            "ip netns exec {from} wget -q -O /tmp/got http://{address}/sent && cmp /tmp/sent /tmp/got"
        );
        guest.run_within(&moved, LONG).unwrap();
        let counters = daemon.counters().unwrap().since(&before);
        println!("{from} from {address}: {counters}");
        counters
    };
    // What it sends arrives whole where the receiver takes it so, and cut where not; tagged or not.
    for network in ["10.7.0", "10.8.0"] {
        let whole = fetch("b", &format!("{network}.1"));
        assert!(whole.nic("n0", "tx_tso_frames") > 0, "{whole}");
        assert!(whole.nic("n1", "rx_gso_frames") > 0, "{whole}");
        let cut = fetch("c", &format!("{network}.1"));
        assert!(cut.nic("n0", "tx_tso_frames") > 0, "{cut}");
        for other in [2, 3] {
            fetch("a", &format!("{network}.{other}"));
        }
    }
    // The 8168C has frames of up to 6 KiB.
    let longer = "for ns in a b c; do ip -n $ns link set eth0 mtu 6000; done";
    guest.run(longer).unwrap();
    let long = fetch("c", "10.7.0.1");
    assert!(long.nic("n0", "tx_frames") < 2_000_000 / 2000, "{long}");
    let long = fetch("a", "10.7.0.3");
    assert!(long.nic("n0", "rx_frames") < 2_000_000 / 2000, "{long}");
    let counters = daemon.counters().unwrap();
    is_blameless(&counters);
    has_no_complaints(&guest);
}

/// What stock Linux must be able to do on a chip, whatever its age.
fn the_basics((model, xid): (&str, &str), kernel: Kernel, right: impl Fn((u32, u32)) -> bool) {
    let lab = lab();
    lab.rig.image(kernel).unwrap_or_else(|why| panic!("{why}"));
    let daemon = lab.run_of(model, "n0", "user").unwrap();
    let config = GuestConfig::new("kernel").kernel(kernel);
    let guest = lab.rig.start(config.nic(lab.nic("n0"))).unwrap();
    let release = guest.run("uname -r").unwrap();
    let mut parts = release.split('.').map_while(|p| p.parse().ok());
    let version = parts.next().zip(parts.next());
    assert!(version.is_some_and(right), "{release}");
    let link = bring_up(&guest);
    let interface = &link.interface;
    let log = guest.run("dmesg | grep -i r8169").unwrap();
    assert!(log.contains(&format!("XID {xid}")), "{log}");
    let speed = guest.run(&format!("ethtool {interface}")).unwrap();
    assert!(speed.contains("Speed: 1000Mb/s"), "{speed}");
    println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
    for change in ["sg on tso on", "tx off"] {
        guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
        guest
            .run(&format!("ethtool -K {interface} {change}"))
            .unwrap();
    }
    guests::round_trip(&guest, &guests::noise(1_000_000)).unwrap();
    guest
        .run(&format!(
            "ethtool -S {interface}; ethtool -C {interface} rx-usecs 240; ip link set {interface} down"
        ))
        .unwrap();
    guests::dhcp(&guest, interface).unwrap();
    guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    let counters = daemon.counters().unwrap();
    println!("{release}{log}{counters}");
    assert!(counters.nic("n0", "tx_tso_frames") > 0, "{counters}");
    is_blameless(&counters);
    has_no_complaints(&guest);
}

const C: (&str, &str) = ("r8168", "3c4");
const H: (&str, &str) = ("r8168h", "541");
const S: (&str, &str) = ("r8169s", "008");

#[test]
fn r8169_of_linux_6_1_does_the_basics() {
    the_basics(C, Kernel::Oldest, |version| version == (6, 1));
}

#[test]
fn r8169_of_the_newest_linux_of_debian_does_the_basics() {
    the_basics(C, Kernel::Newest, |version| version > (6, 12));
}

#[test]
fn r8169_does_the_basics_on_an_rtl8168h() {
    the_basics(H, Kernel::Stable, |version| version >= (6, 12));
}

#[test]
fn r8169_of_linux_6_1_does_the_basics_on_an_rtl8168h() {
    the_basics(H, Kernel::Oldest, |version| version == (6, 1));
}

#[test]
fn r8169_of_the_newest_linux_of_debian_does_the_basics_on_an_rtl8168h() {
    the_basics(H, Kernel::Newest, |version| version > (6, 12));
}

#[test]
fn r8169_does_the_basics_on_an_rtl8169s() {
    the_basics(S, Kernel::Stable, |version| version >= (6, 12));
}

/// It polls ISR with nothing enabled, and has four descriptors each way.
#[test]
fn ipxes_realtek_driver_gets_an_address_and_a_script() {
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
    let daemon = lab.run_of("r8168", "n0", &port).unwrap();
    let stock = lab.rig.root().dir().join("usr/share/qemu/pxe-rtl8139.rom");
    let file = lab.path("realtek.rom");
    std::fs::write(&file, rom(&std::fs::read(stock).unwrap(), 0x8168)).unwrap();
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
