//! The figures of "High Performance Network Virtualization with SR-IOV" again: what VMs on VFs of an 82576 carry
//! together and cost, from ten to sixty and to a thousand, what moderation of interrupts saves, and what goes between
//! two of them.

mod bridges;
mod guests;
mod machine;
mod page;
mod peer_page;
mod sums;
mod town;
mod virtio;

use std::time::Duration;

use drivers::igbvf::Masking;

use rig::Rig;

use self::bridges::Bridges;
use self::machine::Kind;
use self::sums::APPLICATION;
use self::town::{Paced, Plan, Policy, Town};
use crate::error::Result;
use crate::inside::{Pair, Spec};
use crate::page::Page;
use crate::report::Report;
use crate::stats::{Column, Reading, in_turns};
use crate::{Options, machine as host};

/// The paper's ports, and VFs of each that VMs have; one more is the sender's.
const PORTS: usize = 10;
/// VMs, as in figures 14 and 15.
const COUNTS: [usize; 6] = [10, 20, 30, 40, 50, 60];
/// Beyond the chip's seven VFs of a port.
const BEYOND: [usize; 2] = [250, 1000];
/// Bytes of the paper's frames, without their FCS.
const FULL: u32 = 1514;
/// Its aggregate load: 9.57 Gbit/s of such frames and what the wire puts around them.
const AGGREGATE: f64 = 9.57e9 / 8.0 / 1514.0;
/// One port's: 957 Mbit/s of datagrams of 1472 bytes.
const LINE: f64 = 957e6 / 8.0 / 1472.0;
/// A tick of senders where VMs are interrupted at 2 kHz, and where they are at 20 kHz.
const TICKS: [Duration; 2] = [Duration::from_micros(500), Duration::from_micros(50)];
/// Descriptors of each ring where there are many VMs, between two, and where the paper says so.
const RINGS: [u32; 3] = [128, 256, 1024];

/// How a guest keeps a second interrupt away, in words.
const MASKINGS: [(Masking, &str); 3] = [
    (Masking::Table, "masked and unmasked by the guest"),
    (Masking::Device, "masked by the device"),
    (Masking::None, "not masked"),
];
/// VMs of the one port of figure 6.
const FEW: [usize; 4] = [1, 2, 4, 7];
/// Policies of figures 8 to 10.
const POLICIES: [(Policy, &str); 4] = [
    (Policy::Hertz(20_000.0), "20 kHz"),
    (Policy::Hertz(2000.0), "2 kHz"),
    (Policy::Adaptive, "AIC"),
    (Policy::Hertz(1000.0), "1 kHz"),
];
/// Loads of figure 10, in lines.
const LOADS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
/// Frames of a sample inside one process.
const INSIDE: usize = 100_000;
/// Parts of the aggregate that a paravirtualized NIC is offered as well.
const SHARES: [f64; 2] = [1.0, 0.25];
/// Bytes between two VMs on VFs and on virtio-net, in bursts of 32.
const MESSAGES: [u32; 2] = [60, FULL];
/// Microseconds a worker stays awake where only the rate counts: the daemon's default. Elsewhere none, for
/// that would be counted as work.
const AWAKE: u32 = 100;
/// Bytes and bursts between two VMs.
const PAIRS: [(u32, u32); 3] = [(60, 32), (60, 128), (FULL, 32)];

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.3 } else { 1.0 }
}

fn idle(options: &Options) -> f64 {
    if options.quick { 2.0 } else { 10.0 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let wants = |id: &str, figure: f64| if options.wants(id) { figure } else { 0.0 };
    let each = seconds(options) + 0.25;
    let many = (COUNTS.len() * 4 + BEYOND.len() * 2) as f64;
    let rounds = options.rounds() as f64;
    let scale = wants("scale", 20.0 + rounds * many * each + idle(options));
    let samples = FEW.len() * MASKINGS.len() + POLICIES.len() * (1 + LOADS.len());
    let interrupts = wants("interrupts", 2.0 + rounds * samples as f64 * each);
    let pairs = wants("pairs", 1.0 + rounds * 2.0 * PAIRS.len() as f64 * each);
    let cases = COUNTS.len() * SHARES.len() + MESSAGES.len();
    let pv = wants("pv", 45.0 + rounds * 2.0 * cases as f64 * each);
    scale + interrupts + pairs + pv + wants("guests", guests::estimate(options))
}

/// Runs the module. Its parts are `scale`, `interrupts`, `pairs`, `pv` and `guests`.
///
/// # Errors
/// When a daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    host::more_files();
    // These alone have a page of their own, as they say nothing of the rest.
    let beside = ["pairs", "pv", "guests"];
    let alone = |only: &String| beside.contains(&only.as_str());
    let mut page = if !options.only.is_empty() && options.only.iter().all(alone) {
        let page = Page::new("sriov_pairs", "SR-IOV: VFs beside e1000s and virtio-net");
        page.made_by("sriov --only pairs,pv,guests")
    } else {
        Page::new("sriov", "SR-IOV: an 82576 and its virtual functions")
    };
    let mut quiet = options.quiet();
    page::begin(&mut page)?;
    if options.wants("pairs") {
        let [inside, sockets] = pairs(options, &mut quiet)?;
        page::pairs(&mut page, &inside, &sockets);
    }
    if options.wants("scale") {
        let figures = scale(options, &mut quiet)?;
        page::scale(&mut page, &figures);
    }
    if options.wants("interrupts") {
        let figures = interrupts(options, &mut quiet)?;
        page::interrupts(&mut page, &figures);
    }
    if options.wants("pv") {
        match paravirtual(options, &mut quiet) {
            Ok(figures) => peer_page::paravirtual(&mut page, &figures),
            // Namespaces and TAPs are not to be had everywhere; the rest is.
            Err(error) => peer_page::missing(&mut page, "pv", &error),
        }
    }
    if options.wants("guests") {
        match guests::run(options, &mut quiet) {
            Ok(figures) => peer_page::guests(&mut page, &figures),
            Err(error) => peer_page::missing(&mut page, "guests", &error),
        }
    }
    Ok(page.finish(&quiet))
}

