//! Describes a device to the server.

use pci::{Bar, BuildError, Capability, ConfigBuilder, ConfigSpace, Doorbells, Msi, Msix};

use crate::codec::{SparseArea, irq, region, region_flags, sparse_capability};
use crate::doorbell::Registers;
use peer::SharedMem;

/// Why a description makes no device.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The configuration space cannot be.
    #[error(transparent)]
    Config(#[from] BuildError),
    /// A mappable area, or the memory behind it, does not fit its BAR.
    #[error(
        "BAR {0}: mappable areas are page-aligned, in ascending order and inside a memory BAR, \
         and the memory behind them is as large as the BAR"
    )]
    Mmap(u8),
    /// Doorbells in memory do not fit their BAR.
    #[error(
        "BAR {0}: doorbells are 32-bit registers, each named once, on whole pages of a memory BAR \
         that has no other mappable areas"
    )]
    Doorbells(u8),
    /// MSI-X structures lie outside their BAR or over each other.
    #[error("the MSI-X table or pending bits do not fit in a memory BAR")]
    Msix,
    /// The ROM image is too large.
    #[error("the option ROM has {0} bytes; at most 16 MiB can be decoded")]
    Rom(usize),
}

/// The largest BAR whose registers may be memory, which is as large as the BAR.
const MOST_SHARED: u64 = 16 << 20;

/// Mappable areas of a BAR.
#[derive(Clone, Debug)]
struct Mmap {
    bar: u8,
    memory: SharedMem,
    areas: Vec<SparseArea>,
}

/// Describes a device: identity, BARs, interrupts, capabilities.
///
/// ```
/// use hypernic_vfio_user::{DeviceDescription, SharedMem, SparseArea};
/// use hypernic_vfio_user::pci::{Bar, Msix};
///
/// let doorbells = SharedMem::new("doorbells", 0x4000).unwrap();
/// let description = DeviceDescription::new(0x1234, 0x5678)
///     .class(0x02_00_00)
///     .bar(0, Bar::memory32(0x4000))
///     .mmap(0, doorbells, &[SparseArea { offset: 0x1000, size: 0x1000 }])
///     .intx(1)
///     .msix(Msix { vectors: 3, table_bar: 0, table_offset: 0x2000, pba_bar: 0, pba_offset: 0x3000 });
/// ```
#[derive(Clone, Debug)]
pub struct DeviceDescription {
    config: ConfigBuilder,
    mmaps: Vec<Mmap>,
    doorbells: Option<Doorbells>,
    rom: Vec<u8>,
    resettable: bool,
}

impl DeviceDescription {
    /// A conventional PCI device that can be reset and has nothing else.
    pub fn new(vendor: u16, device: u16) -> Self {
        Self::from_config(ConfigBuilder::new(vendor, device))
    }

    /// A device with this configuration space. Its MSI and MSI-X capabilities become the device's
    /// interrupts, its interrupt pin the INTx.
    pub fn from_config(config: ConfigBuilder) -> Self {
        Self {
            config,
            mmaps: Vec::new(),
            doorbells: None,
            rom: Vec::new(),
            resettable: true,
        }
    }

