//! Virtual functions of an 82576 over real sockets: the mailbox, what goes between them, what an
//! operator changes while they run, and what one of them tries against the others.

use std::path::PathBuf;

use crate::common::{BROADCAST, LONG, frame, mac, next, nothing_but, until};
use drivers::igbvf::{Vf, VfError, mailbox, regs};
use drivers::{Bus, SocketBus};
use hypernic::config::HostConfig;
use hypernic::host::Host;
use pf::{Change, Down, LinkState, PortVlan, What};
use tempfile::TempDir;
use vfio_user::EventFd;
use vfio_user::codec::irq;
use wire::MacAddr;

struct Lab {
    dir: TempDir,
    host: Host,
}

impl Lab {
    /// A chip with `vfs` VFs, of which number n has the address 52:54:00:76:00:0n.
    fn new(vfs: u8, more: &str) -> Lab {
        let dir = tempfile::tempdir().expect("directory");
        let config = Lab::config(&dir, vfs, more);
        let host = Host::start(&config).expect("host");
        Lab { dir, host }
    }

    fn config(dir: &TempDir, vfs: u8, more: &str) -> HostConfig {
        let sockets = dir.path().join("vf{}.sock");
        let mut text = format!(
            "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = {vfs}\nvf-socket-path = {sockets:?}\n\
             port = \"null\"\nport-rate = 1000\n"
        );
        for n in 0..vfs {
            text += &format!("[[nic.vf]]\nindex = {n}\nmac = \"52:54:00:76:00:0{n}\"\n{more}\n");
        }
        HostConfig::parse("vfs.toml".as_ref(), &text).expect("configuration")
    }

    fn socket(&self, n: u8) -> PathBuf {
        self.dir.path().join(format!("vf{n}.sock"))
    }

    fn vf(&self, n: u8) -> Vf<SocketBus> {
        let bus = SocketBus::connect(self.socket(n)).expect("connect");
        Vf::new(bus).expect("a VF")
    }

    fn count(&self, kind: &str, name: &str, counter: &str) -> u64 {
        crate::common::count(&self.host, kind, name, counter)
    }
}

fn vlans(status: &pf::Status) -> Vec<u16> {
    let pool = &status.settings.eswitch.pool;
    assert!(pool.filters_vlans);
    pool.vlans.iter().collect()
}

#[test]
fn vfs_get_their_addresses_and_reach_each_other_and_nobody_else() {
    let lab = Lab::new(3, "");
    let [mut a, mut b, mut c] = [0, 1, 2].map(|n| lab.vf(n));
    assert_eq!([a.mac(), b.mac(), c.mac()], [0, 1, 2].map(mac));
    assert!(a.link().expect("status"));
    let to_b = frame(mac(1), mac(0), 7);
    assert_eq!(a.send(&[&to_b]).expect("send"), 1);
    assert_eq!(next(&mut b), (to_b, None));
    let to_all = frame(BROADCAST, mac(1), 9);
    b.send(&[&to_all]).expect("send");
    assert_eq!(next(&mut a).0, to_all);
    // The first that reached c was for everybody.
    assert_eq!(next(&mut c).0, to_all);
    // A group that only a has joined, by the hash of its address.
    let group = [1, 0, 0x5e, 0, 0x10, 7];
    a.want(&[3 | 1 << 16, 0x071]).expect("multicast");
    let to_group = frame(group, mac(2), 3);
    c.send(&[&to_group]).expect("send");
    assert_eq!(next(&mut a).0, to_group);
    nothing_but(&mut b, &mut c, &frame(mac(1), mac(2), 4));
    // Many at once, in order.
    let many: Vec<_> = (0..200).map(|n| frame(mac(1), mac(0), n)).collect();
    let slices: Vec<_> = many.iter().map(Vec::as_slice).collect();
    assert_eq!(a.send(&slices).expect("send"), 200);
    let mut got = Vec::new();
    until("all frames", || {
        got.extend(b.receive().expect("receive").into_iter().map(|(f, _)| f));
        (got.len() >= 200).then_some(())
    });
    assert_eq!(got, many);
    until("descriptors", || {
        (a.pending().expect("pending") == 0).then_some(())
    });
    let packets = b.bus().read32(regs::VFGPRC).expect("VFGPRC");
    assert_eq!(packets, 202);
}

