//! What changes, for those who want to be told.
//!
//! Nothing in the daemon reports its changes here: the control thread looks, while somebody wants to know. So a change
//! costs no worker anything, whoever listens, and a client that does not read costs one buffer of bounded size.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::{
    Event, Everything, Happening, News, NicConfig, NicInfo, SwitchConfig, SwitchInfo, reply,
};
use serde::Serialize;

use super::changes::differences;
use super::connection::{Connection, Over, Subscription};
use super::lists;
use crate::explain;
use crate::host::{self, Host};
use crate::report::Section;

/// How often counters are read, if somebody wants to know of losses.
const COUNTERS: Duration = Duration::from_secs(1);
/// How often changes are looked for, while somebody is to be told of them; less often where a look takes long.
const LOOK: Duration = Duration::from_millis(100);
/// From one look to the next at least, whoever comes meanwhile.
const LEAST: Duration = Duration::from_millis(20);
/// And at least so many times what the last one took, up to this.
const SHARE: u32 = 200;
const LONGEST: Duration = Duration::from_secs(1);
/// Reads in a row that find no more of a loss, until it has ended.
const QUIET: u32 = 5;

/// What was there at the last look, and what has changed so far.
#[derive(Default)]
pub(super) struct Watch {
    sequence: u64,
    /// `None` before the first look.
    seen: Option<(BTreeMap<String, NicInfo>, BTreeMap<String, SwitchInfo>)>,
    losses: Losses,
    /// When it began, and when the next one is due.
    looked: Option<(Instant, Instant)>,
    /// What is said since then, as it goes to every client.
    said: HashMap<Said, Arc<[u8]>>,
}

/// One of the messages that follow a look.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Said {
    /// All there is, to who has lost so many changes.
    State(u64),
    /// What has changed, losses of frames with it or not.
    News(bool),
}

impl Watch {
    /// When to look next: soon, where a client waits to be told what there is.
    pub fn due(&self, new: bool) -> Option<Instant> {
        let (at, next) = self.looked?;
        Some(if new { next.min(at + LEAST) } else { next })
    }

    /// Looks, and returns what has changed since the last time, in an order that makes sense.
    pub fn look(&mut self, host: &Host, losses: bool, now: Instant) -> Vec<Event> {
        // Without a name, there is nothing that could be unknown.
        let nics = lists::nics(host, None).map(|told| told.nics);
        let switches = lists::switches(host, None).map(|told| told.switches);
        let by_name = |nic: NicInfo| (nic.config.name.clone(), nic);
        let nics: BTreeMap<_, _> = nics.unwrap_or_default().into_iter().map(by_name).collect();
        let by_name = |switch: SwitchInfo| (switch.config.name.clone(), switch);
        let switches = switches.unwrap_or_default().into_iter();
        let switches: BTreeMap<_, _> = switches.map(by_name).collect();
        self.said.clear();
        let mut events = Vec::new();
        if let Some((old_nics, old_switches)) = &self.seen {
            compare(old_nics, &nics, &mut events, nic_changes);
            compare(old_switches, &switches, &mut events, switch_changes);
        }
        self.seen = Some((nics, switches));
        if losses {
            self.losses.look(host, now, &mut events);
        }
        self.sequence += events.len() as u64;
        self.looked = Some((now, now + gap(now.elapsed())));
        events
    }

    /// Tells a client that subscribes, as far as it reads.
    pub fn tell(
        &mut self,
        client: &mut Connection,
        events: &[Event],
        now: Instant,
    ) -> Result<(), Over> {
        let Some(mut subscription) = client.subscription else {
            return Ok(());
        };
        let is_wanted = |event: &&Event| subscription.losses || !is_loss(event);
        let wanted = events.iter().filter(is_wanted).count() as u64;
        if client.wants_to_write() {
            subscription.lost += wanted;
            client.subscription = Some(subscription);
            return Ok(());
        }
        let (what, lost) = if subscription.begun && subscription.lost == 0 {
            if wanted == 0 {
                return Ok(());
            }
            (Said::News(subscription.losses), 0)
        } else {
            (Said::State(subscription.lost), subscription.lost)
        };
        client.subscription = Some(Subscription {
            begun: true,
            lost: 0,
            ..subscription
        });
        let told = match self.said.get(&what) {
            Some(told) => Arc::clone(told),
            None => {
                let news = News {
                    sequence: self.sequence,
                    state: matches!(what, Said::State(_)).then(|| self.everything()),
                    events: match what {
                        Said::State(_) => Vec::new(),
                        Said::News(_) => events.iter().filter(is_wanted).cloned().collect(),
                    },
                    lost: (lost > 0).then_some(lost),
                };
                let told: Arc<[u8]> = reply(&news, true).into();
                self.said.insert(what, Arc::clone(&told));
                told
            }
        };
        client.tell_all(told, now)
    }

    fn everything(&self) -> Everything {
        let Some((nics, switches)) = &self.seen else {
            return Everything::default();
        };
        Everything {
            nics: nics.values().cloned().collect(),
            switches: switches.values().cloned().collect(),
        }
    }
}

