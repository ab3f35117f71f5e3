//! A NIC behind a vfio-user socket, with shared memory and eventfds: all that a VMM gives a
//! guest, without the VMM.

pub(crate) mod journey;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guest_mem::{Memory, Prot};
use vfio_user::codec::{irq, region};
use vfio_user::{Area, Client, ClientError, ClientOptions, EventFd, SharedMem};

use crate::bus::{Bus, BusError, Costs, Dma};

const PAGE: u64 = 0x1000;

impl From<ClientError> for BusError {
    fn from(error: ClientError) -> Self {
        BusError::Gone(error.to_string())
    }
}

/// Sends a frame from the far end of the cable; says whether it went.
pub type FarEnd = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// The client's end of a connection.
///
/// Writes to memory BARs are posted, as VMMs do; reads, I/O space and configuration space wait
/// for the answer.
pub struct SocketBus {
    client: Client,
    /// What the device and we have in common, by IOVA.
    shared: BTreeMap<u64, SharedMem>,
    memory: Memory,
    interrupt: EventFd,
    /// BARs in I/O space, one bit each.
    io_bars: u8,
    next_iova: u64,
    far_end: Option<FarEnd>,
    /// Pages of registers that are memory: their BAR, offset.
    pages: Vec<(u8, u64, SharedMem)>,
    /// Without the client's own system calls.
    costs: Costs,
}

impl SocketBus {
    /// Connects to the server at `path` and arms INTx.
    ///
    /// # Errors
    /// No server listens, or it refuses.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, BusError> {
        Self::with_client(Client::connect(path)?)
    }

    /// As [`SocketBus::connect`], with options.
    ///
    /// # Errors
    /// No server listens, or it refuses.
    pub fn connect_with(path: impl AsRef<Path>, options: ClientOptions) -> Result<Self, BusError> {
        Self::with_client(Client::connect_with(path, options)?)
    }

    /// Takes a client that has negotiated, and arms INTx.
    ///
    /// # Errors
    /// The server refuses.
    pub fn with_client(mut client: Client) -> Result<Self, BusError> {
        let interrupt = EventFd::new().map_err(|e| BusError::Gone(e.to_string()))?;
        if client.irq_info(irq::INTX)?.count > 0 {
            client.arm(irq::INTX, 0, &[&interrupt])?;
        }
        let mut io_bars = 0;
        for bar in 0..6 {
            let mut low = [0];
            client.region_read(region::CONFIG, 0x10 + 4 * bar, &mut low)?;
            io_bars |= (low[0] & 1) << bar;
        }
        Ok(Self {
            client,
            shared: BTreeMap::new(),
            memory: Memory::new(),
            interrupt,
            io_bars,
            next_iova: 0x10_0000,
            far_end: None,
            pages: Vec::new(),
            costs: Costs::default(),
        })
    }

    /// Gives [`Bus::inject`] a way to the other end of the cable.
    pub fn set_far_end(&mut self, far_end: FarEnd) {
        self.far_end = Some(far_end);
    }

    /// Maps the pages of BAR 0 that the device shares, as a VMM does: its doorbells. From now on registers there are
    /// accessed in memory, without a message.
    ///
    /// # Errors
    /// The device shares none, or they cannot be mapped.
    pub fn share_pages(&mut self) -> Result<(), BusError> {
        let registers = self.client.region_info(0)?;
        for area in &registers.areas {
            self.pages.push((0, area.offset, registers.map(area)?));
        }
        if self.pages.is_empty() {
            return Err(BusError::Unsupported("ring doorbells in memory"));
        }
        Ok(())
    }

    /// The page with a register of four bytes, and where in it the register is.
    #[inline]
    fn shared_register(&self, bar: u8, offset: u64, len: usize) -> Option<(&SharedMem, usize)> {
        if len != 4 || !offset.is_multiple_of(4) {
            return None;
        }
        self.pages.iter().find_map(|(of, at, memory)| {
            let inside = offset.checked_sub(*at)?;
            let fits = *of == bar && inside < memory.len() as u64;
            fits.then_some((memory, inside as usize))
        })
    }

    /// The client, to say what a driver would not.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Resets the device as a machine reset does.
    ///
    /// # Errors
    /// The server refuses.
    pub fn bus_reset(&mut self) -> Result<(), BusError> {
        Ok(self.client.reset()?)
    }
}

/// A VMM answers its guest with all ones what the server refuses.
fn refused_is_all_ones(result: Result<(), ClientError>, data: &mut [u8]) -> Result<(), BusError> {
    match result {
        Err(ClientError::Refused { .. }) => {
            data.fill(0xff);
            Ok(())
        }
        other => Ok(other?),
    }
}

