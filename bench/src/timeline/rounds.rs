//! Round trips put together from stamps: what happened one after the other, whose turn it was, and how long.

use std::collections::{BTreeMap, HashMap};

use rig::paired::median;

use super::stamps::{Stamp, Step, Wakes};
use crate::stats::Summary;

/// A turn that begins so many nanoseconds after its worker woke is what it woke for.
const AT_ONCE: u64 = 10_000;

/// Whose time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// Ours: the port's thread is called and does not run yet.
    PortWake,
    /// Ours: the port's thread works.
    Port,
    /// Ours: the NIC's worker is called and does not run yet.
    WorkerWake,
    /// Ours: the worker works.
    Worker,
    /// The host's stack behind the TAP, and the program that pings.
    Host,
    /// The guest, and the VMM around it.
    Guest,
}

impl Whose {
    pub const ALL: [Self; 6] = [
        Self::PortWake,
        Self::Port,
        Self::WorkerWake,
        Self::Worker,
        Self::Host,
        Self::Guest,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::PortWake => "port thread's wake-up",
            Self::Port => "port thread",
            Self::WorkerWake => "NIC worker's wake-up",
            Self::Worker => "NIC worker",
            Self::Host => "host's stack and ping",
            Self::Guest => "QEMU and guest",
        }
    }

    /// Whether hypernic is to blame.
    pub fn is_ours(self) -> bool {
        !matches!(self, Self::Host | Self::Guest)
    }
}

/// One step of a round trip: what it ends with.
#[derive(Debug, Clone, PartialEq)]
pub struct Passed {
    /// What happened at its end.
    pub what: String,
    /// Whose it was.
    pub whose: Whose,
    /// Nanoseconds.
    pub took: u64,
    /// Of these a thread of ours was called already, and did not run yet.
    pub wake: u64,
    /// Whether that thread slept before.
    pub slept: bool,
    /// How long threads of the VMM that were called did not run yet.
    pub vmm: u64,
}

/// Threads by number.
#[derive(Debug, Clone, Default)]
pub struct Threads {
    /// The daemon's, by their names in stamps.
    pub daemon: HashMap<String, u32>,
    /// The VMM's.
    pub vmm: Vec<u32>,
}

/// What is known besides the stamps.
pub struct Around<'a> {
    pub wakes: &'a Wakes,
    pub threads: &'a Threads,
    /// The name of a register.
    pub name: &'a dyn Fn(u64) -> String,
}

struct Event<'a> {
    what: String,
    at: u64,
    thread: &'a str,
    step: Step,
}

