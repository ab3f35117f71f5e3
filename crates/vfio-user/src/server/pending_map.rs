//! A `DMA_MAP` whose file another thread maps. `mmap` may wait for a lock of the file's, which a peer holds as long as it
//! likes; the thread that serves this peer serves others too. Its session waits meanwhile, message by message.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use guest_mem::{MapError, MappedFile, Memory};
use parking_lot::Mutex;

use crate::codec::{DmaMap, Header};
use peer::EventFd;
use peer::deferred_closer::DeferredCloser;

type Outcome = Mutex<Option<Result<MappedFile, MapError>>>;

/// A message that waits for its answer.
pub(super) struct PendingMap {
    pub header: Header,
    pub map: DmaMap,
    /// Until the work begins.
    file: Option<OwnedFd>,
    outcome: Arc<Outcome>,
    /// The file once more, if it is to be kept.
    pub kept: Option<OwnedFd>,
}

/// What the other thread does when it drops this.
struct Work {
    memory: Memory,
    map: DmaMap,
    file: OwnedFd,
    outcome: Arc<Outcome>,
    /// Wakes the server.
    bell: Arc<EventFd>,
}

impl Drop for Work {
    fn drop(&mut self) {
        let DmaMap { size, offset, .. } = self.map;
        let result = self.memory.open_file(size, self.file.as_fd(), offset);
        *self.outcome.lock() = Some(result);
        self.bell.signal();
    }
}

impl PendingMap {
    pub fn new(header: Header, map: DmaMap, file: OwnedFd, kept: Option<OwnedFd>) -> Self {
        Self {
            header,
            map,
            file: Some(file),
            outcome: Arc::default(),
            kept,
        }
    }

    /// Has the file mapped, unless it is being mapped already, and `bell` rung at the end.
    pub fn begin(&mut self, mapper: &DeferredCloser, memory: &Memory, bell: &Arc<EventFd>) {
        if let Some(file) = self.file.take() {
            mapper.bury(Work {
                memory: memory.clone(),
                map: self.map,
                file,
                outcome: Arc::clone(&self.outcome),
                bell: Arc::clone(bell),
            });
        }
    }

    /// Maps the file here and now: no descriptor is left to be woken by.
    pub fn do_now(&mut self, memory: &Memory) {
        if let Some(file) = self.file.take() {
            let result = memory.open_file(self.map.size, file.as_fd(), self.map.offset);
            *self.outcome.lock() = Some(result);
        }
    }

    /// The end has come.
    pub fn is_done(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// The file, once it is mapped.
    pub fn take(&self) -> Option<Result<MappedFile, MapError>> {
        self.outcome.lock().take()
    }
}
