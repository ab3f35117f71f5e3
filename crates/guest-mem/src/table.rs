//! The DMA map: which IOVA is which memory, and which files that takes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::account::Account;
use crate::dirty::Dirty;
use crate::mapping::{MapError, Mapping, MemoryFile};
use crate::region::{Backing, Near, Region};
use crate::remote::Asked;

/// Most regions one peer may map; vfio-user's `max_dma_maps` (the default of the protocol).
pub const MAX_REGIONS: usize = 65_535;

/// Files kept mapped after their last region went, because firmware unmaps and remaps the same
/// RAM in bursts (PAM shadowing) and a page-table storm each time would stall the guest.
pub(crate) const KEPT_FILES: usize = 8;

/// In this order: what each view looks at is first, and lies in two cache lines with the lock before it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table {
    /// Two large regions (most guests have their memory in two), where views look first.
    pub(crate) largest: [Near; 2],
    /// What the peer's files cost.
    pub(crate) account: Arc<Account>,
    /// By `iova`, never overlapping. A tree: a peer may add each of its 65,535 before all others.
    pub(crate) regions: BTreeMap<u64, Region>,
    /// Asked for everything else.
    pub(crate) remote: Option<Asked>,
    /// Files by (device, inode), most recently used last.
    pub(crate) files: Vec<((u64, u64), Arc<Mapping>)>,
    /// Files that others took the place of. To unmap them may take long, so others do.
    pub(crate) displaced: Vec<Arc<Mapping>>,
    /// What is written is noted there.
    pub(crate) log: Option<Box<Dirty>>,
}

/// Which memory file a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    inode: (u64, u64),
}

impl FileId {
    /// The file's identity, once it has been proven to be memory.
    ///
    /// # Errors
    /// It is no memfd, tmpfs or hugetlbfs file, or cannot be examined.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Self, MapError> {
        Ok(Self {
            inode: FileKey::of(fd)?.inode,
        })
    }
}

/// Which file a descriptor is of, and what it allows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileKey {
    inode: (u64, u64),
    writable: bool,
}

impl FileKey {
    /// Of a file whose pages are memory.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, MapError> {
        let file = MemoryFile::of(fd)?;
        Ok(Self {
            inode: file.inode,
            writable: file.writable,
        })
    }
}

/// A peer's file in our address space, for regions of it.
#[derive(Debug)]
pub struct MappedFile {
    pub(crate) key: FileKey,
    pub(crate) mapping: Arc<Mapping>,
}

impl MappedFile {
    /// Whether it is the file behind `fd`, and mapped up to `end`.
    pub fn covers(&self, fd: BorrowedFd<'_>, end: u64) -> bool {
        FileKey::of(fd).is_ok_and(|key| key == self.key) && self.mapping.len() >= end
    }
}

impl Default for Table {
    fn default() -> Self {
        Table {
            regions: BTreeMap::new(),
            largest: [Near::NOTHING; 2],
            remote: None,
            files: Vec::new(),
            displaced: Vec::new(),
            account: Arc::default(),
            log: None,
        }
    }
}

/// What was taken out of a map and is still mapped in our own address space, until this is dropped.
/// That may take long: the last to let go of a guest's memory frees it, page by page.
#[derive(Debug, Default)]
pub struct Leftovers {
    pub(crate) files: Vec<Arc<Mapping>>,
    pub(crate) regions: Vec<Region>,
    /// All of a map, with their storage.
    pub(crate) all: BTreeMap<u64, Region>,
}

impl Leftovers {
    /// Gives their places back to the peer.
    pub(crate) fn leave(&self) {
        for file in &self.files {
            file.leave();
        }
        for region in &self.regions {
            if let Backing::Mapped(file, _) = &region.backing {
                file.leave();
            }
        }
    }

    /// Nothing is left: to drop it is nothing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.regions.is_empty() && self.all.is_empty()
    }
}

impl Table {
    /// A region as views keep it at hand. While there is a log, they write to none without a note.
    pub(crate) fn near_of(&self, region: &Region) -> Option<Near> {
        let near = Near::of(region)?;
        let write = if self.log.is_some() { 0 } else { near.write };
        Some(Near { write, ..near })
    }

