//! Which NIC to choose: every model of ours and QEMU's e1000, igb and virtio-net on a TAP, in one guest and one run.

mod bed;
mod page;
pub mod party;
mod scene;

use std::path::PathBuf;

use self::bed::Bed;
use self::party::PARTIES;
use self::scene::{Found, Scene};
use crate::error::Result;
use crate::options::Options;
use crate::report::Report;
use crate::stats::{Column, Reading, in_turns};

fn tcp(bed: &Bed, at: usize, receive: bool, quick: bool) -> Result<Reading> {
    bed.tcp(at, receive, if quick { 1 } else { 2 })
}

const fn stream(
    id: &'static str,
    title: &'static str,
    mtu: u32,
    run: fn(&Bed, usize, bool) -> Result<Reading>,
) -> Scene {
    Scene {
        id,
        title,
        unit: "Gbit/s",
        less: false,
        mtu,
        seconds: 2.5,
        run,
    }
}

static SCENES: [Scene; 7] = [
    Scene {
        id: "rtt",
        title: "Round trip, guest to host and back",
        unit: "µs",
        less: true,
        mtu: 1500,
        seconds: 1.3,
        run: |bed, at, quick| bed.ping(at, if quick { 50 } else { 100 }),
    },
    stream(
        "tx1500",
        "TCP, guest sends, MTU 1500",
        1500,
        |bed, at, quick| tcp(bed, at, false, quick),
    ),
    stream(
        "rx1500",
        "TCP, guest receives, MTU 1500",
        1500,
        |bed, at, quick| tcp(bed, at, true, quick),
    ),
    Scene {
        id: "small_tx",
        title: "Frames of 60 bytes that the guest sends",
        unit: "thousand/s",
        less: false,
        mtu: 1500,
        seconds: 0.8,
        run: |bed, at, quick| bed.pktgen(at, if quick { 15_000 } else { 30_000 }),
    },
    Scene {
        id: "small_rx",
        title: "Frames of 60 bytes that the guest receives",
        unit: "thousand/s",
        less: false,
        mtu: 1500,
        seconds: 1.5,
        run: |bed, at, _| bed.flood(at, 1.0),
    },
    stream(
        "tx9000",
        "TCP, guest sends, MTU 9000",
        9000,
        |bed, at, quick| tcp(bed, at, false, quick),
    ),
    stream(
        "rx9000",
        "TCP, guest receives, MTU 9000",
        9000,
        |bed, at, quick| tcp(bed, at, true, quick),
    ),
];

/// A guest takes its time, so there are fewer rounds than elsewhere.
fn rounds(options: &Options) -> usize {
    options.rounds().min(5)
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let once: f64 = SCENES.iter().map(|scene| scene.seconds).sum();
    30.0 + once * (PARTIES.len() * rounds(options)) as f64
}

/// Runs the module.
///
/// # Errors
/// When this machine cannot run guests, or a measurement fails.
pub fn run(options: &Options) -> Result<Report> {
    let hypernic: PathBuf = options.hypernic();
    eprintln!("  booting the guest with {} NICs", PARTIES.len());
    let mut page = page::begin();
    let mut bed = Bed::new(&hypernic)?;
    let mut quiet = options.quiet();
    let mut results = Vec::new();
    let mut mtu = 1500;
    for scene in SCENES.iter().filter(|scene| options.wants(scene.id)) {
        if scene.mtu != mtu {
            bed.mtu(scene.mtu)?;
            mtu = scene.mtu;
        }
        let mut columns: Vec<Column> = PARTIES.iter().map(|p| Column::new(p.id)).collect();
        eprint!("  {}", scene.title);
        in_turns(&mut quiet, rounds(options), &mut columns, |at| {
            (scene.run)(&bed, at, options.quick)
        })?;
        for column in &columns {
            eprint!(" {} {:.2}", column.id, column.median());
        }
        eprintln!(" {}", scene.unit);
        results.push(Found { scene, columns });
    }
    page::fill(&mut page, &bed, &results, rounds(options))?;
    Ok(page.finish(&quiet))
}
