//! An 82576 whose physical function is a guest's, over real sockets: a driver that rules by registers,
//! and the VFs it rules.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{BROADCAST, frame, mac, next, nothing_but, until};
use drivers::igb::Igb;
use drivers::igbpf::{Heard, Pf, regs};
use drivers::igbvf::{Vf, VfError, mailbox};
use drivers::sriov::{Sriov, extended};
use drivers::{Bus, SocketBus};
use hypernic::config::HostConfig;
use hypernic::host::Host;
use parking_lot::Mutex;
use pf::Change;
use tempfile::TempDir;

const PF: u8 = 0x0f;

struct Lab {
    dir: TempDir,
    host: Host,
}

impl Lab {
    /// A chip with `vfs` VFs.
    fn new(vfs: u8) -> Lab {
        Lab::at(vfs, "null")
    }

    /// The same at a port.
    fn at(vfs: u8, port: &str) -> Lab {
        let dir = tempfile::tempdir().expect("directory");
        let host = Host::start(&Lab::config_at(&dir, vfs, port)).expect("host");
        Lab { dir, host }
    }

    fn config(dir: &TempDir, vfs: u8) -> HostConfig {
        Lab::config_at(dir, vfs, "null")
    }

    fn config_at(dir: &TempDir, vfs: u8, port: &str) -> HostConfig {
        let (own, sockets) = (dir.path().join("pf.sock"), dir.path().join("vf{}.sock"));
        let text = format!(
            "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\npf = \"guest\"\nvfs = {vfs}\n\
             socket-path = {own:?}\nvf-socket-path = {sockets:?}\nport = {port:?}\n"
        );
        HostConfig::parse("pf.toml".as_ref(), &text).expect("configuration")
    }

    fn path(&self, n: u8) -> PathBuf {
        let name = match n {
            PF => "pf.sock".into(),
            n => format!("vf{n}.sock"),
        };
        self.dir.path().join(name)
    }

    fn bus(&self, n: u8) -> SocketBus {
        SocketBus::connect(self.path(n)).expect("connect")
    }

    /// A driver for the PF, with a thread that makes it answer.
    fn pf(&self, vfs: u8) -> Driver {
        let macs: Vec<_> = (0..vfs).map(mac).collect();
        Driver::new(Pf::new(self.bus(PF), mac(PF), &macs).expect("a PF"))
    }

    fn vf(&self, n: u8) -> Vf<SocketBus> {
        // As igbvf, it waits for its PF for a short time only, and that one's thread may not have run.
        until("a VF", || Vf::new(self.bus(n)).ok())
    }

    fn count(&self, kind: &str, name: &str, counter: &str) -> u64 {
        crate::common::count(&self.host, kind, name, counter)
    }
}