#[test]
fn the_mailbox_answers_as_igb_does() {
    let lab = Lab::new(2, "");
    let mut a = lab.vf(0);
    // The operator has set the address: it may be asked for again, and no other.
    a.set_mac(mac(0)).expect("its own");
    assert!(matches!(a.set_mac(mac(9)), Err(VfError::Refused(_))));
    a.want(&[4 | 1 << 16, 100]).expect("VLAN");
    a.want(&[5, 1522]).expect("frame size");
    a.want(&[6 | 2 << 16]).expect("all groups");
    assert!(matches!(a.want(&[6 | 1 << 16]), Err(VfError::Refused(_))));
    assert!(matches!(a.want(&[0x77]), Err(VfError::Refused(_))));
    assert_eq!(lab.count("vf", "p0vf0", "vf_refused_mac_override"), 1);
    assert_eq!(lab.count("vf", "p0vf0", "vf_refused_unknown_message"), 1);
    let status = lab.host.vf_status("p0vf0").expect("a VF");
    assert_eq!(vlans(&status), [100]);
    // A reset gives all of it back, again and again.
    for _ in 0..20 {
        a.reset().expect("reset");
        assert_eq!(a.mac(), mac(0));
    }
    let status = lab.host.vf_status("p0vf0").expect("a VF");
    assert!(vlans(&status).is_empty() && status.ready);
    // Trusted, it may.
    lab.host
        .set_vf("p0vf0", Change::Trust(true))
        .expect("trust");
    a.set_mac(mac(9)).expect("another");
    let mut b = lab.vf(1);
    nothing_but(&mut a, &mut b, &frame(mac(9), mac(1), 1));
}

#[test]
fn vfs_hear_of_link_and_resets_and_live_on() {
    let lab = Lab::new(2, "");
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    let down = Change::State(LinkState::Disable);
    lab.host.set_vf("p0vf0", down).expect("state");
    let word = until("a word", || a.heard().expect("mailbox"));
    assert_eq!(word, 0x100 | mailbox::CTS);
    assert!(!a.link().expect("status"));
    a.send(&[&frame(mac(1), mac(0), 1)]).expect("send");
    lab.host
        .set_vf("p0vf0", Change::State(LinkState::Auto))
        .expect("state");
    until("a word", || a.heard().expect("mailbox"));
    assert!(a.link().expect("status"));
    // What was in the ring goes on now.
    assert_eq!(next(&mut b).0, frame(mac(1), mac(0), 1));

    lab.host.reset_chip("p0").expect("reset");
    assert!(lab.host.reset_chip("p1").is_err());
    let word = until("a word", || b.heard().expect("mailbox"));
    assert_eq!(word & 0xffff, 0x100);
    // Until the VFs have reset, they neither send nor receive.
    assert!(
        !lab.host
            .vf_status("p0vf0")
            .expect("a VF")
            .settings
            .enabled()
    );
    a.reset().expect("reset");
    b.reset().expect("reset");
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 2));

    lab.host.announce_removal("p0vf0").expect("announced");
    until("a link that is down", || {
        (!a.link().expect("status")).then_some(())
    });
    assert!(matches!(a.reset(), Err(VfError::InReset)));
    assert!(lab.host.announce_removal("p0").is_err());
}

