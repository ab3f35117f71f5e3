//! Guests with an 82576, or with VFs of one, whose daemon's worker is killed at any instruction.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::igb::Igb;
use drivers::igbpf;
use drivers::igbvf::Vf;
use hypernic_tests::{Daemon, Ends, LONG, scratch};

use crate::cli_cells::at;
use crate::cli_config::Lab;
use crate::cli_crash::{Chance, Lives, kill};

const TYPE: [u8; 2] = [0x88, 0xb7];
/// Frames that a guest sends at once.
const BURST: u64 = 8;

/// A NIC with its driver.
pub(crate) trait Nic: Send {
    fn mac(&self) -> [u8; 6];
    /// Returns how many there was room for.
    fn send(&mut self, frames: &[Vec<u8>]) -> usize;
    fn receive(&mut self) -> Vec<Vec<u8>>;
    fn all_sent(&mut self) -> bool;
    /// Asks something that has to be answered once.
    fn ask(&mut self);
}

struct Pf(Igb, [u8; 6]);

impl Nic for Pf {
    fn mac(&self) -> [u8; 6] {
        self.1
    }
    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        self.0.send_all(frames).expect("it is there")
    }
    fn receive(&mut self) -> Vec<Vec<u8>> {
        self.0.receive_frames().expect("it is there")
    }
    fn all_sent(&mut self) -> bool {
        self.0.all_sent()
    }
    fn ask(&mut self) {
        // A semaphore that the first who reads it has (SWSM).
        let client = self.0.client();
        let mut look = || client.read_u32(0, 0x5b50).expect("it is there") & 1;
        assert_eq!([look(), look()], [0, 1]);
        client.write_u32(0, 0x5b50, 0).expect("it is there");
    }
}

impl Nic for Vf<SocketBus> {
    fn mac(&self) -> [u8; 6] {
        Vf::mac(self)
    }
    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        Vf::send(self, &frames).expect("it is there")
    }
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let came = Vf::receive(self).expect("it is there");
        came.into_iter().map(|(frame, _)| frame).collect()
    }
    fn all_sent(&mut self) -> bool {
        self.pending().expect("it is there") == 0
    }
    fn ask(&mut self) {
        let mac = Vf::mac(self);
        self.set_mac(mac).expect("its PF answers");
    }
}

fn frame(to: [u8; 6], from: [u8; 6], n: u64) -> Vec<u8> {
    let len = 60 + n as usize % 11 * 120;
    let mut bytes: Vec<u8> = (0..len as u64).map(|at| (at * 5 + n) as u8).collect();
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..14].copy_from_slice(&TYPE);
    bytes[14..22].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// What a guest saw.
#[derive(Default)]
struct Seen {
    sent: AtomicU64,
    came: AtomicU64,
    lost: AtomicU64,
}

/// Frames that may be on their way where none may be lost: the other guest has room for them.
const WINDOW: u64 = 64;

