//! The fixed parts of every command and reply.

use super::malformed::Malformed;

macro_rules! payload {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)+ }

        impl $name {
            /// Bytes on the wire.
            pub const LEN: usize = 0 $(+ size_of::<$ty>())+;

            /// Reads the structure from the start of a payload; what follows is left alone.
            ///
            /// # Errors
            /// The payload is shorter than the structure.
            pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
                const SHORT: Malformed =
                    Malformed(concat!(stringify!($name), ": the payload is too short"));
                let rest = payload;
                $(
                    let (bytes, rest) = rest.split_first_chunk().ok_or(SHORT)?;
                    let $field = <$ty>::from_ne_bytes(*bytes);
                )+
                let _ = rest;
                Ok(Self { $($field),+ })
            }

            /// The bytes of the structure.
            pub fn to_bytes(&self) -> [u8; Self::LEN] {
                let mut out = [0; Self::LEN];
                let mut at = 0;
                $(
                    let bytes = self.$field.to_ne_bytes();
                    out[at..at + bytes.len()].copy_from_slice(&bytes);
                    at += bytes.len();
                )+
                debug_assert_eq!(at, Self::LEN);
                out
            }
        }
    };
}

payload! {
    /// `DMA_MAP`: a region of guest memory, with at most one file descriptor.
    DmaMap {
        /// Size of this structure.
        argsz: u32,
        /// See [`dma_flags`].
        flags: u32,
        /// Where the region starts in the file.
        offset: u64,
        /// I/O virtual address of the region.
        iova: u64,
        /// Bytes.
        size: u64,
    }
}

/// Bits of [`DmaMap::flags`].
pub mod dma_flags {
    /// The device may read.
    pub const READ: u32 = 1 << 0;
    /// The device may write.
    pub const WRITE: u32 = 1 << 1;
    /// The region is to be reached by mapping (a proposed extension of libvfio-user).
    pub const MMAP: u32 = 1 << 2;
}

payload! {
    /// `DMA_UNMAP`, request and reply.
    DmaUnmap {
        /// Size of this structure, in a request that of the whole reply it can take.
        argsz: u32,
        /// See [`dma_unmap_flags`].
        flags: u32,
        /// I/O virtual address.
        iova: u64,
        /// Bytes.
        size: u64,
    }
}

/// Bits of [`DmaUnmap::flags`].
pub mod dma_unmap_flags {
    /// Append the dirty bitmap to the reply.
    pub const GET_DIRTY_BITMAP: u32 = 1 << 0;
    /// Unmap everything; address and size are 0.
    pub const ALL: u32 = 1 << 1;
}

payload! {
    /// `GET_INFO`, request and reply.
    DeviceInfo {
        /// In a request, the bytes the client can take.
        argsz: u32,
        /// See [`info_flags`].
        flags: u32,
        /// Region indices.
        num_regions: u32,
        /// Interrupt indices.
        num_irqs: u32,
    }
}

/// Bits of [`DeviceInfo::flags`].
pub mod info_flags {
    /// `RESET` is supported.
    pub const RESET: u32 = 1 << 0;
    /// It is a PCI device.
    pub const PCI: u32 = 1 << 1;
}

payload! {
    /// `GET_REGION_INFO`, request and reply. Capabilities may follow the reply.
    RegionInfo {
        /// In a request, the bytes the client can take; in a reply, the bytes there are.
        argsz: u32,
        /// See [`region_flags`].
        flags: u32,
        /// Which region.
        index: u32,
        /// Where the capabilities start, counted from this structure; 0 for none.
        cap_offset: u32,
        /// Bytes.
        size: u64,
        /// Where the region starts in the file descriptor of the reply.
        offset: u64,
    }
}

/// Bits of [`RegionInfo::flags`].
pub mod region_flags {
    /// The region can be read.
    pub const READ: u32 = 1 << 0;
    /// The region can be written.
    pub const WRITE: u32 = 1 << 1;
    /// The region, or areas of it, can be mapped.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow.
    pub const CAPS: u32 = 1 << 3;
}

/// A part of a region that can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseArea {
    /// Offset in the region, a multiple of the page size.
    pub offset: u64,
    /// Bytes, a multiple of the page size.
    pub size: u64,
}

/// Capability id of the sparse areas (`VFIO_REGION_INFO_CAP_SPARSE_MMAP`).
const SPARSE_MMAP: u16 = 1;

