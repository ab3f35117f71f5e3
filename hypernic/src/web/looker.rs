//! The thread that asks the daemon, for all pages: seldom more than once a second for what all look at, whatever they ask.
//! A page waits no longer than `--timeout`, and only this thread waits for a daemon that hangs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use serde_json::json;

use super::detail;
use super::picture::{Now, Picture};
use crate::client::Place;
use crate::error::Error;
use crate::top::Look;

/// Questions that may wait for the thread at once.
const QUEUE: usize = 16;
/// How long an answer is new.
const NEW: Duration = Duration::from_millis(700);
/// Most NICs whose answers are kept while they are new.
const KEPT: usize = 16;

/// What is asked, and the way back.
enum Question {
    Now(SyncSender<Result<Arc<Now>, String>>),
    Nic(String, SyncSender<Result<Arc<String>, String>>),
}

/// The way to the thread.
pub(super) struct Looker {
    to: SyncSender<Question>,
    timeout: Duration,
    /// What is kept is old, however new it is: a page has changed the host.
    old: Arc<AtomicBool>,
}

impl Looker {
    pub fn start(place: Place, timeout: Duration) -> io::Result<Self> {
        let (to, asked) = mpsc::sync_channel(QUEUE);
        let old = Arc::<AtomicBool>::default();
        let thread = Thread::new(place, Arc::clone(&old));
        let work = move || thread.answer(&asked);
        std::thread::Builder::new()
            .name("looker".into())
            .spawn(work)?;
        Ok(Self { to, timeout, old })
    }

    /// The host has changed; who asks from now on sees it.
    pub fn forget(&self) {
        self.old.store(true, Ordering::Release);
    }

    /// The host now, as JSON: its shape only for a page that has another one.
    pub fn now(&self, shape: &str, log: &str, changes: bool) -> String {
        let (back, answer) = mpsc::sync_channel(1);
        match self.ask(Question::Now(back), &answer) {
            Ok(now) => now.text(shape, log, changes),
            Err(why) => format!("{{\"up\":false,\"why\":{},\"log\":{log}}}", json!(why)),
        }
    }

    /// All about a NIC, as JSON.
    pub fn nic(&self, name: &str) -> String {
        let (back, answer) = mpsc::sync_channel(1);
        match self.ask(Question::Nic(name.to_owned(), back), &answer) {
            Ok(text) => text.as_ref().clone(),
            Err(why) => json!({ "why": why }).to_string(),
        }
    }

    fn ask<T>(
        &self,
        question: Question,
        answer: &Receiver<Result<T, String>>,
    ) -> Result<T, String> {
        let late = || "the daemon does not answer in time".to_owned();
        self.to.try_send(question).map_err(|_| late())?;
        answer.recv_timeout(self.timeout).map_err(|_| late())?
    }
}

struct Thread {
    place: Place,
    look: Option<Look>,
    picture: Picture,
    now: Option<(Instant, Arc<Now>)>,
    nics: Vec<(String, Instant, Arc<String>)>,
    old: Arc<AtomicBool>,
}

impl Thread {
    fn new(place: Place, old: Arc<AtomicBool>) -> Self {
        Self {
            place,
            look: None,
            picture: Picture::default(),
            now: None,
            nics: Vec::new(),
            old,
        }
    }

    fn answer(mut self, asked: &Receiver<Question>) {
        while let Ok(question) = asked.recv() {
            if self.old.swap(false, Ordering::AcqRel) {
                self.now = None;
                self.nics.clear();
            }
            // One who waits no longer has gone.
            match question {
                Question::Now(back) => drop(back.send(self.now())),
                Question::Nic(name, back) => drop(back.send(self.nic(&name))),
            }
        }
    }

    fn now(&mut self) -> Result<Arc<Now>, String> {
        if let Some((_, now)) = self.now.as_ref().filter(|(at, _)| at.elapsed() < NEW) {
            return Ok(Arc::clone(now));
        }
        let picture = &mut self.picture;
        let now = with(&self.place, &mut self.look, |look| picture.look(look))?;
        let now = Arc::new(now);
        self.now = Some((Instant::now(), Arc::clone(&now)));
        Ok(now)
    }

    fn nic(&mut self, name: &str) -> Result<Arc<String>, String> {
        self.nics.retain(|(_, at, _)| at.elapsed() < NEW);
        if let Some((.., text)) = self.nics.iter().find(|(of, ..)| of == name) {
            return Ok(Arc::clone(text));
        }
        let text = with(&self.place, &mut self.look, |look| {
            detail::look(look.client(), name)
        })?;
        let text = Arc::new(text);
        if self.nics.len() < KEPT {
            self.nics
                .push((name.to_owned(), Instant::now(), Arc::clone(&text)));
        }
        Ok(text)
    }
}

/// Asks by the connection that there is, and by a new one if that has ended: the daemon may have been started again.
fn with<T>(
    place: &Place,
    kept: &mut Option<Look>,
    mut ask: impl FnMut(&mut Look) -> Result<T, Error>,
) -> Result<T, String> {
    let mut fresh = kept.is_none();
    loop {
        let look = match kept {
            Some(look) => look,
            None => kept.insert(Look::connect(place.clone()).map_err(|error| error.to_string())?),
        };
        match ask(look) {
            Ok(told) => return Ok(told),
            // The daemon has answered; the connection is good.
            Err(error @ (Error::Refused(_) | Error::Host(_))) => return Err(error.to_string()),
            Err(error) => {
                *kept = None;
                if fresh {
                    return Err(error.to_string());
                }
                fresh = true;
            }
        }
    }
}
