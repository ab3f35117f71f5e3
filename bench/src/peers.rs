//! Ours beside what else carries frames between two guests, in one run and in turns.

mod contender;
mod dpdk;
pub mod kernel;
pub mod ovs;

use rig::Rig;
use serde_json::{Value, json};

use self::contender::{Contender, Peer};
use crate::error::{Error, Result};
use crate::fabric::{Ends, Stream, Traffic};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::plot::{self, Bar, Whose};
use crate::report::Report;
use crate::stats::{Column, Reading, figure, in_turns};

/// Frame sizes compared.
const SIZES: [usize; 2] = [60, 1514];

/// What is compared, with one contender for each size that it can do.
struct Party {
    id: &'static str,
    /// In plots.
    name: &'static str,
    ours: bool,
    title: &'static str,
    how: &'static str,
    ready: std::result::Result<Vec<Contender>, String>,
}

struct OverSockets {
    ends: Ends,
    both_ways: bool,
}

impl Peer for OverSockets {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        let cpu = self.ends.fabric.cpu();
        let done = self.ends.run(Stream {
            burst: 64,
            both_ways: self.both_ways,
            seconds,
        })?;
        Ok(Reading {
            value: done.received as f64 / done.seconds / 1e6,
            raw: json!({
                "sent": done.sent, "received": done.received, "seconds": done.seconds,
                "daemon_cpu": self.ends.fabric.cpu() - cpu,
            }),
        })
    }
}

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.4 } else { 1.0 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let parties = 12.0 * SIZES.len() as f64;
    45.0 + parties * options.rounds() as f64 * (seconds(options) + 0.15)
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
            options.rounds(),
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
    write(&mut page, &parties, &results);
    drop(parties);
    Ok(page.finish(&quiet))
}

fn parties(options: &Options, rig: &Rig, scratch: &std::path::Path) -> Vec<Party> {
    let mut all = ours(options);
    all.extend(of_dpdk(rig, scratch));
    all.extend(of_the_kernel(rig, scratch));
    all
}

/// A contender for each size.
fn each(start: &dyn Fn(usize) -> Result<Contender>) -> Result<Vec<Contender>> {
    SIZES.into_iter().map(start).collect()
}

fn ours(options: &Options) -> Vec<Party> {
    let (binary, words_for_it) = (options.hypernic(), options.daemon());
    let ready = |csb: bool, both_ways: bool| {
        each(&|size| {
            let start = if csb { Ends::start_csb } else { Ends::start };
            let ends = start(&binary, Traffic::Plain(size), 256, &words_for_it)?;
            Ok(Box::new(OverSockets { ends, both_ways }) as Contender)
        })
        .map_err(|e| e.to_string())
    };
    vec![
        Party {
            id: "hypernic",
            name: "hypernic",
            ours: true,
            title: "hypernic, over its sockets",
            how: "one daemon with two e1000 on its switch on one processor; both guests' poll-mode drivers, bursts of 64, on \
                  the other",
            ready: ready(false, false),
        },
        Party {
            id: "both-ways",
            name: "hypernic, both ways",
            ours: true,
            title: "the same, both ways",
            how: "each guest sends to the other, and both ways are counted, as with DPDK's",
            ready: ready(false, true),
        },
        Party {
            id: "csb",
            name: "hypernic, CSB",
            ours: true,
            title: "hypernic, drivers with a CSB",
            how: "as the first; the drivers have a Communication Status Block (`--csb`) in place of tail registers, so that a burst \
                  is no message, as with DPDK's",
            ready: ready(true, false),
        },
        Party {
            id: "csb-both-ways",
            name: "hypernic, CSB, both ways",
            ours: true,
            title: "the same, both ways",
            how: "as above, and both ways are counted",
            ready: ready(true, true),
        },
    ]
}

