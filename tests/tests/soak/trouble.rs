//! The same traffic, while the daemon's worker is killed, stopped, and left without descriptors, memory and room on the disk at
//! random. What was accepted arrives at most once, in order and unchanged; nothing stops for good, and nothing piles up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drivers::{Bus, BusError, SocketBus};
use hypernic_tests::{Daemon, Ends, Holdings, LONG, Launch, scratch};
use pkt_gen::{Plan, Report, run};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tempfile::TempDir;

use super::scarce::{Cramped, Disk};
use super::{
    Bed, Choices, NICS, SLACK_KIB, WARM_UP, alone, length, plan, seed, settled, size_of, visit,
    visits,
};

/// The NIC whose guest writes its EEPROM.
const WRITER: usize = NICS + 1;

/// A daemon with a keeper.
pub struct Kept {
    daemon: Daemon,
    /// Where its files are.
    disk: Option<Disk>,
    memory: bool,
    dir: TempDir,
}

/// Shifts `count` bits into the EEPROM, as drivers do through EECD.
fn eeprom_command(bus: &mut SocketBus, bits: u32, count: u32) -> Result<(), BusError> {
    const EECD: u32 = 0x10;
    bus.write32(EECD, 0x42)?;
    for i in (0..count).rev() {
        let di = (bits >> i & 1) << 2;
        for clock in [0, 1, 0] {
            bus.write32(EECD, 0x42 | di | clock)?;
        }
    }
    bus.write32(EECD, 0x40)
}

/// A guest writes a word that its driver may use for what it likes.
fn write_eeprom(bus: &mut SocketBus, value: u16) -> Result<(), BusError> {
    eeprom_command(bus, 0b1_0011_0000, 9)?;
    eeprom_command(bus, (0b101 << 6 | WORD as u32) << 16 | u32::from(value), 25)
}

/// That word.
const WORD: usize = 0x20;

impl Kept {
    pub fn new(workers: u64) -> Self {
        let dir = scratch().unwrap();
        // A capture and the one before it take most of it.
        let disk = Disk::mount(dir.path(), 40);
        let memory = Cramped::new().is_some();
        println!(
            "soak: a disk that can be full: {}, a group without memory: {memory}",
            disk.is_some()
        );
        let mut launch = Launch::new()
            .unwrap()
            .env("HYPERNIC_TEST_LIFE_MS", "0")
            .args(["run", "--keeper", "--port", "switch:lan", "--workers"])
            .arg(workers.to_string())
            .args(["--capture-mib", "16", "--capture"])
            .arg(dir.path().join("n0.pcapng"));
        for n in 0..=WRITER {
            launch = launch
                .arg("--socket-path")
                .arg(dir.path().join(format!("n{n}")))
                .arg("--eeprom")
                .arg(dir.path().join(format!("n{n}.nvm")));
        }
        let daemon = launch.start().unwrap();
        Self {
            daemon,
            disk,
            memory,
            dir,
        }
    }