impl Bus for SocketBus {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) -> Result<(), BusError> {
        self.costs.reads += 1;
        if let Some((page, at)) = self.shared_register(bar, offset, data.len()) {
            data.copy_from_slice(&page.load_u32(at, Ordering::Acquire).to_ne_bytes());
            return Ok(());
        }
        self.costs.messages += 1;
        let result = self.client.region_read(bar.into(), offset, data);
        refused_is_all_ones(result, data)
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.costs.writes += 1;
        if let Some((page, at)) = self.shared_register(bar, offset, data.len())
            && let Some(value) = data.first_chunk()
        {
            page.store_u32(at, u32::from_ne_bytes(*value), Ordering::Release);
            return Ok(());
        }
        self.costs.messages += 1;
        let result = if self.io_bars >> bar & 1 == 0 {
            self.client.region_post(bar.into(), offset, data)
        } else {
            self.client.region_write(bar.into(), offset, data)
        };
        refused_is_all_ones(result, &mut [])
    }

    fn config_read(&mut self, offset: u16, data: &mut [u8]) -> Result<(), BusError> {
        self.costs.messages += 1;
        let result = self.client.region_read(region::CONFIG, offset.into(), data);
        refused_is_all_ones(result, data)
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> Result<(), BusError> {
        self.costs.messages += 1;
        let result = self
            .client
            .region_write(region::CONFIG, offset.into(), data);
        refused_is_all_ones(result, &mut [])
    }

    fn alloc(&mut self, len: u64) -> Result<Dma, BusError> {
        let dma = self.alloc_at(self.next_iova, len)?;
        self.next_iova = dma.end() + PAGE;
        Ok(dma)
    }

    fn alloc_at(&mut self, iova: u64, len: u64) -> Result<Dma, BusError> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        let size = usize::try_from(len).map_err(|e| BusError::Memory(e.to_string()))?;
        let shared = SharedMem::new("guest", size).map_err(|e| BusError::Memory(e.to_string()))?;
        self.memory
            .map_fd(iova, len, shared.as_fd(), 0, Prot::RW)
            .map_err(|e| BusError::Memory(e.to_string()))?;
        if let Err(error) = self.client.dma_map(iova, &shared, 0, len, Prot::RW) {
            // The region was ours a moment ago, so this cannot fail.
            let _ = self.memory.unmap(iova, len);
            return Err(match error {
                ClientError::Refused { .. } => BusError::Memory(error.to_string()),
                other => other.into(),
            });
        }
        self.costs.messages += 1;
        self.shared.insert(iova, shared);
        Ok(Dma { iova, len })
    }

    fn free(&mut self, dma: Dma) -> Result<(), BusError> {
        self.memory
            .unmap(dma.iova, dma.len)
            .map_err(|e| BusError::Memory(e.to_string()))?;
        self.client.dma_unmap(dma.iova, dma.len)?;
        self.costs.messages += 1;
        self.shared.remove(&dma.iova);
        Ok(())
    }

    fn memory(&self) -> Memory {
        self.memory.clone()
    }

    fn area(&self, dma: Dma) -> Result<Area, BusError> {
        let (start, shared) = self
            .shared
            .range(..=dma.iova)
            .next_back()
            .ok_or(BusError::Unsupported("find memory it did not give"))?;
        let offset = (dma.iova - start) as usize;
        let len = dma.len as usize;
        if offset > shared.len() || len > shared.len() - offset {
            return Err(BusError::Unsupported("find memory it did not give"));
        }
        Ok(shared.area(offset, len))
    }

    fn costs(&self) -> Costs {
        let (receives, sends) = self.client.syscalls();
        Costs {
            syscalls: self.costs.syscalls + receives + sends,
            ..self.costs
        }
    }

    fn wait_irq(&mut self, timeout: Duration) -> Result<bool, BusError> {
        // One poll, and one read if there was something.
        self.costs.syscalls += 1;
        let came = self.interrupt.wait(timeout).is_some();
        self.costs.syscalls += u64::from(came);
        self.costs.interrupts += u64::from(came);
        Ok(came)
    }

    fn unmask_irq(&mut self) -> Result<(), BusError> {
        self.costs.messages += 1;
        Ok(self.client.unmask(irq::INTX, 0)?)
    }

    fn delay(&mut self, time: Duration) -> Result<(), BusError> {
        std::thread::sleep(time);
        Ok(())
    }

    fn inject(&mut self, frame: &[u8]) -> Result<bool, BusError> {
        Ok(self.far_end.as_mut().is_some_and(|send| send(frame)))
    }
}
