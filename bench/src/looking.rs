//! What it costs the data path, and those who look, to be told of a daemon with a thousand NICs: a part of `scale`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use control::{Method, MetricsGet, NicList};
use drivers::e1000::poll::TxFrame;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fabric::{Fabric, Guest, Traffic, aim, config, cpu, driver, mac, text};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::quiet::Quiet;
use crate::stats::{Column, Reading, figure, in_turns};

const NICS: usize = 1000;
/// Those that send; the others have no VMM.
const BUSY: usize = 10;
const SUBSCRIBERS: usize = 1000;
const RING: u32 = 128;
const SIZE: usize = 60;
const BURST: u32 = 32;

fn seconds(options: &Options) -> f64 {
    if options.quick { 1.0 } else { 4.0 }
}

fn looks(options: &Options) -> u32 {
    if options.quick { 3 } else { 20 }
}

/// How long it takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let samples = BESIDE.iter().map(|beside| beside.seconds(options) + 0.5);
    15.0 + options.rounds() as f64 * samples.sum::<f64>() + 3.0 * f64::from(looks(options))
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Tool {
        tool: "the control socket",
        what: error.to_string(),
    }
}

/// Measures, and writes it down.
///
/// # Errors
/// When a daemon does not come up, or refuses.
pub fn run(options: &Options, page: &mut Page, quiet: &mut Quiet) -> Result<()> {
    let file = |dir: &Path| {
        let control = dir.join("control.sock");
        let nics = (0..NICS).map(|n| {
            let socket = dir.join(format!("n{n}.sock"));
            let mac = text(mac(n));
            format!("[[nic]]\nname = \"n{n}\"\nmac = \"{mac}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n")
        });
        let nics: String = nics.collect();
        format!("control = {control:?}\n[[switch]]\nname = \"lan\"\n{nics}")
    };
    let last = format!("n{}.sock", NICS - 1);
    let fabric = Fabric::serve(&options.hypernic(), file, &last, Some(machine::cores().1))?;
    data_path(options, page, quiet, &fabric)?;
    who_looks(options, page, &fabric)
}

/// Who asks while frames pass.
struct Beside {
    name: &'static str,
    subscribers: usize,
    /// Seconds between calls for everything.
    every: Option<u64>,
}

impl Beside {
    /// How long a sample is: as long as it takes until the next call, at least.
    fn seconds(&self, options: &Options) -> f64 {
        let every = self.every.filter(|_| !options.quick);
        seconds(options).max(every.unwrap_or(0) as f64)
    }
}

const BESIDE: [Beside; 4] = [
    Beside {
        name: "nobody",
        subscribers: 0,
        every: None,
    },
    Beside {
        name: "subscribers",
        subscribers: SUBSCRIBERS,
        every: None,
    },
    Beside {
        name: "subscribers, and calls every 15 s",
        subscribers: SUBSCRIBERS,
        every: Some(15),
    },
    Beside {
        name: "subscribers, and calls every second",
        subscribers: SUBSCRIBERS,
        every: Some(1),
    },
];

