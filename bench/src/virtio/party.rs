//! What joins two guests, and how each is begun. The guests are always one testpmd with two ports, which sends back by one what
//! comes in by the other; they poll on one processor, and what is between them works on the other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rig::{Rig, Root, Testpmd, TestpmdSetup};
use serde_json::json;

use super::load::Load;
use crate::error::{Error, Result};
use crate::fabric::{Fabric, cpu, delta, mac};
use crate::inside::virtio::Rings;
use crate::machine;
use crate::options::Options;
use crate::peers::cores::Cores;
use crate::peers::{dpdk, ovs, work_seconds};
use crate::stats::Reading;

/// Who switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Ours: a vhost-user back end with a switch.
    Hypernic,
    /// DPDK's vhost library, in a testpmd that passes on from one port to the other.
    Vhost,
    /// The same between two memif servers.
    Memif,
    /// Open vSwitch with DPDK.
    Ovs,
}

/// One of those that are compared.
#[derive(Debug, Clone, Copy)]
pub struct Party {
    /// In raw data.
    pub id: &'static str,
    /// In tables and plots.
    pub name: &'static str,
    pub via: Via,
    /// What rings the guests have.
    pub rings: Rings,
}

const fn party(id: &'static str, name: &'static str, via: Via, rings: Rings) -> Party {
    Party {
        id,
        name,
        via,
        rings,
    }
}

/// All of them, ours first.
pub const PARTIES: [Party; 8] = [
    party("split", "hypernic, split", Via::Hypernic, Rings::Split),
    party("packed", "hypernic, packed", Via::Hypernic, Rings::Packed),
    party(
        "in-order",
        "hypernic, packed in order",
        Via::Hypernic,
        Rings::PackedInOrder,
    ),
    party(
        "vhost-split",
        "testpmd vhost, split",
        Via::Vhost,
        Rings::Split,
    ),
    party(
        "vhost-packed",
        "testpmd vhost, packed",
        Via::Vhost,
        Rings::Packed,
    ),
    party(
        "vhost-in-order",
        "testpmd vhost, packed in order",
        Via::Vhost,
        Rings::PackedInOrder,
    ),
    party("memif", "testpmd memif", Via::Memif, Rings::PackedInOrder),
    party(
        "ovs",
        "OVS-DPDK, packed in order",
        Via::Ovs,
        Rings::PackedInOrder,
    ),
];

/// Where a party is in the list.
pub fn index(id: &str) -> Option<usize> {
    PARTIES.iter().position(|party| party.id == id)
}

impl Party {
    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        self.via == Via::Hypernic
    }
}

/// What virtio-user is told of its rings.
fn words(rings: Rings) -> &'static str {
    match rings {
        Rings::Split => "packed_vq=0,in_order=0",
        Rings::SplitInOrder => "packed_vq=0,in_order=1,mrg_rxbuf=0",
        Rings::Packed => "packed_vq=1,in_order=0",
        Rings::PackedInOrder => "packed_vq=1,in_order=1,mrg_rxbuf=0",
    }
}

/// The testpmd that is both guests, in its name.
const GUESTS: &str = "g";

fn address(number: usize) -> String {
    mac(number).map(|b| format!("{b:02x}")).join(":")
}

/// A guest's port at `socket`; `serves` if the other side connects.
fn port(number: usize, socket: &Path, rings: Rings, queues: u32, serves: bool) -> String {
    let server = if serves { ",server=1" } else { "" };
    format!(
        "net_virtio_user{number},path={},mac={},queue_size=1024,queues={queues},{}{server}",
        socket.display(),
        address(number),
        words(rings)
    )
}

/// One end of a memif.
fn memif(number: usize, socket: &Path, role: &str) -> String {
    format!(
        "net_memif{number},role={role},id={number},socket-abstract=no,socket={},rsize=10",
        socket.display()
    )
}

enum Switch {
    Hypernic(Fabric),
    Testpmd(Testpmd),
    Ovs(Rc<rig::Ovs>),
}

impl Switch {
    fn hold(&self, held: bool) {
        match self {
            // It sleeps when nothing comes.
            Self::Hypernic(_) => {}
            Self::Testpmd(testpmd) => testpmd.hold(held),
            Self::Ovs(running) => running.hold(held),
        }
    }

    fn cpu(&self) -> f64 {
        match self {
            Self::Hypernic(fabric) => fabric.cpu(),
            Self::Testpmd(testpmd) => cpu(testpmd.id()),
            Self::Ovs(running) => cpu(running.id()),
        }
    }
}

/// A party at work.
pub struct Running {
    // The guests go first: a memif server does not survive it the other way round.
    guests: Testpmd,
    switch: Switch,
    queues: u32,
    load: Option<Load>,
}

/// What all parties are begun with.
pub struct Ground<'a> {
    pub options: &'a Options,
    pub rig: &'a Rig,
    pub dpdk: &'a Root,
    pub dir: &'a Path,
    /// Pairs of queues of each guest.
    pub queues: u32,
}

