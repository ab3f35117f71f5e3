//! Answers `DMA_MAP` once its file is mapped.

use std::os::fd::OwnedFd;

use guest_mem::{MapError, MappedFile, Prot};
use rustix::io::Errno;

use super::kept_maps::KeptMap;
use super::session::{Refusal, Session};
use crate::codec::{DmaMap, Header, dma_flags};
use crate::device::{Device, DmaChange};
use crate::stream::Sender;

impl Session {
    /// Answers a DMA_MAP whose file another thread has mapped; false if it has not done so yet.
    pub(super) fn resume_map(&mut self, device: &mut dyn Device, tx: &mut Sender) -> bool {
        let Some(pending) = self.pending_map.take() else {
            return true;
        };
        let Some((file, kept)) = pending.take() else {
            self.pending_map = Some(pending);
            return false;
        };
        let (header, mark) = (&pending.header, tx.mark());
        let file = (Some(file), kept);
        if let Err(errno) = self.end_map(device, header, &pending.map, file, tx) {
            tx.truncate(mark);
            tx.push(&header.error_reply(errno.raw_os_error() as u32), &[]);
        }
        if header.no_reply() {
            tx.truncate(mark);
        }
        true
    }

    /// Enters a region, of a file or of none that we can reach.
    pub(super) fn end_map(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        map: &DmaMap,
        (file, kept): (Option<Result<MappedFile, MapError>>, Option<OwnedFd>),
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let prot = Prot {
            read: map.flags & dma_flags::READ != 0,
            write: map.flags & dma_flags::WRITE != 0,
        };
        let mut shared = true;
        let failed = !matches!(file, None | Some(Ok(_)));
        let result = match file {
            Some(Ok(file)) => self
                .memory
                .map_file(map.iova, map.size, file, map.offset, prot),
            // A file that must not be mapped (a disk file, a device): messages reach it all the same.
            None | Some(Err(MapError::NotMemory)) => {
                shared = false;
                self.memory.map_absent(map.iova, map.size, prot)
            }
            Some(Err(error)) => Err(error),
        };
        let displaced = self.memory.displaced();
        if !displaced.is_empty() {
            self.deferred_closer.bury(displaced);
        }
        let kept = match kept {
            Some(unused) if failed || result.is_err() => {
                self.deferred_closer.bury(unused);
                None
            }
            kept => kept,
        };
        if let Err(error) = result {
            self.counters.dma_map_refused += 1;
            return Err(match error {
                MapError::Exists => Errno::EXIST,
                MapError::TooMany => Errno::NOSPC,
                MapError::Stat(errno) | MapError::Mmap(errno) => errno,
                _ => Errno::INVAL,
            });
        }
        self.counters.maps_without_fd += u64::from(!shared);
        self.changed = true;
        let dropped = self.kept_maps.push(KeptMap {
            iova: map.iova,
            len: map.size,
            offset: map.offset,
            prot,
            file: kept,
        });
        self.deferred_closer.bury_all(dropped);
        device.dma_map_changed(DmaChange::Mapped {
            iova: map.iova,
            len: map.size,
            prot,
            shared,
        });
        tx.push(&header.reply(0), &[]);
        Ok(())
    }
}