fn data_path(options: &Options, page: &mut Page, quiet: &mut Quiet, fabric: &Fabric) -> Result<()> {
    let kind = Traffic::Plain(SIZE);
    let mut guests = Vec::new();
    for number in 0..BUSY {
        let mut guest = fabric.guest(number, &config(kind, RING))?;
        aim(&mut guest, kind, mac(number), mac(number ^ 1))?;
        guests.push(guest);
    }
    flood(&mut guests, 0.3)?;
    let control = fabric.dir().join("control.sock");
    let mut columns: Vec<Column> = BESIDE
        .iter()
        .map(|beside| Column::new(beside.name))
        .collect();
    eprint!("  the data path beside control");
    in_turns(quiet, options.rounds(), &mut columns, |i| {
        let beside = &BESIDE[i];
        let subscribers: Vec<UnixStream> = (0..beside.subscribers)
            .map(|_| subscribe(&control))
            .collect::<Result<_>>()?;
        let mut readers = Vec::new();
        for stream in subscribers.iter().skip(SUBSCRIBERS / 2) {
            // What there is, which each is told first, is not what it costs to be told of changes.
            all_there_is(stream)?;
            stream.set_nonblocking(true).map_err(refused)?;
            readers.push(stream);
        }
        let began = (fabric.cpu(), control_thread(fabric.id()));
        let every = beside.every.map(Duration::from_secs);
        let asker = every.map(|every| Calls::start(&control, every));
        let asker = asker.transpose()?;
        let (frames, took) = flood(&mut guests, beside.seconds(options))?;
        let calls = asker.map_or(Ok(0), Calls::end)?;
        let daemon = fabric.cpu() - began.0;
        let asked = control_thread(fabric.id()) - began.1;
        let mut part = vec![0; 1 << 16];
        for mut stream in readers {
            while stream.read(&mut part).is_ok_and(|n| n > 0) {}
        }
        Ok(Reading {
            value: frames as f64 / took / 1e6,
            raw: json!({"frames": frames, "seconds": took, "daemon_cpu": daemon, "control_cpu": asked, "calls": calls}),
        })
    })?;
    eprintln!();
    page.heading("The data path beside control");
    page.text(&format!(
        "{NICS} NICs on one switch, of which {BUSY} send to each other as above. Beside them {SUBSCRIBERS} clients are told of changes, of \
         which half never read; then one more asks for the list of all NICs and for all metrics, zeros included, and reads the \
         answers: every 15 seconds, as in the first example of Prometheus, or every second. Millions of frames a second, over the \
         same without anybody, and the processor time of the control \
         thread. The daemon, its control thread included, has one processor."
    ));
    let part = |column: &Column| {
        let parts = column.readings().filter_map(|r| {
            Some(100.0 * r.raw["control_cpu"].as_f64()? / r.raw["seconds"].as_f64()?)
        });
        rig::paired::median(&parts.collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let rows: Vec<Vec<String>> = columns
        .iter()
        .map(|column| {
            vec![
                column.id.clone(),
                column.words(),
                column.ratio_words(&columns[0]),
                figure(part(column)),
            ]
        })
        .collect();
    page.table(
        &[
            "who asks",
            "Mpps",
            "over nobody",
            "control thread: % of one processor",
        ],
        &rows,
    );
    let data: Vec<Value> = columns.iter().map(Column::json).collect();
    page.data("beside_control", data);
    Ok(())
}

/// All guests send in turns, from one thread on the first processor: frames that came, and seconds.
fn flood(guests: &mut [Guest], seconds: f64) -> Result<(u64, f64)> {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            machine::pin(machine::cores().0);
            let (start, mut frames) = (Instant::now(), 0);
            while start.elapsed().as_secs_f64() < seconds {
                for guest in &mut *guests {
                    guest
                        .send(BURST, |_, _| TxFrame::plain(SIZE as u32))
                        .map_err(driver)?;
                    frames += u64::from(guest.receive(4 * BURST, |_| {}).map_err(driver)?);
                }
            }
            Ok((frames, start.elapsed().as_secs_f64()))
        });
        work.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn subscribe(control: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(control).map_err(refused)?;
    let call = b"{\"method\":\"io.hypernic.Monitor.Subscribe\",\"more\":true}\0";
    stream.write_all(call).map_err(refused)?;
    Ok(stream)
}

/// Reads a message, to its end.
fn all_there_is(mut stream: &UnixStream) -> Result<()> {
    let mut part = vec![0; 1 << 16];
    loop {
        match stream.read(&mut part).map_err(refused)? {
            0 => return Err(refused("a client was let go")),
            n if part[n - 1] == 0 => return Ok(()),
            _ => {}
        }
    }
}

/// Processor seconds of the daemon's control thread.
fn control_thread(id: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task"));
    let is_it = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "control")
    };
    let time = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    let tasks = tasks.into_iter().flatten().flatten().filter(is_it);
    tasks.filter_map(time).sum::<f64>() / 1e9
}

/// A client that asks for everything again and again. It reads the answers and no more: its processor is the guests'.
struct Calls {
    over: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<std::result::Result<u64, String>>,
}

