//! Peers that come, go, and come back.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use port::{InletEvent, InletStatus};
use wire::Offload;

use super::rig::{Hand, Pair, Running, connect, listen, pattern, place, send, send_all, until};
use crate::{Endpoint, RingConfig, RingError, open};

fn talk(a: &Running, b: &Running) {
    until("a frame that crosses", || {
        send(&*a.sink, &pattern(1, 60));
        b.frames.try_recv().is_ok()
    });
    until("a frame back", || {
        send(&*b.sink, &pattern(2, 60));
        a.frames.try_recv().is_ok()
    });
}

#[test]
fn either_side_may_start_first() {
    for listener_first in [true, false] {
        let (_dir, path) = place();
        let (a, b);
        if listener_first {
            a = Running::new(listen(&path));
            std::thread::sleep(Duration::from_millis(50));
            b = Running::new(connect(&path));
        } else {
            b = Running::new(connect(&path));
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(send_all(&*b.sink, &[(vec![0; 60], Offload::NONE)]), 1);
            assert_eq!(b.count("ring_down"), 1);
            a = Running::new(listen(&path));
        }
        talk(&a, &b);
        assert_eq!(a.event(), InletEvent::LinkDown);
        assert_eq!(a.event(), InletEvent::LinkUp);
        assert_eq!((a.count("ring_connects"), b.count("ring_connects")), (1, 1));
    }
}

#[test]
fn a_peer_goes_and_comes_back() {
    let (_dir, path) = place();
    let a = Running::new(listen(&path));
    let mut b = Running::new(connect(&path));
    for round in 1..=3 {
        talk(&a, &b);
        drop(b);
        a.wait_for("ring_disconnects", round);
        until("frames to nobody", || {
            send(&*a.sink, &[0; 60]);
            a.count("ring_down") >= round
        });
        b = Running::new(connect(&path));
    }
    talk(&a, &b);
    // And the one that is called.
    drop(a);
    b.wait_for("ring_disconnects", 1);
    let a = Running::new(listen(&path));
    talk(&a, &b);
    assert_eq!(a.count("ring_bad_peer") + b.count("ring_bad_peer"), 0);
}

#[test]
fn what_a_peer_sent_before_it_left_comes_and_what_it_did_not_take_is_counted() {
    let mut pair = Pair::new(|config| config);
    let frames: Vec<_> = (0..100).map(|n| (pattern(n, 100), Offload::NONE)).collect();
    assert_eq!(send_all(&*pair.b.sink, &frames), 100);
    assert_eq!(send_all(&*pair.a.sink, &frames[..10]), 10);
    let Pair { a, b, .. } = &mut pair;
    b.leave();
    until("the end", || {
        a.run();
        !a.inlet.link_up()
    });
    assert_eq!(a.frames.try_iter().count(), 100);
    // Ten records of 32 and 100 bytes, in steps of 32.
    assert_eq!(a.count("ring_lost_bytes"), 10 * 160);
    assert_eq!(a.run(), InletStatus::Idle);
}

#[test]
fn waiting_senders_are_woken_when_the_peer_leaves() {
    let mut pair = Pair::new(super::rig::small);
    let frames: Vec<_> = (0..1000)
        .map(|n| (pattern(n, 1000), Offload::NONE))
        .collect();
    assert!(send_all(&*pair.a.sink, &frames) < 1000);
    let woken = std::sync::Arc::new(super::rig::Woken::default());
    let waker: std::sync::Arc<dyn frame::Wake> = woken.clone();
    pair.a.sink.want_room(&waker);
    assert_eq!(woken.times(), 0);
    pair.b.leave();
    until("the end", || {
        pair.a.run();
        !pair.a.inlet.link_up()
    });
    assert_eq!(woken.times(), 1);
    assert_eq!(send_all(&*pair.a.sink, &frames), 1000);
    // And nobody waits for a peer that is not there.
    pair.a.sink.want_room(&waker);
    assert_eq!(woken.times(), 2);
}

#[test]
fn a_newcomer_is_refused_while_another_is_there() {
    let (_dir, path) = place();
    let a = Running::new(listen(&path));
    let b = Running::new(connect(&path));
    talk(&a, &b);
    let c = Running::new(connect(&path));
    a.wait_for("ring_refused_newcomers", 2);
    assert_eq!(c.count("ring_connects"), 0);
    talk(&a, &b);
    assert_eq!(a.count("ring_connects"), 1);
    drop(b);
    talk(&a, &c);
}

#[test]
fn a_peer_that_does_not_greet_is_dropped_after_a_second() {
    let (_dir, path) = place();
    let listener = UnixListener::bind(&path).expect("a listener");
    let mut port = Hand::new(connect(&path));
    let start = Instant::now();
    port.run();
    let (_silent, _) = listener.accept().expect("it calls");
    until("the end", || {
        assert!(port.inlet.timeout().is_some(), "it would sleep for ever");
        port.run();
        assert!(!port.inlet.link_up());
        port.count("ring_failed_greetings") == 1
    });
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn the_socket_is_its_owners_and_a_stale_one_is_replaced() {
    let (dir, path) = place();
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists(), "left behind");
    let port = open(listen(&path)).expect("a port");
    assert_eq!(port.name, format!("ring-listen:{}", path.display()));
    let mode = path.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        matches!(open(listen(&path)), Err(RingError::Listen(_))),
        "in use"
    );
    drop(port);
    assert!(!path.exists());
    let file = dir.path().join("file");
    std::fs::write(&file, "no socket").expect("written");
    assert!(matches!(open(listen(&file)), Err(RingError::Listen(_))));
    let long = dir.path().join("x".repeat(120));
    assert!(matches!(
        open(connect(&long)),
        Err(RingError::BadPath { .. })
    ));
    let port = open(connect(&path)).expect("a port");
    assert_eq!(port.name, format!("ring:{}", path.display()));
}

#[test]
fn rings_have_sizes_that_are_powers_of_two() {
    for bytes in [0, 1000, 128 << 10, (1 << 20) + 4096, 128 << 20, usize::MAX] {
        let (_dir, path) = place();
        let config = RingConfig {
            bytes,
            ..RingConfig::new(Endpoint::Listen(path))
        };
        let error = open(config).err().expect("no such ring").to_string();
        assert!(error.contains("power of two") && error.contains(&bytes.to_string()));
    }
}
