//! A virtio-net set up just enough to be misused. The numbers are those of virtio 1.4 §2, §4.1 and §5.1.

use std::time::Duration;

use drivers::{Bus, BusError, Dma};

use crate::stage::{Done, tcp_frame};

/// Queues of a device with one pair.
pub(crate) const RX: usize = 0;
pub(crate) const TX: usize = 1;
pub(crate) const CTRL: usize = 2;

/// Flags of a descriptor.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;
/// The same in a packed ring.
pub(crate) const AVAIL: u16 = 1 << 7;
pub(crate) const USED: u16 = 1 << 15;

/// Descriptors of each ring.
pub(crate) const SIZE: u16 = 64;

/// Bytes of memory, and where its parts are: a queue's areas, tables, buffers.
const MEMORY: u64 = 0x8_0000;
const QUEUE: u64 = 0x4000;
pub(crate) const TABLE: u64 = 0x1_0000;
pub(crate) const BUFFER: u64 = 0x2_0000;

/// Registers of the common configuration.
const FEATURE_SELECT: u64 = 8;
const FEATURES: u64 = 0xc;
pub(crate) const STATUS: u64 = 0x14;
pub(crate) const QUEUE_SELECT: u64 = 0x16;
const QUEUE_SIZE: u64 = 0x18;
pub(crate) const QUEUE_ENABLE: u64 = 0x1c;
const QUEUE_DESC: u64 = 0x20;
const QUEUE_DRIVER: u64 = 0x28;
const QUEUE_DEVICE: u64 = 0x30;
pub(crate) const QUEUE_RESET: u64 = 0x3a;
/// Its other pages.
pub(crate) const DEVICE: u64 = 0x2000;
pub(crate) const NOTIFY: u64 = 0x3000;
pub(crate) const BAR: u64 = 0x4000;

/// Features: what a driver takes here that wants no offloads.
pub(crate) const PLAIN: u64 =
    1 << 5 | 1 << 15 | 1 << 16 | 0b1111 << 17 | 1 << 23 | 1 << 28 | 1 << 32 | 1 << 40;
/// Checksums and segmentation.
pub(crate) const OFFLOADS: u64 = PLAIN | 0b11 | 0b11 << 7 | 0b11 << 11;
pub(crate) const EVENTS: u64 = 1 << 29;
pub(crate) const PACKED: u64 = PLAIN | 1 << 34;

/// A descriptor: where, how many bytes, flags.
pub(crate) type Desc = (u64, u32, u16);

/// A device with three queues that run.
pub(crate) struct Net<'b> {
    pub bus: &'b mut dyn Bus,
    memory: Dma,
    packed: bool,
    /// Descriptors and entries given, by queue.
    next: [u64; 3],
    given: [u16; 3],
}

impl<'b> Net<'b> {
    /// A device that is reset and brought up, with honest rings.
    pub(crate) fn start(bus: &'b mut dyn Bus, features: u64) -> Result<Self, BusError> {
        bus.config_write(4, &7u16.to_le_bytes())?;
        let memory = bus.alloc(MEMORY)?;
        let mut net = Self {
            bus,
            memory,
            packed: features & (1 << 34) != 0,
            next: [0; 3],
            given: [0; 3],
        };
        net.bring_up(features)?;
        Ok(net)
    }

    /// The same with the memory that it has.
    pub(crate) fn bring_up(&mut self, features: u64) -> Done {
        self.reset()?;
        self.packed = features & (1 << 34) != 0;
        for status in [1, 3] {
            self.write(STATUS, &[status])?;
        }
        for half in 0..2u32 {
            self.write(FEATURE_SELECT, &half.to_le_bytes())?;
            let word = (features >> (32 * half)) as u32;
            self.write(FEATURES, &word.to_le_bytes())?;
        }
        self.write(STATUS, &[0xb])?;
        if self.status()? & 8 == 0 {
            return Err(BusError::Gone("features are refused".into()));
        }
        for queue in [RX, TX, CTRL] {
            self.enable(queue)?;
        }
        self.write(STATUS, &[0xf])
    }

    /// Resets the device, and waits until it is.
    pub(crate) fn reset(&mut self) -> Done {
        self.write(STATUS, &[0])?;
        for _ in 0..1000 {
            if self.status()? == 0 {
                return Ok(());
            }
            self.bus.delay(Duration::from_millis(1))?;
        }
        Err(BusError::Gone("a reset does not come to an end".into()))
    }

    /// Sets up a queue with an empty ring.
    pub(crate) fn enable(&mut self, queue: usize) -> Done {
        (self.next[queue], self.given[queue]) = (0, 0);
        self.bus.dma_write(self.desc(queue), &[0; QUEUE as usize])?;
        let ring = [
            self.desc(queue),
            self.desc(queue) + 0x1000,
            self.desc(queue) + 0x2000,
        ];
        self.enable_at(queue, SIZE, ring)
    }

