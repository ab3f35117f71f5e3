//! From a plan to a report: connect, start threads, watch, end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use drivers::e1000::Config;
use drivers::e1000::poll::{Poll, PollConfig, TxFrame};
use drivers::{BusError, SocketBus};

use super::check::{Checker, Depth};
use super::flows::{Flows, LONGEST, Maker, Sizes};
use super::pace::{Pacer, Rate};
use super::stamp;
use super::station::{Echo, Outcome, Progress, Role, Sending, Station, now};
use super::table::Report;
use crate::error::Error;

/// What the NICs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Function {
    /// Send.
    Tx,
    /// Receive and judge.
    Rx,
    /// Send one frame at a time, wait for its answer, and take the time.
    Ping,
    /// Send back what comes, the addresses exchanged.
    Pong,
    /// Send and receive: each NIC to the next of those named, the last to the first.
    Txrx,
}

/// Everything there is to say about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the NICs at `sockets` do.
    pub function: Function,
    /// Their sockets.
    pub sockets: Vec<PathBuf>,
    /// Further NICs that only receive, in this process, so that sent and received are held against
    /// each other. Sender `i` sends to receiver `i`, beginning anew when there are fewer.
    pub receivers: Vec<PathBuf>,
    /// Lengths of frames.
    pub sizes: Sizes,
    /// Flows.
    pub flows: Flows,
    /// Frames per burst, and most received in a turn.
    pub burst: u32,
    /// How fast each NIC sends.
    pub rate: Rate,
    /// Frames each NIC sends (or, of `rx` and `pong`, takes in all); 0: without end.
    pub count: u64,
    /// How long, when not until `count`.
    pub duration: Option<Duration>,
    /// Threads; the NICs are dealt out to them.
    pub threads: usize,
    /// Descriptors of each ring: transmit and receive.
    pub rings: (u32, u32),
    /// What the receiver looks at.
    pub check: Depth,
    /// Which run frames belong to.
    pub run: u16,
    /// The longest frame to be received.
    pub longest_received: u32,
    /// Sleep on interrupts instead of looking again and again.
    pub interrupts: bool,
    /// Take transmit descriptors back by TDH instead of by their status.
    pub reclaim_by_head: bool,
    /// Use a Communication Status Block.
    pub csb: bool,
    /// Map fresh memory and unmap older all the time, as firmware does with a guest's RAM.
    pub remap: bool,
    /// Random choices come from here.
    pub seed: u64,
    /// How long receivers go on after everything was sent and nothing comes any more.
    pub settle: Duration,
}

impl Plan {
    /// A plan for NICs at these sockets: 60 bytes, bursts of 256, one flow, until stopped.
    pub fn new(function: Function, sockets: Vec<PathBuf>) -> Self {
        Self {
            function,
            sockets,
            receivers: Vec::new(),
            sizes: Sizes::List(vec![60]),
            flows: Flows::default(),
            burst: 256,
            rate: Rate::Unlimited,
            count: 0,
            duration: None,
            threads: 1,
            rings: (1024, 1024),
            check: Depth::Head,
            run: stamp::RUN,
            longest_received: 1518,
            interrupts: false,
            reclaim_by_head: false,
            csb: false,
            remap: false,
            seed: now(),
            settle: Duration::from_millis(200),
        }
    }

