//! `hypernic report`: what a report of a bug needs, in one file, without what guests sent.

use std::fmt::Write as _;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use control::{
    Client, Explain, Method, MetricsGet, NicInterrupts, NicList, NicMemory, PortList, StatusGet,
    SwitchList, without_nulls,
};
use serde_json::Value;

use super::capture;
use super::place::Place;
use crate::error::Error;

/// Bytes of the log's end.
const LOG: u64 = 256 << 10;
/// How long the journal may take.
const JOURNAL: Duration = Duration::from_secs(10);

/// `hypernic report`.
#[derive(Args, Debug)]
pub struct ReportCommand {
    #[command(flatten)]
    place: Place,
    /// The file; - is standard output. Default: hypernic-report-SECONDS.txt in this folder.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The daemon's log, of which the end is taken. Default: what systemd's journal has of the unit.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The daemon's unit.
    #[arg(long, value_name = "UNIT", default_value = "hypernic.service")]
    unit: String,
}

impl ReportCommand {
    /// Asks all that there is to be asked. Returns what there is to be read. A daemon that does not answer is no error:
    /// the report says so.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn execute(self) -> Result<String, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let mut text = format!(
            "hypernic {} report, Unix time {now}\n\
             In it: versions, configuration, counters, the end of the log. Not in it: frames, memory and registers of guests.\n",
            env!("CARGO_PKG_VERSION")
        );
        let pid = daemon(&self.place, &mut text);
        host(&mut text);
        if let Some(pid) = pid {
            process(&mut text, pid);
        }
        log(&mut text, self.log.as_deref(), &self.unit);
        let name = || PathBuf::from(format!("hypernic-report-{now}.txt"));
        let file = self.output.unwrap_or_else(name);
        let refused = |error| Error::Host(format!("cannot write {}: {error}", file.display()));
        capture::open(&file)?
            .write_all(text.as_bytes())
            .map_err(refused)?;
        let shown = file.display();
        Ok(match file == Path::new("-") {
            true => String::new(),
            false => format!(
                "{shown}: read it before you send it; it has names, paths and MAC addresses\n"
            ),
        })
    }
}

fn title(text: &mut String, title: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n== {title}");
}

/// What the daemon says. Returns its process, if it answers.
fn daemon(place: &Place, text: &mut String) -> Option<u32> {
    title(text, "daemon");
    let mut client = match Client::connect(&place.control) {
        Ok(client) => client,
        Err(error) => {
            let _ = writeln!(text, "{error}");
            return None;
        }
    };
    let pid = client.call(&StatusGet {}).map(|status| status.pid).ok();
    let all = [
        ask(&mut client, "status", &StatusGet {}),
        ask(&mut client, "switches", &SwitchList { name: None }),
        ask(&mut client, "ports", &PortList { switch: None }),
        ask(&mut client, "NICs", &NicList { name: None }),
        ask(&mut client, "losses", &Explain { name: None }),
        ask(&mut client, "interrupts", &NicInterrupts { name: None }),
        ask(&mut client, "memory", &NicMemory { name: None }),
        ask(
            &mut client,
            "counters that are not 0",
            &MetricsGet {
                zeros: Some(Vec::new()),
                ..MetricsGet::default()
            },
        ),
    ];
    for (about, told) in all {
        title(text, about);
        *text += &told;
    }
    pid
}

/// What it replies, a line for each thing.
fn ask<M: Method>(client: &mut Client, about: &'static str, call: &M) -> (&'static str, String) {
    let reply = match client.call(call) {
        Ok(reply) => serde_json::to_value(reply).unwrap_or_default(),
        Err(error) => return (about, format!("{error}\n")),
    };
    let reply = without_nulls(reply);
    let list = reply
        .as_object()
        .and_then(|all| all.values().find_map(Value::as_array));
    let text = match list {
        Some(list) => list.iter().map(|one| format!("{one}\n")).collect(),
        None => format!("{reply}\n"),
    };
    (about, text)
}

/// A file of the kernel's, or that it cannot be read.
fn file(text: &mut String, path: &str, lines: &dyn Fn(&str) -> bool) {
    match std::fs::read_to_string(path) {
        Ok(read) => {
            let kept = read.lines().filter(|line| lines(line));
            kept.for_each(|line| *text += &format!("{line}\n"));
        }
        Err(error) => *text += &format!("{path}: {error}\n"),
    }
}

/// Kernel and machine.
fn host(text: &mut String) {
    title(text, "host");
    file(text, "/proc/version", &|_| true);
    file(text, "/etc/os-release", &|line| {
        line.starts_with("PRETTY_NAME")
    });
    file(text, "/sys/kernel/security/lsm", &|_| true);
    file(text, "/proc/meminfo", &|line| {
        ["MemTotal", "MemAvailable", "HugePages_Total"]
            .iter()
            .any(|word| line.starts_with(word))
    });
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(text, "{processors} processors");
    file(text, "/proc/loadavg", &|_| true);
}

/// What the kernel says of the daemon: its limits, and what it has given up.
fn process(text: &mut String, pid: u32) {
    title(text, "process");
    const FIELDS: [&str; 9] = [
        "State",
        "Uid",
        "Gid",
        "VmRSS",
        "RssShmem",
        "Threads",
        "Cap",
        "NoNewPrivs",
        "Seccomp",
    ];
    file(text, &format!("/proc/{pid}/status"), &|line| {
        FIELDS.iter().any(|field| line.starts_with(field))
    });
    file(text, &format!("/proc/{pid}/limits"), &|line| {
        line.contains("open files")
            || line.contains("locked memory")
            || line.contains("address space")
    });
}

/// The end of the log.
fn log(text: &mut String, log: Option<&Path>, unit: &str) {
    title(text, "log");
    let read = match log {
        Some(path) => end_of(path).map_err(|error| format!("{}: {error}", path.display())),
        None => journal(unit),
    };
    match read {
        Ok(bytes) => {
            let read = String::from_utf8_lossy(&bytes).into_owned();
            // Nothing that a terminal would obey.
            let harmless = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
            text.extend(read.chars().map(harmless));
        }
        Err(why) => {
            let _ = writeln!(text, "{why}");
        }
    }
}

fn end_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(LOG);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last [`LOG`] bytes of what comes.
fn last(mut from: impl Read) -> std::io::Result<Vec<u8>> {
    let (mut kept, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(kept),
            Ok(n) => kept.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        kept.drain(..kept.len().saturating_sub(LOG as usize));
    }
}

fn journal(unit: &str) -> Result<Vec<u8>, String> {
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "-n", "1000", "-u", unit]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .spawn();
    let none = |error| format!("journalctl: {error}; name the log with --log FILE");
    let mut child = child.map_err(none)?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || output.and_then(|output| last(output).ok()));
    let until = Instant::now() + JOURNAL;
    while !reader.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    let bytes = reader.join().ok().flatten();
    bytes.ok_or_else(|| "journalctl was not read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_end_is_kept() {
        let of = |bytes: u64| std::io::repeat(b'x').take(bytes).chain(&b"end"[..]);
        assert_eq!(last(of(2)).expect("read"), b"xxend");
        let kept = last(of(3 * LOG)).expect("read");
        assert!(kept.len() as u64 == LOG && kept.ends_with(b"xend"));
    }
}
