//! Our contenders: two guests of one daemon, on every way that a driver tells its NIC of frames.

use std::path::Path;

use rig::Root;
use serde_json::json;

use super::contender::{Contender, Peer};
use super::cores::{Cores, work_seconds};
use super::dpdk::Rings;
use super::party::{Party, each};
use super::virtio::{Shape, VirtioEnds};
use crate::error::Result;
use crate::fabric::{Bell, Ends, Fabric, Stream, Streamed, Traffic, delta};
use crate::flow;
use crate::machine;
use crate::options::Options;
use crate::stats::Reading;
use crate::vfs::VfEnds;

/// Frames queued before a guest rings.
const BURST: u32 = 64;
/// Descriptors of each ring.
const RING: u32 = 256;

/// Two NICs with this program's own drivers.
enum Nics {
    E1000(Box<Ends>),
    Vfs(Box<VfEnds>),
}

struct OverSockets {
    nics: Nics,
    both_ways: bool,
}

impl OverSockets {
    fn fabric(&self) -> &Fabric {
        match &self.nics {
            Nics::E1000(ends) => &ends.fabric,
            Nics::Vfs(ends) => &ends.fabric,
        }
    }

    fn run(&mut self, stream: Stream) -> Result<Streamed> {
        match &mut self.nics {
            Nics::E1000(ends) => ends.run_on(stream, &machine::guest_cores()),
            Nics::Vfs(ends) => flow::run_on(&mut ends.guests, stream, &machine::guest_cores()),
        }
    }
}

impl Peer for OverSockets {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        let (before, cpu) = (self.fabric().counters()?, self.fabric().cpu());
        let done = self.run(Stream {
            burst: BURST,
            both_ways: self.both_ways,
            seconds,
        })?;
        let cpu = self.fabric().cpu() - cpu;
        let daemon = delta(&before, &self.fabric().counters()?);
        let mut raw = json!({
            "sent": done.sent, "received": done.received, "seconds": done.seconds,
            "looks": done.looks, "found": done.found, "daemon": daemon,
        });
        Cores {
            frames: done.received,
            seconds: done.seconds,
            switch_cpu: cpu,
            switch_at_work: work_seconds(&daemon),
            guests_cpu: done.cpu,
            guests_at_work: Some(done.share_at_work()),
            looks_with_frames: Some(done.found as f64 / done.looks.max(1) as f64),
        }
        .note(&mut raw);
        Ok(Reading {
            value: done.received as f64 / done.seconds / 1e6,
            raw,
        })
    }
}

/// One of ours, which does not run where it does not come up.
struct Row {
    id: &'static str,
    name: &'static str,
    title: &'static str,
    how: &'static str,
    model: Model,
    both_ways: bool,
}

#[derive(Clone, Copy)]
enum Model {
    E1000(Bell),
    Vfs(Bell),
}

const ROWS: [Row; 8] = [
    Row {
        id: "hypernic",
        name: "hypernic",
        title: "hypernic, over its sockets",
        how: "one daemon with two e1000 on its switch on one processor; both guests' poll-mode drivers, bursts of 64, on the other",
        model: Model::E1000(Bell::Trap),
        both_ways: false,
    },
    Row {
        id: "both-ways",
        name: "hypernic, both ways",
        title: "the same, both ways",
        how: "each guest sends to the other, and both ways are counted, as with DPDK's",
        model: Model::E1000(Bell::Trap),
        both_ways: true,
    },
    Row {
        id: "csb",
        name: "hypernic, CSB",
        title: "hypernic, drivers with a CSB",
        how: "as the first; the drivers have a Communication Status Block (`--csb`) in place of tail registers, so that a burst \
              is no message, as with DPDK's",
        model: Model::E1000(Bell::Csb),
        both_ways: false,
    },
    Row {
        id: "csb-both-ways",
        name: "hypernic, CSB, both ways",
        title: "the same, both ways",
        how: "as above, and both ways are counted",
        model: Model::E1000(Bell::Csb),
        both_ways: true,
    },
    Row {
        id: "page",
        name: "hypernic, pages",
        title: "hypernic, doorbell pages",
        how: "as the first; the tail registers are in a page of memory that the NIC looks at (`doorbell = \"page\"`)",
        model: Model::E1000(Bell::Page),
        both_ways: false,
    },
    Row {
        id: "page-both-ways",
        name: "hypernic, pages, both ways",
        title: "the same, both ways",
        how: "as above, and both ways are counted",
        model: Model::E1000(Bell::Page),
        both_ways: true,
    },
    Row {
        id: "vf-page",
        name: "82576 VFs, pages",
        title: "82576 VFs, doorbell pages",
        how: "one daemon with an 82576 of two VFs, which send to each other inside the chip; tail registers in memory; otherwise \
              as the first",
        model: Model::Vfs(Bell::Page),
        both_ways: false,
    },
    Row {
        id: "vf-page-both-ways",
        name: "82576 VFs, pages, both ways",
        title: "the same, both ways",
        how: "as above, and both ways are counted",
        model: Model::Vfs(Bell::Page),
        both_ways: true,
    },
];