/// The PF's driver at work.
struct Driver {
    pf: Arc<Mutex<Pf<SocketBus>>>,
    heard: Arc<Mutex<Vec<Heard>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn new(pf: Pf<SocketBus>) -> Driver {
        let (pf, heard) = (
            Arc::new(Mutex::new(pf)),
            Arc::<Mutex<Vec<Heard>>>::default(),
        );
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (pf, heard, stop) = (Arc::clone(&pf), Arc::clone(&heard), Arc::clone(&stop));
            move || {
                while !stop.load(SeqCst) {
                    // A device that has gone ends it.
                    let Ok(new) = pf.lock().serve() else { return };
                    heard.lock().extend(new);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Driver {
            pf,
            heard,
            stop,
            thread: Some(thread),
        }
    }

    /// Does something with the driver; what it wrote holds afterwards.
    fn with<R>(&self, does: impl FnOnce(&mut Pf<SocketBus>) -> R) -> R {
        let mut pf = self.pf.lock();
        let result = does(&mut pf);
        pf.bus().read32(regs::STATUS).expect("status");
        result
    }

    fn next(&self) -> Vec<u8> {
        until("a frame for the PF", || {
            self.with(|pf| pf.receive().expect("receive").into_iter().next())
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the driver");
        }
    }
}

#[test]
fn a_guests_driver_rules_its_vfs_by_registers() {
    let lab = Lab::new(3);
    let driver = lab.pf(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|n| lab.vf(n));
    assert_eq!([a.mac(), b.mac(), c.mac()], [0, 1, 2].map(mac));
    let asked = Heard::Message(2, 1, true);
    until("a reset", || {
        driver.heard.lock().contains(&asked).then_some(())
    });
    until("the link", || a.link().expect("status").then_some(()));
    // Between VFs, to and from the PF, to everybody, and out.
    let to_b = frame(mac(1), mac(0), 1);
    a.send(&[&to_b]).expect("send");
    assert_eq!(next(&mut b), (to_b, None));
    let to_pf = frame(mac(PF), mac(0), 2);
    a.send(&[&to_pf]).expect("send");
    assert_eq!(driver.next(), to_pf);
    let to_c = frame(mac(2), mac(PF), 3);
    driver.with(|pf| pf.send(&to_c).expect("send"));
    assert_eq!(next(&mut c).0, to_c);
    let to_all = frame(BROADCAST, mac(1), 4);
    b.send(&[&to_all]).expect("send");
    assert_eq!(driver.next(), to_all);
    assert_eq!([next(&mut a).0, next(&mut c).0], [to_all.clone(), to_all]);
    assert_eq!(lab.count("switch-port", "p0/wire", "tx_frames"), 1);
    // What the driver grants and refuses.
    // One that came in several attempts may be reset once more by its PF, of an attempt before. It asks again, as igbvf does.
    until("its own", || {
        let granted = a.set_mac(mac(0)).is_ok();
        if !granted {
            let _ = a.reset();
        }
        granted.then_some(())
    });
    assert!(matches!(a.set_mac(mac(9)), Err(VfError::Refused(_))));
    assert!(matches!(a.want(&[6 | 1 << 16]), Err(VfError::Refused(_))));
    let group = [1, 0, 0x5e, 0, 0x10, 7];
    a.want(&[3 | 1 << 16, 0x071]).expect("multicast");
    let to_group = frame(group, mac(2), 5);
    c.send(&[&to_group]).expect("send");
    assert_eq!(next(&mut a).0, to_group);
    nothing_but(&mut b, &mut c, &frame(mac(1), mac(2), 6));
    // Anti-spoofing: dropped, counted, and reported in WVBR.
    a.send(&[&frame(mac(1), mac(2), 7)]).expect("send");
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 8));
    assert_eq!(lab.count("switch-port", "p0/p0vf0", "drop_spoofed"), 1);
    assert_eq!(lab.count("nic", "p0", "vf_spoofed"), 1);
    until("WVBR", || {
        driver
            .with(|pf| pf.bus().read32(regs::WVBR).expect("WVBR") == 1)
            .then_some(())
    });
    driver.with(|pf| {
        let own = 1 << 31;
        pf.bus().write32(regs::DTXSWC, own).expect("DTXSWC");
    });
    let spoofed = frame(mac(1), mac(2), 9);
    nothing_but(&mut b, &mut a, &spoofed);
    // A VLAN of the PF's: they reach each other only in the same one, and see no tag.
    driver.with(|pf| pf.set_port_vlan(0, 100).expect("VLAN"));
    a.send(&[&frame(mac(1), mac(0), 10)]).expect("send");
    nothing_but(&mut b, &mut c, &frame(mac(1), mac(2), 11));
    driver.with(|pf| {
        pf.set_port_vlan(1, 100).expect("VLAN");
        pf.set_vlan(0, 100, 3).expect("VLAN");
    });
    let inside = frame(mac(1), mac(0), 12);
    until("a frame in the VLAN", || {
        // What is on its way may still be without the tag.
        a.send(&[&inside]).expect("send");
        let got = b.receive().expect("receive");
        got.contains(&(inside.clone(), Some(100))).then_some(())
    });
    // Off at once. What was sent before has gone by then: an answer comes before the turn's frames, the next one after them.
    a.flush().expect("flush");
    a.flush().expect("flush");
    driver.with(|pf| pf.bus().write32(regs::VFTE, 0xfe).expect("VFTE"));
    let off = lab.count("switch-port", "p0/p0vf1", "tx_frames");
    a.send(&[&inside]).expect("send");
    a.flush().expect("flush");
    assert_eq!(lab.count("switch-port", "p0/p0vf1", "tx_frames"), off);
    // Its own reset brings it back.
    a.reset().expect("reset");
    until("the reset", || {
        driver.heard.lock().contains(&Heard::Reset(0)).then_some(())
    });
    // The operator cannot set policy here, and gets an error.
    let error = lab.host.set_vf("p0vf0", Change::Trust(true));
    assert!(
        error
            .expect_err("no")
            .to_string()
            .contains("a guest controls it")
    );
    assert!(lab.host.vf_status("p0vf0").is_none());
    let error = lab.host.reset_chip("p0").expect_err("no");
    assert!(error.to_string().contains("a guest controls it"), "{error}");
    assert!(lab.host.announce_removal("p0vf0").is_err());
}

#[test]
fn resets_of_the_pf_reach_vfs_and_they_come_back() {
    let mut lab = Lab::new(2);
    let driver = lab.pf(2);
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 1));
    driver.with(|pf| pf.reset().expect("reset"));
    let seen = a.bus().read32(drivers::igbvf::regs::V2PMAILBOX);
    assert!(seen.expect("mailbox") & (mailbox::RSTD | mailbox::RSTI) != 0);
    // Until the VFs have reset, they neither send nor receive.
    a.send(&[&frame(mac(1), mac(0), 2)]).expect("send");
    a.reset().expect("reset");
    b.reset().expect("reset");
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 3));
    // Its VMM goes, another comes.
    drop(driver);
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 4));
    let driver = lab.pf(2);
    a.reset().expect("reset");
    b.reset().expect("reset");
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 5));
    // Taken away whole, and put back.
    assert!(lab.host.remove_nic("p0"));
    assert!(matches!(a.reset(), Err(VfError::InReset)));
    assert!(!lab.host.remove_chip("p0"), "it has VFs");
    drop(driver);
    let config = Lab::config(&lab.dir, 2);
    let own = config.nics.iter().find(|nic| nic.name == "p0").expect("PF");
    lab.host.add_nic(own).expect("added");
    assert!(lab.host.add_nic(own).is_err(), "that one is there");
    let _driver = lab.pf(2);
    a.reset().expect("reset");
    b.reset().expect("reset");
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 6));
}