    /// The same with its parts anywhere.
    pub(crate) fn enable_at(&mut self, queue: usize, size: u16, ring: [u64; 3]) -> Done {
        self.write(QUEUE_SELECT, &(queue as u16).to_le_bytes())?;
        self.write(QUEUE_SIZE, &size.to_le_bytes())?;
        for (at, part) in [QUEUE_DESC, QUEUE_DRIVER, QUEUE_DEVICE]
            .into_iter()
            .zip(ring)
        {
            self.write(at, &(part as u32).to_le_bytes())?;
            self.write(at + 4, &((part >> 32) as u32).to_le_bytes())?;
        }
        self.write(QUEUE_ENABLE, &1u16.to_le_bytes())
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Done {
        self.bus.bar_write(0, at, bytes)
    }

    pub(crate) fn status(&mut self) -> Result<u8, BusError> {
        let mut status = [0];
        self.bus.bar_read(0, STATUS, &mut status)?;
        Ok(status[0])
    }

    pub(crate) fn mac(&mut self) -> Result<[u8; 6], BusError> {
        let mut mac = [0; 6];
        for (i, byte) in mac.iter_mut().enumerate() {
            let mut one = [0];
            self.bus.bar_read(0, DEVICE + i as u64, &mut one)?;
            *byte = one[0];
        }
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

    /// A queue's descriptors. What is available is 1000h behind them, what is used 2000h.
    pub(crate) fn desc(&self, queue: usize) -> u64 {
        self.at(QUEUE * queue as u64)
    }

    /// Writes to the memory.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) -> Done {
        let at = self.at(offset);
        self.bus.dma_write(at, bytes)
    }

    /// Writes a descriptor.
    pub(crate) fn put_desc(&mut self, at: u64, desc: Desc, other: u16) -> Done {
        let (addr, len, flags) = desc;
        // In a packed ring the id stands before the flags.
        let (third, fourth) = if self.packed {
            (other, flags)
        } else {
            (flags, other)
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&third.to_le_bytes());
        bytes[14..].copy_from_slice(&fourth.to_le_bytes());
        self.bus.dma_write(at, &bytes)
    }

    /// Descriptor `slot` of a queue.
    pub(crate) fn put_slot(&mut self, queue: usize, slot: u16, desc: Desc, other: u16) -> Done {
        let at = self.desc(queue) + 16 * u64::from(slot % SIZE);
        self.put_desc(at, desc, other)
    }

    /// Gives a chain of these descriptors.
    pub(crate) fn give(&mut self, queue: usize, parts: &[Desc]) -> Done {
        let first = self.next[queue];
        let id = (first % u64::from(SIZE)) as u16;
        for (i, &(at, len, flags)) in parts.iter().enumerate().rev() {
            let this = first + i as u64;
            let more = if i + 1 < parts.len() { NEXT } else { 0 };
            let slot = (this % u64::from(SIZE)) as u16;
            let (lap, other) = match self.packed {
                true => (self.lap(this), id),
                false => (0, (slot + 1) % SIZE),
            };
            self.put_slot(queue, slot, (at, len, flags | more | lap), other)?;
        }
        self.next[queue] += parts.len() as u64;
        match self.packed {
            true => Ok(()),
            false => self.offer(queue, id),
        }
    }

    /// The flag that makes a descriptor of a packed ring available, by how many were given before it.
    pub(crate) fn lap(&self, given: u64) -> u16 {
        match (given / u64::from(SIZE)).is_multiple_of(2) {
            true => AVAIL,
            false => USED,
        }
    }

    /// Makes a head available in a split ring.
    pub(crate) fn offer(&mut self, queue: usize, head: u16) -> Done {
        let available = self.desc(queue) + 0x1000;
        let slot = u64::from(self.given[queue] % SIZE);
        self.bus
            .dma_write(available + 4 + 2 * slot, &head.to_le_bytes())?;
        self.given[queue] = self.given[queue].wrapping_add(1);
        self.index(queue, self.given[queue])
    }

    /// Says how many heads are available.
    pub(crate) fn index(&mut self, queue: usize, index: u16) -> Done {
        let available = self.desc(queue) + 0x1000;
        self.bus.dma_write(available + 2, &index.to_le_bytes())
    }

    pub(crate) fn kick(&mut self, queue: usize) -> Done {
        self.write(NOTIFY + 4 * queue as u64, &(queue as u16).to_le_bytes())
    }

    /// How many buffers of a split ring are used.
    pub(crate) fn used(&mut self, queue: usize) -> Result<u16, BusError> {
        let mut index = [0; 2];
        let at = self.desc(queue) + 0x2002;
        self.bus.dma_read(at, &mut index)?;
        Ok(u16::from_le_bytes(index))
    }

    /// Notifies all queues, has frames arrive, and lets the device finish with it.
    pub(crate) fn traffic(&mut self) -> Done {
        for queue in [RX, TX, CTRL] {
            self.kick(queue)?;
        }
        self.settle()?;
        for len in [60, 200, 1514, 9014] {
            self.bus.inject(&tcp_frame(len))?;
        }
        Ok(())
    }

    /// A notification is a posted write, and the work behind it begins after the next answer.
    pub(crate) fn settle(&mut self) -> Done {
        for _ in 0..4 {
            self.status()?;
        }
        Ok(())
    }

    /// Gives the memory back.
    pub(crate) fn leave(mut self) -> Done {
        self.reset()?;
        self.bus.free(self.memory)
    }
}