/// Which of the rows DPDK's own are compared with: it sends no messages, and counts both ways.
pub const LIKE_DPDKS: &str = "csb-both-ways";

fn start(options: &Options, row: &Row, size: usize) -> Result<Contender> {
    let hypernic = options.hypernic();
    let nics = match row.model {
        Model::E1000(bell) => {
            let words = options.daemon();
            let kind = Traffic::Plain(size);
            let ends = Ends::start_by(&hypernic, kind, RING, &words, bell)?;
            Nics::E1000(Box::new(ends))
        }
        Model::Vfs(bell) => {
            let ends = VfEnds::start(&hypernic, size, RING, bell)?;
            Nics::Vfs(Box::new(ends))
        }
    };
    let both_ways = row.both_ways;
    Ok(Box::new(OverSockets { nics, both_ways }))
}

/// All of ours with drivers of this program.
pub fn parties(options: &Options) -> Vec<Party> {
    ROWS.iter()
        .map(|row| Party {
            id: row.id,
            name: row.name,
            ours: true,
            title: row.title,
            how: row.how,
            ready: each(&|size| start(options, row, size)).map_err(|e| e.to_string()),
        })
        .collect()
}

/// Ours with the guests that DPDK's rows have.
pub fn virtio(
    options: &Options,
    root: &std::result::Result<Root, String>,
    scratch: &Path,
) -> Vec<Party> {
    let ready = |id: &str, rings| {
        let root = root.as_ref().map_err(Clone::clone)?;
        let hypernic = options.hypernic();
        let words = options.daemon();
        each(&|size| {
            let shape = Shape {
                rings,
                size,
                burst: BURST,
            };
            let name = format!("{id}{size}");
            let ends = VirtioEnds::start((&hypernic, &words), (root, scratch), &name, shape)?;
            Ok(Box::new(ends) as Contender)
        })
        .map_err(|e| e.to_string())
    };
    vec![
        Party {
            id: "virtio-packed",
            name: "hypernic, virtio, packed",
            ours: true,
            title: "hypernic, virtio-net over vhost-user, packed rings in order",
            how: "one daemon with two virtio-net NICs on its switch, `transport = \"vhost-user\"`; the guests are those of \
                  DPDK's row with these rings, in the same program",
            ready: ready("virtio-packed", Rings::Packed),
        },
        Party {
            id: "virtio-split",
            name: "hypernic, virtio, split",
            ours: true,
            title: "hypernic, virtio-net over vhost-user, split rings",
            how: "the same with split rings and virtio-user's defaults",
            ready: ready("virtio-split", Rings::Split),
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_workers_time_in_turns_is_its_work() {
        let daemon = |name: &str| BTreeMap::from([(name.to_owned(), 1_500_000_000)]);
        assert_eq!(work_seconds(&daemon("worker.work_ns")), Some(1.5));
        // A NIC's own share of it is not the whole.
        assert_eq!(work_seconds(&daemon("work_ns")), None);
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let mut ids: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ROWS.len());
        assert!(ids.contains(&LIKE_DPDKS));
    }
}
