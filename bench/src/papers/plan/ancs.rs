//! The figures of ANCS 2013.

use super::super::lan::{Lan, Load, Setup, Way};
use super::settings::{ADAPTIVE, FIXED, ITR100, ITR250, MAIR, QEMU, VIRTIO, base};
use super::terms::{
    Experiment, Job, Line, Look, Setting, Stream, curve, experiment, line, set, with,
};

/// The columns of figure 4, and short packets by the guest's kernel.
const COLUMNS: [Stream; 6] = [
    Stream::Small,
    Stream::Kernel,
    Stream::Large,
    Stream::Tcp,
    Stream::TcpW,
    Stream::Rr,
];

/// The rows of figure 4 on a network of ours, and those beside them.
fn rows(lan: Lan, way: Way) -> Vec<Setting> {
    let itr250 = set("itr=250", lan, Load::Plain, ITR250);
    let sc = set("itr=250 SC", lan, Load::Combining, ITR250);
    let csb = set("itr=0 CSB", lan, Load::Csb, Some(0));
    let mut rows = vec![base(lan)];
    match way {
        Way::In => rows.extend([
            set("itr=100", lan, Load::Plain, ITR100),
            set("itr=100 SC", lan, Load::Combining, ITR100),
            set("itr=100 CSB", lan, Load::Csb, ITR100),
        ]),
        Way::Out => rows.extend([
            itr250,
            sc,
            csb,
            set("itr=250 CSB", lan, Load::Csb, ITR250),
            set("itr=250 SC CSB", lan, Load::Both, ITR250),
            ADAPTIVE,
            FIXED,
        ]),
        Way::Across => rows.extend([itr250, sc, csb]),
    }
    rows.extend([QEMU, VIRTIO]);
    rows
}

pub fn ancs(quick: bool) -> Vec<Experiment> {
    let vcpus: &[u32] = if quick { &[1] } else { &[1, 2] };
    let table = |id: &'static str, title: &'static str, lan: Lan, way: Way| {
        let mut lines = Vec::new();
        for &vcpus in vcpus {
            for stream in COLUMNS {
                if way == Way::In
                    && matches!(stream, Stream::Small | Stream::Kernel | Stream::Large)
                {
                    continue;
                }
                for setting in rows(lan, way) {
                    lines.push(line(setting, vcpus, way, stream, id));
                }
            }
        }
        if way == Way::Out {
            let over = set("adaptive over itr=0", Lan::Adaptive, Load::Mixed, Some(0));
            lines.push(line(over, 1, way, Stream::RrOver, id));
        }
        experiment(id, title, Look::Bars, lines)
    };
    let figure = |id: &'static str,
                  title: &'static str,
                  stream: Stream,
                  ways: &[(&'static str, Lan, Way)]| {
        let mut lines = Vec::new();
        for &(theirs, lan, way) in ways {
            for setting in rows(lan, way) {
                // QEMU's own stand on no switch of ours, and are in one of the lists already.
                if lan == Lan::Vale && !setting.lan.ours() {
                    continue;
                }
                let mut streams = vec![stream];
                if stream == Stream::Small {
                    streams.push(Stream::Kernel);
                }
                for stream in streams {
                    let mut line = line(setting, 1, way, stream, theirs);
                    line.label = format!("{} {}", words(lan, way), line.label);
                    lines.push(line);
                }
            }
        }
        experiment(id, title, Look::Bars, lines)
    };
    let tap = ("a4.tap", Lan::Tap, Way::Across);
    let vale = ("a4.vale", Lan::Vale, Way::Across);
    vec![
        overload(quick),
        table("a4.out", "Guest to host over TAP", Lan::Tap, Way::Out),
        table("a4.in", "Host to guest over TAP", Lan::Tap, Way::In),
        table("a4.tap", "Guest to guest over TAP", Lan::Tap, Way::Across),
        table(
            "a4.vale",
            "Guest to guest over the switch",
            Lan::Vale,
            Way::Across,
        ),
        figure(
            "a6",
            "UDP in short packets, guest to guest",
            Stream::Small,
            &[tap, vale],
        ),
        figure(
            "a7",
            "TCP without segmentation offload, guest to guest",
            Stream::Tcp,
            &[tap, vale],
        ),
        figure(
            "a8",
            "TCP request and response, guest to guest",
            Stream::Rr,
            &[tap, vale],
        ),
        figure(
            "a9",
            "TCP by who sends",
            Stream::Tcp,
            &[
                ("a4.out", Lan::Tap, Way::Out),
                tap,
                ("a4.in", Lan::Tap, Way::In),
            ],
        ),
    ]
}

/// Figure 3: up to livelock.
fn overload(quick: bool) -> Experiment {
    let offered: &[u32] = if quick {
        &[20_000, 60_000, 200_000, 600_000]
    } else {
        &[
            10_000, 20_000, 40_000, 80_000, 150_000, 300_000, 600_000, 1_000_000, 2_000_000,
        ]
    };
    let livelock = |setting: Setting| {
        let job = |pps: &u32| Job::new(setting, 1, Way::In, Stream::Generated(*pps));
        Line {
            label: setting.name.to_owned(),
            theirs: ("a3", setting.name),
            metric: "kpps",
            jobs: offered.iter().map(job).collect(),
        }
    };
    let itr250 = set("itr=250", Lan::Vale, Load::Plain, ITR250);
    let hosts: &[u32] = if quick {
        &[60_000, 400_000]
    } else {
        &[20_000, 60_000, 140_000, 400_000]
    };
    experiment(
        "a3",
        "Received of what is offered, in bursts of 100, up to livelock, one VCPU",
        Look::Curves,
        vec![
            livelock(base(Lan::Vale)),
            livelock(itr250),
            livelock(with(
                Setup::Threaded,
                Setting {
                    name: "itr=250 threaded",
                    ..itr250
                },
            )),
            livelock(set("receive-throttling", Lan::Switch, Load::Stock, None)),
            livelock(set("itr=0 CSB", Lan::Vale, Load::Csb, Some(0))),
            livelock(set("mair=4000 CSB", Lan::Vale, Load::Csb, MAIR)),
            curve(QEMU, 1, hosts, "a3"),
            curve(VIRTIO, 1, hosts, "a3"),
        ],
    )
}

/// Where packets go, in a label.
fn words(lan: Lan, way: Way) -> &'static str {
    match (lan, way) {
        (Lan::Vale | Lan::Switch, _) => "switch",
        (_, Way::Out) => "guest-host",
        (_, Way::In) => "host-guest",
        (_, Way::Across) => "TAP",
    }
}
