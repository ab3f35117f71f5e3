//! Answers messages.

use std::os::fd::{AsFd, OwnedFd};

use guest_mem::{MapError, Memory, Prot};
use pci::{ConfigEvent, ConfigSpace, PowerState};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::counters::Counters;
use crate::codec::{
    self, Capabilities, Command, DeviceFeature, DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo,
    Malformed, MigrationData, RegionAccess, RegionInfo, RegionIoFds, SetIrqs, TwinSocket, Version,
    WriteEntry, dma_flags, dma_unmap_flags, info_flags, irq, irq_set, region,
};
use crate::description::Shape;
use crate::device::{ClientEvent, Device, DmaChange, ResetCause};
use crate::dma::Engine;
use crate::event;
use crate::interrupts::Interrupts;
use crate::msix::Table;
use crate::stream::{MAX_FDS, Sender};

/// What one side may ask of the other at most.
pub(super) const MAX_DATA: usize = 1 << 20;
const PAGE_SIZES: u64 = 4096;

/// An errno for an error reply.
pub(super) type Refusal = Errno;

/// An eventfd of the client's that masks or unmasks a vector when it fires.
pub(super) struct Signal {
    pub index: u32,
    pub vector: u32,
    pub mask: bool,
    pub fd: OwnedFd,
    pub token: u64,
}

/// What the client asked the owner of the sockets to do.
#[derive(Default)]
pub(super) struct Todo {
    pub twin: Option<OwnedFd>,
    /// Signals to watch, and to forget.
    pub add: Vec<Signal>,
    pub remove: Vec<(u32, u32, bool)>,
    /// The connection is to end after its replies.
    pub close: Option<&'static str>,
}

/// The device as the protocol sees it; outlives every client.
pub(super) struct Session {
    pub shape: Shape,
    pub config: ConfigSpace,
    pub table: Option<Table>,
    pub irq: Interrupts,
    pub memory: Memory,
    pub engine: Engine,
    pub counters: Counters,
    pub todo: Todo,
    /// The client has negotiated.
    pub ready: bool,
    pub max_data: usize,
    pub next_token: u64,
}

impl Session {
    /// Answers one message. `fds` are the message's; what is left in it was not wanted.
    /// Returns how much it counts against the budget.
    pub fn handle(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
    ) -> usize {
        if header.is_reply() {
            if !self.engine.reply(header, payload) {
                self.counters.unexpected_reply += 1;
            }
            return 1;
        }
        let mark = tx.mark();
        let mut cost = 1;
        let result = self.command(device, header, payload, fds, tx, &mut cost);
        if let Err(errno) = result {
            tx.truncate(mark);
            tx.push(&header.error_reply(errno.raw_os_error() as u32), &[]);
        }
        if header.no_reply() {
            tx.truncate(mark);
        }
        self.counters.surplus_fds += fds.len() as u64;
        fds.clear();
        cost
    }

    fn command(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
        cost: &mut usize,
    ) -> Result<(), Refusal> {
        let Some(command) = Command::from_u16(header.command).filter(|_| header.is_command())
        else {
            self.counters.unknown_command += 1;
            return Err(Errno::INVAL);
        };
        if !self.ready && command != Command::Version {
            self.counters.no_version += 1;
            self.todo.close = Some("the first message was not VERSION");
            return Err(Errno::INVAL);
        }
        self.counters.command(command);
        match command {
            Command::RegionRead => self.region_read(device, header, payload, tx),
            Command::RegionWrite => self.region_write(device, header, payload, tx),
            Command::RegionWriteMulti => {
                let n = self.write_multi(device, payload)?;
                *cost += n;
                tx.push(&header.reply(8), &(n as u64).to_ne_bytes());
                Ok(())
            }
            Command::Version => self.version(device, header, payload, tx),
            Command::DmaMap => self.dma_map(device, header, payload, fds, tx),
            Command::DmaUnmap => self.dma_unmap(device, header, payload, tx),
            Command::GetInfo => self.info(header, payload, tx),
            Command::GetRegionInfo => self.region_info(header, payload, tx),
            Command::GetRegionIoFds => self.region_io_fds(header, payload, tx),
            Command::GetIrqInfo => self.irq_info(header, payload, tx),
            Command::SetIrqs => self.set_irqs(header, payload, fds, tx),
            Command::Reset => {
                self.reset(device, ResetCause::Client);
                tx.push(&header.reply(0), &[]);
                Ok(())
            }
            Command::DmaRead | Command::DmaWrite => {
                self.counters.wrong_direction += 1;
                Err(Errno::INVAL)
            }
            Command::DeviceFeature => {
                self.parse(DeviceFeature::parse(payload))?;
                self.counters.unsupported += 1;
                Err(Errno::NOTSUP)
            }
            Command::MigrationRead | Command::MigrationWrite => {
                self.parse(MigrationData::parse(payload))?;
                self.counters.unsupported += 1;
                Err(Errno::NOTSUP)
            }
        }
    }