impl Ground<'_> {
    /// Begins a party, and has it stand still.
    ///
    /// # Errors
    /// When it cannot be had or run; the reason belongs into the report.
    pub fn begin(&self, party: &Party) -> Result<Running> {
        let dir = self.dir.join(format!("{}{}", party.id, self.queues));
        let sub = |name: &str| -> Result<PathBuf> {
            let sub = dir.join(name);
            std::fs::create_dir_all(&sub).map_err(Error::io(format!("make {}", sub.display())))?;
            Ok(sub)
        };
        let sockets = [dir.join("p0"), dir.join("p1")];
        let (guests_home, switch_home) = (sub("guests")?, sub("switch")?);
        let (guest_core, core) = machine::cores();
        let also = machine::guest_cores().get(1).copied();
        let name = |role: &str| format!("v{}{}{role}", party.id, self.queues);
        let start = |role: &str, home: &Path, devices: &[String], cores| {
            let mut options = vec![
                "--burst=64".to_owned(),
                format!("--rxq={}", self.queues),
                format!("--txq={}", self.queues),
                format!("--eth-peer=0,{}", address(1)),
                format!("--eth-peer=1,{}", address(0)),
            ];
            if self.queues > 1 {
                options.push("--txonly-multi-flow".to_owned());
            }
            let mut testpmd = Testpmd::start(&TestpmdSetup {
                root: self.dpdk,
                name: &name(role),
                dir: home,
                devices,
                options: &options,
                cores,
                also: also.filter(|_| role == GUESTS),
            })?;
            for line in ["set fwd io retry", "set burst tx delay 1 retry 1000"] {
                testpmd.ask(line)?;
            }
            Ok::<_, Error>(testpmd)
        };
        let guests = |sockets: [&Path; 2], serves: bool| {
            let devices = [0, 1].map(|i| port(i, sockets[i], party.rings, self.queues, serves));
            start(GUESTS, &guests_home, &devices, (guest_core, guest_core))
        };
        let forwarder = |devices: &[String]| {
            let mut testpmd = start("s", &switch_home, devices, (core, guest_core))?;
            testpmd.ask("start")?;
            Ok::<_, Error>(testpmd)
        };
        let (guests, switch) = match party.via {
            Via::Hypernic => {
                let fabric = self.hypernic(core)?;
                let sockets = [fabric.socket(0), fabric.socket(1)];
                let guests = guests([&sockets[0], &sockets[1]], false)?;
                (guests, Switch::Hypernic(fabric))
            }
            Via::Vhost => {
                let one = |i: usize| {
                    let socket = sockets[i].display();
                    format!("net_vhost{i},iface={socket},queues={}", self.queues)
                };
                let switch = forwarder(&[one(0), one(1)])?;
                let guests = guests([&sockets[0], &sockets[1]], false)?;
                (guests, Switch::Testpmd(switch))
            }
            Via::Memif => {
                let ends = |role: &str| [0, 1].map(|i| memif(i, &sockets[i], role));
                let switch = forwarder(&ends("server"))?;
                let guests = start(
                    GUESTS,
                    &guests_home,
                    &ends("client"),
                    (guest_core, guest_core),
                )?;
                (guests, Switch::Testpmd(switch))
            }
            Via::Ovs => {
                let (running, sockets) = ovs::switch(self.rig, &dir, 1)?;
                let [a, b] = &sockets[0];
                let guests = guests([a, b], true)?;
                (guests, Switch::Ovs(running))
            }
        };
        let running = Running {
            guests,
            switch,
            queues: self.queues,
            load: None,
        };
        running.hold(true);
        Ok(running)
    }

    fn hypernic(&self, core: usize) -> Result<Fabric> {
        let mut words: Vec<String> = ["--model", "virtio-net", "--transport", "vhost-user"]
            .map(str::to_owned)
            .to_vec();
        words.push(format!("--queue-pairs={}", self.queues));
        words.extend(self.options.daemon());
        Fabric::start(
            &self.options.hypernic(),
            2,
            "switch:lan",
            &words,
            Some(core),
        )
    }
}

impl Running {
    fn hold(&self, held: bool) {
        self.switch.hold(held);
        self.guests.hold(held);
    }

    fn ask(&mut self, lines: &[String]) -> Result<()> {
        for line in lines {
            let answer = self.guests.ask(line)?;
            let refusals = ["Invalid", "Bad arguments", "not supported", "error:"];
            if refusals.iter().any(|word| answer.contains(word)) {
                return Err(Error::tool("testpmd", &answer));
            }
        }
        Ok(())
    }

    /// Has these frames go round, if they do not yet.
    fn set(&mut self, load: Load, anew: bool) -> Result<()> {
        if !anew && self.load == Some(load) {
            return Ok(());
        }
        let filled = !anew && self.load.is_some_and(|l| l.lengths == load.lengths);
        self.load = None;
        if !filled {
            // Links come up one after the other; what is sent before is lost.
            std::thread::sleep(Duration::from_millis(100));
            self.ask(&load.lengths.lines(self.queues))?;
        }
        self.ask(&load.lines())?;
        std::thread::sleep(Duration::from_millis(100));
        self.load = Some(load);
        Ok(())
    }

