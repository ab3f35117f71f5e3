//! NICs over vhost-user: the front end is the crate `vhost`, the driver's rings are written by hand.

mod keeper;
mod packed;
mod port;
mod vmm;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use ::vhost_user::codec::{Direction, MemRegion, VringAddr};
use ::vhost_user::{Client, ClientError};
use hypernic::config::HostConfig;
use hypernic::host::Host;
use vfio_user::SharedMem;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vm_memory::{Bytes, GuestAddress};

use self::vmm::{BASE, Guest, HEADER, MQ, MRG_RXBUF, RAM, SIZE, VERSION_1, Vmm, until};

const PLAIN: u64 = VERSION_1 | MRG_RXBUF;

/// A daemon with NICs on one switch.
struct Daemon {
    dir: tempfile::TempDir,
    text: String,
    host: Option<Host>,
}

impl Daemon {
    /// NICs `n0`, `n1` …, each with these lines.
    fn new(nics: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut text = "workers = 1\n[[switch]]\nname = \"lan\"\n".to_owned();
        for (n, more) in nics.iter().enumerate() {
            let socket = dir.path().join(format!("n{n}.sock"));
            text += &format!(
                "[[nic]]\nname = \"n{n}\"\nmodel = \"virtio-net\"\ntransport = \"vhost-user\"\n\
                 socket-path = {socket:?}\nport = \"switch:lan\"\n{more}\n"
            );
        }
        let mut daemon = Self {
            dir,
            text,
            host: None,
        };
        daemon.begin();
        daemon
    }

    fn begin(&mut self) {
        let config = HostConfig::parse("vhost.toml".as_ref(), &self.text).expect("good");
        self.host = Some(Host::start(&config).expect("a host"));
    }

    /// It goes as if it was killed: nothing is said to guests.
    fn end(&mut self) {
        self.host = None;
    }

    fn socket(&self, nic: usize) -> PathBuf {
        self.dir.path().join(format!("n{nic}.sock"))
    }

    fn counter(&self, nic: usize, name: &str) -> u64 {
        let sections = self.host.as_ref().expect("it runs").counters();
        let name_of = format!("n{nic}");
        let mut nics = sections.iter().filter(|s| s.kind == "nic");
        let section = nics.find(|s| s.name == name_of).expect("a NIC");
        section.get(name)
    }

    /// Nothing went wrong by the front end's doing.
    fn no_faults(&self, nic: usize) {
        for fault in [
            "refused_violations",
            "refused_requests",
            "malformed",
            "surplus_fds",
            "rings_lost",
            "rings_refused",
        ] {
            assert_eq!(self.counter(nic, fault), 0, "{fault}");
        }
    }
}

