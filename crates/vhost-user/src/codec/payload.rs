//! What follows the header.

/// Regions of one memory table at most.
pub const MAX_REGIONS: usize = 8;

/// Bytes of configuration space that a device can have.
pub const MAX_CONFIG: usize = 256;

/// Reads and writes fields one after the other.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

/// Where an encoded payload goes. What does not fit is a mistake of the caller's.
pub(super) struct Out<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Out<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    pub fn len(&self) -> usize {
        self.at
    }
}

/// A ring and a number: a size, a base, or a truth value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VringState {
    /// Which ring.
    pub index: u32,
    /// What the request says of it.
    pub num: u32,
}

impl VringState {
    /// Bytes of it.
    pub const LEN: usize = 8;

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            index: fields.u32()?,
            num: fields.u32()?,
        })
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        out.u32(self.index);
        out.u32(self.num);
    }

    /// The bytes of it.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        self.put(&mut Out::new(&mut bytes));
        bytes
    }
}

/// Bits of [`VringAddr::flags`].
pub mod vring_flags {
    /// Writes to the used ring are logged, from [`VringAddr::log`](super::VringAddr::log) on.
    pub const LOG: u32 = 1;
}

/// Where a ring is, in the front end's own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VringAddr {
    /// Which ring.
    pub index: u32,
    /// See [`vring_flags`].
    pub flags: u32,
    /// Descriptor table (split) or ring (packed).
    pub descriptor: u64,
    /// Used ring, or the device's event suppression structure.
    pub used: u64,
    /// Available ring, or the driver's event suppression structure.
    pub available: u64,
    /// Guest physical address by which writes to the used ring are logged.
    pub log: u64,
}

impl VringAddr {
    /// Bytes of it.
    pub const LEN: usize = 40;

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            index: fields.u32()?,
            flags: fields.u32()?,
            descriptor: fields.u64()?,
            used: fields.u64()?,
            available: fields.u64()?,
            log: fields.u64()?,
        })
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        out.u32(self.index);
        out.u32(self.flags);
        for word in [self.descriptor, self.used, self.available, self.log] {
            out.u64(word);
        }
    }
}

/// Which ring an eventfd is for, and whether there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VringFd {
    /// Which ring.
    pub index: u8,
    /// No descriptor comes with it: that side polls.
    pub without_fd: bool,
}

impl VringFd {
    const WITHOUT: u64 = 1 << 8;

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let word = fields.u64()?;
        Some(Self {
            index: word as u8,
            without_fd: word & Self::WITHOUT != 0,
        })
    }

    pub(super) fn to_word(self) -> u64 {
        let without = if self.without_fd { Self::WITHOUT } else { 0 };
        u64::from(self.index) | without
    }
}

/// A region of guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemRegion {
    /// Guest physical address.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// Address in the front end's own address space.
    pub user: u64,
    /// Where in the file it begins.
    pub mmap_offset: u64,
}

impl MemRegion {
    /// Bytes of it.
    pub const LEN: usize = 32;

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            guest: fields.u64()?,
            size: fields.u64()?,
            user: fields.u64()?,
            mmap_offset: fields.u64()?,
        })
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        for word in [self.guest, self.size, self.user, self.mmap_offset] {
            out.u64(word);
        }
    }
}

/// Up to [`MAX_REGIONS`] regions.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemTable {
    regions: [MemRegion; MAX_REGIONS],
    used: usize,
}

impl MemTable {
    /// These regions; `None` if they are too many for one message.
    pub fn new(regions: &[MemRegion]) -> Option<Self> {
        let mut table = Self::default();
        table
            .regions
            .get_mut(..regions.len())?
            .copy_from_slice(regions);
        table.used = regions.len();
        Some(table)
    }

    /// The regions.
    pub fn regions(&self) -> &[MemRegion] {
        &self.regions[..self.used]
    }

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let used = fields.u32()? as usize;
        fields.u32()?;
        let mut table = Self::default();
        for region in table.regions.get_mut(..used)? {
            *region = MemRegion::parse(fields)?;
        }
        table.used = used;
        Some(table)
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        out.u32(self.used as u32);
        out.u32(0);
        for region in self.regions() {
            region.put(out);
        }
    }
}

impl PartialEq for MemTable {
    fn eq(&self, other: &Self) -> bool {
        self.regions() == other.regions()
    }
}

