//! The thread that asks the daemon. A request waits for the daemon no longer than `--timeout`, whatever the daemon does,
//! and only this thread waits for a daemon that hangs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use control::{AskError, Client};

use crate::client::{Exposition, Families, Kind, Place, Scraper};
use crate::http::Counters;

/// Requests that may wait for the thread at once.
const QUEUE: usize = 8;

/// What the exporter counts of its answers.
#[derive(Default)]
struct Answers {
    scrapes: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
}

/// The way to the thread.
pub(super) struct Asker {
    to: SyncSender<SyncSender<Families>>,
    timeout: Duration,
    limit: usize,
    answers: Answers,
}

impl Asker {
    pub fn start(place: Place, timeout: Duration, limit: usize, all: bool) -> io::Result<Self> {
        let (to, asked) = mpsc::sync_channel(QUEUE);
        let work = move || ask(&place, &asked, timeout, limit, all);
        std::thread::Builder::new()
            .name("asker".into())
            .spawn(work)?;
        Ok(Self {
            to,
            timeout,
            limit,
            answers: Answers::default(),
        })
    }

    /// What a scraper is told now.
    pub fn text(&self, form: Exposition, clients: &Counters) -> String {
        let begun = Instant::now();
        let (answer, answered) = mpsc::sync_channel(1);
        // Each of the daemon's answers may take so long; together they may take no longer either.
        let asked = self.to.try_send(answer).ok();
        let families = asked.and_then(|()| answered.recv_timeout(self.timeout).ok());
        let up = families.is_some();
        let mut families = families.unwrap_or_else(|| Families::new(self.limit));
        let answers = &self.answers;
        let count = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed) + n;
        let left_out = families.left_out();
        families.make_room();
        let help = "1: the daemon has answered";
        families.add(Kind::Gauge, "hypernic_up", help, &[], u8::from(up));
        for (name, help, value) in [
            ("scrapes", "Answers given", count(&answers.scrapes, 1)),
            (
                "failed",
                "Answers without the daemon's, which did not answer in time",
                count(&answers.failed, u64::from(!up)),
            ),
            (
                "left_out",
                "Samples left out of answers, which have --limit at most",
                count(&answers.left_out, left_out),
            ),
            (
                "cut",
                "Connections closed because they were slow or too many",
                count(&clients.cut, 0),
            ),
            (
                "refused",
                "Requests answered by an error",
                count(&clients.refused, 0),
            ),
        ] {
            let name = format!("hypernic_exporter_{name}");
            families.add(Kind::Counter, &name, help, &[], value);
        }
        let took = begun.elapsed().as_secs_f64();
        let help = "How long the daemon took to answer";
        families.add(
            Kind::Gauge,
            "hypernic_exporter_ask_seconds",
            help,
            &[],
            took,
        );
        families.text(form)
    }
}

fn ask(
    place: &Place,
    asked: &Receiver<SyncSender<Families>>,
    timeout: Duration,
    limit: usize,
    all: bool,
) {
    let mut scraper = Scraper::new(all);
    let mut client: Option<Client> = None;
    let mut told: Option<String> = None;
    while let Ok(answer) = asked.recv() {
        let fresh = client.is_none();
        let mut result = look(place, &mut client, &mut scraper, (timeout, limit));
        if result.is_err() && !fresh {
            // The daemon was started again, or has closed a connection that was quiet for long.
            client = None;
            result = look(place, &mut client, &mut scraper, (timeout, limit));
        }
        match result {
            Ok(families) => {
                if told.take().is_some() {
                    tracing::info!("the daemon answers again");
                }
                let _ = answer.send(families);
            }
            Err(error) => {
                client = None;
                let line = error.to_string();
                if told.as_ref() != Some(&line) {
                    tracing::warn!("{line}");
                }
                told = Some(line);
            }
        }
    }
}

fn look(
    place: &Place,
    client: &mut Option<Client>,
    scraper: &mut Scraper,
    (timeout, limit): (Duration, usize),
) -> Result<Families, AskError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(&place.control)?),
    };
    let mut families = Families::new(limit);
    scraper.look(client, timeout, &mut families)?;
    Ok(families)
}
