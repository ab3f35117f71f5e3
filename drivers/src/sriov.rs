//! What an operating system does with SR-IOV (SR-IOV 1.1 §3.3, as Linux's `pci/iov.c`): it finds the
//! capability of a physical function, lays out the virtual ones, and brings them to life.

use crate::bus::{Bus, BusError};

/// Extended capability id.
const ID: u16 = 0x10;
/// Where extended capabilities begin.
const FIRST: u16 = 0x100;

/// Registers of the capability.
mod at {
    pub const CONTROL: u16 = 0x08;
    pub const INITIAL: u16 = 0x0c;
    pub const TOTAL: u16 = 0x0e;
    pub const NUMBER: u16 = 0x10;
    pub const OFFSET: u16 = 0x14;
    pub const STRIDE: u16 = 0x16;
    pub const DEVICE: u16 = 0x1a;
    pub const PAGES: u16 = 0x1c;
    pub const PAGE: u16 = 0x20;
    pub const BAR: u16 = 0x24;
}

/// Bits of its control register.
mod control {
    pub const ENABLE: u16 = 1;
    pub const MEMORY: u16 = 1 << 3;
    pub const ARI: u16 = 1 << 4;
}

/// The extended capabilities of a function: offset, id and version, in the order of their chain.
///
/// # Errors
/// When the device is gone.
pub fn extended<B: Bus>(bus: &mut B) -> Result<Vec<(u16, u16, u8)>, BusError> {
    let mut found = Vec::new();
    let mut place = FIRST;
    // No chain is longer than the space.
    while place >= FIRST && found.len() < 1024 {
        let header = read32(bus, place)?;
        if header == 0 || header == u32::MAX {
            break;
        }
        found.push((place, header as u16, (header >> 16 & 0xf) as u8));
        place = (header >> 20) as u16;
    }
    Ok(found)
}

fn read16<B: Bus>(bus: &mut B, at: u16) -> Result<u16, BusError> {
    let mut data = [0; 2];
    bus.config_read(at, &mut data)?;
    Ok(u16::from_le_bytes(data))
}

fn read32<B: Bus>(bus: &mut B, at: u16) -> Result<u32, BusError> {
    let mut data = [0; 4];
    bus.config_read(at, &mut data)?;
    Ok(u32::from_le_bytes(data))
}

/// The capability of a physical function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sriov {
    /// Its offset.
    pub place: u16,
    /// VFs there are at first, and there can be.
    pub initial: u16,
    /// The same, after migration.
    pub total: u16,
    /// Device id of the VFs.
    pub device: u16,
}

impl Sriov {
    /// Finds it and chooses pages of 4 KiB. `None`: the function has none, or its VMM hides it.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn find<B: Bus>(bus: &mut B) -> Result<Option<Sriov>, BusError> {
        let all = extended(bus)?;
        let Some((place, ..)) = all.into_iter().find(|(_, id, _)| *id == ID) else {
            return Ok(None);
        };
        let pages = read32(bus, place + at::PAGES)?;
        bus.config_write(place + at::PAGE, &(pages & 1).to_le_bytes())?;
        Ok(Some(Sriov {
            place,
            initial: read16(bus, place + at::INITIAL)?,
            total: read16(bus, place + at::TOTAL)?,
            device: read16(bus, place + at::DEVICE)?,
        }))
    }

    /// Sizes the 64-bit VF BAR in slot `index` and puts it at `address`. Bytes for each VF.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn place_bar<B: Bus>(
        &self,
        bus: &mut B,
        index: u16,
        address: u64,
    ) -> Result<u64, BusError> {
        let bar = self.place + at::BAR + 4 * index;
        bus.config_write(bar, &u64::MAX.to_le_bytes())?;
        let (low, high) = (read32(bus, bar)?, read32(bus, bar + 4)?);
        bus.config_write(bar, &address.to_le_bytes())?;
        let mask = u64::from(high) << 32 | u64::from(low & !0xf);
        Ok((!mask).wrapping_add(1))
    }

    /// Sets ARI Capable Hierarchy, and tells where the first VF is and how far the next one.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn routing<B: Bus>(&self, bus: &mut B, ari: bool) -> Result<(u16, u16), BusError> {
        let ari = if ari { control::ARI } else { 0 };
        bus.config_write(self.place + at::CONTROL, &ari.to_le_bytes())?;
        Ok((
            read16(bus, self.place + at::OFFSET)?,
            read16(bus, self.place + at::STRIDE)?,
        ))
    }

    /// Brings `vfs` of them to life.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn enable<B: Bus>(&self, bus: &mut B, vfs: u16) -> Result<(), BusError> {
        bus.config_write(self.place + at::NUMBER, &vfs.to_le_bytes())?;
        let on = control::ENABLE | control::MEMORY;
        self.change(bus, 0, on)
    }

    /// Ends them.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn disable<B: Bus>(&self, bus: &mut B) -> Result<(), BusError> {
        self.change(bus, control::ENABLE | control::MEMORY, 0)?;
        bus.config_write(self.place + at::NUMBER, &[0; 2])
    }

    /// VFs that are alive.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn alive<B: Bus>(&self, bus: &mut B) -> Result<u16, BusError> {
        let on = read16(bus, self.place + at::CONTROL)? & control::ENABLE != 0;
        let number = read16(bus, self.place + at::NUMBER)?;
        Ok(if on { number } else { 0 })
    }

    fn change<B: Bus>(&self, bus: &mut B, clear: u16, set: u16) -> Result<(), BusError> {
        let old = read16(bus, self.place + at::CONTROL)?;
        let new = old & !clear | set;
        bus.config_write(self.place + at::CONTROL, &new.to_le_bytes())
    }
}
