//! One region of a guest's memory: where it is, what may be done with it, and what is behind it.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::fault::FaultKind;
use crate::mapping::Mapping;

/// What the guest lets the device do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prot {
    /// The device may read.
    pub read: bool,
    /// The device may write.
    pub write: bool,
}

impl Prot {
    /// Readable and writable.
    pub const RW: Prot = Prot {
        read: true,
        write: true,
    };
    /// Read-only (ROM).
    pub const RO: Prot = Prot {
        read: true,
        write: false,
    };
}

/// What is behind a region.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Nothing we can reach.
    Absent,
    /// Memory in our address space: the region starts at this byte of it.
    Mapped(Arc<Mapping>, u64),
}

#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) iova: u64,
    pub(crate) len: u64,
    pub(crate) prot: Prot,
    pub(crate) backing: Backing,
}

impl Region {
    pub(crate) fn last(&self) -> u64 {
        self.iova + (self.len - 1)
    }

    /// Our memory behind it and where in it the region starts, or why there is none.
    /// The device can write there.
    pub(crate) fn is_logged(&self) -> bool {
        self.prot.write && !matches!(self.backing, Backing::Absent)
    }

    pub(crate) fn reach(&self) -> Result<(&Mapping, u64), FaultKind> {
        match &self.backing {
            Backing::Absent => Err(FaultKind::NoFd),
            Backing::Mapped(mapping, _) if mapping.sigbus_hits() > 0 => Err(FaultKind::Truncated),
            Backing::Mapped(mapping, offset) => Ok((mapping, *offset)),
        }
    }
}

/// A mapped region, ready for use. It stays what it is as long as the view holds the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) iova: u64,
    /// Bytes of it that may be read, and written: all or none.
    pub(crate) read: u64,
    pub(crate) write: u64,
    pub(crate) base: NonNull<u8>,
}

// SAFETY: it says where memory is and touches none; who does, does so under a view, which keeps the
// region mapped and may be used from any thread as the mapping itself may.
unsafe impl Send for Near {}
// SAFETY: as above; there is nothing in it to change.
unsafe impl Sync for Near {}

impl Near {
    pub(crate) const NOTHING: Near = Near {
        iova: 0,
        read: 0,
        write: 0,
        base: NonNull::dangling(),
    };

    /// A region, if it is mapped.
    pub(crate) fn of(region: &Region) -> Option<Near> {
        let (mapping, offset) = region.reach().ok()?;
        Some(Near {
            iova: region.iova,
            read: if region.prot.read { region.len } else { 0 },
            write: if region.prot.write { region.len } else { 0 },
            base: mapping.at(offset),
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.read.max(self.write)
    }

    /// Where in it `iova..iova + len` begins, if all of that is in it, may be accessed so, and is not empty.
    #[inline(always)]
    pub(crate) fn holds(&self, iova: u64, len: u64, write: bool) -> Option<u64> {
        let at = iova.wrapping_sub(self.iova);
        let room = if write { self.write } else { self.read };
        (at < room && len <= room - at && len > 0).then_some(at)
    }
}

#[cfg(test)]
mod proofs;
