//! The bitmap in which a back end notes the pages that it has written, for live migration.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guest_mem::{Leftovers, MapError, Memory, Prot};

use crate::codec::Log;

/// Bytes that one bit stands for.
pub const LOG_PAGE: u64 = 4096;

#[derive(Debug, Default)]
struct Shared {
    memory: Memory,
    bytes: u64,
    marked: AtomicU64,
    outside: AtomicU64,
}

/// The dirty log that a front end has handed over. Clones are the same; any thread may mark pages.
#[derive(Clone, Debug)]
pub struct DirtyLog(Arc<Shared>);

impl DirtyLog {
    /// Maps a part of a file of the front end's into `memory`, which is empty.
    pub(crate) fn map(log: &Log, fd: BorrowedFd<'_>, memory: Memory) -> Result<Self, MapError> {
        // Bits are set by words of 32.
        if !log.offset.is_multiple_of(4) || !log.size.is_multiple_of(4) {
            return Err(MapError::Wraps);
        }
        memory.map_fd(0, log.size, fd, log.offset, Prot::RW)?;
        Ok(Self(Arc::new(Shared {
            memory,
            bytes: log.size,
            ..Shared::default()
        })))
    }

    /// Notes that `len` bytes from `guest` on have been written. Mark after the write: the front end
    /// copies a page after it has taken its bit.
    pub fn mark(&self, guest: u64, len: u64) {
        let Some(last) = len
            .checked_sub(1)
            .and_then(|more| guest.checked_add(more))
            .map(|last| last / LOG_PAGE)
        else {
            return;
        };
        let view = self.0.memory.view();
        let mut page = guest / LOG_PAGE;
        while page <= last {
            let at = page / 32 * 4;
            if at >= self.0.bytes {
                self.0.outside.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // All pages of one word at once.
            let until = last.min(page | 31);
            let bits = (u32::MAX >> (31 - (until - page))) << (page % 32);
            let Some(words) = view.words(at, 4) else {
                self.0.outside.fetch_add(1, Ordering::Relaxed);
                return;
            };
            words.set_bits(0, bits, Ordering::Release);
            self.0.marked.fetch_add(until - page + 1, Ordering::Relaxed);
            page = until + 1;
        }
    }

    /// Pages marked so far, and marks that lay outside of the log.
    pub fn counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.0.marked), load(&self.0.outside))
    }

    /// No thread touches the file after this.
    pub(crate) fn unmap(&self) -> Leftovers {
        self.0.memory.unmap_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    fn log(bytes: u64, offset: u64) -> (DirtyLog, peer::SharedMem) {
        let file = peer::SharedMem::new("log", (bytes + offset) as usize).expect("a memfd");
        let part = Log {
            size: bytes,
            offset,
        };
        let log = DirtyLog::map(&part, file.as_fd(), Memory::new()).expect("mapped");
        (log, file)
    }

    fn bit(file: &peer::SharedMem, offset: u64, page: u64) -> bool {
        let mut byte = [0];
        file.read((offset + page / 8) as usize, &mut byte);
        byte[0] >> (page % 8) & 1 != 0
    }

    #[test]
    fn pages_outside_of_the_log_are_counted() {
        let (log, file) = log(8, 0);
        log.mark(63 * LOG_PAGE, 1);
        log.mark(64 * LOG_PAGE, 1);
        log.mark(u64::MAX, 2);
        log.mark(7, 0);
        assert!(bit(&file, 0, 63));
        assert_eq!(log.counts(), (1, 1));
        assert!(DirtyLog::map(&Log { size: 6, offset: 0 }, file.as_fd(), Memory::new()).is_err());
        assert!(DirtyLog::map(&Log { size: 8, offset: 2 }, file.as_fd(), Memory::new()).is_err());
        assert!(DirtyLog::map(&Log { size: 0, offset: 0 }, file.as_fd(), Memory::new()).is_err());
    }

    #[test]
    fn after_unmapping_nothing_is_written() {
        let (log, file) = log(8, 0);
        drop(log.unmap());
        log.mark(0, 1);
        assert!(!bit(&file, 0, 0));
        assert_eq!(log.counts(), (0, 1));
    }

    proptest! {
        /// Exactly the pages that a range touches are marked, and others keep their bits.
        #[test]
        fn exactly_the_pages_of_a_range_are_marked(
            start in 0..200 * LOG_PAGE, len in 1..100 * LOG_PAGE, other in 0..320u64,
        ) {
            let (log, file) = log(40, 12);
            log.mark(other * LOG_PAGE, 1);
            log.mark(start, len);
            let pages = start / LOG_PAGE..=(start + len - 1) / LOG_PAGE;
            for page in 0..320 {
                let wanted = pages.contains(&page) || page == other;
                prop_assert_eq!(bit(&file, 12, page), wanted, "page {}", page);
            }
        }
    }
}
