//! One guest's memory, as its NIC sees it.

use std::collections::btree_map::Entry;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::account::Account;
use crate::dirty::{Dirty, LogError};
use crate::hot::{Hot, Lines};
use crate::mapping::{MapError, Mapping};
use crate::quota::Tenant;
use crate::region::{Backing, Near, Prot, Region};
use crate::remote::{Asked, Remote};
use crate::table::{FileKey, KEPT_FILES, Leftovers, MappedFile, Table};
use crate::view::View;

/// Why an unmap was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnmapError {
    /// No region has exactly this start and length.
    #[error("no region has exactly this start and length")]
    NoSuchRegion,
    /// The range begins or ends inside a region.
    #[error("the range begins or ends inside a region")]
    CutsRegion,
    /// The range is empty, or goes beyond 2^64.
    #[error("the range is empty or goes beyond 2^64")]
    Wraps,
}

/// One mapped region, for display and diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// First I/O virtual address.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// Allowed directions.
    pub prot: Prot,
    /// Whether we can reach it.
    pub mapped: bool,
}

/// One NIC's guest memory. Cheap to clone; all clones are the same map.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    table: Arc<RwLock<Table>>,
    faults: Arc<AtomicU64>,
    #[cfg(feature = "meter")]
    meter: Arc<crate::meter::Meter>,
}

impl Memory {
    /// An empty map: every access faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Memory::new`]; what is mapped counts as this tenant's.
    pub fn of_tenant(tenant: &Arc<Tenant>) -> Self {
        let memory = Self::default();
        memory.table.write().account = Arc::new(Account::of(Arc::clone(tenant)));
        memory
    }

    /// Maps `len` bytes of the file behind `fd` from `file_offset` on at `iova`.
    ///
    /// # Errors
    /// Refuses overlaps, ranges beyond the file, files that are not memory, and write access
    /// through a read-only descriptor.
    pub fn map_fd(
        &self,
        iova: u64,
        len: u64,
        fd: BorrowedFd<'_>,
        file_offset: u64,
        prot: Prot,
    ) -> Result<(), MapError> {
        let file = match self.known_file(iova, len, fd, file_offset)? {
            Some(known) => known,
            None => self.open_file(len, fd, file_offset)?,
        };
        self.map_file(iova, len, file, file_offset, prot)
    }

    /// The file behind `fd`, if it has been mapped as far as this region needs it: a file is mapped once, and anew when
    /// it has grown.
    ///
    /// # Errors
    /// As [`Memory::map_fd`].
    pub fn known_file(
        &self,
        iova: u64,
        len: u64,
        fd: BorrowedFd<'_>,
        file_offset: u64,
    ) -> Result<Option<MappedFile>, MapError> {
        let end = file_offset.checked_add(len).ok_or(MapError::Wraps)?;
        let key = FileKey::of(fd)?;
        let table = self.table.read();
        table.check(iova, len)?;
        let known = table.known(&key, end);
        Ok(known.map(|mapping| MappedFile { key, mapping }))
    }

    /// Maps a file for [`Memory::map_file`]. This may wait for a lock of the file's, which its owner can hold; no lock of
    /// ours is held meanwhile.
    ///
    /// # Errors
    /// As [`Memory::map_fd`].
    pub fn open_file(
        &self,
        len: u64,
        fd: BorrowedFd<'_>,
        file_offset: u64,
    ) -> Result<MappedFile, MapError> {
        let end = file_offset.checked_add(len).ok_or(MapError::Wraps)?;
        let key = FileKey::of(fd)?;
        let account = Arc::clone(&self.table.read().account);
        let mapping = match Mapping::file(fd, end, &account) {
            Err(MapError::TooMany | MapError::Mmap(_)) => {
                self.table.write().displace_idle();
                Mapping::file(fd, end, &account)
            }
            result => result,
        }?;
        Ok(MappedFile { key, mapping })
    }

