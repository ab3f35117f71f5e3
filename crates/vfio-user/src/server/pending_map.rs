//! A `DMA_MAP` whose file another thread maps. `mmap` may wait for a lock of the file's, which a peer holds as long as it
//! likes; the thread that serves this peer serves others too. Its session waits meanwhile, message by message.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use guest_mem::{MapError, MappedFile, Memory};
use parking_lot::Mutex;

use crate::codec::{DmaMap, Header};
use crate::dma::Dma;
use peer::deferred_closer::DeferredCloser;

type Outcome = Mutex<Option<Result<MappedFile, MapError>>>;

/// A message that waits for its answer.
pub(super) struct PendingMap {
    pub header: Header,
    pub map: DmaMap,
    /// Until the work begins.
    file: Option<OwnedFd>,
    outcome: Arc<Outcome>,
}

/// What the other thread does when it drops this.
struct Work {
    memory: Memory,
    map: DmaMap,
    file: OwnedFd,
    outcome: Arc<Outcome>,
    server: Dma,
}

impl Drop for Work {
    fn drop(&mut self) {
        let DmaMap { size, offset, .. } = self.map;
        let result = self.memory.open_file(size, self.file.as_fd(), offset);
        *self.outcome.lock() = Some(result);
        self.server.wake();
    }
}

impl PendingMap {
    pub fn new(header: Header, map: DmaMap, file: OwnedFd) -> Self {
        Self {
            header,
            map,
            file: Some(file),
            outcome: Arc::default(),
        }
    }

    /// Has the file mapped, unless it is being mapped already. `server` is woken at the end.
    pub fn begin(&mut self, mapper: &DeferredCloser, server: &Dma) {
        if let Some(file) = self.file.take() {
            mapper.bury(Work {
                memory: server.memory().clone(),
                map: self.map,
                file,
                outcome: Arc::clone(&self.outcome),
                server: server.clone(),
            });
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