/// The stock driver does not see SR-IOV: it has an ordinary NIC, and VFs wait.
#[test]
fn a_driver_that_knows_of_no_vfs_has_an_ordinary_nic() {
    let lab = Lab::new(1);
    assert!(matches!(Vf::new(lab.bus(0)), Err(VfError::InReset)));
    let mut igb = Igb::connect(lab.path(PF), false).expect("a NIC");
    let out = frame(mac(9), mac(PF), 1);
    assert!(igb.send(&out, 3).expect("send"));
    until("sent", || igb.all_sent().then_some(()));
    assert_eq!(lab.count("switch-port", "p0/wire", "tx_frames"), 3);
    assert!(matches!(Vf::new(lab.bus(0)), Err(VfError::InReset)));
}

/// Where a VMM passes SR-IOV through, its registers say which VFs there are.
#[test]
fn a_vmm_that_shows_sriov_enables_and_ends_vfs_by_it() {
    let lab = Lab::new(3);
    let mut bus = lab.bus(PF);
    let chain = extended(&mut bus).expect("configuration space");
    let usual = [
        (0x100, 1, 1),
        (0x140, 3, 1),
        (0x150, 0xe, 1),
        (0x160, 0x10, 1),
    ];
    assert_eq!(chain, usual);
    let iov = Sriov::find(&mut bus).expect("bus").expect("SR-IOV");
    assert_eq!((iov.initial, iov.total, iov.device), (3, 3, 0x10ca));
    assert_eq!(iov.routing(&mut bus, true).expect("ARI"), (0x80, 2));
    assert_eq!(iov.routing(&mut bus, false).expect("bus"), (0x180, 2));
    for bar in [0, 3] {
        let at = 0x10_0000_0000 + u64::from(bar) * 0x10_0000;
        assert_eq!(iov.place_bar(&mut bus, bar, at).expect("BAR"), 16 << 10);
    }
    let iov_mode = |bus: &mut SocketBus| bus.read32(regs::STATUS).expect("status") >> 14 & 0x1f;
    assert_eq!(iov_mode(&mut bus), 0);
    iov.enable(&mut bus, 4).expect("bus");
    assert_eq!(
        iov.alive(&mut bus).expect("bus"),
        0,
        "there are not so many"
    );
    iov.disable(&mut bus).expect("bus");
    // Two of three: the third one's pool is the PF's own.
    iov.enable(&mut bus, 2).expect("bus");
    assert_eq!(iov.alive(&mut bus).expect("bus"), 2);
    assert_eq!(iov_mode(&mut bus), 1 << 4 | 2);
    let driver = Driver::new(Pf::new(bus, mac(PF), &[mac(0), mac(1)]).expect("a PF"));
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    assert!(matches!(Vf::new(lab.bus(2)), Err(VfError::InReset)));
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 1));
    let to_all = frame(BROADCAST, mac(0), 2);
    a.send(&[&to_all]).expect("send");
    assert_eq!((driver.next(), next(&mut b).0), (to_all.clone(), to_all));
    let to_pf = frame(mac(PF), mac(1), 3);
    b.send(&[&to_pf]).expect("send");
    assert_eq!(driver.next(), to_pf);
    // Ended: they are in reset, and whatever they send goes nowhere.
    driver.with(|pf| iov.disable(pf.bus()).expect("bus"));
    let seen = a.bus().read32(drivers::igbvf::regs::V2PMAILBOX);
    assert!(seen.expect("mailbox") & mailbox::RSTI != 0);
    let sent = || lab.count("switch-port", "p0/p0vf1", "tx_frames");
    let before = sent();
    a.send(&[&frame(mac(1), mac(0), 4)]).expect("send");
    a.flush().expect("flush");
    assert_eq!(sent(), before);
    assert!(matches!(a.reset(), Err(VfError::InReset)));
    // Another machine on the same card, which wants all of them.
    drop(driver);
    let mut bus = lab.bus(PF);
    assert_eq!(iov.alive(&mut bus).expect("bus"), 0);
    iov.enable(&mut bus, 3).expect("bus");
    let macs: Vec<_> = (0..3).map(mac).collect();
    let driver = Driver::new(Pf::new(bus, mac(PF), &macs).expect("a PF"));
    let mut c = lab.vf(2);
    a.reset().expect("reset");
    nothing_but(&mut c, &mut a, &frame(mac(2), mac(0), 5));
    // A reset of the function ends them too, and then registers alone rule, as where SR-IOV is hidden.
    driver.with(|pf| pf.bus().bus_reset().expect("reset"));
    assert!(matches!(c.reset(), Err(VfError::InReset)));
    drop(driver);
    let _driver = lab.pf(3);
    c.reset().expect("reset");
    a.reset().expect("reset");
    nothing_but(&mut c, &mut a, &frame(mac(2), mac(0), 6));
}

