//! Streams that go on while one worker goes and the next comes: the peer's connection stays, what it sends meanwhile waits there, and who
//! calls meanwhile waits at the listening socket.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use port_stream::{Keeps, Parts};

use crate::leaves;
use crate::spec::PortSpec;

/// The form of what is kept: another build may have another one.
const FORM: &str = "stream 1";

/// The first note of all that is kept of streams.
const NOTE: u64 = 0x7374_7265_616d_0001;

/// What a stream is kept as.
const PARTS: [&str; 4] = ["connection", "listener", "memory", "had"];

/// Streams that this process has open. One that is opened a second time, and cannot be, must not take over what the first has.
static OPEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn key(stream: &str, part: &str) -> Vec<u8> {
    format!("{FORM} {stream} {part}").into_bytes()
}

/// All that are to be open are open by now. What the worker before has left of others is closed: no peer waits for somebody who is not there.
pub(crate) fn close_others() {
    let Some(page) = keeper::current() else {
        return;
    };
    let open = OPEN.lock();
    let names = open
        .iter()
        .flat_map(|stream| PARTS.map(|part| key(stream, part)));
    page.close_others(NOTE, &names.collect::<Vec<_>>());
}

/// Keeps one in the page that workers share.
#[derive(Debug)]
pub(crate) struct KeptStream {
    name: String,
    /// Where it listens.
    path: Option<PathBuf>,
}

impl KeptStream {
    /// Of this port of a NIC, a switch or a chip. `None`: there is no keeper, or it is open.
    pub fn of(owner: &str, spec: &PortSpec) -> Option<Arc<Self>> {
        keeper::current()?;
        let name = format!("{owner} {spec}");
        let path = match spec {
            PortSpec::StreamListen(path) => Some(path.clone()),
            _ => None,
        };
        let new = OPEN.lock().insert(name.clone());
        new.then(|| Arc::new(Self { name, path }))
    }

    fn key(&self, part: &str) -> Vec<u8> {
        key(&self.name, part)
    }

    /// The second note of the listener: device and inode of its path.
    fn place(&self) -> Option<u64> {
        let there = std::fs::symlink_metadata(self.path.as_ref()?).ok()?;
        Some(there.dev().rotate_left(40) ^ there.ino())
    }

    /// What the worker before has left of it.
    pub fn take(&self) -> Parts {
        let take = |part| keeper::current()?.go_on(&self.key(part));
        let file = |part| take(part).map(|(fd, _): (OwnedFd, _)| fd);
        // Somebody may have removed the path meanwhile, or put something else in its place.
        let listener = take("listener").filter(|(_, notes)| self.place() == Some(notes[1]));
        Parts {
            memory: file("memory"),
            listener: listener.map(|(fd, _)| fd),
            connection: file("connection"),
            had: keeper::current().is_some_and(|page| page.has(&self.key("had"))),
        }
    }
}

impl Keeps for KeptStream {
    fn opened(&self, memory: BorrowedFd<'_>, listener: Option<BorrowedFd<'_>>) -> bool {
        let Some(page) = keeper::current() else {
            return false;
        };
        if let (Some(listener), Some(place)) = (listener, self.place()) {
            page.keep(&self.key("listener"), listener, [NOTE, place]);
        }
        // One that is there already stays, and so is there at any instruction.
        let had = self.key("had");
        let kept = page.keep(&self.key("memory"), memory, [NOTE, 0]);
        kept && (page.has(&had) || page.keep(&had, memory, [NOTE, 0]))
    }

    fn begun(&self, connection: BorrowedFd<'_>) {
        let Some(page) = keeper::current() else {
            return;
        };
        let (name, number) = (self.key("connection"), connection.as_raw_fd());
        // A port's thread may not ask the kernel about files.
        threads::apart(move || page.keep_number(&name, number, [NOTE, 0]));
    }

    fn over(&self) {
        if let Some(page) = keeper::current() {
            page.forget(&self.key("connection"));
        }
    }

    fn gone(&self) {
        if let Some(page) = keeper::current() {
            for part in PARTS {
                page.forget(&self.key(part));
            }
        }
    }

    fn leaves(&self) -> bool {
        leaves::are()
    }
}

impl Drop for KeptStream {
    fn drop(&mut self) {
        // It may not have been opened after all.
        if !self.leaves() {
            self.gone();
        }
        OPEN.lock().remove(&self.name);
    }
}
