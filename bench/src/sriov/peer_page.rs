//! What the page says of VFs beside QEMU's virtio-net, played and in real guests.

use super::guests::{ACTIVE, Guests, MEGABITS, MESSAGES as WRITES, PARTIES};
use super::page::{json, raw};
use super::plan::{COUNTS, MESSAGES, PORTS, Paravirtual, RINGS, SHARES};
use super::sums::{slope, spread};
use crate::error::Error;
use crate::page::Page;
use crate::plot::{Scale, Set, Whose, lines, set};
use crate::stats::{Column, figure};

/// A part that could not be measured here, and why.
pub fn missing(page: &mut Page, part: &'static str, error: &Error) {
    eprintln!("\n  {part} does not run here: {error}");
    page.heading(&format!("Not measured: {part}"));
    page.text(&format!("It does not run here: {error}"));
}

fn percent(part: f64) -> String {
    figure(part * 100.0)
}

/// Figures 13, 16 and 17.
pub fn paravirtual(page: &mut Page, figures: &Paravirtual) {
    page.heading("VFs beside a paravirtualized NIC");
    page.text(&format!(
        "The paravirtualized NIC is QEMU's virtio-net ({}), a QEMU for each VM, on TAPs and a kernel bridge for each port. A \
         driver of our own plays its VMs too: QEMU's machines have no processor (`-accel qtest`), this program maps their \
         memory and drives the rings, and rings QEMU by qtest's socket where the ring asks for it. All QEMUs are on the \
         processor that is otherwise the daemon's; VMs, senders and, as they work in the senders' time, bridges are on the \
         other. VMs of virtio-net are never interrupted but look every 500 us, which costs QEMU nothing, where VFs \
         interrupt and their VMs sleep: that is in virtio-net's favour. Frames are as a cable has them, so there is no \
         segmentation offload.",
        figures.qemu
    ));
    page.heading("Between two VMs, VF and virtio-net (figures 12 and 13)");
    page.text(&format!(
        "As fast as it goes, bursts of 32. VFs have rings of {}, as virtio-net has. *Per core* is of the processor time of \
         the daemon, and of both QEMUs. The paper: 2.8 Gbit/s by SR-IOV, 4.3 Gbit/s paravirtualized, and more throughput \
         for each processor by SR-IOV.",
        RINGS[1]
    ));
    let mut rows = Vec::new();
    for (i, size) in MESSAGES.into_iter().enumerate() {
        let (vf, peer) = (&figures.between[2 * i], &figures.between[2 * i + 1]);
        rows.push(vec![
            size.to_string(),
            vf.words(),
            peer.words(),
            vf.ratio_words(peer),
            figure(raw(vf, "gbit")),
            figure(raw(peer, "gbit")),
            figure(raw(vf, "mpps_per_core")),
            figure(raw(peer, "mpps_per_core")),
        ]);
    }
    page.table(
        &[
            "bytes",
            "VF: Mpps",
            "virtio-net: Mpps",
            "VF / virtio-net",
            "VF: Gbit/s",
            "virtio-net: Gbit/s",
            "VF: Mpps per core",
            "virtio-net: Mpps per core",
        ],
        &rows,
    );
    page.text(
        "The paper's order is the other way round, and for the reason it gives: its NIC moves each frame twice over \
         the PCIe bus, domain 0 copies once by processor. Here it is the VF's frame that is copied once, from one VM's \
         memory to the other's, and virtio-net's that is moved by system calls: into the kernel by one QEMU, and out of it \
         by the other. Which of the two does more for each processor is the same in both.",
    );
    scale(page, figures);
    page.data("pv_between", json(&figures.between));
    page.data("pv_scale", json(&figures.scale));
}

