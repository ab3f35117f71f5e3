//! One mapped file, or one heap block that stands in for it in tests.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::account::Account;
use crate::guard;

/// Why a region could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Another region already covers part of it.
    #[error("the range overlaps a region that is already mapped")]
    Exists,
    /// Length zero, or the range passes the end of the address space or of the file offset.
    #[error("the range is empty or wraps around")]
    Wraps,
    /// The file is shorter than the region.
    #[error("the file has {file} bytes, the region needs {wanted}")]
    BeyondFile {
        /// Size of the file.
        file: u64,
        /// End of the region within it.
        wanted: u64,
    },
    /// The file is not memory.
    #[error("guest RAM must be a memfd, tmpfs or hugetlbfs file")]
    NotMemory,
    /// Write access asked for on a read-only descriptor.
    #[error("the region needs write access, but the descriptor is read-only")]
    ReadOnlyFile,
    /// More regions, files or bytes than one peer may have.
    #[error("too many regions or files are mapped, or they are too large")]
    TooMany,
    /// `fstat` and friends failed.
    #[error("the descriptor cannot be examined: {0}")]
    Stat(rustix::io::Errno),
    /// `mmap` failed.
    #[error("mmap failed: {0}")]
    Mmap(rustix::io::Errno),
}

/// Memory that stays mapped at one address as long as this lives.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    source: PageSource,
}

enum PageSource {
    /// A peer's file; `slot` watches it for `SIGBUS`.
    File {
        slot: guard::Slot,
        account: Arc<Account>,
        /// It is no more counted as the peer's.
        leaving: AtomicBool,
    },
    /// Ours; the box keeps the allocation.
    Heap { block: NonNull<[AtomicU64]> },
    /// The embedder's, who keeps it.
    Foreign,
}

// SAFETY: the mapping is shared memory that any process may touch from any thread; all access goes
// through raw copies, and the pointer is valid until drop.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` has no interior state of its own beyond atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `min_len` bytes or the whole file behind `fd`, whichever is more.
    ///
    /// `account` is the peer's, and gets what `SIGBUS` counted here once the mapping is gone.
    pub(crate) fn file(
        fd: BorrowedFd<'_>,
        min_len: u64,
        account: &Arc<Account>,
    ) -> Result<Arc<Self>, MapError> {
        let MemoryFile { size, writable, .. } = MemoryFile::of(fd)?;
        if size < min_len {
            return Err(MapError::BeyondFile {
                file: size,
                wanted: min_len,
            });
        }
        let mut prot = ProtFlags::READ;
        if writable {
            prot |= ProtFlags::WRITE;
        }
        let len = usize::try_from(size).map_err(|_| MapError::Wraps)?;
        if !account.open(size) {
            return Err(MapError::TooMany);
        }
        let close = |error| {
            account.leave(size);
            account.close(size);
            error
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice; it aliases no Rust object.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED | MapFlags::NORESERVE,
                fd.as_fd(),
                0,
            )
        }
        .map_err(|errno| close(MapError::Mmap(errno)))?;
        // A guest's memory has no place in a core dump of ours, which would be as large and take as long. An old kernel may
        // refuse; it is a wish.
        // SAFETY: advice about a mapping of ours, which changes nothing of what it holds.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontDump) };
        let base: NonNull<u8> = NonNull::new(base.cast()).ok_or_else(|| close(MapError::Wraps))?;
        let Some(slot) = guard::watch(base.as_ptr() as usize, len, account) else {
            // SAFETY: just mapped by us with this length and handed out to no one yet.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
            return Err(close(MapError::TooMany));
        };
        Ok(Arc::new(Self {
            base,
            len,
            writable,
            source: PageSource::File {
                slot,
                account: Arc::clone(account),
                leaving: AtomicBool::new(false),
            },
        }))
    }

    /// Zeroed memory of our own.
    pub(crate) fn heap(len: u64) -> Arc<Self> {
        let words = (len as usize).div_ceil(8).max(1);
        let block: Box<[AtomicU64]> = if cfg!(miri) {
            // Word by word takes Miri seconds for a few MiB.
            let block = Box::new_zeroed_slice(words);
            // SAFETY: zeroed bytes are an AtomicU64 of value 0.
            unsafe { block.assume_init() }
        } else {
            // Written to, so that none of it becomes resident later, when a test counts what does.
            (0..words).map(|_| AtomicU64::new(0)).collect()
        };
        // Out of the box until drop: to move a box is to claim that nothing else points into it.
        let block = NonNull::from(Box::leak(block));
        Arc::new(Self {
            base: block.cast(),
            len: len as usize,
            writable: true,
            source: PageSource::Heap { block },
        })
    }

    /// Memory that its owner keeps alive.
    ///
    /// # Safety
    /// `base..base + len` must stay mapped, readable and (if written to) writable for the life of
    /// the mapping, and be no Rust object.
    pub(crate) unsafe fn foreign(base: NonNull<u8>, len: usize) -> Arc<Self> {
        Arc::new(Self {
            base,
            len,
            writable: true,
            source: PageSource::Foreign,
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// Address of byte `offset`; the caller has checked `offset + n <= len`.
    pub(crate) fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset <= self.len as u64);
        // SAFETY: offset <= len, within (or one past) the same mapping.
        unsafe { self.base.add(offset as usize) }
    }

    /// How many times the peer took pages away under us.
    pub(crate) fn sigbus_hits(&self) -> u64 {
        match &self.source {
            PageSource::File { slot, .. } => slot.hits(),
            PageSource::Heap { .. } | PageSource::Foreign => 0,
        }
    }

    /// The peer has lost it, and gets its place back before it is unmapped.
    pub(crate) fn leave(&self) {
        if let PageSource::File {
            account, leaving, ..
        } = &self.source
            && !leaving.swap(true, Ordering::Relaxed)
        {
            account.leave(self.len as u64);
        }
    }
}

