//! What happened, as the daemon's monitor tells it.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{AskError, Client, Event, Happening, Subscribe};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

/// Most that is kept.
const MOST: usize = 500;
/// Nothing may change for long.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);
/// The pause before a daemon is asked again that was not there.
const PAUSE: Duration = Duration::from_secs(2);

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Entry {
    number: u64,
    /// Milliseconds since 1970.
    at: u64,
    what: &'static str,
    name: String,
    /// To how many others, too.
    #[serde(skip_serializing_if = "is_zero")]
    more: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

#[derive(Default)]
pub(super) struct Log {
    kept: Mutex<Kept>,
    /// A page has asked since the daemon went.
    asked: Mutex<bool>,
    asks: Condvar,
}

#[derive(Default)]
struct Kept {
    number: u64,
    entries: VecDeque<Entry>,
}

impl Log {
    pub fn start(control: PathBuf) -> io::Result<Arc<Self>> {
        let log = Arc::<Self>::default();
        let kept = Arc::clone(&log);
        let work = move || {
            let mut answered = true;
            loop {
                let said = kept.follow(&control, &mut answered);
                if std::mem::take(&mut answered) {
                    let why = said.err().map(|error| error.to_string());
                    kept.own("daemon_gone", why, None);
                }
                // A client starts a daemon that waits for one behind systemd's socket: only what a page asks for may do that.
                *kept.asked.lock() = false;
                std::thread::sleep(PAUSE);
                kept.wait_for_a_page();
            }
        };
        std::thread::Builder::new().name("log".into()).spawn(work)?;
        Ok(log)
    }

    fn wait_for_a_page(&self) {
        let mut asked = self.asked.lock();
        while !*asked {
            self.asks.wait(&mut asked);
        }
    }

    /// Notes what the daemon tells, until it tells no more.
    fn follow(&self, control: &Path, answered: &mut bool) -> Result<(), AskError> {
        let mut client = Client::connect(control)?;
        let losses = Some(true);
        client.send(&Subscribe { losses }, true)?;
        loop {
            let (news, more) = client.next::<Subscribe>(PATIENCE)?;
            if let Some(lost) = news.lost {
                self.own("lost", None, Some(lost));
            } else if news.state.is_some() {
                *answered = true;
                self.own("daemon_there", None, None);
            }
            for (event, more) in together(news.events) {
                self.note(event, more);
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn note(&self, event: Event, more: u64) {
        self.keep(Entry {
            what: event.what.word(),
            name: event.name,
            more,
            detail: event.detail,
            count: event.count,
            ..Entry::default()
        });
    }

    /// What happened to the daemon, or to what it tells.
    fn own(&self, what: &'static str, detail: Option<String>, count: Option<u64>) {
        self.keep(Entry {
            what,
            detail,
            count,
            ..Entry::default()
        });
    }

    fn keep(&self, entry: Entry) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut kept = self.kept.lock();
        kept.number += 1;
        let entry = Entry {
            number: kept.number,
            at: now.as_millis() as u64,
            ..entry
        };
        if kept.entries.len() == MOST {
            kept.entries.pop_front();
        }
        kept.entries.push_back(entry);
    }

    /// What came after a number, as JSON. All of it, if the number is of another log.
    pub fn since(&self, number: u64) -> String {
        if !std::mem::replace(&mut *self.asked.lock(), true) {
            self.asks.notify_one();
        }
        let kept = self.kept.lock();
        let number = if number > kept.number { 0 } else { number };
        let new = kept.entries.iter().filter(|entry| entry.number > number);
        serde_json::to_string(&new.collect::<Vec<_>>()).unwrap_or_default()
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Losses for one reason that begin or end at once, as one: a flood that reaches nobody is one event and not one for
/// each NIC. The first of them, with all that was counted, and how many more there are.
fn together(events: Vec<Event>) -> Vec<(Event, u64)> {
    let mut all: Vec<(Event, u64)> = Vec::new();
    let mut places = BTreeMap::new();
    for event in events {
        if !matches!(event.what, Happening::LossBegins | Happening::LossEnds) {
            all.push((event, 0));
            continue;
        }
        match places.entry((event.what, event.detail.clone())) {
            Slot::Occupied(at) => {
                let (first, more): &mut (Event, u64) = &mut all[*at.get()];
                *more += 1;
                let counts = [first.count, event.count];
                first.count = Some(counts.into_iter().flatten().sum());
            }
            Slot::Vacant(place) => {
                place.insert(all.len());
                all.push((event, 0));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_told_once() {
        let log = Log::default();
        for n in 0..MOST as u64 + 7 {
            log.note(event(Happening::NicAdded, &format!("n{n}"), n), 0);
        }
        let told = |since| {
            serde_json::from_str::<Vec<serde_json::Value>>(&log.since(since)).expect("JSON")
        };
        let all = told(0);
        assert_eq!((all.len(), &all[0]["name"]), (MOST, &"n7".into()));
        let last = MOST as u64 + 7;
        assert_eq!(told(last - 1).len(), 1);
        assert!(told(last).is_empty());
        // A page that knew an earlier process.
        assert_eq!(told(last + 1).len(), MOST);
    }

    fn event(what: Happening, name: &str, count: u64) -> Event {
        Event {
            what,
            name: name.into(),
            detail: Some("rx_missed".into()),
            count: Some(count),
        }
    }

    #[test]
    fn losses_that_begin_together_are_one_event() {
        use Happening::{LossBegins, LossEnds, NicAdded};
        let events = vec![
            event(LossBegins, "a", 3),
            event(NicAdded, "n", 1),
            event(LossBegins, "b", 4),
            event(LossEnds, "c", 5),
            event(NicAdded, "m", 1),
        ];
        let told: Vec<_> = together(events)
            .into_iter()
            .map(|(event, more)| (event.name, more, event.count))
            .collect();
        let one = |name: &str, more, count| (name.to_owned(), more, Some(count));
        assert_eq!(
            told,
            [
                one("a", 1, 7),
                one("n", 0, 1),
                one("c", 0, 5),
                one("m", 0, 1)
            ]
        );
    }
}
