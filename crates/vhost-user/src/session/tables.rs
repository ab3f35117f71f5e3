//! Guest memory: all at once, or region by region.

use std::os::fd::OwnedFd;

use super::Session;
use crate::answer::{Refusal, Reply};
use crate::backend::Backend;
use crate::codec::{MemRegion, MemTable};
use crate::memory::{self, MemoryError};

fn hard(error: &MemoryError) -> Refusal {
    Refusal::Hard(error.to_string())
}

impl Session {
    pub(super) fn set_mem_table(
        &mut self,
        backend: &mut dyn Backend,
        table: &MemTable,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let regions = table.regions();
        let mine: Vec<_> = fds.drain(..regions.len()).collect();
        // Rings that move or vanish end before their memory does.
        self.stop_lost(backend, &|user, len| memory::guest_of(regions, user, len));
        let closer = self.closer.clone();
        let result = self
            .memory
            .replace(regions, &mine, &mut |left| closer.bury(left));
        self.let_go(mine);
        result.map_err(|error| hard(&error))?;
        Ok(Reply::Done)
    }

    pub(super) fn add_mem_reg(
        &mut self,
        region: &MemRegion,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let mine: Vec<_> = fds.drain(..1).collect();
        let result = self.memory.add(region, &mine[0]);
        self.let_go(mine);
        result.map_err(|error| hard(&error))?;
        Ok(Reply::Done)
    }

    pub(super) fn rem_mem_reg(
        &mut self,
        backend: &mut dyn Backend,
        region: &MemRegion,
    ) -> Result<Reply, Refusal> {
        let rest: Vec<_> = self
            .memory
            .regions()
            .filter(|known| known.guest != region.guest)
            .collect();
        self.stop_lost(backend, &|user, len| memory::guest_of(&rest, user, len));
        let left = self.memory.remove(region).map_err(|error| hard(&error))?;
        self.closer.bury(left);
        Ok(Reply::Done)
    }

    /// Descriptors of files that may be mapped. To close one that is mapped is nothing; another is
    /// the front end's, and may take its time.
    fn let_go(&self, fds: Vec<OwnedFd>) {
        for fd in fds {
            self.closer.bury(fd);
        }
        let displaced = self.memory.memory.displaced();
        if !displaced.is_empty() {
            self.closer.bury(displaced);
        }
    }
}
