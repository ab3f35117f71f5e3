//! A daemon with NICs on one switch, and poll-mode guests at them: the data path over real sockets, shared memory
//! and eventfds, without a guest's noise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver};
use rig::Daemon;
use serde_json::Value;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::machine;

/// The limit of things that take a moment.
const MOMENT: Duration = Duration::from_secs(60);

/// A guest's side of a NIC.
pub type Guest = Driver<SocketBus>;

/// A running daemon.
pub struct Fabric {
    daemon: Daemon,
    dir: TempDir,
}

/// The address of a NIC by its number.
pub fn mac(number: usize) -> [u8; 6] {
    let [.., a, b] = number.to_be_bytes();
    [2, 0, 0, 1, a, b]
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

impl Fabric {
    /// Starts a daemon with `nics` NICs on one port (`switch:lan`, `null`, ...), bound to one processor where one is
    /// given.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(
        hypernic: &Path,
        nics: usize,
        port: &str,
        options: &[String],
        core: Option<usize>,
    ) -> Result<Self> {
        Self::start_as(Daemon::command(hypernic), nics, port, options, core)
    }

    /// The same with a command of the caller's, such as one inside a namespace.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_as(
        mut command: std::process::Command,
        nics: usize,
        port: &str,
        options: &[String],
        core: Option<usize>,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("hypernic-bench-")
            .tempdir()
            .map_err(Error::io("make a scratch folder"))?;
        command.args(["--log-format", "json", "run", "--port", port]);
        command.args(options);
        for number in 0..nics {
            command.arg("--socket-path").arg(socket(dir.path(), number));
            command.args(["--mac", &text(mac(number))]);
        }
        let daemon = Daemon::start("hypernic", command, dir.path().join("log"))?;
        let mut fabric = Self { daemon, dir };
        fabric.daemon.expect("serving", MOMENT)?;
        // Listening sockets are made one after the other.
        let last = socket(fabric.dir.path(), nics.saturating_sub(1));
        let until = Instant::now() + MOMENT;
        while !last.exists() {
            if Instant::now() > until {
                return Err(Error::tool("hypernic", &fabric.daemon.output()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(core) = core {
            machine::pin_process(fabric.daemon.id(), core);
        }
        Ok(fabric)
    }

    /// Plugs a guest into a NIC.
    ///
    /// # Errors
    /// When the daemon refuses it.
    pub fn guest(&self, number: usize, config: Config) -> Result<Guest> {
        let refused = |what: String| Error::Usage(format!("guest {number}: {what}"));
        let bus = SocketBus::connect(socket(self.dir.path(), number))
            .map_err(|e| refused(e.to_string()))?;
        Driver::new(bus, config).map_err(|e| refused(e.to_string()))
    }

    /// The daemon's process.
    pub fn id(&self) -> u32 {
        self.daemon.id()
    }

    /// The daemon's counters, summed by name over its parts.
    ///
    /// # Errors
    /// When it does not say.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>> {
        counters(&self.daemon)
    }

    /// Processor seconds it has used.
    pub fn cpu(&self) -> f64 {
        cpu(self.daemon.id())
    }

    /// Memory that is its own and resident, in KiB: what it shares with guests is not counted.
    pub fn memory(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.id()));
        let text = text.unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:"));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    }
}

fn socket(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("n{number}.sock"))
}

/// Processor seconds of a process.
pub fn cpu(id: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task"));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<f64>().ok()
        })
        .sum::<f64>()
        / 1e9
}

