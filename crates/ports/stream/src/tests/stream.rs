//! The stream port against peers of its own kind, QEMU's kind and the hostile kind.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::{Endpoint, MAX_FRAME, StreamConfig, StreamError, open};
use frame::{Batch, Caps, Counted, Sink, Wake};
use port::{Bell, InletEvent, InletStatus, InletThread, Port, counter};
use wire::{Csum, Offload};

const PATIENCE: Duration = Duration::from_secs(20);

/// Passes frames on to the test.
struct Pass(Mutex<Sender<Vec<u8>>>);

impl Sink for Pass {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        for &p in picks {
            let frame = batch.get(p.into()).expect("picked").to_vec();
            let _ = self.0.lock().expect("lock").send(frame);
        }
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// Never has room.
struct Stuck;

impl Sink for Stuck {
    fn deliver(&self, _: &Batch<'_>, _: &[u16]) -> usize {
        0
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

struct Running {
    sink: Arc<dyn Sink>,
    counters: Arc<dyn Counted>,
    frames: Receiver<Vec<u8>>,
    events: Receiver<InletEvent>,
    thread: InletThread,
}

impl Running {
    fn new(config: StreamConfig) -> Self {
        Self::from(open(config).expect("stream port"))
    }

    fn from(port: Port) -> Self {
        let (give, frames) = channel();
        let to: Arc<dyn Sink> = Arc::new(Pass(Mutex::new(give)));
        let (tell, events) = channel();
        let inlet = port.inlet.expect("inlet");
        let thread = InletThread::spawn("stream", inlet, to, move |e| {
            let _ = tell.send(e);
        })
        .expect("thread");
        Self {
            sink: port.sink,
            counters: port.counters,
            frames,
            events,
            thread,
        }
    }

    fn count(&self, name: &str) -> u64 {
        counter(&*self.counters, name).expect("counter")
    }

    /// Waits for a counter, which is how a connection shows on the side that was called.
    fn wait_for(&self, name: &str, value: u64) {
        let end = Instant::now() + PATIENCE;
        while self.count(name) < value {
            assert!(Instant::now() < end, "{name} is {}", self.count(name));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn frame(&self) -> Vec<u8> {
        self.frames.recv_timeout(PATIENCE).expect("a frame")
    }

    fn event(&self) -> InletEvent {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }
}

pub fn send(sink: &dyn Sink, frames: &[&[u8]]) -> usize {
    let mut batch = Batch::new();
    for frame in frames {
        let (a, b) = frame.split_at(frame.len() / 2);
        batch.push_bytes(a);
        batch.push_bytes(b);
        batch.end(Offload::NONE);
    }
    let picks: Vec<u16> = (0..frames.len() as u16).collect();
    sink.deliver(&batch, &picks)
}

pub fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
}

fn read_frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).expect("length");
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).expect("frame");
    frame
}

fn pair() -> (UnixStream, Endpoint) {
    let (peer, ours) = UnixStream::pair().expect("pair");
    peer.set_read_timeout(Some(PATIENCE)).expect("timeout");
    (peer, Endpoint::Fd(OwnedFd::from(ours)))
}

#[test]
fn frames_pass_both_ways_however_the_bytes_are_cut() {
    let (mut peer, ours) = pair();
    let port = Running::new(StreamConfig::new(ours));
    port.wait_for("stream_connects", 1);
    let frames = [vec![1; 60], vec![2; 1514], vec![3; MAX_FRAME], vec![4; 14]];
    let bytes: Vec<u8> = frames.iter().flat_map(|f| framed(f)).collect();
    let (slow, fast) = bytes.split_at(1600);
    for byte in slow {
        peer.write_all(&[*byte]).expect("one byte");
    }
    let writer = {
        let (mut peer, fast) = (peer.try_clone().expect("clone"), fast.to_vec());
        std::thread::spawn(move || peer.write_all(&fast).expect("the rest"))
    };
    for frame in &frames {
        assert!(port.frame() == *frame);
    }
    writer.join().expect("writer");
    let refs: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    assert_eq!(send(&*port.sink, &refs), 4);
    for frame in &frames {
        assert!(read_frame(&mut peer) == *frame);
    }
    assert_eq!(port.count("frames_out"), 4);
    port.wait_for("bytes_in", port.count("bytes_out"));
    assert_eq!(port.count("frames_in"), 4);

    // What cannot go out is counted.
    let mut batch = Batch::new();
    batch.push_bytes(&vec![0; MAX_FRAME + 1]);
    batch.end(Offload::NONE);
    batch.push_bytes(&[0; 60]);
    let csum = Some(Csum {
        start: 34,
        offset: 16,
    });
    batch.end(Offload {
        csum,
        ..Offload::NONE
    });
    assert_eq!(port.sink.deliver(&batch, &[0, 1, 7]), 3);
    assert_eq!(port.count("stream_too_long"), 1);
    assert_eq!(port.count("stream_cannot_take"), 1);

    // A single socket has a single life.
    drop(peer);
    assert_eq!(port.event(), InletEvent::LinkDown);
    assert!(matches!(port.event(), InletEvent::Closed(_)));
    assert_eq!(send(&*port.sink, &[&[0; 60]]), 1);
    assert_eq!(port.count("stream_down"), 1);
}

#[test]
fn the_peer_may_come_go_and_come_back() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("net.sock");
    let mut config = StreamConfig::new(Endpoint::Connect(path.clone()));
    config.retry_max = Duration::from_millis(50);
    let caller = Running::new(config);
    assert_eq!(caller.event(), InletEvent::LinkDown);
    assert_eq!(send(&*caller.sink, &[&[0; 60]]), 1);
    assert_eq!(caller.count("stream_down"), 1);
    for round in 1..=3u8 {
        // The second and third find the socket file that the one before removed.
        let called = Running::new(StreamConfig::new(Endpoint::Listen(path.clone())));
        assert_eq!(caller.event(), InletEvent::LinkUp);
        assert_eq!(send(&*caller.sink, &[&[round; 60]]), 1);
        assert_eq!(called.frame(), [round; 60]);
        assert_eq!(send(&*called.sink, &[&[round; 90], &[9; 1514]]), 2);
        assert_eq!(caller.frame(), [round; 90]);
        assert_eq!(caller.frame(), [9; 1514]);
        drop(called);
        assert_eq!(caller.event(), InletEvent::LinkDown);
    }
    assert_eq!(caller.count("stream_connects"), 3);
    assert_eq!(caller.count("stream_disconnects"), 3);
    assert!(!caller.thread.is_finished());
}