/// What [`scale`] yields: for each of [`COUNTS`] a VF's column and an e1000's behind it, then for each of
/// [`BEYOND`] a VF's.
struct Scale {
    fixed: Vec<Column>,
    full: Vec<Column>,
    idle: Column,
}

fn scale(options: &Options, quiet: &mut crate::quiet::Quiet) -> Result<Scale> {
    let plan = |kind, vms| Plan {
        kind,
        ports: PORTS,
        vms,
        ring: RINGS[0],
        longest: FULL as usize,
        awake: 0,
    };
    let most = COUNTS[COUNTS.len() - 1] / PORTS;
    let mut towns = vec![
        Town::start(options, plan(Kind::Vf, most))?,
        Town::start(options, plan(Kind::E1000, most))?,
    ];
    for count in BEYOND {
        towns.push(Town::start(options, plan(Kind::Vf, count / PORTS))?);
        eprintln!("  {count} VMs are up");
    }
    // Which town, and how many of it take part.
    let mut runs = Vec::new();
    for count in COUNTS {
        runs.extend([(0, count, Kind::Vf), (1, count, Kind::E1000)]);
    }
    for (i, count) in BEYOND.into_iter().enumerate() {
        runs.push((2 + i, count, Kind::Vf));
    }
    let columns = || -> Vec<Column> {
        let name = |(_, count, kind): &(usize, usize, Kind)| format!("{} {count}", kind.words());
        runs.iter().map(|run| Column::new(name(run))).collect()
    };
    let (mut fixed, mut full) = (columns(), columns());
    eprint!("  fixed load");
    in_turns(quiet, options.rounds(), &mut fixed, |i| {
        let (town, active, _) = runs[i];
        towns[town].paced(Paced {
            active,
            pps: AGGREGATE,
            size: FULL,
            tick: TICKS[0],
            policy: Policy::Hertz(2000.0),
            masking: Masking::Device,
            buffers: u32::MAX,
            seconds: seconds(options),
        })
    })?;
    eprint!("\n  full load");
    in_turns(quiet, options.rounds(), &mut full, |i| {
        let (town, active, _) = runs[i];
        towns[town].flat_out(active, 32, FULL, seconds(options))
    })?;
    eprint!("\n  idle");
    let mut rest = Column::new("idle");
    let last = towns.len() - 1;
    towns[last].rest()?;
    in_turns(quiet, 1, std::slice::from_mut(&mut rest), |_| {
        Ok(towns[last].idle(idle(options)))
    })?;
    eprintln!();
    Ok(Scale {
        fixed,
        full,
        idle: rest,
    })
}

/// What [`interrupts`] yields.
struct Interrupts {
    /// For each of [`FEW`], each of [`MASKINGS`].
    maskings: Vec<Column>,
    /// Of each of [`POLICIES`].
    policies: Vec<Column>,
    /// For each of [`LOADS`], each of [`POLICIES`].
    loads: Vec<Column>,
}

fn interrupts(options: &Options, quiet: &mut crate::quiet::Quiet) -> Result<Interrupts> {
    let mut port = Town::start(
        options,
        Plan {
            kind: Kind::Vf,
            ports: 1,
            vms: FEW[FEW.len() - 1],
            ring: RINGS[2],
            longest: FULL as usize,
            awake: 0,
        },
    )?;
    let base = Paced {
        active: 1,
        pps: LINE,
        size: FULL,
        tick: TICKS[1],
        policy: Policy::Hertz(2000.0),
        masking: Masking::Device,
        buffers: u32::MAX,
        seconds: seconds(options),
    };
    let mut runs = Vec::new();
    for active in FEW {
        for (masking, words) in MASKINGS {
            let run = Paced {
                active,
                masking,
                ..base
            };
            runs.push((format!("{active} VMs, {words}"), run));
        }
    }
    for (policy, words) in POLICIES {
        runs.push((words.to_owned(), Paced { policy, ..base }));
    }
    for load in LOADS {
        for (policy, words) in POLICIES {
            let run = Paced {
                policy,
                pps: LINE * load,
                buffers: APPLICATION,
                ..base
            };
            runs.push((format!("{words}, {load} lines"), run));
        }
    }
    let mut columns: Vec<Column> = runs.iter().map(|r| Column::new(r.0.clone())).collect();
    eprint!("  interrupts");
    in_turns(quiet, options.rounds(), &mut columns, |i| {
        port.paced(runs[i].1)
    })?;
    eprintln!();
    let loads = columns.split_off(FEW.len() * MASKINGS.len() + POLICIES.len());
    let policies = columns.split_off(FEW.len() * MASKINGS.len());
    Ok(Interrupts {
        maskings: columns,
        policies,
        loads,
    })
}

