//! Split rings as a driver has them (virtio 1.2, §2.7): a receive and a transmit ring, with a buffer behind each descriptor.

use std::sync::atomic::{Ordering, fence};

use vfio_user::Area;

/// Bytes before each frame, with `num_buffers`.
pub const HEADER: usize = 12;
/// Bytes of a buffer.
const BUFFER: usize = 2048;
/// VIRTQ_DESC_F_WRITE.
const DEVICE_WRITES: u16 = 2;
/// VIRTQ_AVAIL_F_NO_INTERRUPT.
const NO_INTERRUPT: u32 = 1;
/// VIRTQ_USED_F_NO_NOTIFY.
const NO_NOTIFY: u32 = 1;
/// What the legacy interface aligns the used ring to.
pub const PAGE: usize = 4096;

/// Who fills the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fills {
    /// The device: a receive ring.
    Device,
    /// The driver: a transmit ring.
    Driver,
}

/// One ring, and behind it a buffer for each descriptor.
pub struct Ring {
    ram: Area,
    address: u64,
    size: u16,
    /// Offsets of the available and the used ring, and of the buffers.
    available: usize,
    used: usize,
    buffers: usize,
    /// The next entry of either ring.
    next: u16,
    seen: u16,
    /// Flags of the available ring.
    flags: u32,
}

/// Where the parts of a ring are in a memory, from its beginning.
fn parts(size: u16) -> [usize; 3] {
    let n = usize::from(size);
    let available = 16 * n;
    let used = (available + 6 + 2 * n).next_multiple_of(PAGE);
    [available, used, (used + 6 + 8 * n).next_multiple_of(PAGE)]
}

impl Ring {
    /// Bytes that one with so many descriptors takes.
    pub fn bytes(size: u16) -> usize {
        parts(size)[2] + usize::from(size) * BUFFER
    }

    /// One in memory that the device has at `address`. Its buffers are the driver's; it asks for no calls.
    pub fn new(ram: Area, address: u64, size: u16, fills: Fills) -> Self {
        let [available, used, buffers] = parts(size);
        let flags = if fills == Fills::Device {
            DEVICE_WRITES
        } else {
            0
        };
        for i in 0..usize::from(size) {
            let buffer = address + (buffers + i * BUFFER) as u64;
            ram.store_u64(16 * i, buffer, Ordering::Relaxed);
            ram.store_u32(16 * i + 8, BUFFER as u32, Ordering::Relaxed);
            ram.store_u32(16 * i + 12, u32::from(flags), Ordering::Relaxed);
        }
        ram.store_u32(available, NO_INTERRUPT, Ordering::Relaxed);
        Self {
            ram,
            address,
            size,
            available,
            used,
            buffers,
            next: 0,
            seen: 0,
            flags: NO_INTERRUPT,
        }
    }

    /// How many descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Addresses of descriptors, available and used ring.
    pub fn places(&self) -> [u64; 3] {
        [0, self.available, self.used].map(|at| self.address + at as u64)
    }

    /// What the device has used since it was last looked: how many entries.
    fn fresh(&self) -> u16 {
        let word = self.ram.load_u32(self.used, Ordering::Acquire);
        ((word >> 16) as u16).wrapping_sub(self.seen)
    }

    /// The next used entry: its descriptor and length.
    fn take(&mut self) -> (u16, u32) {
        let at = self.used + 4 + 8 * usize::from(self.seen % self.size);
        self.seen = self.seen.wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = self.ram.get::<8>(at);
        let id = u32::from_le_bytes([a, b, c, d]) as u16 % self.size;
        (id, u32::from_le_bytes([e, f, g, h]))
    }

    /// Puts a descriptor into the available ring, unseen until [`Self::publish`].
    fn give(&mut self, id: u16) {
        let at = self.available + 4 + 2 * usize::from(self.next % self.size);
        self.ram.put(at, id.to_le_bytes());
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the device what was given. Returns whether it asks to be told.
    #[must_use]
    fn publish(&self) -> bool {
        let word = self.flags | u32::from(self.next) << 16;
        self.ram.store_u32(self.available, word, Ordering::Release);
        // The index is seen before the wish is read, as the device does it the other way round.
        fence(Ordering::SeqCst);
        self.ram.load_u32(self.used, Ordering::Relaxed) & NO_NOTIFY == 0
    }

    /// Asks to be called for what is used from now on, or not to be. Returns whether something is there already.
    fn call(&mut self, wanted: bool) -> bool {
        self.flags = if wanted { 0 } else { NO_INTERRUPT };
        let word = self.flags | u32::from(self.next) << 16;
        self.ram.store_u32(self.available, word, Ordering::Release);
        fence(Ordering::SeqCst);
        self.fresh() > 0
    }

    fn buffer(&self, id: u16) -> usize {
        self.buffers + usize::from(id) * BUFFER
    }
}

/// Both rings of a NIC. What the device is to be told of is returned: the caller has the doorbell.
pub struct Rings {
    rx: Ring,
    tx: Ring,
    /// Transmit descriptors that are the driver's.
    free: Vec<u16>,
}

impl Rings {
    /// With all receive buffers given, unseen until [`Self::begin`].
    pub fn new(mut rx: Ring, tx: Ring) -> Self {
        (0..rx.size).for_each(|id| rx.give(id));
        let free = (0..tx.size).collect();
        Self { rx, tx, free }
    }