    /// # Errors
    /// What contradicts itself, with the way out.
    fn check(&self) -> Result<(), Error> {
        let usage = |text: String| Err(Error::Usage(text));
        let (first, last) = (self.sizes.shortest(), self.sizes.longest());
        if first < self.flows.shortest() {
            return usage(format!(
                "a frame of {first} bytes has no room for these headers and the stamp; give \
                 --size {} or more",
                self.flows.shortest()
            ));
        }
        if self.flows.tso.is_none() && last > LONGEST {
            return usage(format!(
                "the chip sends no frame of {last} bytes whole; give --size {LONGEST} or less, or \
                 --tso 1448"
            ));
        }
        if self.flows.count == 0 || self.flows.count > 1 << stamp::FLOW_BITS {
            return usage(format!(
                "there can be 1 to {} flows",
                1u32 << stamp::FLOW_BITS
            ));
        }
        if self.burst == 0 || self.threads == 0 {
            return usage("neither --burst nor --threads can be 0".into());
        }
        for (ring, name) in [(self.rings.0, "--tx-ring"), (self.rings.1, "--rx-ring")] {
            if !(80..=4096).contains(&ring) || ring % 8 != 0 {
                return usage(format!("{name} is 80 to 4096, by eights, not {ring}"));
            }
        }
        let all: Vec<&PathBuf> = self.sockets.iter().chain(&self.receivers).collect();
        for (i, path) in all.iter().enumerate() {
            if all[..i].contains(path) {
                return usage(format!(
                    "{} is given twice; a NIC has one driver",
                    path.display()
                ));
            }
        }
        if !self.receivers.is_empty() && self.function != Function::Tx {
            return usage("--rx-socket-path is for -f tx: the others receive anyhow".into());
        }
        if self.function == Function::Ping && self.flows.tso.is_some() {
            return usage("a question is one frame; leave --tso away".into());
        }
        let per_thread = all.len().div_ceil(self.threads);
        if self.interrupts && per_thread > 1 {
            return usage(format!(
                "a thread sleeps on the interrupts of one NIC; give --threads {}",
                all.len()
            ));
        }
        Ok(())
    }

    /// An answer is as long as its question.
    fn longest_sent(&self) -> u32 {
        match self.function {
            Function::Pong => self.sizes.longest().max(self.longest_received),
            _ => self.sizes.longest(),
        }
    }

    fn device(&self) -> PollConfig {
        let mut config = PollConfig::new()
            .rings(self.rings.0, self.rings.1)
            .frames(self.longest_sent(), self.longest_received);
        config.reclaim_by_head = self.reclaim_by_head;
        config.csb = self.csb;
        config.device = Config {
            // Frames to any address of any flow are for us.
            promiscuous: true,
            all_multicast: true,
            rx_sums: true,
            vlan: self.flows.vlan_offload,
            ..config.device
        };
        config
    }
}

/// Brings up the NIC at a socket.
///
/// # Errors
/// There is none, with the cure.
pub fn connect(path: &Path, config: &PollConfig) -> Result<Poll<SocketBus>, Error> {
    let failed = |why: String, cure: &str| Error::Peer {
        socket: path.to_owned(),
        message: format!("{why}; {cure}"),
    };
    let bus = SocketBus::connect(path).map_err(|error| match error {
        BusError::Gone(why) if why.contains("No such file") || why.contains("refused") => failed(
            "nobody serves it".into(),
            &format!(
                "start a NIC there first, as in `hypernic run --socket-path {} --port switch:lan`",
                path.display()
            ),
        ),
        BusError::Gone(why) if why.contains("in time") || why.contains("answer") => failed(
            why,
            "a NIC has one VMM at a time: end the one that is connected, or use another NIC",
        ),
        other => failed(
            other.to_string(),
            "is this the vfio-user socket of a NIC of hypernic?",
        ),
    })?;
    Poll::new(bus, config).map_err(|error| {
        failed(
            error.to_string(),
            "pkt-gen drives the e1000 models (--model e1000, 82545em, 82544gc)",
        )
    })
}

/// A frame that tells a learning switch where this NIC is: to a group that nobody listens to, with
/// the type that is for local use (IEEE 802, local experimental).
fn announce(nic: &mut Poll<SocketBus>) -> Result<(), drivers::e1000::DriverError> {
    let mac = nic.mac();
    nic.send(1, |_, buffer| {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&[0x03, 0, 0, 0, 0, 0x70]);
        frame[6..12].copy_from_slice(&mac);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        buffer.write(0, &frame);
        TxFrame::plain(60)
    })?;
    Ok(())
}

/// How far a run has come.
const RUNNING: u32 = 0;
const ENDING: u32 = 1;
const OVER: u32 = 2;

/// Turns without work before a thread gives way, and before it sleeps.
const SPINS: u32 = 32;
const YIELDS: u32 = 2000;

