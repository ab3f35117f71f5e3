//! A daemon whose worker is killed at any instruction, while guests use their NICs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[cfg(target_arch = "x86_64")]
use hypernic_tests::fault;
use hypernic_tests::{Daemon, Ends, LONG, Launch, copy_program, scratch};
use pkt_gen::check::Depth;
use pkt_gen::pace::Rate;
use pkt_gen::{Function, Plan, Report, run};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use vfio_user::Client;

use crate::cli_upgrade::upgrade;
use crate::waiting;

/// How guests tell their NICs of frames, but for messages.
const PAGE: &[&str] = &["--doorbell", "page"];
const CSB: &[&str] = &["--csb"];

/// One with a keeper that thinks nothing of short lives, and NICs on a switch.
pub(super) fn lan(sockets: &[PathBuf], how: &[&str]) -> Daemon {
    let mut launch = Launch::new()
        .unwrap()
        .env("HYPERNIC_TEST_LIFE_MS", "0")
        .args(["run", "--keeper", "--port", "switch:lan"])
        .args(how);
    for socket in sockets {
        launch = launch.arg("--socket-path").arg(socket);
    }
    launch.start().unwrap()
}

/// Random numbers (xorshift), and where they began.
pub(crate) struct Chance(pub u64);

impl Chance {
    /// Others each time; prints where they begin.
    pub(crate) fn new() -> Self {
        let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let seed = seed.as_nanos() as u64 | 1;
        println!("seed {seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Kills the worker, and waits until the next one serves. Returns how long that took.
pub(crate) fn kill(daemon: &mut Daemon) -> Duration {
    let lines = daemon.log_position();
    let begun = Instant::now();
    let worker = daemon.worker().expect("a worker");
    kill_process(worker, Signal::KILL).unwrap();
    daemon.wait_log_after(lines, "\"serving\"").unwrap();
    begun.elapsed()
}

/// How workers of a test's daemon end.
enum End {
    Killed,
    /// In an upgrade to the program that runs.
    Renewed,
    /// In one to another program, by turns: the place of the program that runs, and both.
    Exchanged(TempDir, [PathBuf; 2]),
}

/// The lives of a test's daemon: how its workers end, and how many do.
pub(crate) struct Lives {
    pub count: u32,
    end: End,
}

impl Lives {
    pub(crate) fn killed(count: u32) -> Self {
        Self {
            count,
            end: End::Killed,
        }
    }

    pub(crate) fn renewed(count: u32) -> Self {
        Self {
            count,
            end: End::Renewed,
        }
    }

    /// The first of the programs begins.
    pub(crate) fn exchanged(programs: [PathBuf; 2], count: u32) -> Self {
        let dir = scratch().unwrap();
        copy_program(&programs[0], &dir.path().join("hypernic")).unwrap();
        Self {
            count,
            end: End::Exchanged(dir, programs),
        }
    }

    /// The daemon.
    pub(crate) fn launch(&self) -> Launch {
        let launch = match &self.end {
            End::Exchanged(dir, _) => Launch::of(&dir.path().join("hypernic")),
            End::Killed | End::Renewed => Launch::new().unwrap(),
        };
        launch.env("HYPERNIC_TEST_LIFE_MS", "0")
    }

    /// Frames may be lost.
    pub(crate) fn may_lose(&self) -> bool {
        matches!(self.end, End::Killed)
    }

    /// The end of worker `n`, from 0 on.
    pub(crate) fn end(&self, daemon: &mut Daemon, n: u32) {
        match &self.end {
            End::Killed => drop(kill(daemon)),
            End::Renewed => upgrade(daemon),
            End::Exchanged(dir, programs) => {
                let (next, place) = (dir.path().join("next"), dir.path().join("hypernic"));
                copy_program(&programs[(n as usize + 1) % 2], &next).unwrap();
                std::fs::rename(next, place).unwrap();
                upgrade(daemon);
            }
        }
    }
}

/// Sends as `plan` says, while the worker is killed so many times.
fn traffic(daemon: &mut Daemon, plan: &Plan, kills: u32, chance: &mut Chance) -> Report {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| run(plan, &stop, |_, _| {}));
        let ends = Ends(&stop);
        let came = daemon.log().matches("VMM connected").count();
        let until = Instant::now() + LONG;
        while daemon.log().matches("VMM connected").count() < came + 2 {
            assert!(Instant::now() < until, "the generator does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Long enough that the switch has noted where they are.
        std::thread::sleep(Duration::from_millis(1500));
        for _ in 0..kills {
            std::thread::sleep(Duration::from_micros(2_000 + chance.below(30_000)));
            kill(daemon);
        }
        // All is well once the last has gone on for a while.
        std::thread::sleep(Duration::from_millis(100));
        drop(ends);
        sent.join().expect("no panic").unwrap()
    })
}

/// Has workers killed under all kinds of traffic. None of it may stop, come twice, or in another order.
fn kills_under_traffic(kills: u32, how: &[&str]) {
    let dir = scratch().unwrap();
    let sockets: Vec<_> = (0..2).map(|n| dir.path().join(format!("n{n}"))).collect();
    let plan = |function| Plan {
        receivers: vec![sockets[1].clone()],
        check: Depth::Full,
        settle: Duration::from_millis(300),
        ..Plan::new(function, vec![sockets[0].clone()])
    };
    let slow = |plan| Plan {
        rate: Rate::Frames(20_000.0),
        burst: 8,
        ..plan
    };
    let flood = plan(Function::Tx);
    // Each sends to the other.
    let both = Plan {
        check: Depth::Full,
        settle: Duration::from_millis(300),
        ..Plan::new(Function::Txrx, sockets.clone())
    };
    let plans = [
        ("flood", flood.clone()),
        ("both ways", both.clone()),
        ("slow", slow(both.clone())),
        (
            "by head",
            Plan {
                reclaim_by_head: true,
                ..flood.clone()
            },
        ),
        (
            "interrupts",
            Plan {
                interrupts: true,
                threads: 2,
                ..slow(both)
            },
        ),
    ];
    let csb = how.contains(&"--csb");
    let mut chance = Chance::new();
    for (name, mut plan) in plans {
        plan.csb = csb;
        let mut daemon = lan(&sockets, how);
        let begun = Instant::now();
        let report = traffic(&mut daemon, &plan, kills, &mut chance);
        let verdict = report.verdict().expect("somebody received");
        let sent = report.total(|s| s.tx_frames);
        println!(
            "{name}: {kills} kills in {:?}, sent {sent}, {verdict:?}",
            begun.elapsed()
        );
        let log = daemon.log();
        assert!(verdict.in_order(), "{name}: {verdict:?}\n{log}");
        assert!(
            verdict.frames > u64::from(kills) * 50,
            "{name}: {verdict:?}\n{log}"
        );
        let went_on = log.matches("goes on where").count();
        assert_eq!(went_on, 2 * kills as usize, "{name}: {log}");
        assert!(!log.contains("VMM disconnected: it broke"), "{name}: {log}");
        assert!(daemon.stop().unwrap().success());
    }
}

#[test]
fn guests_go_on_whenever_the_worker_is_killed() {
    kills_under_traffic(12, &[]);
}

#[test]
fn guests_whose_tails_are_memory_go_on_whenever_the_worker_is_killed() {
    kills_under_traffic(12, PAGE);
}

#[test]
fn guests_with_a_csb_go_on_whenever_the_worker_is_killed() {
    kills_under_traffic(12, CSB);
}

#[test]
#[ignore = "long: a thousand kills"]
fn long_guests_go_on_whenever_the_worker_is_killed() {
    for how in [&[], PAGE, CSB] {
        kills_under_traffic(250, how);
    }
}

/// Drivers bring their NICs up, and workers die or are stopped meanwhile.
fn begins(rounds: u32) {
    let dir = scratch().unwrap();
    let sockets: Vec<_> = (0..2).map(|n| dir.path().join(format!("n{n}"))).collect();
    let mut chance = Chance::new();
    let mut daemon = lan(&sockets, &[]);
    for round in 0..rounds {
        let plan = Plan {
            receivers: vec![sockets[1].clone()],
            check: Depth::Full,
            settle: Duration::from_millis(10),
            run: round as u16,
            interrupts: true,
            threads: 2,
            rings: (80, 4096),
            burst: 256,
            ..Plan::new(Function::Tx, vec![sockets[0].clone()])
        };
        let stop = AtomicBool::new(false);
        let line = daemon.log_position();
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            let sent = scope.spawn(|| run(&plan, &stop, |_, _| {}));
            let until = Instant::now() + LONG;
            let came = |log: &str| {
                log.lines()
                    .skip(line)
                    .filter(|l| l.contains("VMM connected"))
                    .count()
            };
            while came(&daemon.log()) < 2 {
                assert!(Instant::now() < until, "the generator does not come");
                std::thread::sleep(Duration::from_millis(1));
            }
            for _ in 0..3 {
                std::thread::sleep(Duration::from_micros(chance.below(60_000)));
                if chance.below(2) == 0 {
                    kill(&mut daemon);
                    continue;
                }
                let worker = daemon.worker().expect("a worker");
                kill_process(worker, Signal::STOP).unwrap();
                std::thread::sleep(Duration::from_millis(1 + chance.below(50)));
                kill_process(worker, Signal::CONT).unwrap();
            }
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::Release);
            let until = Instant::now() + LONG;
            while !sent.is_finished() {
                assert!(Instant::now() < until, "a driver waits: {}", daemon.log());
                std::thread::sleep(Duration::from_millis(1));
            }
            let report = sent.join().expect("no panic");
            let verdict = report
                .unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()))
                .verdict();
            assert!(verdict.is_none_or(|verdict| verdict.in_order()));
        });
    }
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
    assert!(daemon.stop().unwrap().success());
}