    /// Shows the receive buffers; whether the device is to be told.
    pub fn begin(&self) -> bool {
        self.rx.publish()
    }

    /// Puts a frame into all transmit buffers, behind a header that asks for nothing.
    pub fn prepare(&mut self, frame: &[u8]) {
        for id in 0..self.tx.size {
            let at = self.tx.buffer(id);
            self.tx.ram.write(at, &[0; HEADER]);
            self.tx.ram.write(at + HEADER, frame);
        }
    }

    /// Sends `most` of them, of `len` bytes, frame n to `to(n)`. Returns how many there was room for, and whether the
    /// device is to be told.
    #[inline]
    pub fn send(&mut self, most: u32, len: u32, to: impl Fn(u32) -> [u8; 6]) -> (u32, bool) {
        for _ in 0..self.tx.fresh() {
            let (id, _) = self.tx.take();
            self.free.push(id);
        }
        let mut sent = 0;
        while sent < most
            && let Some(id) = self.free.pop()
        {
            let at = self.tx.buffer(id);
            self.tx.ram.put(at + HEADER, to(sent));
            let long = HEADER as u32 + len;
            let word = 16 * usize::from(id) + 8;
            self.tx.ram.store_u32(word, long, Ordering::Relaxed);
            self.tx.give(id);
            sent += 1;
        }
        (sent, sent > 0 && self.tx.publish())
    }

    /// Takes what has come, at most so many, and gives the buffers back. Returns how many frames had a length that
    /// `counts`, and whether the device is to be told.
    #[inline]
    pub fn receive(&mut self, most: u32, counts: impl Fn(u32) -> bool) -> (u32, bool) {
        let fresh = u32::from(self.rx.fresh()).min(most);
        let mut came = 0;
        for _ in 0..fresh {
            let (id, long) = self.rx.take();
            came += u32::from(counts(long.saturating_sub(HEADER as u32)));
            self.rx.give(id);
        }
        (came, fresh > 0 && self.rx.publish())
    }

    /// Asks to be called for frames that come from now on, or not to be. Returns whether some are there already.
    pub fn call(&mut self, wanted: bool) -> bool {
        self.rx.call(wanted)
    }
}

#[cfg(test)]
mod tests {
    use vfio_user::SharedMem;

    use super::*;

    fn rings(ram: &SharedMem) -> Rings {
        let half = Ring::bytes(8).next_multiple_of(PAGE);
        let ring = |at: usize, fills| {
            Ring::new(ram.area(at, Ring::bytes(8)), 0x1000 + at as u64, 8, fills)
        };
        Rings::new(ring(0, Fills::Device), ring(half, Fills::Driver))
    }

    /// Uses the next available buffers, as a device does.
    fn used(ring: &Ring, from: u16, ids: &[u32], long: u32) {
        for (n, id) in (from..).zip(ids) {
            let at = ring.used + 4 + 8 * usize::from(n % ring.size);
            ring.ram.put(at, id.to_le_bytes());
            ring.ram.put(at + 4, long.to_le_bytes());
        }
        let index = u32::from(from) + ids.len() as u32;
        ring.ram
            .store_u32(ring.used, index << 16, Ordering::Release);
    }

    #[test]
    fn buffers_go_round() {
        let ram = SharedMem::new("rings", 1 << 20).unwrap();
        let mut rings = rings(&ram);
        assert!(rings.begin());
        rings.prepare(&[7; 60]);
        let to = |n: u32| [n as u8; 6];
        assert_eq!(rings.send(6, 60, to), (6, true));
        assert_eq!(rings.send(6, 60, to), (2, true), "there are eight");
        assert_eq!(rings.send(6, 60, to), (0, false));
        used(&rings.tx, 0, &[7, 6, 5], 0);
        assert_eq!(rings.send(6, 60, to).0, 3);
        // Of two that come one has the length.
        used(&rings.rx, 0, &[0], 72);
        assert_eq!(rings.receive(8, |len| len == 60), (1, true));
        used(&rings.rx, 1, &[1], 73);
        assert_eq!(rings.receive(8, |len| len == 60), (0, true));
        assert_eq!(rings.receive(8, |_| true), (0, false));
    }

    #[test]
    fn a_driver_that_wants_calls_sees_what_came_before() {
        let ram = SharedMem::new("rings", 1 << 20).unwrap();
        let mut rings = rings(&ram);
        let asks = |rings: &Rings| rings.rx.ram.load_u32(rings.rx.available, Ordering::Relaxed) & 1;
        assert_eq!(asks(&rings), 1);
        assert!(!rings.call(true));
        assert_eq!(asks(&rings), 0);
        used(&rings.rx, 0, &[3], 72);
        assert!(rings.call(false) && rings.call(true));
    }
}
