//! Describes a configuration space.

use crate::bar::{Bar, BarKind};
use crate::caps::Capability;
use crate::caps::Encoded;
use crate::extended::{Extended, Serial};
use crate::header::{offset, status};
use crate::space::ConfigSpace;
use crate::space::{Layout, PmLayout};
use crate::sriov::Placed;

/// Why a description makes no configuration space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The BAR's size or slot is impossible.
    #[error(
        "BAR {0}: sizes are powers of two in the range of their kind, and a 64-bit BAR needs the \
         next slot free"
    )]
    Bar(u8),
    /// The ROM's size is impossible.
    #[error("expansion ROM of {0} bytes: the size is a power of two from 2 KiB to 16 MiB")]
    Rom(u32),
    /// A capability's fields are out of range.
    #[error("capability {0:#04x}: a field is out of the range its specification allows")]
    Capability(u16),
    /// A capability overlaps another or leaves the space.
    #[error("capability {id:#04x} does not fit at {at:#05x}")]
    Place {
        /// Capability id.
        id: u16,
        /// Where it was to go.
        at: usize,
    },
    /// A capability that may exist once was given twice.
    #[error("capability {0:#04x} was given twice")]
    Twice(u16),
    /// Extended capabilities need the 4096-byte space.
    #[error("extended capabilities exist only in the 4096-byte space; call express()")]
    NotExpress,
    /// The interrupt pin is not 0 to 4.
    #[error("interrupt pin {0}: 0 is none, 1 to 4 are INTA# to INTD#")]
    Pin(u8),
}

/// Describes a configuration space; [`build`](Self::build) makes it.
#[derive(Clone, Debug)]
pub struct ConfigBuilder {
    express: bool,
    vendor: u16,
    device: u16,
    subsystem: (u16, u16),
    class: u32,
    revision: u8,
    status: u16,
    multifunction: bool,
    pin: u8,
    min_gnt: u8,
    max_lat: u8,
    bars: [Option<Bar>; 6],
    rom: Option<u32>,
    caps: Vec<(Option<u8>, Capability)>,
    ext: Vec<(Option<u16>, Extended)>,
}

impl ConfigBuilder {
    /// A conventional (256-byte) function with these ids and nothing else.
    pub fn new(vendor: u16, device: u16) -> Self {
        Self {
            express: false,
            vendor,
            device,
            subsystem: (0, 0),
            class: 0xff_00_00,
            revision: 0,
            status: 0,
            multifunction: false,
            pin: 0,
            min_gnt: 0,
            max_lat: 0,
            bars: [None; 6],
            rom: None,
            caps: Vec::new(),
            ext: Vec::new(),
        }
    }

    /// Gives the function the 4096-byte space of PCI Express.
    #[must_use]
    pub fn express(mut self) -> Self {
        self.express = true;
        self
    }

    /// Subsystem vendor id and subsystem id.
    #[must_use]
    pub fn subsystem(mut self, vendor: u16, id: u16) -> Self {
        self.subsystem = (vendor, id);
        self
    }

    /// Class code as 24 bits `class << 16 | subclass << 8 | interface`; Ethernet is 0x020000.
    #[must_use]
    pub fn class(mut self, class: u32) -> Self {
        self.class = class & 0xff_ffff;
        self
    }

    /// Revision id.
    #[must_use]
    pub fn revision(mut self, revision: u8) -> Self {
        self.revision = revision;
        self
    }

    /// Read-only status bits: 66 MHz, fast back-to-back, DEVSEL timing. The capability bit is set
    /// by the builder.
    #[must_use]
    pub fn status(mut self, bits: u16) -> Self {
        self.status = bits & 0x06e0;
        self
    }

    /// Sets the multi-function bit of the header type.
    #[must_use]
    pub fn multifunction(mut self) -> Self {
        self.multifunction = true;
        self
    }

    /// Interrupt pin: 0 none, 1 INTA# to 4 INTD#.
    #[must_use]
    pub fn interrupt_pin(mut self, pin: u8) -> Self {
        self.pin = pin;
        self
    }

    /// MIN_GNT and MAX_LAT, in units of 250 ns (PCI Local Bus 3.0 §6.2.4).
    #[must_use]
    pub fn timing(mut self, min_gnt: u8, max_lat: u8) -> Self {
        self.min_gnt = min_gnt;
        self.max_lat = max_lat;
        self
    }

    /// Puts a BAR in slot `index` (0 to 5); a 64-bit one takes the next slot too.
    #[must_use]
    pub fn bar(mut self, index: u8, bar: Bar) -> Self {
        if let Some(slot) = self.bars.get_mut(usize::from(index)) {
            *slot = Some(bar);
        }
        self
    }

    /// Gives the function an expansion ROM of `size` bytes, a power of two from 2 KiB.
    #[must_use]
    pub fn rom(mut self, size: u32) -> Self {
        self.rom = Some(size);
        self
    }