    /// The disk is full, while a guest writes its EEPROM. What it wrote is in the file once there is room.
    fn fill_disk(&mut self, choices: &mut Choices) -> &'static str {
        let Some(disk) = &self.disk else {
            return "no disk";
        };
        disk.fill();
        let value = choices.below(1 << 16) as u16;
        let mut bus = SocketBus::connect(self.socket(WRITER)).expect("it listens");
        write_eeprom(&mut bus, value).expect("written");
        std::thread::sleep(Duration::from_millis(20 + choices.below(200)));
        let kills = choices.one_in(2);
        if kills {
            self.daemon.end_worker(Signal::KILL).unwrap();
        }
        disk.empty();
        let file = self.dir.path().join(format!("n{WRITER}.nvm"));
        let until = Instant::now() + LONG;
        loop {
            let image = std::fs::read(&file).unwrap_or_default();
            if image.get(2 * WORD..2 * WORD + 2) == Some(&value.to_le_bytes()) {
                break;
            }
            let log = self.daemon.log();
            assert!(Instant::now() < until, "the EEPROM is not written: {log}");
            std::thread::sleep(Duration::from_millis(5));
        }
        if kills {
            "disk full and killed"
        } else {
            "disk full"
        }
    }

    /// The kernel has no memory for the worker, and kills it.
    fn cramp(&mut self) -> &'static str {
        let Some(group) = self.memory.then(Cramped::new).flatten() else {
            return "no group";
        };
        let (worker, lines) = (self.worker(), self.daemon.log_position());
        assert!(group.take(worker), "a worker in a group");
        let until = Instant::now() + LONG;
        while self.daemon.worker() == Some(worker) {
            assert!(Instant::now() < until, "it needs no memory");
            // For this it needs some.
            let _ = SocketBus::connect(self.socket(WRITER)).and_then(|mut bus| bus.alloc(1 << 20));
        }
        self.daemon.wait_log_after(lines, "serving").unwrap();
        "out of memory"
    }

    /// No address space is left: each allocation that needs more fails, and that ends the worker.
    fn narrow(&mut self, choices: &mut Choices) -> &'static str {
        let (worker, lines) = (self.worker(), self.daemon.log_position());
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", worker.as_raw_nonzero()));
        let pages: Option<u64> = pages
            .ok()
            .and_then(|text| text.split(' ').next()?.parse().ok());
        let was = Rlimit {
            current: None,
            maximum: None,
        };
        let least = Rlimit {
            current: Some(4096 * pages.expect("its size")),
            maximum: None,
        };
        prlimit(Some(worker), Resource::As, least).unwrap();
        let until = Instant::now() + Duration::from_millis(20 + choices.below(300));
        while Instant::now() < until && self.daemon.worker() == Some(worker) {
            let _ = visit(&self.socket(WRITER), choices);
        }
        if self.daemon.worker() == Some(worker) && prlimit(Some(worker), Resource::As, was).is_ok()
        {
            return "without address space";
        }
        self.daemon.wait_log_after(lines, "serving").unwrap();
        "died without address space"
    }

    fn worker(&self) -> Pid {
        let until = Instant::now() + LONG;
        loop {
            if let Some(worker) = self.daemon.worker() {
                return worker;
            }
            assert!(Instant::now() < until, "no worker: {}", self.daemon.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Something happens. Returns what.
    fn trouble(&mut self, choices: &mut Choices, may_lack_descriptors: bool) -> &'static str {
        let worker = self.worker();
        match choices.below(if may_lack_descriptors { 13 } else { 10 }) {
            6 | 7 => self.fill_disk(choices),
            8 | 9 => self.cramp(),
            10 => self.narrow(choices),
            0..4 => {
                self.daemon.end_worker(Signal::KILL).unwrap();
                "killed"
            }
            4 | 5 => {
                kill_process(worker, Signal::STOP).unwrap();
                let long = choices.of(&[10, 10, 100, 100, 500, 1000]);
                std::thread::sleep(Duration::from_millis(long));
                if choices.one_in(2) {
                    self.daemon.end_worker(Signal::KILL).unwrap();
                    return "stopped and killed";
                }
                kill_process(worker, Signal::CONT).unwrap();
                // A client that is kept waiting twice in a row gives up after five seconds.
                std::thread::sleep(Duration::from_millis(long.min(500)));
                "stopped"
            }
            _ => {
                let open = Holdings::of(self.daemon.id()).fds as u64;
                let limit = |current| Rlimit {
                    current: Some(current),
                    maximum: getrlimit(Resource::Nofile).maximum,
                };
                let least = limit(open + choices.below(4));
                let was = prlimit(Some(worker), Resource::Nofile, least).unwrap();
                std::thread::sleep(Duration::from_millis(20 + choices.below(200)));
                prlimit(Some(worker), Resource::Nofile, was).unwrap();
                "without descriptors"
            }
        }
    }
}

impl Bed for Kept {
    fn socket(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("n{n}"))
    }
    fn dropped(&self, _n: usize) -> u64 {
        0
    }
    fn size(&self) -> (u64, usize) {
        let worker = self.worker().as_raw_nonzero().get();
        let (kib, _) = size_of(worker.unsigned_abs());
        (kib, Holdings::of(self.daemon.id()).fds)
    }
}

fn judge(report: &Report, what: &str, log: &str) -> u64 {
    let verdict = report.verdict().expect("somebody received");
    assert!(verdict.in_order(), "{what}: {verdict:?}\n{log}");
    verdict.frames
}

/// Frames that a NIC's guest got from this worker.
fn received(daemon: &Daemon, nic: &str) -> u64 {
    daemon.counters().unwrap().nic(nic, "rx_frames")
}

/// What a sender does until it is told to end.
fn endless(choices: &mut Choices, bed: &Kept, pair: &[usize], run: u16) -> Plan {
    let (from, to) = (bed.socket(pair[0]), bed.socket(pair[1]));
    let mut plan = plan(choices, &from, &to, run);
    plan.count = 0;
    // Where addresses are unknown, others get the frames too, and could not tell those with tags from broken ones.
    (plan.flows.vlans, plan.flows.vlan_offload) = (None, false);
    plan
}