/// Carries a plan out. `stop` ends it early; `each_second` sees the senders' and receivers'
/// progress.
///
/// # Errors
/// A plan that contradicts itself; a socket where there is no NIC; a device that went away.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    mut each_second: impl FnMut(&[Arc<Progress>], Duration),
) -> Result<Report, Error> {
    plan.check()?;
    let mut stations = stations(plan)?;
    let progress: Vec<_> = stations.iter().map(|s| Arc::clone(&s.progress)).collect();
    let phase = AtomicU32::new(RUNNING);
    let threads = plan.threads.min(stations.len());
    let mut hands: Vec<Vec<Station>> = (0..threads).map(|_| Vec::new()).collect();
    for (i, station) in stations.drain(..).enumerate() {
        hands[i % threads].push(station);
    }
    let begun = now();
    let worked = std::thread::scope(|scope| {
        let workers: Vec<_> = hands
            .into_iter()
            .map(|stations| {
                let phase = &phase;
                scope.spawn(move || work(stations, plan, phase))
            })
            .collect();
        watch(
            plan,
            stop,
            &phase,
            &progress,
            begun,
            &mut each_second,
            || workers.iter().any(|w| w.is_finished()),
        );
        phase.store(OVER, Ordering::Release);
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .collect::<Result<Vec<_>, Error>>()
    })?;
    let stations = worked.into_iter().flatten().collect();
    Ok(conclude(plan, stations, now() - begun))
}

fn stations(plan: &Plan) -> Result<Vec<Station>, Error> {
    let config = plan.device();
    let mut nics = Vec::new();
    for path in plan.sockets.iter().chain(&plan.receivers) {
        nics.push((path.display().to_string(), connect(path, &config)?));
    }
    let gone = |error: drivers::e1000::DriverError| Error::Device(error.to_string());
    for (_, nic) in &mut nics {
        announce(nic).map_err(gone)?;
    }
    for (_, nic) in &mut nics {
        // The switch has learnt before the first frame goes, and the announcements are swallowed.
        while !nic.all_taken().map_err(gone)? {
            std::thread::yield_now();
        }
    }
    let macs: Vec<_> = nics.iter().map(|(_, nic)| nic.mac()).collect();
    // A receiver knows a sender that began anew from one that repeats itself by this.
    let base = (stamp::mix(plan.seed) as u32) & 0xfff;
    let senders = plan.sockets.len();
    let mut stations = Vec::new();
    for (i, (name, mut nic)) in nics.into_iter().enumerate() {
        nic.receive(u32::MAX, |_| {}).map_err(gone)?;
        let sends = i < senders && !matches!(plan.function, Function::Rx | Function::Pong);
        let receives = i >= senders || plan.function != Function::Tx;
        let peer = match (plan.function, plan.receivers.len()) {
            (Function::Tx, n @ 1..) => macs[senders + i % n],
            (Function::Txrx, _) => macs[(i + 1) % senders],
            _ => [0xff; 6],
        };
        let id = (plan.run, (base + i as u32) & 0xfff);
        let seed = plan.seed.wrapping_add(i as u64);
        let sending = sends.then(|| {
            let asking = plan.function == Function::Ping;
            let burst = if asking { 1 } else { plan.burst };
            let ends = (macs[i], peer);
            let maker = Maker::new(&plan.flows, &plan.sizes, id, plan.check, ends, seed);
            let pacer = Pacer::new(plan.rate, burst, plan.sizes.mean(), now());
            let left = if plan.count == 0 {
                u64::MAX
            } else {
                plan.count
            };
            Sending::new(maker, pacer, left, asking)
        });
        let answers = plan.function == Function::Pong;
        let role = Role {
            sending,
            checker: (receives && !answers).then(|| Checker::new(plan.run, plan.check)),
            echo: answers.then(|| Echo::new(plan.burst.min(64), plan.longest_sent())),
            burst: if answers {
                plan.burst.min(64)
            } else {
                plan.burst
            },
            sums: true,
            remap: plan.remap,
        };
        stations.push(Station::new(name, nic, role, Arc::default()));
    }
    Ok(stations)
}

