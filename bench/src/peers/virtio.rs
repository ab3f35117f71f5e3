//! Our virtio-net over vhost-user, with the guests that DPDK's own rows have: testpmd with virtio-user.

use std::path::Path;

use rig::Root;
use serde_json::json;

use super::contender::Peer;
use super::cores::{Before, Cores, work_seconds};
use super::dpdk::{Guests, Rings, Seen, VirtioGuests, came_through};
use crate::error::Result;
use crate::fabric::{Fabric, delta};
use crate::machine;
use crate::stats::Reading;

/// A daemon with two virtio-net NICs on its switch, and the guests at them, which stand still until they are sampled.
pub struct VirtioEnds {
    guests: Guests,
    /// The daemon.
    pub fabric: Fabric,
}

/// What both ends are like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The guests' rings.
    pub rings: Rings,
    /// Bytes of a frame.
    pub size: usize,
    /// Most frames taken and sent at once.
    pub burst: u32,
}

impl VirtioEnds {
    /// Starts a daemon on the second processor, and two guests on the first; `name` is unlike all others that run.
    ///
    /// # Errors
    /// When one does not come up, or no frame comes through.
    pub fn start(
        (hypernic, words): (&Path, &[String]),
        (root, scratch): (&Root, &Path),
        name: &str,
        shape: Shape,
    ) -> Result<Self> {
        let mut words = words.to_vec();
        let vhost = ["--model", "virtio-net", "--transport", "vhost-user"];
        words.extend(vhost.map(str::to_owned));
        let core = Some(machine::cores().1);
        let fabric = Fabric::start(hypernic, 2, "switch:lan", &words, core)?;
        let guests = VirtioGuests {
            root,
            dir: &scratch.join(name),
            name,
            sockets: [0, 1].map(|n| fabric.socket(n)),
            listen: false,
            rings: shape.rings,
            size: shape.size,
            burst: shape.burst,
        }
        .start()?;
        let mut ends = Self { guests, fabric };
        let through = ends.guests.rate(0.2)?.mpps();
        ends.guests.hold(true);
        came_through(through)?;
        Ok(ends)
    }

    /// Lets the guests run for some time, with what `during` does before and after, and tells what they saw.
    ///
    /// # Errors
    /// When they are gone.
    pub fn run<T>(
        &mut self,
        seconds: f64,
        begin: impl Fn(&Fabric) -> Result<T>,
    ) -> Result<(T, Seen)> {
        self.guests.hold(false);
        std::thread::sleep(std::time::Duration::from_millis(30));
        let mut begun = begin(&self.fabric)?;
        let mut seen = self.guests.rate(seconds)?;
        if seen.mpps() < 1e-3 {
            self.guests.refill()?;
            begun = begin(&self.fabric)?;
            seen = self.guests.rate(seconds)?;
        }
        Ok((begun, seen))
    }

    /// Makes the guests stand still.
    pub fn stop(&self) {
        self.guests.hold(true);
    }
}

impl Peer for VirtioEnds {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        let ids = [self.fabric.id(), self.guests.id()];
        let ((counters, before), seen) =
            self.run(seconds, |fabric| Ok((fabric.counters()?, Before::of(&ids))))?;
        let used = before.since();
        let daemon = delta(&counters, &self.fabric.counters()?);
        let share = self.guests.share()?;
        self.stop();
        let mut raw = self.guests.raw(&seen);
        raw["daemon"] = json!(daemon);
        Cores {
            frames: seen.frames,
            seconds: seen.seconds,
            switch_cpu: used[0],
            switch_at_work: work_seconds(&daemon),
            guests_cpu: used[1],
            guests_at_work: Some(share),
            looks_with_frames: None,
        }
        .note(&mut raw);
        Ok(Reading {
            value: seen.mpps(),
            raw,
        })
    }
}