    fn parse<T>(&mut self, result: Result<T, Malformed>) -> Result<T, Refusal> {
        result.map_err(|_| {
            self.counters.malformed_payload += 1;
            Errno::INVAL
        })
    }

    fn malformed<T>(&mut self) -> Result<T, Refusal> {
        self.counters.malformed_payload += 1;
        Err(Errno::INVAL)
    }

    fn version(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let offer = match Version::parse(payload) {
            Ok(offer) if !self.ready && offer.major == 0 => offer,
            other => {
                self.counters.bad_version += 1;
                if !self.ready {
                    self.todo.close = Some(match other {
                        Ok(_) => "its major version is not 0",
                        Err(Malformed(what)) => what,
                    });
                }
                return Err(Errno::INVAL);
            }
        };
        let theirs = offer.capabilities;
        self.max_data = theirs
            .max_data_xfer_size
            .map_or(MAX_DATA, |n| (n as usize).clamp(1, MAX_DATA));
        let mut fds = Vec::new();
        let mut twin_socket = None;
        if theirs.twin_socket.is_some_and(|t| t.supported) {
            let (ours, peer) = rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            self.todo.twin = Some(ours);
            fds.push(peer);
            twin_socket = Some(TwinSocket {
                supported: true,
                fd_index: Some(0),
            });
        }
        let reply = Version {
            major: 0,
            minor: offer.minor.min(1),
            capabilities: Capabilities {
                max_msg_fds: Some(MAX_FDS as u32),
                max_data_xfer_size: Some(self.max_data as u32),
                max_dma_maps: Some(guest_mem::MAX_REGIONS as u32),
                pgsizes: Some(PAGE_SIZES),
                twin_socket,
                write_multiple: theirs.write_multiple.filter(|offered| *offered),
            },
        }
        .to_bytes();
        tx.push_with_fds(&header.reply(reply.len()), &reply, fds);
        self.ready = true;
        self.counters.clients += 1;
        self.engine.connect(self.max_data);
        device.client(ClientEvent::Connected);
        Ok(())
    }

    fn dma_map(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let map = self.parse(DmaMap::parse(payload))?;
        let known = dma_flags::READ | dma_flags::WRITE | dma_flags::MMAP;
        if payload.len() != DmaMap::LEN || map.flags & !known != 0 || fds.len() > 1 {
            return self.malformed();
        }
        let prot = Prot {
            read: map.flags & dma_flags::READ != 0,
            write: map.flags & dma_flags::WRITE != 0,
        };
        let fd = fds.pop();
        let mut shared = fd.is_some();
        let mut result = match &fd {
            Some(fd) => self
                .memory
                .map_fd(map.iova, map.size, fd.as_fd(), map.offset, prot),
            None => self.memory.map_absent(map.iova, map.size, prot),
        };
        if let Err(MapError::NotMemory { .. }) = result {
            // A file that must not be mapped (a disk file, a device): messages reach it all the same.
            shared = false;
            result = self.memory.map_absent(map.iova, map.size, prot);
        }
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
        device.dma_map_changed(DmaChange::Mapped {
            iova: map.iova,
            len: map.size,
            prot,
            shared,
        });
        tx.push(&header.reply(0), &[]);
        Ok(())
    }

    fn dma_unmap(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let unmap = self.parse(DmaUnmap::parse(payload))?;
        // The `vfio_user` crate's ALL is shifted by one bit.
        let all = dma_unmap_flags::ALL | dma_unmap_flags::ALL << 1;
        let result = if unmap.flags & dma_unmap_flags::GET_DIRTY_BITMAP != 0 {
            self.counters.unsupported += 1;
            Err(Errno::NOTSUP)
        } else if unmap.flags & !all != 0 || payload.len() != DmaUnmap::LEN {
            self.malformed()
        } else if unmap.flags & all != 0 {
            if unmap.iova != 0 || unmap.size != 0 {
                self.malformed()
            } else {
                self.engine.unmapped(0, u64::MAX);
                self.memory.unmap_all();
                device.dma_map_changed(DmaChange::Cleared);
                Ok(())
            }
        } else if self.memory.unmap(unmap.iova, unmap.size).is_ok() {
            self.engine.unmapped(unmap.iova, unmap.size);
            device.dma_map_changed(DmaChange::Unmapped {
                iova: unmap.iova,
                len: unmap.size,
            });
            Ok(())
        } else {
            Err(Errno::NOENT)
        };
        // The reply has its full size even when it is an error: the `vfio_user` crate's client
        // waits for all 40 bytes without a look at the header.
        let mut reply = header.reply(DmaUnmap::LEN);
        if let Err(errno) = result {
            self.counters.dma_unmap_refused += 1;
            reply.flags |= codec::flags::ERROR;
            reply.error = errno.raw_os_error() as u32;
        }
        let echo = DmaUnmap {
            argsz: DmaUnmap::LEN as u32,
            ..unmap
        };
        tx.push(&reply, &echo.to_bytes());
        Ok(())
    }