/// A frame of 100 bytes with this number.
fn frame(to: u8, from: u8, number: u8) -> Vec<u8> {
    let mut bytes = vec![number; 100];
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

/// A guest with one pair of queues that run.
fn attach(daemon: &Daemon, nic: usize) -> (Guest, Vmm) {
    let guest = Guest::new(2);
    let mut vmm = Vmm::connect(&daemon.socket(nic), &guest, PLAIN);
    vmm.start(&guest, 0, 0);
    vmm.start(&guest, 1, 0);
    (guest, vmm)
}

#[test]
fn frames_cross_the_switch_between_two_vhost_user_nics() {
    let daemon = Daemon::new(&["", ""]);
    let (mut a, a_vmm) = attach(&daemon, 0);
    let (mut b, b_vmm) = attach(&daemon, 1);
    a.give(0, 8);
    b.give(0, 8);
    a_vmm.kick(0);
    b_vmm.kick(0);
    for number in 0..200 {
        a.send(1, &frame(2, 1, number));
        a_vmm.kick(1);
        assert_eq!(b.receive(0), frame(2, 1, number));
        b.send(1, &frame(1, 2, number));
        b_vmm.kick(1);
        assert_eq!(a.receive(0), frame(1, 2, number));
        a.give(0, 1);
        b.give(0, 1);
    }
    until("what was sent is used", || a.used(1) == a.available(1));
    assert!(b_vmm.calls(0) > 0 && a_vmm.calls(1) > 0);
    for (nic, vmm) in [(0, &a_vmm), (1, &b_vmm)] {
        assert_eq!(daemon.counter(nic, "tx_frames"), 200);
        assert_eq!(daemon.counter(nic, "rx_frames"), 200);
        assert!(daemon.counter(nic, "kicks") > 0);
        assert_eq!(vmm.front.get_vring_base(0).expect("stopped"), 200);
        daemon.no_faults(nic);
    }
}

#[test]
fn what_the_front_end_has_is_not_offered() {
    let daemon = Daemon::new(&["", "queue-pairs = 2"]);
    for (nic, queues) in [(0, 2), (1, 4)] {
        let guest = Guest::new(queues);
        let mut vmm = Vmm::connect(&daemon.socket(nic), &guest, PLAIN);
        let offered = vmm.front.get_features().expect("answered");
        // The control queue, what comes by it, status, speed, data of notifications, an IOMMU, a reset of one queue.
        for bit in [2, 16, 17, 18, 19, 20, 23, 33, 38, 40, 52, 53, 63] {
            assert_eq!(offered >> bit & 1, 0, "bit {bit}");
        }
        // Checksums, segments, merged buffers, announcements, indirect, event index, packed, in order.
        for bit in [0, 1, 3, 7, 8, 11, 12, 15, 21, 28, 29, 34, 35] {
            assert_eq!(offered >> bit & 1, 1, "bit {bit}");
        }
        assert_eq!(offered & MQ != 0, nic == 1);
        let found = vmm.front.get_queue_num().expect("answered");
        assert_eq!(found, queues as u64);
    }
}

#[test]
fn a_guest_goes_on_with_the_next_daemon_and_no_packet_comes_twice() {
    let mut daemon = Daemon::new(&["", ""]);
    let (mut a, vmm) = attach(&daemon, 0);
    let (mut b, b_vmm) = attach(&daemon, 1);
    b.give(0, 32);
    for number in 0..5 {
        a.send(1, &frame(2, 1, number));
        vmm.kick(1);
        assert_eq!(b.receive(0), frame(2, 1, number));
    }
    until("all is used", || a.used(1) == 5);
    daemon.end();
    // What the guests do meanwhile waits in their rings.
    for number in 5..9 {
        a.send(1, &frame(2, 1, number));
    }
    drop((vmm, b_vmm));
    daemon.begin();
    let mut b_vmm = Vmm::connect(&daemon.socket(1), &b, PLAIN);
    b_vmm.start(&b, 0, b.used(0));
    b_vmm.start(&b, 1, b.used(1));
    let mut vmm = Vmm::connect(&daemon.socket(0), &a, PLAIN);
    vmm.start(&a, 0, a.used(0));
    // Another front end's guess: all that was available.
    vmm.start(&a, 1, a.available(1));
    let mut came = Vec::new();
    until("all have come", || {
        came.extend(b.received(0));
        came.len() >= 4
    });
    a.send(1, &frame(2, 1, 9));
    vmm.kick(1);
    came.push(b.receive(0));
    let expected: Vec<_> = (5..10).map(|number| frame(2, 1, number)).collect();
    assert_eq!(came, expected);
    assert_eq!(daemon.counter(0, "ring_bases_corrected"), 1);
    assert!(vmm.calls(1) > 0, "a call may have been lost");
    daemon.no_faults(0);
    daemon.no_faults(1);
}

#[test]
fn exactly_what_the_device_writes_is_marked_while_a_guest_moves() {
    let daemon = Daemon::new(&["", ""]);
    let (mut a, vmm) = attach(&daemon, 0);
    let (mut b, mut b_vmm) = attach(&daemon, 1);
    let pages = (BASE as usize + RAM) / 4096;
    let log = SharedMem::new("log", pages / 8).expect("a memfd");
    let marked = || {
        let mut bytes = vec![0; pages / 8];
        log.read(0, &mut bytes);
        let bit = |page: &u64| bytes[*page as usize / 8] >> (page % 8) & 1 != 0;
        (0..pages as u64).filter(bit).collect::<BTreeSet<_>>()
    };
    b.give(0, 4);
    a.send(1, &frame(2, 1, 1));
    vmm.kick(1);
    b.receive(0);
    assert!(marked().is_empty(), "not yet");
    b_vmm.log(&b, PLAIN, &log);
    a.send(1, &frame(2, 1, 2));
    vmm.kick(1);
    b.receive(0);
    b.send(1, &frame(1, 2, 3));
    b_vmm.kick(1);
    until("it is sent", || b.used(1) == 1);
    // All that is marked by the time that the rings stop is all there is.
    for queue in [0, 1] {
        b_vmm.front.get_vring_base(queue).expect("stopped");
    }
    let used = |queue| (Guest::ring(queue) + 0x2000) / 4096;
    let buffer = Guest::buffer(0, 1) / 4096;
    assert_eq!(marked(), BTreeSet::from([used(0), used(1), buffer]));
    assert_eq!(daemon.counter(1, "log_marks_outside"), 0);
    daemon.no_faults(1);
}

#[test]
fn several_pairs_receive_when_they_are_enabled_and_a_disabled_one_drops_what_it_sends() {
    let daemon = Daemon::new(&["queue-pairs = 2", ""]);
    let mut a = Guest::new(4);
    let features = PLAIN | MQ;
    let mut vmm = Vmm::connect(&daemon.socket(0), &a, features);
    let (mut b, b_vmm) = attach(&daemon, 1);
    for queue in 0..4 {
        a.give(queue & !1, 16);
        vmm.describe(&a, queue, 0);
    }
    for queue in [0, 1] {
        vmm.front.set_vring_enable(queue, true).expect("enabled");
    }
    // By source port another flow each.
    let flow = |port: u8| {
        let mut bytes = frame(1, 2, 0);
        bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        bytes[16..18].copy_from_slice(&86u16.to_be_bytes());
        bytes[20..24].copy_from_slice(&[0, 0, 64, 17]);
        bytes[34..38].copy_from_slice(&[1, port, 0, 9]);
        bytes
    };
    let send_all = |b: &mut Guest| {
        let before = b.available(1);
        for port in 0..16 {
            b.send(1, &flow(port));
            b_vmm.kick(1);
        }
        until("all are sent", || b.used(1) == before + 16);
    };
    send_all(&mut b);
    until("they have come", || a.used(0) == 16);
    assert_eq!(a.used(2), 0, "the second pair is not enabled");
    // It drops what it sends.
    a.send(3, &frame(2, 1, 7));
    vmm.kick(3);
    until("it is used", || a.used(3) == 1);
    assert_eq!(daemon.counter(0, "tx_no_link"), 1);
    for queue in [2, 3] {
        vmm.front.set_vring_enable(queue, true).expect("enabled");
    }
    a.give(0, 16);
    send_all(&mut b);
    until("they have come", || a.used(0) - 16 + a.used(2) == 16);
    assert!(a.used(2) > 0, "none came by the second pair");
    b.give(0, 4);
    a.send(3, &frame(2, 1, 8));
    vmm.kick(3);
    assert_eq!(b.receive(0), frame(2, 1, 8));
    daemon.no_faults(0);
}

#[test]
fn a_broken_ring_is_told_and_a_reset_heals_it() {
    let daemon = Daemon::new(&["", ""]);
    let (mut a, mut vmm) = attach(&daemon, 0);
    let (mut b, _b_vmm) = attach(&daemon, 1);
    b.give(0, 4);
    // More is available than the ring has.
    a.put(Guest::ring(1) + 0x1002, (SIZE + 1).to_le_bytes());
    vmm.kick(1);
    until("it is told", || vmm.is_broken(1));
    assert_eq!(daemon.counter(0, "rings_broken"), 1);
    vmm.front.reset_device().expect("reset");
    a = Guest::new(2);
    drop(vmm);
    let mut vmm = Vmm::connect(&daemon.socket(0), &a, PLAIN);
    vmm.start(&a, 1, 0);
    a.send(1, &frame(2, 1, 3));
    vmm.kick(1);
    assert_eq!(b.receive(0), frame(2, 1, 3));
}

fn save(client: &mut Client) -> Vec<u8> {
    let (mut read, write) = std::io::pipe().expect("a pipe");
    client
        .set_device_state_fd(Direction::Save, write.as_fd())
        .expect("begun");
    drop(write);
    let mut state = Vec::new();
    read.read_to_end(&mut state).expect("read");
    client.check_device_state().expect("saved");
    state
}

fn load(client: &mut Client, state: &[u8]) -> Result<(), ClientError> {
    let (read, mut write) = std::io::pipe().expect("a pipe");
    client.set_device_state_fd(Direction::Load, read.as_fd())?;
    write.write_all(state).expect("written");
    drop(write);
    client.check_device_state()
}

#[test]
fn a_guest_that_has_moved_is_announced_and_its_state_goes_along() {
    let daemon = Daemon::new(&["", ""]);
    let (_a, vmm) = attach(&daemon, 0);
    let (mut b, _b_vmm) = attach(&daemon, 1);
    b.give(0, 4);
    // What the crate `vhost` has no call for, our own front end has.
    drop(vmm);
    // The old connection may be open for a moment in a child that another test has just forked: it is called again, as QEMU does.
    let (mut client, offered) = crate::common::until("it is answered", || {
        let mut client = Client::connect(daemon.socket(0)).ok()?;
        client.set_owner().ok()?;
        let offered = client.protocol_features().ok()?;
        Some((client, offered))
    });
    client.set_protocol_features(offered).expect("set");
    client.set_mtu(1400).expect("taken");
    let state = save(&mut client);
    load(&mut client, &state).expect("loaded");
    load(&mut client, b"no state").expect_err("refused");
    client.send_rarp([2, 0, 0, 0, 0, 9]).expect("sent");
    let came = b.receive(0);
    assert_eq!(
        came[..14],
        [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x80, 0x35
        ]
    );
    assert_eq!(came.len(), 60);
    client.send_rarp([3, 0, 0, 0, 0, 9]).expect("sent");
    until("it is counted", || {
        daemon.counter(0, "announcements_lost") == 1
    });
    assert_eq!(daemon.counter(0, "announced"), 1);
}

#[test]
fn what_a_driver_did_not_agree_to_reaches_no_ring() {
    let daemon = Daemon::new(&[""]);
    let guest = Guest::new(2);
    let mut vmm = Vmm::connect(&daemon.socket(0), &guest, PLAIN);
    // Segments without checksums, and a device of before virtio 1.
    for features in [VERSION_1 | 1 << 11, MRG_RXBUF] {
        let refused = vmm.front.set_features(features | vmm::PROTOCOL);
        refused.expect_err("they do not go together");
    }
    assert_eq!(daemon.counter(0, "refused_requests"), 2);
    // The connection goes on.
    vmm.front
        .set_features(VERSION_1 | vmm::PROTOCOL)
        .expect("good ones");
    let header = [0u8; HEADER];
    guest
        .memory
        .write_slice(&header, GuestAddress(Guest::buffer(1, 0)))
        .expect("written");
    vmm.start(&guest, 1, 0);
}

/// What the crate `vhost` cannot do: rings without eventfds for kicks.
fn attach_silently(daemon: &Daemon, nic: usize, guest: &Guest) -> Client {
    let mut client = Client::connect(daemon.socket(nic)).expect("connected");
    client.set_owner().expect("owner");
    client.set_features(PLAIN | vmm::PROTOCOL).expect("set");
    let offered = client.protocol_features().expect("answered");
    client.set_protocol_features(offered).expect("set");
    let region = MemRegion {
        guest: BASE,
        size: RAM as u64,
        user: guest.user(BASE),
        mmap_offset: 0,
    };
    client
        .set_mem_table(&[region], &[guest.file.as_fd()])
        .expect("taken");
    for queue in 0..2u8 {
        let ring = Guest::ring(queue.into());
        let index = queue.into();
        client.set_vring_num(index, SIZE.into()).expect("size");
        client.set_vring_base(index, 0).expect("base");
        let addr = VringAddr {
            index,
            flags: 0,
            descriptor: guest.user(ring),
            used: guest.user(ring + 0x2000),
            available: guest.user(ring + 0x1000),
            log: 0,
        };
        client.set_vring_addr(&addr).expect("address");
        client.set_vring_call(queue, None).expect("call");
        client.set_vring_enable(index, true).expect("enabled");
        client.set_vring_kick(queue, None).expect("kick");
    }
    client
}

#[test]
fn a_driver_that_does_not_kick_is_polled() {
    let daemon = Daemon::new(&["", ""]);
    let mut a = Guest::new(2);
    let _client = attach_silently(&daemon, 0, &a);
    let (mut b, b_vmm) = attach(&daemon, 1);
    a.give(0, 32);
    b.give(0, 32);
    for number in 0..20 {
        a.send(1, &frame(2, 1, number));
        assert_eq!(b.receive(0), frame(2, 1, number));
        // Longer than the longest pause between two looks.
        std::thread::sleep(Duration::from_millis(3));
        b.send(1, &frame(1, 2, number));
        b_vmm.kick(1);
        assert_eq!(a.receive(0), frame(1, 2, number));
    }
    assert_eq!(daemon.counter(0, "kicks"), 0);
    daemon.no_faults(0);
}

#[test]
fn a_front_end_that_lies_costs_itself_the_connection_and_others_nothing() {
    let daemon = Daemon::new(&["", "", ""]);
    let (mut a, a_vmm) = attach(&daemon, 0);
    let (mut b, _b_vmm) = attach(&daemon, 1);
    let mut liar = Guest::new(2);
    let mut vmm = Vmm::connect(&daemon.socket(2), &liar, PLAIN);
    vmm.start(&liar, 0, 0);
    vmm.start(&liar, 1, 0);
    let mut client = Client::connect(daemon.socket(2)).expect("connected");
    client.set_timeout(Duration::from_millis(100));
    let busy = client.features().expect_err("the device is in use");
    assert!(matches!(busy, ClientError::Closed), "{busy}");
    b.give(0, 32);
    for number in 0..20 {
        liar.send(1, &frame(2, 3, number));
        // Descriptors outside of memory, and rings that are none.
        liar.put(Guest::ring(1), u64::MAX.to_le_bytes());
        vmm.kick(1);
        a.send(1, &frame(2, 1, number));
        a_vmm.kick(1);
        assert_eq!(b.receive(0), frame(2, 1, number));
    }
    assert_eq!(daemon.counter(2, "rings_broken"), 1);
    assert_eq!(daemon.counter(2, "broken_unmapped"), 1);
    vmm.front.set_vring_num(0, 0).expect_err("no ring");
    until("it is sent away", || daemon.counter(2, "clients_gone") == 1);
    assert_eq!(daemon.counter(2, "refused_violations"), 1);
    a.send(1, &frame(2, 1, 99));
    a_vmm.kick(1);
    assert_eq!(b.receive(0), frame(2, 1, 99));
    daemon.no_faults(0);
    daemon.no_faults(1);
}

/// The error for a NIC with these lines.
fn refused(model: &str, more: &str) -> String {
    let text = format!(
        "[[nic]]\nname = \"n0\"\nmodel = \"{model}\"\nsocket-path = \"n0.sock\"\nport = \"null\"\n{more}\n"
    );
    let config = HostConfig::parse("v.toml".as_ref(), &text).map_err(|e| e.to_string());
    let error = config.expect_err(more);
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn what_cannot_be_served_over_vhost_user_is_refused_in_one_line() {
    for (model, more, why) in [
        ("e1000", "transport = \"vhost-user\"", "the e1000 is none"),
        ("82576", "transport = \"vhost-user\"", "the 82576 is none"),
        (
            "82576",
            "transport = \"vhost-user\"\nvfs = 2",
            "the 82576 is none",
        ),
        (
            "virtio-net",
            "transport = \"vhost\"",
            "write vfio-user or vhost-user",
        ),
        (
            "virtio-net",
            "transport = \"vhost-user\"\ndoorbell = \"page\"",
            "leave doorbell out",
        ),
        (
            "virtio-net",
            "transport = \"vhost-user\"\neeprom = \"e\"",
            "leave eeprom out",
        ),
    ] {
        let error = refused(model, more);
        assert!(error.contains(why), "{error}");
        assert!(error.contains("v.toml:6:"), "{error}");
    }
}