/// Pairs send, and a stranger comes and goes, while so many troubles befall the worker. Returns how many frames arrived, and what
/// happened.
fn cycle(bed: &mut Kept, choices: &mut Choices, number: u32) -> (u64, Vec<&'static str>) {
    let plans: Vec<_> = (0..1 + choices.below(3) as usize)
        .map(|pair| {
            let run = (8 * number as usize + pair) as u16;
            endless(choices, bed, &[2 * pair, 2 * pair + 1], run)
        })
        .collect();
    // Who maps new memory needs a descriptor and addresses for it.
    let may_lack_descriptors = plans.iter().all(|plan| !plan.remap);
    let strange = Choices(choices.below(u64::MAX));
    let over = AtomicBool::new(false);
    let arrived = AtomicU64::new(0);
    let path = bed.socket(NICS);
    let mut happened = Vec::new();
    let receivers: Vec<_> = (0..plans.len())
        .map(|n| format!("n{}", 2 * n + 1))
        .collect();
    let before: Vec<_> = receivers
        .iter()
        .map(|nic| received(&bed.daemon, nic))
        .collect();
    std::thread::scope(|scope| {
        let (over, arrived) = (&over, &arrived);
        let ends = Ends(over);
        let working: Vec<_> = plans
            .iter()
            .map(|plan| {
                scope.spawn(move || {
                    let what = format!("cycle {number}, {plan:?}");
                    let report = run(plan, over, |_, _| {})
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                    (report, what)
                })
            })
            .collect();
        // A connection that was not made yet has nobody who could go on with it, and a driver that begins needs descriptors.
        let until = Instant::now() + LONG;
        while !receivers
            .iter()
            .zip(&before)
            .all(|(nic, before)| received(&bed.daemon, nic) > before + 10)
        {
            assert!(Instant::now() < until, "nothing comes");
            std::thread::sleep(Duration::from_millis(20));
        }
        let visitor = scope.spawn(move || visits(&path, strange, over, |_| {}));
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(choices.below(120)));
            happened.push(bed.trouble(choices, may_lack_descriptors));
        }
        std::thread::sleep(Duration::from_millis(300));
        drop(ends);
        visitor.join().expect("no panic");
        let until = Instant::now() + LONG;
        while !working.iter().all(|worked| worked.is_finished()) {
            if Instant::now() > until {
                println!("{}", bed.daemon.counters().unwrap());
                // Else it would wait for ever, and we for it.
                bed.daemon.kill();
                let log = bed.daemon.log();
                panic!("cycle {number}: {happened:?}, {plans:?}: a driver waits: {log}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for worked in working {
            let worked = worked.join();
            if worked.is_err() {
                println!("{happened:?}\n{}", bed.daemon.log());
            }
            let (report, what) = worked.unwrap_or_else(|e| std::panic::resume_unwind(e));
            let log = bed.daemon.log();
            let what = format!("{what}, {happened:?}");
            arrived.fetch_add(judge(&report, &what, &log), Ordering::Relaxed);
        }
    });
    (arrived.into_inner(), happened)
}

fn goes_on_whatever_happens(length: Duration) {
    let _alone = alone();
    let seed = seed();
    println!("soak: HYPERNIC_SOAK_SEED={seed}");
    let mut choices = Choices(seed);
    let mut bed = Kept::new(1 + choices.below(3));
    let begun = Instant::now();
    let (mut number, mut frames, mut first) = (0, 0, None);
    let mut happened = BTreeMap::new();
    while begun.elapsed() < length || number <= WARM_UP {
        let (arrived, troubles) = cycle(&mut bed, &mut choices, number);
        assert!(arrived > 0, "nothing arrives: {troubles:?}");
        frames += arrived;
        for trouble in troubles {
            *happened.entry(trouble).or_insert(0) += 1;
        }
        number += 1;
        if number == WARM_UP {
            first = Some(settled(&bed, None));
        }
    }
    let (kib_then, fds_then) = first.expect("it went on for longer than the warm-up");
    let (kib, fds) = settled(&bed, Some(fds_then));
    println!(
        "soak with a keeper: {number} cycles, {frames} frames in {:?}, {happened:?}; {kib_then} -> {kib} KiB, {fds_then} -> {fds} \
         descriptors",
        begun.elapsed()
    );
    let log = bed.daemon.log();
    assert!(!log.contains("in quarantine"), "{log}");
    assert!(fds <= fds_then, "descriptors: {fds_then} -> {fds}\n{log}");
    assert!(
        kib <= kib_then + SLACK_KIB,
        "memory: {kib_then} -> {kib} KiB"
    );
    assert!(bed.daemon.stop().unwrap().success());
}

#[test]
#[ignore = "ten minutes; make test-long"]
fn long_a_daemon_with_a_keeper_goes_on_whatever_happens_to_its_worker() {
    goes_on_whatever_happens(length(600));
}
