//! Answers messages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use guest_mem::Memory;
use pci::ConfigSpace;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::counters::Counters;
use super::journey::Migration;
use super::kept_maps::KeptMaps;
use super::pending_map::PendingMap;
use crate::codec::{
    self, Capabilities, Command, DeviceInfo, DmaMap, DmaUnmap, Header, Malformed, MigrationLimits,
    RegionAccess, RegionInfo, RegionIoFds, TwinSocket, Version, dma_flags, dma_unmap_flags,
    info_flags, irq, region,
};
use crate::description::Shape;
use crate::device::{ClientEvent, Device, DmaChange, ResetCause};
use crate::dma::Engine;
use crate::doorbell::Found;
use crate::interrupts::Interrupts;
use crate::msix::Table;
use crate::stream::{MAX_FDS, Received, Sender};
use peer::deferred_closer::{DeferredCloser, PeerFd};

/// What one side may ask of the other at most.
pub(super) const MAX_DATA: usize = 1 << 20;
const PAGE_SIZES: u64 = 4096;
/// Bytes of a bitmap of dirty pages.
const MAX_BITMAP: u64 = (MAX_DATA / 2) as u64;
/// What a change of the map counts against the budget, in register accesses: it may be a call to
/// `mmap`, and it waits for the batches in flight.
const MAP_COST: usize = 16;

/// What a long access counts beside 1, which is what one of up to 8 bytes counts: it is passed on as registers are wide.
fn more(len: usize) -> usize {
    len.saturating_sub(1) / 8
}

/// An errno for an error reply.
pub(super) type Refusal = Errno;

/// An eventfd of the client's that masks or unmasks a vector when it fires.
pub(super) struct Signal {
    pub index: u32,
    pub vector: u32,
    pub mask: bool,
    pub fd: PeerFd,
    pub token: u64,
}

/// Some of the signals.
pub(super) struct Which {
    pub index: u32,
    pub vectors: std::ops::Range<u32>,
    /// Those that mask or those that unmask; `None` for both.
    pub mask: Option<bool>,
}

impl Which {
    pub fn covers(&self, signal: &Signal) -> bool {
        signal.index == self.index
            && self.vectors.contains(&signal.vector)
            && self.mask.is_none_or(|mask| mask == signal.mask)
    }
}

/// A change of the signals to watch. They are applied in the order they were asked for.
pub(super) enum SignalChange {
    Add(Signal),
    Remove(Which),
}

/// What the client asked the owner of the sockets to do.
#[derive(Default)]
pub(super) struct Todo {
    pub twin: Option<PeerFd>,
    pub signals: Vec<SignalChange>,
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
    pub deferred_closer: DeferredCloser,
    /// The thread that maps files: not the one that closes, which what is closed may hold up.
    pub mapper: DeferredCloser,
    /// A message whose answer waits for that thread. No other is answered before.
    pub pending_map: Option<PendingMap>,
    pub kept_maps: KeptMaps,
    pub counters: Counters,
    pub todo: Todo,
    /// The client has negotiated.
    pub ready: bool,
    pub max_data: usize,
    /// The client and we have agreed on REGION_WRITE_MULTI.
    pub write_multiple: bool,
    pub next_token: u64,
    /// What the client is has changed since it was described last.
    pub changed: bool,
    pub migration: Migration,
}

impl Session {
    /// Answers one message. `fds` are the message's; what is left in it was not wanted.
    /// Returns how much it counts against the budget.
    pub fn handle(
        &mut self,
        device: &mut dyn Device,
        message: Received<'_, Header>,
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
    ) -> usize {
        let Received {
            header, payload, ..
        } = &message;
        let cost = if header.is_reply() {
            if !self.engine.reply(header, payload) {
                self.counters.unexpected_reply += 1;
            }
            1
        } else {
            self.answer(device, &message, fds, tx)
        };
        self.counters.surplus_fds += fds.len() as u64;
        for fd in fds.drain(..) {
            self.deferred_closer.bury(fd);
        }
        cost
    }

