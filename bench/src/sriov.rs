//! The figures of "High Performance Network Virtualization with SR-IOV" again: what VMs on VFs of an 82576 carry
//! together and cost, from ten to sixty and to a thousand, what moderation of interrupts saves, and what goes between
//! two of them.

mod bridges;
mod fleet;
mod guests;
mod machine;
mod ours;
mod page;
mod peer_page;
mod plan;
mod split;
mod sums;
mod virtio;

use drivers::igbvf::Masking;

use rig::Rig;

use self::bridges::Bridges;
use self::fleet::{Fleet, Paced, Plan, Policy};
use self::machine::VmNic;
use self::plan::{
    AGGREGATE, AWAKE, BEYOND, COUNTS, FEW, FULL, INSIDE, Interrupts, LINE, LOADS, MASKINGS,
    MESSAGES, PAIRS, POLICIES, PORTS, PV, Paravirtual, RINGS, SHARES, Scale, TICKS,
};
use self::sums::APPLICATION;
use crate::error::Result;
use crate::inside::{Pair, Spec};
use crate::machine as host;
use crate::options::Options;
use crate::page::Page;
use crate::report::Report;
use crate::stats::{Column, Reading, in_turns};

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
    let pv = wants("pv", 60.0 + rounds * (PV.len() * cases) as f64 * each);
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
    let mut fleets = vec![
        Fleet::start(options, plan(VmNic::Vf, most))?,
        Fleet::start(options, plan(VmNic::E1000, most))?,
    ];
    for count in BEYOND {
        fleets.push(Fleet::start(options, plan(VmNic::Vf, count / PORTS))?);
        eprintln!("  {count} VMs are up");
    }
    // Which fleet, and how many of it take part.
    let mut runs = Vec::new();
    for count in COUNTS {
        runs.extend([(0, count, VmNic::Vf), (1, count, VmNic::E1000)]);
    }
    for (i, count) in BEYOND.into_iter().enumerate() {
        runs.push((2 + i, count, VmNic::Vf));
    }
    let columns = || -> Vec<Column> {
        let name = |(_, count, kind): &(usize, usize, VmNic)| format!("{} {count}", kind.words());
        runs.iter().map(|run| Column::new(name(run))).collect()
    };
    let (mut fixed, mut full) = (columns(), columns());
    eprint!("  fixed load");
    in_turns(quiet, options.rounds(), &mut fixed, |i| {
        let (fleet, active, _) = runs[i];
        fleets[fleet].paced(Paced {
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
        let (fleet, active, _) = runs[i];
        fleets[fleet].flat_out(active, 32, FULL, seconds(options))
    })?;
    eprint!("\n  idle");
    let mut rest = Column::new("idle");
    let last = fleets.len() - 1;
    fleets[last].rest()?;
    in_turns(quiet, 1, std::slice::from_mut(&mut rest), |_| {
        Ok(fleets[last].idle(idle(options)))
    })?;
    eprintln!();
    Ok(Scale {
        fixed,
        full,
        idle: rest,
    })
}

fn interrupts(options: &Options, quiet: &mut crate::quiet::Quiet) -> Result<Interrupts> {
    let mut port = Fleet::start(
        options,
        Plan {
            kind: VmNic::Vf,
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
    let kinds = [VmNic::Vf, VmNic::E1000];
    let (mut fleets, mut inside) = (Vec::new(), Vec::new());
    for kind in kinds {
        let plan = Plan {
            kind,
            ports: 1,
            vms: 1,
            ring: RINGS[1],
            longest: FULL as usize,
            awake: AWAKE,
        };
        fleets.push(Fleet::start(options, plan)?);
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
        fleets[i % 2].flat_out(1, burst, size, seconds(options))
    })?;
    eprintln!();
    Ok([times, columns])
}

/// Everything that [`PV`] compares, with VMs of its own.
struct Paired {
    ours: Vec<Fleet>,
    qemus: Bridges,
}

impl Paired {
    fn start(
        options: &Options,
        rig: &Rig,
        ports: usize,
        vms: [usize; 2],
        ring: u32,
    ) -> Result<Self> {
        let kinds = PV.iter().filter_map(|(kind, _)| *kind);
        let fleet = |kind| {
            let plan = Plan {
                kind,
                ports,
                vms: vms[0],
                ring,
                longest: FULL as usize,
                awake: 0,
            };
            Fleet::start(options, plan)
        };
        Ok(Self {
            ours: kinds.map(fleet).collect::<Result<_>>()?,
            qemus: Bridges::start(rig, ports, vms[1])?,
        })
    }
}

/// A column for each of [`PV`], of something that has a name.
fn beside(what: &str) -> impl Iterator<Item = Column> {
    PV.iter()
        .map(move |(_, kind)| Column::new(format!("{kind}{what}")))
}

fn paravirtual(options: &Options, quiet: &mut crate::quiet::Quiet) -> Result<Paravirtual> {
    let rig = Rig::prepare().map_err(rig::Error::from)?;
    let mut between = Vec::new();
    for size in MESSAGES {
        between.extend(beside(&format!(", {size}")));
    }
    // One end of a fleet is the port's sender, which the bridges have beside their VMs.
    let mut pair = Paired::start(options, &rig, 1, [1, 2], RINGS[1])?;
    eprint!("  VM to VM, VF and virtio-net");
    in_turns(quiet, options.rounds(), &mut between, |i| {
        let (size, kind) = (MESSAGES[i / PV.len()], i % PV.len());
        match pair.ours.get_mut(kind) {
            Some(fleet) => fleet.flat_out(1, 32, size, seconds(options)),
            None => pair.qemus.between(32, size, seconds(options)),
        }
    })?;
    drop(pair);
    let most = COUNTS[COUNTS.len() - 1] / PORTS;
    let mut all = Paired::start(options, &rig, PORTS, [most; 2], RINGS[0])?;
    eprintln!("\n  {} VMs on QEMU's virtio-net are up", all.qemus.count());
    let mut scale = Vec::new();
    for share in SHARES {
        for count in COUNTS {
            scale.extend(beside(&format!(" {count}, {share} of the load")));
        }
    }
    eprint!("  fixed load, VFs and virtio-nets");
    in_turns(quiet, options.rounds(), &mut scale, |i| {
        let (kind, case) = (i % PV.len(), i / PV.len());
        let (pps, active) = (
            AGGREGATE * SHARES[case / COUNTS.len()],
            COUNTS[case % COUNTS.len()],
        );
        match all.ours.get_mut(kind) {
            Some(fleet) => fleet.paced(Paced {
                active,
                pps,
                size: FULL,
                tick: TICKS[0],
                policy: Policy::Hertz(2000.0),
                masking: Masking::Device,
                buffers: u32::MAX,
                seconds: seconds(options),
            }),
            None => all.qemus.paced(active, pps, TICKS[0], seconds(options)),
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