#[test]
fn a_vf_comes_goes_and_is_attached_again_while_others_go_on() {
    let mut lab = Lab::new(3, "");
    let [mut a, b, mut c] = [0, 1, 2].map(|n| lab.vf(n));
    drop(b);
    nothing_but(&mut c, &mut a, &frame(mac(2), mac(0), 1));
    // Another VMM takes its place.
    let mut b = lab.vf(1);
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 2));
    // Taken away whole, and another with its number and its socket.
    let config = Lab::config(&lab.dir, 3, "");
    assert!(lab.host.remove_nic("p0vf1") && !lab.host.remove_nic("p0vf1"));
    nothing_but(&mut c, &mut a, &frame(mac(2), mac(0), 3));
    assert!(
        lab.host.add_nic(&config.nics[0]).is_err(),
        "that one is there"
    );
    lab.host.add_nic(&config.nics[1]).expect("added");
    let mut b = lab.vf(1);
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 4));
    assert!(!lab.host.remove_chip("p0"), "it has VFs");
    for n in 0..3 {
        assert!(lab.host.remove_nic(&format!("p0vf{n}")));
    }
    assert!(lab.host.remove_chip("p0") && !lab.host.remove_chip("p0"));
}

#[test]
fn policy_is_enforced_as_it_is_changed() {
    let lab = Lab::new(2, "");
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    // No VF can send from another's address.
    a.send(&[&frame(mac(1), mac(9), 1)]).expect("send");
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 2));
    assert_eq!(lab.count("vf", "p0vf0", "vf_refused_spoofed"), 1);
    lab.host
        .set_vf("p0vf0", Change::SpoofCheck(false))
        .expect("set");
    let spoofed = frame(mac(1), mac(9), 3);
    nothing_but(&mut b, &mut a, &spoofed);
    // In a VLAN of the operator's they reach each other only in the same one, and see no tag.
    let vlan = |id| Change::Vlan(Some(PortVlan { id, qos: 0 }));
    lab.host.set_vf("p0vf0", vlan(100)).expect("VLAN");
    a.reset().expect("reset");
    a.send(&[&frame(mac(1), mac(0), 4)]).expect("send");
    until("a frame on the wire", || {
        (lab.count("switch-port", "p0/wire", "tx_frames") > 0).then_some(())
    });
    lab.host.set_vf("p0vf1", vlan(100)).expect("VLAN");
    b.reset().expect("reset");
    let inside = frame(mac(1), mac(0), 5);
    a.send(&[&inside]).expect("send");
    // The chip says which tag it took off; the frame is as it was sent.
    assert_eq!(next(&mut b), (inside, Some(100)));
    assert!(matches!(
        a.want(&[4 | 1 << 16, 7]),
        Err(VfError::Refused(_))
    ));
    // What cannot be is refused, and nothing changes.
    let taken = lab.host.set_vf("p0vf0", Change::Mac(MacAddr(mac(1))));
    assert!(
        taken
            .expect_err("taken")
            .to_string()
            .contains("each VF needs its own")
    );
    assert!(lab.host.set_vf("p0", Change::Trust(true)).is_err());
    assert!(lab.host.set_vf("p0vf0", Change::MinTxRate(2000)).is_err());
    let new = MacAddr([2, 0, 0, 0, 0, 9]);
    lab.host
        .set_vf("p0vf0", Change::Mac(new))
        .expect("an address");
    a.reset().expect("reset");
    assert_eq!(a.mac(), new.0);
}

#[test]
fn who_floods_the_mailbox_is_shut_down_and_says_why() {
    let lab = Lab::new(2, "mailbox-rate = 1");
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    let down = until("the end", || {
        for _ in 0..64 {
            a.post(&[5, 1522]).expect("post");
        }
        lab.host.vf_status("p0vf0").expect("a VF").down
    });
    assert_eq!(down, Down::Misbehaved(What::Flood));
    assert_eq!(lab.count("vf", "p0vf0", "vf_shut_down"), 1);
    until("a link that is down", || {
        (!a.link().expect("status")).then_some(())
    });
    assert!(matches!(a.reset(), Err(VfError::InReset)));
    // Its neighbour has noticed nothing.
    b.want(&[5, 1522]).expect("answered");
    assert!(b.link().expect("status"));
    lab.host.revive_vf("p0vf0").expect("revived");
    until("a new start", || a.reset().ok());
    nothing_but(&mut b, &mut a, &frame(mac(1), mac(0), 1));
}

