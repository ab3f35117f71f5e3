//! An RTL8168C set up just enough to be misused. The numbers are those of Realtek's data sheets.

use std::time::Duration;

use drivers::{Bus, BusError, Dma};

use crate::stage::{Done, tcp_frame};

/// The registers in memory.
pub(crate) const BAR: u8 = 2;
pub(crate) const DTCCR: u64 = 0x10;
pub(crate) const TX_BASE: u64 = 0x20;
pub(crate) const CR: u64 = 0x37;
pub(crate) const TX_POLL: u64 = 0x38;
pub(crate) const IMR: u64 = 0x3c;
pub(crate) const ISR: u64 = 0x3e;
pub(crate) const RCR: u64 = 0x44;
pub(crate) const TIMER_INT: u64 = 0x58;
pub(crate) const EECR: u64 = 0x50;
pub(crate) const PHYAR: u64 = 0x60;
const PHY_STATUS: u64 = 0x6c;
pub(crate) const CSBAL: u64 = 0xa0;
pub(crate) const CSBAH: u64 = 0xa4;
pub(crate) const RXKICK: u64 = 0xa8;
pub(crate) const RMS: u64 = 0xda;
pub(crate) const CPCR: u64 = 0xe0;
pub(crate) const MITIGATE: u64 = 0xe2;
pub(crate) const RX_BASE: u64 = 0xe4;

/// Bits of descriptors.
pub(crate) const OWN: u32 = 1 << 31;
pub(crate) const EOR: u32 = 1 << 30;
pub(crate) const FS: u32 = 1 << 29;
pub(crate) const LS: u32 = 1 << 28;
pub(crate) const BOTH: u32 = OWN | FS | LS;

/// Most descriptors of a ring, and how many an honest one has here.
pub(crate) const MOST: u32 = 1024;
pub(crate) const RING: u32 = 32;

/// Memory, and where its parts are: both rings, whose bases have 256 bytes, a page, buffers.
const MEMORY: u64 = 0x8_0000;
pub(crate) const TX: u64 = 0;
pub(crate) const RX: u64 = 0x8000;
pub(crate) const PAGE: u64 = 0x1_0000;
pub(crate) const BUFFERS: u64 = 0x2_0000;

/// A device with two rings that run.
pub(crate) struct Rtl<'b> {
    pub bus: &'b mut dyn Bus,
    memory: Dma,
    next: u32,
}

impl<'b> Rtl<'b> {
    /// A device that is reset and brought up, with honest rings.
    pub(crate) fn start(bus: &'b mut dyn Bus) -> Result<Self, BusError> {
        bus.config_write(4, &7u16.to_le_bytes())?;
        let memory = bus.alloc(MEMORY)?;
        let mut rtl = Self {
            bus,
            memory,
            next: 0,
        };
        rtl.link()?;
        rtl.bring_up()?;
        Ok(rtl)
    }

    /// The same with the memory that it has.
    pub(crate) fn bring_up(&mut self) -> Done {
        self.w8(CR, 0x10)?;
        self.w32(CSBAH, 0)?;
        self.w32(CSBAL, 0)?;
        self.next = 0;
        for i in 0..RING {
            let end = if i + 1 == RING { EOR } else { 0 };
            let buffer = self.at(BUFFERS + 0x2_0000 + u64::from(i) * 0x800);
            self.desc(TX, i, end, 0, 0)?;
            self.desc(RX, i, OWN | end | 0x800, 0, buffer)?;
        }
        self.rings(self.at(TX), self.at(RX))?;
        self.w16(CPCR, 0x60)?;
        self.w16(MITIGATE, 0)?;
        self.w16(RMS, 0x4000)?;
        self.w32(TIMER_INT, 0)?;
        self.w8(CR, 0x0c)?;
        self.w32(RCR, 0xe70f)?;
        self.w16(IMR, 0x80ff)
    }

    /// Both rings are there now.
    pub(crate) fn rings(&mut self, tx: u64, rx: u64) -> Done {
        for (at, base) in [(TX_BASE, tx), (RX_BASE, rx)] {
            self.w32(at + 4, (base >> 32) as u32)?;
            self.w32(at, base as u32)?;
        }
        Ok(())
    }