/// From a look that has taken so long to the next.
fn gap(took: Duration) -> Duration {
    (took * SHARE).clamp(LOOK, LONGEST)
}

fn is_loss(event: &Event) -> bool {
    matches!(event.what, Happening::LossBegins | Happening::LossEnds)
}

fn event(what: Happening, name: &str) -> Event {
    Event {
        what,
        name: name.to_owned(),
        detail: None,
        count: None,
    }
}

/// What is to be said of one thing that was, is, or both.
fn compare<T>(
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
    events: &mut Vec<Event>,
    changes: fn(&str, Option<&T>, Option<&T>, &mut Vec<Event>),
) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        changes(name, old.get(name), new.get(name), events);
    }
}

fn nic_changes(name: &str, old: Option<&NicInfo>, new: Option<&NicInfo>, events: &mut Vec<Event>) {
    let both = old.zip(new);
    let same = both.is_some_and(|(old, new)| fixed(&old.config) == fixed(&new.config));
    if let Some((old, new)) = both.filter(|(old, new)| same && old.config != new.config) {
        events.push(changed(
            Happening::NicChanged,
            name,
            &old.config,
            &new.config,
        ));
    }
    let mut say = |what| events.push(event(what, name));
    if old.is_some() && !same {
        say(Happening::NicRemoved);
    }
    let Some(new) = new else { return };
    if !same {
        say(Happening::NicAdded);
    }
    // What a new one is from the beginning needs no word.
    let old = old.filter(|_| same);
    let was = |flag: fn(&NicInfo) -> bool, usual: bool| old.map_or(usual, flag);
    match (was(|nic| nic.connected, false), new.connected) {
        (false, true) => say(Happening::ClientConnected),
        (true, false) => say(Happening::ClientGone),
        _ => {}
    }
    match (was(|nic| nic.link, true), new.link) {
        (false, true) => say(Happening::LinkUp),
        (true, false) => say(Happening::LinkDown),
        _ => {}
    }
    if new.failed && !was(|nic| nic.failed, false) {
        say(Happening::NicFailed);
    }
}

/// The words of a NIC that stay while its VMM has it.
fn fixed(nic: &NicConfig) -> NicConfig {
    NicConfig {
        mac_lock: None,
        back_pressure: None,
        guard: None,
        busy_poll_us: None,
        capture: None,
        capture_mib: None,
        link: None,
        ..nic.clone()
    }
}

/// Words of something have changed: which.
fn changed<T: Serialize>(what: Happening, name: &str, old: &T, new: &T) -> Event {
    Event {
        detail: Some(differences(old, new).join(", ")),
        ..event(what, name)
    }
}

fn switch_changes(
    name: &str,
    old: Option<&SwitchInfo>,
    new: Option<&SwitchInfo>,
    events: &mut Vec<Event>,
) {
    match (old, new) {
        (None, Some(_)) => events.push(event(Happening::SwitchAdded, name)),
        (Some(_), None) => events.push(event(Happening::SwitchRemoved, name)),
        _ => {}
    }
    let ports = |switch: Option<&SwitchInfo>| -> BTreeSet<String> {
        let ports = switch.and_then(|switch| switch.config.ports.clone());
        ports.unwrap_or_default().into_iter().collect()
    };
    let (before, now) = (ports(old), ports(new));
    if let Some((old, new)) = old.zip(new) {
        let words = |switch: &SwitchInfo| SwitchConfig {
            ports: None,
            ..switch.config.clone()
        };
        let (old, new) = (words(old), words(new));
        if old != new {
            events.push(changed(Happening::SwitchChanged, name, &old, &new));
        }
    }
    let port_of = |what, port: &String| Event {
        detail: Some(port.clone()),
        ..event(what, name)
    };
    // Those of a switch that went have gone with it.
    if new.is_some() {
        let gone = before.difference(&now);
        events.extend(gone.map(|port| port_of(Happening::PortRemoved, port)));
    }
    let come = now.difference(&before);
    events.extend(come.map(|port| port_of(Happening::PortAdded, port)));
}

type Key = (&'static str, String, &'static str);

/// Losses that rise, and since when they do not.
#[derive(Default)]
struct Losses {
    read_at: Option<Instant>,
    counts: BTreeMap<Key, u64>,
    /// Reads in a row that found no more.
    rising: BTreeMap<Key, u32>,
    /// Cells that have answered.
    cells: BTreeSet<String>,
}

impl Losses {
    fn look(&mut self, host: &Host, now: Instant, events: &mut Vec<Event>) {
        let due = self.read_at.is_none_or(|at| now >= at + COUNTERS);
        if due {
            host.want_losses(now);
            self.compare(&host.counters(), host.far_losses(), events);
            self.read_at = Some(now);
        }
    }