    /// Appends a capability at the next free place from 0x40 up.
    #[must_use]
    pub fn capability(mut self, capability: Capability) -> Self {
        self.caps.push((None, capability));
        self
    }

    /// Appends a capability at a fixed offset, a multiple of 4 from 0x40 up.
    #[must_use]
    pub fn capability_at(mut self, at: u8, capability: Capability) -> Self {
        self.caps.push((Some(at), capability));
        self
    }

    /// Appends an extended capability at the next free place from 0x100 up.
    #[must_use]
    pub fn extended(mut self, capability: impl Into<Extended>) -> Self {
        self.ext.push((None, capability.into()));
        self
    }

    /// Appends an extended capability at a fixed offset. The first one is always at 0x100.
    #[must_use]
    pub fn extended_at(mut self, at: u16, capability: impl Into<Extended>) -> Self {
        self.ext.push((Some(at), capability.into()));
        self
    }

    /// The BAR in slot `index`.
    pub fn get_bar(&self, index: u8) -> Option<Bar> {
        self.bars.get(usize::from(index)).copied().flatten()
    }

    /// The interrupt pin.
    pub fn get_interrupt_pin(&self) -> u8 {
        self.pin
    }

    /// The capabilities, in the order they were given.
    pub fn capabilities(&self) -> impl Iterator<Item = &Capability> {
        self.caps.iter().map(|(_, cap)| cap)
    }

    /// Makes the configuration space.
    ///
    /// # Errors
    /// The description asks for something PCI does not allow; the error names it.
    pub fn build(&self) -> Result<ConfigSpace, BuildError> {
        let mut image = Image::new(if self.express { 4096 } else { 256 });
        self.header(&mut image)?;
        self.bars(&mut image)?;
        let mut layout = Layout {
            bars: self.bars,
            rom: self.rom.is_some(),
            ..Layout::default()
        };
        self.chain(&mut image, &mut layout)?;
        self.extended_chain(&mut image, &mut layout)?;
        Ok(ConfigSpace::new(
            image.bytes,
            image.writable,
            image.w1c,
            layout,
        ))
    }

    fn header(&self, image: &mut Image) -> Result<(), BuildError> {
        if self.pin > 4 {
            return Err(BuildError::Pin(self.pin));
        }
        image.put(offset::VENDOR, &self.vendor.to_le_bytes());
        image.put(offset::DEVICE, &self.device.to_le_bytes());
        image.put(offset::STATUS, &self.status.to_le_bytes());
        image.put(offset::REVISION, &[self.revision]);
        image.put(offset::CLASS, &self.class.to_le_bytes()[..3]);
        image.put(0x0e, &[(self.multifunction as u8) << 7]);
        image.put(offset::SUBSYSTEM_VENDOR, &self.subsystem.0.to_le_bytes());
        image.put(offset::SUBSYSTEM, &self.subsystem.1.to_le_bytes());
        image.put(
            offset::INTERRUPT_PIN,
            &[self.pin, self.min_gnt, self.max_lat],
        );

        let has = |kind: fn(BarKind) -> bool| self.bars.iter().flatten().any(|b| kind(b.kind));
        let mut writable: u16 = crate::header::command::MASTER | 0x0150;
        if has(|k| k == BarKind::Io) {
            writable |= crate::header::command::IO;
        }
        if has(|k| k != BarKind::Io) || self.rom.is_some() {
            writable |= crate::header::command::MEMORY;
        }
        if self.pin != 0 {
            writable |= crate::header::command::INTX_DISABLE;
        }
        image.allow(offset::COMMAND, &writable.to_le_bytes());
        image.w1c[offset::STATUS..offset::STATUS + 2]
            .copy_from_slice(&status::ERRORS.to_le_bytes());
        // Cache line size and latency timer are software's scratch (§6.2.4).
        image.allow(0x0c, &[0xff, 0xff]);
        image.allow(offset::INTERRUPT_LINE, &[0xff]);
        Ok(())
    }