    /// Begins a log or ends it.
    pub(crate) fn set_log(&mut self, log: Option<Box<Dirty>>) {
        self.log = log;
        self.largest = [Near::NOTHING; 2];
        let regions = std::mem::take(&mut self.regions);
        for region in regions.values() {
            self.note_large(region);
        }
        self.regions = regions;
        self.cover_all();
    }

    /// The log covers what is mapped.
    pub(crate) fn cover_all(&mut self) {
        let Some(log) = &mut self.log else { return };
        for region in self.regions.values().filter(|region| region.is_logged()) {
            log.cover(region.iova, region.last());
        }
    }

    /// Remembers a region that is larger than one of those remembered.
    pub(crate) fn note_large(&mut self, region: &Region) {
        if let Some(near) = self.near_of(region)
            && let Some(least) = self.largest.iter_mut().min_by_key(|near| near.len())
            && near.len() > least.len()
        {
            *least = near;
        }
    }

    /// Its place stays empty until another region comes: looking for the next in size here would
    /// cost a peer nothing and us a walk through all it has mapped.
    pub(crate) fn forget_large(&mut self, region: &Region) {
        for near in &mut self.largest {
            if near.len() > 0 && near.iova == region.iova {
                *near = Near::NOTHING;
            }
        }
    }

    /// The region at `iova`, or the last one before it.
    pub(crate) fn at_or_before(&self, iova: u64) -> Option<&Region> {
        self.regions
            .range(..=iova)
            .next_back()
            .map(|(_, region)| region)
    }

    /// The first region behind `iova`.
    pub(crate) fn behind(&self, iova: u64) -> Option<&Region> {
        let behind = (Bound::Excluded(iova), Bound::Unbounded);
        self.regions.range(behind).next().map(|(_, region)| region)
    }

    /// Whether a region may be added: nothing is in its way.
    pub(crate) fn check(&self, iova: u64, len: u64) -> Result<(), MapError> {
        let Some(last) = len.checked_sub(1).and_then(|rest| iova.checked_add(rest)) else {
            return Err(MapError::Wraps);
        };
        if self.regions.len() >= MAX_REGIONS {
            return Err(MapError::TooMany);
        }
        match self.at_or_before(last) {
            Some(before) if before.last() >= iova => Err(MapError::Exists),
            _ => Ok(()),
        }
    }

    /// The mapping there is of a file, if it reaches `end` and may be written where `file` may.
    pub(crate) fn known(&self, file: &FileKey, end: u64) -> Option<Arc<Mapping>> {
        let (_, mapping) = self.files.iter().find(|(key, _)| *key == file.inode)?;
        let fits = mapping.len() >= end && (mapping.writable() || !file.writable);
        (fits && mapping.sigbus_hits() == 0).then(|| Arc::clone(mapping))
    }

    /// Remembers a file's mapping as the one used last.
    pub(crate) fn keep(&mut self, file: &FileKey, mapping: &Arc<Mapping>) {
        if let Some(at) = self.files.iter().position(|(key, _)| *key == file.inode) {
            let (_, old) = self.files.remove(at);
            if !Arc::ptr_eq(&old, mapping) {
                self.displace(old);
            }
        }
        self.files.push((file.inode, Arc::clone(mapping)));
    }

    /// What is kept for later makes room for what is needed now.
    pub(crate) fn displace_idle(&mut self) {
        for file in self.forget_idle_files(0) {
            self.displace(file);
        }
    }

    /// Of a file that regions use, the last of them lets go.
    pub(crate) fn displace(&mut self, file: Arc<Mapping>) {
        if Arc::strong_count(&file) == 1 {
            file.leave();
            self.displaced.push(file);
        }
    }

    /// Takes unused files out, oldest first, until at most `keep` unused ones are left, none of them truncated.
    pub(crate) fn forget_idle_files(&mut self, keep: usize) -> Vec<Arc<Mapping>> {
        let idle = |m: &Arc<Mapping>| Arc::strong_count(m) == 1;
        let sound = |m: &Arc<Mapping>| m.sigbus_hits() == 0;
        let count = self.files.iter().filter(|(_, m)| idle(m) && sound(m));
        let mut surplus = count.count().saturating_sub(keep);
        let gone = self.files.extract_if(.., |(_, m)| {
            let old = idle(m) && sound(m) && surplus > 0;
            surplus -= usize::from(old);
            old || idle(m) && !sound(m)
        });
        gone.map(|(_, file)| file).collect()
    }
}
