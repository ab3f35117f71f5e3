//! Settings, streams, measurements, and the lines and tables they make.

use super::super::lan::{Driver, Lan, Load, Setup, Way};
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
    pub(super) fn new(setting: Setting, vcpus: u32, way: Way, stream: Stream) -> Self {
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

impl Experiment {
    /// Whether it compares virtio-nets, of which some are ours.
    pub fn compares_virtio(&self) -> bool {
        self.id.starts_with('v')
    }

    /// Whether it compares two chips, of which the paper printed the figures of one.
    pub fn compares_chips(&self) -> bool {
        self.id.starts_with("c4")
    }
}

pub const fn set(name: &'static str, lan: Lan, load: Load, rate: Option<u32>) -> Setting {
    Setting {
        name,
        lan,
        driver: Driver { load, rate },
        offloads: false,
        setup: Setup::Usual,
    }
}

pub const fn with(setup: Setup, setting: Setting) -> Setting {
    Setting { setup, ..setting }
}

pub fn line(setting: Setting, vcpus: u32, way: Way, stream: Stream, theirs: &'static str) -> Line {
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

pub fn curve(setting: Setting, vcpus: u32, rates: &[u32], theirs: &'static str) -> Line {
    let job = |rate: &u32| Job::new(setting, vcpus, Way::In, Stream::Paced(*rate));
    Line {
        label: setting.name.to_owned(),
        theirs: (theirs, setting.name),
        metric: "kpps",
        jobs: rates.iter().map(job).collect(),
    }
}

pub fn experiment(
    id: &'static str,
    title: &'static str,
    look: Look,
    lines: Vec<Line>,
) -> Experiment {
    Experiment {
        id,
        title,
        look,
        lines,
    }
}