    /// Does a command and appends what is to be said to it. Returns its cost.
    fn answer(
        &mut self,
        device: &mut dyn Device,
        message: &Received<'_, Header>,
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
    ) -> usize {
        let header = &message.header;
        // What the guest stored before it sent this comes first.
        self.look_at_doorbells(device);
        let mark = tx.mark();
        let mut cost = 1;
        let result = self.command(device, message, fds, tx, &mut cost);
        if let Err(errno) = result {
            tx.truncate(mark);
            tx.push(&header.error_reply(errno.raw_os_error() as u32), &[]);
        }
        if header.no_reply() {
            tx.truncate(mark);
        }
        cost
    }

    fn command(
        &mut self,
        device: &mut dyn Device,
        message: &Received<'_, Header>,
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
        cost: &mut usize,
    ) -> Result<(), Refusal> {
        let Received {
            header,
            payload,
            truncated,
        } = message;
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
        self.changed |= !matches!(
            command,
            Command::RegionRead | Command::RegionWrite | Command::RegionWriteMulti
        );
        // Without them DMA_MAP is one by message, and SET_IRQS switches off.
        if *truncated && matches!(command, Command::DmaMap | Command::SetIrqs) {
            self.counters.truncated += 1;
            return Err(Errno::MFILE);
        }
        match command {
            Command::RegionRead => {
                *cost += RegionAccess::parse(payload).map_or(0, |a| more(a.count as usize));
                self.region_read(device, header, payload, tx)
            }
            Command::RegionWrite => {
                *cost += more(payload.len().saturating_sub(RegionAccess::LEN));
                self.region_write(device, header, payload, tx)
            }
            Command::RegionWriteMulti => {
                let n = self.write_multi(device, payload)?;
                *cost += n;
                tx.push(&header.reply(8), &(n as u64).to_ne_bytes());
                Ok(())
            }
            Command::Version => self.version(device, header, payload, tx),
            Command::DmaMap => {
                *cost += MAP_COST;
                self.dma_map(device, header, payload, fds, tx)
            }
            Command::DmaUnmap => {
                *cost += MAP_COST;
                self.dma_unmap(device, header, payload, tx, cost)
            }
            Command::GetInfo => self.info(header, payload, tx),
            Command::GetRegionInfo => self.region_info(device, header, payload, tx),
            Command::GetRegionIoFds => self.region_io_fds(header, payload, tx),
            Command::GetIrqInfo => self.irq_info(header, payload, tx),
            Command::SetIrqs => self.set_irqs(header, payload, fds, tx, cost),
            Command::Reset => {
                self.reset(device, ResetCause::Client);
                tx.push(&header.reply(0), &[]);
                Ok(())
            }
            Command::DmaRead | Command::DmaWrite => {
                self.counters.wrong_direction += 1;
                Err(Errno::INVAL)
            }
            Command::DeviceFeature => self.feature(device, header, payload, tx, cost),
            Command::MigrationRead => self.state_read(device, header, payload, tx),
            Command::MigrationWrite => self.state_write(device, header, payload, tx),
        }
    }

    /// Tells the device what the guest has written without a message.
    pub(super) fn look_at_doorbells(&mut self, device: &mut dyn Device) -> Found {
        // What was stored there stays there, until the device goes on.
        let runs = !self.is_halted();
        let Some(doorbells) = self.shape.doorbells.as_mut().filter(|_| runs) else {
            return Found::default();
        };
        let found = doorbells.look(device);
        self.counters.doorbells += found.tails;
        self.counters.doorbell_writes += found.others;
        found
    }

    pub(super) fn parse<T>(&mut self, result: Result<T, Malformed>) -> Result<T, Refusal> {
        result.map_err(|_| {
            self.counters.malformed_payload += 1;
            Errno::INVAL
        })
    }

