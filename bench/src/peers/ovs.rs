//! Open vSwitch with DPDK: two vhost-user ports and one polling thread.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rig::{Ovs, OvsSetup, Rig, Root};

use super::contender::{Contender, Peer};
use super::cores::{Before, Cores};
use super::dpdk::{Guests, Rings, VirtioGuests, came_through};
use crate::error::{Error, Result};
use crate::machine;
use crate::stats::Reading;

struct Pair {
    guests: Guests,
    switch: Rc<Ovs>,
}

/// Starts it with a pair of ports for each size.
///
/// # Errors
/// When it cannot be had or run; the reason belongs into the report.
pub fn start(rig: &Rig, dpdk: &Root, scratch: &Path, sizes: &[usize]) -> Result<Vec<Contender>> {
    let (running, sockets) = switch(rig, scratch, sizes.len())?;
    let mut all: Vec<Contender> = Vec::new();
    for (sockets, &size) in sockets.iter().zip(sizes) {
        let home = scratch.join("ovs").join(format!("guests{size}"));
        fs::create_dir_all(&home).map_err(Error::io(format!("make {}", home.display())))?;
        let guests = VirtioGuests {
            root: dpdk,
            dir: &home,
            name: &format!("guests{size}"),
            sockets: sockets.clone(),
            listen: true,
            rings: Rings::Packed,
            size,
            burst: 64,
        };
        let mut guests = guests.start()?;
        came_through(guests.rate(0.2)?.mpps())?;
        guests.hold(true);
        all.push(Box::new(Pair {
            guests,
            switch: Rc::clone(&running),
        }));
    }
    running.hold(true);
    Ok(all)
}

/// Two sockets, whose ports send to each other.
type Sockets = [PathBuf; 2];

/// Starts it with so many pairs of ports that send to each other; gives their sockets, which guests listen on.
///
/// # Errors
/// When it cannot be had or run; the reason belongs into the report.
pub fn switch(rig: &Rig, scratch: &Path, pairs: usize) -> Result<(Rc<Ovs>, Vec<Sockets>)> {
    let setup = OvsSetup {
        cores: machine::cores(),
        memory: 900,
        options: &[],
    };
    let ovs = Ovs::start(rig, &scratch.join("ovs"), &setup)?;
    let mut all = Vec::new();
    for n in 0..pairs {
        let ports = [10 * (n + 1), 10 * (n + 1) + 1];
        let names = [format!("p{n}a"), format!("p{n}b")];
        for (name, port) in names.iter().zip(ports) {
            ovs.add_port(name, port)?;
        }
        ovs.join(ports[0], ports[1])?;
        all.push(names.map(|name| ovs.path(&name)));
    }
    Ok((Rc::new(ovs), all))
}

impl Peer for Pair {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        self.switch.hold(false);
        std::thread::sleep(Duration::from_millis(200));
        self.guests.hold(false);
        std::thread::sleep(Duration::from_millis(30));
        let ids = [self.switch.id(), self.guests.id()];
        let (mut before, mut begun) = (Before::of(&ids), self.switch.cycles());
        let mut seen = self.guests.rate(seconds)?;
        if seen.mpps() < 1e-3 {
            // All frames were lost while a peer was held: begin again.
            self.guests.refill()?;
            (before, begun) = (Before::of(&ids), self.switch.cycles());
            seen = self.guests.rate(seconds)?;
        }
        let used = before.since();
        let share = begun.zip(self.switch.cycles());
        let share = share.map(|(b, a)| (a.0 - b.0) / (a.1 - b.1).max(1.0));
        // Its counters can go back, too.
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        let at_work = self.guests.share()?;
        self.guests.hold(true);
        self.switch.hold(true);
        let mut raw = self.guests.raw(&seen);
        Cores {
            frames: seen.frames,
            seconds: seen.seconds,
            switch_cpu: used[0],
            switch_at_work: share.map(|share| share * seen.seconds),
            guests_cpu: used[1],
            guests_at_work: Some(at_work),
            looks_with_frames: None,
        }
        .note(&mut raw);
        Ok(Reading {
            value: seen.mpps(),
            raw,
        })
    }
}
