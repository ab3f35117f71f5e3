//! A message whose files another thread maps first. `mmap` may wait for a lock of the file's, which a front end holds as
//! long as it likes; the thread that serves this front end serves others too. Its session waits meanwhile, message by
//! message.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use guest_mem::{MappedFile, Memory};
use parking_lot::Mutex;
use peer::{DeferredCloser, EventFd};

use crate::codec::Header;

/// What comes back: the message's descriptors, and the files that could be mapped. The message itself finds out why
/// others could not.
pub(crate) type Opened = (Vec<OwnedFd>, Vec<MappedFile>);

/// A message that waits for its files.
pub(crate) struct Opening {
    pub header: Header,
    pub payload: Vec<u8>,
    /// Where its files are to be known.
    pub memory: Memory,
    outcome: Arc<Mutex<Option<Opened>>>,
}

/// What the other thread does when it drops this.
struct Work {
    memory: Memory,
    /// Up to where which file is wanted, by its place among the descriptors.
    wanted: Vec<(usize, u64)>,
    fds: Vec<OwnedFd>,
    outcome: Arc<Mutex<Option<Opened>>>,
    /// Wakes the server.
    done: Arc<EventFd>,
}

impl Drop for Work {
    fn drop(&mut self) {
        // A file is mapped once, as far as any region needs it.
        self.wanted.sort_unstable_by_key(|(_, end)| u64::MAX - end);
        let mut files: Vec<MappedFile> = Vec::new();
        for (at, end) in &self.wanted {
            let Some(fd) = self.fds.get(*at).map(AsFd::as_fd) else {
                continue;
            };
            if files.iter().any(|file| file.covers(fd, *end)) {
                continue;
            }
            files.extend(self.memory.open_file(*end, fd, 0));
        }
        *self.outcome.lock() = Some((std::mem::take(&mut self.fds), files));
        self.done.signal();
    }
}

impl Opening {
    /// Has another thread map files, up to where they are wanted, and `done` signalled at the end.
    pub fn begin(
        (header, payload): (&Header, &[u8]),
        (memory, wanted): (Memory, Vec<(usize, u64)>),
        fds: Vec<OwnedFd>,
        done: &Arc<EventFd>,
        mapper: &DeferredCloser,
    ) -> Self {
        let outcome = Arc::default();
        mapper.bury(Work {
            memory: memory.clone(),
            wanted,
            fds,
            outcome: Arc::clone(&outcome),
            done: Arc::clone(done),
        });
        Self {
            header: *header,
            payload: payload.to_vec(),
            memory,
            outcome,
        }
    }

    /// The files, once they are mapped.
    pub fn take(&self) -> Option<Opened> {
        self.outcome.lock().take()
    }
}
