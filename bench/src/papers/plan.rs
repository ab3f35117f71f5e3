//! What is measured: each table and figure of the papers as lines, each line as one or several measurements.

use super::lan::{Driver, Lan, Load, Setup, Way};
use crate::plot::Whose;

/// How NIC and driver are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// The papers' name for it, or ours.
    pub name: &'static str,
    /// Which NIC.
    pub lan: Lan,
    /// Which driver.
    pub driver: Driver,
    /// Segmentation offloads; the papers had none.
    pub offloads: bool,
    /// The guest's settings.
    pub setup: Setup,
}

/// What goes over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Datagrams in the smallest frames, as fast as a program sends them.
    Small,
    /// The same from the guest's kernel, without a program.
    Kernel,
    /// Datagrams of 1460 bytes.
    Large,
    /// TCP in writes of 1460 bytes.
    Tcp,
    /// TCP in writes of 16 KiB.
    TcpW,
    /// Requests and responses of a byte.
    Rr,
    /// The same in turns with `Lan::Tap`; what counts is how many times its rate.
    RrOver,
    /// Small datagrams at a rate; the receiver's rate is what counts.
    Paced(u32),
    /// The same by the poll-mode generator on the switch.
    Generated(u32),
    /// The same, and the receiving driver's polls are counted by their size.
    Polls(u32),
    /// Round trips of small datagrams at a rate.
    Echo(u32),
}

impl Stream {
    /// The papers' name of the figure, and its unit.
    pub fn metric(self) -> (&'static str, &'static str) {
        match self {
            Self::Small | Self::Kernel => ("udp8", "kpps"),
            Self::Large => ("udp1460", "kpps"),
            Self::Tcp => ("tcp", "Mbit/s"),
            Self::TcpW => ("tcpw", "Mbit/s"),
            Self::Rr => ("rr", "k/s"),
            Self::RrOver => ("rr", "times"),
            Self::Paced(_) | Self::Generated(_) => ("kpps", "kpps"),
            Self::Polls(_) => ("percent", "%"),
            Self::Echo(_) => ("us", "us"),
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// Processors of each guest.
    pub vcpus: u32,
    /// The driver comes next, since loading it takes a while.
    pub driver: Driver,
    /// The NIC.
    pub setting: Setting,
    /// Which way.
    pub way: Way,
    /// What.
    pub stream: Stream,
}

impl Job {
    fn new(setting: Setting, vcpus: u32, way: Way, stream: Stream) -> Self {
        Self {
            vcpus,
            driver: setting.driver,
            setting,
            way,
            stream,
        }
    }

    /// A name, also in the raw data.
    pub fn key(&self) -> String {
        format!(
            "{} {:?} {} {:?} {:?}",
            self.setting.name, self.setting.lan, self.vcpus, self.way, self.stream
        )
    }
}

/// A line of a table or a curve of a figure.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is called.
    pub label: String,
    /// The paper's row: table, row.
    pub theirs: (&'static str, &'static str),
    /// The paper's name for the figure that is compared.
    pub metric: &'static str,
    /// One measurement, or the points of a curve, of which the largest counts.
    pub jobs: Vec<Job>,
}

impl Line {
    /// Whose NIC it measures.
    pub fn whose(&self) -> Whose {
        let first = self.jobs.first();
        Whose::ours(first.is_none_or(|j| j.setting.lan.ours()))
    }
}

/// How it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Speed-ups as bars, the paper's and ours.
    Bars,
    /// Received over offered, a curve for each line.
    Curves,
    /// The lines' figures over the number in their labels.
    Sweep,
    /// Distributions of round trips.
    Times,
    /// How many packets a poll handles.
    Polls,
}

/// A table or figure.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The table's id in `numbers.json`.
    pub id: &'static str,
    /// A title.
    pub title: &'static str,
    /// How it is drawn.
    pub look: Look,
    /// Its lines; the first of those with the same metric, way and processors is what the others are compared with.
    pub lines: Vec<Line>,
}

const fn set(name: &'static str, lan: Lan, load: Load, rate: Option<u32>) -> Setting {
    Setting {
        name,
        lan,
        driver: Driver { load, rate },
        offloads: false,
        setup: Setup::Usual,
    }
}

const fn with(setup: Setup, setting: Setting) -> Setting {
    Setting { setup, ..setting }
}

/// The thesis' rate of interrupts, and what moderation delays of 250 and 100 units of 250 ns amount to.
const MAIR: Option<u32> = Some(4000);
const ITR250: Option<u32> = Some(16_000);
const ITR100: Option<u32> = Some(40_000);

const fn base(lan: Lan) -> Setting {
    set("itr=0", lan, Load::Plain, Some(0))
}
const TAP: Setting = base(Lan::Tap);
const M4000: Setting = set("mair=4000", Lan::Tap, Load::Plain, MAIR);
const M4000_SC: Setting = set("mair=4000 SC", Lan::Tap, Load::Combining, MAIR);
const SC: Setting = set("itr=0 SC", Lan::Tap, Load::Combining, Some(0));
const M4000_CSB: Setting = set("mair=4000 CSB", Lan::Tap, Load::Csb, MAIR);
const RING: Setting = with(
    Setup::Ring,
    set("itr=0 ring 4096", Lan::Tap, Load::Plain, Some(0)),
);
const ADAPTIVE: Setting = set("adaptive", Lan::Adaptive, Load::Stock, None);
const FIXED: Setting = set("fixed:4000", Lan::Fixed, Load::Stock, None);
const QEMU: Setting = set("QEMU itr=0", Lan::Qemu, Load::Plain, Some(0));
const QEMU_M4000: Setting = set("QEMU mair=4000", Lan::Qemu, Load::Plain, MAIR);
const QEMU_SC: Setting = set("QEMU mair=4000 SC", Lan::Qemu, Load::Combining, MAIR);
const VIRTIO: Setting = set("virtio", Lan::Virtio, Load::Plain, Some(0));
const NO_EVENT_IDX: Setting = set("virtio no event idx", Lan::NoEventIdx, Load::Plain, Some(0));