    /// The PHY negotiates, and the link comes up.
    fn link(&mut self) -> Done {
        self.phy(0x1f, 0)?;
        self.phy(0, 0x9200)?;
        for _ in 0..1000 {
            let mut status = [0];
            self.bus.bar_read(BAR, PHY_STATUS, &mut status)?;
            if status[0] & 2 != 0 {
                return Ok(());
            }
            self.bus.delay(Duration::from_millis(1))?;
        }
        Err(BusError::Gone("the link does not come up".into()))
    }

    pub(crate) fn phy(&mut self, register: u32, value: u16) -> Done {
        self.w32(PHYAR, 1 << 31 | register << 16 | u32::from(value))
    }

    pub(crate) fn w8(&mut self, at: u64, value: u8) -> Done {
        self.bus.bar_write(BAR, at, &[value])
    }

    pub(crate) fn w16(&mut self, at: u64, value: u16) -> Done {
        self.bus.bar_write(BAR, at, &value.to_le_bytes())
    }

    pub(crate) fn w32(&mut self, at: u64, value: u32) -> Done {
        self.bus.bar_write(BAR, at, &value.to_le_bytes())
    }

    pub(crate) fn mac(&mut self) -> Result<[u8; 6], BusError> {
        let mut mac = [0; 6];
        self.bus.bar_read(BAR, 0, &mut mac[..4])?;
        self.bus.bar_read(BAR, 4, &mut mac[4..])?;
        Ok(mac)
    }

    /// Where a part of the memory is.
    pub(crate) fn at(&self, offset: u64) -> u64 {
        self.memory.iova + offset
    }

    /// The end of the memory.
    pub(crate) fn end(&self) -> u64 {
        self.memory.end()
    }

    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) -> Done {
        let at = self.at(offset);
        self.bus.dma_write(at, bytes)
    }

    /// Writes descriptor `index` of a ring.
    pub(crate) fn desc(
        &mut self,
        ring: u64,
        index: u32,
        first: u32,
        second: u32,
        addr: u64,
    ) -> Done {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&first.to_le_bytes());
        bytes[4..8].copy_from_slice(&second.to_le_bytes());
        bytes[8..].copy_from_slice(&addr.to_le_bytes());
        self.put(ring + u64::from(index) * 16, &bytes)
    }

    /// Hands over descriptors from where the ring stands: both words, and an address.
    pub(crate) fn give(&mut self, descs: &[(u32, u32, u64)]) -> Done {
        for &(first, second, addr) in descs {
            let end = if self.next + 1 == RING { EOR } else { 0 };
            self.desc(TX, self.next, first | end, second, addr)?;
            self.next = (self.next + 1) % RING;
        }
        self.w8(TX_POLL, 0x40)
    }

    /// Sends so many bytes of the buffers, with this second word.
    pub(crate) fn send(&mut self, len: u32, second: u32) -> Done {
        let at = self.at(BUFFERS);
        self.give(&[(BOTH | len, second, at)])
    }

    /// Whether descriptor `index` was given back.
    pub(crate) fn is_sent(&mut self, index: u32) -> Result<bool, BusError> {
        let mut word = [0; 4];
        let at = self.at(TX + u64::from(index) * 16);
        self.bus.dma_read(at, &mut word)?;
        Ok(u32::from_le_bytes(word) & OWN == 0)
    }

    /// Calls the device, has frames arrive, and lets it finish.
    pub(crate) fn traffic(&mut self) -> Done {
        self.w8(TX_POLL, 0x40)?;
        self.settle()?;
        for len in [60, 200, 1514, 9014] {
            self.bus.inject(&tcp_frame(len))?;
        }
        self.settle()
    }

    /// A call is a posted write, and the work behind it begins after the next answer.
    pub(crate) fn settle(&mut self) -> Done {
        for _ in 0..4 {
            self.bus.bar_read(BAR, ISR, &mut [0; 2])?;
        }
        Ok(())
    }

    /// Gives the memory back.
    pub(crate) fn leave(mut self) -> Done {
        self.w32(CSBAL, 0)?;
        self.w8(CR, 0x10)?;
        self.bus.free(self.memory)
    }
}
