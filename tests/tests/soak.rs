//! Everything at once, for a long time: frames of all sizes with all offloads between NICs that come and go, whose
//! memory is remapped under them and whose VMMs leave without a word. What was accepted arrives once, in order and
//! unchanged, or is counted; and when all is over, the daemon holds what it held before.
//!
//! `HYPERNIC_SOAK_SECONDS` says how long each test goes on (10 s; ten minutes for the long one), `HYPERNIC_SOAK_SEED`
//! repeats the choices of an earlier run.
#![forbid(unsafe_code)]

#[path = "soak/scarce.rs"]
mod scarce;
#[path = "soak/trouble.rs"]
mod trouble;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drivers::{Bus, BusError, SocketBus};
use hypernic::config::{HostConfig, NicConfig};
use hypernic::host::Host;
use hypernic_tests::{Daemon, Holdings, Launch, scratch};
use pkt_gen::check::Depth;
use pkt_gen::flows::{Flows, Sizes, Span};
use pkt_gen::pace::Rate;
use pkt_gen::{Function, Plan, Report, run};
use tempfile::TempDir;

/// NICs that stay, and the one that only strangers use.
const NICS: usize = 6;
const STRANGER: usize = NICS;

/// Cycles before the daemon's size is taken for what it will stay.
const WARM_UP: u32 = 3;

/// What an allocator may keep of its own accord.
const SLACK_KIB: u64 = 16 << 10;

/// Choices that can be made again.
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        pkt_gen::stamp::mix(self.0) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

fn seed() -> u64 {
    let given = std::env::var("HYPERNIC_SOAK_SEED").ok();
    given.map_or_else(pkt_gen::now, |s| {
        s.parse().expect("HYPERNIC_SOAK_SEED is a number")
    })
}

fn length(usual: u64) -> Duration {
    let given = std::env::var("HYPERNIC_SOAK_SECONDS").ok();
    let seconds = given.map_or(usual, |s| {
        s.parse().expect("HYPERNIC_SOAK_SECONDS is a number")
    });
    Duration::from_secs(seconds)
}

/// Frames of any kind from NIC to NIC.
fn plan(choices: &mut Choices, from: &Path, to: &Path, run: u16) -> Plan {
    let mut plan = Plan::new(Function::Tx, vec![from.to_owned()]);
    plan.receivers = vec![to.to_owned()];
    plan.seed = choices.below(u64::MAX);
    plan.run = run;
    plan.check = Depth::Full;
    // Longer than a busy machine keeps a thread waiting.
    plan.settle = Duration::from_secs(1);
    let rings = [80, 128, 256, 1024, 4096];
    plan.rings = (choices.of(&rings), choices.of(&rings));
    plan.burst = choices.of(&[1, 3, 32, 256, 1000]);
    plan.count = 200 + choices.below(5000);
    plan.remap = choices.one_in(3);
    plan.reclaim_by_head = choices.one_in(6);
    plan.threads = 1 + choices.below(2) as usize;
    plan.interrupts = plan.threads == 2 && choices.one_in(3);
    plan.rate = choices.of(&[
        Rate::Unlimited,
        Rate::Unlimited,
        Rate::Frames(50e3),
        Rate::Bits(200e6),
    ]);
    let flows = &mut plan.flows;
    flows.count = choices.of(&[1, 1, 2, 17, 300]);
    flows.random = choices.one_in(2);
    flows.src_port = Span {
        first: 1000,
        count: flows.count,
    };
    flows.ipv6 = choices.one_in(4);
    flows.checksum = choices.one_in(2);
    if choices.one_in(3) {
        flows.vlans = Some(Span {
            first: 2,
            count: 1 + choices.below(9) as u32,
        });
        flows.vlan_offload = choices.one_in(2);
    }
    if choices.one_in(4) {
        flows.tso = Some(choices.of(&[536, 1448, 8000]));
        plan.count = 20 + choices.below(200);
    }
    let (least, most) = match flows.tso {
        Some(_) => (200, 65_000),
        None => (Flows::shortest(flows), choices.of(&[200, 1514, 1514, 9014])),
    };
    plan.sizes = match choices.below(3) {
        0 => Sizes::List(vec![most]),
        1 => Sizes::List(vec![least, most, least + 100]),
        _ => Sizes::Range(least, most),
    };
    plan.longest_received = match flows.tso {
        Some(mss) => u32::from(mss) + 100,
        None => most + 4,
    };
    plan
}

