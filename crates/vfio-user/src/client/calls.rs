//! The commands, one call each.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use guest_mem::Prot;

use super::connection::Client;
use super::error::ClientError;
use crate::codec::{
    Command, DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, Malformed, RegionAccess, RegionInfo,
    RegionIoFds, SetIrqs, SparseArea, WriteEntry, dma_flags, dma_unmap_flags, flags, irq, irq_set,
    sparse_areas,
};
use peer::SharedMem;
use peer::event::EventFd;

/// A region as the server describes it.
#[derive(Debug)]
pub struct Region {
    /// Size, flags, offset in the file.
    pub info: RegionInfo,
    /// Areas that can be mapped.
    pub areas: Vec<SparseArea>,
    /// The file behind them.
    pub fd: Option<OwnedFd>,
}

impl Region {
    /// Maps an area.
    ///
    /// # Errors
    /// The region has no file, or it cannot be mapped.
    pub fn map(&self, area: &SparseArea) -> Result<SharedMem, ClientError> {
        let fd = self
            .fd
            .as_ref()
            .ok_or(ClientError::NotOffered("a file for this region"))?;
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        let offset = self.info.offset.saturating_add(area.offset);
        Ok(SharedMem::from_fd(fd, offset, area.size as usize)?)
    }
}

/// One write of [`Client::write_multi`].
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Which region.
    pub region: u32,
    /// Where in it.
    pub offset: u64,
    /// Bytes, at most 8.
    pub len: u32,
    /// The value, little-endian on the device's side as on any PCI bus.
    pub value: u64,
}