fn of_dpdk(rig: &Rig, scratch: &std::path::Path) -> Vec<Party> {
    let two = machine::cores().0 != machine::cores().1;
    let pollers = |found: Result<Vec<Contender>>| {
        if two {
            found.map_err(|e| e.to_string())
        } else {
            Err("it polls on two processors, and there is one".to_owned())
        }
    };
    let root = rig.dpdk();
    let dpdk = |id: &str, wire| {
        let root = match &root {
            Ok(root) => root,
            Err(e) => return Err(e.to_string()),
        };
        pollers(each(&|size| dpdk::start(root, scratch, id, wire, size)))
    };
    let ovs = match &root {
        Ok(root) => pollers(ovs::start(rig, root, scratch, &SIZES)),
        Err(e) => Err(e.to_string()),
    };
    vec![
        Party {
            id: "memif",
            name: "memif",
            ours: false,
            title: "DPDK testpmd, memif",
            how: "io forwarding between two memif servers, 1024 slots; a second testpmd is both guests; frames go round in \
                  bursts of 64, and both ways are counted",
            ready: dpdk("memif", dpdk::Wire::Memif),
        },
        Party {
            id: "vhost-packed",
            name: "vhost-packed",
            ours: false,
            title: "DPDK testpmd, vhost-user, packed rings in order",
            how: "the same between two vhost-user servers; the guests are virtio-user with packed rings, in order, not mergeable",
            ready: dpdk("vhost-packed", dpdk::Wire::VhostPacked),
        },
        Party {
            id: "vhost-split",
            name: "vhost-split",
            ours: false,
            title: "DPDK testpmd, vhost-user, split rings",
            how: "the same with split rings and virtio-user's defaults",
            ready: dpdk("vhost-split", dpdk::Wire::VhostSplit),
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

fn write(page: &mut Page, parties: &[Party], results: &[(usize, Vec<Column>)]) {
    page.text(
        "Frames per second that came through, in millions; one processor switches, the other is both guests. Medians over rounds \
         (smallest–largest); the ratios are ours over the peer's, round by round: of the first row, and of the \
         fourth, which counts what DPDK's rows count and sends no messages either.",
    );
    for (size, columns) in results {
        let ours = &columns[0];
        // With neither messages nor one way only: what DPDK's figures are of.
        let alike = &columns[3];
        let gbit = |mpps: f64| figure(mpps * *size as f64 * 8.0 / 1e3);
        let rows: Vec<Vec<String>> = parties
            .iter()
            .zip(columns)
            .filter(|(_, c)| c.summary().is_some())
            .map(|(party, column)| {
                vec![
                    party.title.to_owned(),
                    column.words(),
                    gbit(column.median()),
                    ours.ratio_words(column),
                    alike.ratio_words(column),
                ]
            })
            .collect();
        page.heading(&format!("{size} bytes"));
        page.table(
            &["", "Mpps", "Gbit/s", "ours / this", "CSB both ways / this"],
            &rows,
        );
        let bars = parties.iter().zip(columns).filter_map(|(party, c)| {
            let s = c.summary()?;
            Some(Bar {
                name: party.name.to_owned(),
                whose: Whose::ours(party.ours),
                median: s.median,
                spread: (s.min, s.max),
            })
        });
        page.plot(plot::bars(
            &format!("{size}"),
            &format!("Frames of {size} bytes from guest to guest"),
            "Mpps",
            bars.collect(),
        ));
    }
    page.heading("How each was run");
    let how: Vec<String> = parties
        .iter()
        .map(|p| match &p.ready {
            Ok(_) => format!("**{}**: {}.", p.title, p.how),
            Err(why) => format!("**{}** does not run here: {why}", p.title),
        })
        .collect();
    page.list(&how);
    page.text(
        "Those that poll are stopped (SIGSTOP) while another is measured. They are Debian's packages, installed or unpacked into a \
         private folder.",
    );
    let data: Vec<Value> = results
        .iter()
        .map(|(size, columns)| {
            json!({"size": size, "columns": columns.iter().map(Column::json).collect::<Vec<_>>()})
        })
        .collect();
    page.data("sizes", data);
}