/// The sparse-mmap capability that follows a [`RegionInfo`].
pub fn sparse_capability(areas: &[SparseArea]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 16 * areas.len());
    out.extend_from_slice(&SPARSE_MMAP.to_ne_bytes());
    out.extend_from_slice(&1u16.to_ne_bytes());
    out.extend_from_slice(&0u32.to_ne_bytes());
    out.extend_from_slice(&(areas.len() as u32).to_ne_bytes());
    out.extend_from_slice(&0u32.to_ne_bytes());
    for area in areas {
        out.extend_from_slice(&area.offset.to_ne_bytes());
        out.extend_from_slice(&area.size.to_ne_bytes());
    }
    out
}

/// Finds the sparse areas in a whole `GET_REGION_INFO` reply payload. Empty when the region has no
/// such capability.
///
/// # Errors
/// The chain of capabilities leaves the payload or goes backwards.
pub fn sparse_areas(payload: &[u8]) -> Result<Vec<SparseArea>, Malformed> {
    const BAD: Malformed = Malformed("RegionInfo: the capability chain is broken");
    let info = RegionInfo::parse(payload)?;
    if info.flags & region_flags::CAPS == 0 {
        return Ok(Vec::new());
    }
    let mut at = info.cap_offset as usize;
    while at != 0 {
        let cap = payload.get(at..).ok_or(BAD)?;
        let (head, body) = cap.split_first_chunk::<8>().ok_or(BAD)?;
        let id = u16::from_ne_bytes([head[0], head[1]]);
        let next = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if id == SPARSE_MMAP {
            let (count, areas) = body.split_first_chunk::<8>().ok_or(BAD)?;
            let count = u32::from_ne_bytes([count[0], count[1], count[2], count[3]]) as usize;
            let (areas, _) = areas.as_chunks::<16>();
            let areas = areas.get(..count).ok_or(BAD)?;
            return Ok(areas
                .iter()
                .map(|a| {
                    let word =
                        |i: usize| u64::from_ne_bytes(*a[i..].first_chunk().unwrap_or(&[0; 8]));
                    SparseArea {
                        offset: word(0),
                        size: word(8),
                    }
                })
                .collect());
        }
        if next != 0 && next <= at {
            return Err(BAD);
        }
        at = next;
    }
    Ok(Vec::new())
}

payload! {
    /// `GET_REGION_IO_FDS`, request and reply. Sub-regions may follow the reply.
    RegionIoFds {
        /// In a request, the bytes the client can take; in a reply, the bytes there are.
        argsz: u32,
        /// Zero.
        flags: u32,
        /// Which region.
        index: u32,
        /// Sub-regions that follow.
        count: u32,
    }
}

payload! {
    /// `GET_IRQ_INFO`, request and reply.
    IrqInfo {
        /// In a request, the bytes the client can take.
        argsz: u32,
        /// See [`irq_info_flags`].
        flags: u32,
        /// Which interrupt index.
        index: u32,
        /// Vectors.
        count: u32,
    }
}

/// Bits of [`IrqInfo::flags`].
pub mod irq_info_flags {
    /// Signalled through an eventfd.
    pub const EVENTFD: u32 = 1 << 0;
    /// Can be masked and unmasked.
    pub const MASKABLE: u32 = 1 << 1;
    /// Masks itself when it fires.
    pub const AUTOMASKED: u32 = 1 << 2;
    /// All vectors must be set up at once.
    pub const NORESIZE: u32 = 1 << 3;
}

payload! {
    /// `SET_IRQS`. Booleans may follow; eventfds come as file descriptors.
    SetIrqs {
        /// Size of this structure and the booleans.
        argsz: u32,
        /// See [`irq_set`].
        flags: u32,
        /// Which interrupt index.
        index: u32,
        /// First vector.
        start: u32,
        /// Vectors.
        count: u32,
    }
}

/// Bits of [`SetIrqs::flags`]: one of the `DATA_*` and one of the `ACTION_*`.
pub mod irq_set {
    /// The action applies to every vector of the range.
    pub const DATA_NONE: u32 = 1 << 0;
    /// One byte per vector says whether the action applies.
    pub const DATA_BOOL: u32 = 1 << 1;
    /// One eventfd per vector triggers the action; none at all takes them back.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// Mask.
    pub const ACTION_MASK: u32 = 1 << 3;
    /// Unmask.
    pub const ACTION_UNMASK: u32 = 1 << 4;
    /// Trigger.
    pub const ACTION_TRIGGER: u32 = 1 << 5;
    /// The three data bits.
    pub const DATA: u32 = DATA_NONE | DATA_BOOL | DATA_EVENTFD;
    /// The three action bits.
    pub const ACTION: u32 = ACTION_MASK | ACTION_UNMASK | ACTION_TRIGGER;
}