    fn info(&mut self, header: &Header, payload: &[u8], tx: &mut Sender) -> Result<(), Refusal> {
        let ask = self.parse(DeviceInfo::parse(payload))?;
        if (ask.argsz as usize) < DeviceInfo::LEN {
            return self.malformed();
        }
        let reset = if self.shape.resettable {
            info_flags::RESET
        } else {
            0
        };
        let reply = DeviceInfo {
            argsz: DeviceInfo::LEN as u32,
            flags: info_flags::PCI | reset,
            num_regions: region::COUNT,
            num_irqs: irq::COUNT,
        };
        tx.push(&header.reply(DeviceInfo::LEN), &reply.to_bytes());
        Ok(())
    }

    fn region_info(
        &mut self,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let ask = self.parse(RegionInfo::parse(payload))?;
        if (ask.argsz as usize) < RegionInfo::LEN {
            return self.malformed();
        }
        let Some(region) = self.shape.regions.get(ask.index as usize) else {
            self.counters.bad_range += 1;
            return Err(Errno::INVAL);
        };
        let whole = RegionInfo::LEN + region.caps.len();
        let fits = ask.argsz as usize >= whole;
        let reply = RegionInfo {
            argsz: whole as u32,
            flags: region.flags,
            index: ask.index,
            // QEMU refuses a region with the CAPS flag and no offset, even when it could not have
            // taken the capabilities.
            cap_offset: if region.caps.is_empty() {
                0
            } else {
                RegionInfo::LEN as u32
            },
            size: region.size,
            offset: 0,
        };
        if !fits {
            tx.push(&header.reply(RegionInfo::LEN), &reply.to_bytes());
            return Ok(());
        }
        let mut fds = Vec::new();
        if let Some(memory) = &region.memory {
            fds.push(rustix::io::fcntl_dupfd_cloexec(memory, 0)?);
        }
        let reply = [&reply.to_bytes()[..], &region.caps].concat();
        tx.push_with_fds(&header.reply(whole), &reply, fds);
        Ok(())
    }

    fn region_io_fds(
        &mut self,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let ask = self.parse(RegionIoFds::parse(payload))?;
        if (ask.argsz as usize) < RegionIoFds::LEN || ask.flags != 0 || ask.count != 0 {
            return self.malformed();
        }
        if ask.index >= region::COUNT {
            self.counters.bad_range += 1;
            return Err(Errno::INVAL);
        }
        let reply = RegionIoFds {
            argsz: RegionIoFds::LEN as u32,
            ..ask
        };
        tx.push(&header.reply(RegionIoFds::LEN), &reply.to_bytes());
        Ok(())
    }

    fn irq_info(
        &mut self,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let ask = self.parse(IrqInfo::parse(payload))?;
        if (ask.argsz as usize) < IrqInfo::LEN {
            return self.malformed();
        }
        if ask.index >= irq::COUNT {
            self.counters.bad_irq += 1;
            return Err(Errno::INVAL);
        }
        let count = self.irq.0.count(ask.index);
        let reply = IrqInfo {
            argsz: IrqInfo::LEN as u32,
            flags: if count == 0 {
                0
            } else {
                Shape::irq_flags(ask.index)
            },
            index: ask.index,
            count,
        };
        tx.push(&header.reply(IrqInfo::LEN), &reply.to_bytes());
        Ok(())
    }

    fn set_irqs(
        &mut self,
        header: &Header,
        payload: &[u8],
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let set = self.parse(SetIrqs::parse(payload))?;
        if let Err(errno) = self.apply_irqs(&set, &payload[SetIrqs::LEN..], fds) {
            self.counters.bad_irq += 1;
            return Err(errno);
        }
        tx.push(&header.reply(0), &[]);
        Ok(())
    }

