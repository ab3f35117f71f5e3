//! Peers that frames reach by system calls: the kernel's bridge between two TAPs, and vde_switch.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rig::{Daemon, Netns, Rig};
use serde_json::Value;

use super::contender::{Contender, Peer};
use super::cores::{Before, Cores};
use crate::error::{Error, Result};
use crate::machine;
use crate::stats::Reading;

/// The TAPs at the bridge.
const TAPS: [&str; 2] = ["peer0", "peer1"];

/// Runs this program's `load` and gives its answer.
///
/// # Errors
/// When it fails, with what it said.
pub fn load(mut command: Command, words: &[&str], size: usize, seconds: f64) -> Result<Value> {
    command.arg("load").args(words).args([
        "--size",
        &size.to_string(),
        "--seconds",
        &seconds.to_string(),
    ]);
    let out = command.output().map_err(Error::io("run the load"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    serde_json::from_str(&text).map_err(|_| {
        Error::tool(
            "load",
            &format!("{text}{}", String::from_utf8_lossy(&out.stderr)),
        )
    })
}

/// This program.
///
/// # Errors
/// When the system does not say where it is.
pub fn myself() -> Result<PathBuf> {
    std::env::current_exe().map_err(Error::io("find this program"))
}

/// Millions a second of one of the load's counts.
pub fn mpps(answer: &Value, count: &str) -> Reading {
    let field = |name: &str| answer[name].as_f64().unwrap_or(f64::NAN);
    Reading {
        value: field(count) / field("seconds") / 1e6,
        raw: answer.clone(),
    }
}

/// What the load said of both cores, with the switch's processor time where that is a process of its own.
fn note(reading: &mut Reading, switch: Option<f64>) {
    let answer = reading.raw.clone();
    let of = |name: &str| answer[name].as_f64().unwrap_or(f64::NAN);
    let part = |some: f64, all: f64| Some(some / all).filter(|part| part.is_finite());
    Cores {
        frames: answer["received"].as_u64().unwrap_or(0),
        seconds: of("seconds"),
        switch_cpu: switch.unwrap_or(of("switch_cpu")),
        // A process that sleeps in its system calls is at work when it runs.
        switch_at_work: Some(switch.unwrap_or(of("switch_at_work"))),
        guests_cpu: of("guests_cpu"),
        guests_at_work: part(of("guests_at_work"), of("seconds")).filter(|part| *part > 0.0),
        looks_with_frames: part(of("found"), of("looks")),
    }
    .note(&mut reading.raw);
}

struct Bridge {
    netns: Netns,
    size: usize,
}

/// A bridge with two TAPs in a namespace of its own.
///
/// # Errors
/// When there are no namespaces, TAPs or bridges.
pub fn bridge(rig: &Rig, sizes: &[usize]) -> Result<Vec<Contender>> {
    let netns = Netns::new(rig).map_err(rig::Error::from)?;
    for tap in TAPS {
        netns.tap(tap, None)?;
        netns.ip(["link", "set", tap, "mtu", "9000"])?;
    }
    netns.bridge("peerbr", &TAPS)?;
    let mut all: Vec<Contender> = Vec::new();
    for &size in sizes {
        let mut one = Bridge {
            netns: netns.clone(),
            size,
        };
        // A new bridge may take a moment.
        let mut through = 0.0;
        for _ in 0..5 {
            through = one.sample(0.2)?.value;
            if through > 0.0 {
                break;
            }
        }
        if through <= 0.0 {
            return Err(Error::Usage("no frame came through the bridge".to_owned()));
        }
        all.push(Box::new(one));
    }
    Ok(all)
}

impl Peer for Bridge {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        let command = self.netns.command(myself()?);
        let answer = load(command, &["taps", TAPS[0], TAPS[1]], self.size, seconds)?;
        let mut reading = mpps(&answer, "received");
        note(&mut reading, None);
        Ok(reading)
    }
}

struct Vde {
    _shell: std::rc::Rc<Daemon>,
    /// The switch, which is behind a shell.
    id: u32,
    dir: PathBuf,
    size: usize,
}

/// vde_switch: the host's, or one from its packages.
///
/// # Errors
/// When there is none or it does not come up.
pub fn vde(rig: &Rig, scratch: &Path, sizes: &[usize]) -> Result<Vec<Contender>> {
    let installed = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|p| std::env::split_paths(&p).collect::<Vec<_>>())
        .map(|dir| dir.join("vde_switch"))
        .find(|p| p.is_file());
    let mut command = match installed {
        Some(program) => Daemon::command(program),
        None => {
            let root = rig.packages("vde", &["vde-switch"])?;
            let words = root.program("vde_switch")?;
            let mut command = Daemon::command(&words[0]);
            command.args(&words[1..]);
            command
        }
    };
    let dir = scratch.join("vde");
    command
        .arg("-s")
        .arg(&dir)
        .arg("-M")
        .arg(scratch.join("vde.mgmt"));
    // Without a terminal it ends at once unless `-d` makes it a daemon; then it would not stay our child.
    let switch = Daemon::start("vde_switch", keep_open(command), scratch.join("vde.log"))?;
    let until = Instant::now() + Duration::from_secs(10);
    while !dir.join("ctl").exists() {
        if Instant::now() > until {
            return Err(Error::tool("vde_switch", &switch.output()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = behind(switch.id())?;
    machine::pin_process(id, machine::cores().1);
    let switch = std::rc::Rc::new(switch);
    let mut all: Vec<Contender> = Vec::new();
    for &size in sizes {
        let mut one = Vde {
            _shell: std::rc::Rc::clone(&switch),
            id,
            dir: dir.clone(),
            size,
        };
        if one.sample(0.2)?.value <= 0.0 {
            return Err(Error::tool("vde_switch", "no frame came through"));
        }
        all.push(Box::new(one));
    }
    Ok(all)
}

/// The program that [`keep_open`] keeps an input open for, by the shell's number.
fn behind(shell: u32) -> Result<u32> {
    let path = format!("/proc/{shell}/task/{shell}/children");
    let text = std::fs::read_to_string(&path).map_err(Error::io(format!("read {path}")))?;
    let children = text.split_whitespace().filter_map(|id| id.parse().ok());
    let name = |id: &u32| std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    let mut others = children.filter(|id| name(id).trim() != "sleep");
    others
        .next()
        .ok_or_else(|| Error::tool("vde_switch", "it is not running"))
}

/// Gives a program an input that never ends.
fn keep_open(inner: Command) -> Command {
    let mut command = Daemon::command("sh");
    command.args(["-c", "sleep 2147483647 | exec \"$@\"", "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command
}

impl Peer for Vde {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        let mut command = Daemon::command(myself()?);
        command.env_remove("LD_PRELOAD");
        let dir = self.dir.to_string_lossy().into_owned();
        let before = Before::of(&[self.id]);
        let answer = load(command, &["vde", &dir], self.size, seconds)?;
        let mut reading = mpps(&answer, "received");
        note(&mut reading, Some(before.since()[0]));
        Ok(reading)
    }
}
