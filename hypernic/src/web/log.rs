//! What happened, as the daemon's monitor tells it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{AskError, Client, Event, Subscribe};
use parking_lot::Mutex;
use serde::Serialize;

/// Most that is kept.
const MOST: usize = 500;
/// Nothing may change for long.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);
/// The pause before a daemon is asked again that was not there.
const PAUSE: Duration = Duration::from_secs(2);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Entry {
    number: u64,
    /// Milliseconds since 1970.
    at: u64,
    what: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

#[derive(Default)]
pub(super) struct Log {
    kept: Mutex<Kept>,
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
                    kept.note("daemon_gone", String::new(), why, None);
                }
                std::thread::sleep(PAUSE);
            }
        };
        std::thread::Builder::new().name("log".into()).spawn(work)?;
        Ok(log)
    }

    /// Notes what the daemon tells, until it tells no more.
    fn follow(&self, control: &Path, answered: &mut bool) -> Result<(), AskError> {
        let mut client = Client::connect(control)?;
        let losses = Some(true);
        client.send(&Subscribe { losses }, true)?;
        loop {
            let (news, more) = client.next::<Subscribe>(PATIENCE)?;
            if let Some(lost) = news.lost {
                self.note("lost", String::new(), None, Some(lost));
            } else if news.state.is_some() {
                *answered = true;
                self.note("daemon_there", String::new(), None, None);
            }
            for event in news.events {
                let Event {
                    what,
                    name,
                    detail,
                    count,
                } = event;
                self.note(what.word(), name, detail, count);
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn note(&self, what: &'static str, name: String, detail: Option<String>, count: Option<u64>) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut kept = self.kept.lock();
        kept.number += 1;
        let entry = Entry {
            number: kept.number,
            at: now.as_millis() as u64,
            what,
            name,
            detail,
            count,
        };
        if kept.entries.len() == MOST {
            kept.entries.pop_front();
        }
        kept.entries.push_back(entry);
    }

    /// What came after a number, as JSON. All of it, if the number is of another log.
    pub fn since(&self, number: u64) -> String {
        let kept = self.kept.lock();
        let number = if number > kept.number { 0 } else { number };
        let new = kept.entries.iter().filter(|entry| entry.number > number);
        serde_json::to_string(&new.collect::<Vec<_>>()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_told_once() {
        let log = Log::default();
        for n in 0..MOST as u64 + 7 {
            log.note("nic_added", format!("n{n}"), None, Some(n));
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
}