fn scale(page: &mut Page, figures: &Paravirtual) {
    page.heading("From 10 to 60 VMs, VFs and virtio-nets (figures 16 and 17)");
    page.text(&format!(
        "{PORTS} ports and VMs as above, at the paper's aggregate load and at a quarter of it. HVM (figure 16) and PVM (figure \
         17) differ in how a guest is interrupted and changes page tables, of which a NIC sees nothing, so there is one \
         figure here for both. The paper's processor time is of domain 0: 431 % with 60 HVMs, 324 % with PVMs; with one \
         thread that copies, as here, 3.6 Gbit/s with 10 VMs, less with more.",
    ));
    let of = |share, kind| of(figures, share, kind);
    let points = |share, kind, what: &dyn Fn(&Column) -> f64| points(figures, share, kind, what);
    let gbit = |column: &Column| raw(column, "gbit");
    let mut rows = Vec::new();
    for (share, part) in SHARES.into_iter().enumerate() {
        for (n, (vf, peer)) in of(share, 0).into_iter().zip(of(share, 1)).enumerate() {
            rows.push(vec![
                format!("{}", COUNTS[n]),
                figure(9.57 * part),
                figure(gbit(vf)),
                vf.words(),
                figure(raw(vf, "vms_cpu")),
                format!(
                    "{} of {}",
                    figure(gbit(peer)),
                    figure(raw(peer, "gbit_sent"))
                ),
                peer.words(),
                figure(raw(peer, "vms_cpu")),
            ]);
        }
    }
    page.table(
        &[
            "VMs",
            "load, Gbit/s",
            "VF: Gbit/s",
            "daemon, % of a core",
            "its VMs and senders",
            "virtio-net: Gbit/s of what was sent",
            "QEMUs, % of a core",
            "VMs, senders, bridges",
        ],
        &rows,
    );
    let second = |points: Vec<(f64, f64)>| -> Vec<f64> { points.iter().map(|p| p.1).collect() };
    let mut says = Vec::new();
    for (share, part) in SHARES.into_iter().enumerate() {
        let flat = [0, 1].map(|kind| percent(spread(&second(points(share, kind, &gbit)))));
        let more = [0, 1].map(|kind| figure(slope(&points(share, kind, &Column::median))));
        says.push(format!(
            "At {} Gbit/s: throughput from 10 to 60 VMs spreads by {} % (VFs) and {} % (virtio-net); one more VM costs the \
             daemon {} % of a core and the QEMUs {} %.",
            figure(9.57 * part),
            flat[0],
            flat[1],
            more[0],
            more[1]
        ));
    }
    let frames = |kind: usize| -> Vec<String> {
        let each = of(1, kind).into_iter().map(|column| {
            let per_second = gbit(column) * 1e9 / 8.0 / 1514.0;
            figure(column.median() / 100.0 / per_second * 1e9)
        });
        each.collect()
    };
    says.push(format!(
        "Processor time of a frame at the smaller load, from 10 to 60 VMs: {} ns (daemon), {} ns (QEMUs, to which the \
         kernel's bridge in the senders' time comes).",
        frames(0).join(", "),
        frames(1).join(", ")
    ));
    page.list(&says);
    plots(page, figures);
}

/// The columns of a share of the load: VFs (0) or virtio-nets (1).
fn of(figures: &Paravirtual, share: usize, kind: usize) -> Vec<&Column> {
    let columns = figures.scale[2 * COUNTS.len() * share..].iter();
    columns.skip(kind).step_by(2).take(COUNTS.len()).collect()
}

/// A figure of theirs over the number of VMs.
fn points(
    figures: &Paravirtual,
    share: usize,
    kind: usize,
    what: &dyn Fn(&Column) -> f64,
) -> Vec<(f64, f64)> {
    let counts = COUNTS.iter().map(|n| *n as f64);
    let columns = of(figures, share, kind);
    counts.zip(columns.into_iter().map(what)).collect()
}