/// Where a switch port counts the frames that were for its NIC alone and found no room there.
const NO_ROOM: &str = "drop_no_room";

/// What carries the frames: a daemon of its own, or a host in this process whose NICs come and go.
trait Bed: Sync {
    fn socket(&self, n: usize) -> PathBuf;
    /// Drops counted on the way to this NIC.
    fn dropped(&self, n: usize) -> u64;
    /// Resident memory in KiB, and descriptors but for workers': more are started when turns wait.
    fn size(&self) -> (u64, usize);
    /// Takes a NIC away and brings another, if it can.
    fn replug(&self, _round: u64) {}
}

fn size_of(pid: u32) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    (kib.expect("VmRSS"), Holdings::of(pid).fds)
}

/// The process that its users run.
struct Process {
    daemon: Daemon,
    asking: Mutex<()>,
    dir: TempDir,
}

impl Process {
    fn new(workers: Option<u64>) -> Self {
        let dir = scratch().unwrap();
        let mut launch = Launch::new().unwrap().args(["run", "--port", "switch:lan"]);
        for n in 0..=NICS {
            launch = launch
                .arg("--socket-path")
                .arg(dir.path().join(format!("n{n}")));
        }
        if let Some(workers) = workers {
            launch = launch.args(["--workers", &workers.to_string()]);
        }
        let daemon = launch.start().unwrap();
        Self {
            daemon,
            asking: Mutex::default(),
            dir,
        }
    }

    /// Whether it can be told how many workers to have.
    fn has_workers() -> bool {
        let help = std::process::Command::new(hypernic_tests::binary().unwrap())
            .args(["run", "--help"])
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&help.stdout).contains("--workers")
    }
}

impl Bed for Process {
    fn socket(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("n{n}"))
    }
    fn dropped(&self, n: usize) -> u64 {
        // One at a time, or an answer might be that to an earlier question.
        let _alone = self.asking.lock().expect("nobody panicked");
        let counters = self.daemon.counters().unwrap();
        let port = format!("lan/n{n}");
        counters
            .find("switch-port", &port, NO_ROOM)
            .expect("a port of that name")
    }
    fn size(&self) -> (u64, usize) {
        size_of(self.daemon.server())
    }
}

/// A host whose NICs are plugged and unplugged while others work.
struct Plugged {
    host: Mutex<Host>,
    extra: NicConfig,
    dir: TempDir,
}

impl Plugged {
    fn new() -> Self {
        let dir = scratch().unwrap();
        let mut text = String::from("[[switch]]\nname = \"lan\"\n");
        for n in 0..=NICS + 1 {
            let socket = dir.path().join(format!("n{n}"));
            text += &format!(
                "[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\n\
                 mac = \"52:54:00:00:50:{n:02x}\"\nport = \"switch:lan\"\n"
            );
        }
        let mut config = HostConfig::parse("soak.toml".as_ref(), &text).expect("configuration");
        let extra = config.nics.pop().expect("there are some");
        let host = Mutex::new(Host::start(&config).expect("host starts"));
        Self { host, extra, dir }
    }
}