impl Around<'_> {
    /// Stamps that are steps of their own: what is looked for in vain is none.
    fn events<'s>(&self, stamps: &'s [Stamp]) -> Vec<Event<'s>> {
        let mut events = Vec::new();
        let mut looks: BTreeMap<&str, &Stamp> = BTreeMap::new();
        let event = |stamp: &'s Stamp, what: String| Event {
            what,
            at: stamp.at,
            thread: &stamp.thread,
            step: stamp.step,
        };
        for stamp in stamps {
            let what = match stamp.step {
                Step::Woken | Step::Arrived => continue,
                Step::Port => {
                    looks.insert(&stamp.thread, stamp);
                    continue;
                }
                Step::Arrives => {
                    if let Some(look) = looks.remove(stamp.thread.as_str()) {
                        events.push(event(look, "looks at the TAP".to_owned()));
                    }
                    "frame read".to_owned()
                }
                Step::Turn => "message noticed".to_owned(),
                Step::Read => format!("{} read", (self.name)(stamp.number)),
                Step::Write => format!("{} written", (self.name)(stamp.number)),
                Step::Other => "other message".to_owned(),
                Step::Answered => "answered".to_owned(),
                // Or the driver is told of something else: that its frame was sent.
                Step::Interrupt => match events.last() {
                    Some(Event {
                        step: Step::Arrives,
                        thread,
                        ..
                    }) if *thread == stamp.thread => "frame in guest memory".to_owned(),
                    _ => "interrupt raised".to_owned(),
                },
                Step::Signalled => "interrupt's eventfd written".to_owned(),
                Step::Leaves => "frame ready for the TAP".to_owned(),
                Step::Left => "frame written".to_owned(),
            };
            events.push(event(stamp, what));
        }
        events
    }

    /// One step, from the event before (or the beginning) to this one.
    fn passed(&self, from: u64, event: Event<'_>, stamps: &[Stamp]) -> Passed {
        let on_port = event.thread.starts_with("port");
        let mut whose = match (event.step, on_port) {
            (Step::Left, _) => Whose::Host,
            (Step::Turn, _) => Whose::Guest,
            (_, true) => Whose::Port,
            _ => Whose::Worker,
        };
        let (mut wake, mut slept) = (0, false);
        if event.step == Step::Port && on_port {
            // From the frame at the TAP on, which is as good as the call.
            (whose, slept, wake) = (Whose::PortWake, true, event.at - from);
        } else if event.step == Step::Turn {
            let woken = stamps.iter().rev().find(|stamp| {
                stamp.step == Step::Woken
                    && stamp.thread == event.thread
                    && (from..=event.at).contains(&stamp.at)
                    // What woke it may have been something else, and this came while it was awake.
                    && event.at - stamp.at < AT_ONCE
            });
            slept = woken.is_some();
            let call = woken.and_then(|woken| {
                let thread = self.threads.daemon.get(event.thread)?;
                self.wakes.call(*thread, from, woken.at)
            });
            wake = call.map_or(0, |call| event.at - call);
        }
        let vmm = match whose {
            Whose::Guest => {
                let waited = |thread: &u32| self.wakes.waited(*thread, from, event.at - wake);
                self.threads.vmm.iter().map(waited).sum()
            }
            _ => 0,
        };
        Passed {
            what: event.what,
            whose,
            took: event.at - from,
            wake,
            slept,
            vmm,
        }
    }

    fn chain(&self, mut from: u64, events: Vec<Event<'_>>, stamps: &[Stamp]) -> Vec<Passed> {
        let mut chain = Vec::with_capacity(events.len() + 1);
        for event in events {
            let at = event.at;
            chain.push(self.passed(from, event, stamps));
            from = at;
        }
        chain
    }

    /// Round trips that the host began: when each request was sent and its answer came.
    pub fn of_host(&self, pairs: &[(u64, u64)], stamps: &[Stamp]) -> Vec<Vec<Passed>> {
        let round = |&(sent, came): &(u64, u64)| {
            let own = within(stamps, sent, came);
            let mut events = self.events(own);
            // The answer's way: what the worker does after it is not waited for.
            let last = events
                .iter()
                .rposition(|event| event.step == Step::Leaves)?;
            events.truncate(last + 1);
            let left = events.last()?.at;
            let mut chain = self.chain(sent, events, own);
            chain.push(Passed {
                what: "answer at the program".to_owned(),
                whose: Whose::Host,
                took: came - left,
                wake: 0,
                slept: false,
                vmm: 0,
            });
            Some(chain)
        };
        pairs.iter().filter_map(round).collect()
    }

    /// Round trips that the guest began: from its doorbell on until nothing happens for so long.
    pub fn of_guest(&self, stamps: &[Stamp], silence: u64) -> Vec<Vec<Passed>> {
        let talk = |stamp: &Stamp| !matches!(stamp.step, Step::Woken | Step::Port);
        let talk: Vec<u64> = stamps.iter().filter(|s| talk(s)).map(|s| s.at).collect();
        let groups = talk.chunk_by(|a, b| b - a < silence);
        let round = |group: &[u64]| {
            let own = within(stamps, *group.first()?, *group.last()?);
            let mut events = self.events(own);
            let sends = events.iter().any(|event| event.step == Step::Leaves);
            let comes = events.iter().any(|event| event.step == Step::Arrives);
            if !sends || !comes || events.first()?.step != Step::Turn {
                return None;
            }
            let begin = events.remove(0).at;
            Some(self.chain(begin, events, own))
        };
        groups.filter_map(round).collect()
    }
}

