//! The files of guest memory, kept so that another server can map them again.

use std::os::fd::OwnedFd;

use guest_mem::Prot;

/// A region that can be mapped again.
pub(super) struct KeptMap {
    pub iova: u64,
    pub len: u64,
    pub offset: u64,
    pub prot: Prot,
    /// None where there was none, or one that is not mapped.
    pub file: Option<OwnedFd>,
}

/// What is mapped, if clients are to be handed over.
#[derive(Default)]
pub(super) struct KeptMaps(Option<Vec<KeptMap>>);

impl KeptMaps {
    /// Keeps what is mapped from now on.
    pub fn begin(&mut self) {
        self.0 = Some(Vec::new());
    }

    /// Whether files are kept.
    pub fn keeps(&self) -> bool {
        self.0.is_some()
    }

    /// All that is mapped; `None`: it is not kept.
    pub fn all(&self) -> Option<&[KeptMap]> {
        self.0.as_deref()
    }

    pub fn push(&mut self, map: KeptMap) {
        if let Some(maps) = &mut self.0 {
            maps.push(map);
        }
    }

    /// Regions inside of this range are gone.
    pub fn forget(&mut self, iova: u64, len: u64) {
        if let Some(maps) = &mut self.0 {
            let last = iova.saturating_add(len.saturating_sub(1));
            let inside = |map: &KeptMap| map.iova >= iova && map.iova + (map.len - 1) <= last;
            maps.retain(|map| !inside(map));
        }
    }
}
