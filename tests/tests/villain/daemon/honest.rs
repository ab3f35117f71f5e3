//! Two honest NICs that exchange numbered frames through the switch all the while.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use drivers::igbvf::Vf;

/// Frames on their way at once, each way: far less than a ring.
const WINDOW: u64 = 64;

/// Receive buffers: more than the longest storm has frames.
const BUFFERS: u32 = 4096;

/// Nothing for so long is a loss, not a busy machine.
const LOST: Duration = Duration::from_secs(10);

/// An EtherType that no villain uses.
const OURS: [u8; 2] = [0x88, 0xb6];

#[derive(Default)]
struct Watch {
    stop: AtomicBool,
    /// Frames that came, both ways.
    got: AtomicU64,
    /// Frames of others that came.
    foreign: AtomicU64,
    /// The longest time without a frame since it was last asked for, in microseconds.
    longest: AtomicU64,
    /// How long frames were on their way since it was last asked for, in microseconds.
    latencies: Mutex<Vec<u32>>,
    failed: Mutex<Option<String>>,
}

/// How a pair did for a while.
pub struct Service {
    /// Frames a second that came, both ways.
    pub rate: f64,
    /// How long 99 of 100 frames were on their way at most, in microseconds.
    pub p99: f64,
}

/// Frames below which a 99th percentile says nothing.
const ENOUGH: usize = 100;

/// An honest NIC with its driver.
pub enum Nic {
    /// An 82540EM.
    E1000(Box<Driver<SocketBus>>),
    /// A virtual function of an 82576.
    Vf(Box<Vf<SocketBus>>),
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("an honest driver failed: {error}")
}

impl Nic {
    /// An 82540EM, brought up.
    pub fn e1000(bus: SocketBus) -> Self {
        let config = Config {
            tx_ring: 256,
            rx_ring: BUFFERS,
            report_every: 8,
            ..Config::poll()
        };
        Nic::E1000(Box::new(
            Driver::new(bus, config).expect("honest driver comes up"),
        ))
    }

    /// A virtual function, brought up.
    pub fn vf(bus: SocketBus) -> Self {
        Nic::Vf(Box::new(
            Vf::with_ring(bus, BUFFERS).expect("honest VF comes up"),
        ))
    }

    fn mac(&self) -> [u8; 6] {
        match self {
            Nic::E1000(driver) => driver.mac(),
            Nic::Vf(vf) => vf.mac(),
        }
    }

    /// Queues frames and rings once; returns how many found room.
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, String> {
        if frames.is_empty() {
            return Ok(0);
        }
        match self {
            Nic::E1000(driver) => driver.send(frames, &TxOpts::default()).map_err(failed),
            Nic::Vf(vf) => vf.send(frames).map_err(failed),
        }
    }

    /// Takes what has come and gives the buffers back.
    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), String> {
        match self {
            Nic::E1000(driver) => {
                driver
                    .poll_rx(1024, |one| each(&one.to_vec()))
                    .map_err(failed)?;
                driver.refill_rx().map_err(failed)
            }
            Nic::Vf(vf) => {
                for (frame, _) in vf.receive().map_err(failed)? {
                    each(&frame);
                }
                Ok(())
            }
        }
    }
}

