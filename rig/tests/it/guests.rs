//! Real guests: each test boots or resumes one. Times are printed, never asserted.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rig::{Boot, GuestConfig, Netdev, Netns, Nic, Rig, paired};
use serde_json::json;

const LONG: Duration = Duration::from_secs(60);

fn rig() -> Rig {
    Rig::prepare().unwrap_or_else(|why| panic!("{why}"))
}

fn user_net() -> Option<Netdev> {
    Some(Netdev::User { options: json!({}) })
}

fn since(start: Instant) -> String {
    format!("{:.2} s", start.elapsed().as_secs_f64())
}

#[test]
fn a_cold_guest_runs_commands_and_powers_off() {
    let start = Instant::now();
    let guest = rig()
        .start(GuestConfig::new("cold").file("/data/hello", 0o640, "from the host\n"))
        .unwrap();
    println!("cold boot to first command: {}", since(start));
    assert_eq!(guest.run("cat /data/hello").unwrap(), "from the host\n");
    let failed = guest.sh("echo out; echo err >&2; exit 5").unwrap();
    assert_eq!((failed.code, failed.text.as_str()), (5, "out\nerr\n"));
    assert_ne!(guest.sh("if (").unwrap().code, 0);
    for (command, mark) in [("ip -V", "iproute2"), ("ping -V", "iputils")] {
        let version = guest.run(command).unwrap();
        assert!(version.contains(mark), "busybox's own: {version}");
    }
    let long = "x".repeat(20_000);
    assert_eq!(
        guest
            .run(&format!("printf %s {long} | wc -c"))
            .unwrap()
            .trim(),
        "20000"
    );
    let release = guest.run("uname -r").unwrap();
    assert!(release.contains("deb"), "not Debian's kernel: {release}");
    assert_eq!(
        guest.sh("lsmod | grep -c .").unwrap().text.trim(),
        "1",
        "only the heading"
    );
    assert!(
        guest
            .cpu_seconds()
            .iter()
            .any(|t| t.name.starts_with("CPU 0") && t.seconds > 0.0)
    );
    let id = guest.id();
    let _ = guest.sh("poweroff -f");
    let status = guest.wait_exit(LONG).unwrap();
    assert!(status.success(), "{status}");
    assert!(guest.sh("true").is_err());
    let scratch = guest.scratch().to_path_buf();
    drop(guest);
    assert!(!scratch.exists());
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[test]
fn a_resumed_guest_copies_files_and_runs_jobs() {
    let rig = rig();
    drop(rig.resume(GuestConfig::new("warm")).unwrap());
    let start = Instant::now();
    let guest = rig
        .resume(GuestConfig::new("resumed").file("/pushed/empty", 0o600, ""))
        .unwrap();
    println!("resume to first command: {}", since(start));
    assert_eq!(
        guest.run("stat -c '%a %s' /pushed/empty").unwrap(),
        "600 0\n"
    );

    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let start = Instant::now();
    guest.push_file("/tmp/a dir/file", 0o755, &content).unwrap();
    println!("3 MB pushed in {}", since(start));
    let start = Instant::now();
    assert!(guest.pull_file("/tmp/a dir/file").unwrap() == content);
    println!("3 MB pulled in {}", since(start));
    assert!(guest.pull_file("/nonexistent").is_err());
    assert_eq!(
        guest.run("echo the ports still work").unwrap(),
        "the ports still work\n"
    );

    let job = guest
        .spawn("echo started; sleep 1; echo \"it's\" done; exit 4")
        .unwrap();
    assert_eq!(guest.run("echo meanwhile").unwrap(), "meanwhile\n");
    let done = guest.finish(&job, LONG).unwrap();
    assert_eq!((done.code, done.text.as_str()), (4, "started\nit's done\n"));

    let error = guest
        .sh_within("echo before; sleep 100; echo after", Duration::from_secs(1))
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("killed after 1 s") && text.contains("before"),
        "{text}"
    );
    assert!(text.contains(guest.log().to_str().unwrap()), "{text}");
    assert_eq!(
        guest.run("echo alive; pidof sleep; true").unwrap(),
        "alive\n"
    );
    guest.type_text("echo typed > /tmp/typed\n").unwrap();
    guest.wait_for("[ -e /tmp/typed ]", LONG).unwrap();
}

