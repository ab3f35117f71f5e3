//! What a driver sees of the machine.

use std::time::Duration;

use guest_mem::{Fault, Memory};
use vfio_user::Area;

/// Why the machine could not do what a driver asked.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The device is not there any more, or never was.
    #[error("the device is gone: {0}")]
    Gone(String),
    /// The device's work did not come to an end.
    #[error("the device still asked for more after {0} rounds of work")]
    Endless(u32),
    /// There is no such thing on this bus.
    #[error("this bus cannot {0}")]
    Unsupported(&'static str),
    /// DMA memory could not be had.
    #[error("no DMA memory: {0}")]
    Memory(String),
    /// The driver itself touched memory it does not have.
    #[error("driver's own memory access failed: {0}")]
    Fault(#[from] Fault),
}

/// DMA memory: contiguous for the device, zeroed, page-aligned, a region of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dma {
    /// First address as the device sees it.
    pub iova: u64,
    /// Bytes.
    pub len: u64,
}

impl Dma {
    /// The address one past the end.
    pub fn end(&self) -> u64 {
        self.iova.wrapping_add(self.len)
    }
}

/// What a driver's words with its device have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Register reads, each a question and an answer.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
    /// Messages sent to the device, of any kind.
    pub messages: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// System calls of this side: sends, receives, waits.
    pub syscalls: u64,
}

impl std::ops::Sub for Costs {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            messages: self.messages - before.messages,
            interrupts: self.interrupts - before.interrupts,
            syscalls: self.syscalls - before.syscalls,
        }
    }
}

impl std::ops::AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.messages += other.messages;
        self.interrupts += other.interrupts;
        self.syscalls += other.syscalls;
    }
}

/// One PCI function and the memory it can reach, seen from the guest.
pub trait Bus {
    /// Reads `data.len()` bytes at `offset` of BAR `bar`, in one access.
    ///
    /// # Errors
    /// When the device is gone.
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) -> Result<(), BusError>;

    /// Writes `data` at `offset` of BAR `bar`, in one access.
    ///
    /// # Errors
    /// When the device is gone.
    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusError>;

    /// Reads configuration space.
    ///
    /// # Errors
    /// When the device is gone.
    fn config_read(&mut self, offset: u16, data: &mut [u8]) -> Result<(), BusError>;

    /// Writes configuration space.
    ///
    /// # Errors
    /// When the device is gone.
    fn config_write(&mut self, offset: u16, data: &[u8]) -> Result<(), BusError>;

    /// Maps fresh zeroed memory of `len` bytes (rounded up to pages) at an address of the
    /// bus's choice, never next to other memory.
    ///
    /// # Errors
    /// When there is none.
    fn alloc(&mut self, len: u64) -> Result<Dma, BusError>;

    /// As [`Bus::alloc`], at `iova` (page-aligned).
    ///
    /// # Errors
    /// When there is none, or something is there already.
    fn alloc_at(&mut self, iova: u64, len: u64) -> Result<Dma, BusError>;

    /// Takes memory away from the device; returns once it no longer uses it.
    ///
    /// # Errors
    /// When it was not allocated here.
    fn free(&mut self, dma: Dma) -> Result<(), BusError>;

    /// The memory, for the driver's own access. All clones are the same memory.
    fn memory(&self) -> Memory;

    /// Memory from [`Bus::alloc`], found once and for all: for a driver whose inner loop must not
    /// look addresses up.
    ///
    /// # Errors
    /// When it was not allocated here, or this bus cannot.
    fn area(&self, dma: Dma) -> Result<Area, BusError> {
        let _ = dma;
        Err(BusError::Unsupported("give memory out as an area"))
    }

    /// What went over the bus so far; zeros where the bus does not count.
    fn costs(&self) -> Costs {
        Costs::default()
    }

    /// Waits for an interrupt; `false` when `timeout` passed without one. After one, no other
    /// comes before [`Bus::unmask_irq`].
    ///
    /// # Errors
    /// When the device is gone.
    fn wait_irq(&mut self, timeout: Duration) -> Result<bool, BusError>;

    /// Ends the handling of an interrupt: if the line is still up, another comes at once.
    ///
    /// # Errors
    /// When the device is gone.
    fn unmask_irq(&mut self) -> Result<(), BusError>;

    /// Lets time pass.
    ///
    /// # Errors
    /// When the device is gone.
    fn delay(&mut self, time: Duration) -> Result<(), BusError>;

    /// Sends a frame from the far end of the cable to this NIC. `false` where there is no such
    /// end, or it could not take the frame.
    ///
    /// # Errors
    /// When the device is gone.
    fn inject(&mut self, frame: &[u8]) -> Result<bool, BusError> {
        let _ = frame;
        Ok(false)
    }

    /// Reads a 32-bit register of BAR 0.
    ///
    /// # Errors
    /// When the device is gone.
    fn read32(&mut self, offset: u32) -> Result<u32, BusError> {
        let mut data = [0; 4];
        self.bar_read(0, offset.into(), &mut data)?;
        Ok(u32::from_le_bytes(data))
    }

    /// Writes a 32-bit register of BAR 0.
    ///
    /// # Errors
    /// When the device is gone.
    fn write32(&mut self, offset: u32, value: u32) -> Result<(), BusError> {
        self.bar_write(0, offset.into(), &value.to_le_bytes())
    }

    /// Copies out of DMA memory.
    ///
    /// # Errors
    /// When it is not there.
    fn dma_read(&mut self, iova: u64, out: &mut [u8]) -> Result<(), BusError> {
        Ok(self.memory().view().read_acquire(iova, out)?)
    }

    /// Copies into DMA memory.
    ///
    /// # Errors
    /// When it is not there.
    fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), BusError> {
        Ok(self.memory().view().write_release(iova, bytes)?)
    }
}

/// Forwards every method, so that a driver can borrow its bus.
macro_rules! forward {
    ($($owner:ty),*) => { $(
        impl<B: Bus + ?Sized> Bus for $owner {
            fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) -> Result<(), BusError> {
                (**self).bar_read(bar, offset, data)
            }
            fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusError> {
                (**self).bar_write(bar, offset, data)
            }
            fn config_read(&mut self, offset: u16, data: &mut [u8]) -> Result<(), BusError> {
                (**self).config_read(offset, data)
            }
            fn config_write(&mut self, offset: u16, data: &[u8]) -> Result<(), BusError> {
                (**self).config_write(offset, data)
            }
            fn alloc(&mut self, len: u64) -> Result<Dma, BusError> {
                (**self).alloc(len)
            }
            fn alloc_at(&mut self, iova: u64, len: u64) -> Result<Dma, BusError> {
                (**self).alloc_at(iova, len)
            }
            fn free(&mut self, dma: Dma) -> Result<(), BusError> {
                (**self).free(dma)
            }
            fn memory(&self) -> Memory {
                (**self).memory()
            }
            fn area(&self, dma: Dma) -> Result<Area, BusError> {
                (**self).area(dma)
            }
            fn costs(&self) -> Costs {
                (**self).costs()
            }
            fn wait_irq(&mut self, timeout: Duration) -> Result<bool, BusError> {
                (**self).wait_irq(timeout)
            }
            fn unmask_irq(&mut self) -> Result<(), BusError> {
                (**self).unmask_irq()
            }
            fn delay(&mut self, time: Duration) -> Result<(), BusError> {
                (**self).delay(time)
            }
            fn inject(&mut self, frame: &[u8]) -> Result<bool, BusError> {
                (**self).inject(frame)
            }
        }
    )* };
}

forward!(&mut B, Box<B>);