/// Rates, copies, loops and local VLANs as the PF's registers say.
#[test]
fn what_a_pf_says_of_rates_copies_and_loops_holds_at_the_switch() {
    let lab = Lab::new(3);
    let driver = lab.pf(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|n| lab.vf(n));
    let write = |list: &[(u32, u32)]| {
        driver.with(|pf| {
            for (at, value) in list {
                pf.bus().write32(*at, *value).expect("a register");
            }
        });
    };
    let of = |port: &str, counter| lab.count("switch-port", port, counter);
    // What VF 1 gets VF 2 gets too.
    write(&[(regs::VMRVM, 2), (regs::VMRCTL, 1 | 2 << 8)]);
    let to_b = frame(mac(1), mac(0), 1);
    a.send(&[&to_b]).expect("send");
    assert_eq!([next(&mut b).0, next(&mut c).0], [to_b.clone(), to_b]);
    write(&[(regs::VMRCTL, 0)]);
    a.send(&[&frame(mac(1), mac(0), 2)]).expect("send");
    next(&mut b);
    nothing_but(&mut c, &mut a, &frame(mac(2), mac(0), 3));
    // What VF 0 sends to itself.
    let own = frame(mac(0), mac(0), 4);
    a.send(&[&own]).expect("send");
    until("a drop", || {
        (of("p0/p0vf0", "drop_hairpin") == 1).then_some(())
    });
    write(&[(regs::DTXSWC, 1 << 31 | 1 << 16)]);
    a.send(&[&own]).expect("send");
    assert_eq!(next(&mut a).0, own);
    // A VLAN that stays inside, and one that does not.
    driver.with(|pf| pf.set_port_vlan(0, 100).expect("VLAN"));
    let out = frame(mac(9), mac(0), 5);
    let wire = of("p0/wire", "tx_frames");
    write(&[(regs::VLVF, 1 << 31 | 1 << 20 | 1 << 12 | 100)]);
    until("a frame that stays", || {
        // What is on its way may still be without the tag.
        a.send(&[&out]).expect("send");
        a.flush().expect("flush");
        (of("p0/p0vf0", "drop_no_pool") > 0).then_some(())
    });
    assert_eq!(of("p0/wire", "tx_frames"), wire);
    write(&[(regs::VLVF, 1 << 31 | 1 << 12 | 100)]);
    a.send(&[&out]).expect("send");
    until("a frame that leaves", || {
        (of("p0/wire", "tx_frames") > wire).then_some(())
    });
    // A rate: as little as can be said. The rest waits in the ring, and comes when it may.
    let part = 1 << 31 | 0x0fff_ffff;
    write(&[(regs::RTTDQSEL, 1), (regs::RTTBCNRC, part)]);
    let large = vec![frame(mac(2), mac(1), 200); 60];
    for frame in &large {
        b.send(&[frame]).expect("send");
    }
    until("a wait", || (of("p0/p0vf1", "paced") > 0).then_some(()));
    let mut got = 0;
    write(&[(regs::RTTDQSEL, 1), (regs::RTTBCNRC, 0)]);
    until("the rest", || {
        got += c.receive().expect("receive").len();
        (got == large.len()).then_some(())
    });
}

