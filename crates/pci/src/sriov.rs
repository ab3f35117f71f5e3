//! The SR-IOV capability (Single Root I/O Virtualization 1.1 §3.3), which has rules between its
//! registers that masks alone cannot hold.
//!
//! What the specification calls undefined has one meaning here: the write goes nowhere, so that what
//! reads back is always something the function can do.
//!
//! - NumVFs beyond TotalVFs is refused, and so is any change of NumVFs or of the page size while VFs
//!   exist (§3.3.7, §3.3.13).
//! - The system page size is one of those supported, and one only. Software has to write the 32
//!   bits at once, since half a change is no page size.
//! - Where functions are found by alternative routing ids, the first VF may be elsewhere (§3.3.9).
//! - A VF BAR decodes at least a page: sizing it gives the larger of the VF's size and the page
//!   (§3.3.14), and what lies below goes when the page grows.

use crate::bar::{Bar, BarKind};
use crate::ecap::ExtendedCapability;

/// Extended capability id.
const ID: u16 = 0x10;
/// Bytes of the capability.
const LEN: usize = 0x40;

/// Offsets of registers (§3.3).
pub mod offset {
    /// SR-IOV control, 16 bits.
    pub const CONTROL: usize = 0x08;
    /// InitialVFs, 16 bits.
    pub const INITIAL_VFS: usize = 0x0c;
    /// TotalVFs, 16 bits.
    pub const TOTAL_VFS: usize = 0x0e;
    /// NumVFs, 16 bits.
    pub const NUM_VFS: usize = 0x10;
    /// Function dependency link, 8 bits.
    pub const DEPENDENCY: usize = 0x12;
    /// First VF offset, 16 bits.
    pub const FIRST_OFFSET: usize = 0x14;
    /// VF stride, 16 bits.
    pub const STRIDE: usize = 0x16;
    /// VF device id, 16 bits.
    pub const DEVICE: usize = 0x1a;
    /// Supported page sizes, 32 bits.
    pub const SUPPORTED_PAGES: usize = 0x1c;
    /// System page size, 32 bits.
    pub const PAGE: usize = 0x20;
    /// First VF BAR; six of 32 bits follow each other.
    pub const BAR0: usize = 0x24;
}

/// Bits of the control register (§3.3.3).
pub mod control {
    /// The VFs exist.
    pub const ENABLE: u16 = 1 << 0;
    /// The VFs' memory BARs decode.
    pub const MEMORY: u16 = 1 << 3;
    /// Functions are found by alternative routing ids.
    pub const ARI: u16 = 1 << 4;
}

/// The capability of a physical function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sriov {
    /// Virtual functions there can be: InitialVFs and TotalVFs.
    pub total: u16,
    /// From the PF's routing id to that of the first VF.
    pub first_offset: u16,
    /// The same where the hierarchy is ARI capable.
    pub ari_offset: u16,
    /// From one VF's routing id to the next one's.
    pub stride: u16,
    /// Device id of a VF.
    pub device: u16,
    /// Supported page sizes, bit `n` for `4096 << n` bytes. Bit 0 has to be there.
    pub page_sizes: u32,
    /// Function dependency link: the PF's own number when it depends on none.
    pub dependency: u8,
    /// BARs of one VF, memory only.
    pub bars: [Option<Bar>; 6],
}

/// What decides whether a write may stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    control: u16,
    vfs: u16,
    pub page: u32,
}

impl Held {
    pub const FRESH: Self = Self {
        control: 0,
        vfs: 0,
        page: 1,
    };
}

impl Sriov {
    pub(crate) fn valid(&self) -> bool {
        let last = u32::from(self.first_offset.max(self.ari_offset))
            + u32::from(self.stride) * u32::from(self.total.saturating_sub(1));
        let bars = self.bars.iter().enumerate().all(|(index, bar)| {
            bar.is_none_or(|bar| {
                let wide = bar.kind == BarKind::Memory64;
                let free = !wide || self.bars.get(index + 1).is_some_and(Option::is_none);
                bar.kind != BarKind::Io && bar.valid() && free
            })
        });
        let apart =
            self.first_offset.min(self.ari_offset) > 0 && (self.stride > 0 || self.total == 1);
        self.total > 0 && apart && last <= 0xffff && self.page_sizes & 1 != 0 && bars
    }