    /// Compares with the last time what this process and cells have counted.
    fn compare(
        &mut self,
        sections: &[Section],
        cells: BTreeMap<String, host::Losses>,
        events: &mut Vec<Event>,
    ) {
        let first = self.read_at.is_none();
        let mut counts = BTreeMap::new();
        for section in sections {
            for (reason, value) in &section.values {
                if *value > 0 && explain::find_loss(section.kind, reason).is_some() {
                    counts.insert((section.kind, section.name.clone(), *reason), *value);
                }
            }
        }
        // What was there when a cell was asked first is not news either.
        let known: BTreeSet<String> = cells.keys().cloned().collect();
        let mut new = BTreeSet::new();
        for (cell, losses) in cells {
            let is_new = !self.cells.contains(&cell);
            for (key, value) in losses {
                if is_new {
                    new.insert(key.clone());
                }
                counts.insert(key, value);
            }
        }
        self.cells = known;
        let say = |what, key: &Key, count| Event {
            detail: Some(key.2.to_owned()),
            count: Some(count),
            ..event(what, &key.1)
        };
        for (key, value) in &counts {
            let before = self.counts.get(key).copied().unwrap_or(0);
            if !first && *value > before && !new.contains(key) {
                let begins = self.rising.insert(key.clone(), 0).is_none();
                events.extend(begins.then(|| say(Happening::LossBegins, key, *value)));
            }
        }
        for (key, quiet) in std::mem::take(&mut self.rising) {
            let value = counts.get(&key).copied().unwrap_or(0);
            let rises = value > self.counts.get(&key).copied().unwrap_or(0);
            let quiet = if rises { 0 } else { quiet + 1 };
            if quiet >= QUIET {
                events.push(say(Happening::LossEnds, &key, value));
            } else {
                self.rising.insert(key, quiet);
            }
        }
        self.counts = counts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(value: u64) -> Vec<Section> {
        vec![Section {
            kind: "switch-port",
            name: "lan/a".into(),
            values: vec![("drop_storm", value), ("rx_frames", value)],
        }]
    }

    #[test]
    fn looks_that_take_long_come_seldom_and_who_comes_waits_for_the_next_only_a_little() {
        let took = [0, 1, 3, 500].map(Duration::from_millis);
        assert_eq!(
            took.map(gap),
            [100, 200, 600, 1000].map(Duration::from_millis)
        );
        let (mut watch, at) = (Watch::default(), Instant::now());
        assert_eq!(watch.due(false), None, "at once");
        watch.looked = Some((at, at + gap(took[3])));
        assert_eq!(watch.due(false), Some(at + LONGEST));
        assert_eq!(watch.due(true), Some(at + LEAST));
    }

    #[test]
    fn a_loss_begins_once_and_ends_when_it_was_quiet_for_some_looks() {
        let mut losses = Losses::default();
        let mut told = Vec::new();
        for value in [3, 3, 4, 9, 9, 9, 9, 9, 9, 9, 10] {
            let mut events = Vec::new();
            losses.compare(&section(value), BTreeMap::new(), &mut events);
            losses.read_at = Some(Instant::now());
            let words = events
                .into_iter()
                .map(|e| (e.what, e.name, e.detail, e.count));
            told.push(words.collect::<Vec<_>>());
        }
        let of = |what, count| {
            let (name, reason) = ("lan/a".to_owned(), Some("drop_storm".to_owned()));
            vec![(what, name, reason, Some(count))]
        };
        let mut expected = vec![Vec::new(); 11];
        // What was there at the first look is not news, and frames that arrive are no loss.
        expected[2] = of(Happening::LossBegins, 4);
        expected[8] = of(Happening::LossEnds, 9);
        expected[10] = of(Happening::LossBegins, 10);
        assert_eq!(told, expected);
    }

    #[test]
    fn what_cells_lose_is_told_from_their_second_answer_on() {
        let mut losses = Losses::default();
        let mut told = |cells: &[(&str, &str, u64)]| {
            let of = |(cell, name, value): &(&str, &str, u64)| {
                let key = ("switch-port", (*name).to_owned(), "drop_storm");
                ((*cell).to_owned(), [(key, *value)].into())
            };
            let mut events = Vec::new();
            losses.compare(&section(1), cells.iter().map(of).collect(), &mut events);
            losses.read_at = Some(Instant::now());
            let words = events.into_iter().map(|event| (event.what, event.name));
            words.collect::<Vec<_>>()
        };
        let begins = |name: &str| vec![(Happening::LossBegins, name.to_owned())];
        assert_eq!(told(&[]), []);
        assert_eq!(told(&[("x", "lan/b", 5)]), [], "it was there before");
        assert_eq!(told(&[("x", "lan/b", 6)]), begins("lan/b"));
        // Another cell comes.
        assert_eq!(told(&[("x", "lan/b", 6), ("y", "lan/c", 3)]), []);
        assert_eq!(
            told(&[("x", "lan/b", 6), ("y", "lan/c", 4)]),
            begins("lan/c")
        );
        // Its process was another: it counts from zero.
        assert_eq!(told(&[("x", "lan/b", 2), ("y", "lan/c", 4)]), []);
    }
}
