//! testpmd processes: a switch between two ports, and the guests at it or at another's vhost-user sockets.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rig::{Root, Testpmd, TestpmdSetup};
use serde_json::{Value, json};

use super::contender::{Contender, Peer};
use super::cores::{Before, Cores};
use crate::error::{Error, Result};
use crate::fabric::mac;
use crate::machine;
use crate::stats::Reading;

/// Frames that go round, each way: fewer than a ring has buffers, so that none is lost for want of one.
const ROUND: u32 = 768;
/// How long a core's cycles are counted: apart from the sample, since counting costs a reading of the clock a poll.
const COUNTED: Duration = Duration::from_millis(120);
/// Until all that was held runs, or what was switched on is seen.
const MOMENT: Duration = Duration::from_millis(30);

/// How the two processes are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// vhost-user.
    Vhost(Rings),
    /// memif with 1024 slots.
    Memif,
}

/// A virtio-user guest's rings, of 1024 descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rings {
    /// Split, as a guest has them that negotiates nothing.
    Split,
    /// Packed, used in order, without merged buffers: its best.
    Packed,
}

impl Rings {
    /// Words for virtio-user.
    pub fn words(self) -> &'static str {
        match self {
            Self::Split => "",
            Self::Packed => ",packed_vq=1,in_order=1,mrg_rxbuf=0",
        }
    }
}

impl Wire {
    fn ports(self, dir: &Path, server: bool) -> Vec<String> {
        let one = |i: usize| {
            let socket = dir.join(format!("p{i}"));
            let socket = socket.display();
            match (self, server) {
                (Self::Vhost(_), true) => format!("net_vhost{i},iface={socket}"),
                (Self::Vhost(rings), false) => format!(
                    "net_virtio_user{i},path={socket},queue_size=1024{}",
                    rings.words()
                ),
                (Self::Memif, _) => format!(
                    "net_memif{i},role={},id={i},socket-abstract=no,socket={socket},rsize=10",
                    if server { "server" } else { "client" }
                ),
            }
        };
        (0..2).map(one).collect()
    }
}

/// Both guests, in one testpmd on the first processor: each sends back what comes, so that frames go round, and both ways
/// are counted.
///
/// How to use it at a vhost-user switch: [`VirtioGuests::start`], then for each sample [`Guests::hold`] with `false`,
/// [`Guests::rate`], [`Guests::share`], [`Guests::hold`] with `true`.
pub struct Guests {
    testpmd: Testpmd,
    size: usize,
    burst: u32,
}

/// What the guests saw for some time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Frames that came through, both ways.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long.
    pub seconds: f64,
}

impl Seen {
    /// Millions of frames a second.
    pub fn mpps(&self) -> f64 {
        self.frames as f64 / self.seconds / 1e6
    }
}

/// Two virtio-user guests at a vhost-user switch, to be started.
pub struct VirtioGuests<'a> {
    /// The private root with DPDK, of [`rig::Rig::dpdk`].
    pub root: &'a Root,
    /// A folder for its files; made where there is none.
    pub dir: &'a Path,
    /// Unlike all others that run.
    pub name: &'a str,
    /// The switch's sockets.
    pub sockets: [PathBuf; 2],
    /// The guests listen there, and the switch connects.
    pub listen: bool,
    /// Their rings.
    pub rings: Rings,
    /// Bytes of a frame.
    pub size: usize,
    /// Most frames taken and sent at once.
    pub burst: u32,
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

impl VirtioGuests<'_> {
    /// The ports: guest n has the address [`mac`] of n.
    fn devices(&self) -> [String; 2] {
        [0, 1].map(|i| {
            format!(
                "net_virtio_user{i},path={},queue_size=1024{},mac={}{}",
                self.sockets[i].display(),
                self.rings.words(),
                text(mac(i)),
                if self.listen { ",server=1" } else { "" }
            )
        })
    }

    /// Starts them and puts frames into the circle: each guest's to the other's address.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn start(&self) -> Result<Guests> {
        let core = machine::cores().0;
        let mut options = vec![format!("--burst={}", self.burst)];
        options.extend([0, 1].map(|i| format!("--eth-peer={i},{}", text(mac(1 - i)))));
        std::fs::create_dir_all(self.dir)
            .map_err(Error::io(format!("make {}", self.dir.display())))?;
        let testpmd = begin_forwarding(&TestpmdSetup {
            root: self.root,
            name: self.name,
            dir: self.dir,
            devices: &self.devices(),
            options: &options,
            cores: (core, core),
        })?;
        Guests::new(testpmd, self.size, self.burst)
    }
}

/// One that forwards between its two ports as soon as it is told to.
fn begin_forwarding(setup: &TestpmdSetup<'_>) -> Result<Testpmd> {
    let mut testpmd = Testpmd::start(setup)?;
    for line in ["set fwd io retry", "set burst tx delay 1 retry 1000"] {
        testpmd.ask(line)?;
    }
    Ok(testpmd)
}

impl Guests {
    fn new(mut testpmd: Testpmd, size: usize, burst: u32) -> Result<Self> {
        testpmd.ask(&format!("set txpkts {size}"))?;
        let mut guests = Self {
            testpmd,
            size,
            burst,
        };
        guests.fill()?;
        Ok(guests)
    }

    /// Puts frames into the circle, which then go round for ever.
    ///
    /// # Errors
    /// When they are gone.
    pub fn fill(&mut self) -> Result<()> {
        // The links come up one after the other; what is sent before is lost.
        std::thread::sleep(Duration::from_millis(300));
        let bursts = ROUND.div_ceil(self.burst);
        self.testpmd.ask(&format!("start tx_first {bursts}"))?;
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    }

