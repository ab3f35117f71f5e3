//! The Communication Status Block (crate `csb`), the driver's side.

use std::sync::atomic::Ordering;

use csb::{CSBAH, CSBAL, PAGE, SUBSYSTEM, Word, at};
use vfio_user::Area;

use crate::bus::{Bus, BusError, Dma};
use crate::e1000::config::DriverError;

pub(super) struct Block {
    area: Area,
    dma: Dma,
    rx_ring: u32,
    /// The receive tail as the device was told.
    rdt: u32,
    /// Interrupts are unmasked; whether they are wanted stands in the block.
    pub unmasked: bool,
}

struct At<'b>(&'b Area, u32);

impl Word for At<'_> {
    fn load(&self) -> u32 {
        u32::from_le(self.0.load_u32(self.1 as usize, Ordering::Acquire))
    }
    fn store(&self, value: u32) {
        let value = value.to_le();
        self.0.store_u32(self.1 as usize, value, Ordering::Release);
    }
}

impl Block {
    /// Gives the device a page. Before it is reset, as `if_lem.c` does: it survives that.
    pub fn new(bus: &mut impl Bus, rx_ring: u32) -> Result<Self, DriverError> {
        let mut id = [0; 2];
        bus.config_read(0x2e, &mut id)?;
        if u16::from_le_bytes(id) != SUBSYSTEM {
            return Err(DriverError::Config(
                "the NIC offers no CSB; start it with csb = true, or --csb",
            ));
        }
        let dma = bus.alloc(PAGE)?;
        let block = Self {
            area: bus.area(dma)?,
            dma,
            rx_ring,
            rdt: rx_ring - 1,
            unmasked: false,
        };
        block.word(at::HOST_NEED_TXKICK).store(1);
        block.word(at::HOST_RXKICK_AT).store(csb::NONE);
        block.word(at::GUEST_RDT).store(block.rdt);
        bus.write32(CSBAH, (dma.iova >> 32) as u32)?;
        bus.write32(CSBAL, dma.iova as u32)?;
        Ok(block)
    }

    fn word(&self, offset: u32) -> At<'_> {
        At(&self.area, offset)
    }

    /// The rings stand as the registers say; from now on as the block says.
    pub fn switch_on(&self) {
        self.word(at::GUEST_CSB_ON).store(1);
    }

    /// New descriptors up to `tail`. Whether the device wants to be called.
    #[inline]
    pub fn sent(&self, tail: u32) -> bool {
        self.word(at::GUEST_TDT).store(tail);
        let need = self.word(at::HOST_NEED_TXKICK);
        let call = csb::wanted(&need) != 0;
        if call {
            // One call is enough, and it takes a while until it is heard.
            need.store(0);
        }
        call
    }

    /// New buffers up to `tail`. Whether the device wants to be called.
    #[inline]
    pub fn gave(&mut self, tail: u32) -> bool {
        self.word(at::GUEST_RDT).store(tail);
        let old = std::mem::replace(&mut self.rdt, tail);
        let place = self.word(at::HOST_RXKICK_AT);
        let call = csb::passes(old, tail, csb::wanted(&place), self.rx_ring);
        if call {
            place.store(csb::NONE);
        }
        call
    }

    /// As TDH.
    pub fn head(&self) -> u32 {
        self.word(at::HOST_TDH).load()
    }

    /// About to wait for an interrupt; `news` says whether a frame has come. Whether to wait.
    pub fn sleep(&self, news: impl FnOnce() -> bool) -> bool {
        csb::sleep(&self.word(at::GUEST_NEED_RXKICK), 1, 0, news)
    }

    pub fn woken(&self) {
        self.word(at::GUEST_NEED_RXKICK).store(0);
    }

    /// Takes the page back.
    pub fn shutdown(self, bus: &mut impl Bus) -> Result<(), BusError> {
        bus.write32(CSBAH, 0)?;
        bus.write32(CSBAL, 0)?;
        drop(self.area);
        bus.free(self.dma)
    }
}