impl Client {
    /// Regions, interrupts and flags of the device.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn info(&mut self) -> Result<DeviceInfo, ClientError> {
        let ask = DeviceInfo {
            argsz: DeviceInfo::LEN as u32,
            ..DeviceInfo::default()
        };
        let reply = self.request(Command::GetInfo, &ask.to_bytes(), &[])?;
        Ok(DeviceInfo::parse(&reply.payload)?)
    }

    /// One region, with its mappable areas.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn region_info(&mut self, index: u32) -> Result<Region, ClientError> {
        let mut ask = RegionInfo {
            argsz: RegionInfo::LEN as u32,
            index,
            ..RegionInfo::default()
        };
        let mut reply = self.request(Command::GetRegionInfo, &ask.to_bytes(), &[])?;
        let mut info = RegionInfo::parse(&reply.payload)?;
        if info.argsz > ask.argsz {
            ask.argsz = info.argsz;
            reply = self.request(Command::GetRegionInfo, &ask.to_bytes(), &[])?;
            info = RegionInfo::parse(&reply.payload)?;
        }
        Ok(Region {
            info,
            areas: sparse_areas(&reply.payload)?,
            fd: reply.fds.pop(),
        })
    }

    /// The number of sub-regions of a region that have an ioeventfd.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn region_io_fds(&mut self, index: u32) -> Result<u32, ClientError> {
        let ask = RegionIoFds {
            argsz: RegionIoFds::LEN as u32,
            index,
            ..RegionIoFds::default()
        };
        let reply = self.request(Command::GetRegionIoFds, &ask.to_bytes(), &[])?;
        Ok(RegionIoFds::parse(&reply.payload)?.count)
    }

    /// One interrupt index.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn irq_info(&mut self, index: u32) -> Result<IrqInfo, ClientError> {
        let ask = IrqInfo {
            argsz: IrqInfo::LEN as u32,
            index,
            ..IrqInfo::default()
        };
        let reply = self.request(Command::GetIrqInfo, &ask.to_bytes(), &[])?;
        Ok(IrqInfo::parse(&reply.payload)?)
    }

    /// Resets the device.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn reset(&mut self) -> Result<(), ClientError> {
        self.request(Command::Reset, &[], &[]).map(drop)
    }

    fn map(
        &mut self,
        iova: u64,
        size: u64,
        offset: u64,
        prot: Prot,
        fd: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let read = if prot.read { dma_flags::READ } else { 0 };
        let write = if prot.write { dma_flags::WRITE } else { 0 };
        let map = DmaMap {
            argsz: DmaMap::LEN as u32,
            flags: read | write,
            offset,
            iova,
            size,
        };
        self.request(Command::DmaMap, &map.to_bytes(), fd).map(drop)
    }

    /// Gives the device `len` bytes of `memory` from `offset` on, at `iova`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn dma_map(
        &mut self,
        iova: u64,
        memory: &SharedMem,
        offset: u64,
        len: u64,
        prot: Prot,
    ) -> Result<(), ClientError> {
        self.map(iova, len, offset, prot, &[memory.as_fd()])
    }

    /// Tells the device of a region without giving it a file descriptor. When it asks for bytes by
    /// message, they come from `memory` (from `offset` on), or the request is refused.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn dma_map_without_fd(
        &mut self,
        iova: u64,
        memory: Option<(&SharedMem, usize)>,
        len: u64,
        prot: Prot,
    ) -> Result<(), ClientError> {
        self.map(iova, len, 0, prot, &[])?;
        if let Some((memory, offset)) = memory {
            self.served.add(iova, memory.clone(), offset, len);
        }
        Ok(())
    }

    /// Takes a region back.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn dma_unmap(&mut self, iova: u64, size: u64) -> Result<(), ClientError> {
        self.unmap(0, iova, size)?;
        self.served.remove(iova, size);
        Ok(())
    }

    /// Takes all regions back.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn dma_unmap_all(&mut self) -> Result<(), ClientError> {
        self.unmap(dma_unmap_flags::ALL, 0, 0)?;
        self.served.clear();
        Ok(())
    }

    fn unmap(&mut self, flags: u32, iova: u64, size: u64) -> Result<(), ClientError> {
        let unmap = DmaUnmap {
            argsz: DmaUnmap::LEN as u32,
            flags,
            iova,
            size,
        };
        let reply = self.request(Command::DmaUnmap, &unmap.to_bytes(), &[])?;
        DmaUnmap::parse(&reply.payload)?;
        Ok(())
    }

    /// Says something about interrupts; the named calls below cover the usual things.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn set_irqs(
        &mut self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        bools: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let set = SetIrqs {
            argsz: (SetIrqs::LEN + bools.len()) as u32,
            flags,
            index,
            start,
            count,
        };
        let payload = [&set.to_bytes()[..], bools].concat();
        self.request(Command::SetIrqs, &payload, fds).map(drop)
    }

    /// Arms vectors from `start` on with eventfds. More than a message may carry are sent in
    /// several.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn arm(&mut self, index: u32, start: u32, events: &[&EventFd]) -> Result<(), ClientError> {
        let most = self.server.capabilities.max_msg_fds.unwrap_or(1).max(1) as usize;
        let mut start = start;
        for events in events.chunks(most) {
            let fds: Vec<_> = events.iter().map(|e| e.as_fd()).collect();
            let flags = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
            self.set_irqs(flags, index, start, fds.len() as u32, &[], &fds)?;
            start += fds.len() as u32;
        }
        Ok(())
    }

    /// Takes all eventfds of an index back.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn disarm(&mut self, index: u32) -> Result<(), ClientError> {
        let flags = irq_set::DATA_NONE | irq_set::ACTION_TRIGGER;
        self.set_irqs(flags, index, 0, 0, &[], &[])
    }

    /// Masks one vector.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn mask(&mut self, index: u32, vector: u32) -> Result<(), ClientError> {
        let flags = irq_set::DATA_NONE | irq_set::ACTION_MASK;
        self.set_irqs(flags, index, vector, 1, &[], &[])
    }

    /// Unmasks one vector; for INTx this is the end of an interrupt.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn unmask(&mut self, index: u32, vector: u32) -> Result<(), ClientError> {
        let flags = irq_set::DATA_NONE | irq_set::ACTION_UNMASK;
        self.set_irqs(flags, index, vector, 1, &[], &[])
    }

    /// Lets an eventfd unmask INTx, as KVM's resample does.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn resample(&mut self, event: &EventFd) -> Result<(), ClientError> {
        let flags = irq_set::DATA_EVENTFD | irq_set::ACTION_UNMASK;
        self.set_irqs(flags, irq::INTX, 0, 1, &[], &[event.as_fd()])
    }

    /// Reads `data.len()` bytes of a region.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn region_read(
        &mut self,
        region: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), ClientError> {
        let access = RegionAccess {
            offset,
            region,
            count: data.len() as u32,
        };
        let id = self.start(Command::RegionRead, &access.to_bytes(), &[])?;
        self.call(id, |payload| {
            let got = payload.get(RegionAccess::LEN..).unwrap_or_default();
            if got.len() != data.len() {
                return Err(Malformed("RegionRead: the reply has another length"));
            }
            data.copy_from_slice(got);
            Ok(())
        })
    }

    /// Writes a region and waits until the device has it.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn region_write(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ClientError> {
        let id = self.queue_write(region, offset, data, false);
        self.call(id, |payload| RegionAccess::parse(payload).map(drop))
    }

    /// Writes a region without waiting, as QEMU writes memory BARs.
    ///
    /// # Errors
    /// The socket failed.
    pub fn region_post(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ClientError> {
        self.queue_write(region, offset, data, true);
        self.flush()
    }

    /// Puts a write in the send buffer; [`flush`](Self::flush) sends it. Returns its id, which only
    /// a write that is not posted gets a reply to.
    pub fn queue_write(&mut self, region: u32, offset: u64, data: &[u8], posted: bool) -> u16 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let access = RegionAccess {
            offset,
            region,
            count: data.len() as u32,
        };
        let header = Header {
            flags: if posted { flags::NO_REPLY } else { 0 },
            ..Header::command(id, Command::RegionWrite, RegionAccess::LEN + data.len())
        };
        let tx = &mut self.main.tx;
        tx.push_data(&header, &access.to_bytes(), data.len())
            .copy_from_slice(data);
        id
    }

    /// Many writes in one message.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn write_multi(&mut self, writes: &[Write]) -> Result<(), ClientError> {
        if self.server.capabilities.write_multiple != Some(true) {
            return Err(ClientError::NotOffered("write_multiple"));
        }
        let mut payload = Vec::with_capacity(8 + writes.len() * WriteEntry::LEN);
        payload.extend_from_slice(&(writes.len() as u64).to_ne_bytes());
        for write in writes {
            let entry = WriteEntry {
                offset: write.offset,
                region: write.region,
                count: write.len,
                data: u64::from_ne_bytes(write.value.to_le_bytes()),
            };
            payload.extend_from_slice(&entry.to_bytes());
        }
        self.request(Command::RegionWriteMulti, &payload, &[])
            .map(drop)
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn read_u8(&mut self, region: u32, offset: u64) -> Result<u8, ClientError> {
        let mut data = [0; 1];
        self.region_read(region, offset, &mut data)?;
        Ok(data[0])
    }

    /// Reads a 16-bit register.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn read_u16(&mut self, region: u32, offset: u64) -> Result<u16, ClientError> {
        let mut data = [0; 2];
        self.region_read(region, offset, &mut data)?;
        Ok(u16::from_le_bytes(data))
    }

    /// Reads a 32-bit register.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn read_u32(&mut self, region: u32, offset: u64) -> Result<u32, ClientError> {
        let mut data = [0; 4];
        self.region_read(region, offset, &mut data)?;
        Ok(u32::from_le_bytes(data))
    }

    /// Reads a 64-bit register.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn read_u64(&mut self, region: u32, offset: u64) -> Result<u64, ClientError> {
        let mut data = [0; 8];
        self.region_read(region, offset, &mut data)?;
        Ok(u64::from_le_bytes(data))
    }

    /// Writes a 32-bit register and waits.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn write_u32(&mut self, region: u32, offset: u64, value: u32) -> Result<(), ClientError> {
        self.region_write(region, offset, &value.to_le_bytes())
    }

    /// Writes a 32-bit register without waiting.
    ///
    /// # Errors
    /// The socket failed.
    pub fn post_u32(&mut self, region: u32, offset: u64, value: u32) -> Result<(), ClientError> {
        self.region_post(region, offset, &value.to_le_bytes())
    }
}
