//! Stock drivers in guests of KVM, on any machine: QEMU translates a processor with AMD's SVM and nested paging, so a guest
//! of the rig loads KVM, and in it run hypernic, QEMU and an inner guest. That is slow, and no measure of speed. Every
//! limit here is generous; times are printed, never asserted.
//!
//! The same under cloud-hypervisor, which Debian does not have: `HYPERNIC_CLOUD_HYPERVISOR` names its program. Without
//! it those tests say so and do nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use hypernic_tests::guests::{GATEWAY, noise};
use hypernic_tests::measure::Ping;
use hypernic_tests::{Counters, LONG, Lab, binary, mac};
use rig::{CMDLINE, Guest, Job, KvmHost, KvmInside, with_libraries};

/// How long the inner guest may take, from QEMU's start to its last word: one to two minutes on two idle processors.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Pings that the inner guest sends.
const PINGS: u32 = 100;

/// The inner guest: a driver, an address, pings, and a file that goes there and back. It tells all on its console.
const INIT: &str = r#"#!/bin/sh
export PATH=/bin HOME=/root
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev 2>/dev/null; mount -t tmpfs t /tmp
rest() { echo INNER-END; while :; do sleep 1000; done; }
fail() { dmesg | tail -n 20; echo "INNER-FAILED: $1"; rest; }
interrupts() { grep eth0 /proc/interrupts | sed "s/^/$1 /"; }
dmesg | grep 'Hypervisor detected'
ip link set lo up
mp "$nic_driver" || fail 'the driver does not load'
dhcp eth0 || dhcp eth0 || dhcp eth0 || fail 'no address'
interrupts BEFORE
ping -q -c "$pings" -i 0.02 -W 60 "$gateway" || fail 'no answer to pings'
wget -q -O /tmp/file "http://$gateway:8000/file" || fail 'no file'
nc "$gateway" 9000 < /tmp/file || fail 'the file does not go back'
interrupts AFTER
dmesg | grep -iE 'hang|timed out|nobody cared|call trace' | sed 's/^/TROUBLE /'
rest
"#;

/// What hypernic and the VMM are told of the NIC.
struct Case {
    model: &'static str,
    driver: &'static str,
    options: &'static str,
    vmm: Vmm,
}

/// Who runs the inner guest.
enum Vmm {
    /// With these of its events logged.
    Qemu { trace: &'static str },
    /// cloud-hypervisor, by these words.
    CloudHypervisor { words: String },
}

/// What was seen of a run.
struct Seen {
    /// The inner guest's console.
    console: String,
    /// The VMM's messages, and QEMU's events.
    vmm: String,
    /// hypernic's counters.
    counters: Counters,
}

/// The guest that runs KVM, and how hypernic is started in it.
struct Host {
    host: KvmHost,
    daemon: String,
    _lab: Lab,
}

type File = (String, u32, Vec<u8>);

impl Host {
    fn start() -> Self {
        Self::with(Vec::new())
    }

    fn with(more: Vec<File>) -> Self {
        let lab = Lab::open(2).unwrap_or_else(|why| panic!("{why}"));
        let (mut files, daemon) = with_libraries(&binary().unwrap()).unwrap();
        files.push(("www/file".to_owned(), 0o644, noise(1 << 20)));
        files.extend(more);
        let start = Instant::now();
        let inside = KvmInside {
            init: INIT.to_owned(),
            modules: vec!["igb"],
            files,
            ..KvmInside::default()
        };
        let host = KvmHost::start(&lab.rig, inside).unwrap();
        println!("the host is up: {:.0} s", start.elapsed().as_secs_f64());
        host.guest
            .run("busybox httpd -p 127.0.0.1:8000 -h /www")
            .unwrap();
        Self {
            host,
            daemon,
            _lab: lab,
        }
    }

    fn guest(&self) -> &Guest {
        &self.host.guest
    }

    fn spawn(&self, name: &str, command: &str) -> Job {
        self.host.spawn(name, command).unwrap()
    }

    fn signal(&self, name: &str, signal: &str) {
        self.host.signal(name, signal).unwrap();
    }

