//! TAPs with several queues.

use std::net::UdpSocket;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::{Keep, PATIENCE, count, inside, ip, mac_of, quiet_as, udp};
use frame::{Batch, Caps, Sink};
use hypernic_port_tap::{self as port_tap, Source, TapError};
use port::{Inlet, InletEvent, InletStatus, InletThread, Port};

/// Queue by queue, what each kept.
fn queues(port: &mut Port) -> Vec<Box<dyn Inlet>> {
    let mut first = port.inlet.take().expect("inlet");
    let others = first.split();
    assert!(first.split().is_empty(), "asked for once");
    std::iter::once(first).chain(others).collect()
}

#[test]
fn several_queues_share_the_flows_and_keep_each_in_order() {
    if !inside("kernel::queues::several_queues_share_the_flows_and_keep_each_in_order") {
        return;
    }
    const QUEUES: usize = 4;
    const FLOWS: u8 = 32;
    const ROUNDS: u8 = 20;
    let source = Source::Queues {
        name: "t0".into(),
        queues: QUEUES,
    };
    let port = port_tap::open(source).expect("several queues");
    let mut port = quiet_as(port, "t0", "10.9.0.1/24");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev t0");
    let sockets: Vec<_> = (0..FLOWS)
        .map(|_| UdpSocket::bind("10.9.0.1:0").expect("bind"))
        .collect();
    let ports = |s: &UdpSocket| s.local_addr().expect("bound").port();

    // Into the kernel by flow: each datagram arrives, and tells the kernel the flow's queue.
    let mac = mac_of("t0");
    let mut batch = Batch::new();
    for socket in &sockets {
        let (frame, notes) = udp(mac, ports(socket), b"which queue");
        batch.push_bytes(&frame);
        batch.end(notes);
    }
    let mut room = Vec::new();
    let picks = batch.all_picks(&mut room);
    assert_eq!(port.sink.deliver(&batch, picks), picks.len());
    for socket in &sockets {
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut got = [0; 64];
        let (n, _) = socket.recv_from(&mut got).expect("arrived");
        assert_eq!(&got[..n], b"which queue");
    }

    // Out of it: what belongs to one flow comes through one queue, in order.
    for round in 0..ROUNDS {
        for (flow, socket) in (0..).zip(&sockets) {
            socket
                .send_to(&[flow, round], "10.9.0.2:7000")
                .expect("send");
        }
    }
    let mut queue_of = [None; FLOWS as usize];
    let mut next = [0; FLOWS as usize];
    let mut used = 0;
    for (at, mut inlet) in queues(&mut port).into_iter().enumerate() {
        let keep = Keep::new(usize::MAX, Caps::ALL);
        assert_eq!(inlet.run(&keep, 10_000), InletStatus::Idle);
        let frames = keep.frames.lock().expect("lock");
        used += usize::from(!frames.is_empty());
        for (frame, _) in frames.iter() {
            let (flow, round) = (usize::from(frame[42]), frame[43]);
            assert_eq!(
                *queue_of[flow].get_or_insert(at),
                at,
                "one queue for a flow"
            );
            assert_eq!(round, next[flow], "in order");
            next[flow] += 1;
        }
    }
    assert_eq!(next, [ROUNDS; FLOWS as usize], "nothing is lost");
    assert!(used > 1, "the flows are spread");
    let all = u64::from(FLOWS) * u64::from(ROUNDS);
    assert_eq!(count(&port, "frames_in"), all);
    assert_eq!(count(&port, "frames_out"), u64::from(FLOWS));
}

#[test]
fn a_thread_for_each_queue_brings_everything_in() {
    if !inside("kernel::queues::a_thread_for_each_queue_brings_everything_in") {
        return;
    }
    let source = Source::Queues {
        name: "t0".into(),
        queues: 3,
    };
    let port = quiet_as(port_tap::open(source).expect("queues"), "t0", "10.9.0.1/24");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev t0");
    let keep = Arc::new(Keep::new(usize::MAX, Caps::ALL));
    let (tell, heard) = mpsc::channel();
    let to = Arc::clone(&keep) as Arc<dyn Sink>;
    let thread = InletThread::spawn("tap", port.inlet.expect("inlet"), to, move |e| {
        let _ = tell.send(e);
    })
    .expect("threads");
    for _ in 0..60 {
        let socket = UdpSocket::bind("10.9.0.1:0").expect("bind");
        socket.send_to(b"out", "10.9.0.2:7").expect("send");
    }
    let start = std::time::Instant::now();
    while keep.frames.lock().expect("lock").len() < 60 {
        assert!(start.elapsed() < PATIENCE, "frames are missing");
        std::thread::sleep(Duration::from_millis(5));
    }
    ip("link del t0");
    let event = heard.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(event, InletEvent::Closed(_)));
    while !thread.is_finished() {
        assert!(start.elapsed() < PATIENCE, "a queue does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(heard.try_recv().is_err(), "told once");
}

#[test]
fn queues_that_cannot_be_had_are_named() {
    if !inside("kernel::queues::queues_that_cannot_be_had_are_named") {
        return;
    }
    let refused = |name: &str, queues| {
        let name = name.to_owned();
        let source = Source::Queues { name, queues };
        port_tap::open(source).err().expect("must be refused")
    };
    ip("tuntap add dev t0 mode tap");
    let error = refused("t0", 2);
    assert!(
        matches!(&error, TapError::SingleQueue { queues: 2, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("mode tap multi_queue"));
    ip("tuntap add dev t1 mode tap multi_queue");
    let error = port_tap::open(Source::Name("t1".into())).err();
    let error = error.expect("it has several queues");
    assert!(error.to_string().contains("queues=N"), "{error}");
    let source = Source::Queues {
        name: "t1".into(),
        queues: 3,
    };
    let held = port_tap::open(source).expect("made for it");
    assert!(held.sink.caps().tso6);
    for queues in [0, port_tap::MAX_QUEUES + 1] {
        assert!(matches!(refused("t2", queues), TapError::QueueCount { .. }));
    }
    assert!(matches!(refused("a/b", 2), TapError::BadName { .. }));
}