/// The pair, at work on a thread of its own.
pub struct Honest {
    watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Honest {
    /// Starts.
    pub fn start(pair: [Nic; 2]) -> Self {
        let watch = Arc::new(Watch::default());
        let shared = Arc::clone(&watch);
        let thread = std::thread::spawn(move || {
            if let Err(why) = run(pair, &shared) {
                let mut failed = shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(why);
            }
        });
        Self {
            watch,
            thread: Some(thread),
        }
    }

    /// Waits until `frames` more have come, each in its order and whole.
    ///
    /// # Errors
    /// What went wrong since the start, if anything did.
    pub fn goes_on(&self, frames: u64) -> Result<(), String> {
        let until = self.watch.got.load(Ordering::Relaxed) + frames;
        loop {
            let failed = self.watch.failed.lock();
            if let Some(why) = &*failed.unwrap_or_else(PoisonError::into_inner) {
                let foreign = self.watch.foreign.load(Ordering::Relaxed);
                return Err(format!("{why} ({foreign} frames of others came)"));
            }
            if self.watch.got.load(Ordering::Relaxed) >= until {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How it did in the time since the last call, which was `time`. Nothing if too little came to say.
    pub fn service(&self, time: Duration) -> Option<Service> {
        let latencies = self.watch.latencies.lock();
        let mut latencies = std::mem::take(&mut *latencies.unwrap_or_else(PoisonError::into_inner));
        if latencies.len() < ENOUGH {
            return None;
        }
        let at = latencies.len() * 99 / 100;
        let (_, p99, _) = latencies.select_nth_unstable(at);
        let p99 = f64::from(*p99);
        Some(Service {
            rate: latencies.len() as f64 / time.as_secs_f64(),
            p99,
        })
    }

    /// The longest time without a frame since the last call.
    pub fn longest_silence(&self) -> Duration {
        Duration::from_micros(self.watch.longest.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.watch.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Fills `frame` with the numbered frame of one direction.
fn write(frame: &mut Vec<u8>, to: [u8; 6], from: [u8; 6], number: u64) {
    frame.clear();
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&from);
    frame.extend_from_slice(&OURS);
    frame.extend_from_slice(&number.to_be_bytes());
    let len = 60 + (number * 37 % 1455) as usize;
    let seed = number as u8;
    frame.extend((frame.len()..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)));
}

fn run(mut pair: [Nic; 2], watch: &Watch) -> Result<(), String> {
    let macs = [pair[0].mac(), pair[1].mac()];
    let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
    let mut frames: [Vec<u8>; 8] = Default::default();
    let mut expected = Vec::new();
    // When the frames on their way to each were sent.
    let mut away = [VecDeque::new(), VecDeque::new()];
    let mut last = Instant::now();
    while !watch.stop.load(Ordering::Relaxed) {
        for from in 0..2 {
            let to = 1 - from;
            let more = (WINDOW - (sent[from] - got[to])).min(8) as usize;
            for (frame, number) in frames.iter_mut().zip(sent[from]..) {
                write(frame, macs[to], macs[from], number);
            }
            let slices: Vec<&[u8]> = frames[..more].iter().map(Vec::as_slice).collect();
            let now = Instant::now();
            let done = pair[from].send(&slices)?;
            sent[from] += done as u64;
            away[to].extend(std::iter::repeat_n(now, done));
        }
        let mut came = 0;
        for to in 0..2 {
            let mut wrong = None;
            pair[to].receive(|bytes| {
                if bytes.get(12..14) != Some(&OURS) {
                    watch.foreign.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                write(&mut expected, macs[to], macs[1 - to], got[to]);
                if bytes != expected && wrong.is_none() {
                    let number = bytes.get(14..22).map(<[u8]>::to_vec);
                    wrong = Some(format!(
                        "NIC {to} should get frame {} and got {number:02x?}",
                        got[to]
                    ));
                }
                got[to] += 1;
                came += 1;
            })?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            let now = Instant::now();
            let arrived = away[to].len() - (sent[1 - to] - got[to]) as usize;
            let latencies = away[to].drain(..arrived);
            let latencies = latencies.map(|sent| (now - sent).as_micros() as u32);
            let all = watch.latencies.lock();
            let mut all = all.unwrap_or_else(PoisonError::into_inner);
            all.extend(latencies);
        }
        let silent = last.elapsed();
        if came > 0 {
            watch.got.fetch_add(came, Ordering::Relaxed);
            last = Instant::now();
        } else if silent > LOST {
            return Err(format!(
                "nothing came for {LOST:?}; sent {sent:?}, got {got:?}"
            ));
        }
        let silent = u64::try_from(silent.as_micros()).unwrap_or(u64::MAX);
        watch.longest.fetch_max(silent, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}