impl Bed for Plugged {
    fn socket(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("n{n}"))
    }
    fn dropped(&self, n: usize) -> u64 {
        let host = self.host.lock().expect("nobody panicked");
        let sections = host.counters();
        let name = format!("lan/n{n}");
        let port = sections
            .iter()
            .find(|s| s.kind == "switch-port" && s.name == name);
        port.expect("a port of that name").get(NO_ROOM)
    }
    fn size(&self) -> (u64, usize) {
        size_of(std::process::id())
    }
    fn replug(&self, round: u64) {
        let mut host = self.host.lock().expect("nobody panicked");
        host.remove_nic(&self.extra.name);
        if round.is_multiple_of(2) {
            host.add_nic(&self.extra).expect("a NIC is plugged in");
        }
    }
}

fn visit(path: &Path, choices: &mut Choices) -> Result<(), BusError> {
    let mut bus = SocketBus::connect(path)?;
    let mut mapped = Vec::new();
    for _ in 0..choices.below(40) {
        if choices.one_in(3) && !mapped.is_empty() {
            let at = choices.below(mapped.len() as u64) as usize;
            bus.free(mapped.swap_remove(at))?;
        } else {
            mapped.push(bus.alloc(0x1000 << choices.below(6))?);
        }
        let (register, value) = (choices.below(0x6000), choices.below(1 << 32));
        bus.write32(register as u32 & !3, value as u32)?;
    }
    if choices.one_in(2) {
        bus.bus_reset()?;
    }
    Ok(())
}

/// A VMM that comes, maps memory, touches registers, and is gone without a word, again and again; `each` before it comes.
fn visits(path: &Path, mut choices: Choices, over: &AtomicBool, each: impl Fn(u64)) {
    let mut round = 0;
    while !over.load(Ordering::Acquire) {
        round += 1;
        each(round);
        // Refused, or shown the door: the server has not ended yet what the last ones left behind.
        // That is its right; what counts is that the others notice nothing.
        if visit(path, &mut choices).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The same while a NIC is plugged and unplugged.
fn stranger(bed: &dyn Bed, choices: Choices, over: &AtomicBool) {
    let path = bed.socket(STRANGER);
    visits(&path, choices, over, |round| bed.replug(round));
    // Unplugged at the end, as it was at the beginning.
    bed.replug(1);
}

/// Holds what was sent against what came.
fn judge(report: &Report, dropped: u64, segmented: bool, what: &str) {
    let verdict = report.verdict().expect("somebody received");
    assert!(
        verdict.in_order(),
        "{what}: {verdict:?}\n{}",
        report.human()
    );
    let (sent, got) = (report.total(|s| s.tx_frames), report.total(|s| s.rx_frames));

    if segmented {
        assert_eq!(
            verdict.seen.lost == 0,
            dropped == 0,
            "{what}: {verdict:?}, {dropped} dropped"
        );
    } else {
        assert_eq!(sent, got - verdict.foreign + verdict.seen.lost, "{what}");
        assert_eq!(
            verdict.seen.lost, dropped,
            "{what}: what is lost is counted"
        );
    }
}

/// One round: NICs in pairs, all at once, with strangers.
fn cycle(bed: &dyn Bed, choices: &mut Choices, number: u32) -> u64 {
    let mut nics: Vec<usize> = (0..NICS).collect();
    for i in (1..NICS).rev() {
        nics.swap(i, choices.below(i as u64 + 1) as usize);
    }
    let over = AtomicBool::new(false);
    let plans: Vec<_> = nics
        .chunks_exact(2)
        .take(1 + choices.below(3) as usize)
        .map(|pair| {
            let (from, to) = (bed.socket(pair[0]), bed.socket(pair[1]));
            (
                pair[1],
                plan(choices, &from, &to, (8 * number as usize + pair[1]) as u16),
            )
        })
        .collect();
    let strange = Choices(choices.below(u64::MAX));
    std::thread::scope(|scope| {
        let over = &over;
        let visitor = scope.spawn(move || stranger(bed, strange, over));
        let working: Vec<_> = plans
            .into_iter()
            .map(|(to, plan)| {
                scope.spawn(move || {
                    let before = bed.dropped(to);
                    let what = format!("cycle {number}, {plan:?}");
                    let report = run(&plan, &AtomicBool::new(false), |_, _| {})
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                    judge(
                        &report,
                        bed.dropped(to) - before,
                        plan.flows.tso.is_some(),
                        &what,
                    );
                    report.total(|s| s.tx_frames)
                })
            })
            .collect();
        let results: Vec<_> = working.into_iter().map(|w| w.join()).collect();
        over.store(true, Ordering::Release);
        visitor
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e));
        results
            .into_iter()
            .map(|r| r.unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .sum()
    })
}

/// Waits until as few descriptors are open as `fds`: servers see a moment later that a VMM has gone.
fn settled(bed: &dyn Bed, fds: Option<usize>) -> (u64, usize) {
    let until = Instant::now() + Duration::from_secs(20);
    let mut size = bed.size();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let next = bed.size();
        let steady = fds.map_or(next.1 == size.1, |fds| next.1 <= fds);
        size = next;
        if steady || Instant::now() > until {
            return size;
        }
    }
}

