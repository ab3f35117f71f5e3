//! Streams whose worker is killed, or exchanged: their peers notice nothing, or lose what was being passed on.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hypernic_tests::{Daemon, Ends, LONG, Launch, binary, scratch};

use crate::cli_crash::{Chance, Lives};

/// Frames sent at once, and the pause behind them.
const BURST: u64 = 8;
const PAUSE: Duration = Duration::from_micros(800);

/// Frame `n` from one peer to another.
fn frame(from: u8, to: u8, n: u64) -> Vec<u8> {
    let len = match n % 32 {
        0 => 1514 + (n * 37 % 8000) as usize,
        1..8 => 200 + (n * 13 % 1300) as usize,
        _ => 60 + (n % 40) as usize,
    };
    let mut frame: Vec<u8> = (0..len).map(|i| (i as u64 * 11 + n) as u8).collect();
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..22].copy_from_slice(&n.to_be_bytes());
    frame
}

/// Either kind of socket.
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn set_patience(&self, patience: Duration) {
        let set = match self {
            Self::Unix(socket) => socket.set_read_timeout(Some(patience)),
            Self::Tcp(socket) => socket.set_read_timeout(Some(patience)),
        };
        set.unwrap();
    }

    fn read(&self, room: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(socket) => (&mut &*socket).read(room),
            Self::Tcp(socket) => (&mut &*socket).read(room),
        }
    }

    fn write(&self, bytes: &[u8]) {
        let written = match self {
            Self::Unix(socket) => (&mut &*socket).write_all(bytes),
            Self::Tcp(socket) => (&mut &*socket).write_all(bytes),
        };
        written.expect("the connection is open");
    }
}

/// Sends numbered frames until it is told to stop, and then its end. Returns how many.
fn send(socket: &Socket, (from, to): (u8, u8), stop: &AtomicBool) -> u64 {
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut bytes = Vec::new();
        for _ in 0..BURST {
            let frame = frame(from, to, n);
            bytes.extend((frame.len() as u32).to_be_bytes());
            bytes.extend(frame);
            n += 1;
        }
        // In two pieces, so that half a frame is on its way at times.
        let (one, other) = bytes.split_at(n as usize * 31 % bytes.len());
        for piece in [one, other] {
            socket.write(piece);
        }
        std::thread::sleep(PAUSE);
    }
    n
}

/// Receives until nothing more comes. Returns the numbers of the frames, each of which was whole.
fn receive(socket: &Socket, (from, to): (u8, u8), stop: &AtomicBool) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut unread = Vec::new();
    let mut quiet = Instant::now();
    let mut room = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) || quiet.elapsed() < Duration::from_millis(800) {
        match socket.read(&mut room) {
            Ok(0) => panic!("the connection is closed"),
            Ok(came) => unread.extend(&room[..came]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => panic!("{error}"),
        }
        quiet = Instant::now();
        let mut rest = &unread[..];
        while let Some((head, behind)) = rest.split_first_chunk::<4>() {
            let len = u32::from_be_bytes(*head) as usize;
            let Some(got) = behind.get(..len) else { break };
            rest = &behind[len..];
            let n = got[14..].first_chunk().map(|n| u64::from_be_bytes(*n));
            let n = n.expect("a number");
            assert!(got == frame(from, to, n), "frame {n} is garbled");
            numbers.push(n);
        }
        unread.drain(..unread.len() - rest.len());
    }
    assert!(unread.is_empty(), "half a frame at the end");
    numbers
}

