//! Which files a message has mapped before it is obeyed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use guest_mem::Memory;

use super::Session;
use crate::codec::{Header, LogBase, MemRegion, Message};
use crate::opening::Opening;

/// The memory of a message's files, and up to where it wants which.
struct Files {
    memory: Memory,
    wanted: Vec<(usize, u64)>,
}

impl Session {
    /// Has the files of a message mapped by another thread, if it has any that are not. `None`: it has not, and can be
    /// obeyed now.
    pub(super) fn open_files(
        &self,
        header: &Header,
        payload: &[u8],
        message: &Message<'_>,
        fds: &mut Vec<OwnedFd>,
    ) -> Option<Opening> {
        let Files { memory, wanted } = self.files(message, fds)?;
        if wanted.is_empty() {
            return None;
        }
        let fds = std::mem::take(fds);
        Some(Opening::begin(
            (header, payload),
            (memory, wanted),
            fds,
            &self.wake,
            &self.mapper,
        ))
    }

    fn files(&self, message: &Message<'_>, fds: &[OwnedFd]) -> Option<Files> {
        let one = |size: u64, offset: u64| Files {
            memory: self.new_memory(),
            wanted: size
                .checked_add(offset)
                .map(|end| (0, end))
                .into_iter()
                .collect(),
        };
        let regions = |regions: &[MemRegion]| Files {
            memory: self.memory.memory.clone(),
            wanted: (0..)
                .zip(regions)
                .zip(fds)
                .filter_map(|((at, region), fd)| self.wanted(at, region, fd.as_fd()))
                .collect(),
        };
        match message {
            Message::SetMemTable(table) => Some(regions(table.regions())),
            Message::AddMemReg(region) => Some(regions(std::slice::from_ref(region))),
            Message::SetLogBase(LogBase::Shared(log)) => Some(one(log.size, log.offset)),
            Message::SetInflightFd(given) => Some(one(given.size, given.offset)),
            _ => None,
        }
    }

    /// Up to where the file of a region is to be mapped, if it is not and may be.
    fn wanted(&self, at: usize, region: &MemRegion, fd: BorrowedFd<'_>) -> Option<(usize, u64)> {
        let end = region.mmap_offset.checked_add(region.size)?;
        let memory = &self.memory.memory;
        // What is no memory is refused by the message itself.
        let known = memory.knows_file(fd, end).unwrap_or(true);
        (!known).then_some((at, end))
    }

    /// Memory of the front end's that is no guest's.
    pub(super) fn new_memory(&self) -> Memory {
        self.tenant
            .as_ref()
            .map_or_else(Memory::new, Memory::of_tenant)
    }
}