    /// Whether the file behind `fd` has been mapped up to `end`, so that no region of it waits for anything.
    ///
    /// # Errors
    /// The file is no memory, or cannot be examined.
    pub fn knows_file(&self, fd: BorrowedFd<'_>, end: u64) -> Result<bool, MapError> {
        let key = FileKey::of(fd)?;
        Ok(self.table.read().known(&key, end).is_some())
    }

    /// Makes a file known that was [opened](Self::open_file), for as long as `file` is held and a little longer.
    pub fn keep_file(&self, file: &MappedFile) {
        self.table.write().keep(&file.key, &file.mapping);
    }

    /// Maps `len` bytes of a file from `file_offset` on at `iova`. A file that is refused is [displaced](Self::displaced).
    ///
    /// # Errors
    /// As [`Memory::map_fd`].
    pub fn map_file(
        &self,
        iova: u64,
        len: u64,
        file: MappedFile,
        file_offset: u64,
        prot: Prot,
    ) -> Result<(), MapError> {
        let MappedFile { key, mapping } = file;
        let end = file_offset.checked_add(len).ok_or(MapError::Wraps);
        let fits = end.and_then(|end| match mapping.len() {
            file if file < end => Err(MapError::BeyondFile { file, wanted: end }),
            _ if prot.write && !mapping.writable() => Err(MapError::ReadOnlyFile),
            _ => Ok(()),
        });
        let result = fits.and_then(|()| {
            self.insert(iova, len, prot, |table| {
                table.keep(&key, &mapping);
                Backing::Mapped(Arc::clone(&mapping), file_offset)
            })
        });
        if result.is_err() {
            self.table.write().displace(mapping);
        }
        result
    }

    /// Notes a region the VMM gave no descriptor for: known, but out of reach ([`FaultKind::NoFd`]).
    ///
    /// # Errors
    /// Refuses overlaps and empty or wrapping ranges.
    pub fn map_absent(&self, iova: u64, len: u64, prot: Prot) -> Result<(), MapError> {
        self.insert(iova, len, prot, |_| Backing::Absent)
    }

    /// Asks `remote` for everything that is not mapped, by copies; `None` makes that a fault again.
    pub fn set_remote(&self, remote: Option<Arc<dyn Remote>>) {
        self.table.write().remote = remote.map(Asked);
    }

    /// Maps memory that the caller has in this address space already, as a VMM has its guest's.
    ///
    /// # Errors
    /// Refuses overlaps and empty or wrapping ranges.
    ///
    /// # Safety
    /// `memory..memory + len` must stay mapped and readable (and writable if `prot` says so) until
    /// the region has been unmapped, and be no Rust object: any process may write to it at any time.
    pub unsafe fn map_raw(
        &self,
        iova: u64,
        len: u64,
        memory: NonNull<u8>,
        prot: Prot,
    ) -> Result<(), MapError> {
        let bytes = usize::try_from(len).map_err(|_| MapError::Wraps)?;
        self.insert(iova, len, prot, |_| {
            // SAFETY: the caller's promise, word for word.
            Backing::Mapped(unsafe { Mapping::foreign(memory, bytes) }, 0)
        })
    }

    /// Maps fresh zeroed memory of our own: a guest without a guest, for tests and fuzzers.
    ///
    /// # Errors
    /// Refuses overlaps and empty or wrapping ranges.
    pub fn map_anon(&self, iova: u64, len: u64) -> Result<(), MapError> {
        self.insert(iova, len, Prot::RW, |_| {
            Backing::Mapped(Mapping::heap(len), 0)
        })
    }

    fn insert(
        &self,
        iova: u64,
        len: u64,
        prot: Prot,
        backing: impl FnOnce(&mut Table) -> Backing,
    ) -> Result<(), MapError> {
        let mut table = self.table.write();
        table.check(iova, len)?;
        let backing = backing(&mut table);
        let region = Region {
            iova,
            len,
            prot,
            backing,
        };
        table.note_large(&region);
        if let Some(log) = &mut table.log
            && region.is_logged()
        {
            log.cover(iova, region.last());
        }
        table.regions.insert(iova, region);
        Ok(())
    }