    pub(super) fn malformed<T>(&mut self) -> Result<T, Refusal> {
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
        self.write_multiple = theirs.write_multiple == Some(true);
        self.max_data = theirs
            .max_data_xfer_size
            .map_or(MAX_DATA, |n| (n as usize).clamp(1, MAX_DATA));
        let mut fds = Vec::new();
        let mut twin_socket = None;
        if theirs.twin_socket.is_some_and(|t| t.supported) {
            let pair = || {
                socketpair(
                    AddressFamily::UNIX,
                    SocketType::STREAM,
                    SocketFlags::CLOEXEC,
                    None,
                )
            };
            let (ours, peer) = threads::apart(pair)?;
            self.todo.twin = Some(PeerFd::new(ours, &self.deferred_closer));
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
                migration: theirs
                    .migration
                    .filter(|_| device.can_move())
                    .map(|limits| MigrationLimits {
                        pgsize: Some(guest_mem::LOG_PAGE),
                        max_bitmap_size: Some(
                            limits
                                .max_bitmap_size
                                .map_or(MAX_BITMAP, |most| most.min(MAX_BITMAP)),
                        ),
                    }),
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
        let Some(fd) = fds.pop() else {
            return self.end_map(device, header, &map, (None, None), tx);
        };
        let keeps = self.kept_maps.keeps();
        let known = self
            .memory
            .known_file(map.iova, map.size, fd.as_fd(), map.offset);
        let (file, kept) = match known {
            Ok(None) => {
                self.pending_map = Some(PendingMap::new(*header, map, fd, keeps));
                return Ok(());
            }
            Ok(Some(file)) => {
                // Its file stays with the mapping: to close this is nothing.
                (Ok(file), keeps.then_some(fd))
            }
            Err(error) => {
                self.deferred_closer.bury(fd);
                (Err(error), None)
            }
        };
        self.end_map(device, header, &map, (Some(file), kept), tx)
    }

    fn dma_unmap(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
        cost: &mut usize,
    ) -> Result<(), Refusal> {
        let mut unmap = self.parse(DmaUnmap::parse(payload))?;
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
                let files = self.kept_maps.forget(0, u64::MAX);
                self.deferred_closer.bury_all(files);
                self.deferred_closer.bury(self.memory.unmap_all());
                device.dma_map_changed(DmaChange::Cleared);
                Ok(())
            }
        } else {
            // As the kernel's VFIO has it: all regions inside the range go, and none is a success of size 0.
            match self.memory.unmap_range(unmap.iova, unmap.size) {
                Ok((left, bytes, regions)) => {
                    *cost += regions;
                    if !left.is_empty() {
                        self.deferred_closer.bury(left);
                    }
                    if regions > 0 {
                        self.engine.unmapped(unmap.iova, unmap.size);
                        let files = self.kept_maps.forget(unmap.iova, unmap.size);
                        self.deferred_closer.bury_all(files);
                        device.dma_map_changed(DmaChange::Unmapped {
                            iova: unmap.iova,
                            len: unmap.size,
                        });
                    }
                    unmap.size = bytes;
                    Ok(())
                }
                Err(_) => Err(Errno::INVAL),
            }
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
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let ask = self.parse(RegionInfo::parse(payload))?;
        if (ask.argsz as usize) < RegionInfo::LEN {
            return self.malformed();
        }
        let shape = &mut self.shape;
        let Some(region) = shape.regions.get(ask.index as usize) else {
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
        let mut memory = region.memory.as_ref();
        if let Some(doorbells) = &mut shape.doorbells
            && u32::from(doorbells.bar()) == ask.index
        {
            let made = doorbells.share(device);
            memory = Some(made.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::NOMEM))?);
        }
        if let Some(memory) = memory {
            let double = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 0);
            fds.push(peer::asked(memory.as_fd(), double)?);
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
}