#[test]
fn a_hot_plugged_e1000_gets_an_address_and_is_unplugged() {
    let mac = "52:54:00:12:34:56";
    let start = Instant::now();
    let guest = rig().resume(GuestConfig::new("hotplug")).unwrap();
    println!("resumed: {}", since(start));
    let nic = Nic::qemu("n0", "e1000", user_net()).mac(mac);
    let start = Instant::now();
    guest.hotplug(&nic).unwrap();
    guest
        .wait_for("lspci -n | grep -q 8086:100e", LONG)
        .unwrap();
    println!("seen after {}", since(start));
    guest.run("mp e1000").unwrap();
    let interface = guest.interface(mac, LONG).unwrap();
    let lease = guest.run(&format!("dhcp {interface}")).unwrap();
    assert!(lease.contains("lease 10.0.2."), "{lease}");
    println!("address after {}", since(start));
    guest.unplug(&nic).unwrap();
    guest
        .wait_for("! lspci -n | grep -q 8086:100e", LONG)
        .unwrap();
    guest.hotplug(&nic).unwrap();
    assert_eq!(guest.interface(mac, LONG).unwrap(), interface);
    guest.unplug(&nic).unwrap();
    let second = Nic::qemu("n1", "e1000", user_net()).mac(mac);
    assert!(
        guest
            .hotplug(&Nic::qemu("bad", "no-such-model", None))
            .is_err()
    );
    guest.hotplug(&second).unwrap();
    assert!(guest.hotplug(&Nic::qemu("n2", "igb", None)).is_ok());
    guest.unplug(&second).unwrap();
    let absent = guest
        .hotplug(&Nic::vfio_user("v0", "/nonexistent.sock"))
        .unwrap_err();
    assert!(absent.to_string().contains("/nonexistent.sock"), "{absent}");
    guest.hotplug(&second).unwrap();
    let full = guest.hotplug(&Nic::qemu("n3", "igb", None)).unwrap_err();
    assert!(full.to_string().contains("no free port"), "{full}");
}

#[test]
fn nics_of_the_configuration_are_there_cold_and_resumed() {
    let rig = rig();
    let macs = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
    let config = |name| {
        GuestConfig::new(name)
            .nic(Nic::qemu("n0", "e1000", user_net()).mac(macs[0]))
            .nic(Nic::qemu("n1", "virtio-net-pci", user_net()).mac(macs[1]))
    };
    let mut guests = rig
        .start_all(vec![config("two-a"), config("two-b")])
        .unwrap();
    guests.push(rig.resume(config("two-c")).unwrap());
    for guest in &guests {
        guest.run("mp e1000; mp virtio_net").unwrap();
        for mac in macs {
            guest.interface(mac, LONG).unwrap();
        }
    }
}

#[test]
fn a_guest_reboots_and_takes_commands_again() {
    let mut config = GuestConfig::new("reboot").nic(Nic::qemu("n0", "e1000", user_net()));
    config.allow_reboot = true;
    let guest = rig().resume(config).unwrap();
    guest.run("touch /tmp/gone").unwrap();
    guest.reboot().unwrap();
    assert_eq!(guest.run("ls /tmp").unwrap(), "");
    guest.run("lspci -n | grep 8086:100e").unwrap();
    guest.push_file("/tmp/again", 0o600, b"x").unwrap();
}

#[test]
fn a_panic_of_the_guest_is_an_error_with_its_last_words() {
    let guest = rig().resume(GuestConfig::new("panic")).unwrap();
    let error = guest
        .sh("echo c > /proc/sysrq-trigger")
        .unwrap_err()
        .to_string();
    assert!(error.contains("QEMU ended"), "{error}");
    assert!(error.contains("Kernel panic"), "{error}");
    let log = guest.log().to_path_buf();
    drop(guest);
    assert!(
        fs::read_to_string(&log).unwrap().contains("Kernel panic"),
        "the log is kept"
    );
    fs::remove_file(log).unwrap();
}