#[test]
fn tcp_works_as_well() {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let at = probe.local_addr().expect("address");
    drop(probe);
    let called = Running::new(StreamConfig::new(Endpoint::ListenTcp(at)));
    let caller = Running::new(StreamConfig::new(Endpoint::ConnectTcp(at)));
    caller.wait_for("stream_connects", 1);
    assert_eq!(send(&*caller.sink, &[&[7; 64]]), 1);
    assert_eq!(called.frame(), [7; 64]);
    assert_eq!(send(&*called.sink, &[&[8; 64]]), 1);
    assert_eq!(caller.frame(), [8; 64]);
}

#[test]
fn hostile_lengths_end_the_connection_and_the_next_peer_is_served() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("net.sock");
    let mut config = StreamConfig::new(Endpoint::Listen(path.clone()));
    config.retry_max = Duration::from_millis(20);
    let port = Running::new(config);
    for (i, len) in [u32::MAX, MAX_FRAME as u32 + 1, 0x0100_0000]
        .into_iter()
        .enumerate()
    {
        let mut peer = UnixStream::connect(&path).expect("connect");
        peer.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let good = framed(&[5; 60]);
        peer.write_all(&[&good[..], &len.to_be_bytes()].concat())
            .expect("write");
        assert_eq!(port.frame(), [5; 60], "what came before is good");
        let mut rest = [0; 1];
        assert_eq!(peer.read(&mut rest).expect("closed"), 0);
        assert_eq!(port.count("stream_bad_length"), i as u64 + 1);
    }
    // Runts do not break the framing.
    let mut peer = UnixStream::connect(&path).expect("connect");
    for frame in [&[][..], &[1; 13], &[6; 14]] {
        peer.write_all(&framed(frame)).expect("write");
    }
    assert_eq!(port.frame(), [6; 14]);
    assert_eq!(port.count("stream_runt"), 2);
}

