//! What one peer's mapped files cost the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hot::Lines;
use crate::quota::Tenant;

/// What one peer's files cost us, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Mappings in use, or kept for later.
    kept: Share,
    /// All mappings, with those that are about to be unmapped.
    all: Share,
    /// Mappings whose files were truncated, and that are still there.
    spoiled: AtomicU64,
    /// Whose peer it is; no one's in tests and in programs that have one peer.
    tenant: Option<Arc<Tenant>>,
    /// What `SIGBUS` counted in mappings that are gone.
    pub(crate) past_sigbus: AtomicU64,
}

#[derive(Debug, Default)]
struct Share {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Share {
    /// Whether another file of so many bytes is within `times` what a peer may have.
    fn has_room(&self, len: u64, times: u64) -> bool {
        let files = self.files.load(Ordering::Relaxed) + 1;
        let bytes = self.bytes.load(Ordering::Relaxed).saturating_add(len);
        files <= times * MAX_FILES && bytes <= times * MAX_BYTES
    }

    fn add(&self, len: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len, Ordering::Relaxed);
    }

    fn sub(&self, len: u64) {
        self.files.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(len, Ordering::Relaxed);
    }
}

/// Most files of one peer at once. A process has some 65,000 mappings for all its peers; a VMM
/// needs one file per piece of RAM.
pub(crate) const MAX_FILES: u64 = 256;

/// Most bytes of one peer's files: a process has an address space of 128 TiB for all its peers.
pub(crate) const MAX_BYTES: u64 = 4 << 40;

impl Account {
    pub(crate) fn of(tenant: Arc<Tenant>) -> Self {
        Self {
            tenant: Some(tenant),
            ..Self::default()
        }
    }

    /// Notes a mapping of so many bytes; false when the peer may not have it. What is about to be unmapped may be as much again:
    /// a peer cannot pile up what the closing thread has not reached.
    pub(crate) fn open(&self, len: u64) -> bool {
        if !(self.kept.has_room(len, 1) && self.all.has_room(len, 2)) {
            return false;
        }
        if let Some(tenant) = &self.tenant {
            if !tenant.files.take(1) {
                return false;
            }
            if !tenant.bytes.take(len) {
                tenant.files.give(1);
                return false;
            }
        }
        self.kept.add(len);
        self.all.add(len);
        true
    }

    /// A mapping is about to be unmapped.
    pub(crate) fn leave(&self, len: u64) {
        self.kept.sub(len);
    }

    /// It is unmapped.
    pub(crate) fn close(&self, len: u64) {
        self.all.sub(len);
        if let Some(tenant) = &self.tenant {
            tenant.files.give(1);
            tenant.bytes.give(len);
        }
    }

    /// Whether a mapping that is still there lost pages.
    #[inline]
    pub(crate) fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Relaxed) > 0
    }

    /// What [`Account::is_spoiled`] touches.
    pub(crate) fn hot(&self) -> Lines {
        Lines::of(&self.spoiled)
    }

    /// A mapping that `SIGBUS` counted so often is gone.
    pub(crate) fn forget_hits(&self, hits: u64) {
        self.past_sigbus.fetch_add(hits, Ordering::Relaxed);
        let spoiled = u64::from(hits > 0);
        self.spoiled.fetch_sub(spoiled, Ordering::Relaxed);
    }

    /// A mapping has lost pages for the first time. Called by the signal's handler.
    pub(crate) fn spoil(&self) {
        self.spoiled.fetch_add(1, Ordering::Relaxed);
    }
}