    fn apply_irqs(
        &mut self,
        set: &SetIrqs,
        bools: &[u8],
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let (data, action) = (set.flags & irq_set::DATA, set.flags & irq_set::ACTION);
        let known = set.flags & !(irq_set::DATA | irq_set::ACTION) == 0;
        let vectors = self.irq.0.count(set.index);
        let end = set.start.checked_add(set.count);
        if !known
            || data.count_ones() != 1
            || action.count_ones() != 1
            || (set.argsz as usize) < SetIrqs::LEN
            || set.index >= irq::COUNT
        {
            return Err(Errno::INVAL);
        }
        if set.count == 0 {
            // Only "disable the index" has no range. QEMU says it also of an index without vectors.
            if data == irq_set::DATA_NONE && action == irq_set::ACTION_TRIGGER && set.start == 0 {
                self.irq.0.disable(set.index);
                self.forget_signals(set.index);
                return Ok(());
            }
            return Err(Errno::INVAL);
        }
        if end.is_none_or(|end| end > vectors) {
            return Err(Errno::INVAL);
        }
        let range = set.start..set.start + set.count;
        match data {
            irq_set::DATA_EVENTFD => {
                if !fds.is_empty() && fds.len() != set.count as usize {
                    return Err(Errno::INVAL);
                }
                let mut adopted = Vec::with_capacity(fds.len());
                for fd in fds.drain(..) {
                    adopted.push(event::adopt(fd).inspect_err(|_| {
                        self.counters.bad_eventfd += 1;
                    })?);
                }
                let mut adopted = adopted.into_iter();
                for vector in range {
                    let fd = adopted.next();
                    if action == irq_set::ACTION_TRIGGER {
                        self.irq.0.arm(set.index, vector, fd);
                    } else {
                        let mask = action == irq_set::ACTION_MASK;
                        self.todo.remove.push((set.index, vector, mask));
                        if let Some(fd) = fd {
                            self.next_token += 1;
                            self.todo.add.push(Signal {
                                index: set.index,
                                vector,
                                mask,
                                fd,
                                token: self.next_token,
                            });
                        }
                    }
                }
            }
            irq_set::DATA_BOOL => {
                let bools = bools.get(..set.count as usize).ok_or(Errno::INVAL)?;
                for (vector, _) in range.zip(bools).filter(|(_, on)| **on != 0) {
                    self.act(set.index, vector, action);
                }
            }
            _ => {
                for vector in range {
                    self.act(set.index, vector, action);
                }
            }
        }
        Ok(())
    }

    fn act(&mut self, index: u32, vector: u32, action: u32) {
        match action {
            irq_set::ACTION_MASK => self.irq.0.mask(index, vector, true),
            irq_set::ACTION_UNMASK => self.irq.0.mask(index, vector, false),
            _ => self.irq.0.loopback(index, vector),
        }
    }

    fn forget_signals(&mut self, index: u32) {
        for vector in 0..self.irq.0.count(index) {
            for mask in [false, true] {
                self.todo.remove.push((index, vector, mask));
            }
        }
    }

    fn region_read(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let access = self.parse(RegionAccess::parse(payload))?;
        let count = access.count as usize;
        if count > self.max_data || payload.len() != RegionAccess::LEN {
            return self.malformed();
        }
        if access.region >= region::COUNT {
            self.counters.bad_range += 1;
            return Err(Errno::INVAL);
        }
        self.counters.read_bytes += count as u64;
        let fixed = access.to_bytes();
        let data = tx.push_data(&header.reply(fixed.len() + count), &fixed, count);
        self.read_region(device, access.region, access.offset, data);
        Ok(())
    }

    /// Fills `data` from a region. Where there is nothing, there are ones.
    fn read_region(&mut self, device: &mut dyn Device, index: u32, offset: u64, data: &mut [u8]) {
        if index == region::CONFIG {
            self.config.set_interrupt_status(self.irq.line());
            self.config.set_msi_pending(self.irq.0.msi_pending());
            self.config.read(offset, data);
            return;
        }
        data.fill(0xff);
        let size = self.shape.regions[index as usize].size;
        let len = size.saturating_sub(offset).min(data.len() as u64) as usize;
        let data = &mut data[..len];
        if index == region::ROM {
            let rom = self.shape.rom.get(offset as usize..).unwrap_or_default();
            let n = rom.len().min(data.len());
            data[..n].copy_from_slice(&rom[..n]);
            return;
        }
        let bar = index as u8;
        let mut at = 0;
        while at < len {
            let offset = offset + at as u64;
            let n = piece(offset, len - at);
            let data = &mut data[at..at + n];
            let table = self.table.as_ref();
            if !table.is_some_and(|t| t.read(&self.irq.0, bar, offset, data)) {
                device.bar_read(bar, offset, data);
            }
            at += n;
        }
    }