#[test]
fn no_guest_outlives_a_process_that_is_killed() {
    rig();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rig"));
    command
        .args(["shell", "--firmware"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = [0; 8];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    let qemu = children(child.id());
    assert_eq!(qemu.len(), 1, "the guest has shown something, so it runs");
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + LONG;
    let lives = || {
        let state = fs::read_to_string(format!("/proc/{}/stat", qemu[0])).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    while lives() {
        assert!(Instant::now() < deadline, "QEMU lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The processes that any thread of a process has started.
fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap();
        found.extend(list.split_whitespace().map(|p| p.parse::<u32>().unwrap()));
    }
    found
}

#[test]
fn firmware_boots_from_a_nic_and_says_so_on_the_console() {
    let nic = Nic::qemu("n0", "e1000", user_net()).boot_index(0);
    let guest = rig()
        .start(GuestConfig::new("firmware").boot(Boot::Firmware).nic(nic))
        .unwrap();
    guest.expect_console("SeaBIOS", LONG).unwrap();
    guest.expect_console("iPXE", LONG).unwrap();
    guest.expect_console("10.0.2.15", LONG).unwrap();
    assert!(guest.sh("true").is_err(), "there is nothing to run it");
}

#[test]
fn qtest_reads_configuration_and_memory() {
    let guest = rig()
        .start(
            GuestConfig::new("qtest")
                .boot(Boot::Qtest)
                .nic(Nic::qemu("n0", "e1000", None).addr("5")),
        )
        .unwrap();
    let mut machine = guest.qtest().unwrap();
    assert_eq!(machine.pci_read(0, 5, 0, 0).unwrap(), 0x100e_8086);
    assert_eq!(machine.pci_read(0, 6, 0, 0).unwrap(), u32::MAX);
    // Map the register BAR and read the device status register (manual 13.4.2): link is up.
    machine.pci_write(0, 5, 0, 0x10, 0xe000_0000).unwrap();
    machine.pci_write(0, 5, 0, 4, 2).unwrap();
    assert_eq!(machine.load(0xe000_0008, 4).unwrap() & 2, 2);
    let data: Vec<u8> = (0..=255).collect();
    machine.write(0x10_0000, &data).unwrap();
    assert_eq!(machine.read(0x10_0000, 256).unwrap(), data);
    assert_eq!(machine.load(0x10_0004, 8).unwrap(), 0x0b0a_0908_0706_0504);
    machine.store(0x10_0004, 2, 0xbeef).unwrap();
    assert_eq!(machine.read(0x10_0004, 3).unwrap(), [0xef, 0xbe, 6]);
    let now = machine.clock_step(Duration::from_millis(3)).unwrap();
    assert!(now >= Duration::from_millis(3));
}

#[test]
fn qemu_that_cannot_start_says_why() {
    let error = rig()
        .start(GuestConfig::new("broken").nic(Nic::vfio_user("n0", "/nonexistent.sock")))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/nonexistent.sock") || error.contains("No such file"),
        "{error}"
    );
}

#[test]
fn a_guest_behind_a_tap_in_a_namespace() {
    let rig = rig();
    let netns = Netns::new(&rig).unwrap_or_else(|why| panic!("{why}"));
    assert!(netns.ip(["link", "show", "lo"]).unwrap().contains("UP"));
    match netns.tap("t0", Some("10.9.0.1/24")) {
        Ok(()) => {}
        // A locked device node is the machine's choice; the rest of the namespace works.
        Err(rig::Error::CannotRun(why)) => return println!("{why}"),
        Err(other) => panic!("{other}"),
    }
    let mac = "52:54:00:00:00:07";
    let nic = Nic::qemu(
        "n0",
        "e1000",
        Some(Netdev::Tap {
            ifname: "t0".into(),
        }),
    )
    .mac(mac);
    let guest = rig
        .resume(GuestConfig::new("tap").netns(&netns).nic(nic))
        .unwrap();
    guest.run("mp e1000").unwrap();
    let interface = guest.interface(mac, LONG).unwrap();
    guest
        .run(&format!(
            "ip addr add 10.9.0.2/24 dev {interface}; ip link set {interface} up"
        ))
        .unwrap();
    guest
        .wait_for("ping -c 1 -W 1 10.9.0.1 >/dev/null", LONG)
        .unwrap();

    let mut server = netns.tool(&rig, "iperf3").unwrap();
    server.args(["--server", "--one-off", "--forceflush"]);
    let log = guest.scratch().join("iperf3.log");
    let mut server = rig::Daemon::start("iperf3", server, &log).unwrap();
    server.expect("listening", LONG).unwrap();
    let report = guest.run("iperf3 -c 10.9.0.1 -t 1 -J").unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let rate = report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap();
    println!("iperf3 through the TAP: {:.0} Mbit/s", rate / 1e6);
    assert!(rate > 0.0);

    let pairs = paired::compare(3, |_| {
        let before: f64 = guest.cpu_seconds().iter().map(|t| t.seconds).sum();
        guest.run("ping -c 5 -i 0.01 10.9.0.1")?;
        let after: f64 = guest.cpu_seconds().iter().map(|t| t.seconds).sum();
        Ok::<_, rig::Error>((after - before) * 1e3)
    })
    .unwrap();
    println!("CPU ms for five pings: {pairs}");
    assert_eq!(pairs.a.len(), 3);
}
