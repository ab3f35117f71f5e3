//! What operators and their guests do beside moving traffic: another kernel started by kexec, a strict IOMMU, memory
//! that is plugged in, and a guest that routes or bridges between its NICs. Times are printed, never asserted.

use std::fs;
use std::process::Command;
use std::time::Instant;

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Card, Daemon, LONG, Lab, Launch, binary, mac};
use rig::{Boot, Guest, GuestConfig, Kernel};
use serde_json::json;

/// Bytes that go through a NIC there and back.
const FILE: usize = 3_000_000;
/// Room for a kernel that starts when the first one has crashed.
const CRASH: &str = "crashkernel=256M";

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn linux(append: &str) -> Boot {
    Boot::Linux {
        append: append.into(),
    }
}

/// An address, pings and a file, and no complaint of the guest's kernel.
#[track_caller]
fn works(guest: &Guest, driver: &str) {
    guests::bring_up_with(guest, driver, &mac("n0")).unwrap();
    guests::ping_all(guest, GATEWAY, 10).unwrap();
    guests::round_trip(guest, &guests::noise(FILE)).unwrap();
    assert_eq!(guests::complaints(guest).unwrap(), Vec::<String>::new());
}

/// How another kernel starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// `kexec -e`: drivers let go of their devices before.
    Jump,
    /// By a crash: the NIC goes on as its driver left it, and its rings are in memory that the new kernel does not touch.
    Crash,
}

/// The second kernel starts while frames come and go, finds the NIC as the first one left it, and uses it.
fn another_kernel_takes_the_nic_over(model: &str, driver: &str, how: How) {
    another_kernel_takes_over(model, driver, how, None);
}

/// The same with a NIC that is plugged in so.
fn another_kernel_takes_over(model: &str, driver: &str, how: How, card: Option<Card>) {
    let lab = lab();
    let start = Instant::now();
    let image = lab.rig.image(Kernel::Stable).unwrap();
    let tools = lab.rig.packages("kexec", &["kexec-tools"]).unwrap();
    let kexec = tools.find("kexec").expect("kexec-tools has it");
    let kexec = kexec.strip_prefix(tools.dir()).unwrap();
    let mut config = GuestConfig::new("kexec")
        .file("boot/vmlinuz", 0o644, fs::read(image.bzimage()).unwrap())
        .file("boot/initrd", 0o644, fs::read(image.initramfs()).unwrap())
        .boot(linux(CRASH));
    config.mem_mib = 1024;
    config.files.extend(tools.files(&[kexec]).unwrap());
    let daemon = Launch::new()
        .unwrap()
        .args(lab.run_args_of(model, "n0", "user"));
    let (daemon, config) = match card {
        None => (daemon, config.nic(lab.nic("n0").rom(""))),
        Some(card) => {
            let door = ["--transport", "vhost-user"];
            (daemon.args(door), card.plug(&lab, config, "n0"))
        }
    };
    let daemon = daemon.start().unwrap();
    let guest = lab.rig.start(config).unwrap();
    works(&guest, driver);
    let kexec = format!("/{}", kexec.display());
    let (load, parameters) = match how {
        How::Jump => ("-l", ""),
        How::Crash => ("-p", "nr_cpus=1 reset_devices"),
    };
    let load = format!(
        "{kexec} {load} /boot/vmlinuz --initrd=/boot/initrd \
         --command-line=\"$(sed 's/{CRASH}//' /proc/cmdline) {parameters}\""
    );
    guest.run_within(&load, LONG).unwrap();
    guest
        .run(&format!("ping -f {GATEWAY} >/dev/null 2>&1 &"))
        .unwrap();
    let begin = match how {
        How::Jump => format!("{kexec} -e"),
        How::Crash => "echo c > /proc/sysrq-trigger".into(),
    };
    guest.restart_by(&begin).unwrap();
    let parameters = guest.run("cat /proc/cmdline").unwrap();
    assert!(!parameters.contains(CRASH), "{parameters}");
    assert_eq!(parameters.contains("reset_devices"), how == How::Crash);
    works(&guest, driver);
    assert!(!daemon.log().contains("VMM gone"), "{}", daemon.log());
    println!(
        "{model} {card:?} {how:?}: {:.0} s\n{}",
        start.elapsed().as_secs_f64(),
        daemon.counters().unwrap()
    );
}

#[test]
#[ignore = "long: boots four kernels"]
fn long_a_kernel_started_by_kexec_takes_the_82540em_over() {
    another_kernel_takes_the_nic_over("e1000", "e1000", How::Jump);
    another_kernel_takes_the_nic_over("e1000", "e1000", How::Crash);
}