/// A file whose pages are memory.
pub(crate) struct MemoryFile {
    pub(crate) inode: (u64, u64),
    pub(crate) size: u64,
    pub(crate) writable: bool,
}

impl MemoryFile {
    /// Asks the kernel what is behind `fd`. In a confined process another thread asks, and this one waits.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, MapError> {
        let number = fd.as_raw_fd();
        threads::apart(move || {
            // SAFETY: the caller holds the descriptor, and waits here until this has returned.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            must_be_memory(fd)?;
            let stat = rustix::fs::fstat(fd).map_err(MapError::Stat)?;
            let flags = rustix::fs::fcntl_getfl(fd).map_err(MapError::Stat)?;
            Ok(Self {
                inode: (stat.st_dev, stat.st_ino),
                size: u64::try_from(stat.st_size).unwrap_or(0),
                writable: flags.contains(rustix::fs::OFlags::RDWR),
            })
        })
    }
}

/// Whether the pages of a file are memory: memfd, tmpfs and hugetlbfs files have seals, and no
/// others. A page fault on any other (FUSE above all) may take as long as a peer likes, and so may
/// asking it for its size or its file system; seals are asked of the kernel alone.
fn must_be_memory(fd: BorrowedFd<'_>) -> Result<(), MapError> {
    match rustix::fs::fcntl_get_seals(fd) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::INVAL) => Err(MapError::NotMemory),
        Err(errno) => Err(MapError::Stat(errno)),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.leave();
        match &self.source {
            PageSource::File { slot, account, .. } => {
                account.forget_hits(slot.hits());
                slot.release();
                // SAFETY: mapped by us with this length; no slice outlives the table entry, and
                // the table entry held an Arc to us.
                let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
                account.close(self.len as u64);
            }
            PageSource::Heap { block } => {
                // SAFETY: leaked from a box by `heap`, and given back only here; no slice outlives
                // us, as above.
                drop(unsafe { Box::from_raw(block.as_ptr()) });
            }
            PageSource::Foreign => {}
        }
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hits = self.sigbus_hits();
        f.debug_struct("Mapping")
            .field("len", &self.len)
            .field("sigbus_hits", &hits)
            .finish()
    }
}
