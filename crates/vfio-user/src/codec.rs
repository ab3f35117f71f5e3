//! Messages as bytes, and bytes as messages. Pure: no socket, no allocation except for the JSON of
//! `VERSION`.
//!
//! Every message starts with a 16-byte [`Header`] in host byte order; what follows depends on the
//! command (vfio-user specification, "Message Header" and "VFIO-user Commands"). Parsing takes a
//! byte slice and either gives the whole structure or [`Malformed`]; it never looks past the slice
//! and never trusts a length in it.

pub mod feature;
mod malformed;
mod payload;
mod version;

pub use malformed::Malformed;
pub use payload::{
    DeviceFeature, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, IrqInfo, LogControl, LogRange,
    LogReport, MigrationData, RegionAccess, RegionInfo, RegionIoFds, SetIrqs, SparseArea,
    StateChange, WriteEntry, dma_flags, dma_unmap_flags, info_flags, irq_info_flags, irq_set,
    region_flags, sparse_areas, sparse_capability,
};
pub use version::{Capabilities, MigrationLimits, TwinSocket, Version};

/// Bytes of a [`Header`].
pub const HEADER_LEN: usize = 16;

/// Bytes that a message may have beyond its data: header and the largest fixed part.
pub const MESSAGE_OVERHEAD: usize = 4096;

/// Indices of the regions of a PCI device (`VFIO_PCI_*_REGION_INDEX`).
pub mod region {
    /// First of the six BARs.
    pub const BAR0: u32 = 0;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// Legacy VGA ranges.
    pub const VGA: u32 = 8;
    /// How many there are.
    pub const COUNT: u32 = 9;
}

/// Indices of the interrupts of a PCI device (`VFIO_PCI_*_IRQ_INDEX`).
pub mod irq {
    /// The INTx pin.
    pub const INTX: u32 = 0;
    /// MSI vectors.
    pub const MSI: u32 = 1;
    /// MSI-X vectors.
    pub const MSIX: u32 = 2;
    /// Uncorrectable error notification.
    pub const ERR: u32 = 3;
    /// Request to give the device back.
    pub const REQ: u32 = 4;
    /// How many there are.
    pub const COUNT: u32 = 5;
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Negotiates version and capabilities; always the first message.
    Version = 1,
    /// Gives the server a region of guest memory.
    DmaMap = 2,
    /// Takes it away.
    DmaUnmap = 3,
    /// Asks for the number of regions and interrupts.
    GetInfo = 4,
    /// Asks for a region's size and mappable areas.
    GetRegionInfo = 5,
    /// Asks for ioeventfds of a region.
    GetRegionIoFds = 6,
    /// Asks for an interrupt index' vectors.
    GetIrqInfo = 7,
    /// Arms, masks or triggers interrupts.
    SetIrqs = 8,
    /// Reads registers.
    RegionRead = 9,
    /// Writes registers.
    RegionWrite = 10,
    /// Server to client: reads guest memory.
    DmaRead = 11,
    /// Server to client: writes guest memory.
    DmaWrite = 12,
    /// Resets the device.
    Reset = 13,
    /// Writes many registers at once.
    RegionWriteMulti = 15,
    /// Gets or sets a feature (migration).
    DeviceFeature = 16,
    /// Reads migration data.
    MigrationRead = 17,
    /// Writes migration data.
    MigrationWrite = 18,
}

impl Command {
    /// The command with this number.
    pub fn from_u16(value: u16) -> Option<Self> {
        Some(match value {
            1 => Self::Version,
            2 => Self::DmaMap,
            3 => Self::DmaUnmap,
            4 => Self::GetInfo,
            5 => Self::GetRegionInfo,
            6 => Self::GetRegionIoFds,
            7 => Self::GetIrqInfo,
            8 => Self::SetIrqs,
            9 => Self::RegionRead,
            10 => Self::RegionWrite,
            11 => Self::DmaRead,
            12 => Self::DmaWrite,
            13 => Self::Reset,
            15 => Self::RegionWriteMulti,
            16 => Self::DeviceFeature,
            17 => Self::MigrationRead,
            18 => Self::MigrationWrite,
            _ => return None,
        })
    }

    /// Position in a table of counters.
    pub(crate) fn slot(self) -> usize {
        self as usize
    }
}

/// Bits of [`Header::flags`].
pub mod flags {
    /// The message type: 0 command, 1 reply.
    pub const TYPE: u32 = 0xf;
    /// Type of a reply.
    pub const REPLY: u32 = 1;
    /// The sender wants no reply.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The reply is an error; the errno field says which.
    pub const ERROR: u32 = 1 << 5;
}

/// The header of every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender of the command, echoed by the reply. May repeat.
    pub id: u16,
    /// Raw command number; see [`Command`].
    pub command: u16,
    /// Bytes of the whole message, this header included.
    pub size: u32,
    /// See [`flags`].
    pub flags: u32,
    /// An errno value, in an error reply.
    pub error: u32,
}

impl Header {
    /// Reads a header from the first 16 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Some(Self {
            id: u16::from_ne_bytes([a, b]),
            command: u16::from_ne_bytes([c, d]),
            size: u32::from_ne_bytes([e, f, g, h]),
            flags: u32::from_ne_bytes([i, j, k, l]),
            error: u32::from_ne_bytes([m, n, o, p]),
        })
    }

    /// The 16 bytes of this header.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.error.to_ne_bytes());
        bytes
    }

    /// A command with `payload` bytes after the header.
    pub fn command(id: u16, command: Command, payload: usize) -> Self {
        Self {
            id,
            command: command as u16,
            size: (HEADER_LEN + payload) as u32,
            flags: 0,
            error: 0,
        }
    }

    /// The reply to this command, with `payload` bytes after the header.
    pub fn reply(&self, payload: usize) -> Self {
        Self {
            size: (HEADER_LEN + payload) as u32,
            flags: flags::REPLY,
            error: 0,
            ..*self
        }
    }

    /// The error reply to this command; header only, as the specification has it.
    pub fn error_reply(&self, errno: u32) -> Self {
        Self {
            size: HEADER_LEN as u32,
            flags: flags::REPLY | flags::ERROR,
            error: errno,
            ..*self
        }
    }

    /// This is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & flags::TYPE == flags::REPLY
    }

    /// This is a command.
    pub fn is_command(&self) -> bool {
        self.flags & flags::TYPE == 0
    }

    /// The sender wants no reply.
    pub fn no_reply(&self) -> bool {
        self.flags & flags::NO_REPLY != 0
    }

    /// This is an error reply.
    pub fn is_error(&self) -> bool {
        self.flags & flags::ERROR != 0
    }
}
