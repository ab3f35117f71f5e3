//! What the page says of VFs beside virtio-nets, ours and QEMU's, played and in real guests.

use super::guests::{ACTIVE, Guests, MEGABITS, MESSAGES as WRITES, PARTIES};
use super::page::{json, raw};
use super::plan::{COUNTS, MESSAGES, PORTS, PV, Paravirtual, QEMUS, RINGS, SHARES};
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
    page.heading("VFs beside paravirtualized NICs");
    page.text(&format!(
        "The paravirtualized NICs are our virtio-net, over vfio-user and over vhost-user, whose VMs are connected to the same \
         kind of daemon as those with VFs, on a switch of it for each port; and QEMU's virtio-net ({}), a QEMU for each VM, on \
         TAPs and a kernel bridge for each port. A driver of our own plays all VMs. Every virtio-net has one pair of split \
         rings, and frames are as a cable has them, so there is no segmentation offload. QEMU's machines have no processor \
         (`-accel qtest`): this program maps their memory and drives the rings, and rings QEMU by qtest's socket where the \
         ring asks for it. The daemon, or all QEMUs, are on one processor; VMs, senders and, as they work in the senders' \
         time, bridges are on the other. VMs of QEMU's are never interrupted but look every 500 us, which costs QEMU \
         nothing, where VMs of ours sleep until the NIC calls (VFs at most every 500 us by their driver, virtio-nets by \
         `moderation = \"fixed:2000\"`): that is in favour of QEMU's.",
        figures.qemu
    ));
    page.heading("Between two VMs, VF and virtio-net (figures 12 and 13)");
    page.text(&format!(
        "As fast as it goes, bursts of 32. Rings have {}. *Per core* is of the processor time of the daemon, and of both QEMUs. \
         The paper: 2.8 Gbit/s by SR-IOV, 4.3 Gbit/s paravirtualized, and more throughput for each processor by SR-IOV.",
        RINGS[1]
    ));
    let mut rows = Vec::new();
    for (i, column) in figures.between.iter().enumerate() {
        let first = &figures.between[i - i % PV.len()];
        rows.push(vec![
            MESSAGES[i / PV.len()].to_string(),
            PV[i % PV.len()].1.to_owned(),
            column.words(),
            first.ratio_words(column),
            figure(raw(column, "gbit")),
            figure(raw(column, "mpps_per_core")),
        ]);
    }
    page.table(
        &[
            "bytes",
            "NIC",
            "Mpps",
            "VF / this",
            "Gbit/s",
            "Mpps per core",
        ],
        &rows,
    );
    page.text(
        "The paper has its paravirtualized NIC ahead, and says why: a frame of its NIC crosses the PCIe bus twice, and domain 0 \
         copies once by processor. Here the daemon copies each frame of a VF or of our virtio-net once, from one VM's memory \
         to the other's: as in the paper, VF / this below 1 is a paravirtualized NIC ahead of a VF. A frame of QEMU's virtio-net \
         is moved by system calls: into the kernel by one QEMU, and out of it by the other.",
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
        for (n, count) in COUNTS.into_iter().enumerate() {
            for (kind, (_, name)) in PV.into_iter().enumerate() {
                let column = of(share, kind)[n];
                rows.push(vec![
                    count.to_string(),
                    figure(9.57 * part),
                    name.to_owned(),
                    format!(
                        "{} of {}",
                        figure(gbit(column)),
                        figure(raw(column, "gbit_sent"))
                    ),
                    column.words(),
                    figure(raw(column, "vms_cpu")),
                ]);
            }
        }
    }
    page.table(
        &[
            "VMs",
            "load, Gbit/s",
            "NIC",
            "Gbit/s of what was sent",
            "daemon or QEMUs, % of a core",
            "VMs, senders, bridges",
        ],
        &rows,
    );
    let second = |points: Vec<(f64, f64)>| -> Vec<f64> { points.iter().map(|p| p.1).collect() };
    let mut says = Vec::new();
    for (share, part) in SHARES.into_iter().enumerate() {
        for (kind, (_, name)) in PV.into_iter().enumerate() {
            let flat = spread(&second(points(share, kind, &gbit)));
            let more = slope(&points(share, kind, &Column::median));
            says.push(format!(
                "At {} Gbit/s, {name}: throughput from 10 to 60 VMs spreads by {} %; one more VM costs {} % of a core.",
                figure(9.57 * part),
                percent(flat),
                figure(more)
            ));
        }
    }
    let frames = |kind: usize| -> Vec<String> {
        let each = of(1, kind).into_iter().map(|column| {
            let per_second = gbit(column) * 1e9 / 8.0 / 1514.0;
            figure(column.median() / 100.0 / per_second * 1e9)
        });
        each.collect()
    };
    for (kind, (_, name)) in PV.into_iter().enumerate() {
        let beside = if kind == QEMUS {
            ", to which the kernel's bridge in the senders' time comes"
        } else {
            ""
        };
        says.push(format!(
            "Processor time of a frame at the smaller load, from 10 to 60 VMs, {name}: {} ns{beside}.",
            frames(kind).join(", ")
        ));
    }
    page.list(&says);
    plots(page, figures);
}

/// The columns of a share of the load, of one of [`PV`].
fn of(figures: &Paravirtual, share: usize, kind: usize) -> Vec<&Column> {
    let columns = figures.scale[PV.len() * COUNTS.len() * share..].iter();
    let one = columns.skip(kind).step_by(PV.len());
    one.take(COUNTS.len()).collect()
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
            for (kind, (_, name)) in PV.into_iter().enumerate() {
                let name = format!("{name}, {} Gbit/s", figure(9.57 * part));
                let whose = Whose::ours(kind < QEMUS);
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
