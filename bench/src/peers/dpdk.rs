//! Pairs of testpmd processes: one is the switch, the other both guests, joined by vhost-user or memif.

use std::path::Path;
use std::time::{Duration, Instant};

use rig::{Root, Testpmd, TestpmdSetup};
use serde_json::json;

use super::contender::{Contender, Peer};
use crate::error::{Error, Result};
use crate::machine;
use crate::stats::Reading;

/// How the two processes are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// vhost-user with split rings, as a guest has them that negotiates nothing.
    VhostSplit,
    /// vhost-user with packed rings used in order: its best.
    VhostPacked,
    /// memif with 1024 slots.
    Memif,
}

impl Wire {
    fn ports(self, dir: &Path, server: bool) -> Vec<String> {
        let one = |i: usize| {
            let socket = dir.join(format!("p{i}"));
            let socket = socket.display();
            let user = format!("net_virtio_user{i},path={socket},queue_size=1024");
            match (self, server) {
                (Self::VhostSplit | Self::VhostPacked, true) => {
                    format!("net_vhost{i},iface={socket}")
                }
                (Self::VhostSplit, false) => user,
                (Self::VhostPacked, false) => {
                    format!("{user},packed_vq=1,in_order=1,mrg_rxbuf=0")
                }
                (Self::Memif, _) => format!(
                    "net_memif{i},role={},id={i},socket-abstract=no,socket={socket},rsize=10",
                    if server { "server" } else { "client" }
                ),
            }
        };
        (0..2).map(one).collect()
    }
}

/// A running pair.
struct Pair {
    // The guests go first: a memif server does not survive it the other way round.
    guests: Testpmd,
    switch: Option<Testpmd>,
    size: usize,
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
    let guests = begin("guests", false, (guest_core, guest_core))?;
    finish(guests, Some(switch), size)
}

/// Two guests at another program's vhost-user server.
///
/// # Errors
/// As [`start`].
pub fn guests_at(root: &Root, dir: &Path, sockets: [&Path; 2], size: usize) -> Result<Contender> {
    let core = machine::cores().0;
    let devices = [0, 1].map(|i| {
        format!(
            "net_virtio_user{i},path={},queue_size=1024,packed_vq=1,in_order=1,mrg_rxbuf=0,server=1,mac=02:00:00:00:be:0{}",
            sockets[i].display(),
            i + 1
        )
    });
    let guests = begin_forwarding(&TestpmdSetup {
        root,
        name: &format!("guests{size}"),
        dir,
        devices: &devices,
        options: &["--burst=64".to_owned()],
        cores: (core, core),
    })?;
    finish(guests, None, size)
}

/// One that forwards between its two ports as soon as it is told to.
fn begin_forwarding(setup: &TestpmdSetup<'_>) -> Result<Testpmd> {
    let mut testpmd = Testpmd::start(setup)?;
    for line in ["set fwd io retry", "set burst tx delay 1 retry 1000"] {
        testpmd.ask(line)?;
    }
    Ok(testpmd)
}

fn finish(mut guests: Testpmd, switch: Option<Testpmd>, size: usize) -> Result<Contender> {
    guests.ask(&format!("set txpkts {size}"))?;
    let mut pair = Pair {
        guests,
        switch,
        size,
    };
    pair.fill()?;
    let through = pair.rate(0.2)?.value;
    pair.hold(true);
    if through < 1e-5 {
        return Err(Error::Usage("no frame came through".to_owned()));
    }
    Ok(Box::new(pair))
}

impl Pair {
    /// Puts frames into the circle, which then go round for ever.
    fn fill(&mut self) -> Result<()> {
        // The links come up one after the other; what is sent before is lost.
        std::thread::sleep(Duration::from_millis(300));
        self.guests.ask("start tx_first 12")?;
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    }

    fn rate(&mut self, seconds: f64) -> Result<Reading> {
        let start = Instant::now();
        let (frames, bytes) = self.guests.received()?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (frames_after, bytes_after) = self.guests.received()?;
        let took = start.elapsed().as_secs_f64();
        let (frames, bytes) = (frames_after - frames, bytes_after - bytes);
        Ok(Reading {
            value: frames as f64 / took / 1e6,
            raw: json!({"frames": frames, "bytes": bytes, "seconds": took, "asked_size": self.size}),
        })
    }

    fn hold(&self, held: bool) {
        if let Some(switch) = &self.switch {
            switch.hold(held);
        }
        self.guests.hold(held);
    }
}

impl Peer for Pair {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        self.hold(false);
        std::thread::sleep(Duration::from_millis(30));
        let mut reading = self.rate(seconds)?;
        if reading.value < 1e-3 {
            // All frames were lost while a peer was held: begin again.
            self.guests.ask("stop")?;
            self.fill()?;
            reading = self.rate(seconds)?;
        }
        self.hold(true);
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_name_the_same_sockets() {
        let dir = Path::new("/s");
        for wire in [Wire::VhostSplit, Wire::VhostPacked, Wire::Memif] {
            let (a, b) = (wire.ports(dir, true), wire.ports(dir, false));
            assert!(
                a[1].contains("/s/p1") && b[1].contains("/s/p1"),
                "{a:?} {b:?}"
            );
            assert_ne!(a, b);
        }
    }
}