#[test]
fn a_peer_that_stops_reading_is_waited_for_and_then_given_up() {
    let (mut peer, ours) = pair();
    let mut config = StreamConfig::new(ours);
    config.patience = Duration::from_millis(100);
    let port = Running::new(config);
    port.wait_for("stream_connects", 1);
    let mut taken = 0u32;
    let bell = Arc::new(Bell::new().expect("eventfd"));
    let waker: Arc<dyn Wake> = Arc::clone(&bell) as Arc<dyn Wake>;
    let mut frame = [0u8; 1000];
    loop {
        frame[..4].copy_from_slice(&taken.to_be_bytes());
        if send(&*port.sink, &[&frame]) == 0 {
            break;
        }
        taken += 1;
        assert!(taken < 10_000, "bounded");
    }
    // Told when patience ends, and not left waiting for ever.
    port.sink.want_room(&waker);
    let end = Instant::now() + PATIENCE;
    while !bell.clear() {
        assert!(Instant::now() < end, "nobody told the sender");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(send(&*port.sink, &[&frame]), 1);
    assert_eq!(port.count("stream_stalled"), 1);
    assert_eq!(port.count("frames_out"), taken.into());
    // Nothing that was taken is lost once the peer reads again.
    for i in 0..taken {
        assert_eq!(read_frame(&mut peer)[..4], i.to_be_bytes());
    }
    assert_eq!(send(&*port.sink, &[&[9; 60]]), 1);
    assert_eq!(read_frame(&mut peer), [9; 60]);
    // And bytes that wait when it leaves are counted.
    while port.count("stream_stalled") == 1 {
        send(&*port.sink, &[&frame]);
    }
    drop(peer);
    assert_eq!(port.event(), InletEvent::LinkDown);
    assert!(port.count("stream_unsent_bytes") > 0);
}

#[test]
fn output_goes_on_while_the_receiver_has_no_room() {
    let (mut peer, ours) = pair();
    let port = open(StreamConfig::new(ours)).expect("port");
    let inlet = port.inlet.expect("inlet");
    let thread = InletThread::spawn("stream", inlet, Arc::new(Stuck), |_| {}).expect("thread");
    peer.write_all(&framed(&[1; 60])).expect("write");
    let end = Instant::now() + PATIENCE;
    while counter(&*thread.counters(), "inlet_blocked") == Some(0) {
        assert!(Instant::now() < end, "must block");
        std::thread::sleep(Duration::from_millis(2));
    }
    let frame = vec![2; 60_000];
    for _ in 0..5 {
        while send(&*port.sink, &[&frame]) == 1 {
            if counter(&*port.counters, "frames_out") >= Some(5) {
                break;
            }
        }
        assert!(read_frame(&mut peer) == frame);
    }
    let turns = counter(&*thread.counters(), "inlet_turns").expect("counter");
    assert!(turns < 200, "{turns} turns: blocked must not mean busy");
}

#[test]
fn a_blocked_inlet_keeps_its_frames() {
    let (mut peer, ours) = pair();
    let port = open(StreamConfig::new(ours)).expect("port");
    let mut inlet = port.inlet.expect("inlet");
    for i in 0..10u8 {
        peer.write_all(&framed(&[i; 60])).expect("write");
    }
    assert_eq!(inlet.run(&Stuck, 256), InletStatus::Blocked);
    drop(peer);
    for _ in 0..3 {
        assert_eq!(inlet.run(&Stuck, 256), InletStatus::Blocked);
        // Longer than the pause before the port would find out that it has no other peer.
        std::thread::sleep(Duration::from_millis(30));
    }
    let (give, frames) = channel();
    let pass = Pass(Mutex::new(give));
    while !matches!(inlet.run(&pass, 4), InletStatus::Closed(_)) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let got: Vec<u8> = frames.try_iter().map(|f| f[0]).collect();
    assert_eq!(got, (0..10).collect::<Vec<u8>>());
}

#[test]
fn a_peer_that_leaves_is_noticed_while_there_is_no_room() {
    let (mut peer, ours) = pair();
    let port = open(StreamConfig::new(ours)).expect("port");
    let (tell, events) = channel();
    let inlet = port.inlet.expect("inlet");
    let thread = InletThread::spawn("stream", inlet, Arc::new(Stuck), move |e| {
        let _ = tell.send(e);
    })
    .expect("thread");
    let blocked = || counter(&*thread.counters(), "inlet_blocked").expect("counter");
    // More than is read at once.
    peer.set_nonblocking(true).expect("nonblocking");
    while peer.write(&framed(&[7; 1000])).is_ok() {}
    while blocked() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(peer);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(InletEvent::LinkDown));
    assert_eq!(counter(&*port.counters, "stream_disconnects"), Some(1));
    // There is no peer any more to send to.
    assert_eq!(send(&*port.sink, &[&[1; 60]]), 1);
    assert_eq!(counter(&*port.counters, "stream_down"), Some(1));
    let turns = counter(&*thread.counters(), "inlet_turns").expect("counter");
    assert!(turns < 200, "{turns} turns: blocked must not mean busy");
}