#[test]
#[ignore = "long: boots four kernels"]
fn long_a_kernel_started_by_kexec_takes_the_82576_over() {
    another_kernel_takes_the_nic_over("82576", "igb", How::Jump);
    another_kernel_takes_the_nic_over("82576", "igb", How::Crash);
}

#[test]
#[ignore = "long: boots four kernels"]
fn long_a_kernel_started_by_kexec_takes_a_virtio_net_over() {
    another_kernel_takes_the_nic_over("virtio-net", "virtio_net", How::Jump);
    another_kernel_takes_the_nic_over("virtio-net", "virtio_net", How::Crash);
}

/// Its registers are QEMU's: rings that stop are all that hypernic sees of the change.
#[test]
#[ignore = "long: boots four kernels"]
fn long_a_kernel_started_by_kexec_takes_a_virtio_net_over_vhost_user_over() {
    let card = Some(Card::VirtioVhost);
    for how in [How::Jump, How::Crash] {
        another_kernel_takes_over("virtio-net", "virtio_net", how, card);
    }
}

/// Every buffer is mapped for the NIC when it is handed over, and unmapped when it comes back: the VMM tells hypernic of
/// each.
fn works_behind_a_strict_iommu(model: &str, driver: &str) {
    let lab = lab();
    let daemon = lab.run_of(model, "n0", "user").unwrap();
    let mut config = GuestConfig::new("viommu")
        .args(["-device", "intel-iommu,caching-mode=on"])
        .boot(linux("intel_iommu=on iommu.passthrough=0 iommu.strict=1"));
    config.mem_mib = 512;
    let guest = lab.rig.start(config).unwrap();
    let log = guest.run("dmesg").unwrap();
    assert!(log.contains("policy: strict mode"), "{log}");
    // The VMM asks at its start whether a NIC is behind an IOMMU, so the NIC comes after that.
    guest.hotplug(&lab.nic("n0").rom("")).unwrap();
    let before = daemon.counters().unwrap();
    works(&guest, driver);
    let counters = daemon.counters().unwrap().since(&before);
    println!("{counters}");
    let frames = counters.nic("n0", "tx_frames");
    let maps = counters.nic("n0", "dma_maps");
    assert!(frames > 1000 && maps > frames, "{counters}");
    assert_eq!(counters.nic("n0", "dma_maps_refused"), 0, "{counters}");
}

#[test]
#[ignore = "long: every buffer is a message"]
fn long_the_82540em_works_behind_a_strict_iommu() {
    works_behind_a_strict_iommu("e1000", "e1000");
}

#[test]
#[ignore = "long: every buffer is a message"]
fn long_the_82576_works_behind_a_strict_iommu() {
    works_behind_a_strict_iommu("82576", "igb");
}

