//! What it costs to look at a host with many NICs once a second, in processor time.
//!
//! `cargo build --release -p hypernic && cargo run --release -p hypernic --example looking -- [NICS] [SECONDS]`
//!
//! Each NIC has had a driver that has sent and received, so that its counters are not 0.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Processor time that it has had, in seconds: of all its threads, in the kernel and outside.
    fn had(&self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let behind_name = stat.rsplit_once(") ").ok_or("no name")?.1;
        let fields: Vec<&str> = behind_name.split(' ').collect();
        let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
    }
}

fn hypernic() -> Outcome<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.ancestors().nth(2).ok_or("no folder")?.join("hypernic");
    match beside.exists() {
        true => Ok(beside),
        false => Err(format!("build {} first", beside.display()).into()),
    }
}

fn start(dir: &Path, nics: usize) -> Outcome<Running> {
    let control = dir.join("control.sock");
    let mut text = format!("control = {control:?}\nworkers = 2\n[[switch]]\nname = \"lan\"\n");
    for n in 0..nics {
        let socket = dir.join(format!("{n}.sock"));
        let _ = write!(
            text,
            "[[nic]]\nname = \"vm{n}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n"
        );
    }
    std::fs::write(dir.join("host.toml"), text)?;
    let mut daemon = Command::new(hypernic()?);
    daemon.arg("serve").arg(dir.join("host.toml"));
    let daemon = Running(daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    while std::os::unix::net::UnixStream::connect(&control).is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(daemon)
}

/// Each NIC sends to the next, which receives.
fn use_all(dir: &Path, nics: usize) -> Outcome<Vec<Driver<SocketBus>>> {
    let mut drivers = Vec::new();
    for n in 0..nics {
        let bus = SocketBus::connect(dir.join(format!("{n}.sock")))?;
        drivers.push(Driver::new(bus, Config::poll())?);
    }
    for n in 0..nics {
        let (to, from) = (drivers[(n + 1) % nics].mac(), drivers[n].mac());
        let frame = [&to[..], &from, &[0x88, 0xb5], &[0; 46]].concat();
        drivers[n].send(&[&frame], &TxOpts::default())?;
    }
    Ok(drivers)
}

fn get(at: &str, path: &str) -> Outcome<String> {
    let mut stream = TcpStream::connect(at)?;
    let fields = "Host: localhost\r\nAccept: application/openmetrics-text";
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match text.starts_with("HTTP/1.1 200 ") {
        true => Ok(text),
        false => Err("it does not answer".into()),
    }
}

fn scrape(at: &str) -> Outcome<usize> {
    let text = get(at, "/metrics")?;
    match text.ends_with("# EOF\n") && text.contains("\nhypernic_up 1\n") {
        true => Ok(text.len()),
        false => Err("the daemon did not answer".into()),
    }
}

/// What looker and daemon have had of a processor while `look` went on, in parts of it.
fn measured(
    what: &str,
    daemon: &Running,
    looker: &Running,
    look: impl FnOnce() -> Outcome<usize>,
) -> Outcome<()> {
    let begun = Instant::now();
    let before = (looker.had()?, daemon.had()?);
    let bytes = look()?;
    let seconds = begun.elapsed().as_secs_f64();
    let part = |had: f64, before: f64| 100.0 * (had - before) / seconds;
    println!(
        "{what}: {:.2} % of a processor, and {:.2} % in the daemon; {bytes} bytes a look, {seconds:.0} s",
        part(looker.had()?, before.0),
        part(daemon.had()?, before.1)
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let nics = words.next().map_or(Ok(1000), |word| word.parse())?;
    let seconds: usize = words.next().map_or(Ok(30), |word| word.parse())?;
    hypernic::fds::raise_limit();
    let dir = tempfile::tempdir()?;
    let daemon = start(dir.path(), nics)?;
    let _drivers = use_all(dir.path(), nics)?;
    println!("{nics} NICs, each with a driver; a look a second");
    measured("nobody", &daemon, &daemon, || {
        std::thread::sleep(Duration::from_secs(seconds as u64 / 3));
        Ok(0)
    })?;

    let control = dir.path().join("control.sock");
    let serving = |words: &[&str]| -> Outcome<(Running, String)> {
        let mut command = Command::new(hypernic()?);
        command.args(words).args(["--listen", "127.0.0.1:0"]);
        let mut serving = Running(
            command
                .arg("--control")
                .arg(&control)
                .stdout(Stdio::piped())
                .spawn()?,
        );
        let mut line = String::new();
        let out = serving.0.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        let at = line.trim().trim_start_matches("http://");
        let at = at.split('/').next().unwrap_or(at).to_owned();
        Ok((serving, at))
    };
    let each_second = |look: &mut dyn FnMut() -> Outcome<usize>| -> Outcome<usize> {
        let mut next = Instant::now();
        let mut bytes = 0;
        for _ in 0..seconds {
            bytes = look()?;
            next += Duration::from_secs(1);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(bytes)
    };
    let (exporter, at) = serving(&["exporter"])?;
    scrape(&at)?;
    measured("exporter", &daemon, &exporter, || {
        each_second(&mut || scrape(&at))
    })?;
    drop(exporter);

    let (web, at) = serving(&["web", "--no-key"])?;
    let first = get(&at, "/api/now")?;
    let id = first
        .split_once("\"shape_id\":\"")
        .and_then(|(_, rest)| rest.split('"').next())
        .ok_or("no shape")?;
    println!("web: {} bytes for a page that opens", first.len());
    let since = format!("/api/now?shape={id}&since=100000");
    measured("web, nobody looks", &daemon, &web, || {
        each_second(&mut || Ok(0))
    })?;
    measured("web, a page", &daemon, &web, || {
        each_second(&mut || Ok(get(&at, &since)?.len()))
    })?;
    measured("web, a page with a NIC opened", &daemon, &web, || {
        each_second(&mut || Ok(get(&at, &since)?.len() + get(&at, "/api/nic?name=vm0")?.len()))
    })?;
    drop(web);

    let mut top = Command::new(hypernic()?);
    top.args(["top", "-b", "-o", "json", "-d", "1", "--control"])
        .arg(&control)
        .stdout(Stdio::piped());
    let mut top = Running(top.spawn()?);
    let mut lines = BufReader::new(top.0.stdout.take().ok_or("no output")?).lines();
    lines.next().ok_or("no look")??;
    measured("top", &daemon, &top, || {
        let mut bytes = 0;
        for _ in 0..seconds {
            bytes = lines.next().ok_or("no look")??.len();
        }
        Ok(bytes)
    })
}
