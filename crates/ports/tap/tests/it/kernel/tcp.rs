//! TCP between two namespaces, with segmentation offload and without.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};

use super::{PATIENCE, by_hand, inside, open, quiet, quiet_as};
use hypernic_port_tap::{self as port_tap, Source};
use port::{InletThread, counter};

#[test]
fn tcp_passes_in_large_unsegmented_frames() {
    if inside("kernel::tcp::tcp_passes_in_large_unsegmented_frames") {
        let carried = tcp_between(true);
        // Acknowledgements are small, so compare with what frames of MTU size would need.
        assert!(carried.bytes / carried.frames > 3000, "{carried:?}");
    }
}

#[test]
fn large_frames_are_cut_for_a_receiver_that_cannot_take_them() {
    if inside("kernel::tcp::large_frames_are_cut_for_a_receiver_that_cannot_take_them") {
        let carried = tcp_between(false);
        // Acknowledgements pass one to one; 4 MB are some 2700 segments.
        assert!(carried.cut > 1000, "{carried:?}");
    }
}

/// What the side with offload carried, both ways.
#[derive(Debug)]
struct Carried {
    frames: u64,
    bytes: u64,
    /// Frames that left on the other side beyond those that came in here.
    cut: u64,
}

/// Echoes 4 MB of TCP between two namespaces through two TAPs, the second one with `offload` or
/// without.
fn tcp_between(offload: bool) -> Carried {
    let left = quiet("t0", "10.9.0.1/24");
    let (give, take) = mpsc::channel();
    let (done, finished) = mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        // SAFETY: this thread has opened nothing yet; only its network changes.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
            .expect("a second namespace");
        let held = (!offload).then(|| by_hand("t1", libc::IFF_TAP | libc::IFF_NO_PI));
        let right = held.map(|fd| port_tap::open(Source::Fd(fd)).expect("inherited"));
        let right = quiet_as(right.unwrap_or_else(|| open("t1")), "t1", "10.9.0.2/24");
        let listener = TcpListener::bind("10.9.0.2:80").expect("listen");
        give.send(right).expect("port");
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        stream.write_all(&all).expect("echo");
        drop(stream);
        let _ = finished.recv_timeout(PATIENCE);
    });
    let right = take.recv_timeout(PATIENCE).expect("the other side");
    let (a, b) = (Arc::clone(&left.sink), Arc::clone(&right.sink));
    let (li, ri) = (left.inlet.expect("inlet"), right.inlet.expect("inlet"));
    let _there = InletThread::spawn("there", li, b, |_| {}).expect("thread");
    let _back = InletThread::spawn("back", ri, a, |_| {}).expect("thread");

    let sent: Vec<u8> = (0..4_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let mut stream = TcpStream::connect("10.9.0.2:80").expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream.write_all(&sent).expect("write");
    stream.shutdown(std::net::Shutdown::Write).expect("end");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("read");
    done.send(()).expect("server");
    server.join().expect("server");
    assert!(got == sent, "the bytes that came back are the bytes sent");
    let of = |c: &Arc<dyn frame::Counted>, n| counter(&**c, n).expect("counter");
    for c in [&left.counters, &right.counters] {
        assert_eq!(of(c, "tap_bad_header") + of(c, "tap_refused"), 0);
    }
    let sum = |a, b| of(&left.counters, a) + of(&left.counters, b);
    let carried = Carried {
        frames: sum("frames_out", "frames_in"),
        bytes: sum("bytes_out", "bytes_in"),
        cut: of(&right.counters, "frames_out").saturating_sub(of(&left.counters, "frames_in")),
    };
    assert!(carried.bytes > 8_000_000);
    carried
}