/// Floods from a wire that gives everything back.
#[test]
fn what_floods_from_the_wire_is_bounded_as_a_pf_says() {
    let lab = Lab::at(2, "loopback");
    let driver = lab.pf(2);
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    let storms = || lab.count("switch-port", "p0/wire", "drop_storm");
    let to_all = frame(BROADCAST, mac(0), 1);
    a.send(&[&to_all]).expect("send");
    // From the neighbour, and from the wire.
    let mut got = Vec::new();
    until("two frames", || {
        got.extend(b.receive().expect("receive"));
        (got.len() == 2).then_some(())
    });
    assert_eq!([&got[0].0, &got[1].0], [&to_all; 2]);
    assert_eq!((next(&mut a).0, storms()), (to_all, 0));
    driver.with(|pf| {
        pf.bus().write32(regs::BSCTRH, 0).expect("BSCTRH");
        pf.bus()
            .write32(regs::SCCRL, 1 << 8 | 1 << 3)
            .expect("SCCRL");
    });
    let to_all = frame(BROADCAST, mac(0), 2);
    a.send(&[&to_all]).expect("send");
    assert_eq!(next(&mut b).0, to_all);
    until("a drop", || (storms() == 1).then_some(()));
    assert!(a.receive().expect("receive").is_empty());
}

/// Random values in all registers that set policy: no NIC fails, and a driver that starts anew sets
/// policy as before.
#[test]
fn nonsense_in_what_rules_ends_with_the_next_reset() {
    let lab = Lab::new(2);
    let driver = lab.pf(2);
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    let places = [
        (regs::VMBMEM, 0x1fc),
        (regs::P2VMAILBOX, 0x1c),
        (regs::MBVFICR, 0xc),
        (regs::VFRE, 4),
        (regs::DTXSWC, 0),
        (regs::VMVIR, 0x1c),
        (regs::VMOLR, 0x1c),
        (regs::VLVF, 0x7c),
        (regs::RAL, 0x7c),
        (regs::UTA, 0x1fc),
        (regs::MTA, 0x1fc),
        (regs::VT_CTL, 0),
        (regs::MRQC, 0),
        (regs::RTTDQSEL, 0),
        (regs::RTTBCNRC, 0),
        (regs::SCCRL, 0xc),
        (regs::VMRCTL, 0x2c),
        (regs::CTRL_EXT, 0),
        (regs::QDE, 0),
        (regs::RCTL, 0),
    ];
    let mut seed = 1u32;
    for round in 0..1500usize {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = seed ^ seed >> 16;
        let (base, span) = places[round % places.len()];
        let at = base + (value >> 7 & span & !3);
        driver
            .with(|pf| match round % 5 {
                0 => pf.bus().bar_write(0, u64::from(at) + 1, &[value as u8]),
                1 => pf.bus().read32(at).map(|_| ()),
                _ => pf.bus().write32(at, value),
            })
            .expect("an access");
        if round % 50 == 0 {
            a.send(&[&frame(mac(1), mac(0), 1)]).expect("send");
            b.send(&[&frame(BROADCAST, mac(9), 2)]).expect("send");
            b.receive().expect("receive");
            a.receive().expect("receive");
        }
    }
    driver.with(|pf| pf.reset().expect("reset"));
    until("a new start", || a.reset().ok());
    until("a new start", || b.reset().ok());
    let marker = frame(mac(1), mac(0), 77);
    a.send(&[&marker]).expect("send");
    until("the marker", || {
        let got = b.receive().expect("receive");
        got.iter().any(|(bytes, _)| *bytes == marker).then_some(())
    });
}
