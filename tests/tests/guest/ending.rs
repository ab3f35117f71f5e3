//! A daemon that ends while guests have traffic. QEMU up to 11.1.3 aborts when its NIC vanishes then, so the daemon makes
//! guests quiet first.

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Lab, mac};
use rig::GuestConfig;

/// Times that QEMU has to live through it. Without the pulled cable it lives through one in five.
const TIMES: usize = 3;

fn ends_under_traffic(model: &str, driver: &str) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    for _ in 0..TIMES {
        let mut daemon = lab.run_of(model, "n0", "user").unwrap();
        let nic = GuestConfig::new(driver).nic(lab.nic("n0"));
        let guest = lab.rig.resume(nic).unwrap();
        guests::bring_up_with(&guest, driver, &mac("n0")).unwrap();
        guest
            .run(&format!("ping -f {GATEWAY} > /dev/null 2>&1 &"))
            .unwrap();
        assert!(daemon.stop().unwrap().success());
        let log = daemon.log();
        assert!(log.contains("pulled the cables"), "{log}");
        assert_eq!(guest.run("killall ping; echo alive").unwrap(), "alive\n");
    }
}

#[test]
fn a_vmm_with_an_82540em_lives_on_when_the_daemon_ends_under_traffic() {
    ends_under_traffic("82540em", "e1000");
}

#[test]
fn a_vmm_with_an_82576_lives_on_when_the_daemon_ends_under_traffic() {
    ends_under_traffic("82576", "igb");
}
