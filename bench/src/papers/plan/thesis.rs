//! The tables and figures of the thesis.

use super::super::lan::{Lan, Load, Way};
use super::settings::{
    ADAPTIVE, FIXED, M4000, M4000_CSB, M4000_SC, NO_EVENT_IDX, QEMU, QEMU_M4000, QEMU_SC, RING, SC,
    TAP, VIRTIO,
};
use super::terms::{Experiment, Line, Look, Setting, Stream, curve, experiment, line, set};

/// The rates of figures 3.4 and 3.5, with their names.
const SWEEP: [(&str, u32); 6] = [
    ("mair=1000", 1000),
    ("mair=2000", 2000),
    ("mair=4000", 4000),
    ("mair=8000", 8000),
    ("mair=16000", 16_000),
    ("mair=50000", 50_000),
];

pub fn thesis(quick: bool) -> Vec<Experiment> {
    let rates: &[u32] = if quick {
        &[14_000, 30_000, 60_000, 120_000]
    } else {
        &[
            7000, 14_000, 25_000, 40_000, 60_000, 90_000, 140_000, 250_000,
        ]
    };
    let pairs: &[u32] = if quick { &[30_000, 120_000] } else { rates };
    let small = |settings: &[Setting], vcpus: u32, theirs| -> Vec<Line> {
        let of = |stream| {
            let one = move |s: &Setting| line(*s, vcpus, Way::Out, stream, theirs);
            settings.iter().map(one)
        };
        of(Stream::Small).chain(of(Stream::Kernel)).collect()
    };
    let mut t31 = small(&[TAP, M4000, M4000_SC, SC], 1, "t3.1");
    t31.extend(small(
        &[ADAPTIVE, FIXED, QEMU, QEMU_M4000, QEMU_SC],
        1,
        "t3.1",
    ));
    t31.extend(small(&[TAP, M4000, M4000_SC, SC], 2, "t3.1"));
    let curves = |settings: &[Setting], theirs| -> Vec<Line> {
        let of = |vcpus, rates| {
            settings
                .iter()
                .map(move |s| curve(*s, vcpus, rates, theirs))
        };
        of(1, rates).chain(of(2, pairs)).collect()
    };
    let mut t41 = Vec::new();
    let mut t43 = Vec::new();
    for vcpus in [1, 2] {
        // The base is the existing e1000, whose figures are in other tables.
        t41.extend(small(&[TAP], vcpus, "t3.1"));
        t41.extend(small(&[VIRTIO, M4000_CSB], vcpus, "t4.1"));
        let rates = if vcpus == 1 { rates } else { pairs };
        t43.push(curve(TAP, vcpus, rates, "t3.2"));
        t43.push(curve(VIRTIO, vcpus, rates, "t4.3"));
        t43.push(curve(M4000_CSB, vcpus, rates, "t4.3"));
    }
    let mut t42 = small(&[VIRTIO], 1, "t4.1");
    t42.extend(small(&[NO_EVENT_IDX], 1, "t4.2"));
    let f33 = [TAP, RING, M4000, M4000_CSB, ADAPTIVE, QEMU, VIRTIO];
    vec![
        experiment("t3.1", "Guest to host", Look::Bars, t31),
        experiment(
            "t3.2",
            "Host to guest, at the critical rate",
            Look::Bars,
            curves(&[TAP, M4000, RING], "t3.2"),
        ),
        experiment(
            "t3.3",
            "Packets handled by a poll of the driver",
            Look::Polls,
            vec![line(TAP, 1, Way::In, Stream::Polls(14_000), "t3.3")],
        ),
        experiment(
            "f3.3",
            "What the receiver's program gets of what is offered, host to guest, one VCPU",
            Look::Curves,
            f33.iter().map(|s| curve(*s, 1, rates, "f3.3")).collect(),
        ),
        experiment(
            "f3.4",
            "Rate sent over interrupts allowed",
            Look::Sweep,
            sweep("f3.4", quick, rates),
        ),
        experiment(
            "f3.5",
            "Critical rate over interrupts allowed",
            Look::Sweep,
            sweep("f3.5", quick, rates),
        ),
        experiment("t4.1", "Guest to host, paravirtualized", Look::Bars, t41),
        experiment(
            "t4.2",
            "virtio-net without a way to ask for late interrupts",
            Look::Bars,
            t42,
        ),
        experiment(
            "t4.3",
            "Host to guest, paravirtualized, at the critical rate",
            Look::Bars,
            t43,
        ),
    ]
}

/// Rates over the number of interrupts that are allowed.
fn sweep(id: &'static str, quick: bool, rates: &[u32]) -> Vec<Line> {
    let chosen = SWEEP
        .iter()
        .filter(|(_, rate)| !quick || [1000, 4000, 16_000].contains(rate));
    let setting =
        |&(name, rate): &(&'static str, u32)| set(name, Lan::Tap, Load::Plain, Some(rate));
    let some = if quick { &rates[1..] } else { &rates[2..] };
    chosen
        .map(|pair| match id {
            "f3.4" => line(setting(pair), 1, Way::Out, Stream::Kernel, "f3.4"),
            _ => curve(setting(pair), 1, some, "f3.5"),
        })
        .map(|line| Line {
            metric: "kpps",
            ..line
        })
        .collect()
}
