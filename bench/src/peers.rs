//! Ours beside what else carries frames between two guests, in one run and in turns.

pub mod contender;
pub mod cores;
pub mod dpdk;
pub mod kernel;
mod ours;
pub mod ovs;
mod page;
mod party;
pub mod virtio;

use rig::{Rig, Root};

use self::contender::Contender;
use self::party::{Party, SIZES, each};
use crate::error::{Error, Result};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::report::Report;
use crate::stats::{Column, figure, in_turns};

pub use self::cores::work_seconds;
pub use self::page::reason;

/// Parties, whether they run here or not.
const PARTIES: f64 = 16.0;

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.4 } else { 0.8 }
}

/// There are many parties, so there are fewer rounds than elsewhere.
fn rounds(options: &Options) -> usize {
    options.rounds().min(5)
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let samples = PARTIES * (SIZES.len() * rounds(options)) as f64;
    60.0 + samples * (seconds(options) + 0.3)
}

/// Runs the module.
///
/// # Errors
/// When not even ours runs.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new(
        "peers",
        "Guest to guest: hypernic beside its peers, on the same two processors",
    );
    let scratch = machine::scratch()?;
    let rig = Rig::prepare().map_err(rig::Error::from)?;
    let mut parties = parties(options, &rig, scratch.path());
    for party in &parties {
        if let Err(why) = &party.ready {
            eprintln!("  {} does not run here: {why}", party.id);
        }
    }
    let mut quiet = options.quiet();
    let mut results = Vec::new();
    for (at, size) in SIZES.into_iter().enumerate() {
        let mut columns: Vec<Column> = parties.iter().map(|p| Column::new(p.id)).collect();
        let running: Vec<usize> = (0..parties.len())
            .filter(|&i| parties[i].ready.is_ok() && options.wants(parties[i].id))
            .collect();
        let mut shown: Vec<Column> = running.iter().map(|&i| columns[i].clone()).collect();
        eprint!("  {size} bytes");
        in_turns(
            &mut quiet,
            rounds(options),
            &mut shown,
            |i| match &mut parties[running[i]].ready {
                Ok(ready) => ready[at].sample(seconds(options)),
                Err(why) => Err(Error::Usage(why.clone())),
            },
        )?;
        for (column, &i) in shown.into_iter().zip(&running) {
            eprint!(" {} {}", column.id, figure(column.median()));
            columns[i] = column;
        }
        eprintln!();
        results.push((size, columns));
    }
    page::write(&mut page, &parties, &results);
    drop(parties);
    Ok(page.finish(&quiet))
}

fn parties(options: &Options, rig: &Rig, scratch: &std::path::Path) -> Vec<Party> {
    let mut all = ours::parties(options);
    let root = rig.dpdk().map_err(|e| e.to_string());
    let two = machine::cores().0 != machine::cores().1;
    let root = root.and_then(|root| {
        two.then_some(root)
            .ok_or("it polls on two processors, and there is one".to_owned())
    });
    all.extend(ours::virtio(options, &root, scratch));
    all.extend(of_dpdk(rig, &root, scratch));
    all.extend(of_the_kernel(rig, scratch));
    all
}

fn of_dpdk(
    rig: &Rig,
    root: &std::result::Result<Root, String>,
    scratch: &std::path::Path,
) -> Vec<Party> {
    use dpdk::{Rings, Wire};
    let words = |found: Result<Vec<Contender>>| found.map_err(|e| e.to_string());
    let dpdk = |id: &str, wire| {
        let root = root.as_ref().map_err(Clone::clone)?;
        words(each(&|size| dpdk::start(root, scratch, id, wire, size)))
    };
    let ovs = root
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|root| words(ovs::start(rig, root, scratch, &SIZES)));
    vec![
        Party {
            id: "memif",
            name: "memif",
            ours: false,
            title: "DPDK testpmd, memif",
            how: "io forwarding between two memif servers, 1024 slots; a second testpmd is both guests; frames go round in \
                  bursts of 64, and both ways are counted",
            ready: dpdk("memif", Wire::Memif),
        },
        Party {
            id: "vhost-packed",
            name: "vhost-packed",
            ours: false,
            title: "DPDK testpmd, vhost-user, packed rings in order",
            how: "the same between two vhost-user servers; the guests are virtio-user with packed rings, in order, not mergeable",
            ready: dpdk("vhost-packed", Wire::Vhost(Rings::Packed)),
        },
        Party {
            id: "vhost-split",
            name: "vhost-split",
            ours: false,
            title: "DPDK testpmd, vhost-user, split rings",
            how: "the same with split rings and virtio-user's defaults",
            ready: dpdk("vhost-split", Wire::Vhost(Rings::Split)),
        },
        Party {
            id: "ovs-dpdk",
            name: "ovs-dpdk",
            ours: false,
            title: "Open vSwitch with DPDK, vhost-user",
            how: "two vhost-user ports, explicit flows, one polling thread; guests as above with packed rings",
            ready: ovs,
        },
    ]
}

fn of_the_kernel(rig: &Rig, scratch: &std::path::Path) -> Vec<Party> {
    let words = |e: Error| e.to_string();
    vec![
        Party {
            id: "bridge",
            name: "bridge",
            ours: false,
            title: "kernel bridge, two TAPs",
            how: "one write and one read for each frame; the writer, in whose time the bridge works, on one processor, the reader \
                  on the other; at most 256 frames under way",
            ready: kernel::bridge(rig, &SIZES).map_err(words),
        },
        Party {
            id: "vde",
            name: "vde",
            ours: false,
            title: "vde_switch",
            how: "one datagram in and one out for each frame; the switch on one processor, both ends on the other",
            ready: kernel::vde(rig, scratch, &SIZES).map_err(words),
        },
    ]
}