fn within(stamps: &[Stamp], from: u64, to: u64) -> &[Stamp] {
    let begin = stamps.partition_point(|stamp| stamp.at < from);
    let end = stamps.partition_point(|stamp| stamp.at <= to);
    &stamps[begin..end.max(begin)]
}

/// A step over many round trips.
#[derive(Debug, Clone)]
pub struct Typical {
    pub what: String,
    pub whose: Whose,
    /// Microseconds.
    pub took: Summary,
    /// Medians, microseconds.
    pub wake: f64,
    pub vmm: f64,
    /// The share of round trips in which the thread slept, 0 to 1.
    pub slept: f64,
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

fn middle(values: impl Iterator<Item = u64>) -> f64 {
    median(&values.map(us).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// The round trips whose steps are those of most, step by step, and how many those are.
pub fn typical(rounds: &[Vec<Passed>]) -> (Vec<Typical>, usize) {
    let steps = |round: &[Passed]| -> Vec<String> {
        let words = round.iter().map(|p| format!("{:?} {}", p.whose, p.what));
        words.collect()
    };
    let mut kinds: BTreeMap<Vec<String>, Vec<&Vec<Passed>>> = BTreeMap::new();
    for round in rounds {
        kinds.entry(steps(round)).or_default().push(round);
    }
    let Some(those) = kinds.into_values().max_by_key(Vec::len) else {
        return (Vec::new(), 0);
    };
    let step = |at: usize| {
        let all = || those.iter().map(|round| &round[at]);
        let first = &those[0][at];
        Some(Typical {
            what: first.what.clone(),
            whose: first.whose,
            took: Summary::of(&all().map(|p| us(p.took)).collect::<Vec<_>>())?,
            wake: middle(all().map(|p| p.wake)),
            vmm: middle(all().map(|p| p.vmm)),
            slept: all().filter(|p| p.slept).count() as f64 / those.len() as f64,
        })
    };
    ((0..those[0].len()).filter_map(step).collect(), those.len())
}

/// What a round trip has of each.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    /// Microseconds of each owner, one figure for each round trip.
    pub of: BTreeMap<Whose, Vec<f64>>,
    /// The whole.
    pub all: Vec<f64>,
    /// What hypernic has of it.
    pub ours: Vec<f64>,
    /// Within QEMU's and the guest's part: threads of the VMM that were called and did not run yet.
    pub vmm: Vec<f64>,
    /// Messages before the answer.
    pub messages: Vec<f64>,
}

/// Sums over each round trip.
pub fn shares(rounds: &[Vec<Passed>]) -> Shares {
    let mut shares = Shares::default();
    for round in rounds {
        let mut sums: BTreeMap<Whose, u64> = Whose::ALL.into_iter().map(|w| (w, 0)).collect();
        for passed in round {
            // A call of the worker is the end of what the VMM does.
            let (rest, wake) = match passed.whose {
                Whose::Guest => (passed.took - passed.wake, passed.wake),
                _ => (passed.took, 0),
            };
            *sums.entry(passed.whose).or_default() += rest;
            *sums.entry(Whose::WorkerWake).or_default() += wake;
        }
        let ours = sums.iter().filter(|(whose, _)| whose.is_ours());
        shares.ours.push(us(ours.map(|(_, sum)| sum).sum()));
        shares.all.push(us(sums.values().sum()));
        shares.vmm.push(us(round.iter().map(|p| p.vmm).sum()));
        let told = round.iter().filter(|p| p.whose == Whose::Guest);
        shares.messages.push(told.count() as f64);
        for (whose, sum) in sums {
            shares.of.entry(whose).or_default().push(us(sum));
        }
    }
    shares
}

#[cfg(test)]
mod tests;
