//! Stock drivers of other architectures: 32 bits with more than 4 GiB, pages of 16 KiB. Times are printed, never asserted.

use std::time::{Duration, Instant};

use hypernic_tests::Lab;
use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::host::{Http, Inbox};
use rig::{Boot, Foreign, GuestConfig, Qemu};

/// How long a guest may take from its start to its last word, under translation.
const PATIENCE: Duration = Duration::from_secs(600);

/// A driver, an address, pings, and a file that goes there and back; it tells all on its console.
const INIT: &str = r#"#!/bin/sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev 2>/dev/null; mount -t tmpfs t /tmp
fail() { dmesg | tail -n 20; echo "FAILED: $1"; while :; do sleep 1000; done; }
echo "MACHINE $(uname -m) $(grep -m1 KernelPageSize /proc/self/smaps | tr -s ' ') $(grep MemTotal /proc/meminfo | tr -s ' ')"
ip link set lo up
mp "$nic_driver" || fail 'the driver does not load'
dhcp eth0 || dhcp eth0 || dhcp eth0 || fail 'no address'
ping -q -c 50 -i 0.02 -W 10 "$gateway" || fail 'no answer to pings'
wget -q -O /tmp/file "http://$gateway:$from/" || fail 'no file'
nc "$gateway" "$to" < /tmp/file || fail 'the file does not go back'
grep eth0 /proc/interrupts
dmesg | grep -iE 'unit hang|timed out|nobody cared|call trace' | sed 's/^/TROUBLE /'
echo ALL-DONE
while :; do sleep 1000; done
"#;

/// A machine for a kernel.
struct Machine {
    kernel: Foreign,
    qemu: Option<Qemu>,
    cpu: &'static str,
    machine: &'static str,
    console: &'static str,
    mem_mib: u32,
    /// What the guest says of itself.
    says: [&'static str; 2],
}

fn does_the_basics(lab: &Lab, machine: Machine, model: &str, driver: &str) {
    let start = Instant::now();
    let content = guests::noise(3_000_000);
    let (http, inbox) = (
        Http::serve(content.clone()).unwrap(),
        Inbox::open().unwrap(),
    );
    let (kernel, initrd) = lab.rig.foreign(machine.kernel, &[driver], INIT).unwrap();
    let path = lab.path("initrd");
    std::fs::write(&path, initrd).unwrap();
    let daemon = lab.run_of(model, "n0", "user").unwrap();
    let mut config = GuestConfig::new("foreign")
        .nic(lab.nic("n0").rom(""))
        .boot(Boot::Kernel {
            kernel,
            initrd: Some(path),
            append: format!(
                "console={} panic=-1 quiet net.ifnames=0 nic_driver={driver} gateway={GATEWAY} from={} to={}",
                machine.console, http.port, inbox.port
            ),
        });
    config.qemu = machine.qemu;
    config.cpu = Some(machine.cpu.into());
    config.machine = machine.machine.into();
    config.mem_mib = machine.mem_mib;
    let guest = lab.rig.start(config).unwrap();
    guest.expect_console("MACHINE", PATIENCE).unwrap();
    guest.expect_console("ALL-DONE", PATIENCE).unwrap();
    let console = guest.console();
    for words in machine.says {
        assert!(console.contains(words), "{words} is not in:\n{console}");
    }
    assert!(!console.contains("TROUBLE"), "{console}");
    assert!(inbox.content().unwrap() == content, "the file changed");
    let counters = daemon.counters().unwrap();
    assert!(counters.nic("n0", "irq_triggers") > 0, "{counters}");
    println!("{model}: {:.0} s", start.elapsed().as_secs_f64());
}

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn i386() -> Machine {
    Machine {
        kernel: Foreign::I386,
        qemu: None,
        cpu: "qemu32,+pae,+nx",
        machine: "pc",
        console: "ttyS0",
        mem_mib: 5 << 10,
        says: ["i686", "MemTotal: 5"],
    }
}

#[test]
#[ignore = "long: another architecture"]
fn long_a_32_bit_guest_with_5_gb_drives_the_82540em() {
    does_the_basics(&lab(), i386(), "e1000", "e1000");
}

#[test]
#[ignore = "long: another architecture"]
fn long_a_32_bit_guest_with_5_gb_drives_the_82576() {
    does_the_basics(&lab(), i386(), "82576", "igb");
}

fn arm64(lab: &Lab) -> Machine {
    Machine {
        kernel: Foreign::Arm64Pages16K,
        qemu: Some(lab.rig.qemu_for("aarch64", "qemu-system-arm").unwrap()),
        cpu: "neoverse-n1",
        machine: "virt",
        console: "ttyAMA0",
        mem_mib: 512,
        says: ["aarch64", "KernelPageSize: 16 kB"],
    }
}

#[test]
#[ignore = "long: another architecture"]
fn long_an_arm64_guest_with_pages_of_16_kib_drives_the_82540em() {
    let lab = lab();
    does_the_basics(&lab, arm64(&lab), "e1000", "e1000");
}

#[test]
#[ignore = "long: another architecture"]
fn long_an_arm64_guest_with_pages_of_16_kib_drives_the_82576() {
    let lab = lab();
    does_the_basics(&lab, arm64(&lab), "82576", "igb");
}