    /// Puts them in anew, after all were lost.
    ///
    /// # Errors
    /// When they are gone.
    pub fn refill(&mut self) -> Result<()> {
        self.testpmd.ask("stop")?;
        self.fill()
    }

    /// Their process.
    pub fn id(&self) -> u32 {
        self.testpmd.id()
    }

    /// Makes them stand still, or go on.
    pub fn hold(&self, held: bool) {
        self.testpmd.hold(held);
    }

    /// What comes through in some time.
    ///
    /// # Errors
    /// When they are gone.
    pub fn rate(&mut self, seconds: f64) -> Result<Seen> {
        let start = Instant::now();
        let (frames, bytes) = self.testpmd.received()?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (frames_after, bytes_after) = self.testpmd.received()?;
        Ok(Seen {
            frames: frames_after - frames,
            bytes: bytes_after - bytes,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// The part of the time, 0 to 1, that they were at work: cycles of polls that found frames, over a time of its own.
    ///
    /// # Errors
    /// When they are gone.
    pub fn share(&mut self) -> Result<f64> {
        Ok(shares(&mut [&mut self.testpmd])?[0])
    }

    /// A sample's raw data.
    pub fn raw(&self, seen: &Seen) -> Value {
        json!({
            "frames": seen.frames, "bytes": seen.bytes, "seconds": seen.seconds, "asked_size": self.size,
            "burst": self.burst,
        })
    }
}

/// The part of the time that the forwarding processor of each was in polls that found frames.
///
/// # Errors
/// When one is gone.
pub fn shares(all: &mut [&mut Testpmd]) -> Result<Vec<f64>> {
    for testpmd in all.iter_mut() {
        testpmd.count_cycles(true)?;
    }
    // The first poll that is counted begins where it was switched off.
    std::thread::sleep(MOMENT);
    let look = |all: &mut [&mut Testpmd]| -> Result<Vec<(u64, u64)>> {
        all.iter_mut().map(|t| Ok(t.cycles()?)).collect()
    };
    let before = look(all)?;
    std::thread::sleep(COUNTED);
    let after = look(all)?;
    for testpmd in all.iter_mut() {
        testpmd.count_cycles(false)?;
    }
    let share = |(b, a): (&(u64, u64), &(u64, u64))| {
        (a.0 - b.0) as f64 / a.1.saturating_sub(b.1).max(1) as f64
    };
    Ok(before.iter().zip(&after).map(share).collect())
}

/// A running pair.
struct Pair {
    // The guests go first: a memif server does not survive it the other way round.
    guests: Guests,
    switch: Testpmd,
}

/// Starts a pair for frames of one size, and stops it until it is sampled.
///
/// # Errors
/// When one does not come up or no frame comes through.
pub fn start(root: &Root, dir: &Path, id: &str, wire: Wire, size: usize) -> Result<Contender> {
    let (guest_core, switch_core) = machine::cores();
    let dir = dir.join(format!("{id}-{size}"));
    std::fs::create_dir_all(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
    let begin = |role: &str, server: bool, cores| {
        let home = dir.join(role);
        std::fs::create_dir_all(&home).map_err(Error::io(format!("make {}", home.display())))?;
        begin_forwarding(&TestpmdSetup {
            root,
            name: &format!("{id}{size}{role}"),
            dir: &home,
            devices: &wire.ports(&dir, server),
            options: &["--burst=64".to_owned()],
            cores,
        })
    };
    let mut switch = begin("switch", true, (switch_core, guest_core))?;
    switch.ask("start")?;
    let guests = Guests::new(begin("guests", false, (guest_core, guest_core))?, size, 64)?;
    let mut pair = Pair { guests, switch };
    let through = pair.guests.rate(0.2)?.mpps();
    pair.hold(true);
    came_through(through)?;
    Ok(Box::new(pair))
}

/// No frame came through where this is an error.
///
/// # Errors
/// When it is next to none.
pub fn came_through(mpps: f64) -> Result<()> {
    if mpps < 1e-5 {
        return Err(Error::Usage("no frame came through".to_owned()));
    }
    Ok(())
}

impl Pair {
    fn hold(&self, held: bool) {
        self.switch.hold(held);
        self.guests.hold(held);
    }
}

impl Peer for Pair {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        self.hold(false);
        std::thread::sleep(MOMENT);
        let before = Before::of(&[self.switch.id(), self.guests.id()]);
        let mut seen = self.guests.rate(seconds)?;
        let mut used = before.since();
        if seen.mpps() < 1e-3 {
            // All frames were lost while a peer was held: begin again.
            self.guests.refill()?;
            let before = Before::of(&[self.switch.id(), self.guests.id()]);
            seen = self.guests.rate(seconds)?;
            used = before.since();
        }
        let shares = shares(&mut [&mut self.switch, &mut self.guests.testpmd])?;
        self.hold(true);
        let mut raw = self.guests.raw(&seen);
        Cores {
            frames: seen.frames,
            seconds: seen.seconds,
            switch_cpu: used[0],
            switch_at_work: Some(used[0] * shares[0]),
            guests_cpu: used[1],
            guests_at_work: Some(shares[1]),
            looks_with_frames: None,
        }
        .note(&mut raw);
        Ok(Reading {
            value: seen.mpps(),
            raw,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_name_the_same_sockets() {
        let dir = Path::new("/s");
        for wire in [
            Wire::Vhost(Rings::Split),
            Wire::Vhost(Rings::Packed),
            Wire::Memif,
        ] {
            let (a, b) = (wire.ports(dir, true), wire.ports(dir, false));
            assert!(
                a[1].contains("/s/p1") && b[1].contains("/s/p1"),
                "{a:?} {b:?}"
            );
            assert_ne!(a, b);
        }
    }
}