payload! {
    /// `REGION_READ` and `REGION_WRITE`; the data follow.
    RegionAccess {
        /// Where in the region.
        offset: u64,
        /// Which region.
        region: u32,
        /// Bytes of data.
        count: u32,
    }
}

payload! {
    /// One write of `REGION_WRITE_MULTI`; a u64 with their number comes first.
    WriteEntry {
        /// Where in the region.
        offset: u64,
        /// Which region.
        region: u32,
        /// Bytes of `data` that count, at most 8.
        count: u32,
        /// The data, as it lies in memory.
        data: u64,
    }
}

payload! {
    /// `DMA_READ` and `DMA_WRITE`, request and reply; the data follow.
    DmaAccess {
        /// I/O virtual address.
        iova: u64,
        /// Bytes of data.
        count: u64,
    }
}

payload! {
    /// `DEVICE_FEATURE`; the feature's data follow.
    DeviceFeature {
        /// Bytes, data included.
        argsz: u32,
        /// Feature in bits 15:0; GET 1<<16, SET 1<<17, PROBE 1<<18.
        flags: u32,
    }
}

payload! {
    /// `MIG_DATA_READ` and `MIG_DATA_WRITE`; the data follow a reply to the one and a request of the other.
    MigrationData {
        /// Bytes, data included.
        argsz: u32,
        /// Bytes of data.
        size: u32,
    }
}

payload! {
    /// Data of [`feature::STATE`](super::feature::STATE).
    StateChange {
        /// See [`MigrationState`](super::feature::MigrationState).
        state: u32,
        /// Not used by vfio-user.
        fd: i32,
    }
}

payload! {
    /// Data of [`feature::LOG_START`](super::feature::LOG_START); the ranges follow.
    LogControl {
        /// The page size asked for, in a reply the one that is kept.
        page_size: u64,
        /// Ranges that follow; none: everything.
        ranges: u32,
        /// Zero.
        reserved: u32,
    }
}

payload! {
    /// A range of [`LogControl`].
    LogRange {
        /// I/O virtual address.
        iova: u64,
        /// Bytes.
        len: u64,
    }
}

payload! {
    /// Data of [`feature::LOG_REPORT`](super::feature::LOG_REPORT); in the reply a bitmap follows, in words of 8 bytes.
    LogReport {
        /// I/O virtual address.
        iova: u64,
        /// Bytes.
        len: u64,
        /// Bytes that one bit stands for.
        page_size: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_specification() {
        let lens = [
            DmaMap::LEN,
            DmaUnmap::LEN,
            DeviceInfo::LEN,
            RegionInfo::LEN,
            RegionIoFds::LEN,
            IrqInfo::LEN,
            SetIrqs::LEN,
            RegionAccess::LEN,
            WriteEntry::LEN,
            DmaAccess::LEN,
        ];
        assert_eq!(lens, [32, 24, 16, 32, 16, 16, 20, 16, 24, 16]);
    }

    #[test]
    fn structures_survive_the_wire_and_short_ones_are_refused() {
        let map = DmaMap {
            argsz: 32,
            flags: 3,
            offset: 0x1000,
            iova: 0xdead_0000,
            size: 0x2000,
        };
        let bytes = map.to_bytes();
        assert_eq!(DmaMap::parse(&bytes), Ok(map));
        for cut in 0..bytes.len() {
            assert!(DmaMap::parse(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn sparse_areas_survive_the_wire_and_broken_chains_are_refused() {
        let areas = [
            SparseArea {
                offset: 0x1000,
                size: 0x1000,
            },
            SparseArea {
                offset: 0x4000,
                size: 0x2000,
            },
        ];
        let mut info = RegionInfo {
            argsz: 80,
            flags: region_flags::CAPS,
            cap_offset: 32,
            ..RegionInfo::default()
        };
        let reply = |info: &RegionInfo| {
            let mut reply = info.to_bytes().to_vec();
            reply.extend(sparse_capability(&areas));
            reply
        };
        assert_eq!(sparse_areas(&reply(&info)), Ok(areas.to_vec()));
        let whole = reply(&info);
        for cut in 32..whole.len() {
            assert!(sparse_areas(&whole[..cut]).is_err(), "cut at {cut}");
        }
        info.cap_offset = 1 << 20;
        assert!(sparse_areas(&reply(&info)).is_err());
    }
}