fn plots(page: &mut Page, figures: &Paravirtual) {
    let gbit = |column: &Column| raw(column, "gbit");
    let sets = |what: &dyn Fn(&Column) -> f64| -> Vec<Set> {
        let mut sets = Vec::new();
        for (share, part) in SHARES.into_iter().enumerate() {
            for (kind, name) in ["VFs", "virtio-nets"].into_iter().enumerate() {
                let name = format!("{name}, {} Gbit/s", figure(9.57 * part));
                let whose = Whose::ours(kind == 0);
                sets.push(set(&name, whose, points(figures, share, kind, what)));
            }
        }
        sets
    };
    page.plot(lines(
        "pv-throughput",
        "Fixed loads: throughput of all VMs (figures 16, 17)",
        Scale::linear("VMs"),
        Scale::linear("Gbit/s"),
        sets(&gbit),
    ));
    page.plot(lines(
        "pv-cpu",
        "Fixed loads: processor time of the daemon and of QEMUs (figures 16, 17)",
        Scale::linear("VMs"),
        Scale::linear("% of a core"),
        sets(&Column::median),
    ));
}

/// Real guests.
pub fn guests(page: &mut Page, figures: &Guests) {
    let [kernel, qemu, accelerator] = &figures.facts;
    page.heading("A few real guests");
    page.text(&format!(
        "Four guests (Linux {kernel}, under {accelerator}, {qemu}), each with a VF of one 82576, whose cable is a TAP, and \
         Linux's own igbvf; with QEMU's virtio-net on a TAP at a bridge; and with another that offers no segmentation \
         offload either way, since the paper's NICs had frames as a cable has them. A sample uses one of the three in each \
         guest. Guests are translated where there is no KVM and share two processors with everything else, so what they \
         carry is theirs; what the host spends for it is the NIC's. *Beside the guests* is that: the daemon, and QEMU's \
         threads but for those of processors. A VF's interrupts and register accesses pass through QEMU as well, and are \
         in it."
    ));
    page.heading("Real guests at a fixed load (figures 14 to 17)");
    page.text(&format!(
        "{MEGABITS} Mbit/s of datagrams of 1472 bytes from the host (`iperf3 -u`), in equal parts to 1, 2 and 4 guests."
    ));
    let names = |i: usize| PARTIES[i % PARTIES.len()].1.to_owned();
    let mut rows = Vec::new();
    for (i, column) in figures.paced.iter().enumerate() {
        rows.push(vec![
            ACTIVE[i / PARTIES.len()].to_string(),
            names(i),
            figure(raw(column, "mbit")),
            column.words(),
            figure(raw(column, "daemon_cpu")),
            figure(raw(column, "qemu_cpu")),
            figure(raw(column, "guests_cpu")),
        ]);
    }
    page.table(
        &[
            "guests",
            "NIC",
            "Mbit/s",
            "beside the guests, % of a core",
            "of it the daemon",
            "of it QEMU",
            "the guests' processors",
        ],
        &rows,
    );
    let each = PARTIES.iter().enumerate().map(|(party, (_, words))| {
        let points: Vec<(f64, f64)> = ACTIVE
            .iter()
            .zip(figures.paced.iter().skip(party).step_by(PARTIES.len()))
            .map(|(n, column)| (*n as f64, column.median()))
            .collect();
        format!(
            "{words}: one more guest costs {} % of a core",
            figure(slope(&points))
        )
    });
    page.text(&format!("{}.", each.collect::<Vec<_>>().join("; ")));
    page.heading("From one real guest to another (figures 12 and 13)");
    page.text(
        "One stream of TCP (`iperf3 -l`), by the size of what the sender writes at once. As in the paper larger writes bring \
         more, being fewer system calls.",
    );
    let mut rows = Vec::new();
    for (i, column) in figures.between.iter().enumerate() {
        let first = &figures.between[i - i % PARTIES.len()];
        let cost = raw(column, "beside_cpu") / column.median();
        rows.push(vec![
            WRITES[i / PARTIES.len()].to_string(),
            names(i),
            column.words(),
            first.ratio_words(column),
            figure(raw(column, "beside_cpu")),
            figure(cost),
            figure(raw(column, "guests_cpu")),
        ]);
    }
    page.table(
        &[
            "bytes",
            "NIC",
            "Gbit/s",
            "VF / this",
            "beside the guests, % of a core",
            "for each Gbit/s",
            "the guests' processors",
        ],
        &rows,
    );
    page.data("guests_paced", json(&figures.paced));
    page.data("guests_between", json(&figures.between));
}
