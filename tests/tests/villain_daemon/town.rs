//! A daemon with a villain, two honest NICs and one that sends to the villain.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drivers::e1000::{Config, Driver, TxOpts, regs};
use drivers::{Bus, SocketBus};
use hypernic_tests::{Counters, Daemon, scratch};
use tempfile::TempDir;
use villain::{GuestDeed, Moves, Villain, Vmm, VmmDeed};

use crate::holdings::Holdings;
use crate::honest::Honest;
use crate::watched::Watched;

/// In how much time every register read is answered, the next good request above all.
const ANSWER: Duration = Duration::from_millis(100);

/// The longest that honest traffic may stand still.
const SILENCE: Duration = Duration::from_secs(1);

/// KiB of heap that a run may leave behind: what an allocator keeps, not what leaks.
const SLACK: u64 = 512;

/// Runs after which what could be a busy machine (or a cold allocator) is taken for the daemon's
/// fault.
const ATTEMPTS: u32 = 4;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

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
}

type Nic = Driver<SocketBus>;

pub struct Town {
    honest: Honest,
    tester: Arc<Mutex<Nic>>,
    daemon: Daemon,
    dir: TempDir,
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

impl Town {
    pub fn open() -> Self {
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
        let daemon = Daemon::serve(&dir.path().join("town.toml"), &toml).expect("it serves");
        let config = Config {
            tx_buffer: 16384,
            tx_ring: 64,
            report_every: 1,
            ..Config::poll()
        };
        let tester = Driver::new(connect(&socket("tester")), config).expect("driver comes up");
        let town = Self {
            honest: Honest::start(&socket("a"), &socket("b")),
            tester: Arc::new(Mutex::new(tester)),
            daemon,
            dir,
        };
        town.honest.goes_on(1000).expect("honest traffic");
        town
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("bad.sock")
    }

    /// Has a villain do its deed, and looks at everything that must hold.
    pub fn suffer(&mut self, villain: &Villain, deed: &Deed) -> Result<(), String> {
        let mut maybe = Vec::new();
        for _ in 0..ATTEMPTS {
            match self.once(villain, deed) {
                Ok(()) => return Ok(()),
                Err(Flaw::Maybe(why)) => maybe.push(why),
                Err(Flaw::Sure(why)) => return Err(format!("{}: {why}", villain.id)),
            }
        }
        Err(format!("{}, every time: {}", villain.id, maybe.join("; ")))
    }

    fn once(&mut self, villain: &Villain, deed: &Deed) -> Result<(), Flaw> {
        let sure = |why: String| Flaw::Sure(why);
        let before = self.counters();
        let held = Holdings::of(self.daemon.id());
        self.honest.longest_silence();

        let start = Instant::now();
        let mut worst = Duration::ZERO;
        let mut bus = match deed {
            Deed::Guest(run) => {
                let mut bus = Watched::new(connect(&self.socket()));
                self.face(&mut bus.bus);
                run(&mut bus).map_err(|e| sure(format!("its bus failed: {e}")))?;
                worst = bus.worst;
                bus.bus
            }
            Deed::Vmm(run) => {
                let mut vmm = Vmm::new(&self.socket());
                run(&mut vmm).map_err(|e| sure(format!("its VMM failed: {e}")))?;
                drop(vmm);
                connect(&self.socket())
            }
        };
        let took = start.elapsed();
        let asked = Instant::now();
        let status = bus.read32(regs::STATUS);
        let answered = asked.elapsed().max(worst);
        let status = status.map_err(|e| sure(format!("the next read failed: {e}")))?;
        if status == u32::MAX {
            return Err(sure("STATUS reads all ones".into()));
        }
        // Whatever the villain has flooded, the tester must have room for what comes now.
        drain(&mut locked(&self.tester), |_| {}).map_err(sure)?;
        let good = villain::next_good_request(&mut bus)
            .map_err(|e| sure(format!("the next good request failed: {e}")))?;
        self.see(&good).map_err(sure)?;
        drop(bus);

        let silence = self.honest.longest_silence();
        self.honest.goes_on(100).map_err(sure)?;
        if !self.daemon.is_alive() {
            return Err(sure("the daemon is dead".into()));
        }
        if self.daemon.log().contains("panicked") {
            return Err(sure("a thread of the daemon panicked".into()));
        }
        let after = held.wait_back(self.daemon.id()).map_err(|now| {
            sure(format!(
                "the daemon held {held:?} before and {now:?} for long after"
            ))
        })?;
        let counters = self.counters();
        let moved = counters.since(&before);
        if let Moves::Counters(names) = villain.moves {
            for name in names {
                let value = ["nic", "switch-port"]
                    .into_iter()
                    .zip(["bad", "lan/bad"])
                    .find_map(|(kind, of)| moved.find(kind, of, name));
                match value {
                    None => return Err(sure(format!("no counter {name} in:\n{moved}"))),
                    Some(0) => return Err(sure(format!("{name} did not move:\n{moved}"))),
                    Some(_) => {}
                }
            }
        }
        println!(
            "{}: {took:?}, answer {answered:?}, silence {silence:?}, heap {} -> {}",
            villain.id, held.heap, after.heap
        );
        if answered > ANSWER {
            return Err(Flaw::Maybe(format!("an answer took {answered:?}")));
        }
        if silence > SILENCE {
            return Err(Flaw::Maybe(format!(
                "honest traffic stood still for {silence:?}"
            )));
        }
        if after.heap > held.heap + SLACK {
            let grown = after.heap - held.heap;
            return Err(Flaw::Maybe(format!("the heap grew by {grown} KiB")));
        }
        Ok(())
    }

    /// Has connections, states and memory end in the middle of work, `rounds` times, while the
    /// tester sends to the villain.
    pub fn soak(&mut self, rounds: u32) -> Result<(), String> {
        let held = Holdings::of(self.daemon.id());
        let over = AtomicBool::new(false);
        let tester = Arc::clone(&self.tester);
        let socket = self.socket();
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
                        self.honest.goes_on(100)?;
                    }
                }
                Ok(())
            };
            let result: Result<(), String> = work();
            over.store(true, Ordering::Relaxed);
            result
        })?;
        let mut bus = connect(&self.socket());
        villain::next_good_request(&mut bus).map_err(|e| e.to_string())?;
        drop(bus);
        self.honest.goes_on(1000)?;
        let after = held
            .wait_back(self.daemon.id())
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

    /// Gives a villain's cable a far end: the tester.
    fn face(&self, bus: &mut SocketBus) {
        let tester = Arc::clone(&self.tester);
        bus.set_far_end(Box::new(move |frame| {
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

    /// Waits until the villain's good frame comes to the tester.
    fn see(&self, good: &[u8]) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let mut tester = locked(&self.tester);
        let mut seen = false;
        while !seen {
            if Instant::now() > until {
                return Err("its good frame did not come to the other end".into());
            }
            drain(&mut tester, |bytes| seen |= bytes == good)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.daemon.counters().expect("counters")
    }
}