#[test]
fn drivers_that_begin_while_workers_die_and_stop_go_on() {
    begins(20);
}

#[test]
#[ignore = "long: a thousand kills"]
fn long_drivers_that_begin_while_workers_die_and_stop_go_on() {
    begins(1000);
}

/// A part of the host that cannot be made again costs nobody else's NIC.
#[test]
fn what_cannot_be_made_again_after_a_crash_is_missing_and_the_rest_goes_on() {
    let dir = scratch().unwrap();
    let [gone, eeprom] = ["gone", "n1.nvm"].map(|name| dir.path().join(name));
    std::fs::create_dir(&gone).unwrap();
    let sockets = ["a", "b"].map(|name| dir.path().join(name));
    let nic = |n: usize, more: &str| {
        format!(
            "[[nic]]\nname = \"n{n}\"\nsocket-path = {:?}\nport = \"switch:lan\"\n{more}",
            sockets[n]
        )
    };
    let toml = format!(
        "keeper = true\n[[switch]]\nname = \"lan\"\nports = [\"stream:listen={}\"]\n{}{}",
        gone.join("port").display(),
        nic(0, ""),
        nic(1, &format!("eeprom = {eeprom:?}\n"))
    );
    let file = dir.path().join("host.toml");
    std::fs::write(&file, toml).unwrap();
    let launch = Launch::new().unwrap().arg("serve").arg(&file);
    let mut daemon = launch.start().unwrap();
    let mut clients = sockets
        .each_ref()
        .map(|socket| Client::connect(socket).unwrap());
    for client in &mut clients {
        client.write_u32(0, 0x38, 0x88b5).unwrap();
    }
    std::fs::remove_dir_all(&gone).unwrap();
    std::fs::write(&eeprom, "no EEPROM of this chip").unwrap();
    let lines = daemon.log_position();
    kill(&mut daemon);
    let [mut goes_on, mut ends] = clients;
    assert_eq!(goes_on.read_u32(0, 0x38).unwrap(), 0x88b5);
    assert!(ends.read_u32(0, 0x38).is_err());
    let log = daemon.log();
    let said = log.lines().skip(lines);
    let missing = said.filter(|line| line.contains("the host goes on without it"));
    assert_eq!(missing.count(), 2, "{log}");
    assert!(daemon.stop().unwrap().success());
}