/// The rates of figures 3.4 and 3.5, with their names.
const SWEEP: [(&str, u32); 6] = [
    ("mair=1000", 1000),
    ("mair=2000", 2000),
    ("mair=4000", 4000),
    ("mair=8000", 8000),
    ("mair=16000", 16_000),
    ("mair=50000", 50_000),
];

fn line(setting: Setting, vcpus: u32, way: Way, stream: Stream, theirs: &'static str) -> Line {
    Line {
        label: setting.name.to_owned(),
        theirs: (theirs, setting.name),
        metric: match (theirs.starts_with('t'), stream) {
            // The thesis has but one kind of figure.
            (true, Stream::Small | Stream::Kernel) => "kpps",
            _ => stream.metric().0,
        },
        jobs: vec![Job::new(setting, vcpus, way, stream)],
    }
}

fn curve(setting: Setting, vcpus: u32, rates: &[u32], theirs: &'static str) -> Line {
    let job = |rate: &u32| Job::new(setting, vcpus, Way::In, Stream::Paced(*rate));
    Line {
        label: setting.name.to_owned(),
        theirs: (theirs, setting.name),
        metric: "kpps",
        jobs: rates.iter().map(job).collect(),
    }
}

/// All tables and figures; with `quick`, fewer points and one processor where two add nothing new.
pub fn experiments(quick: bool) -> Vec<Experiment> {
    let mut all = thesis(quick);
    all.extend(ancs(quick));
    all.extend(nic_emu());
    all
}

fn thesis(quick: bool) -> Vec<Experiment> {
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

fn experiment(id: &'static str, title: &'static str, look: Look, lines: Vec<Line>) -> Experiment {
    Experiment {
        id,
        title,
        look,
        lines,
    }
}

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

fn ancs(quick: bool) -> Vec<Experiment> {
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

fn nic_emu() -> Vec<Experiment> {
    let parties = [
        ADAPTIVE,
        set("QEMU's e1000", Lan::Qemu, Load::Stock, None),
        set("QEMU's virtio-net", Lan::Virtio, Load::Stock, None),
    ]
    .map(|setting| Setting {
        offloads: true,
        ..setting
    });
    let ways = [(Way::In, "to the guest"), (Way::Out, "from the guest")];
    let mut tcp = Vec::new();
    for (way, words) in ways {
        for party in parties {
            let mut line = line(party, 1, way, Stream::TcpW, "n6.1");
            line.label = format!("{}, {words}", line.label);
            tcp.push(line);
        }
    }
    let echo = |id: &'static str, title, pps| {
        let lines = parties.map(|party| line(party, 1, Way::In, Stream::Echo(pps), id));
        experiment(id, title, Look::Times, lines.to_vec())
    };
    vec![
        experiment(
            "n6.1",
            "TCP as iperf3 has it, with every offload",
            Look::Bars,
            tcp,
        ),
        echo("n6.2", "Round trips at 10 000 a second", 10_000),
        echo("n6.3", "Round trips at 100 000 a second", 100_000),
    ]
}

/// All measurements of these, each once, in an order that loads drivers seldom.
pub fn jobs(experiments: &[Experiment]) -> Vec<Job> {
    let lines = experiments.iter().flat_map(|e| &e.lines);
    let mut jobs: Vec<Job> = lines.flat_map(|l| l.jobs.iter().copied()).collect();
    jobs.sort();
    jobs.dedup();
    jobs
}

#[cfg(test)]
mod tests {
    use super::super::published::Published;
    use super::*;

    #[test]
    fn every_table_and_figure_of_the_issue_is_there_and_has_its_place() {
        let published = Published::read().unwrap();
        for quick in [true, false] {
            let ids: Vec<_> = experiments(quick).iter().map(|e| e.id).collect();
            let wanted = [
                "t3.1", "t3.2", "t3.3", "f3.3", "f3.4", "f3.5", "t4.1", "t4.2", "t4.3", "a3",
                "a4.out", "a4.in", "a4.tap", "a4.vale", "a6", "a7", "a8", "a9", "n6.1", "n6.2",
                "n6.3",
            ];
            assert_eq!(ids, wanted);
            assert!(
                wanted
                    .iter()
                    .all(|id| published.place(id).contains("figure")
                        || published.place(id).contains("table"))
            );
        }
    }

    #[test]
    fn rows_the_papers_have_are_measured() {
        let published = Published::read().unwrap();
        let has = |id: &str, row: &str, metric: &str, vcpus: u32| {
            published.figure(id, row, vcpus, metric).is_some()
        };
        for e in experiments(false)
            .iter()
            .filter(|e| e.id.starts_with(['t', 'a']))
        {
            if matches!(e.look, Look::Polls | Look::Curves) {
                continue;
            }
            let found = e
                .lines
                .iter()
                .filter(|l| has(l.theirs.0, l.theirs.1, l.metric, l.jobs[0].vcpus));
            assert!(found.count() >= 2, "{}", e.id);
        }
    }

    #[test]
    fn a_measurement_is_made_once_and_drivers_are_loaded_once_a_bed() {
        let jobs = jobs(&experiments(true));
        let changes = jobs
            .windows(2)
            .filter(|w| (w[0].vcpus, w[0].driver) != (w[1].vcpus, w[1].driver));
        assert!(changes.count() < 24);
        let mut keys: Vec<_> = jobs.iter().map(|j| (j.key(), j.setting)).collect();
        keys.sort();
        let before = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), before);
    }
}
