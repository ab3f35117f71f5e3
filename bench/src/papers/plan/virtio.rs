//! The papers' rows of virtio-net with ours beside QEMU's, in the same guests.

use super::super::lan::{Lan, Way};
use super::settings::{
    NO_EVENT_IDX, PV, PV_ADAPTIVE, PV_COALESCED, PV_NO_EVENT_IDX, PV_USER, PV_VALE, TAP, VHOST,
    VIRTIO, base,
};
use super::terms::{Experiment, Line, Look, Setting, Stream, curve, experiment, line};

/// The columns of figure 4, and short packets by the guest's kernel.
const COLUMNS: [Stream; 5] = [
    Stream::Kernel,
    Stream::Small,
    Stream::Tcp,
    Stream::TcpW,
    Stream::Rr,
];

/// The paper's row of virtio-net stands beside all of these but the first, which has its own.
fn beside(mut line: Line, table: &'static str) -> Line {
    if line.jobs[0].setting != TAP {
        line.theirs = (table, "virtio");
    }
    line
}

fn possible(settings: &[Setting]) -> Vec<Setting> {
    let there = |s: &&Setting| s.lan.possible();
    settings.iter().filter(there).copied().collect()
}

/// Rows of the thesis.
fn thesis(quick: bool) -> Vec<Experiment> {
    let vcpus: &[u32] = if quick { &[1] } else { &[1, 2] };
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let rates: &[u32] = if quick {
        &[30_000, 90_000, 250_000]
    } else {
        &[14_000, 40_000, 90_000, 250_000]
    };
    for &vcpus in vcpus {
        for stream in [Stream::Kernel, Stream::Small] {
            for setting in possible(&[TAP, VIRTIO, VHOST, PV, PV_USER]) {
                let row = line(setting, vcpus, Way::Out, stream, "t3.1");
                sent.push(beside(row, "t4.1"));
            }
        }
        let settings = [TAP, VIRTIO, VHOST, PV, PV_COALESCED, PV_ADAPTIVE, PV_USER];
        for setting in possible(&settings) {
            received.push(beside(curve(setting, vcpus, rates, "t3.2"), "t4.3"));
        }
    }
    let mut late = Vec::new();
    for stream in [Stream::Kernel, Stream::Small] {
        for (setting, row) in [
            (VIRTIO, ("t4.1", "virtio")),
            (NO_EVENT_IDX, ("t4.2", "virtio no event idx")),
            (PV_USER, ("t4.1", "virtio")),
            (PV_NO_EVENT_IDX, ("t4.2", "virtio no event idx")),
        ] {
            let mut line = line(setting, 1, Way::Out, stream, "t4.1");
            line.theirs = row;
            late.push(line);
        }
    }
    vec![
        experiment("v4.1", "virtio-nets, guest to host", Look::Bars, sent),
        experiment(
            "v4.2",
            "virtio-nets without a way to ask for late interrupts",
            Look::Bars,
            late,
        ),
        experiment(
            "v4.3",
            "virtio-nets, host to guest, at the critical rate",
            Look::Bars,
            received,
        ),
    ]
}

/// Rows of ANCS.
fn ancs() -> Vec<Experiment> {
    let table = |id, title, (lan, way), theirs, settings: &[Setting]| {
        let mut lines = Vec::new();
        let streams = COLUMNS.into_iter().filter(|stream| {
            // What is sent to a guest in datagrams is in the table of the thesis.
            way != Way::In || !matches!(stream, Stream::Kernel | Stream::Small)
        });
        for stream in streams {
            for setting in [base(lan)].into_iter().chain(possible(settings)) {
                let line = line(setting, 1, way, stream, theirs);
                lines.push(if setting == base(lan) {
                    line
                } else {
                    beside(line, theirs)
                });
            }
        }
        experiment(id, title, Look::Bars, lines)
    };
    vec![
        table(
            "v.out",
            "virtio-nets, guest to host over TAP",
            (Lan::Tap, Way::Out),
            "a4.out",
            &[VIRTIO, VHOST, PV, PV_ADAPTIVE, PV_USER],
        ),
        table(
            "v.in",
            "virtio-nets, host to guest over TAP",
            (Lan::Tap, Way::In),
            "a4.in",
            &[VIRTIO, VHOST, PV, PV_COALESCED, PV_ADAPTIVE, PV_USER],
        ),
        table(
            "v.tap",
            "virtio-nets, guest to guest over TAP",
            (Lan::Tap, Way::Across),
            "a4.tap",
            &[VIRTIO, VHOST, PV, PV_USER],
        ),
        table(
            "v.vale",
            "virtio-nets, guest to guest over the switch",
            (Lan::Vale, Way::Across),
            "a4.vale",
            &[PV_VALE],
        ),
    ]
}

pub fn virtio(quick: bool) -> Vec<Experiment> {
    let mut all = thesis(quick);
    all.extend(ancs());
    all
}