    /// Runs the inner guest on a NIC.
    fn run(&self, case: &Case) -> Seen {
        let Case {
            model,
            driver,
            options,
            vmm,
        } = case;
        let (words, mac) = (&self.daemon, mac("n0"));
        let daemon = self.spawn(
            "hypernic",
            &format!(
                "{words} run --model {model} --socket-path /run/n0.sock --mac {mac} --port user {options} \
                 --log-format json >/run/hypernic.out 2>/run/hypernic.log"
            ),
        );
        self.guest().wait_for("[ -S /run/n0.sock ]", LONG).unwrap();
        // Its input must not be at an end, or it would close its half of the connection at once.
        let back = "mkfifo /run/open; nc -l -p 9000 <>/run/open | sha256sum";
        let back = self.guest().spawn(back).unwrap();
        let start = Instant::now();
        let append = format!("{CMDLINE} nic_driver={driver} pings={PINGS} gateway={GATEWAY}");
        let words = match vmm {
            Vmm::Qemu { trace } => format!(
                "qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -serial file:/run/console \
                 -accel kvm -cpu host -smp 1 -m 224M -object memory-backend-memfd,id=ram,size=224M,share=on \
                 -machine q35,memory-backend=ram -kernel /inner/vmlinux -initrd /inner/initramfs \
                 -append '{append}' {trace} -device \
                 '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"/run/n0.sock\"}},\"x-msg-timeout\":60000}}'"
            ),
            Vmm::CloudHypervisor { words } => format!(
                "{words} --kernel /inner/vmlinux --initramfs /inner/initramfs --cmdline '{append}' --cpus boot=1 \
                 --memory size=224M,shared=on --serial file=/run/console --console off --user-device socket=/run/n0.sock"
            ),
        };
        let vmm = self.spawn("vmm", &words);
        self.wait_end();
        println!("{model}: {:.0} s", start.elapsed().as_secs_f64());
        self.assert_machine();
        let console = self.guest().run("cat /run/console").unwrap();
        assert!(console.contains("INNER-END"), "{}", self.state());
        assert!(!console.contains("INNER-FAILED"), "{}", self.state());
        self.signal("hypernic", "USR1");
        let printed = "grep counters /run/hypernic.out";
        self.guest()
            .wait_for(&format!("{printed} >/dev/null"), LONG)
            .unwrap();
        let counters = Counters::parse(&self.guest().run(printed).unwrap()).unwrap();
        println!("{console}\n{counters}");
        self.signal("vmm", "TERM");
        let vmm = self.guest().finish(&vmm, LONG).unwrap();
        self.signal("hypernic", "TERM");
        assert!(self.guest().finish(&daemon, LONG).unwrap().ok());
        let back = self.guest().finish(&back, LONG).unwrap();
        let sent = self.guest().run("sha256sum < /www/file").unwrap();
        assert_eq!(back.text, sent, "the file came back as it went");
        Seen {
            console,
            vmm: vmm.text,
            counters,
        }
    }

    /// Waits for the inner guest's last word, or the VMM's end. The host is asked seldom, since it has better to do.
    fn wait_end(&self) {
        let deadline = Instant::now() + PATIENCE;
        let ended = "grep -q INNER-END /run/console || ! kill -0 $(cat /run/vmm.pid)";
        while Instant::now() < deadline && !self.guest().sh(ended).unwrap().ok() {
            std::thread::sleep(Duration::from_secs(2));
        }
    }

    /// KVM counts one machine, which it names after the thread that made it.
    fn assert_machine(&self) {
        let exits = "cat /sys/kernel/debug/kvm/*-*/exits";
        let exits = self.guest().sh(exits).unwrap();
        println!("exits to KVM: {}", exits.text.trim());
        let count = exits.text.trim().parse::<u64>().unwrap_or(0);
        assert!(count > 1000, "{exits:?}\n{}", self.state());
    }

    /// The last words of all.
    fn state(&self) -> String {
        let all = "dmesg | tail -n 20; tail -n 60 /run/job*.out /run/hypernic.out /run/hypernic.log /run/console";
        self.guest().sh(all).unwrap().text
    }
}

impl Seen {
    /// The inner guest ran under KVM and nothing was lost.
    fn assert_well(&self) {
        let console = &self.console;
        assert!(console.contains("Hypervisor detected: KVM"), "{console}");
        assert!(!console.contains("TROUBLE"), "{console}");
        let ping = Ping::parse(console).unwrap();
        assert_eq!((ping.sent, ping.received), (PINGS, PINGS), "{console}");
        for counter in [
            "malformed_payload",
            "refused_bad_irq",
            "refused_bad_eventfd",
            "dma_maps_refused",
        ] {
            assert_eq!(self.counters.nic("n0", counter), 0, "{}", self.counters);
        }
        assert!(
            self.counters.nic("n0", "irq_triggers") > 0,
            "{}",
            self.counters
        );
    }

