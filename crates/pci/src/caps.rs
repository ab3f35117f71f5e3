//! Capabilities as bytes with their write masks.

/// Bytes of a capability, id and next pointer included, with the masks that go with them.
pub(crate) struct Encoded {
    pub bytes: Vec<u8>,
    pub writable: Vec<u8>,
    pub w1c: Vec<u8>,
}

impl Encoded {
    fn new(id: u8, len: usize) -> Self {
        let mut bytes = vec![0; len];
        bytes[0] = id;
        Self {
            bytes,
            writable: vec![0; len],
            w1c: vec![0; len],
        }
    }

    fn u16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }
}

/// Capability ids (PCI Code and ID Assignment §2).
pub(crate) mod id {
    pub const PM: u8 = 0x01;
    pub const MSI: u8 = 0x05;
    pub const VENDOR: u8 = 0x09;
    pub const PCIE: u8 = 0x10;
    pub const MSIX: u8 = 0x11;
}

/// An entry of the capability list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Power management (PCI PM 1.2 §3.2).
    PowerManagement(PowerManagement),
    /// Message signalled interrupts (PCI Local Bus 3.0 §6.8.1).
    Msi(Msi),
    /// MSI-X (PCI Local Bus 3.0 §6.8.2).
    Msix(Msix),
    /// PCI Express (PCI Express Base 3.0 §7.8).
    Pcie(Pcie),
    /// A vendor-specific one through which software without memory accesses reaches the BARs (virtio 1.4 §4.1.4.9).
    Window(Window),
    /// Anything else, vendor-specific ones included.
    Raw(Raw),
}

impl Capability {
    pub(crate) fn encode(&self) -> Encoded {
        match self {
            Self::PowerManagement(c) => c.encode(),
            Self::Msi(c) => c.encode(),
            Self::Msix(c) => c.encode(),
            Self::Pcie(c) => c.encode(),
            Self::Window(_) => Window::encode(),
            Self::Raw(c) => c.encode(),
        }
    }

    pub(crate) fn valid(&self) -> bool {
        match self {
            Self::Msi(c) => c.vectors.is_power_of_two() && c.vectors <= 32,
            Self::Msix(c) => {
                (1..=2048).contains(&c.vectors)
                    && c.table_bar < 6
                    && c.pba_bar < 6
                    && c.table_offset.is_multiple_of(8)
                    && c.pba_offset.is_multiple_of(8)
            }
            Self::Raw(c) => c.masks_fit(),
            Self::PowerManagement(_) | Self::Pcie(_) | Self::Window(_) => true,
        }
    }
}

/// The power management capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerManagement {
    /// State D1 exists.
    pub d1: bool,
    /// State D2 exists.
    pub d2: bool,
    /// The function keeps its configuration from D3hot to D0 (PMCSR bit 3).
    pub no_soft_reset: bool,
    /// The states from which PME# can be signalled, as in PMC bits 15:11.
    pub pme: u8,
    /// Device specific initialization needed (PMC bit 5).
    pub dsi: bool,
}

impl PowerManagement {
    fn encode(&self) -> Encoded {
        let mut cap = Encoded::new(id::PM, 8);
        let pmc = 2
            | (self.dsi as u16) << 5
            | (self.d1 as u16) << 9
            | (self.d2 as u16) << 10
            | u16::from(self.pme & 0x1f) << 11;
        cap.u16(2, pmc, 0);
        let pme_enable = if self.pme != 0 { 1 << 8 } else { 0 };
        cap.u16(4, (self.no_soft_reset as u16) << 3, 0x3 | pme_enable);
        if self.pme != 0 {
            cap.w1c[5] = 0x80;
        }
        cap
    }
}

/// The MSI capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msi {
    pub(crate) vectors: u8,
    pub(crate) address64: bool,
    pub(crate) masking: bool,
}

impl Msi {
    /// `vectors` messages can be asked for: a power of two up to 32.
    pub const fn new(vectors: u8) -> Self {
        Self {
            vectors,
            address64: false,
            masking: false,
        }
    }

    /// The message address has 64 bits.
    #[must_use]
    pub const fn address64(mut self) -> Self {
        self.address64 = true;
        self
    }

    /// Each vector can be masked, and shows a pending bit.
    #[must_use]
    pub const fn masking(mut self) -> Self {
        self.masking = true;
        self
    }

    /// Messages that can be asked for.
    pub const fn vectors(&self) -> u8 {
        self.vectors
    }

    /// Offset of the mask bits inside the capability, if it has them.
    pub(crate) fn mask_offset(&self) -> Option<usize> {
        self.masking
            .then_some(if self.address64 { 0x10 } else { 0x0c })
    }

    fn encode(&self) -> Encoded {
        let len = match (self.address64, self.masking) {
            (false, false) => 0x0a,
            (true, false) => 0x0e,
            (false, true) => 0x14,
            (true, true) => 0x18,
        };
        let mut cap = Encoded::new(id::MSI, len);
        let log = u16::from(self.vectors.trailing_zeros() as u8);
        let control = log << 1 | (self.address64 as u16) << 7 | (self.masking as u16) << 8;
        cap.u16(2, control, 0x71);
        cap.u32(4, 0, 0xffff_fffc);
        let data = if self.address64 {
            cap.u32(8, 0, u32::MAX);
            0x0c
        } else {
            8
        };
        cap.u16(data, 0, 0xffff);
        if let Some(mask) = self.mask_offset() {
            let bits = (u64::MAX >> (64 - u32::from(self.vectors))) as u32;
            cap.u32(mask, 0, bits);
        }
        cap
    }
}

