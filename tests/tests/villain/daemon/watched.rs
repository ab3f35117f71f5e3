//! A bus that notes how long its reads take.

use std::time::{Duration, Instant};

use drivers::{Bus, BusError, Dma, SocketBus};
use guest_mem::Memory;

/// A socket's bus under observation.
pub struct Watched {
    pub bus: SocketBus,
    /// The longest that a register read has taken.
    pub worst: Duration,
}

impl Watched {
    pub fn new(bus: SocketBus) -> Self {
        Self {
            bus,
            worst: Duration::ZERO,
        }
    }
}

impl Bus for Watched {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) -> Result<(), BusError> {
        let asked = Instant::now();
        let result = self.bus.bar_read(bar, offset, data);
        self.worst = self.worst.max(asked.elapsed());
        result
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.bus.bar_write(bar, offset, data)
    }

    fn config_read(&mut self, offset: u16, data: &mut [u8]) -> Result<(), BusError> {
        self.bus.config_read(offset, data)
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> Result<(), BusError> {
        self.bus.config_write(offset, data)
    }

    fn alloc(&mut self, len: u64) -> Result<Dma, BusError> {
        self.bus.alloc(len)
    }

    fn alloc_at(&mut self, iova: u64, len: u64) -> Result<Dma, BusError> {
        self.bus.alloc_at(iova, len)
    }

    fn free(&mut self, dma: Dma) -> Result<(), BusError> {
        self.bus.free(dma)
    }

    fn memory(&self) -> Memory {
        self.bus.memory()
    }

    fn wait_irq(&mut self, timeout: Duration) -> Result<bool, BusError> {
        self.bus.wait_irq(timeout)
    }

    fn unmask_irq(&mut self) -> Result<(), BusError> {
        self.bus.unmask_irq()
    }

    fn delay(&mut self, time: Duration) -> Result<(), BusError> {
        self.bus.delay(time)
    }

    fn inject(&mut self, frame: &[u8]) -> Result<bool, BusError> {
        self.bus.inject(frame)
    }
}