    fn bars(&self, image: &mut Image) -> Result<(), BuildError> {
        for (index, bar) in self.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let wide = bar.kind == BarKind::Memory64;
            if !bar.valid() || wide && (index == 5 || self.bars[index + 1].is_some()) {
                return Err(BuildError::Bar(index as u8));
            }
            let at = offset::BAR0 + 4 * index;
            image.put(at, &[bar.type_bits()]);
            let mask = bar.mask().to_le_bytes();
            image.allow(at, &mask[..if wide { 8 } else { 4 }]);
        }
        if let Some(size) = self.rom {
            if !size.is_power_of_two() || !(2 << 10..=16 << 20).contains(&size) {
                return Err(BuildError::Rom(size));
            }
            image.allow(offset::ROM, &(!(size - 1) | 1).to_le_bytes());
        }
        Ok(())
    }

    fn chain(&self, image: &mut Image, layout: &mut Layout) -> Result<(), BuildError> {
        let mut used = [false; 256];
        used[..0x40].fill(true);
        let mut link = offset::CAPABILITIES;
        for (fixed, cap) in &self.caps {
            let Encoded {
                bytes,
                writable,
                w1c,
            } = cap.encode_checked()?;
            let id = u16::from(bytes[0]);
            let free = |at: usize| {
                at.is_multiple_of(4)
                    && at + bytes.len() <= 256
                    && !used[at..at + bytes.len()].contains(&true)
            };
            let at = match fixed {
                Some(at) => Some(usize::from(*at)).filter(|at| free(*at)),
                None => (0x40..256).step_by(4).find(|at| free(*at)),
            }
            .ok_or(BuildError::Place {
                id,
                at: fixed.map_or(256, usize::from),
            })?;
            used[at..at + bytes.len()].fill(true);
            image.put(at, &bytes);
            image.allow(at, &writable);
            image.w1c[at..at + w1c.len()].copy_from_slice(&w1c);
            image.bytes[link] = at as u8;
            link = at + 1;
            let slot = match cap {
                Capability::PowerManagement(pm) => {
                    let slot = PmLayout {
                        at,
                        d1: pm.d1,
                        d2: pm.d2,
                        no_soft_reset: pm.no_soft_reset,
                    };
                    layout.pm.replace(slot).is_some()
                }
                Capability::Msi(msi) => layout.msi.replace((at, *msi)).is_some(),
                Capability::Msix(_) => layout.msix.replace(at).is_some(),
                Capability::Pcie(pcie) => layout.pcie.replace((at, pcie.flr)).is_some(),
                Capability::Window(_) => layout.window.replace(at).is_some(),
                Capability::Raw(_) => false,
            };
            if slot {
                return Err(BuildError::Twice(id));
            }
        }
        if !self.caps.is_empty() {
            image.bytes[offset::STATUS] |= status::CAPABILITIES as u8;
        }
        Ok(())
    }

    fn extended_chain(&self, image: &mut Image, layout: &mut Layout) -> Result<(), BuildError> {
        if self.ext.is_empty() {
            return Ok(());
        }
        if !self.express {
            return Err(BuildError::NotExpress);
        }
        let mut used = vec![false; 4096];
        used[..0x100].fill(true);
        let mut last: Option<usize> = None;
        for (fixed, cap) in &self.ext {
            let valid = cap.valid();
            let kind = cap;
            let cap = cap.encode();
            if !valid {
                return Err(BuildError::Capability(cap.id));
            }
            let len = 4 + cap.body.len();
            let free = |at: usize| {
                at.is_multiple_of(4)
                    && at + len <= 4096
                    && !used[at..at + len].contains(&true)
                    && (last.is_some() || at == 0x100)
            };
            let at = match fixed {
                Some(at) => Some(usize::from(*at)).filter(|at| free(*at)),
                None => (0x100..4096).step_by(4).find(|at| free(*at)),
            }
            .ok_or(BuildError::Place {
                id: cap.id,
                at: fixed.map_or(4096, usize::from),
            })?;
            used[at..at + len].fill(true);
            let header = u32::from(cap.id) | u32::from(cap.version) << 16;
            image.put(at, &header.to_le_bytes());
            image.put(at + 4, &cap.body);
            image.allow(at + 4, &cap.writable);
            image.w1c[at + 4..at + 4 + cap.w1c.len()].copy_from_slice(&cap.w1c);
            if let Some(last) = last {
                // Bits 31:20 of the header are the next offset.
                image.bytes[last + 2] |= ((at as u16) << 4) as u8;
                image.bytes[last + 3] = (at >> 4) as u8;
            }
            last = Some(at);
            let twice = match kind {
                Extended::Sriov(sriov) => {
                    let placed = Placed { at, cap: *sriov };
                    layout.sriov.replace(placed).is_some()
                }
                Extended::Serial(_) => layout.serial.replace(at + Serial::AT).is_some(),
                _ => false,
            };
            if twice {
                return Err(BuildError::Twice(cap.id));
            }
        }
        Ok(())
    }
}

impl Capability {
    fn encode_checked(&self) -> Result<Encoded, BuildError> {
        if self.valid() {
            return Ok(self.encode());
        }
        let id = match self {
            Self::PowerManagement(_) => crate::caps::id::PM,
            Self::Msi(_) => crate::caps::id::MSI,
            Self::Msix(_) => crate::caps::id::MSIX,
            Self::Pcie(_) => crate::caps::id::PCIE,
            Self::Window(_) => crate::caps::id::VENDOR,
            Self::Raw(raw) => raw.id,
        };
        Err(BuildError::Capability(id.into()))
    }
}

struct Image {
    bytes: Box<[u8]>,
    writable: Box<[u8]>,
    w1c: Box<[u8]>,
}

impl Image {
    fn new(len: usize) -> Self {
        let zero = || vec![0; len].into_boxed_slice();
        Self {
            bytes: zero(),
            writable: zero(),
            w1c: zero(),
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }
}
