//! A `DMA_MAP` whose file another thread maps. `mmap` may wait for a lock of the file's, which a peer holds as long as it
//! likes; the thread that serves this peer serves others too. Its session waits meanwhile, message by message.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use guest_mem::{MapError, MappedFile, Memory};
use parking_lot::Mutex;

use crate::codec::{DmaMap, Header};
use peer::EventFd;
use peer::deferred_closer::DeferredCloser;

/// The mapping; and the file, if that is to be kept.
pub(super) type Mapped = (Result<MappedFile, MapError>, Option<OwnedFd>);
type Outcome = Mutex<Option<Mapped>>;

/// A message that waits for its answer.
pub(super) struct PendingMap {
    pub header: Header,
    pub map: DmaMap,
    /// Until the work begins.
    file: Option<OwnedFd>,
    outcome: Arc<Outcome>,
    keeps: bool,
}

/// What the other thread does when it drops this.
struct Work {
    memory: Memory,
    map: DmaMap,
    file: Option<OwnedFd>,
    outcome: Arc<Outcome>,
    keeps: bool,
    /// Wakes the server.
    bell: Arc<EventFd>,
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let done = map(&self.memory, &self.map, file, self.keeps);
            *self.outcome.lock() = Some(done);
        }
        self.bell.signal();
    }
}

fn map(memory: &Memory, map: &DmaMap, file: OwnedFd, keeps: bool) -> Mapped {
    let result = memory.open_file(map.size, file.as_fd(), map.offset);
    // Where files are kept, who asked closes it, too.
    (result, keeps.then_some(file))
}

impl PendingMap {
    /// `keeps`: the file is to be had back.
    pub fn new(header: Header, map: DmaMap, file: OwnedFd, keeps: bool) -> Self {
        Self {
            header,
            map,
            file: Some(file),
            outcome: Arc::default(),
            keeps,
        }
    }

    /// Has the file mapped, unless it is being mapped already, and `bell` rung at the end.
    pub fn begin(&mut self, mapper: &DeferredCloser, memory: &Memory, bell: &Arc<EventFd>) {
        if let Some(file) = self.file.take() {
            mapper.bury(Work {
                memory: memory.clone(),
                map: self.map,
                file: Some(file),
                outcome: Arc::clone(&self.outcome),
                keeps: self.keeps,
                bell: Arc::clone(bell),
            });
        }
    }

    /// Maps the file here and now: no descriptor is left to be woken by.
    pub fn do_now(&mut self, memory: &Memory) {
        if let Some(file) = self.file.take() {
            let done = map(memory, &self.map, file, self.keeps);
            *self.outcome.lock() = Some(done);
        }
    }

    /// The end has come.
    pub fn is_done(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// How it ended, if it has.
    pub fn take(&self) -> Option<Mapped> {
        self.outcome.lock().take()
    }
}