/// For each of [`PAIRS`] a VF's column and an e1000's behind it: inside one process, and over sockets.
fn pairs(options: &Options, quiet: &mut crate::quiet::Quiet) -> Result<[Vec<Column>; 2]> {
    let kinds = [Kind::Vf, Kind::E1000];
    let (mut towns, mut inside) = (Vec::new(), Vec::new());
    for kind in kinds {
        let plan = Plan {
            kind,
            ports: 1,
            vms: 1,
            ring: RINGS[1],
            longest: FULL as usize,
            awake: AWAKE,
        };
        towns.push(Town::start(options, plan)?);
    }
    let mut columns = Vec::new();
    for (size, burst) in PAIRS {
        let spec = Spec::frames(size as usize, RINGS[1], burst);
        inside.push(Pair::new(spec.between_vfs()));
        inside.push(Pair::new(spec));
        for kind in kinds {
            columns.push(Column::new(format!("{}, {size}, {burst}", kind.words())));
        }
    }
    let mut times = columns.clone();
    eprint!("  VM to VM, in one process");
    in_turns(quiet, options.rounds(), &mut times, |i| {
        Ok(Reading::bare(inside[i].sample(INSIDE)))
    })?;
    eprint!("\n  over sockets");
    in_turns(quiet, options.rounds(), &mut columns, |i| {
        let (size, burst) = PAIRS[i / 2];
        towns[i % 2].flat_out(1, burst, size, seconds(options))
    })?;
    eprintln!();
    Ok([times, columns])
}

/// What [`paravirtual`] yields.
struct Paravirtual {
    /// For each of [`MESSAGES`], VF to VF and virtio-net to virtio-net.
    between: Vec<Column>,
    /// For each of [`SHARES`] and of [`COUNTS`], VFs and virtio-nets.
    scale: Vec<Column>,
    qemu: String,
}

fn paravirtual(options: &Options, quiet: &mut crate::quiet::Quiet) -> Result<Paravirtual> {
    let rig = Rig::prepare().map_err(rig::Error::from)?;
    let town = |ports, vms, ring| {
        let plan = Plan {
            kind: Kind::Vf,
            ports,
            vms,
            ring,
            longest: FULL as usize,
            awake: 0,
        };
        Town::start(options, plan)
    };
    let kinds = ["VF", "virtio-net"];
    let mut between = Vec::new();
    for size in MESSAGES {
        between.extend(kinds.map(|kind| Column::new(format!("{kind}, {size}"))));
    }
    let mut vfs = town(1, 1, RINGS[1])?;
    let mut peers = Bridges::start(&rig, 1, 2)?;
    eprint!("  VM to VM, VF and virtio-net");
    in_turns(quiet, options.rounds(), &mut between, |i| {
        let size = MESSAGES[i / 2];
        match i % 2 {
            0 => vfs.flat_out(1, 32, size, seconds(options)),
            _ => peers.between(32, size, seconds(options)),
        }
    })?;
    drop(vfs);
    drop(peers);
    let most = COUNTS[COUNTS.len() - 1] / PORTS;
    let mut vfs = town(PORTS, most, RINGS[0])?;
    let mut peers = Bridges::start(&rig, PORTS, most)?;
    eprintln!("\n  {} VMs on virtio-net are up", peers.count());
    let mut scale = Vec::new();
    for share in SHARES {
        for count in COUNTS {
            let name = |kind| Column::new(format!("{kind} {count}, {share} of the load"));
            scale.extend(kinds.map(name));
        }
    }
    eprint!("  fixed load, VFs and virtio-nets");
    in_turns(quiet, options.rounds(), &mut scale, |i| {
        let (pps, active) = (
            AGGREGATE * SHARES[i / 2 / COUNTS.len()],
            COUNTS[i / 2 % COUNTS.len()],
        );
        match i % 2 {
            0 => vfs.paced(Paced {
                active,
                pps,
                size: FULL,
                tick: TICKS[0],
                policy: Policy::Hertz(2000.0),
                masking: Masking::Device,
                buffers: u32::MAX,
                seconds: seconds(options),
            }),
            _ => peers.paced(active, pps, TICKS[0], seconds(options)),
        }
    })?;
    eprintln!();
    let qemu = rig.qemu().version().to_owned();
    Ok(Paravirtual {
        between,
        scale,
        qemu,
    })
}