    /// Removes the region that has exactly this start and length, after the last view in flight.
    /// What is to be unmapped from our own address space with it is returned.
    ///
    /// # Errors
    /// [`UnmapError::NoSuchRegion`] when none matches.
    pub fn unmap(&self, iova: u64, len: u64) -> Result<Leftovers, UnmapError> {
        let mut table = self.table.write();
        let Entry::Occupied(found) = table.regions.entry(iova) else {
            return Err(UnmapError::NoSuchRegion);
        };
        if found.get().len != len {
            return Err(UnmapError::NoSuchRegion);
        }
        let region = found.remove();
        table.forget_large(&region);
        let mut left = Leftovers::default();
        match region.backing {
            // Most often the file stays for the next region.
            Backing::Mapped(file, _) if Arc::strong_count(&file) == 1 => left.files.push(file),
            _ => {}
        }
        left.files.extend(table.forget_idle_files(KEPT_FILES));
        left.files.append(&mut table.displaced);
        left.leave();
        Ok(left)
    }

    /// Removes all regions inside a range, as the kernel's VFIO does (`vfio_dma_do_unmap`, type 1 version 2), after the
    /// last view in flight. Returns what is to be unmapped from our own address space, and how many bytes and regions
    /// were removed: both may be 0.
    ///
    /// # Errors
    /// [`UnmapError::CutsRegion`] when it would take a part of a region, [`UnmapError::Wraps`] when it is no range; then
    /// nothing is removed.
    pub fn unmap_range(&self, iova: u64, len: u64) -> Result<(Leftovers, u64, usize), UnmapError> {
        let last = len
            .checked_sub(1)
            .and_then(|rest| iova.checked_add(rest))
            .ok_or(UnmapError::Wraps)?;
        let mut table = self.table.write();
        let cuts_first = iova
            .checked_sub(1)
            .and_then(|before| table.at_or_before(before))
            .is_some_and(|r| r.last() >= iova);
        let cuts_last = table.at_or_before(last).is_some_and(|r| r.last() > last);
        if cuts_first || cuts_last {
            return Err(UnmapError::CutsRegion);
        }
        let regions: Vec<_> = table
            .regions
            .extract_if(iova..=last, |_, _| true)
            .map(|(_, region)| region)
            .collect();
        let bytes = regions.iter().map(|r| r.len).sum();
        let mut left = Leftovers {
            regions,
            ..Leftovers::default()
        };
        for region in &left.regions {
            table.forget_large(region);
        }
        let removed = left.regions.len();
        // A region of a file that stays holds nothing of its own.
        left.regions.retain(|region| match &region.backing {
            Backing::Mapped(file, _) => Arc::strong_count(file) == 1,
            Backing::Absent => false,
        });
        left.files = table.forget_idle_files(KEPT_FILES);
        left.files.append(&mut table.displaced);
        left.leave();
        Ok((left, bytes, removed))
    }

    /// Removes everything, after the last view in flight. What is to be unmapped from our own
    /// address space is returned.
    pub fn unmap_all(&self) -> Leftovers {
        let mut table = self.table.write();
        // With their storage: 65,535 regions have some megabytes.
        let all = std::mem::take(&mut table.regions);
        table.largest = [Near::NOTHING; 2];
        let mut files = std::mem::take(&mut table.displaced);
        files.extend(table.files.drain(..).map(|(_, file)| file));
        let left = Leftovers {
            files,
            all,
            ..Leftovers::default()
        };
        left.leave();
        left
    }

    /// Files that later ones took the place of, when they were mapped. They are still mapped in our own address space
    /// until the caller drops them, which may take long.
    pub fn displaced(&self) -> Leftovers {
        Leftovers {
            files: std::mem::take(&mut self.table.write().displaced),
            ..Leftovers::default()
        }
    }

