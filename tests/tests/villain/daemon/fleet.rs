//! A daemon with a villain, honest NICs and one that sends to the villain.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drivers::e1000::{Config, Driver, TxOpts, regs};
use drivers::igbvf::Vf;
use drivers::{Bus, SocketBus};
use hypernic_tests::{Counters, Daemon, Holdings, scratch};
use tempfile::TempDir;
use villain::{
    FrontDeed, FrontEnd, GuestDeed, Moves, VfDeed, Villain, Vmm, VmmDeed, front, functions, net,
    rtl,
};

use super::chip;
use super::honest::{self, Honest, Service};
use super::watched::Watched;

/// In how much time every register read is answered, the next good request above all.
const ANSWER: Duration = Duration::from_millis(100);

/// The longest that honest traffic may stand still.
const SILENCE: Duration = Duration::from_secs(1);

/// How much slower honest traffic may be while a villain is at work than right after it: its 99th percentile of latency,
/// and its rate. The villain's own threads take processors from all, so it is not 1; what others' time and memory can be
/// had for is seen in factors of hundreds.
const SLOWER: f64 = 50.0;

/// Copies of frames that the longest turn of a worker may have made: its sender's budget (256), what a switch makes of
/// floods at once (1024), and the last frame, which may be cut into 256 segments for each of some ten receivers.
const COPIES: u64 = 4096;

/// Frames that honest traffic is measured by in peace.
const PEACE: u64 = 500;

/// KiB of heap that a run may leave behind: what an allocator keeps, not what leaks.
const SLACK: u64 = 512;

/// KiB of heap that all runs together may leave behind.
const ALL_SLACK: u64 = 8192;

/// Runs after which what could be a busy machine (or a cold allocator) is taken for the daemon's
/// fault.
const ATTEMPTS: u32 = 4;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A tester that nothing came to for so long has read everything.
const QUIET: Duration = Duration::from_millis(20);

/// What a villain has shown.
pub enum Flaw {
    /// The daemon's fault.
    Sure(String),
    /// Perhaps the machine's.
    Maybe(String),
}

/// What a villain does to its NIC.
pub enum Deed {
    /// As a guest.
    Guest(GuestDeed),
    /// As a VMM.
    Vmm(VmmDeed),
    /// As the guest of an 82576's port.
    Pf(GuestDeed),
    /// As the guest of a virtual function.
    Vf(VfDeed),
    /// As the guest of a virtio-net.
    Net(GuestDeed),
    /// As the guest of an RTL8168C.
    Rtl(GuestDeed),
    /// As a VMM at a vhost-user socket.
    Front(FrontDeed),
}

type Nic = Driver<SocketBus>;