/// The loop of a thread.
fn work(mut stations: Vec<Station>, plan: &Plan, phase: &AtomicU32) -> Result<Vec<Station>, Error> {
    let gone = |error: drivers::e1000::DriverError| Error::Device(error.to_string());
    if let Some(duration) = plan.duration {
        let until = now() + duration.as_nanos() as u64;
        for sending in stations.iter_mut().filter_map(|s| s.sending.as_mut()) {
            sending.until = until;
        }
    }
    let mut idle = 0u32;
    loop {
        let stage = phase.load(Ordering::Acquire);
        if stage == OVER {
            break;
        }
        let time = now();
        let mut moved = 0;
        for station in &mut stations {
            moved += station.turn(time, stage == ENDING).map_err(gone)?;
        }
        if moved > 0 {
            idle = 0;
            continue;
        }
        idle += 1;
        let wait = stations
            .iter()
            .filter_map(|s| s.sending.as_ref())
            .filter(|s| s.ended == 0 && s.asked.is_none())
            .map(|s| s.pacer.wait())
            .min();
        if idle < SPINS {
            std::hint::spin_loop();
        } else if plan.interrupts && wait.is_none_or(|ns| ns > 20_000) {
            let most = Duration::from_nanos(wait.unwrap_or(10_000_000).min(10_000_000));
            stations[0].nic.wait(most).map_err(gone)?;
        } else if idle < YIELDS || wait.is_some_and(|ns| ns < 100_000) {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    for station in &mut stations {
        station.nic.refill().map_err(gone)?;
    }
    Ok(stations)
}

/// The main thread: shows progress, and says when it is over.
fn watch(
    plan: &Plan,
    stop: &AtomicBool,
    phase: &AtomicU32,
    progress: &[Arc<Progress>],
    begun: u64,
    each_second: &mut impl FnMut(&[Arc<Progress>], Duration),
    failed: impl Fn() -> bool,
) {
    const LOOK: Duration = Duration::from_millis(5);
    let sum = |what: fn(&Progress) -> u64| progress.iter().map(|p| what(p)).sum::<u64>();
    let sends = !matches!(plan.function, Function::Rx | Function::Pong);
    let receives = plan.function != Function::Tx || !plan.receivers.is_empty();
    let mut shown = begun;
    let mut quiet_since = None;
    let mut last_received = 0;
    while !failed() {
        std::thread::sleep(LOOK);
        let time = now();
        if time - shown >= 1_000_000_000 {
            each_second(progress, Duration::from_nanos(time - shown));
            shown = time;
        }
        let received = sum(|p| p.rx_frames.load(Ordering::Relaxed));
        let over = plan
            .duration
            .is_some_and(|d| time - begun >= d.as_nanos() as u64);
        if stop.load(Ordering::Acquire) || (over && !sends) {
            phase.store(ENDING, Ordering::Release);
            if !sends {
                return;
            }
        }
        if !sends {
            if plan.count > 0 && received >= plan.count {
                return;
            }
            continue;
        }
        let sent_all = progress
            .iter()
            .take(plan.sockets.len())
            .all(|p| p.sent_all.load(Ordering::Acquire));
        if !sent_all {
            continue;
        }
        let sent = sum(|p| p.tx_frames.load(Ordering::Relaxed));
        let whole = plan.flows.tso.is_none() && received == sent;
        if !receives || whole || plan.function == Function::Ping {
            return;
        }
        if received != last_received || quiet_since.is_none() {
            last_received = received;
            quiet_since = Some(time);
        }
        if quiet_since.is_some_and(|t| time - t >= plan.settle.as_nanos() as u64) {
            return;
        }
    }
}

/// Holds what was sent against what came.
fn conclude(plan: &Plan, mut stations: Vec<Station>, nanoseconds: u64) -> Report {
    let order: Vec<_> = plan.sockets.iter().chain(&plan.receivers).collect();
    stations.sort_by_key(|s| order.iter().position(|p| p.display().to_string() == s.name));
    let sent: Vec<_> = stations
        .iter()
        .filter_map(|s| s.sending.as_ref())
        .map(|s| (s.maker.sender(), s.maker.sent().to_vec()))
        .collect();
    let senders = plan.sockets.len();
    let mut latency = super::hist::Histogram::default();
    for (i, (sender, numbers)) in sent.iter().enumerate() {
        let receiver = match plan.function {
            Function::Tx if plan.receivers.is_empty() => continue,
            Function::Tx => senders + i % plan.receivers.len(),
            Function::Txrx => (i + 1) % senders,
            _ => i,
        };
        let directed = plan.flows.dst_mac.is_some();
        if let Some(checker) = &mut stations[receiver].checker
            && plan.check != Depth::None
            && !directed
        {
            checker.close(*sender, numbers);
        }
    }
    for checker in stations.iter().filter_map(|s| s.checker.as_ref()) {
        latency.merge(&checker.latency);
    }
    let outcomes: Vec<Outcome> = stations.iter().map(Station::result).collect();
    Report::new(plan, outcomes, latency, nanoseconds)
}