/// Sends numbered frames to `peer`, and looks at those that come from there, until it is to stop; with `heard`, what the other guest
/// saw, no more than that has room for.
fn talk(
    nic: &mut dyn Nic,
    peer: [u8; 6],
    (seen, heard): (&Seen, Option<&Seen>),
    stop: &AtomicBool,
) {
    let own = nic.mac();
    let (mut next, mut expected) = (0, 0);
    let mut quiet = Instant::now();
    for round in 1.. {
        let stops = stop.load(Ordering::Acquire);
        if stops && quiet.elapsed() > Duration::from_millis(300) {
            break;
        }
        if round % 256 == 0 {
            nic.ask();
        }
        let room =
            heard.is_none_or(|heard| next + BURST <= heard.came.load(Ordering::Relaxed) + WINDOW);
        if !stops && room {
            let frames: Vec<_> = (next..next + BURST).map(|n| frame(peer, own, n)).collect();
            next += nic.send(&frames) as u64;
            seen.sent.store(next, Ordering::Relaxed);
        }
        for came in nic.receive() {
            if came.get(12..14) != Some(&TYPE) {
                continue;
            }
            quiet = Instant::now();
            let n = u64::from_be_bytes(came[14..22].try_into().expect("eight"));
            assert!(n >= expected, "{n} after {expected}: twice, or exchanged");
            assert_eq!(came, frame(own, peer, n), "it is not whole");
            seen.lost.fetch_add(n - expected, Ordering::Relaxed);
            seen.came.fetch_add(1, Ordering::Relaxed);
            expected = n + 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let until = Instant::now() + LONG;
    while !nic.all_sent() {
        assert!(Instant::now() < until, "its frames are never sent");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Does something while two guests talk, which goes on; with `may_lose`, frames may get lost. None may come twice, or in another order.
pub(crate) fn talking<T>(
    nics: &mut [Box<dyn Nic>; 2],
    may_lose: bool,
    (subject, log): (&mut T, fn(&T) -> String),
    work: impl FnOnce(&mut T),
) {
    let (stop, seen) = (AtomicBool::new(false), [Seen::default(), Seen::default()]);
    let macs = [nics[0].mac(), nics[1].mac()];
    let came = |seen: &[Seen; 2]| [0, 1].map(|at| seen[at].came.load(Ordering::Relaxed));
    // A receiver that was switched on just now takes no frame before that is saved; it is once this is answered.
    nics.iter_mut().for_each(|nic| nic.ask());
    let [a, b] = nics;
    let heard = |at: usize| (!may_lose).then_some(&seen[at]);
    let (of_a, of_b) = ((&seen[0], heard(1)), (&seen[1], heard(0)));
    std::thread::scope(|scope| {
        let talks = [
            scope.spawn(|| talk(&mut **a, macs[1], of_a, &stop)),
            scope.spawn(|| talk(&mut **b, macs[0], of_b, &stop)),
        ];
        let ends = Ends(&stop);
        work(subject);
        // All is well once both go on.
        let (before, until) = (came(&seen), Instant::now() + LONG);
        let goes_on = || {
            let now = came(&seen);
            (0..2).all(|at| now[at] > before[at] + 50)
        };
        while !goes_on() && talks.iter().all(|talk| !talk.is_finished()) {
            assert!(Instant::now() < until, "it has stopped: {}", log(subject));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(ends);
        for talk in talks {
            talk.join().expect("its guest is content");
        }
    });
    for seen in &seen {
        let of = |value: &AtomicU64| value.load(Ordering::Relaxed);
        println!(
            "sent {}, received {}, lost {}",
            of(&seen.sent),
            of(&seen.came),
            of(&seen.lost)
        );
        assert!(may_lose || of(&seen.lost) == 0);
    }
}

/// Has workers end while two guests talk. None of it may stop, come twice, or in another order.
pub(crate) fn ends(daemon: &mut Daemon, mut nics: [Box<dyn Nic>; 2], all: usize, lives: &Lives) {
    let mut chance = Chance::new();
    talking(
        &mut nics,
        lives.may_lose(),
        (daemon, Daemon::log),
        |daemon| {
            for n in 0..lives.count {
                std::thread::sleep(Duration::from_micros(2_000 + chance.below(30_000)));
                lives.end(daemon, n);
            }
        },
    );
    let log = daemon.log();
    let went_on = log.matches("goes on where").count();
    assert_eq!(went_on, all * lives.count as usize, "{log}");
    assert!(!log.contains("VMM disconnected"), "{log}");
}

/// An 82576, with its driver.
pub(crate) fn igb(socket: &Path, in_memory: bool) -> Box<dyn Nic> {
    let mut igb = Igb::connect(socket, in_memory).unwrap();
    let mut word = |at| igb.client().read_u32(0, at).unwrap().to_le_bytes();
    let ([a, b, c, d], [e, f, ..]) = (word(0x5400), word(0x5404));
    Box::new(Pf(igb, [a, b, c, d, e, f]))
}

pub(crate) fn pfs(lives: &Lives, doorbell: &str) {
    let dir = scratch().unwrap();
    let names = ["n0", "n1"];
    let mut launch = lives.launch().args([
        "run",
        "--keeper",
        "--port",
        "switch:lan",
        "--model",
        "82576",
        "--doorbell",
        doorbell,
    ]);
    for name in names {
        launch = launch.arg("--socket-path").arg(dir.path().join(name));
    }
    let mut daemon = launch.start().unwrap();
    let nic = |name: &str| igb(&dir.path().join(name), doorbell == "page");
    ends(&mut daemon, names.map(nic), 2, lives);
    assert!(daemon.stop().unwrap().success());
}

pub(crate) fn vfs(lives: &Lives, doorbell: &str) {
    let dir = scratch().unwrap();
    let (file, sockets) = (dir.path().join("host.toml"), dir.path().join("vf{}"));
    let toml = format!(
        "keeper = true\n[[switch]]\nname = \"lan\"\n\
         [[nic]]\nname = \"p\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = {sockets:?}\nport = \"switch:lan\"\n\
         doorbell = \"{doorbell}\"\n"
    );
    std::fs::write(&file, toml).unwrap();
    let mut daemon = lives.launch().arg("serve").arg(&file).start().unwrap();
    let vf = |name: &str| -> Vf<SocketBus> {
        let path: &Path = &dir.path().join(name);
        let mut bus = SocketBus::connect(path).unwrap();
        assert_eq!(bus.share_pages().is_ok(), doorbell == "page");
        Vf::new(bus).unwrap()
    };
    let nics: [Box<dyn Nic>; 2] = [Box::new(vf("vf0")), Box::new(vf("vf1"))];
    ends(&mut daemon, nics, 2, lives);
    assert!(daemon.stop().unwrap().success());
}

/// A PF that a guest drives, two VFs that it controls, and their guests.
pub(crate) fn vfs_of_a_guests_pf(lives: &Lives) {
    let dir = scratch().unwrap();
    let file = dir.path().join("host.toml");
    let (socket, sockets) = (dir.path().join("p0"), dir.path().join("vf{}"));
    let toml = format!(
        "keeper = true\n[[switch]]\nname = \"lan\"\n[[nic]]\nname = \"p\"\nmodel = \"82576\"\nvfs = 2\n\
         pf = \"guest\"\nsocket-path = {socket:?}\nvf-socket-path = {sockets:?}\nport = \"switch:lan\"\n"
    );
    std::fs::write(&file, toml).unwrap();
    let mut daemon = lives.launch().arg("serve").arg(&file).start().unwrap();
    let macs = [[2, 0, 0, 0, 7, 1], [2, 0, 0, 0, 7, 2]];
    let bus = SocketBus::connect(&socket).unwrap();
    let mut pf = igbpf::Pf::new(bus, [2, 0, 0, 0, 7, 0], &macs).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| {
            let mut resets = 0;
            while !stop.load(Ordering::Acquire) {
                let heard = pf.serve().expect("it is there");
                let reset = |heard: &&igbpf::Heard| matches!(heard, igbpf::Heard::Reset(_));
                resets += heard.iter().filter(reset).count();
                std::thread::sleep(Duration::from_millis(1));
            }
            resets
        });
        let vf = |name: &str| -> Box<dyn Nic> {
            let bus = SocketBus::connect(dir.path().join(name)).unwrap();
            Box::new(Vf::new(bus).unwrap())
        };
        ends(&mut daemon, ["vf0", "vf1"].map(vf), 3, lives);
        stop.store(true, Ordering::Release);
        let resets = serves.join().expect("its guest is content");
        assert!(
            resets <= 4,
            "{resets} resets, and each VF was reset at its start"
        );
    });
    assert!(daemon.stop().unwrap().success());
}

#[test]
fn guests_with_vfs_of_a_guests_pf_go_on_whenever_the_worker_is_killed() {
    vfs_of_a_guests_pf(&Lives::killed(8));
}

#[test]
fn guests_with_an_82576_go_on_whenever_the_worker_is_killed() {
    pfs(&Lives::killed(8), "trap");
}

#[test]
fn guests_with_vfs_go_on_whenever_the_worker_is_killed() {
    vfs(&Lives::killed(8), "trap");
}

#[test]
fn guests_whose_doorbells_are_memory_go_on_whenever_the_worker_is_killed() {
    pfs(&Lives::killed(8), "page");
    vfs(&Lives::killed(8), "page");
}

#[test]
#[ignore = "long: hundreds of kills"]
fn long_guests_with_an_82576_or_vfs_go_on_whenever_the_worker_is_killed() {
    for doorbell in ["trap", "page"] {
        pfs(&Lives::killed(250), doorbell);
        vfs(&Lives::killed(250), doorbell);
    }
    vfs_of_a_guests_pf(&Lives::killed(250));
}

#[test]
fn a_port_that_cannot_be_had_again_has_a_counter_of_what_is_lost() {
    let with = |nic: &str, port: &str| {
        format!(
            "[[nic]]\nname = \"{nic}\"\nmodel = \"82576\"\nsocket-path = \"@/{nic}\"\nport = \"{port}\"\n"
        )
    };
    let mut lab = Lab::new(&format!("keeper = true\n{}", with("there", "null")));
    std::fs::create_dir(lab.at("gone")).unwrap();
    let added = "nic add cut --model 82576 --socket-path @/cut --port stream:listen=@/gone/cut";
    lab.ran(&at(&lab, added));
    // Drivers begin when there is a link.
    let other = std::os::unix::net::UnixStream::connect(lab.at("gone/cut")).unwrap();
    let _nics = ["cut", "there"].map(|name| igb(&lab.at(name), false));
    let lines = lab.daemon.log_position();
    drop(other);
    lab.daemon.wait_log_after(lines, "link down").unwrap();
    std::fs::remove_dir_all(lab.at("gone")).unwrap();
    kill(&mut lab.daemon);
    // An 82576 without a link keeps what its guest sends, but for what goes before that is known.
    let call = r#"{"method":"io.hypernic.Metrics.Get","parameters":{"kind":"port"}}"#;
    let told: serde_json::Value =
        serde_json::from_str(&crate::cli_control::call(&lab, call)).expect("JSON");
    let ports = told["parameters"]["sections"].as_array().expect("ports");
    let counts = |name: &str, counter: &str| {
        let mut named = ports.iter().filter(|port| port["name"] == name);
        named.any(|port| port["values"].get(counter).is_some())
    };
    assert!(counts("cut/missing", "port_missing"), "{told}");
    // One that was asked for counts what it takes as sent.
    assert!(counts("there/null", "frames_out"), "{told}");
    assert!(lab.daemon.stop().unwrap().success());
}