    pub(crate) fn encode(&self) -> ExtendedCapability {
        let mut cap = ExtendedCapability::zero(ID, LEN);
        let control = control::ENABLE | control::MEMORY | control::ARI;
        cap.u16(offset::CONTROL, 0, control);
        cap.u16(offset::INITIAL_VFS, self.total, 0);
        cap.u16(offset::TOTAL_VFS, self.total, 0);
        cap.u16(offset::NUM_VFS, 0, u16::MAX);
        cap.u16(offset::DEPENDENCY, self.dependency.into(), 0);
        cap.u16(offset::FIRST_OFFSET, self.first_offset, 0);
        cap.u16(offset::STRIDE, self.stride, 0);
        cap.u16(offset::DEVICE, self.device, 0);
        cap.u32(offset::SUPPORTED_PAGES, self.page_sizes, 0);
        cap.u32(offset::PAGE, Held::FRESH.page, self.page_sizes);
        for (index, bar) in self.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let at = offset::BAR0 + 4 * index;
            let mask = self.mask(*bar, Held::FRESH.page);
            cap.u32(at, bar.type_bits().into(), mask as u32);
            if bar.kind == BarKind::Memory64 {
                cap.u32(at + 4, 0, (mask >> 32) as u32);
            }
        }
        cap
    }

    fn offset(&self, control: u16) -> u16 {
        match control & control::ARI {
            0 => self.first_offset,
            _ => self.ari_offset,
        }
    }

    /// Bytes that a VF's BAR decodes with this system page size.
    pub(crate) fn size(&self, bar: Bar, page: u32) -> u64 {
        bar.size.max(u64::from(page) << 12)
    }

    pub(crate) fn mask(&self, bar: Bar, page: u32) -> u64 {
        !(self.size(bar, page) - 1)
    }
}

/// The capability in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub at: usize,
    pub cap: Sriov,
}

/// What the world sees of it, for events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub vfs: u16,
    pub memory: bool,
    pub bars: [u32; 6],
}

impl Placed {
    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let at = self.at + at;
        u16::from_le_bytes([bytes[at], bytes[at + 1]])
    }

    pub(crate) fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        u32::from(self.u16(bytes, at)) | u32::from(self.u16(bytes, at + 2)) << 16
    }

    fn put(&self, bytes: &mut [u8], at: usize, value: &[u8]) {
        let at = self.at + at;
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    pub fn held(&self, bytes: &[u8]) -> Held {
        Held {
            control: self.u16(bytes, offset::CONTROL),
            vfs: self.u16(bytes, offset::NUM_VFS),
            page: self.u32(bytes, offset::PAGE),
        }
    }

    /// Takes back what a write may not do. `before` is how it was: [`Held::FRESH`] when the bytes
    /// come from outside.
    pub fn settle(&self, bytes: &mut [u8], before: Held) {
        let now = self.held(bytes);
        let exist = before.control & control::ENABLE != 0;
        if exist && now.control & control::ENABLE != 0 {
            let ari = before.control & control::ARI | now.control & !control::ARI;
            self.put(bytes, offset::CONTROL, &ari.to_le_bytes());
        }
        let first = self.cap.offset(self.u16(bytes, offset::CONTROL));
        self.put(bytes, offset::FIRST_OFFSET, &first.to_le_bytes());
        if now.vfs > self.cap.total || exist {
            self.put(bytes, offset::NUM_VFS, &before.vfs.to_le_bytes());
        }
        let mut page = now.page;
        if exist || !page.is_power_of_two() || page & self.cap.page_sizes == 0 {
            page = before.page;
            self.put(bytes, offset::PAGE, &page.to_le_bytes());
        }
        for (index, bar) in self.cap.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let at = offset::BAR0 + 4 * index;
            let mask = self.cap.mask(*bar, page);
            let low = self.u32(bytes, at) & mask as u32 | u32::from(bar.type_bits());
            self.put(bytes, at, &low.to_le_bytes());
            if bar.kind == BarKind::Memory64 {
                let high = self.u32(bytes, at + 4) & (mask >> 32) as u32;
                self.put(bytes, at + 4, &high.to_le_bytes());
            }
        }
    }

    pub fn seen(&self, bytes: &[u8]) -> Seen {
        let Held { control, vfs, .. } = self.held(bytes);
        let exist = control & control::ENABLE != 0;
        Seen {
            vfs: if exist { vfs } else { 0 },
            memory: exist && control & control::MEMORY != 0,
            bars: std::array::from_fn(|index| self.u32(bytes, offset::BAR0 + 4 * index)),
        }
    }
}
