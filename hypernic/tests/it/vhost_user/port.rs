//! The port of one hypernic plugged into the door of another.

use std::path::Path;

use hypernic::config::HostConfig;
use hypernic::host::Host;

use super::vmm::{Guest, MRG_RXBUF, VERSION_1, Vmm, until};
use super::{PLAIN, frame};

fn host(text: &str) -> Host {
    let config = HostConfig::parse("port.toml".as_ref(), text).expect("good");
    Host::start(&config).expect("a host")
}

fn nic(name: &str, socket: &Path, port: &str) -> String {
    format!(
        "[[nic]]\nname = \"{name}\"\nmodel = \"virtio-net\"\ntransport = \"vhost-user\"\n\
         socket-path = {socket:?}\nport = \"{port}\"\n"
    )
}

/// A daemon whose switch has a guest and this port.
fn with_port(guest: &Path, port: &str) -> Host {
    host(&format!(
        "workers = 1\n[[switch]]\nname = \"near\"\nports = [\"{port}\"]\n{}",
        nic("a", guest, "switch:near")
    ))
}

/// A daemon whose switch has a guest and this door.
fn with_door(guest: &Path, door: &Path) -> Host {
    host(&format!(
        "workers = 1\n[[switch]]\nname = \"far\"\n{}{}",
        nic("b", guest, "switch:far"),
        nic("door", door, "switch:far")
    ))
}

fn counter(host: &Host, kind: &str, name: &str, counter: &str) -> u64 {
    let sections = host.counters();
    let mut all = sections.iter().filter(|s| s.kind == kind);
    let section = all.find(|s| s.name == name).expect(name);
    section.get(counter)
}

fn attach(socket: &Path, features: u64) -> (Guest, Vmm) {
    let guest = Guest::new(2);
    let mut vmm = Vmm::connect(socket, &guest, features);
    vmm.start(&guest, 0, 0);
    vmm.start(&guest, 1, 0);
    (guest, vmm)
}

/// Frames go both ways.
fn exchange(a: (&mut Guest, &Vmm), b: (&mut Guest, &Vmm), numbers: std::ops::Range<u8>) {
    let ((a, a_vmm), (b, b_vmm)) = (a, b);
    for number in numbers {
        a.give(0, 1);
        b.give(0, 1);
        a.send(1, &frame(2, 1, number));
        a_vmm.kick(1);
        assert_eq!(b.receive(0), frame(2, 1, number));
        b.send(1, &frame(1, 2, number));
        b_vmm.kick(1);
        assert_eq!(a.receive(0), frame(1, 2, number));
    }
}

#[test]
fn frames_cross_from_a_port_of_one_daemon_to_the_door_of_another_and_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let port = format!("vhost-user:{}", at("door").display());
    let near = with_port(&at("a"), &port);
    let name = format!("near/{port}");
    let connected = |near: &Host| counter(near, "port", &name, "vhost_connects");
    let (mut a, a_vmm) = attach(&at("a"), PLAIN);
    // No door yet: what is sent is dropped, and counted.
    a.send(1, &frame(2, 1, 0));
    a_vmm.kick(1);
    until("it is dropped", || {
        counter(&near, "port", &name, "vhost_down") == 1
    });
    for round in 1..=3 {
        let far = with_door(&at("b"), &at("door"));
        let (mut b, b_vmm) = attach(&at("b"), PLAIN);
        until("they meet", || connected(&near) == round);
        exchange((&mut a, &a_vmm), (&mut b, &b_vmm), 1..100);
        let of_door = |name: &str| counter(&far, "nic", "door", name);
        assert_eq!((of_door("rx_frames"), of_door("tx_frames")), (99, 99));
        for fault in [
            "refused_violations",
            "refused_requests",
            "malformed",
            "rings_broken",
        ] {
            assert_eq!(of_door(fault), 0, "{fault}");
        }
        assert_eq!(counter(&near, "port", &name, "frames_in"), 99 * round);
        assert_eq!(counter(&near, "port", &name, "frames_out"), 99 * round);
        // The far daemon goes; the port waits for the next.
        drop(far);
        until("it is missed", || {
            counter(&near, "port", &name, "vhost_disconnects") == round
        });
    }
    for fault in [
        "vhost_broken_ring",
        "vhost_bad_header",
        "vhost_runt",
        "vhost_cannot_take",
    ] {
        assert_eq!(counter(&near, "port", &name, fault), 0, "{fault}");
    }
}