    fn region_write(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let access = self.parse(RegionAccess::parse(payload))?;
        let data = &payload[RegionAccess::LEN..];
        if data.len() != access.count as usize {
            return self.malformed();
        }
        if access.region >= region::COUNT {
            self.counters.bad_range += 1;
            return Err(Errno::INVAL);
        }
        self.counters.posted_writes += u64::from(header.no_reply());
        self.write_region(device, access.region, access.offset, data);
        if !header.no_reply() {
            tx.push(&header.reply(RegionAccess::LEN), &access.to_bytes());
        }
        Ok(())
    }

    fn write_multi(&mut self, device: &mut dyn Device, payload: &[u8]) -> Result<usize, Refusal> {
        let Some((count, entries)) = payload.split_first_chunk::<8>() else {
            return self.malformed();
        };
        let (entries, rest) = entries.as_chunks::<{ WriteEntry::LEN }>();
        if u64::from_ne_bytes(*count) != entries.len() as u64 || !rest.is_empty() {
            return self.malformed();
        }
        let parsed = |bytes: &[u8]| WriteEntry::parse(bytes).unwrap_or_default();
        // All or nothing: a message that is wrong in one entry changes no register.
        if entries
            .iter()
            .any(|e| parsed(e).count > 8 || parsed(e).region >= region::COUNT)
        {
            return self.malformed();
        }
        for entry in entries.iter().map(|e| parsed(e)) {
            let data = entry.data.to_ne_bytes();
            let data = &data[..entry.count as usize];
            self.write_region(device, entry.region, entry.offset, data);
        }
        self.counters.multi_writes += entries.len() as u64;
        Ok(entries.len())
    }

    /// Writes `data` to a region. What lies outside it goes nowhere.
    fn write_region(&mut self, device: &mut dyn Device, index: u32, offset: u64, data: &[u8]) {
        self.counters.write_bytes += data.len() as u64;
        match index {
            region::CONFIG => return self.config_write(device, offset, data),
            0..=5 => {}
            _ => return,
        }
        let bar = index as u8;
        let size = self.shape.regions[index as usize].size;
        let len = size.saturating_sub(offset).min(data.len() as u64) as usize;
        let mut at = 0;
        while at < len {
            let offset = offset + at as u64;
            let n = piece(offset, len - at);
            let data = &data[at..at + n];
            let table = self.table.as_mut();
            if !table.is_some_and(|t| t.write(&self.irq.0, bar, offset, data)) {
                device.bar_write(bar, offset, data);
            }
            at += n;
        }
    }

    fn config_write(&mut self, device: &mut dyn Device, offset: u64, data: &[u8]) {
        let before = self.config.power_state();
        let events = self.config.write(offset, data);
        let mut reset = None;
        for event in events.iter() {
            let state = &*self.irq.0;
            match *event {
                ConfigEvent::Command { intx_disable, .. } => state.set_intx_disabled(intx_disable),
                ConfigEvent::MsiEnable(false) => state.forget_pending(irq::MSI),
                ConfigEvent::MsiMask(bits) => {
                    for vector in 0..state.count(irq::MSI) {
                        state.guest_mask(irq::MSI, vector, bits >> vector & 1 != 0);
                    }
                }
                ConfigEvent::MsixEnable(on) => {
                    if !on {
                        state.forget_pending(irq::MSIX);
                    }
                    state.set_msix_function_masked(self.config.msix_masked());
                }
                ConfigEvent::MsixFunctionMask(_) => {
                    state.set_msix_function_masked(self.config.msix_masked());
                }
                ConfigEvent::PowerState(PowerState::D0)
                    if before == PowerState::D3Hot && !self.config.no_soft_reset() =>
                {
                    reset = Some(ResetCause::PowerUp);
                }
                ConfigEvent::FunctionReset => reset = Some(ResetCause::FunctionLevel),
                _ => {}
            }
            device.config_event(*event);
        }
        if let Some(why) = reset {
            self.reset(device, why);
        }
    }

    fn reset(&mut self, device: &mut dyn Device, why: ResetCause) {
        self.config.reset();
        self.irq.0.reset();
        if let Some(table) = &mut self.table {
            table.reset();
        }
        device.reset(why);
    }
}

/// Length of the next naturally aligned piece of an access.
fn piece(offset: u64, left: usize) -> usize {
    let aligned = 1 << (offset | 8).trailing_zeros();
    let fits = 1 << (usize::BITS - 1 - left.leading_zeros());
    aligned.min(fits)
}