/// Descriptors of one VF that point to where another has its memory.
#[test]
fn no_descriptor_of_one_reaches_the_memory_of_another() {
    const SECRET: u64 = 0x7000_0000;
    let lab = Lab::new(2, "");
    let [mut thief, mut victim] = [0, 1].map(|n| lab.vf(n));
    let page = victim.bus().alloc_at(SECRET, 0x1000).expect("memory");
    let mut secret = frame(BROADCAST, mac(0), 100);
    secret.resize(0x1000, 0x5a);
    victim.bus().dma_write(page.iova, &secret).expect("write");

    // Sent from there: the thief has nothing there, so nothing goes.
    thief.send_at(SECRET, 1000).expect("send");
    until("a fault", || {
        (lab.count("nic", "p0vf0", "tx_dma_fault") > 0).then_some(())
    });
    // With memory of its own there, its own goes.
    thief.bus().alloc_at(SECRET, 0x1000).expect("memory");
    let own = frame(mac(1), mac(0), 33);
    thief.bus().dma_write(SECRET, &own).expect("write");
    thief.reset().expect("reset");
    thief.send_at(SECRET, own.len() as u32).expect("send");
    assert_eq!(next(&mut victim).0, own);

    // Received there, and a ring there: it lands in the thief's own page.
    let (ring, _) = thief.rx_memory();
    thief
        .bus()
        .dma_write(ring.iova, &SECRET.to_le_bytes())
        .expect("write");
    let gift = frame(mac(0), mac(1), 44);
    victim.send(&[&gift]).expect("send");
    let mut got = vec![0; gift.len()];
    until("the frame", || {
        thief.bus().dma_read(SECRET, &mut got).expect("read");
        (got == gift).then_some(())
    });
    let mut now = vec![0; 0x1000];
    victim.bus().dma_read(SECRET, &mut now).expect("read");
    assert!(now == secret, "the victim's page is as it was");

    // With its page gone, rings that stand there fault and nothing else.
    let dma = drivers::Dma {
        iova: SECRET,
        len: 0x1000,
    };
    thief.bus().free(dma).expect("free");
    for (base, tail) in [(regs::TDBAL, regs::TDT), (regs::RDBAL, regs::RDT)] {
        thief.bus().write32(base, SECRET as u32).expect("base");
        thief.bus().write32(base + 4, 0).expect("base");
        thief.bus().write32(tail, 99).expect("tail");
    }
    thief.flush().expect("flushed");
    for n in 0..5 {
        victim.send(&[&frame(mac(0), mac(1), n)]).expect("send");
    }
    until("a fault", || {
        (lab.count("nic", "p0vf0", "rx_dma_fault") > 0).then_some(())
    });
    victim.bus().dma_read(SECRET, &mut now).expect("read");
    assert!(now == secret);
    // And the victim still works.
    thief.reset().expect("reset");
    nothing_but(&mut victim, &mut thief, &frame(mac(1), mac(0), 55));
}

/// What no driver does with a mailbox and a window: the next good request is answered.
#[test]
fn nonsense_in_the_window_harms_nobody() {
    let lab = Lab::new(2, "");
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    let mut seed = 1u32;
    for round in 0..2000u32 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = seed ^ seed >> 16;
        let offset = match round % 4 {
            0 => regs::VMBMEM + (value >> 8 & 0x3c),
            1 => regs::V2PMAILBOX,
            2 => (value >> 4) & 0x3ffc,
            _ => 0x2800 + (value >> 4 & 0x1ffc),
        };
        match round % 7 {
            5 => a.bus().bar_write(0, u64::from(offset) + 1, &[value as u8]),
            6 => a
                .bus()
                .bar_write(3, u64::from(offset), &value.to_le_bytes()),
            _ => a.bus().write32(offset, value),
        }
        .expect("write");
        if round % 50 == 0 {
            a.bus().read32(offset).expect("read");
        }
    }
    nothing_but(&mut b, &mut lab_sender(&lab, a), &frame(mac(1), mac(0), 1));
    assert!(b.link().expect("status"));
}