/// Memory plugged in later is above 4 GiB, where the kernel takes from first: the next buffers are there.
#[test]
#[ignore = "long: plugs memory into a booted guest"]
fn long_memory_plugged_into_the_guest_is_the_nics_too() {
    const PLUGGED: u64 = 512 << 20;
    let lab = lab();
    let daemon = lab.run_of("82576", "n0", "user").unwrap();
    let config = GuestConfig::new("dimm")
        .nic(lab.nic("n0").rom(""))
        .args(["-m", "256M,slots=2,maxmem=2G"])
        .boot(linux("memhp_default_state=online_kernel"));
    let guest = lab.rig.start(config).unwrap();
    works(&guest, "igb");
    let total = |guest: &Guest| -> u64 {
        let text = guest.run("grep MemTotal /proc/meminfo").unwrap();
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = (total(&guest), daemon.counters().unwrap());
    let backend =
        json!({"qom-type": "memory-backend-memfd", "id": "m1", "size": PLUGGED, "share": true});
    guest.qmp("object-add", backend).unwrap();
    let dimm = json!({"driver": "pc-dimm", "id": "d1", "memdev": "m1"});
    guest.qmp("device_add", dimm).unwrap();
    let grown = before.0 + (PLUGGED >> 10) * 9 / 10;
    let grows = format!("[ $(grep MemTotal /proc/meminfo | tr -dc 0-9) -gt {grown} ]");
    guest.wait_for(&grows, LONG).unwrap();
    let counters = daemon.counters().unwrap().since(&before.1);
    assert!(counters.nic("n0", "dma_maps") > 0, "{counters}");
    // Rings and buffers anew, in the memory that has come.
    guest.run("rmmod igb").unwrap();
    works(&guest, "igb");
    let zone = guest.run("cat /proc/zoneinfo").unwrap();
    let normal = zone.split("Normal").nth(1).unwrap_or_default();
    let pages = |name: &str| -> u64 {
        let (_, after) = normal.split_once(name).unwrap_or_else(|| panic!("{zone}"));
        after.split_whitespace().next().unwrap().parse().unwrap()
    };
    let used = pages("managed") - pages("pages free");
    assert!(used > 256, "{used} pages of what was plugged in are in use");
    let counters = daemon.counters().unwrap().since(&before.1);
    assert_eq!(counters.nic("n0", "dma_faults"), 0, "{counters}");
}

/// `hypernic dump` writes what `ethtool -d` in the guest reads: its program decodes both alike. `fixed` are beginnings of lines that
/// are to be the same; with none of them, all are.
fn a_dump_is_decoded(model: &str, driver: &str, fixed: &[&str]) {
    let lab = lab();
    let (control, socket) = (lab.path("control.sock"), lab.socket("n0"));
    let toml = format!(
        "control = {control:?}\n[[nic]]\nname = \"n0\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\n\
         mac = \"{}\"\nport = \"user\"\n",
        mac("n0")
    );
    let daemon = Daemon::serve(&lab.path("host.toml"), &toml).unwrap();
    let config = GuestConfig::new("dump").nic(lab.nic("n0").rom(""));
    let guest = lab.rig.start(config).unwrap();
    let link = guests::bring_up_with(&guest, driver, &mac("n0")).unwrap();
    let interface = &link.interface;
    let decoded = |words: &str| {
        let text = guest
            .run(&format!("ethtool -d {interface} {words}"))
            .unwrap();
        let is_fixed = |line: &&str| {
            let line = line.trim_start();
            fixed.is_empty() || fixed.iter().any(|begin| line.starts_with(begin))
        };
        // A dump has no words of the PHY, which come last.
        let of_mac = text
            .lines()
            .take_while(|line| !line.starts_with("PHY type:"));
        let lines = of_mac.filter(is_fixed).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let file = lab.path("n0.regs");
    // A frame in between moves heads and tails.
    let mut pair = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mut dump = Command::new(binary().unwrap());
        dump.args(["dump", "n0", "--output"]).arg(&file);
        let output = dump.arg("--control").arg(&control).output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{wrong}");
        let bytes = fs::read(&file).unwrap();
        guest.run(": > /tmp/regs").unwrap();
        for part in bytes.chunks(200) {
            let octal: String = part.iter().map(|byte| format!("\\{byte:03o}")).collect();
            guest
                .run(&format!("printf '{octal}' >> /tmp/regs"))
                .unwrap();
        }
        let size = guest.run("wc -c < /tmp/regs").unwrap();
        assert_eq!(
            size.trim().parse(),
            Ok(bytes.len()),
            "the whole file is there"
        );
        pair = (decoded(""), decoded("file /tmp/regs"));
        if pair.0 == pair.1 {
            break;
        }
    }
    let (own, ours) = pair;
    println!("{}", ours.join("\n"));
    assert!(ours.len() >= 5, "{ours:#?}");
    assert_eq!(own, ours);
    drop(daemon);
}

#[test]
#[ignore = "long: boots two kernels"]
fn long_ethtool_decodes_a_dump_in_a_guest() {
    a_dump_is_decoded("e1000", "e1000", &[]);
    let control = [
        "0x00000:", "0x00008:", "0x00100:", "0x00400:", "0x02800:", "0x03800:",
    ];
    a_dump_is_decoded("82576", "igb", &control);
}

/// One guest, four NICs of both models on two networks: two in name spaces at the ends, two in between.
const INSIDE: &str = r#"
set -e
mkdir -p /run/netns
mp e1000; mp igb
at() { grep -ls "$1" /sys/class/net/*/address | cut -d/ -f5; }
until [ -n "$(at MAC0)" ] && [ -n "$(at MAC1)" ] && [ -n "$(at MAC2)" ] && [ -n "$(at MAC3)" ]; do usleep 50000; done
A=$(at MAC0); B=$(at MAC1); C=$(at MAC2); D=$(at MAC3)
ip netns add a; ip netns add d
ip link set $A netns a name eth0; ip link set $D netns d name eth0
ip link set $B up; ip link set $C up
for ns in a d; do ip -n $ns link set lo up; ip -n $ns link set eth0 up; done
echo $B $C
"#;

/// A guest that passes everything on between two of its NICs, by `between`, and TCP from end to end through it.
fn passes_on(name: &str, ends: [&str; 2], between: impl Fn(&str, &str) -> String) {
    let lab = lab();
    let nics = [
        ("n0", "e1000", "a"),
        ("n1", "82576", "a"),
        ("n2", "e1000", "d"),
        ("n3", "82576", "d"),
    ];
    let mut toml = String::from(
        "[[switch]]\nname = \"a\"\nports = []\n[[switch]]\nname = \"d\"\nports = []\n",
    );
    for (nic, model, switch) in nics {
        let (socket, mac) = (lab.socket(nic), mac(nic));
        toml.push_str(&format!(
            "[[nic]]\nname = \"{nic}\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\n\
             port = \"switch:{switch}\"\n"
        ));
    }
    let daemon = Daemon::serve(&lab.path("host.toml"), &toml).unwrap();
    let mut config = GuestConfig::new(name);
    config.mem_mib = 512;
    config.nics = nics.map(|(nic, ..)| lab.nic(nic).rom("")).to_vec();
    config.files = lab.rig.modules(Kernel::Stable, &["bridge"]).unwrap();
    let guest = lab.rig.start(config).unwrap();
    let script = (0..4).fold(INSIDE.to_owned(), |script, n| {
        script.replace(&format!("MAC{n}"), &mac(&format!("n{n}")))
    });
    let middle = guest.run_within(&script, LONG).unwrap();
    let mut middle = middle.split_whitespace();
    let (b, c) = (middle.next().unwrap(), middle.next().unwrap());
    guest.run(&between(b, c)).unwrap();
    for (ns, address) in ["a", "d"].iter().zip(ends) {
        guest
            .run(&format!("ip -n {ns} addr add {address} dev eth0"))
            .unwrap();
    }
    let [from, to] = ends.map(|end| end.split('/').next().unwrap());
    let routed = from.rsplit_once('.').unwrap().0 != to.rsplit_once('.').unwrap().0;
    if routed {
        for (ns, address) in [("a", from), ("d", to)] {
            let gateway = format!("{}.1", address.rsplit_once('.').unwrap().0);
            guest
                .run(&format!("ip -n {ns} route add default via {gateway}"))
                .unwrap();
        }
    }
    let reaches = format!("ip netns exec a ping -c 1 -W 1 {to} >/dev/null 2>&1");
    guest.wait_for(&reaches, LONG).unwrap();
    let pings = guest
        .run(&format!(
            "ip netns exec a ping -q -c 100 -i 0.02 -w 60 {to}"
        ))
        .unwrap();
    assert!(pings.contains("100 received"), "{pings}");
    guest
        .run("ip netns exec d iperf3 -s -D >/dev/null 2>&1")
        .unwrap();
    let before = daemon.counters().unwrap();
    for reverse in ["", "-R"] {
        let sent = guest
            .run_within(
                &format!("ip netns exec a iperf3 -c {to} -n 30M {reverse} | tail -n 4"),
                2 * LONG,
            )
            .unwrap();
        println!("{sent}");
    }
    // A wrong byte anywhere shows.
    guest
        .run(&format!(
            "head -c 5000000 /dev/urandom > /tmp/sent && ip netns exec d busybox httpd -p 80 -h /tmp && \
             ip netns exec a wget -q -O /tmp/got http://{to}/sent && cmp /tmp/sent /tmp/got"
        ))
        .unwrap();
    let counters = daemon.counters().unwrap().since(&before);
    println!("{counters}");
    for (nic, ..) in nics {
        assert!(counters.nic(nic, "rx_frames") > 500, "{nic}\n{counters}");
        assert!(counters.nic(nic, "tx_frames") > 500, "{nic}\n{counters}");
    }
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "long: a hundred megabytes through a translated guest"]
fn long_a_guest_routes_between_two_of_its_nics() {
    passes_on("router", ["10.1.0.2/24", "10.2.0.2/24"], |b, c| {
        format!(
            "ip addr add 10.1.0.1/24 dev {b}; ip addr add 10.2.0.1/24 dev {c}; echo 1 > /proc/sys/net/ipv4/ip_forward"
        )
    });
}

#[test]
#[ignore = "long: a hundred megabytes through a translated guest"]
fn long_a_guest_bridges_between_two_of_its_nics() {
    passes_on("bridge", ["10.1.0.2/24", "10.1.0.3/24"], |b, c| {
        format!(
            "mp bridge && ip link add br0 type bridge && ip link set {b} master br0 && ip link set {c} master br0 && \
             ip link set br0 up"
        )
    });
}
