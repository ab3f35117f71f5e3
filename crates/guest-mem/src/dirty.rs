//! Which pages a device has written, for a guest that moves to another host.
//!
//! While a map keeps a log, no view lends a way to write that passes by it: what is written goes through single accesses, each of
//! which the view notes, and marks when it ends. So a page is marked after it was written, and whoever takes a mark and copies the
//! page afterwards misses nothing: what was written later is marked later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages are not told apart more finely than so.
pub const LOG_PAGE: u64 = 4096;
/// Nor less finely.
pub const LARGEST_LOG_PAGE: u64 = 1 << 30;
/// Ranges that one log may be limited to.
pub const MAX_LOG_RANGES: usize = 1024;

const WORDS: usize = 64;
/// Pages of a chunk, which is what the log grows by where memory is mapped.
const PAGES: u64 = 64 * WORDS as u64;
/// Chunks of one log: those of 1 TiB in pages of 4 KiB. They take 32 MiB.
pub const MAX_LOG_CHUNKS: usize = 1 << 16;

/// Why a log is refused, or what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is no log.
    #[error("no log is kept")]
    NotLogging,
    /// There is one, of another kind.
    #[error("a log with another page size is kept")]
    Another,
    /// It is not a power of two.
    #[error("the page size is not a power of two")]
    PageSize,
    /// A range is empty or goes beyond 2^64.
    #[error("a range is empty or goes beyond 2^64")]
    Range,
    /// More ranges than a log may have.
    #[error("the log has more than {MAX_LOG_RANGES} ranges")]
    TooMany,
    /// The bitmap has another length than the range needs.
    #[error("the bitmap has another length than the range needs")]
    Bitmap,
    /// More memory was mapped than a log may cover: it has holes, and says so instead of nothing.
    #[error("more memory is mapped than a log covers")]
    TooLarge,
}

type Chunk = [AtomicU64; WORDS];

/// The log of one map.
#[derive(Debug)]
pub(crate) struct Dirty {
    shift: u32,
    /// First and last address; none: everything.
    ranges: Vec<(u64, u64)>,
    chunks: BTreeMap<u64, Box<Chunk>>,
    too_large: bool,
    marked: AtomicU64,
}

fn last_of(iova: u64, len: u64) -> Option<u64> {
    len.checked_sub(1).and_then(|rest| iova.checked_add(rest))
}

/// The page size that a log has which was asked for this one.
fn granted(page_size: u64) -> Result<u64, LogError> {
    if !page_size.is_power_of_two() {
        return Err(LogError::PageSize);
    }
    Ok(page_size.clamp(LOG_PAGE, LARGEST_LOG_PAGE))
}

/// Bytes of a bitmap for a range, in whole words of 8; `None`: there is no such range.
pub fn log_bytes(iova: u64, len: u64, page_size: u64) -> Option<u64> {
    last_of(iova, len)?;
    if !page_size.is_power_of_two() {
        return None;
    }
    Some(len.div_ceil(page_size).div_ceil(64).saturating_mul(8))
}

impl Dirty {
    pub fn new(page_size: u64, ranges: &[(u64, u64)]) -> Result<Self, LogError> {
        let page_size = granted(page_size)?;
        let mut log = Self {
            shift: page_size.trailing_zeros(),
            ranges: Vec::new(),
            chunks: BTreeMap::new(),
            too_large: false,
            marked: AtomicU64::new(0),
        };
        log.ranges = Self::checked(ranges)?;
        Ok(log)
    }

