//! A daemon with NICs on one switch, and poll-mode guests at them: the data path over real sockets, shared memory
//! and eventfds, without a guest's noise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::TxOffload;
use drivers::e1000::poll::{Offload, Poll, PollConfig, TxFrame};
use rig::Daemon;
use serde_json::Value;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::flow::{self, Way};
use crate::{load, machine};

pub use crate::flow::{Stream, Streamed};

/// The limit of things that take a moment.
const MOMENT: Duration = Duration::from_secs(60);

/// A guest's side of a NIC.
pub type Guest = Poll<SocketBus>;

/// How a driver tells its NIC of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bell {
    /// Writes of tail registers, each a message.
    Trap,
    /// The same registers, in a page of memory that the NIC looks at.
    Page,
    /// A Communication Status Block.
    Csb,
}

impl Bell {
    /// Words for a daemon whose NICs are told so.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Trap => &[],
            Self::Page => &["--doorbell", "page"],
            Self::Csb => &["--csb"],
        }
    }

    /// Plugs a driver in that tells so.
    ///
    /// # Errors
    /// When there is no NIC, or it shares no doorbells.
    pub fn connect(self, socket: &Path) -> std::result::Result<SocketBus, drivers::BusError> {
        let mut bus = SocketBus::connect(socket)?;
        if self == Self::Page {
            bus.share_pages()?;
        }
        Ok(bus)
    }
}

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

