//! What went through the door: how often, how much, and where to. Feature `meter`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Accesses since the memory was made. Refused ones do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ranges read or borrowed for reading.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Ranges written or borrowed for writing.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
}

/// A range that was written, or borrowed for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// First address.
    pub iova: u64,
    /// Bytes.
    pub len: u64,
}

/// Counts the accesses through all views of one [`Memory`](crate::memory::Memory).
#[derive(Debug, Default)]
pub struct Meter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    recording: AtomicBool,
    written: Mutex<Vec<Access>>,
}

impl Meter {
    pub(crate) fn note(&self, iova: u64, len: u64, write: bool) {
        let (times, bytes) = if write {
            (&self.writes, &self.write_bytes)
        } else {
            (&self.reads, &self.read_bytes)
        };
        times.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len, Ordering::Relaxed);
        if write && self.recording.load(Ordering::Relaxed) {
            self.written.lock().push(Access { iova, len });
        }
    }

    /// The counts so far.
    pub fn totals(&self) -> Totals {
        Totals {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
        }
    }

    /// Starts or stops keeping a list of what is written. It grows until it is taken.
    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// Gives each recorded write to `visit`, oldest first, and forgets them.
    pub fn drain(&self, visit: &mut dyn FnMut(Access)) {
        self.written.lock().drain(..).for_each(visit);
    }
}