    /// The interrupts of the lines of `/proc/interrupts` that have all these words, by the mark before them.
    fn interrupts(&self, mark: &str, words: &[&str]) -> u64 {
        let lines = self
            .console
            .lines()
            .filter_map(|line| line.strip_prefix(mark));
        let lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
        let counts = lines.map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        counts.map(Option::unwrap_or_default).sum()
    }
}

/// KVM raises INTx by an eventfd and tells the end of the interrupt by another, so neither QEMU's main loop nor the socket
/// has a part in it.
#[test]
#[ignore = "minutes, and a download: `make test-long`"]
fn long_under_kvm_the_e1000_interrupts_by_irqfd_and_resample() {
    let host = Host::start();
    let seen = host.run(&Case {
        model: "e1000",
        driver: "e1000",
        options: "",
        vmm: Vmm::Qemu {
            trace: "-trace 'vfio_intx*'",
        },
    });
    seen.assert_well();
    let of = |mark| seen.interrupts(mark, &["IO-APIC", "fasteoi"]);
    let grown = of("AFTER") - of("BEFORE");
    println!("{grown} interrupts");
    assert!(grown >= 50, "{}", seen.console);
    assert!(seen.vmm.contains("KVM INTx accel enabled"), "{}", seen.vmm);
    for slow in ["vfio_intx_interrupt", "vfio_intx_eoi"] {
        assert!(!seen.vmm.contains(slow), "{}", seen.vmm);
    }
    let of = |name| seen.counters.nic("n0", name);
    assert!(of("set_irqs") < of("irq_triggers") / 2, "{}", seen.counters);
}

/// The doorbell page is memory of the inner guest's, and its MSI-X vectors are KVM's.
#[test]
#[ignore = "minutes, and a download: `make test-long`"]
fn long_under_kvm_the_82576_rings_doorbells_in_mapped_memory() {
    let host = Host::start();
    let seen = host.run(&Case {
        model: "82576",
        driver: "igb",
        options: "--doorbell page",
        vmm: Vmm::Qemu {
            trace: "-trace 'vfio_msi*' -trace vfio_region_write",
        },
    });
    seen.assert_well();
    let of = |mark| seen.interrupts(mark, &["PCI-MSIX", "eth0-"]);
    let grown = of("AFTER") - of("BEFORE");
    println!("{grown} interrupts");
    assert!(grown >= 50, "{}", seen.console);
    let of = |name| seen.counters.nic("n0", name);
    assert!(of("doorbells") > 100, "{}", seen.counters);
    let count = |what: &str| seen.vmm.lines().filter(|line| line.contains(what)).count();
    println!(
        "writes {} by QEMU {}",
        count("vfio_region_write"),
        count("vfio_msi_interrupt")
    );
    // The tails of queues 0 to 3, receive and transmit.
    for tail in [
        "2818", "3818", "c018", "c058", "c098", "c0d8", "e018", "e058", "e098", "e0d8",
    ] {
        assert_eq!(count(&format!("region0+0x{tail},")), 0, "{tail}");
    }
}

/// The inner guest under cloud-hypervisor, where its program is given.
fn under_cloud_hypervisor(
    model: &'static str,
    driver: &'static str,
    options: &'static str,
) -> Option<Seen> {
    const GIVEN: &str = "HYPERNIC_CLOUD_HYPERVISOR";
    let Some(path) = std::env::var_os(GIVEN) else {
        println!("not tried: {GIVEN} names no cloud-hypervisor");
        return None;
    };
    let (files, words) = with_libraries(Path::new(&path)).unwrap();
    let host = Host::with(files);
    let seen = host.run(&Case {
        model,
        driver,
        options,
        vmm: Vmm::CloudHypervisor { words },
    });
    seen.assert_well();
    Some(seen)
}

/// It ends each interrupt by a message, after every access to the NIC.
#[test]
#[ignore = "minutes, and a download: `make test-long`"]
fn long_under_cloud_hypervisor_the_e1000_interrupts_by_intx() {
    let Some(seen) = under_cloud_hypervisor("e1000", "e1000", "") else {
        return;
    };
    let of = |mark| seen.interrupts(mark, &["IO-APIC", "fasteoi"]);
    assert!(of("AFTER") - of("BEFORE") >= 50, "{}", seen.console);
}

#[test]
#[ignore = "minutes, and a download: `make test-long`"]
fn long_under_cloud_hypervisor_the_82576_rings_doorbells_in_mapped_memory() {
    let Some(seen) = under_cloud_hypervisor("82576", "igb", "--doorbell page") else {
        return;
    };
    let of = |mark| seen.interrupts(mark, &["PCI-MSIX", "eth0-"]);
    assert!(of("AFTER") - of("BEFORE") >= 50, "{}", seen.console);
    assert!(
        seen.counters.nic("n0", "doorbells") > 100,
        "{}",
        seen.counters
    );
}