/// The first VF, started anew; whatever it did, its operator lets it.
fn lab_sender(lab: &Lab, mut a: Vf<SocketBus>) -> Vf<SocketBus> {
    lab.host.revive_vf("p0vf0").expect("revived");
    a.bus().bus_reset().expect("bus reset");
    // Memory and bus mastering, which a bus reset takes.
    a.bus()
        .config_write(4, &6u16.to_le_bytes())
        .expect("command");
    until("a new start", || a.reset().ok());
    a
}

/// Three vectors: each queue and the mailbox interrupt by the vector that the driver assigned.
#[test]
fn interrupts_come_by_the_vector_they_were_given() {
    let lab = Lab::new(2, "");
    let [mut a, mut b] = [0, 1].map(|n| lab.vf(n));
    let events: [EventFd; 3] = std::array::from_fn(|_| EventFd::new().expect("eventfd"));
    let refs = events.each_ref();
    a.bus().client().arm(irq::MSIX, 0, &refs).expect("armed");
    // MSI-X on, in its capability's control word.
    let mut at = [0];
    a.bus().config_read(0x34, &mut at).expect("capabilities");
    loop {
        let mut head = [0; 2];
        a.bus()
            .config_read(at[0].into(), &mut head)
            .expect("capability");
        if head[0] == 0x11 {
            break;
        }
        assert_ne!(head[1], 0, "there is an MSI-X capability");
        at = [head[1]];
    }
    let mut control = [0; 2];
    a.bus()
        .config_read(u16::from(at[0]) + 2, &mut control)
        .expect("control");
    assert_eq!(u16::from_le_bytes(control) & 0x7ff, 2, "three vectors");
    a.bus()
        .config_write(u16::from(at[0]) + 2, &[control[0], control[1] | 0x80])
        .expect("on");
    for vector in 0..3u64 {
        a.bus()
            .bar_write(3, vector * 16 + 12, &[0; 4])
            .expect("unmasked");
    }
    // Transmit 0, receive 1, mailbox 2, as igbvf has them.
    for (reg, value) in [
        (regs::VTIVAR, 0x8081),
        (regs::VTIVAR_MISC, 0x82),
        (regs::VTEIAC, 7),
        (regs::VTEIAM, 7),
        (regs::VTEIMS, 7),
    ] {
        a.bus().write32(reg, value).expect("write");
    }
    a.flush().expect("flushed");
    b.send(&[&frame(mac(0), mac(1), 1)]).expect("send");
    assert!(events[1].wait(LONG).is_some(), "receive");
    a.bus().write32(regs::VTEIMS, 7).expect("unmask");
    a.flush().expect("flushed");
    a.send(&[&frame(mac(1), mac(0), 1)]).expect("send");
    assert!(events[0].wait(LONG).is_some(), "transmit");
    lab.host
        .set_vf("p0vf0", Change::State(LinkState::Disable))
        .expect("state");
    assert!(events[2].wait(LONG).is_some(), "mailbox");
    // Nothing is left, and software can ask for one.
    assert_eq!(a.bus().read32(regs::VTEICR).expect("EICR"), 0);
    a.bus().write32(regs::VTEIMS, 7).expect("unmask");
    a.bus().write32(regs::VTEICS, 1 << 1).expect("EICS");
    assert!(events[1].wait(LONG).is_some(), "asked for");
}