    /// Millions of frames a second that both guests receive.
    ///
    /// # Errors
    /// When one is gone, or no frame comes through.
    pub fn sample(&mut self, load: Load, seconds: f64) -> Result<Reading> {
        self.hold(false);
        let taken = self.moving(load, seconds);
        self.hold(true);
        taken
    }

    fn moving(&mut self, load: Load, seconds: f64) -> Result<Reading> {
        let first = self.load != Some(load);
        self.set(load, false)?;
        std::thread::sleep(Duration::from_millis(30));
        let mut seen = self.rate(seconds)?;
        if seen.mpps() < 1e-3 {
            // All frames were lost while it stood still: begin again.
            self.set(load, true)?;
            seen = self.rate(seconds)?;
        }
        if seen.mpps() < 1e-5 {
            return Err(Error::Usage("no frame came through".to_owned()));
        }
        // Counting takes a time of its own.
        let mut at_work = [seen.at_work, None];
        if first {
            at_work = self.shares(seen.at_work)?;
        }
        Ok(seen.reading(at_work))
    }

    /// The parts of the time that the switch and the guests have something to do; ours says so itself.
    fn shares(&mut self, ours: Option<f64>) -> Result<[Option<f64>; 2]> {
        Ok(match &mut self.switch {
            Switch::Hypernic(_) => [ours, Some(dpdk::shares(&mut [&mut self.guests])?[0])],
            Switch::Testpmd(switch) => {
                let both = dpdk::shares(&mut [switch, &mut self.guests])?;
                [Some(both[0]), Some(both[1])]
            }
            Switch::Ovs(running) => {
                let before = running.cycles();
                let guests = dpdk::shares(&mut [&mut self.guests])?[0];
                let share = before.zip(running.cycles());
                let share = share.map(|(b, a)| (a.0 - b.0) / (a.1 - b.1).max(1.0));
                [share, Some(guests)]
            }
        })
    }

    fn rate(&mut self, seconds: f64) -> Result<Seen> {
        let counters = |switch: &Switch| match switch {
            Switch::Hypernic(fabric) => fabric.counters(),
            Switch::Testpmd(_) | Switch::Ovs(_) => Ok(Default::default()),
        };
        let before = counters(&self.switch)?;
        let cpu = self.switch.cpu();
        let start = Instant::now();
        let (frames, bytes) = self.guests.received()?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (frames_after, bytes_after) = self.guests.received()?;
        let took = start.elapsed().as_secs_f64();
        let cpu = self.switch.cpu() - cpu;
        let daemon = delta(&before, &counters(&self.switch)?);
        Ok(Seen {
            frames: frames_after - frames,
            bytes: bytes_after - bytes,
            seconds: took,
            cpu,
            at_work: work_seconds(&daemon).map(|work| work / took),
            daemon: matches!(self.switch, Switch::Hypernic(_)).then_some(daemon),
        })
    }
}

/// What was seen for a while.
struct Seen {
    frames: u64,
    bytes: u64,
    seconds: f64,
    /// Processor seconds of the switch.
    cpu: f64,
    /// The part of the time that the switch had something to do, if it is ours.
    at_work: Option<f64>,
    daemon: Option<BTreeMap<String, u64>>,
}

impl Seen {
    fn mpps(&self) -> f64 {
        self.frames as f64 / self.seconds / 1e6
    }

    /// With the parts of the time that switch and guests had something to do.
    fn reading(self, [switch, guests]: [Option<f64>; 2]) -> Reading {
        let value = self.mpps();
        let mut raw = json!({"frames": self.frames, "bytes": self.bytes, "seconds": self.seconds});
        let cores = Cores {
            frames: self.frames,
            seconds: self.seconds,
            switch_cpu: self.cpu,
            switch_at_work: switch.map(|share| share * self.seconds),
            guests_cpu: self.seconds,
            guests_at_work: guests,
            looks_with_frames: None,
        };
        cores.note(&mut raw);
        if let Some(daemon) = self.daemon {
            // By its own count, which goes on for as long as it was counted.
            let passed = daemon.get("rx_frames").copied().unwrap_or(0).max(1) as f64;
            let per = |name: &str| daemon.get(name).copied().unwrap_or(0) as f64 / passed;
            raw["kicks"] = json!(per("kicks"));
            raw["calls"] = json!(per("queue_calls"));
            raw["daemon"] = json!(daemon);
        }
        Reading { value, raw }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_have_a_peer_with_the_same_rings() {
        for ours in PARTIES.iter().filter(|party| party.is_ours()) {
            let peer = PARTIES
                .iter()
                .find(|p| p.via == Via::Vhost && p.rings == ours.rings);
            assert!(peer.is_some(), "{}", ours.id);
        }
    }
}