#[test]
fn refusals_name_the_cause() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("net.sock");
    let refused = |e| open(StreamConfig::new(e)).err().expect("refused");
    let live = UnixListener::bind(&path).expect("bind");
    assert!(matches!(
        refused(Endpoint::Listen(path.clone())),
        StreamError::InUse { .. }
    ));
    drop(live);
    // Now it is a stale file, on which no process listens.
    assert!(path.exists());
    // A child that another test is just starting may hold the listener until its exec.
    let patience = Instant::now() + Duration::from_secs(20);
    let port = loop {
        match open(StreamConfig::new(Endpoint::Listen(path.clone()))) {
            Err(StreamError::InUse { .. }) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => break other.expect("replaced"),
        }
    };
    drop(port);
    assert!(!path.exists(), "removed in the end");
    std::fs::write(&path, "precious").expect("file");
    assert!(matches!(
        refused(Endpoint::Listen(path.clone())),
        StreamError::NotASocket { .. }
    ));
    assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
    let long = Path::new("/").join("x".repeat(200));
    assert!(matches!(
        refused(Endpoint::Connect(long)),
        StreamError::BadPath { .. }
    ));
    let file = std::fs::File::open("/dev/null").expect("null");
    assert!(matches!(
        refused(Endpoint::Fd(file.into())),
        StreamError::NotAStream
    ));
}

#[test]
fn passt_answers_where_it_runs() {
    let dir = tempfile::tempdir().expect("directory");
    // Started by root it drops to an unprivileged user, which must reach the socket.
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open_to_all).expect("permissions");
    let path = dir.path().join("passt.sock");
    let passt = Command::new("passt")
        .args(["--foreground", "--one-off", "--quiet", "--socket"])
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut passt = match passt {
        Ok(child) => child,
        Err(e) => return println!("skipped: cannot run passt: {e}"),
    };
    let end = Instant::now() + Duration::from_secs(5);
    while !path.exists() {
        if passt.try_wait().expect("wait").is_some() || Instant::now() > end {
            let _ = passt.kill();
            let out = passt.wait_with_output().expect("output");
            let why = String::from_utf8_lossy(&out.stderr);
            let why = why.lines().next_back().unwrap_or("no reason given");
            return println!("skipped: passt does not stay here: {why}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let port = Running::new(StreamConfig::new(Endpoint::Connect(path)));
    port.wait_for("stream_connects", 1);
    // An ARP request for 169.254.77.77. passt answers for every address but the guest's.
    let mut arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6]].concat();
    arp.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 169, 254, 77, 1]);
    arp.extend([0, 0, 0, 0, 0, 0, 169, 254, 77, 77]);
    assert_eq!(send(&*port.sink, &[&arp]), 1);
    let reply = loop {
        let frame = port.frame();
        if frame[12..14] == [8, 6] && frame[20..22] == [0, 2] {
            break frame;
        }
    };
    assert_eq!(reply[28..32], [169, 254, 77, 77]);
    let _ = passt.kill();
    let _ = passt.wait();
    assert_eq!(port.event(), InletEvent::LinkDown);
}