fn soak(bed: &dyn Bed, choices: &mut Choices, length: Duration, name: &str) {
    let begun = Instant::now();
    let (mut number, mut frames, mut shown) = (0, 0, Instant::now());
    let mut first = None;
    while begun.elapsed() < length || number <= WARM_UP {
        frames += cycle(bed, choices, number);
        number += 1;
        if number == WARM_UP {
            first = Some(settled(bed, None));
        }
        if shown.elapsed() > Duration::from_secs(10) {
            shown = Instant::now();
            let (kib, fds) = bed.size();
            println!(
                "soak {name}: {:?}, {number} cycles, {frames} frames, {kib} KiB, {fds} descriptors",
                begun.elapsed()
            );
        }
    }
    let (kib_then, fds_then) = first.expect("it went on for longer than the warm-up");
    let (kib, fds) = settled(bed, Some(fds_then));
    println!(
        "soak {name}: {number} cycles, {frames} frames in {:?}; {kib_then} -> {kib} KiB, {fds_then} \
         -> {fds} descriptors",
        begun.elapsed()
    );
    assert_eq!(fds, fds_then, "descriptors are closed");
    assert!(
        kib <= kib_then + SLACK_KIB,
        "memory: {kib_then} -> {kib} KiB"
    );
}

/// One at a time: they count what this process has open.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn against_a_daemon(length: Duration) {
    let _alone = alone();
    let seed = seed();
    println!("soak: HYPERNIC_SOAK_SEED={seed}");
    let mut choices = Choices(seed);
    let with_workers = Process::has_workers();
    // A daemon lives for a part of the time; the next has another number of workers.
    let lives = if length > Duration::from_secs(60) {
        5
    } else {
        1
    };
    for life in 0..lives {
        let workers = with_workers.then(|| 1 + choices.below(4));
        let mut bed = Process::new(workers);
        let name = format!("daemon {life}, workers {workers:?}");
        soak(&bed, &mut choices, length / lives, &name);
        assert!(bed.daemon.stop().unwrap().success());
    }
}

#[test]
fn a_daemon_loses_doubles_and_keeps_nothing() {
    against_a_daemon(length(10));
}

#[test]
#[ignore = "ten minutes; make test-long"]
fn long_a_daemon_loses_doubles_and_keeps_nothing() {
    against_a_daemon(length(600));
}

fn with_hotplug(length: Duration) {
    let _alone = alone();
    let seed = seed();
    println!("soak: HYPERNIC_SOAK_SEED={seed}");
    soak(&Plugged::new(), &mut Choices(seed), length, "hotplug");
}

#[test]
fn nics_come_and_go_beside_others_traffic() {
    with_hotplug(length(10));
}

#[test]
#[ignore = "ten minutes; make test-long"]
fn long_nics_come_and_go_beside_others_traffic() {
    with_hotplug(length(600));
}