/// Two peers on a switch, and what they lost: the first has called a port, and a port has called the second.
fn both_ways(daemon: &mut Daemon, peers: [&Socket; 2], work: impl FnOnce(&mut Daemon)) -> [u64; 2] {
    for peer in peers {
        peer.set_patience(Duration::from_millis(50));
    }
    let (ended, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (ended, stop) = (&ended, &stop);
    std::thread::scope(|scope| {
        let ways = [(peers[0], peers[1], (1, 2)), (peers[1], peers[0], (2, 1))];
        let runs = ways.map(|(from, to, way)| {
            let sent = scope.spawn(move || send(from, way, ended));
            let came = scope.spawn(move || receive(to, way, stop));
            (sent, came)
        });
        let ends = (Ends(ended), Ends(stop));
        std::thread::sleep(Duration::from_millis(300));
        work(daemon);
        std::thread::sleep(Duration::from_millis(300));
        drop(ends.0);
        std::thread::sleep(Duration::from_millis(50));
        drop(ends.1);
        runs.map(|(sent, came)| {
            let sent = sent.join().expect("it could send");
            let came = came.join().expect("it could receive");
            let rises = came.is_sorted_by(|a, b| a < b);
            assert!(rises, "twice, or in another order: {came:?}");
            assert!(came.len() > 500, "{} of {sent} frames", came.len());
            sent - came.len() as u64
        })
    })
}

/// A daemon with a switch, and the peers of its two streams: one calls, and one is called.
fn streams(dir: &Path) -> (Daemon, [Socket; 2]) {
    let at = |name: &str| dir.join(name);
    let called = UnixListener::bind(at("called")).unwrap();
    let file = at("host.toml");
    let text = format!(
        "keeper = true\n[[switch]]\nname = \"lan\"\nports = [\"stream:listen={}\", \"stream:{}\"]\n",
        at("listens").display(),
        at("called").display(),
    );
    std::fs::write(&file, text).unwrap();
    let launch = Launch::new().unwrap().env("HYPERNIC_TEST_LIFE_MS", "0");
    let daemon = launch.arg("serve").arg(&file).start().unwrap();
    let caller = UnixStream::connect(at("listens")).unwrap();
    let (other, _) = called.accept().unwrap();
    connected(&daemon, 2);
    (daemon, [caller, other].map(Socket::Unix))
}

fn connected(daemon: &Daemon, peers: u64) {
    let came =
        |counters: &hypernic_tests::Counters| counters.total("port", "stream_connects") == peers;
    daemon.wait_counters("its peers", came).unwrap();
}

/// Nobody has come or gone since this worker began.
fn nobody_left(daemon: &Daemon) {
    let counters = daemon.counters().unwrap();
    assert_eq!(counters.total("port", "stream_connects"), 0, "{counters}");
    assert_eq!(
        counters.total("port", "stream_disconnects"),
        0,
        "{counters}"
    );
}

#[test]
fn an_upgrade_costs_the_peers_of_streams_no_frame_and_no_connection() {
    let dir = scratch().unwrap();
    let (mut daemon, [one, other]) = streams(dir.path());
    let lives = Lives::renewed(8);
    let lost = both_ways(&mut daemon, [&one, &other], |daemon| {
        for n in 0..lives.count {
            lives.end(daemon, n);
            std::thread::sleep(Duration::from_millis(150));
        }
    });
    assert_eq!(lost, [0, 0], "{}", daemon.log());
    nobody_left(&daemon);
    assert!(daemon.stop().unwrap().success());
    assert!(!dir.path().join("listens").exists(), "it cleans up");
}

/// How often the worker is killed: 30 times, or as `HYPERNIC_TEST_KILLS` says.
fn kill_count() -> u32 {
    let given = std::env::var("HYPERNIC_TEST_KILLS").ok();
    given.map_or(30, |count| count.parse().expect("a number"))
}

fn kills(daemon: &mut Daemon, count: u32) {
    let (lives, mut chance) = (Lives::killed(count), Chance::new());
    for n in 0..count {
        std::thread::sleep(Duration::from_micros(20_000 + chance.below(60_000)));
        lives.end(daemon, n);
    }
}

#[test]
fn peers_of_streams_keep_their_connections_whenever_the_worker_is_killed() {
    let dir = scratch().unwrap();
    let (mut daemon, [one, other]) = streams(dir.path());
    let count = kill_count();
    let lost = both_ways(&mut daemon, [&one, &other], |daemon| kills(daemon, count));
    println!("{count} kills: lost {lost:?}");
    // Not more than one worker passes on at once.
    let most = u64::from(count) * 256;
    assert!(lost.iter().all(|lost| *lost <= most), "{lost:?}");
    nobody_left(&daemon);
    // Who calls while nobody serves is served, once the one before has left.
    drop(one);
    let waits = UnixStream::connect(dir.path().join("listens")).unwrap();
    both_ways(&mut daemon, [&Socket::Unix(waits), &other], |daemon| {
        kills(daemon, 2)
    });
    assert!(daemon.stop().unwrap().success());
}

/// A connection that was inherited goes on as any other, and ends with its peer.
#[test]
fn a_stream_on_a_descriptor_goes_on_over_kills_and_upgrades() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    on_a_descriptor(&Socket::Unix(ours), theirs.into());
}

#[test]
fn a_stream_on_a_descriptor_by_tcp_goes_on_over_kills_and_upgrades() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nodelay(true).unwrap();
    on_a_descriptor(&Socket::Tcp(ours), theirs.into());
}

fn on_a_descriptor(ours: &Socket, theirs: OwnedFd) {
    let dir = scratch().unwrap();
    let wrapped = dir.path().join("wrapped");
    let script = format!(
        "#!/bin/sh\nexec {:?} \"$@\" 9<&0 </dev/null\n",
        binary().unwrap()
    );
    std::fs::write(&wrapped, script).unwrap();
    std::fs::set_permissions(&wrapped, Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("host.toml");
    let text = format!(
        "keeper = true\n[[switch]]\nname = \"lan\"\nports = [\"stream:listen={}\", \"stream:fd=9\"]\n",
        dir.path().join("listens").display(),
    );
    std::fs::write(&file, text).unwrap();
    let launch = Launch::of(&wrapped).env("HYPERNIC_TEST_LIFE_MS", "0");
    let launch = launch.arg("serve").arg(&file).stdin(theirs);
    let mut daemon = launch.start().unwrap();
    let caller = UnixStream::connect(dir.path().join("listens")).unwrap();
    let caller = Socket::Unix(caller);
    connected(&daemon, 2);
    both_ways(&mut daemon, [&caller, ours], |daemon| kills(daemon, 5));
    let lives = Lives::renewed(3);
    let lost = both_ways(&mut daemon, [&caller, ours], |daemon| {
        for n in 0..lives.count {
            lives.end(daemon, n);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(lost, [0, 0], "{}", daemon.log());
    nobody_left(&daemon);
    // A length that no frame has ends it, for the peer too, though the daemon has it open twice.
    ours.write(&[0xff; 4]);
    ours.set_patience(LONG);
    assert_eq!(ours.read(&mut [0; 64]).unwrap(), 0, "{}", daemon.log());
    lives.end(&mut daemon, 0);
    daemon.wait_log("the peer has closed its end").unwrap();
    assert!(daemon.stop().unwrap().success());
}
