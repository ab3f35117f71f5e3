//! Guest memory as the front end describes it: by guest physical address, by its own address, and
//! by what file it is in.

use std::os::fd::{AsFd, OwnedFd};

use guest_mem::{FileId, Leftovers, MapError, Memory, Prot, View};

use crate::codec::MemRegion;

/// Regions that a front end may add one by one: as many memory slots as KVM gives a guest by default.
pub(crate) const MAX_SLOTS: usize = 509;

/// Why the front end's memory is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("a region is empty, or ends beyond 2^64")]
    Wraps,
    #[error("two regions share addresses")]
    Overlap,
    #[error("no such region was added")]
    Unknown,
    #[error("there are more than {MAX_SLOTS} regions")]
    TooMany,
    #[error(
        "{0}; start the VMM with shared memory (for QEMU a memory-backend-memfd object with share=on)"
    )]
    Map(#[from] MapError),
}

struct Region {
    at: MemRegion,
    file: FileId,
}

/// All regions. The guest's side of it is a [`Memory`], by which devices reach rings and buffers.
pub(crate) struct GuestMemory {
    pub memory: Memory,
    /// In no order.
    regions: Vec<Region>,
}

fn end(start: u64, size: u64) -> Option<u64> {
    size.checked_sub(1).and_then(|more| start.checked_add(more))
}

fn meet(a: u64, b: u64, size_a: u64, size_b: u64) -> bool {
    a <= b + (size_b - 1) && b <= a + (size_a - 1)
}

fn check(region: &MemRegion) -> Result<(), MemoryError> {
    let ends = [
        end(region.guest, region.size),
        end(region.user, region.size),
        end(region.mmap_offset, region.size),
    ];
    if ends.contains(&None) {
        return Err(MemoryError::Wraps);
    }
    Ok(())
}

impl GuestMemory {
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            regions: Vec::new(),
        }
    }

    fn overlaps(&self, new: &MemRegion) -> bool {
        self.regions.iter().any(|Region { at, .. }| {
            meet(at.guest, new.guest, at.size, new.size)
                || meet(at.user, new.user, at.size, new.size)
        })
    }

    fn map(&mut self, at: MemRegion, fd: &OwnedFd, file: FileId) -> Result<(), MemoryError> {
        self.memory
            .map_fd(at.guest, at.size, fd.as_fd(), at.mmap_offset, Prot::RW)?;
        self.regions.push(Region { at, file });
        Ok(())
    }

    /// Adds a region.
    pub fn add(&mut self, region: &MemRegion, fd: &OwnedFd) -> Result<(), MemoryError> {
        check(region)?;
        if self.regions.len() >= MAX_SLOTS {
            return Err(MemoryError::TooMany);
        }
        if self.overlaps(region) {
            return Err(MemoryError::Overlap);
        }
        let file = FileId::of(fd.as_fd())?;
        self.map(*region, fd, file)
    }

    /// Removes the region with this guest address, user address and size.
    pub fn remove(&mut self, region: &MemRegion) -> Result<Leftovers, MemoryError> {
        let same = |at: &MemRegion| {
            (at.guest, at.user, at.size) == (region.guest, region.user, region.size)
        };
        let known = self.regions.iter().position(|known| same(&known.at));
        self.regions.swap_remove(known.ok_or(MemoryError::Unknown)?);
        self.memory
            .unmap(region.guest, region.size)
            .map_err(|_| MemoryError::Unknown)
    }

    /// Makes these regions all there are. Those that stay are not touched: rings in them go on.
    ///
    /// What was removed is given to `leave`. After an error some regions are missing.
    pub fn replace(
        &mut self,
        regions: &[MemRegion],
        fds: &[OwnedFd],
        leave: &mut dyn FnMut(Leftovers),
    ) -> Result<(), MemoryError> {
        for (n, region) in regions.iter().enumerate() {
            check(region)?;
            let earlier = regions[..n].iter();
            for other in earlier {
                if meet(other.guest, region.guest, other.size, region.size)
                    || meet(other.user, region.user, other.size, region.size)
                {
                    return Err(MemoryError::Overlap);
                }
            }
        }
        let files = fds
            .iter()
            .map(|fd| FileId::of(fd.as_fd()))
            .collect::<Result<Vec<_>, _>>()?;
        let stays = |known: &Region| {
            let mut new = regions.iter().zip(&files);
            new.any(|(at, file)| *at == known.at && *file == known.file)
        };
        let gone: Vec<_> = self
            .regions
            .extract_if(.., |known| !stays(known))
            .map(|known| known.at)
            .collect();
        for at in gone {
            if let Ok(left) = self.memory.unmap(at.guest, at.size) {
                leave(left);
            }
        }
        for ((at, fd), file) in regions.iter().zip(fds).zip(files) {
            if !self.regions.iter().any(|known| known.at == *at) {
                self.map(*at, fd, file)?;
            }
        }
        Ok(())
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> Leftovers {
        self.regions.clear();
        self.memory.unmap_all()
    }

    /// The guest physical address of `len` bytes that the front end has at `user`, if one region
    /// holds them.
    pub fn guest_of(&self, user: u64, len: u64) -> Option<u64> {
        self.regions().find_map(|at| translate(&at, user, len))
    }

    /// A look at it.
    pub fn view(&self) -> View<'_> {
        self.memory.view()
    }

    pub fn regions(&self) -> impl Iterator<Item = MemRegion> {
        self.regions.iter().map(|known| known.at)
    }
}

/// As [`GuestMemory::guest_of`], of these regions.
pub(crate) fn guest_of(regions: &[MemRegion], user: u64, len: u64) -> Option<u64> {
    regions.iter().find_map(|at| translate(at, user, len))
}

fn translate(at: &MemRegion, user: u64, len: u64) -> Option<u64> {
    let offset = user.checked_sub(at.user)?;
    let room = at.size.checked_sub(offset)?;
    if len == 0 || len > room {
        return None;
    }
    // A region that has not been checked yet may end anywhere.
    at.guest.checked_add(offset)
}

#[cfg(test)]
mod tests;