    fn map(mut self, with: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> Self {
        self.config = with(self.config);
        self
    }

    /// Gives the device the 4096-byte configuration space of PCI Express.
    #[must_use]
    pub fn express(self) -> Self {
        self.map(ConfigBuilder::express)
    }

    /// Class code as 24 bits; Ethernet is 0x020000.
    #[must_use]
    pub fn class(self, class: u32) -> Self {
        self.map(|c| c.class(class))
    }

    /// Revision id.
    #[must_use]
    pub fn revision(self, revision: u8) -> Self {
        self.map(|c| c.revision(revision))
    }

    /// Subsystem vendor id and subsystem id.
    #[must_use]
    pub fn subsystem(self, vendor: u16, id: u16) -> Self {
        self.map(|c| c.subsystem(vendor, id))
    }

    /// A BAR in slot `index`.
    #[must_use]
    pub fn bar(self, index: u8, bar: Bar) -> Self {
        self.map(|c| c.bar(index, bar))
    }

    /// Lets the client map `areas` of BAR `index`. `memory` is as large as the BAR; the same
    /// registers still arrive as [`Device`](crate::Device) calls when the client traps them, so the
    /// device applies those to `memory` itself.
    #[must_use]
    pub fn mmap(mut self, index: u8, memory: SharedMem, areas: &[SparseArea]) -> Self {
        self.mmaps.push(Mmap {
            bar: index,
            memory,
            areas: areas.to_vec(),
        });
        self
    }

    /// Lets the client map pages of registers. The server looks at them at each call of
    /// [`Server::process`](crate::Server::process) and tells the device what the guest wrote, as
    /// writes; in between its owner looks at the [`MappedDoorbells`](crate::MappedDoorbells). QEMU takes a device's mappings
    /// away at its first INTx: this is for devices with messages, and for drivers without interrupts.
    #[must_use]
    pub fn doorbells(mut self, doorbells: Doorbells) -> Self {
        self.doorbells = Some(doorbells);
        self
    }

    /// An INTx pin: 1 is INTA#.
    #[must_use]
    pub fn intx(self, pin: u8) -> Self {
        self.map(|c| c.interrupt_pin(pin))
    }

    /// An MSI capability.
    #[must_use]
    pub fn msi(self, msi: Msi) -> Self {
        self.capability(Capability::Msi(msi))
    }

    /// An MSI-X capability. Table and pending bits are the server's; accesses to them do not reach
    /// the device.
    #[must_use]
    pub fn msix(self, msix: Msix) -> Self {
        self.capability(Capability::Msix(msix))
    }

    /// Any capability.
    #[must_use]
    pub fn capability(self, capability: Capability) -> Self {
        self.map(|c| c.capability(capability))
    }

    /// An option ROM image. The BAR is the next power of two from 2 KiB up; the rest reads as ones.
    #[must_use]
    pub fn rom(mut self, image: Vec<u8>) -> Self {
        self.rom = image;
        self
    }

    /// Whether the device says that it can be reset; it does by default. A `RESET` is obeyed in
    /// any case, because some clients send it exactly when it was not offered.
    #[must_use]
    pub fn resettable(mut self, resettable: bool) -> Self {
        self.resettable = resettable;
        self
    }

    pub(crate) fn build(self) -> Result<(Shape, ConfigSpace), DescriptionError> {
        let mut config = self.config;
        if !self.rom.is_empty() {
            if self.rom.len() > 16 << 20 {
                return Err(DescriptionError::Rom(self.rom.len()));
            }
            let size = self.rom.len().next_power_of_two().max(2 << 10);
            config = config.rom(size as u32);
        }
        let mut msi = 0;
        let mut msix = None;
        for cap in config.capabilities() {
            match cap {
                Capability::Msi(cap) => msi = usize::from(cap.vectors()),
                Capability::Msix(cap) => msix = Some(*cap),
                _ => {}
            }
        }
        let space = config.build()?;
        let mut regions: [Region; region::COUNT as usize] = Default::default();
        for (index, slot) in regions.iter_mut().enumerate().take(6) {
            if let Some(bar) = space.bar(index as u8) {
                slot.size = bar.size();
                slot.flags = region_flags::READ | region_flags::WRITE;
            }
        }
        for mmap in self.mmaps {
            let bar = space
                .bar(mmap.bar)
                .filter(|bar| bar.kind() != pci::BarKind::Io)
                .ok_or(DescriptionError::Mmap(mmap.bar))?;
            if !fits(&mmap, bar.size()) {
                return Err(DescriptionError::Mmap(mmap.bar));
            }
            let slot = &mut regions[usize::from(mmap.bar)];
            slot.flags |= region_flags::MMAP | region_flags::CAPS;
            slot.caps = sparse_capability(&mmap.areas);
            slot.memory = Some(mmap.memory);
        }
        let mut doorbells = None;
        if let Some(layout) = self.doorbells {
            let index = usize::from(layout.bar);
            let bar = space.bar(layout.bar);
            let bar = bar.filter(|bar| bar.kind() != pci::BarKind::Io);
            let end = layout
                .pages
                .last()
                .map_or(0, |(at, len)| at.saturating_add(*len));
            let fits = bar.filter(|bar| u64::from(end) <= bar.size() && bar.size() <= MOST_SHARED);
            let free = regions.get(index).is_some_and(|slot| slot.memory.is_none());
            let (Some(bar), true, true) = (fits, free, layout.valid()) else {
                return Err(DescriptionError::Doorbells(layout.bar));
            };
            let areas = layout.pages.iter().map(|&(offset, size)| SparseArea {
                offset: offset.into(),
                size: size.into(),
            });
            let slot = &mut regions[index];
            slot.flags |= region_flags::MMAP | region_flags::CAPS;
            slot.caps = sparse_capability(&areas.collect::<Vec<_>>());
            doorbells = Some(Registers::new(layout, bar.size() as usize));
        }
        if let Some(msix) = &msix {
            let inside = |bar: u8, offset: u32, len: u64| {
                space
                    .bar(bar)
                    .is_some_and(|b| u64::from(offset) + len <= b.size())
            };
            let table = (msix.table_bar, u64::from(msix.table_offset));
            let pba = (msix.pba_bar, u64::from(msix.pba_offset));
            let apart = table.0 != pba.0
                || table.1 + msix.table_len() <= pba.1
                || pba.1 + msix.pba_len() <= table.1;
            if !inside(msix.table_bar, msix.table_offset, msix.table_len())
                || !inside(msix.pba_bar, msix.pba_offset, msix.pba_len())
                || !apart
            {
                return Err(DescriptionError::Msix);
            }
        }
        if !self.rom.is_empty() {
            let slot = &mut regions[region::ROM as usize];
            slot.size = self.rom.len().next_power_of_two().max(2 << 10) as u64;
            slot.flags = region_flags::READ;
        }
        let slot = &mut regions[region::CONFIG as usize];
        slot.size = space.len() as u64;
        slot.flags = region_flags::READ | region_flags::WRITE;
        let shape = Shape {
            regions,
            rom: self.rom,
            resettable: self.resettable,
            intx: config.get_interrupt_pin() != 0,
            msi,
            msix,
            doorbells,
        };
        Ok((shape, space))
    }
}

fn fits(mmap: &Mmap, size: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let mut end = 0;
    mmap.memory.len() as u64 >= size
        && !mmap.areas.is_empty()
        && mmap.areas.iter().all(|area| {
            let ok = area.offset >= end
                && area.size > 0
                && area.offset.is_multiple_of(page)
                && area.size.is_multiple_of(page)
                && area
                    .offset
                    .checked_add(area.size)
                    .is_some_and(|e| e <= size);
            end = area.offset.saturating_add(area.size);
            ok
        })
}

/// One region as GET_REGION_INFO reports it.
#[derive(Default)]
pub(crate) struct Region {
    pub size: u64,
    pub flags: u32,
    pub caps: Vec<u8>,
    pub memory: Option<SharedMem>,
}

/// What the server needs to know of a device, checked.
pub(crate) struct Shape {
    pub regions: [Region; region::COUNT as usize],
    pub rom: Vec<u8>,
    pub resettable: bool,
    pub intx: bool,
    pub msi: usize,
    pub msix: Option<Msix>,
    pub doorbells: Option<Registers>,
}

impl Shape {
    pub fn irq_flags(index: u32) -> u32 {
        use crate::codec::irq_info_flags::{AUTOMASKED, EVENTFD, MASKABLE};
        match index {
            irq::INTX => EVENTFD | MASKABLE | AUTOMASKED,
            _ => EVENTFD,
        }
    }
}