impl Eq for MemTable {}

/// A part of a shared file that holds the dirty log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Bytes.
    pub size: u64,
    /// Where in the file the log begins.
    pub offset: u64,
}

impl Log {
    /// Bytes of it.
    pub const LEN: usize = 16;

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            size: fields.u64()?,
            offset: fields.u64()?,
        })
    }

    /// The bytes of it.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut out = Out::new(&mut bytes);
        out.u64(self.size);
        out.u64(self.offset);
        bytes
    }
}

/// Where the dirty log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogBase {
    /// In a file that comes with the message (`LOG_SHMFD`).
    Shared(Log),
    /// At an address of the front end's, which no other process can reach.
    Address(u64),
}

/// A part of configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config<'a> {
    /// Where it begins.
    pub offset: u32,
    /// 0: what a driver writes. 1: what migration writes.
    pub flags: u32,
    /// Its bytes; those of a read say only how many.
    pub data: &'a [u8],
}

impl<'a> Config<'a> {
    /// Bytes before the data.
    pub const LEN: usize = 12;

    pub(super) fn parse(fields: &mut Fields<'a>) -> Option<Self> {
        let offset = fields.u32()?;
        let size = fields.u32()? as usize;
        let flags = fields.u32()?;
        let data = fields.0.split_at_checked(size)?;
        fields.0 = data.1;
        let end = (offset as usize).checked_add(size)?;
        (end <= MAX_CONFIG).then_some(Self {
            offset,
            flags,
            data: data.0,
        })
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        out.u32(self.offset);
        out.u32(self.data.len() as u32);
        out.u32(self.flags);
        out.put(self.data);
    }
}

/// A shared file that notes what is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inflight {
    /// Bytes.
    pub size: u64,
    /// Where in the file they begin.
    pub offset: u64,
    /// Rings.
    pub queues: u16,
    /// Descriptors of each.
    pub queue_size: u16,
}

impl Inflight {
    /// Bytes of it: a C structure, with its padding.
    pub const LEN: usize = 24;
    /// The same without padding, as some front ends send it.
    pub const SHORT: usize = 20;

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let parsed = Self {
            size: fields.u64()?,
            offset: fields.u64()?,
            queues: fields.u16()?,
            queue_size: fields.u16()?,
        };
        if fields.0.len() == Self::LEN - Self::SHORT {
            fields.u32()?;
        }
        Some(parsed)
    }

    /// The bytes of it.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut out = Out::new(&mut bytes);
        out.u64(self.size);
        out.u64(self.offset);
        out.put(&self.queues.to_ne_bytes());
        out.put(&self.queue_size.to_ne_bytes());
        bytes
    }
}

/// Which way a device's state goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The back end writes it.
    Save,
    /// The back end reads it.
    Load,
}

/// The start of a transfer of the device's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// Which way.
    pub direction: Direction,
    /// 0: all rings are stopped. There is no other phase yet.
    pub phase: u32,
}

impl DeviceState {
    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let direction = match fields.u32()? {
            0 => Direction::Save,
            1 => Direction::Load,
            _ => return None,
        };
        Some(Self {
            direction,
            phase: fields.u32()?,
        })
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        out.u32(match self.direction {
            Direction::Save => 0,
            Direction::Load => 1,
        });
        out.u32(self.phase);
    }
}

/// A change of the IOMMU's translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iotlb {
    /// I/O virtual address.
    pub iova: u64,
    /// Bytes.
    pub size: u64,
    /// Address in the front end's own address space.
    pub user: u64,
    /// 1 read, 2 write.
    pub permissions: u8,
    /// 1 miss, 2 update, 3 invalidate, 4 access fail.
    pub kind: u8,
}

impl Iotlb {
    /// Bytes of it: a C structure, with its padding.
    pub const LEN: usize = 32;

    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let (iova, size, user) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let [permissions, kind] = fields.take()?;
        fields.take::<6>()?;
        Some(Self {
            iova,
            size,
            user,
            permissions,
            kind,
        })
    }

    pub(super) fn put(&self, out: &mut Out<'_>) {
        for word in [self.iova, self.size, self.user] {
            out.u64(word);
        }
        out.put(&[self.permissions, self.kind, 0, 0, 0, 0, 0, 0]);
    }
}