    fn checked(ranges: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, LogError> {
        if ranges.len() > MAX_LOG_RANGES {
            return Err(LogError::TooMany);
        }
        let last = |&(iova, len): &(u64, u64)| last_of(iova, len).map(|last| (iova, last));
        let checked: Option<Vec<_>> = ranges.iter().map(last).collect();
        checked.ok_or(LogError::Range)
    }

    /// Asked for once more: what is marked stays, and the ranges are added.
    pub fn widen(&mut self, page_size: u64, ranges: &[(u64, u64)]) -> Result<(), LogError> {
        if granted(page_size)? != self.page_size() {
            return Err(LogError::Another);
        }
        let more = Self::checked(ranges)?;
        if more.is_empty() || self.ranges.is_empty() {
            self.ranges.clear();
        } else if self.ranges.len() + more.len() > MAX_LOG_RANGES {
            return Err(LogError::TooMany);
        } else {
            self.ranges.extend(more);
        }
        Ok(())
    }

    pub fn page_size(&self) -> u64 {
        1 << self.shift
    }

    pub fn marked(&self) -> u64 {
        self.marked.load(Ordering::Relaxed)
    }

    /// What it took to begin it where so many regions are mapped, in chunks: each region is looked for in each range.
    pub fn start_cost(&self, regions: usize) -> usize {
        self.chunks.len() + regions * self.ranges.len() / WORDS
    }

    pub fn is_too_large(&self) -> bool {
        self.too_large
    }

    /// A region is there whose pages are to be marked, if they are in a range that is asked for.
    pub fn cover(&mut self, iova: u64, last: u64) {
        let asked = |(first, end): &(u64, u64)| *first <= last && *end >= iova;
        if !self.ranges.is_empty() && !self.ranges.iter().any(asked) {
            return;
        }
        let chunk = |address: u64| (address >> self.shift) / PAGES;
        let (first, last) = (chunk(iova), chunk(last));
        // It may be of any size where nothing is behind it.
        let more = (last - first).saturating_add(1);
        if more > (MAX_LOG_CHUNKS - self.chunks.len().min(MAX_LOG_CHUNKS)) as u64 {
            self.too_large = true;
            return;
        }
        for at in first..=last {
            let new = || Box::new([const { AtomicU64::new(0) }; WORDS]);
            self.chunks.entry(at).or_insert_with(new);
        }
    }

    /// Marks the pages of `iova..iova + len`.
    pub fn mark(&self, iova: u64, len: u64) {
        let Some(last) = last_of(iova, len) else {
            return;
        };
        let (mut page, last) = (iova >> self.shift, last >> self.shift);
        loop {
            // All pages of one word at once.
            let until = last.min(page | 63);
            let bits = (u64::MAX >> (63 - (until - page))) << (page % 64);
            if let Some(chunk) = self.chunks.get(&(page / PAGES)) {
                let word = &chunk[(page % PAGES / 64) as usize];
                let before = word.fetch_or(bits, Ordering::Release);
                let new = (bits & !before).count_ones();
                self.marked.fetch_add(new.into(), Ordering::Relaxed);
            }
            if until == last {
                return;
            }
            page = until + 1;
        }
    }

    /// Takes the marks of a range into a bitmap of one bit for each `page_size` bytes from `iova` on, lowest bit of lowest byte
    /// first. Marks of pages that lie in it in part are shown and stay. Returns the chunks that it has gone through.
    pub fn take(
        &self,
        (iova, len): (u64, u64),
        page_size: u64,
        bitmap: &mut [u8],
    ) -> Result<usize, LogError> {
        if !page_size.is_power_of_two() {
            return Err(LogError::PageSize);
        }
        let end = last_of(iova, len).ok_or(LogError::Range)?;
        if log_bytes(iova, len, page_size) != Some(bitmap.len() as u64) {
            return Err(LogError::Bitmap);
        }
        if self.too_large {
            return Err(LogError::TooLarge);
        }
        let (first, last) = (iova >> self.shift, end >> self.shift);
        let whole = |page: u64| {
            let start = page << self.shift;
            start >= iova && start + (self.page_size() - 1) <= end
        };
        let mut chunks = 0;
        for (&at, chunk) in self.chunks.range(first / PAGES..=last / PAGES) {
            chunks += 1;
            for (i, word) in chunk.iter().enumerate() {
                let base = at * PAGES + 64 * i as u64;
                if base > last || base + 63 < first || word.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let (from, to) = (first.max(base) - base, last.min(base + 63) - base);
                let shown = (u64::MAX >> (63 - (to - from))) << from;
                let mut taken = shown;
                for edge in [from, to].into_iter().filter(|bit| !whole(base + bit)) {
                    taken &= !(1 << edge);
                }
                let found = word.fetch_and(!taken, Ordering::AcqRel) & shown;
                for bit in (0..64).filter(|bit| found >> bit & 1 != 0) {
                    let start = ((base + bit) << self.shift).max(iova) - iova;
                    let behind = ((base + bit) << self.shift) + (self.page_size() - 1);
                    let behind = behind.min(end) - iova;
                    for place in start / page_size..=behind / page_size {
                        bitmap[(place / 8) as usize] |= 1 << (place % 8);
                    }
                }
            }
        }
        Ok(chunks)
    }
}

#[cfg(test)]
mod proofs;
#[cfg(test)]
mod tests;
