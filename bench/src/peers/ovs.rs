//! Open vSwitch with DPDK: two vhost-user ports and one polling thread.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rig::{Ovs, OvsSetup, Rig, Root};

use super::contender::{Contender, Peer};
use super::dpdk;
use crate::error::{Error, Result};
use crate::machine;
use crate::stats::Reading;

struct Pair {
    guests: Contender,
    switch: Rc<Ovs>,
}

/// Starts it with a pair of ports for each size.
///
/// # Errors
/// When it cannot be had or run; the reason belongs into the report.
pub fn start(rig: &Rig, dpdk: &Root, scratch: &Path, sizes: &[usize]) -> Result<Vec<Contender>> {
    let setup = OvsSetup {
        cores: machine::cores(),
        memory: 900,
        options: &[],
    };
    let ovs = Rc::new(Ovs::start(rig, &scratch.join("ovs"), &setup)?);
    let mut all: Vec<Contender> = Vec::new();
    for (n, &size) in sizes.iter().enumerate() {
        let ports = [10 * (n + 1), 10 * (n + 1) + 1];
        let names = [format!("p{n}a"), format!("p{n}b")];
        for (name, port) in names.iter().zip(ports) {
            ovs.add_port(name, port)?;
        }
        ovs.join(ports[0], ports[1])?;
        let home = ovs.path(&format!("guests{size}"));
        fs::create_dir_all(&home).map_err(Error::io(format!("make {}", home.display())))?;
        let sockets = [ovs.path(&names[0]), ovs.path(&names[1])];
        let guests = dpdk::guests_at(dpdk, &home, [&sockets[0], &sockets[1]], size)?;
        all.push(Box::new(Pair {
            guests,
            switch: Rc::clone(&ovs),
        }));
    }
    ovs.hold(true);
    Ok(all)
}

impl Peer for Pair {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        self.switch.hold(false);
        std::thread::sleep(Duration::from_millis(200));
        let reading = self.guests.sample(seconds);
        self.switch.hold(true);
        reading
    }
}