/// An address in words.
pub fn text(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

/// The word of a file for whether there is a keeper.
const KEEPER: &str = "keeper =";

/// A configuration file without a keeper: what a daemon takes is taken of one process, and what a keeper costs is measured by
/// itself.
pub fn alone(text: &str) -> String {
    format!("{KEEPER} false\n{text}")
}

/// The same on a command line. A build of hypernic that has no such word has no keeper unasked.
pub fn without_keeper(hypernic: &Path) -> Option<&'static str> {
    const WORD: &str = "--no-keeper";
    let mut help = Daemon::command(hypernic);
    let said = help.args(["run", "--help"]).output().ok()?;
    String::from_utf8_lossy(&said.stdout)
        .contains(WORD)
        .then_some(WORD)
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
        let mut command = Daemon::command(hypernic);
        command.args(["--log-format", "json", "run"]);
        command.args(without_keeper(hypernic)).args(options);
        Self::start_as(command, nics, port, core)
    }

    /// The same with a command of the caller's that begins so, such as one inside a namespace.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_as(
        mut command: std::process::Command,
        nics: usize,
        port: &str,
        core: Option<usize>,
    ) -> Result<Self> {
        let dir = machine::scratch()?;
        command.args(["--port", port]);
        for number in 0..nics {
            command.arg("--socket-path").arg(socket(dir.path(), number));
            command.args(["--mac", &text(mac(number))]);
        }
        let last = socket(dir.path(), nics.saturating_sub(1));
        Self::await_it(command, dir, &last, core)
    }

    /// Starts a daemon from a file, which is made for the folder its sockets go into; `last` is the
    /// socket that is made last.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn serve(
        hypernic: &Path,
        file: impl FnOnce(&Path) -> String,
        last: &str,
        core: Option<usize>,
    ) -> Result<Self> {
        let dir = machine::scratch()?;
        let path = dir.path().join("host.toml");
        let text = file(dir.path());
        let text = if text.starts_with(KEEPER) {
            text
        } else {
            alone(&text)
        };
        std::fs::write(&path, text).map_err(Error::io("write a configuration"))?;
        let mut command = Daemon::command(hypernic);
        command.args(["--log-format", "json", "serve"]).arg(&path);
        let last = dir.path().join(last);
        Self::await_it(command, dir, &last, core)
    }

    /// Waits for a daemon that was started with this command.
    fn await_it(
        command: std::process::Command,
        dir: TempDir,
        last: &Path,
        core: Option<usize>,
    ) -> Result<Self> {
        let log = dir.path().join("log");
        // Pinned before it starts, so that it has as many workers as processors: two on one would
        // wait for each other by whole time slices.
        let daemon = std::thread::scope(|scope| {
            let start = scope.spawn(|| {
                if let Some(core) = core {
                    machine::pin(core);
                }
                Daemon::start("hypernic", command, log)
            });
            start
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let mut fabric = Self { daemon, dir };
        fabric.daemon.expect("serving", MOMENT)?;
        // Listening sockets are made one after the other.
        let until = Instant::now() + MOMENT;
        while !last.exists() {
            if Instant::now() > until {
                return Err(Error::tool("hypernic", &fabric.daemon.output()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(fabric)
    }

    /// The folder of its sockets.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Plugs a guest into a NIC.
    ///
    /// # Errors
    /// When the daemon refuses it.
    pub fn guest(&self, number: usize, config: &PollConfig) -> Result<Guest> {
        self.guest_by(number, config, Bell::Trap)
    }

    /// The same with a driver that tells its NIC of frames in this way.
    ///
    /// # Errors
    /// When the daemon refuses it, or shares no doorbells.
    pub fn guest_by(&self, number: usize, config: &PollConfig, bell: Bell) -> Result<Guest> {
        let refused = |what: String| Error::Usage(format!("guest {number}: {what}"));
        let bus = bell
            .connect(&socket(self.dir.path(), number))
            .map_err(|e| refused(e.to_string()))?;
        Guest::new(bus, config).map_err(|e| refused(e.to_string()))
    }

    /// The socket of a NIC.
    pub fn socket(&self, number: usize) -> PathBuf {
        socket(self.dir.path(), number)
    }

    /// The daemon's process.
    pub fn id(&self) -> u32 {
        self.daemon.id()
    }

    /// The daemon's counters, summed by name over its NICs, and by kind and name over its other parts.
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

/// What a daemon says when it is asked for its counters.
///
/// # Errors
/// When it does not say.
pub fn ask(daemon: &Daemon) -> Result<Value> {
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
    serde_json::from_str(line).map_err(|_| Error::tool("hypernic", line))
}

/// A daemon's counters, summed by name over its NICs, and by kind and name over its other parts.
///
/// # Errors
/// When it does not say.
pub fn counters(daemon: &Daemon) -> Result<BTreeMap<String, u64>> {
    let answer = ask(daemon)?;
    let mut sums = BTreeMap::new();
    for section in answer["counters"].as_array().into_iter().flatten() {
        let kind = section["kind"].as_str().unwrap_or("nic");
        for (name, value) in section["values"].as_object().into_iter().flatten() {
            // A NIC's counters go by their names; a port or worker may have some of the same.
            let name = match kind {
                "nic" => name.clone(),
                _ => format!("{kind}.{name}"),
            };
            *sums.entry(name).or_default() += value.as_u64().unwrap_or(0);
        }
    }
    Ok(sums)
}

/// What counted up between two looks.
pub fn delta(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    after
        .iter()
        .map(|(name, n)| {
            let had = before.get(name).copied().unwrap_or(0);
            (name.clone(), n.saturating_sub(had))
        })
        .filter(|(_, n)| *n > 0)
        .collect()
}

/// What the driver said, in this program's words.
pub fn driver(error: drivers::e1000::DriverError) -> Error {
    Error::Tool {
        tool: "the poll-mode driver",
        what: error.to_string(),
    }
}

/// Bytes of a large send: as many whole segments as IPv4 takes.
pub const TSO: usize = 54 + 44 * load::SEGMENT as usize;

/// What a guest sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Frames of so many bytes, as they are.
    Plain(usize),
    /// Sends of [`TSO`] bytes for the NIC to cut into segments.
    Tso,
}

impl Traffic {
    /// Bytes handed over at once.
    pub fn bytes(self) -> usize {
        match self {
            Self::Plain(size) => size,
            Self::Tso => TSO,
        }
    }

    /// In a table.
    pub fn words(self) -> String {
        match self {
            Self::Plain(size) => size.to_string(),
            Self::Tso => "64 KiB TSO".to_owned(),
        }
    }

    /// Its bytes, and what its descriptor says.
    ///
    /// # Errors
    /// None but this program's own.
    pub fn make(self, from: [u8; 6], to: [u8; 6]) -> Result<(Vec<u8>, TxFrame)> {
        let mut bytes = load::frame(0, self.bytes(), false, from, to);
        let mut frame = TxFrame::plain(self.bytes() as u32);
        if self == Self::Tso {
            load::tcp(&mut bytes);
            let offload = TxOffload::Tso { mss: load::SEGMENT };
            let made = Offload::of(&mut bytes[..54], TSO as u32, offload);
            frame.offload = Some(made.map_err(driver)?);
        }
        Ok((bytes, frame))
    }

    /// What the descriptor of each says.
    ///
    /// # Errors
    /// None but this program's own.
    pub fn frame(self) -> Result<TxFrame> {
        self.make([0; 6], [0; 6]).map(|made| made.1)
    }
}

/// Rings of so many descriptors and buffers that fit.
pub fn config(kind: Traffic, ring: u32) -> PollConfig {
    let received = match kind {
        Traffic::Plain(size) => size as u32,
        Traffic::Tso => 1514,
    };
    PollConfig::new()
        .rings(ring, ring)
        .frames(kind.bytes() as u32, received)
}

/// Puts a frame of a kind into all buffers of a guest.
///
/// # Errors
/// None but this program's own.
pub fn aim(guest: &mut Guest, kind: Traffic, from: [u8; 6], to: [u8; 6]) -> Result<()> {
    let (bytes, _) = kind.make(from, to)?;
    guest.prepare(|_, buffer| buffer.write(0, &bytes));
    Ok(())
}

/// Two guests of one daemon with frames ready in their buffers.
pub struct Ends {
    /// The daemon.
    pub fabric: Fabric,
    /// The guests.
    pub guests: [Guest; 2],
    frame: TxFrame,
}

impl Ends {
    /// Starts a daemon on the second processor, or wherever the kernel puts it unless it is `pinned`, and two guests.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn start_on(
        hypernic: &Path,
        kind: Traffic,
        ring: u32,
        options: &[String],
        pinned: bool,
    ) -> Result<Self> {
        let core = pinned.then_some(machine::cores().1);
        Self::start_with(
            (hypernic, options, core),
            kind,
            config(kind, ring),
            Bell::Trap,
        )
    }

    /// The same with drivers that tell their NICs of frames in this way.
    ///
    /// # Errors
    /// When they do not come up, or this model has no such way.
    pub fn start_by(
        hypernic: &Path,
        kind: Traffic,
        ring: u32,
        options: &[String],
        bell: Bell,
    ) -> Result<Self> {
        let mut options = options.to_vec();
        options.extend(bell.words().iter().map(|&word| word.to_owned()));
        let core = Some(machine::cores().1);
        Self::start_with((hypernic, &options, core), kind, config(kind, ring), bell)
    }

    fn start_with(
        (hypernic, options, core): (&Path, &[String], Option<usize>),
        kind: Traffic,
        setup: PollConfig,
        bell: Bell,
    ) -> Result<Self> {
        let fabric = Fabric::start(hypernic, 2, "switch:lan", options, core)?;
        let setup = PollConfig {
            csb: bell == Bell::Csb,
            ..setup
        };
        Self::plug_in(fabric, kind, &setup, bell)
    }

    /// Two guests of a daemon that runs.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn at(fabric: Fabric, kind: Traffic, ring: u32) -> Result<Self> {
        Self::plug_in(fabric, kind, &config(kind, ring), Bell::Trap)
    }

    fn plug_in(fabric: Fabric, kind: Traffic, setup: &PollConfig, bell: Bell) -> Result<Self> {
        let mut guests = [
            fabric.guest_by(0, setup, bell)?,
            fabric.guest_by(1, setup, bell)?,
        ];
        for (i, guest) in guests.iter_mut().enumerate() {
            aim(guest, kind, mac(i), mac(1 - i))?;
        }
        let mut ends = Self {
            fabric,
            guests,
            frame: kind.frame()?,
        };
        // The switch learns where both are.
        ends.run(Stream {
            burst: 1,
            both_ways: true,
            seconds: 0.01,
        })?;
        Ok(ends)
    }

    /// Sends as fast as it goes, from a thread on the first processor.
    ///
    /// # Errors
    /// When the device is gone or writes back nonsense.
    pub fn run(&mut self, stream: Stream) -> Result<Streamed> {
        self.run_on(stream, &[machine::cores().0])
    }

    /// The same from a thread on one processor, or from one for each guest on two.
    ///
    /// # Errors
    /// As [`Ends::run`].
    pub fn run_on(&mut self, stream: Stream, cores: &[usize]) -> Result<Streamed> {
        let frame = self.frame;
        let mut ends = self.guests.each_mut().map(|guest| Aimed { guest, frame });
        flow::run_on(&mut ends, stream, cores)
    }
}

/// A guest with what it sends.
struct Aimed<'g> {
    guest: &'g mut Guest,
    frame: TxFrame,
}

impl Way for Aimed<'_> {
    #[inline]
    fn send(&mut self, burst: u32) -> Result<u32> {
        let frame = self.frame;
        self.guest.send(burst, |_, _| frame).map_err(driver)
    }

    #[inline]
    fn receive(&mut self, most: u32) -> Result<u32> {
        self.guest.receive(most, |_| {}).map_err(driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_send_is_whole_segments_and_fits_ipv4() {
        assert_eq!((TSO - 54) % usize::from(load::SEGMENT), 0);
        const { assert!(TSO - 14 <= 65_535) };
        let (bytes, frame) = Traffic::Tso.make(mac(0), mac(1)).unwrap();
        assert!(bytes.len() == TSO && frame.offload.is_some());
        assert!(Traffic::Plain(60).frame().unwrap().offload.is_none());
    }

    #[test]
    fn only_what_counted_up_is_a_difference() {
        let map = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
        };
        let found = delta(
            &map(&[("a", 1), ("b", 2)]),
            &map(&[("a", 4), ("b", 2), ("c", 9)]),
        );
        assert_eq!(found, map(&[("a", 3), ("c", 9)]));
    }
}
