//! What waits to be written to a capture file, and what may be chosen of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};

use crate::tally::Tally;

/// Where captures get the time from.
pub trait Clock: Send + Sync {
    /// Nanoseconds since 1970 (UTC).
    fn unix_nanos(&self) -> u64;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_nanos(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |d| d.as_nanos().try_into().unwrap_or(u64::MAX))
    }
}

/// How a capture is made.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Program name for the file.
    pub application: String,
    /// Bytes kept of each frame; 0 keeps all.
    pub snaplen: u32,
    /// Bytes that may wait to be written.
    pub buffer: usize,
    /// How long a frame waits at most before it is written.
    pub flush_every: Duration,
    /// Bytes of a file, at which it is full.
    pub file_bytes: u64,
}

impl CaptureOptions {
    /// Bytes of a file unless said otherwise.
    pub const FILE_BYTES: u64 = 1 << 30;
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            application: concat!("hypernic ", env!("CARGO_PKG_VERSION")).into(),
            snaplen: 0,
            buffer: 8 * 1024 * 1024,
            flush_every: Duration::from_millis(200),
            file_bytes: Self::FILE_BYTES,
        }
    }
}

/// Counters, by index.
pub(super) mod count {
    pub const NAMES: [&str; 5] = [
        "capture_frames",
        "capture_bytes",
        "capture_missed",
        "capture_failed",
        "capture_rotated",
    ];
    /// Put into the buffer.
    pub const FRAMES: usize = 0;
    /// Written to the file.
    pub const BYTES: usize = 1;
    /// Not kept: the buffer was full, or the file has failed.
    pub const MISSED: usize = 2;
    /// 1 once the file has failed.
    pub const FAILED: usize = 3;
    /// Files that were full.
    pub const ROTATED: usize = 4;
}

/// Bytes at which the writer is woken before its time.
pub(super) const EAGER: usize = 256 * 1024;

pub(super) struct Buffer {
    pub(super) state: Mutex<Pending>,
    /// Something for the writer to do.
    pub(super) work: Condvar,
    /// The writer has done it.
    pub(super) done: Condvar,
    pub(super) tally: Tally<5>,
    pub(super) options: CaptureOptions,
    pub(super) clock: Arc<dyn Clock>,
}

pub(super) struct Pending {
    /// Whole blocks, not yet with the writer.
    pub(super) blocks: Vec<u8>,
    pub(super) interfaces: Vec<Interface>,
    /// How many of them are in what the writer has taken.
    pub(super) defined: usize,
    /// The writer has a buffer in its hands.
    pub(super) writing: bool,
    /// Buffers written.
    pub(super) turns: u64,
    /// Write what there is without waiting for more.
    pub(super) hurry: bool,
    pub(super) closing: bool,
    pub(super) failed: bool,
}

pub(super) struct Interface {
    pub(super) name: String,
    pub(super) started: u64,
    pub(super) seen: u64,
    pub(super) missed: u64,
    /// Of those missed, the ones the file has not been told of.
    pub(super) missed_untold: u64,
}
