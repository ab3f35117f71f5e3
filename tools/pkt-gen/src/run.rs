//! From a plan to a report: connect, start threads, watch, end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use drivers::e1000::poll::{Poll, PollConfig, TxFrame};
use drivers::{BusError, SocketBus};

use crate::check::{Checker, Depth};
use crate::error::Error;
use crate::flows::Maker;
use crate::pace::Pacer;
use crate::plan::{Function, Plan};
use crate::stamp;
use crate::station::{Echo, Outcome, Progress, Role, Sending, Station, now};
use crate::table::Report;

/// Brings up the NIC at a socket.
///
/// # Errors
/// There is none, with the cure.
pub fn connect(path: &Path, config: &PollConfig) -> Result<Poll<SocketBus>, Error> {
    let failed = |why: String, cure: &str| Error::Peer {
        socket: path.to_owned(),
        message: format!("{why}; {cure}"),
    };
    let mapped = || {
        let mut bus = SocketBus::connect(path)?;
        // Where `doorbell = "page"`.
        match bus.share_pages() {
            Ok(()) | Err(BusError::Unsupported(_)) => Ok(bus),
            Err(error) => Err(error),
        }
    };
    let bus = mapped().map_err(|error| match error {
        BusError::Gone(why) if why.contains("No such file") || why.contains("refused") => failed(
            "no NIC listens there".into(),
            &format!(
                "start a NIC there first, as in `hypernic run --socket-path {} --port switch:lan`",
                path.display()
            ),
        ),
        BusError::Gone(why) if why.contains("in time") || why.contains("answer") => failed(
            why,
            "a NIC has one VMM at a time: disconnect that VMM, or use another NIC",
        ),
        other => failed(
            other.to_string(),
            "is this the vfio-user socket of a hypernic NIC?",
        ),
    })?;
    Poll::new(bus, config).map_err(|error| {
        failed(
            error.to_string(),
            "pkt-gen drives the e1000 models (--model e1000, 82545em, 82544gc)",
        )
    })
}

/// A frame that tells a learning switch where this NIC is: to a group without listeners, with
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
        } else if idle < YIELDS || wait.is_some_and(|ns| (1..100_000).contains(&ns)) {
            std::thread::yield_now();
        } else {
            // Also where the NIC has no room for a frame that is due: the daemon may need this processor.
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
    let mut latency = crate::hist::Histogram::default();
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