/// The folder of their ports is gone when the next worker comes, and there again for the third.
#[test]
fn nics_whose_port_cannot_be_had_again_go_on_without_a_link() {
    let dir = scratch().unwrap();
    let gone = dir.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let [alone, vf] = ["alone", "vf0"].map(|name| dir.path().join(name));
    let toml = format!(
        "keeper = true\n\
         [[nic]]\nname = \"alone\"\nsocket-path = {alone:?}\nport = \"stream:listen={0}/alone\"\n\
         [[nic]]\nname = \"chip\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = \"{1}/vf{{}}\"\n\
         port = \"stream:listen={0}/chip\"\n",
        gone.display(),
        dir.path().display()
    );
    let file = dir.path().join("host.toml");
    std::fs::write(&file, toml).unwrap();
    let launch = Launch::new().unwrap().arg("serve").arg(&file);
    let mut daemon = launch.start().unwrap();
    let mut clients = [&alone, &vf].map(|socket| Client::connect(socket).unwrap());
    // VET of the one, VTEIMS of the other: what only a reset changes.
    let registers = [0x38, 0x1524];
    for (client, register) in clients.iter_mut().zip(registers) {
        client.write_u32(0, register, 0x88b5).unwrap();
    }
    let before: Vec<_> = clients
        .iter_mut()
        .zip(registers)
        .map(|(client, register)| client.read_u32(0, register).unwrap())
        .collect();
    std::fs::remove_dir_all(&gone).unwrap();
    let cut = |log: String, from: usize| {
        let lines = log.lines().skip(from);
        lines
            .filter(|line| line.contains("goes on without its port"))
            .count()
    };
    let mut goes_on = |daemon: &mut Daemon, missing: usize| {
        let lines = daemon.log_position();
        kill(daemon);
        for ((client, register), before) in clients.iter_mut().zip(registers).zip(&before) {
            assert_eq!(client.read_u32(0, register).unwrap(), *before);
        }
        assert_eq!(cut(daemon.log(), lines), missing, "{}", daemon.log());
    };
    goes_on(&mut daemon, 2);
    std::fs::create_dir(&gone).unwrap();
    goes_on(&mut daemon, 0);
    // The link is there when somebody is at the other end.
    let lines = daemon.log_position();
    let _other = std::os::unix::net::UnixStream::connect(gone.join("alone")).unwrap();
    daemon.wait_log_after(lines, "link up").unwrap();
    assert!(daemon.stop().unwrap().success());
}

