//! The same traffic, while the daemon's worker is killed, stopped and left without descriptors at random. What was accepted
//! arrives at most once, in order and unchanged; nothing stops for good, and nothing piles up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hypernic_tests::{Daemon, Ends, Holdings, LONG, Launch, scratch};
use pkt_gen::{Plan, Report, run};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tempfile::TempDir;

use super::{
    Bed, Choices, NICS, SLACK_KIB, WARM_UP, alone, length, plan, seed, settled, size_of, visits,
};

/// A daemon with a keeper.
pub struct Kept {
    daemon: Daemon,
    dir: TempDir,
}

impl Kept {
    pub fn new(workers: u64) -> Self {
        let dir = scratch().unwrap();
        let mut launch = Launch::new()
            .unwrap()
            .env("HYPERNIC_TEST_LIFE_MS", "0")
            .args(["run", "--keeper", "--port", "switch:lan", "--workers"])
            .arg(workers.to_string());
        for n in 0..=NICS {
            launch = launch
                .arg("--socket-path")
                .arg(dir.path().join(format!("n{n}")));
        }
        let daemon = launch.start().unwrap();
        Self { daemon, dir }
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
        match choices.below(if may_lack_descriptors { 8 } else { 6 }) {
            // So does the kernel when it has no memory.
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
    // Who maps new memory needs a descriptor for it.
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