/// Where a villain sits, and the names under which its misdeeds are counted.
struct VillainNic {
    socket: PathBuf,
    counted: Vec<(&'static str, String)>,
}

pub struct Fleet {
    honest: Vec<Honest>,
    tester: Arc<Mutex<Nic>>,
    /// The tester's own VF, where there is a chip.
    inside: Option<Arc<Mutex<Vf<SocketBus>>>>,
    daemon: Daemon,
    dir: TempDir,
    /// KiB of heap before the first run.
    began: Option<u64>,
}

fn locked(tester: &Mutex<Nic>) -> MutexGuard<'_, Nic> {
    tester.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes what has come and gives the buffers back.
fn drain(nic: &mut Nic, mut each: impl FnMut(&[u8])) -> Result<(), String> {
    let failed = |e: drivers::e1000::DriverError| format!("the tester failed: {e}");
    nic.poll_rx(1024, |one| each(&one.to_vec()))
        .map_err(failed)?;
    nic.refill_rx().map_err(failed)
}

/// Connects; a server may need a moment to see that its last client has gone.
fn connect(path: &std::path::Path) -> SocketBus {
    let until = Instant::now() + PATIENCE;
    loop {
        match SocketBus::connect(path) {
            Ok(bus) => return bus,
            Err(error) => assert!(Instant::now() < until, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends one frame from the tester's VF, and takes what has come there. Done when it has been
/// delivered, or refused.
fn send_inside(inside: &Mutex<Vf<SocketBus>>, frame: &[u8]) {
    let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
    let mut mine = frame.to_vec();
    mine[6..12].copy_from_slice(&inside.mac());
    let _ = inside.receive();
    // Longer ones than its buffers are for the other tester.
    if frame.len() > 2048 || inside.send(&[&mine]).is_err() {
        return;
    }
    let until = Instant::now() + PATIENCE;
    while inside.pending().is_ok_and(|n| n > 0) && Instant::now() < until {
        std::thread::yield_now();
    }
}

impl Fleet {
    pub fn open() -> Self {
        Self::with(false)
    }

    /// With an 82576 and its VFs.
    pub fn with_chip() -> Self {
        Self::with(true)
    }

    fn with(chip: bool) -> Self {
        let dir = scratch().expect("a folder");
        let socket = |name: &str| dir.path().join(format!("{name}.sock"));
        let mut toml = String::from("[[switch]]\nname = \"lan\"\n");
        for (n, name) in ["a", "b", "bad", "tester"].iter().enumerate() {
            let socket = socket(name);
            let lock = ["a", "b"].contains(name);
            toml += &format!(
                "[[nic]]\nname = \"{name}\"\nmodel = \"e1000\"\nsocket-path = {socket:?}\n\
                 mac = \"52:54:00:00:77:{n:02x}\"\nport = \"switch:lan\"\nmac-lock = {lock}\ncsb = true\n"
            );
        }
        for (name, more) in [("net", ""), ("door", "transport = \"vhost-user\"\n")] {
            let socket = socket(name);
            toml += &format!(
                "[[nic]]\nname = \"{name}\"\nmodel = \"virtio-net\"\nsocket-path = {socket:?}\n\
                 port = \"switch:lan\"\n{more}"
            );
        }
        let rtl = socket("rtl");
        toml += &format!(
            "[[nic]]\nname = \"rtl\"\nmodel = \"r8168\"\nsocket-path = {rtl:?}\nport = \"switch:lan\"\n\
             csb = true\n"
        );
        if chip {
            toml += &chip::config(dir.path());
        }
        let daemon = Daemon::serve(&dir.path().join("fleet.toml"), &toml).expect("it serves");
        let config = Config {
            tx_buffer: 16384,
            tx_ring: 64,
            report_every: 1,
            ..Config::poll()
        };
        let tester = Driver::new(connect(&socket("tester")), config).expect("driver comes up");
        let e1000 = |name: &str| honest::Nic::e1000(connect(&socket(name)));
        let vf = |n| connect(&chip::socket(dir.path(), n));
        let honest = match chip {
            false => vec![Honest::start([e1000("a"), e1000("b")])],
            true => vec![
                Honest::start([0, 1].map(|n| honest::Nic::vf(vf(n)))),
                Honest::start([honest::Nic::vf(vf(2)), e1000("a")]),
            ],
        };
        let inside = chip.then(|| {
            let inside = Vf::with_ring(vf(chip::TESTER), 1024).expect("the tester's VF comes up");
            Arc::new(Mutex::new(inside))
        });
        let fleet = Self {
            honest,
            tester: Arc::new(Mutex::new(tester)),
            inside,
            daemon,
            dir,
            began: None,
        };
        fleet.goes_on(1000).expect("honest traffic");
        fleet
    }

    /// Where a deed is done, in its `run`.
    fn nic_of_villain(&self, villain: &Villain, deed: &Deed, run: u32) -> VillainNic {
        let own = |name: &str, port: &str| VillainNic {
            socket: self.dir.path().join(format!("{name}.sock")),
            counted: vec![
                ("nic", name.into()),
                ("switch-port", format!("{port}/{name}")),
            ],
        };
        match deed {
            Deed::Guest(_) | Deed::Vmm(_) => own("bad", "lan"),
            Deed::Pf(_) => own("pf", "lan"),
            Deed::Net(_) => own("net", "lan"),
            Deed::Rtl(_) => own("rtl", "lan"),
            Deed::Front(_) => own("door", "lan"),
            Deed::Vf(_) => {
                let vf = chip::vf_of(villain, run);
                let name = format!("p0vf{vf}");
                VillainNic {
                    socket: chip::socket(self.dir.path(), vf),
                    counted: vec![
                        ("nic", name.clone()),
                        ("switch-port", format!("p0/{name}")),
                        ("vf", name),
                    ],
                }
            }
        }
    }

    /// Waits until each honest pair has exchanged so many more frames.
    fn goes_on(&self, frames: u64) -> Result<(), String> {
        self.honest.iter().try_for_each(|pair| pair.goes_on(frames))
    }

    /// The longest time that any pair was without a frame since the last call.
    fn longest_silence(&self) -> Duration {
        let silences = self.honest.iter().map(Honest::longest_silence);
        silences.max().unwrap_or_default()
    }

    /// How each pair did since the last call, which was `time` ago.
    fn service(&self, time: Duration) -> Vec<Option<Service>> {
        let pairs = self.honest.iter();
        pairs.map(|pair| pair.service(time)).collect()
    }

    /// Has a villain do its deed, and looks at everything that must hold.
    pub fn suffer(&mut self, villain: &Villain, deed: &Deed) -> Result<(), String> {
        let mut maybe = Vec::new();
        let runs = match deed {
            Deed::Vf(_) => chip::RUNS,
            _ => ATTEMPTS,
        };
        for run in 0..runs {
            match self.once(villain, deed, run) {
                Ok(()) => return Ok(()),
                Err(Flaw::Maybe(why)) => maybe.push(why),
                Err(Flaw::Sure(why)) => return Err(format!("{}: {why}", villain.id)),
            }
        }
        Err(format!("{}, every time: {}", villain.id, maybe.join("; ")))
    }

    fn once(&mut self, villain: &Villain, deed: &Deed, run: u32) -> Result<(), Flaw> {
        let sure = |why: String| Flaw::Sure(why);
        let nic_of_villain = self.nic_of_villain(villain, deed, run);
        let before = self.counters();
        let held = Holdings::at_rest(self.daemon.server());
        self.longest_silence();
        self.service(Duration::ZERO);

        let start = Instant::now();
        let mut worst = Duration::ZERO;
        // What is left of the villain: its machine, if it has one.
        let left = match deed {
            Deed::Guest(run)
            | Deed::Pf(run)
            | Deed::Net(run)
            | Deed::Rtl(run)
            | Deed::Vf(VfDeed { run, .. }) => {
                let mut bus = Watched::new(connect(&nic_of_villain.socket));
                self.face(&mut bus.bus, matches!(deed, Deed::Vf(_)));
                run(&mut bus).map_err(|e| sure(format!("its bus failed: {e}")))?;
                worst = bus.worst;
                Some(bus.bus)
            }
            Deed::Front(run) => {
                let mut front = FrontEnd::new(&nic_of_villain.socket);
                run(&mut front).map_err(|e| sure(format!("its front end failed: {e}")))?;
                None
            }
            Deed::Vmm(run) => {
                let mut vmm = Vmm::new(&nic_of_villain.socket);
                run(&mut vmm).map_err(|e| sure(format!("its VMM failed: {e}")))?;
                drop(vmm);
                Some(connect(&nic_of_villain.socket))
            }
        };
        let took = start.elapsed();
        // Whatever the villain has flooded, the tester must have room for what comes now.
        self.clear().map_err(sure)?;
        let answered = match left {
            Some(bus) => worst.max(self.good_request(deed, bus)?),
            None => {
                let good = front::next_good_request(&nic_of_villain.socket);
                let failed = |e| sure(format!("the next good request failed: {e}"));
                let (good, answered) = good.map_err(failed)?;
                self.see(&good).map_err(sure)?;
                answered
            }
        };
        let silence = self.longest_silence();
        let during = self.service(start.elapsed());
        let peace = Instant::now();
        self.goes_on(PEACE).map_err(sure)?;
        let slower = slower(&during, &self.service(peace.elapsed()));
        if !self.daemon.is_alive() {
            return Err(sure("the daemon is dead".into()));
        }
        if self.daemon.log().contains("panicked") {
            return Err(sure("a thread of the daemon panicked".into()));
        }
        let after = held.wait_back(self.daemon.server()).map_err(|now| {
            sure(format!(
                "the daemon held {held:?} before and {now:?} for long after"
            ))
        })?;
        let counters = self.counters();
        let moved = counters.since(&before);
        counted(villain, deed, &nic_of_villain, &moved).map_err(sure)?;
        let copies = counters.highest("worker", "most_copies_in_a_turn");
        println!(
            "{}: {took:?}, answer {answered:?}, silence {silence:?}, heap {} -> {}, honest {slower:.1?}, copies {copies}",
            villain.id, held.heap, after.heap,
        );
        if copies > COPIES {
            return Err(sure(format!("a turn of a worker made {copies} copies")));
        }
        if slower.iter().any(|times| *times > SLOWER) {
            return Err(Flaw::Maybe(format!(
                "honest traffic was {slower:.1?} times slower (latency, rate)"
            )));
        }
        if answered > ANSWER {
            return Err(Flaw::Maybe(format!("an answer took {answered:?}")));
        }
        if silence > SILENCE {
            return Err(Flaw::Maybe(format!(
                "honest traffic stood still for {silence:?}"
            )));
        }
        if after.heap > held.heap + SLACK {
            // As before the run: all counters have just been told. What an allocator keeps of that comes and goes.
            let heap = Holdings::at_rest(self.daemon.server()).heap;
            if heap > held.heap + SLACK {
                let grown = heap - held.heap;
                return Err(Flaw::Maybe(format!("the heap grew by {grown} KiB")));
            }
        }
        let began = *self.began.get_or_insert(held.heap);
        if after.heap > began + ALL_SLACK {
            let grown = after.heap - began;
            return Err(sure(format!(
                "the heap grew by {grown} KiB since the first villain"
            )));
        }
        Ok(())
    }

    /// Has a machine's device answer, come up and send. Returns how long the answer took.
    fn good_request(&self, deed: &Deed, mut bus: SocketBus) -> Result<Duration, Flaw> {
        let sure = |why: String| Flaw::Sure(why);
        let asked = Instant::now();
        // At the same offset in all of Intel's.
        let there = match deed {
            Deed::Net(_) => net::is_there(&mut bus),
            Deed::Rtl(_) => rtl::is_there(&mut bus),
            _ => bus.read32(regs::STATUS).map(|status| status != u32::MAX),
        };
        let answered = asked.elapsed();
        if !there.map_err(|e| sure(format!("the next read failed: {e}")))? {
            return Err(sure("STATUS reads all ones".into()));
        }
        let failed = |e: &dyn std::fmt::Display| sure(format!("the next good request failed: {e}"));
        let good = match deed {
            Deed::Vf(VfDeed {
                shut_down: true, ..
            }) => {
                // What the switch has refused, its PF holds against it when it is asked.
                self.counters();
                let down = functions::stays_down(&mut bus).map_err(|e| failed(&e))?;
                if !down {
                    return Err(sure("it is not shut down".into()));
                }
                return Ok(answered);
            }
            Deed::Pf(_) | Deed::Vf(_) => {
                functions::next_good_request(&mut bus).map_err(|e| failed(&e))?
            }
            Deed::Net(_) => net::next_good_request(&mut bus).map_err(|e| failed(&e))?,
            Deed::Rtl(_) => rtl::next_good_request(&mut bus).map_err(|e| failed(&e))?,
            _ => villain::next_good_request(&mut bus).map_err(|e| failed(&e))?,
        };
        self.see(&good).map_err(sure)?;
        Ok(answered)
    }

    /// Has connections, states and memory end in the middle of work, `rounds` times, while the
    /// tester sends to the villain.
    pub fn soak(&mut self, rounds: u32) -> Result<(), String> {
        let held = Holdings::at_rest(self.daemon.server());
        let over = AtomicBool::new(false);
        let tester = Arc::clone(&self.tester);
        let socket = self.dir.path().join("bad.sock");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut frame = vec![0xff; 1000];
                frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x77]);
                while !over.load(Ordering::Relaxed) {
                    {
                        let mut tester = locked(&tester);
                        let _ = drain(&mut tester, |_| {});
                        let _ = tester.send(&[frame.as_slice(); 16], &TxOpts::default());
                    }
                    std::thread::sleep(Duration::from_micros(500));
                }
            });
            let work = || {
                for round in 0..rounds {
                    let mut vmm = Vmm::new(&socket);
                    villain::ends_in_the_middle(&mut vmm, round)
                        .map_err(|e| format!("round {round}: {e}"))?;
                    if round % 100 == 0 {
                        self.goes_on(100)?;
                    }
                }
                Ok(())
            };
            let result: Result<(), String> = work();
            over.store(true, Ordering::Relaxed);
            result
        })?;
        let mut bus = connect(&self.dir.path().join("bad.sock"));
        villain::next_good_request(&mut bus).map_err(|e| e.to_string())?;
        drop(bus);
        self.goes_on(1000)?;
        let after = held
            .wait_back(self.daemon.server())
            .map_err(|now| format!("the daemon held {held:?} before and {now:?} long after"))?;
        if after.heap > held.heap + 2 * SLACK {
            return Err(format!(
                "the heap grew from {} to {}",
                held.heap, after.heap
            ));
        }
        if self.daemon.log().contains("panicked") {
            return Err("a thread of the daemon panicked".into());
        }
        Ok(())
    }

    /// Gives a villain's cable a far end: the tester, and for a VF its neighbour too.
    fn face(&self, bus: &mut SocketBus, is_vf: bool) {
        let tester = Arc::clone(&self.tester);
        let inside = self.inside.clone().filter(|_| is_vf);
        bus.set_far_end(Box::new(move |frame| {
            if let Some(inside) = &inside {
                send_inside(inside, frame);
            }
            let mut tester = locked(&tester);
            let _ = drain(&mut tester, |_| {});
            let sent = tester.send(&[frame], &TxOpts::default());
            // Once reported, it has been delivered, or refused.
            let until = Instant::now() + PATIENCE;
            while tester.reclaim().is_ok() && tester.tx_pending() > 0 && Instant::now() < until {
                std::thread::yield_now();
            }
            sent.is_ok_and(|n| n == 1)
        }));
    }

    /// Reads what the villain has sent to the tester, until nothing more comes: a NIC that is full of it would lose the good
    /// frame as any other.
    fn clear(&self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let mut last = Instant::now();
        let mut tester = locked(&self.tester);
        while last.elapsed() < QUIET && Instant::now() < until {
            drain(&mut tester, |_| last = Instant::now())?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits until the villain's good frame comes to the tester.
    fn see(&self, good: &[u8]) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let mut tester = locked(&self.tester);
        let mut seen = false;
        while !seen {
            if Instant::now() > until {
                return Err("its good frame did not come to the other end".into());
            }
            // With the tag that an operator gave it, if one did.
            let is_good = |bytes: &[u8]| {
                let tagged = bytes.len() > 16 && bytes[12..14] == [0x81, 0];
                bytes == good || tagged && [&bytes[..12], &bytes[16..]].concat() == good
            };
            drain(&mut tester, |bytes| seen |= is_good(bytes))?;
            std::thread::yield_now();
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.daemon.counters().expect("counters")
    }
}

/// How many times worse the worst pair did than in peace: latency, and rate.
fn slower(during: &[Option<Service>], peace: &[Option<Service>]) -> [f64; 2] {
    let mut worst = [0.0f64; 2];
    for pair in during.iter().zip(peace) {
        if let (Some(during), Some(peace)) = pair {
            let times = [during.p99 / peace.p99.max(1.0), peace.rate / during.rate];
            worst = [worst[0].max(times[0]), worst[1].max(times[1])];
        }
    }
    worst
}

/// Whether the villain's own counters say what it did.
fn counted(
    villain: &Villain,
    deed: &Deed,
    nic: &VillainNic,
    moved: &Counters,
) -> Result<(), String> {
    // Of hundreds of VFs, its own.
    let own = |line: &&str| {
        let mut places = nic.counted.iter();
        places.any(|(kind, of)| line.starts_with(&format!("{kind} {of}:")))
    };
    let shown = moved.to_string();
    let shown = shown.lines().filter(own).collect::<Vec<_>>().join("\n");
    let find = |name: &str| {
        let mut places = nic.counted.iter();
        places.find_map(|(kind, of)| moved.find(kind, of, name))
    };
    if matches!(deed, Deed::Vf(deed) if deed.shut_down) != (find("vf_shut_down") == Some(1)) {
        return Err(format!(
            "shut down and not counted, or the reverse:\n{shown}"
        ));
    }
    if let Moves::Counters(names) = villain.moves {
        for name in names {
            match find(name) {
                None => return Err(format!("no counter {name} in:\n{shown}")),
                Some(0) => return Err(format!("{name} did not move:\n{shown}")),
                Some(_) => {}
            }
        }
    }
    Ok(())
}
