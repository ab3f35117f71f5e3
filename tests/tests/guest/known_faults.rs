//! What docs/known-client-faults.md says of QEMU, as it is today. A test that fails because QEMU behaves better asks
//! for another line on that page.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Daemon, LONG, Lab, mac};
use rig::{Guest, GuestConfig, Nic};
use rustix::process::Signal;
use serde_json::json;

/// What `abort` ends a process with.
const SIGABRT: i32 = 6;
/// Tries to kill the daemon under traffic; four of five abort QEMU.
const TIMES: usize = 6;
/// Longer than QEMU waits for an answer by default (5 seconds).
const STANDSTILL: Duration = Duration::from_secs(8);
const VF_MAC: &str = "52:54:00:76:00:0a";

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn guest(lab: &Lab, driver: &str, nic: Nic) -> Guest {
    let config = GuestConfig::new(driver).nic(nic);
    lab.rig.resume(config).unwrap()
}

#[track_caller]
fn page_is_stale(what: &str) -> ! {
    panic!("QEMU no longer {what}: correct docs/known-client-faults.md and this test")
}

/// Unplugs a NIC of a model with MSI-X, which QEMU does not live through.
#[track_caller]
fn aborts_when_unplugged(guest: &Guest, nic: &Nic) {
    guest.qmp("device_del", json!({"id": nic.id()})).unwrap();
    let Ok(status) = guest.wait_exit(LONG) else {
        page_is_stale("aborts when a NIC with MSI-X is unplugged");
    };
    let messages = guest.qemu_messages();
    assert_eq!(status.signal(), Some(SIGABRT), "{messages}");
    assert!(
        messages.contains("memory_region_del_subregion"),
        "{messages}"
    );
}

#[test]
fn qemu_aborts_when_an_82576_is_unplugged() {
    let lab = lab();
    let mut daemon = lab.run_of("82576", "n0", "user").unwrap();
    let guest = guest(&lab, "igb", lab.nic("n0"));
    guests::bring_up_with(&guest, "igb", &mac("n0")).unwrap();
    aborts_when_unplugged(&guest, &lab.nic("n0"));
    daemon.wait_log("closed its socket").unwrap();
    assert!(daemon.is_alive());
}

#[test]
fn qemu_aborts_when_a_vf_is_unplugged() {
    let lab = lab();
    let file = lab.path("host.toml");
    let sockets = lab.path("vf{}.sock");
    let toml = format!(
        "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = {sockets:?}\nport = \"user\"\n\
         [[nic.vf]]\nindex = 0\nmac = \"{VF_MAC}\"\n"
    );
    let mut daemon = Daemon::serve(&file, &toml).unwrap();
    let guest = guest(&lab, "igbvf", lab.nic("vf0"));
    guests::bring_up_with(&guest, "igbvf", VF_MAC).unwrap();
    aborts_when_unplugged(&guest, &lab.nic("vf0"));
    daemon.wait_log("closed its socket").unwrap();
    assert!(daemon.is_alive());
}

#[test]
fn qemu_aborts_when_the_daemon_is_killed_under_traffic() {
    let lab = lab();
    for _ in 0..TIMES {
        let mut daemon = lab.run_alone("e1000", "n0", "user").unwrap();
        let guest = guest(&lab, "e1000", lab.nic("n0"));
        guests::bring_up(&guest, &mac("n0")).unwrap();
        guest
            .run(&format!("ping -f {GATEWAY} > /dev/null 2>&1 &"))
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        daemon.kill();
        std::thread::sleep(Duration::from_secs(1));
        if guest.has_ended() {
            let messages = guest.qemu_messages();
            assert!(messages.contains("error_setv"), "{messages}");
            return;
        }
    }
    page_is_stale("aborts when a daemon is killed under traffic");
}

/// A daemon that does not run for a while, and its guest afterwards.
fn after_a_standstill(lab: &Lab, nic: Nic) -> (Daemon, Guest) {
    let daemon = lab.run_alone("e1000", "n0", "user").unwrap();
    let guest = guest(lab, "e1000", nic);
    guests::bring_up(&guest, &mac("n0")).unwrap();
    guest
        .run(&format!("ping {GATEWAY} > /dev/null 2>&1 &"))
        .unwrap();
    daemon.signal(Signal::STOP).unwrap();
    std::thread::sleep(STANDSTILL);
    daemon.signal(Signal::CONT).unwrap();
    assert_eq!(guest.run("killall ping; echo alive").unwrap(), "alive\n");
    (daemon, guest)
}

#[test]
fn a_daemon_that_stands_still_for_longer_than_qemu_waits_loses_its_nic() {
    let lab = lab();
    let (mut daemon, guest) = after_a_standstill(&lab, lab.nic("n0"));
    if guests::ping_all(&guest, GATEWAY, 3).is_ok() {
        page_is_stale("gives up a NIC that does not answer in time");
    }
    daemon.wait_log("closed its socket but runs on").unwrap();
}

#[test]
fn a_longer_timeout_keeps_the_nic_of_a_daemon_that_stands_still() {
    let lab = lab();
    let nic = lab.nic("n0").property("x-msg-timeout", json!(60_000));
    let (daemon, guest) = after_a_standstill(&lab, nic);
    guests::ping_all(&guest, GATEWAY, 3).unwrap();
    assert!(!daemon.log().contains("closed its socket"));
}