impl Calls {
    fn start(control: &Path, every: Duration) -> Result<Self> {
        let mut stream = UnixStream::connect(control).map_err(refused)?;
        let (over, ends) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            machine::pin(machine::cores().0);
            let mut calls = 0;
            loop {
                for method in [NicList::NAME, MetricsGet::NAME] {
                    let call = format!("{{\"method\":\"{method}\"}}\0");
                    let asked = stream.write_all(call.as_bytes());
                    asked.map_err(|error| error.to_string())?;
                    all_there_is(&stream).map_err(|error| error.to_string())?;
                    calls += 1;
                }
                if ends.recv_timeout(every) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    return Ok(calls);
                }
            }
        });
        Ok(Self { over, thread })
    }

    fn end(self) -> Result<u64> {
        drop(self.over);
        let calls = self.thread.join();
        calls
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(refused)
    }
}

/// A process that ends with this.
struct Looker(Child);

impl Drop for Looker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn who_looks(options: &Options, page: &mut Page, fabric: &Fabric) -> Result<()> {
    let control = fabric.dir().join("control.sock");
    let start = |words: &[&str]| -> Result<(Looker, BufReader<std::process::ChildStdout>)> {
        let mut command = Command::new(options.hypernic());
        command.args(words).arg("--control").arg(&control);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut looker = Looker(child.map_err(Error::io("start hypernic"))?);
        let out = looker.0.stdout.take();
        let out = out.ok_or_else(|| refused("no output"))?;
        Ok((looker, BufReader::new(out)))
    };
    let line = |out: &mut BufReader<std::process::ChildStdout>| {
        let mut line = String::new();
        out.read_line(&mut line).map_err(refused)?;
        Ok::<_, Error>(line)
    };
    // A look a second: what the daemon and who looks have had of a processor meanwhile.
    let measure =
        |who: Option<&Looker>, look: &mut dyn FnMut() -> Result<usize>| -> Result<[f64; 3]> {
            let had = || (who.map_or(0.0, |who| cpu(who.0.id())), fabric.cpu());
            let (begun, before) = (Instant::now(), had());
            let mut bytes = 0;
            for n in 1..=looks(options) {
                bytes = look()?;
                let next = begun + Duration::from_secs(n.into());
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            let (now, took) = (had(), begun.elapsed().as_secs_f64());
            let part = |now: f64, before: f64| 100.0 * (now - before) / took;
            Ok([part(now.0, before.0), part(now.1, before.1), bytes as f64])
        };
    eprintln!("  who looks at {NICS} NICs");
    let nobody = measure(None, &mut || Ok(0))?;
    let (exporter, mut out) = start(&["exporter", "--listen", "127.0.0.1:0"])?;
    let at = line(&mut out)?;
    let at = at.trim().trim_start_matches("http://");
    let at = at.split('/').next().unwrap_or(at).to_owned();
    scrape(&at)?;
    let exported = measure(Some(&exporter), &mut || scrape(&at))?;
    drop(exporter);
    let (top, mut out) = start(&["top", "-b", "-o", "json", "-d", "1"])?;
    line(&mut out)?;
    let topped = measure(Some(&top), &mut || Ok(line(&mut out)?.len()))?;
    drop(top);
    page.heading("Who looks");
    page.text(&format!(
        "A look a second at {NICS} NICs for {} seconds, of which {BUSY} have carried frames: processor time of who looks and of the daemon, \
         in parts of one processor.",
        looks(options)
    ));
    let rows = [
        ("nobody", nobody),
        ("`hypernic exporter`, scraped", exported),
        ("`hypernic top -b -o json`", topped),
    ];
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|(who, [own, daemon, bytes])| {
            vec![
                (*who).to_owned(),
                figure(*own),
                figure(*daemon),
                figure(*bytes),
            ]
        })
        .collect();
    page.table(
        &["who", "itself: %", "the daemon: %", "bytes a look"],
        &table,
    );
    let data = rows.map(|(who, figures)| json!({"who": who, "figures": figures}));
    page.data("who_looks", Value::from(data.to_vec()));
    Ok(())
}

/// All metrics, once. How many bytes.
fn scrape(at: &str) -> Result<usize> {
    let mut stream = TcpStream::connect(at).map_err(refused)?;
    let call =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n";
    stream.write_all(call.as_bytes()).map_err(refused)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(refused)?;
    match text.ends_with("# EOF\n") && text.contains("\nhypernic_up 1\n") {
        true => Ok(text.len()),
        false => Err(refused("the exporter does not answer")),
    }
}