/// The MSI-X capability and where its structures lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msix {
    /// Vectors, 1 to 2048.
    pub vectors: u16,
    /// BAR with the vector table.
    pub table_bar: u8,
    /// Offset of the table in that BAR, a multiple of 8; 16 bytes per vector.
    pub table_offset: u32,
    /// BAR with the pending bit array.
    pub pba_bar: u8,
    /// Offset of the array in that BAR, a multiple of 8; one bit per vector.
    pub pba_offset: u32,
}

impl Msix {
    /// Bytes of the vector table.
    pub const fn table_len(&self) -> u64 {
        self.vectors as u64 * 16
    }

    /// Bytes of the pending bit array.
    pub const fn pba_len(&self) -> u64 {
        (self.vectors as u64).div_ceil(64) * 8
    }

    fn encode(&self) -> Encoded {
        let mut cap = Encoded::new(id::MSIX, 12);
        cap.u16(2, (self.vectors.wrapping_sub(1)) & 0x7ff, 0xc000);
        cap.u32(4, self.table_offset & !7 | u32::from(self.table_bar), 0);
        cap.u32(8, self.pba_offset & !7 | u32::from(self.pba_bar), 0);
        cap
    }
}

/// The PCI Express capability, version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcie {
    /// Device/port type: 0 endpoint, 1 legacy endpoint, 9 root complex integrated endpoint.
    pub port_type: u8,
    /// Max payload size supported, as log2(bytes) - 7.
    pub max_payload: u8,
    /// Function level reset exists.
    pub flr: bool,
    /// Link speed code: 1 is 2.5 GT/s, 2 is 5 GT/s.
    pub link_speed: u8,
    /// Link width in lanes.
    pub link_width: u8,
}

impl Pcie {
    /// An endpoint with function level reset on a 2.5 GT/s x4 link.
    pub const fn endpoint() -> Self {
        Self {
            port_type: 0,
            max_payload: 1,
            flr: true,
            link_speed: 1,
            link_width: 4,
        }
    }

    fn encode(&self) -> Encoded {
        let mut cap = Encoded::new(id::PCIE, 0x3c);
        cap.u16(2, 2 | u16::from(self.port_type & 0xf) << 4, 0);
        let devcap = u32::from(self.max_payload & 7) | 1 << 15 | (self.flr as u32) << 28;
        cap.u32(4, devcap, 0);
        // Relaxed ordering and no-snoop start enabled, max read request 512 bytes (§7.8.4).
        cap.u16(8, 0x2810, 0x7fff);
        cap.w1c[0x0a] = 0x0f;
        let link = u32::from(self.link_speed & 0xf) | u32::from(self.link_width & 0x3f) << 4;
        cap.u32(0x0c, link, 0);
        cap.u16(0x10, 0, 0x01cb);
        cap.u16(0x12, link as u16, 0);
        // Completion time-out ranges A-D and its disable bit (§7.8.15).
        cap.u32(0x24, 0x1f, 0);
        cap.u16(0x28, 0, 0x001f);
        cap.u32(0x2c, 1 << u32::from(self.link_speed & 0x7), 0);
        cap.u16(0x30, u16::from(self.link_speed & 0xf), 0x00ff);
        cap
    }
}

/// A window to the BARs: software writes which BAR, where and how many bytes, then reads or writes the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window;

impl Window {
    /// Bytes of the capability.
    const LEN: usize = 20;
    /// The kind of a virtio capability that it is.
    const KIND: u8 = 5;
    /// Where its fields are.
    pub(crate) const BAR: usize = 4;
    pub(crate) const OFFSET: usize = 8;
    pub(crate) const LENGTH: usize = 12;
    pub(crate) const DATA: usize = 16;

    fn encode() -> Encoded {
        let mut cap = Encoded::new(id::VENDOR, Self::LEN);
        cap.bytes[2] = Self::LEN as u8;
        cap.bytes[3] = Self::KIND;
        cap.writable[Self::BAR] = 0xff;
        cap.writable[Self::OFFSET..].fill(0xff);
        cap
    }
}

/// A capability given as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// Capability id.
    pub id: u8,
    /// What follows the id and the next pointer.
    pub body: Vec<u8>,
    /// Bits of `body` that software may write; empty for none.
    pub writable: Vec<u8>,
    /// Bits of `body` that a written one clears; empty for none.
    pub w1c: Vec<u8>,
}

impl Raw {
    fn masks_fit(&self) -> bool {
        self.body.len() <= 190
            && self.writable.len() <= self.body.len()
            && self.w1c.len() <= self.body.len()
    }

    fn encode(&self) -> Encoded {
        let mut cap = Encoded::new(self.id, 2 + self.body.len());
        cap.bytes[2..].copy_from_slice(&self.body);
        cap.writable[2..2 + self.writable.len()].copy_from_slice(&self.writable);
        cap.w1c[2..2 + self.w1c.len()].copy_from_slice(&self.w1c);
        cap
    }
}
