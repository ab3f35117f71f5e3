//! `make demo`: two stock Linux guests on one hypernic.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hypernic_tests::guests::{self, Direction, GATEWAY, Link};
use hypernic_tests::host::Http;
use hypernic_tests::measure::Ping;
use hypernic_tests::{Counters, Daemon, Error, Launch, Result, binary, scratch};
use rig::{Guest, GuestConfig, Nic, Rig};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const USAGE: &str = "usage: demo [--hypernic PATH] [--output DIR]   (default: target/demo)";

/// Names of the NICs and their guests, and their addresses.
const NICS: [(&str, &str); 2] = [("a", "52:54:00:00:00:0a"), ("b", "52:54:00:00:00:0b")];

/// What the guests find on the host.
const GREETING: &str = "greetings from the host, by hypernic\n";

fn main() -> ExitCode {
    let (hypernic, output) = match arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let stage = Stage::new();
    match stage.run(&hypernic, &output) {
        _ if stage.stopped() => {
            println!("\nstopped; everything is cleaned up");
            ExitCode::from(130)
        }
        Ok(table) => {
            println!("\n{table}");
            println!(
                "all of it worked, in {:.0} s",
                stage.start.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!(" FAILED");
            eprintln!("demo failed: {why}");
            eprintln!(
                "the daemon's log: {}",
                output.join("hypernic.log").display()
            );
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<(PathBuf, PathBuf), String> {
    let (mut hypernic, mut output) = (None, PathBuf::from("target/demo"));
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().map(PathBuf::from).ok_or(USAGE);
        match word.to_str() {
            Some("--hypernic") => hypernic = Some(value?),
            Some("--output") => output = value?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let hypernic = match hypernic {
        Some(path) if path.is_file() => path,
        Some(path) => {
            return Err(format!(
                "no hypernic at {}: `make build` makes it",
                path.display()
            ));
        }
        None => binary().map_err(|e| e.to_string())?,
    };
    Ok((hypernic, output))
}

/// The run, which Ctrl-C may stop.
struct Stage {
    start: Instant,
    stopped: Arc<AtomicBool>,
}

impl Stage {
    fn new() -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        std::thread::spawn(move || {
            let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
            else {
                return;
            };
            if signals.forever().next().is_none() {
                return;
            }
            stop.store(true, Ordering::SeqCst);
            // Whatever the demo waits for is a process it started. Those end now, and the demo
            // goes home the usual way; all of them die with it in any case.
            for _ in 0..50 {
                for child in children() {
                    let _ = kill_process(child, Signal::TERM);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            std::process::exit(130);
        });
        let start = Instant::now();
        Self { start, stopped }
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Does one step and shows it: what before, its time and outcome after.
    fn step<T>(&self, what: &str, work: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
        if self.stopped() {
            return Err(Error::check("stopped"));
        }
        print!("{what} ...");
        let _ = std::io::stdout().flush();
        let start = Instant::now();
        let (value, outcome) = work()?;
        println!(" {:.1} s: {outcome}", start.elapsed().as_secs_f64());
        Ok(value)
    }

    fn run(&self, hypernic: &Path, output: &Path) -> Result<String> {
        announce();
        std::fs::create_dir_all(output).map_err(io(format!("create {}", output.display())))?;
        let log = output.join("hypernic.log");
        let _ = std::fs::remove_file(&log);
        let capture = std::path::absolute(output.join("a.pcapng"))
            .map_err(io("find the output folder".into()))?;

        let rig = self.step("QEMU, kernel and user space", || {
            let rig = Rig::prepare()?;
            let accel = rig.accel()?;
            let version = rig.qemu().version().split(" (").next().unwrap_or_default();
            let outcome = format!("{version}, {accel}");
            Ok((rig, outcome))
        })?;

        let sockets = scratch()?;
        let toml = configuration(sockets.path(), &capture);
        let file = output.join("hypernic.toml");
        let mut daemon = self.step("hypernic", || {
            std::fs::write(&file, &toml).map_err(io(format!("write {}", file.display())))?;
            let daemon = Launch::of(hypernic).arg("serve").arg(&file).start()?;
            Ok((daemon, format!("serves {}", file.display())))
        })?;

        let result = self.act(&rig, sockets.path(), &daemon, &capture);
        let ended = daemon.stop();
        std::fs::write(&log, daemon.log() + "\n")
            .map_err(io(format!("write {}", log.display())))?;
        let table = result?;
        let status = ended?;
        if !status.success() {
            return Err(Error::check(format!("hypernic ended with {status}")));
        }
        Ok(table)
    }

    /// Everything that happens between the start and the end of the daemon.
    fn act(&self, rig: &Rig, sockets: &Path, daemon: &Daemon, capture: &Path) -> Result<String> {
        let guests = self.step("two Linux guests boot", || {
            let config = |(name, _): (&str, &str)| {
                let socket = sockets.join(format!("{name}.sock"));
                GuestConfig::new(name).nic(Nic::vfio_user("n0", socket))
            };
            let guests = rig.start_all(NICS.map(config).into())?;
            let release = guests[0].run("uname -r")?;
            Ok((guests, format!("Linux {} in each", release.trim())))
        })?;
        let [a, b] = guests.as_slice() else {
            return Err(Error::check("two guests were started"));
        };
        let up =
            |guest: &Guest, nic: (&str, &str)| -> Result<Link> { guests::bring_up(guest, nic.1) };
        let links = self.step("their own e1000 drivers, DHCP", || {
            let (first, second) = both(|| up(a, NICS[0]), || up(b, NICS[1]))?;
            if first.address == second.address {
                return Err(Error::check(format!("both guests got {}", first.address)));
            }
            let outcome = format!("a is {}, b is {}", first.address, second.address);
            Ok(([first, second], outcome))
        })?;
        let to_b = links[1].address.as_str();
        let to_a = links[0].address.as_str();
        let before = daemon.counters()?;

        let mut pings = Vec::new();
        for (from, to, words) in [(a, to_b, "ping a -> b"), (b, to_a, "ping b -> a")] {
            pings.push(self.step(words, || {
                let ping = guests::ping_all(from, to, 50)?;
                let [min, avg, max] = ping.min_avg_max;
                let outcome = format!(
                    "{} of {}, RTT {min:.2}/{avg:.2}/{max:.2} ms",
                    ping.received, ping.sent
                );
                Ok((ping, outcome))
            })?);
        }

        let port = guests::serve_iperf3(b)?;
        let mut rates = Vec::new();
        let before_tcp = daemon.counters()?;
        for (direction, words) in [
            (Direction::Out, "TCP a -> b"),
            (Direction::In, "TCP b -> a"),
        ] {
            rates.push(self.step(words, || {
                let rate = guests::tcp(a, to_b, port, 100, direction)?;
                Ok((rate, format!("{rate:.0} Mbit/s")))
            })?);
        }
        let during_tcp = daemon.counters()?.since(&before_tcp);

        let megabytes = 16;
        let sum = self.step("a file a -> b", || {
            let sum = guests::serve_random_file(a, megabytes)?;
            b.run(&format!("wget -q -O /tmp/file http://{to_a}/file"))?;
            let got = guests::sha256(b, "/tmp/file")?;
            if got != sum {
                return Err(Error::check(format!(
                    "the file's SHA-256 was {sum} and became {got}"
                )));
            }
            Ok((
                sum.clone(),
                format!("{megabytes} MiB, SHA-256 {}… on both sides", &sum[..16]),
            ))
        })?;

        let http = Http::serve(GREETING)?;
        for (guest, (name, _)) in [a, b].into_iter().zip(NICS) {
            self.step(&format!("{name} -> a web server on the host"), || {
                let url = format!("http://{GATEWAY}:{}/", http.port);
                let text = guest.run(&format!("wget -q -O - {url}"))?;
                if text != GREETING {
                    return Err(Error::check(format!("{url} gave `{text}`")));
                }
                Ok(((), url))
            })?;
        }
        let all = daemon.counters()?.since(&before);
        let table = Table {
            links: &links,
            pings: &pings,
            rates: &rates,
            sum: &sum,
            megabytes,
        };
        table.show(&all, &during_tcp, capture)
    }
}

fn announce() {
    let cached = rig::Cache::open().is_ok_and(|cache| {
        let mut entries = std::fs::read_dir(cache.dir())
            .into_iter()
            .flatten()
            .flatten();
        entries.any(|e| e.file_name().to_string_lossy().starts_with("image-"))
    });
    println!("Two stock Linux guests on one hypernic; no root needed, Ctrl-C ends it.");
    if cached {
        println!("This takes about a minute.");
    } else {
        println!(
            "This takes 2 to 4 minutes: the first time on a machine it downloads about 160 MB of Debian packages \
             (QEMU, kernel, busybox, iperf3) into a private folder."
        );
    }
}

fn configuration(sockets: &Path, capture: &Path) -> String {
    let mut toml = String::from("[[switch]]\nname = \"lan\"\nports = [\"user\"]\n");
    for (i, (name, mac)) in NICS.into_iter().enumerate() {
        let socket = sockets.join(format!("{name}.sock"));
        let _ = write!(
            toml,
            "\n[[nic]]\nname = \"{name}\"\nmodel = \"e1000\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\n\
             port = \"switch:lan\"\n"
        );
        if i == 0 {
            let _ = writeln!(toml, "capture = {capture:?}");
        }
    }
    toml
}

struct Table<'a> {
    links: &'a [Link; 2],
    pings: &'a [Ping],
    rates: &'a [f64],
    sum: &'a str,
    megabytes: u32,
}

impl Table<'_> {
    fn show(&self, all: &Counters, tcp: &Counters, capture: &Path) -> Result<String> {
        let mut text = String::new();
        let mut row = |name: &str, a: String, b: String| {
            let _ = writeln!(text, "{name:<34} {a:>22} {b:>22}");
        };
        let per = |counters: &Counters, nic: &str| -> Result<[String; 3]> {
            let get = |names: &[&str]| -> Result<f64> {
                let value = |name: &&str| {
                    let found = counters.find("nic", nic, name);
                    found.ok_or_else(|| {
                        Error::check(format!("hypernic has no counter `{name}` for NIC {nic}"))
                    })
                };
                names.iter().map(|n| value(n).map(|v| v as f64)).sum()
            };
            let frames = get(&["tx_frames", "rx_frames"])?;
            let accesses = get(&["reg_reads", "reg_writes"])?;
            let interrupts = get(&["irq_triggers"])?;
            let each = |n: f64| format!("{:.3}", n / frames.max(1.0));
            Ok([format!("{frames:.0}"), each(accesses), each(interrupts)])
        };
        row("", "guest a".into(), "guest b".into());
        row("MAC address", NICS[0].1.into(), NICS[1].1.into());
        row(
            "IP address",
            self.links[0].address.clone(),
            self.links[1].address.clone(),
        );
        let loss = |p: &Ping| format!("{:.0} % of {}", p.loss(), p.sent);
        row(
            "ping to the other: loss",
            loss(&self.pings[0]),
            loss(&self.pings[1]),
        );
        let rtt = |p: &Ping| {
            let [min, avg, max] = p.min_avg_max;
            format!("{min:.2}/{avg:.2}/{max:.2} ms")
        };
        row(
            "  RTT min/mean/max",
            rtt(&self.pings[0]),
            rtt(&self.pings[1]),
        );
        row(
            "TCP sent to the other",
            format!("{:.0} Mbit/s", self.rates[0]),
            format!("{:.0} Mbit/s", self.rates[1]),
        );
        let (a, b) = (per(tcp, "a")?, per(tcp, "b")?);
        let labels = [
            "  frames during TCP (TSO as one)",
            "  register accesses per packet",
            "  interrupts per packet",
        ];
        for ((label, a), b) in labels.into_iter().zip(a).zip(b) {
            row(label, a, b);
        }
        let (a, b) = (per(all, "a")?, per(all, "b")?);
        let labels = [
            "frames in all (TSO as one)",
            "  register accesses per packet",
            "  interrupts per packet",
        ];
        for ((label, a), b) in labels.into_iter().zip(a).zip(b) {
            row(label, a, b);
        }
        let file = format!("{} MiB, {}…", self.megabytes, &self.sum[..8]);
        row("file copied, SHA-256 equal", "sent".into(), file);
        row("web server on the host", "reached".into(), "reached".into());
        let size = std::fs::metadata(capture)
            .map_err(io(format!("look at {}", capture.display())))?
            .len();
        let megabytes = size as f64 / 1e6;
        let _ = write!(
            text,
            "\ncapture of a's frames ({megabytes:.0} MB): {}",
            capture.display()
        );
        Ok(text)
    }
}

/// Does two things side by side.
fn both<T: Send>(
    one: impl FnOnce() -> Result<T>,
    other: impl FnOnce() -> Result<T> + Send,
) -> Result<(T, T)> {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((one?, other?))
    })
}

fn io(what: String) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, source }
}

/// The processes this one has started and that still run.
fn children() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let ids = |list: String| -> Vec<i32> { list.split_whitespace().flat_map(str::parse).collect() };
    lists.flat_map(ids).filter_map(Pid::from_raw).collect()
}