/// For docs/survival.md: how long a guest waits that reads a register all the time when the worker is killed, with so many NICs that
/// VMMs have.
#[test]
#[ignore = "long: a thousand NICs"]
fn long_how_long_guests_wait_for_the_next_worker() {
    for nics in [1, 10, 1000] {
        let dir = scratch().unwrap();
        let sockets: Vec<_> = (0..nics)
            .map(|n| dir.path().join(format!("n{n}")))
            .collect();
        waiting::tell(&mut lan(&sockets, &[]), &sockets, |daemon| _ = kill(daemon));
    }
}

/// What kills the worker twice kills it no third time, and its VMM is not made to wait for answers.
#[test]
fn a_nic_in_quarantine_keeps_its_vmm_and_reads_as_ones() {
    let dir = scratch().unwrap();
    let sockets: Vec<_> = (0..2).map(|n| dir.path().join(format!("n{n}"))).collect();
    let mut daemon = lan(&sockets, &[]);
    let mut client = Client::connect(&sockets[0]).unwrap();
    let mut other = Client::connect(&sockets[1]).unwrap();
    let status = |client: &mut Client| {
        let mut word = [0; 4];
        client.region_read(0, 8, &mut word).unwrap();
        u32::from_le_bytes(word)
    };
    let until = Instant::now() + LONG;
    while status(&mut client) != !0 {
        assert!(Instant::now() < until, "{}", daemon.log());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Ends(&stop);
            let flood = scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    client.region_post(0, 0x28, &[0; 4]).unwrap();
                }
            });
            std::thread::sleep(Duration::from_millis(100));
            daemon.end_worker(Signal::ABORT).unwrap();
            drop(ends);
            flood.join().expect("the flood");
        });
    }
    assert!(daemon.log().contains("in quarantine"));
    assert_ne!(status(&mut other), !0, "the other one is served");
    kill(&mut daemon);
    assert_eq!(status(&mut client), !0);
    assert_ne!(status(&mut other), !0);
    assert!(daemon.stop().unwrap().success());
}

/// Two workers have a NIC each, both all the time. What one thread dies of is not the other NIC's, and is no hang.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_thread_that_faults_ends_its_worker_and_only_what_it_served_is_suspected() {
    let dir = scratch().unwrap();
    let sockets: Vec<_> = (0..2).map(|n| dir.path().join(format!("n{n}"))).collect();
    let nics = sockets.iter().enumerate().map(|(n, socket)| {
        format!("[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"null\"\n")
    });
    let nics: String = nics.collect();
    let file = dir.path().join("host.toml");
    std::fs::write(&file, format!("workers = 2\nkeeper = true\n{nics}")).unwrap();
    let launch = Launch::new()
        .unwrap()
        .env("HYPERNIC_TEST_LIFE_MS", "0")
        .arg("serve")
        .arg(&file);
    let mut daemon = launch.start().unwrap();
    let mut clients: Vec<_> = sockets
        .iter()
        .map(|socket| Client::connect(socket).unwrap())
        .collect();
    let status = |client: &mut Client| {
        let mut word = [0; 4];
        client.region_read(0, 8, &mut word).unwrap();
        u32::from_le_bytes(word)
    };
    let until = Instant::now() + LONG;
    let mut deaths = 0;
    while status(&mut clients[0]) != !0 {
        assert!(
            Instant::now() < until,
            "not after {deaths} deaths: {}",
            daemon.log()
        );
        let counters = daemon.counters().unwrap();
        let [bad, good] = ["n0", "n1"].map(|nic| counters.nic(nic, "worker"));
        assert_ne!(bad, good, "{counters}");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            for client in &mut clients {
                scope.spawn(|| {
                    while !stop.load(Ordering::Acquire) {
                        client.region_post(0, 0x28, &[0; 4]).unwrap();
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            let lines = daemon.log_position();
            fault(daemon.worker().expect("a worker"), &format!("worker-{bad}")).unwrap();
            daemon.wait_log_after(lines, "\"serving\"").unwrap();
        });
        deaths += 1;
    }
    println!("{deaths} deaths");
    assert!(deaths >= 2);
    assert_ne!(status(&mut clients[1]), !0, "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("\"signal\":11"), "{log}");
    assert!(!log.contains("a turn did not end"), "{log}");
    assert!(daemon.stop().unwrap().success());
}