#[test]
fn a_burst_crosses_a_port_in_order_and_segments_cross_it_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let far = with_door(&at("b"), &at("door"));
    let port = format!("vhost-user:{}", at("door").display());
    let near = with_port(&at("a"), &port);
    let name = format!("near/{port}");
    until("they meet", || {
        counter(&near, "port", &name, "vhost_connects") == 1
    });
    // Checksums and segments, both ways.
    let features = VERSION_1 | MRG_RXBUF | 1 << 0 | 1 << 1 | 1 << 7 | 1 << 11;
    let (mut a, a_vmm) = attach(&at("a"), features);
    let (mut b, _b_vmm) = attach(&at("b"), features);
    b.give(0, 60);
    for number in 0..60 {
        a.send(1, &frame(2, 1, number));
    }
    a_vmm.kick(1);
    let mut came = Vec::new();
    until("all have come", || {
        came.extend(b.received(0));
        came.len() == 60
    });
    let sent: Vec<_> = (0..60).map(|number| frame(2, 1, number)).collect();
    assert_eq!(came, sent);
    // A segment of 1500 bytes to be cut into three: TCP over IPv4.
    let mut whole = frame(2, 1, 9);
    whole.resize(1554, 7);
    whole[12..14].copy_from_slice(&[8, 0]);
    whole[14..34].copy_from_slice(&[
        0x45, 0, 6, 4, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    whole[34..54].fill(0);
    whole[34 + 12] = 5 << 4;
    b.give(0, 4);
    a.send_with(1, &[1, 1, 54, 0, 244, 1, 34, 0, 16, 0, 0, 0], &whole);
    a_vmm.kick(1);
    let mut came = Vec::new();
    until("it comes", || {
        came = b.received_with(0);
        !came.is_empty()
    });
    let [(header, bytes)] = &came[..] else {
        panic!("{} frames", came.len());
    };
    assert_eq!((header[0], header[1]), (1, 1), "whole, its checksum owed");
    assert_eq!(header[4..10], [244, 1, 34, 0, 16, 0]);
    assert_eq!(bytes.len(), 1554);
    assert_eq!(bytes[54..], whole[54..]);
    assert_eq!(counter(&far, "nic", "door", "tx_tso_frames"), 1);
}

#[test]
fn flows_cross_between_two_daemons_over_several_pairs() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    // The door has rings for two pairs; more are asked for.
    let _far = host(&format!(
        "workers = 1\n[[switch]]\nname = \"far\"\n{}{}queue-pairs = 2\n",
        nic("b", &at("b"), "switch:far"),
        nic("door", &at("door"), "switch:far")
    ));
    let port = format!("vhost-user:{},pairs=4", at("door").display());
    let near = with_port(&at("a"), &port);
    let name = format!("near/{port}");
    let of_port = |name_: &str| counter(&near, "port", &name, name_);
    until("they meet", || of_port("vhost_connects") == 1);
    // It had said four, and meant rings.
    assert_eq!(
        (of_port("vhost_fewer_pairs"), of_port("vhost_refused")),
        (1, 1)
    );
    let (mut a, a_vmm) = attach(&at("a"), PLAIN);
    let (mut b, b_vmm) = attach(&at("b"), PLAIN);
    b.give(0, 60);
    for number in 0..60 {
        a.send(1, &frame(2, 10 + number % 6, number));
    }
    a_vmm.kick(1);
    let mut came: Vec<Vec<u8>> = Vec::new();
    until("all have come", || {
        came.extend(b.received(0));
        came.len() == 60
    });
    for flow in 0..6 {
        let of_flow = |frame: &&Vec<u8>| frame[11] == 10 + flow;
        let numbers: Vec<u8> = came.iter().filter(of_flow).map(|frame| frame[14]).collect();
        let sent: Vec<u8> = (0..10).map(|n| flow + 6 * n).collect();
        assert_eq!(numbers, sent);
    }
    exchange((&mut a, &a_vmm), (&mut b, &b_vmm), 1..50);
}

#[test]
fn a_port_listens_for_a_back_end_that_connects() {
    use ::vhost_user::Listener;
    use std::os::unix::net::UnixStream;
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let near = with_port(
        &at("a"),
        &format!("vhost-user:listen={}", at("port").display()),
    );
    let name = format!("near/vhost-user:listen={}", at("port").display());
    // A back end that says nothing is not waited for by anyone.
    let mute = UnixStream::connect(at("port")).expect("it listens");
    let (mut a, a_vmm) = attach(&at("a"), PLAIN);
    a.send(1, &frame(2, 1, 0));
    a_vmm.kick(1);
    until("it is dropped", || {
        counter(&near, "port", &name, "vhost_down") == 1
    });
    drop(mute);
    until("it is refused", || {
        counter(&near, "port", &name, "vhost_refused") == 1
    });
    // A switch of ours has no back end that connects; the device of one behind an inherited connection is such a one.
    let socket = UnixStream::connect(at("port")).expect("it listens");
    let listener = Listener::from_connected(socket.into());
    let mut server = ::vhost_user::Server::new(2, listener).expect("a server");
    let mut device = super::vmm::Counting::default();
    until("a session has begun", || {
        server.process(&mut device, 64).expect("served");
        counter(&near, "port", &name, "vhost_connects") == 1
    });
    a.send(1, &frame(2, 1, 1));
    a_vmm.kick(1);
    until("it is kicked", || {
        server.process(&mut device, 64).expect("served");
        device.kicks[1] > 1
    });
    assert_eq!(device.available(&server.memory(), 1), 1);
}
