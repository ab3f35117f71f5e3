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

/// Files that are kept for one client at most; VMMs have a handful. Each is a descriptor of ours, of which others need some too.
pub(super) const MOST_FILES: usize = 256;
/// Regions that are kept for one client at most, those without a file among them: all are described whenever something changes.
pub(super) const MOST_MAPS: usize = 1024;

/// What is mapped, if clients are to be handed over.
#[derive(Default)]
pub(super) struct KeptMaps {
    maps: Option<Vec<KeptMap>>,
    files: usize,
    /// The client has given more files or regions than are kept. It is served as any other, but not handed over.
    too_many: bool,
}

impl KeptMaps {
    /// Keeps what is mapped from now on.
    pub fn begin(&mut self) {
        self.maps = Some(Vec::new());
    }

    /// Whether files are kept.
    pub fn keeps(&self) -> bool {
        self.maps.is_some() && !self.too_many
    }

    /// All that is mapped; `None`: it is not kept.
    pub fn all(&self) -> Option<&[KeptMap]> {
        self.maps.as_deref().filter(|_| !self.too_many)
    }

    /// One more is mapped. Returns the files that are not kept after all.
    #[must_use]
    pub fn push(&mut self, map: KeptMap) -> Vec<OwnedFd> {
        let Some(maps) = self.maps.as_mut().filter(|_| !self.too_many) else {
            return map.file.into_iter().collect();
        };
        self.files += usize::from(map.file.is_some());
        maps.push(map);
        if self.files <= MOST_FILES && maps.len() <= MOST_MAPS {
            return Vec::new();
        }
        self.too_many = true;
        self.files = 0;
        std::mem::take(maps)
            .into_iter()
            .filter_map(|map| map.file)
            .collect()
    }

    /// Regions inside of this range are gone. Returns their files.
    #[must_use]
    pub fn forget(&mut self, iova: u64, len: u64) -> Vec<OwnedFd> {
        if (iova, len) == (0, u64::MAX) {
            self.too_many = false;
        }
        let Some(maps) = &mut self.maps else {
            return Vec::new();
        };
        let last = iova.saturating_add(len.saturating_sub(1));
        let inside = |map: &mut KeptMap| map.iova >= iova && map.iova + (map.len - 1) <= last;
        let gone = maps.extract_if(.., inside);
        let gone: Vec<_> = gone.filter_map(|map| map.file).collect();
        self.files = maps.iter().filter(|map| map.file.is_some()).count();
        gone
    }
}
