//! Two honest NICs that exchange numbered frames through the switch all the while.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

/// Frames on their way at once, each way: far less than a ring.
const WINDOW: u64 = 64;

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
    failed: Mutex<Option<String>>,
}

/// The pair, at work on a thread of its own.
pub struct Honest {
    watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Honest {
    /// Brings both up and starts.
    pub fn start(a: &Path, b: &Path) -> Self {
        let [a, b] = [a, b].map(|path| {
            let bus = SocketBus::connect(path).expect("honest NIC is free");
            let config = Config {
                tx_ring: 256,
                rx_ring: 4096,
                report_every: 8,
                ..Config::poll()
            };
            Driver::new(bus, config).expect("honest driver comes up")
        });
        let watch = Arc::new(Watch::default());
        let shared = Arc::clone(&watch);
        let thread = std::thread::spawn(move || {
            if let Err(why) = run([a, b], &shared) {
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

fn run(mut pair: [Driver<SocketBus>; 2], watch: &Watch) -> Result<(), String> {
    let macs = [pair[0].mac(), pair[1].mac()];
    let text = |e: drivers::e1000::DriverError| format!("an honest driver failed: {e}");
    let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
    let (mut frame, mut expected) = (Vec::new(), Vec::new());
    let mut last = Instant::now();
    while !watch.stop.load(Ordering::Relaxed) {
        for from in 0..2 {
            let to = 1 - from;
            let driver = &mut pair[from];
            for _ in 0..8 {
                if sent[from] - got[to] >= WINDOW {
                    break;
                }
                write(&mut frame, macs[to], macs[from], sent[from]);
                let opts = TxOpts::default();
                match driver.queue(&[&frame], &opts).map_err(text)? {
                    0 => break,
                    _ => sent[from] += 1,
                }
            }
            driver.kick().map_err(text)?;
        }
        let mut came = 0;
        for to in 0..2 {
            let mut wrong = None;
            let driver = &mut pair[to];
            driver
                .poll_rx(1024, |one| {
                    let bytes = one.to_vec();
                    if bytes.get(12..14) != Some(&OURS) {
                        watch.foreign.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    write(&mut expected, macs[to], macs[1 - to], got[to]);
                    if bytes != expected && wrong.is_none() {
                        let number = bytes.get(14..22).map(|b| b.to_vec());
                        wrong = Some(format!(
                            "NIC {to} should get frame {} and got {number:02x?}",
                            got[to]
                        ));
                    }
                    got[to] += 1;
                    came += 1;
                })
                .map_err(text)?;
            driver.refill_rx().map_err(text)?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
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