    /// From now on notes which pages are written, in ranges of a start and a length, or everywhere if there are none. Behind
    /// this no access is under way that is not noted. Returns the page size, which is the one asked for if that is possible.
    /// A log that is kept already goes on, for these ranges too.
    ///
    /// # Errors
    /// The ranges make no sense, or the page size none; then all is as before.
    pub fn start_log(&self, page_size: u64, ranges: &[(u64, u64)]) -> Result<u64, LogError> {
        let mut table = self.table.write();
        if let Some(log) = &mut table.log {
            log.widen(page_size, ranges)?;
            table.cover_all();
        } else {
            let log = Dirty::new(page_size, ranges)?;
            table.set_log(Some(Box::new(log)));
        }
        let log = table.log.as_ref().ok_or(LogError::NotLogging)?;
        if log.is_too_large() {
            table.set_log(None);
            return Err(LogError::TooLarge);
        }
        Ok(log.page_size())
    }

    /// Notes no more. Whether it did.
    pub fn stop_log(&self) -> bool {
        let mut table = self.table.write();
        let was = table.log.is_some();
        if was {
            table.set_log(None);
        }
        was
    }

    /// Takes what was noted of a range since it was taken last: one bit for each `page_size` bytes, in a bitmap of
    /// [`log_bytes`](crate::log_bytes). Bits that are set stay so. Returns the chunks of 4096 pages that it has gone through.
    ///
    /// # Errors
    /// There is no log, or none of such a range, or it does not cover all; then nothing is taken.
    pub fn take_log(
        &self,
        range: (u64, u64),
        page_size: u64,
        bitmap: &mut [u8],
    ) -> Result<usize, LogError> {
        let table = self.table.read();
        let log = table.log.as_ref().ok_or(LogError::NotLogging)?;
        log.take(range, page_size, bitmap)
    }

    /// What the latest [`Memory::start_log`] took, in chunks of 4096 pages that were made or would take as long.
    pub fn log_cost(&self) -> usize {
        let table = self.table.read();
        let cost = |log: &Dirty| log.start_cost(table.regions.len());
        table.log.as_deref().map_or(0, cost)
    }

    /// Pages marked since the log began; `None`: there is no log.
    pub fn logged(&self) -> Option<u64> {
        self.table.read().log.as_ref().map(|log| log.marked())
    }

    /// Pins the map for the length of one batch.
    #[inline(always)]
    pub fn view(&self) -> View<'_> {
        // Recursive: a sender that holds its own view while it delivers into others must never
        // queue behind a waiting unmap, or two such senders and two unmaps could wait in a ring.
        View::new(
            self.table.read_recursive(),
            &self.faults,
            #[cfg(feature = "meter")]
            &self.meter,
        )
    }

    /// What a view touches of the map: the lock, the regions where it looks first, and whether a file was truncated.
    pub fn hot(&self, hot: &mut Hot) {
        let near =
            size_of::<RwLock<()>>().next_multiple_of(8) + std::mem::offset_of!(Table, regions);
        hot.add(Lines::first(&*self.table, near));
        hot.add(self.table.read().account.hot());
    }

    /// What went through all views so far.
    #[cfg(feature = "meter")]
    pub fn meter(&self) -> &crate::meter::Meter {
        &self.meter
    }

    /// The regions, in address order.
    pub fn regions(&self) -> Vec<RegionInfo> {
        let table = self.table.read();
        let info = |r: &Region| RegionInfo {
            iova: r.iova,
            len: r.len,
            prot: r.prot,
            mapped: !matches!(r.backing, Backing::Absent),
        };
        table.regions.values().map(info).collect()
    }

    /// Counters by name: `dma_faults` (refused accesses), `dma_sigbus` (pages a peer took away).
    pub fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("dma_faults", self.faults.load(Ordering::Relaxed));
        let table = self.table.read();
        let live: u64 = table.files.iter().map(|(_, m)| m.sigbus_hits()).sum();
        visit(
            "dma_sigbus",
            live + table.account.past_sigbus.load(Ordering::Relaxed),
        );
    }
}

#[cfg(test)]
mod tests;