/// A daemon's counters, summed by name over its parts.
///
/// # Errors
/// When it does not say.
pub fn counters(daemon: &Daemon) -> Result<BTreeMap<String, u64>> {
    let answers = |text: &str| {
        text.lines()
            .filter(|l| l.starts_with("{\"counters\""))
            .count()
    };
    let had = answers(&daemon.output());
    daemon.signal(rustix::process::Signal::USR1)?;
    let deadline = Instant::now() + MOMENT;
    let text = loop {
        let text = daemon.output();
        if answers(&text) > had && text.ends_with('\n') {
            break text;
        }
        if Instant::now() > deadline {
            return Err(Error::tool("hypernic", &text));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let line = text
        .lines()
        .rev()
        .find(|l| l.starts_with("{\"counters\""))
        .unwrap_or_default();
    let answer: Value = serde_json::from_str(line).map_err(|_| Error::tool("hypernic", line))?;
    let mut sums = BTreeMap::new();
    for section in answer["counters"].as_array().into_iter().flatten() {
        for (name, value) in section["values"].as_object().into_iter().flatten() {
            *sums.entry(name.clone()).or_default() += value.as_u64().unwrap_or(0);
        }
    }
    Ok(sums)
}

/// What the driver said, in this program's words.
pub fn driver(error: drivers::e1000::DriverError) -> Error {
    Error::Tool {
        tool: "the poll-mode driver",
        what: error.to_string(),
    }
}

/// Rings and buffers that fit frames of a size.
pub fn config(size: usize) -> Config {
    let large = size > 1522;
    Config {
        tx_ring: 1024,
        rx_ring: 1024,
        tx_buffer: if large { 10_240 } else { 2048 },
        rx_buffer: if large { 16_384 } else { 2048 },
        long_packets: large,
        ..Config::poll()
    }
}

/// Two guests of one daemon with frames ready in their buffers.
pub struct Ends {
    /// The daemon.
    pub fabric: Fabric,
    /// The guests.
    pub guests: [Guest; 2],
    size: usize,
}

/// How a stream runs.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// Frames queued before the device is told.
    pub burst: usize,
    /// The other way at the same time.
    pub both_ways: bool,
    /// How long.
    pub seconds: f64,
}

/// What a stream did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Streamed {
    /// Frames queued.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Seconds it took.
    pub seconds: f64,
}

impl Ends {
    /// Starts a daemon on the second processor and two guests.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn start(hypernic: &Path, size: usize, options: &[String]) -> Result<Self> {
        let core = machine::cores().1;
        let fabric = Fabric::start(hypernic, 2, "switch:lan", options, Some(core))?;
        let guests = [
            fabric.guest(0, config(size))?,
            fabric.guest(1, config(size))?,
        ];
        let mut ends = Self {
            fabric,
            guests,
            size,
        };
        for (i, guest) in ends.guests.iter_mut().enumerate() {
            let bytes = crate::load::frame(0, size, false, mac(i), mac(1 - i));
            guest.fill_buffers(&bytes).map_err(driver)?;
        }
        // The switch learns where both are.
        ends.run(Stream {
            burst: 1,
            both_ways: true,
            seconds: 0.01,
        })?;
        Ok(ends)
    }

    /// Sends as fast as it goes, from this thread, which goes to the first processor.
    ///
    /// # Errors
    /// When the device is gone or writes back nonsense.
    pub fn run(&mut self, stream: Stream) -> Result<Streamed> {
        let size = self.size as u32;
        let ends = &mut self.guests;
        std::thread::scope(|scope| {
            let work = scope.spawn(move || {
                machine::pin(machine::cores().0);
                flow(ends, size, stream)
            });
            work.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn flow(guests: &mut [Guest; 2], size: u32, stream: Stream) -> Result<Streamed> {
    let [a, b] = guests;
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(stream.seconds);
    let mut done = Streamed::default();
    let mut idle = 0;
    while Instant::now() < until {
        let mut moved = 0;
        let way = |from: &mut Guest, to: &mut Guest, done: &mut Streamed| -> Result<usize> {
            let sent = from
                .queue_in_place(stream.burst, size, |_, _, _| Ok(()))
                .map_err(driver)?;
            from.kick().map_err(driver)?;
            let received = to.poll_rx(512, |_| {}).map_err(driver)?;
            done.sent += sent as u64;
            done.received += received as u64;
            Ok(sent + received)
        };
        moved += way(a, b, &mut done)?;
        if stream.both_ways {
            moved += way(b, a, &mut done)?;
        }
        idle = if moved == 0 { idle + 1 } else { 0 };
        if idle > 32 {
            // Whoever shares this processor may have what we wait for.
            std::thread::yield_now();
        }
    }
    done.seconds = start.elapsed().as_secs_f64();
    // What is still under way is not this sample's, nor the next one's.
    let mut quiet = 0;
    while quiet < 20 {
        let n = b.poll_rx(512, |_| {}).map_err(driver)? + a.poll_rx(512, |_| {}).map_err(driver)?;
        quiet = if n == 0 { quiet + 1 } else { 0 };
        if n == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    Ok(done)
}
