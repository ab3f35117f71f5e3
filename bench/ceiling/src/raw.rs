//! The loop on one thread.

use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

/// Bytes of a descriptor.
pub(crate) const DESC: usize = 16;
/// Where guest memory begins for the guest.
pub(crate) const BASE: u64 = 0x4000_0000;
/// Places in the table of addresses.
const TABLE: usize = 1024;
/// Most frames of a burst.
pub const MOST: usize = 256;
const DONE: u8 = 1;
const EOP: u8 = 1;

/// What to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a frame.
    pub size: usize,
    /// Descriptors of each ring; a power of two.
    pub ring: u32,
    /// Bytes from buffer to buffer; at least `size` rounded up to 64.
    pub stride: usize,
}

/// A guest's memory and rings.
pub(crate) struct Side {
    pub(crate) memory: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) tx: u64,
    pub(crate) rx: u64,
    pub(crate) buffers_out: u64,
    pub(crate) buffers_in: u64,
}

/// Two guests and the loop between them: from the first to the second.
pub struct Loop {
    shape: Shape,
    pub(crate) sides: [Side; 2],
    table: Vec<(u64, u32)>,
    found: Vec<Found>,
    head: u32,
    room: u32,
}

// SAFETY: the memories are owned allocations that live as long as the loop; all access goes through
// checked raw copies, as with memory that guests write to.
unsafe impl Send for Loop {}
// SAFETY: as above.
unsafe impl Sync for Loop {}

fn layout(len: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(len, 2 << 20).expect("a size of memory")
}

impl Side {
    fn new(shape: &Shape) -> Side {
        let ring = shape.ring as usize * DESC;
        let buffers = shape.ring as usize * shape.stride;
        let page = |n: usize| n.next_multiple_of(4096);
        let len = (2 * page(ring) + 2 * page(buffers)).next_multiple_of(2 << 20);
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout(len)) };
        let memory = NonNull::new(memory).expect("memory");
        let at = |n: usize| BASE + n as u64;
        let side = Side {
            memory,
            len,
            tx: at(0),
            rx: at(page(ring)),
            buffers_out: at(2 * page(ring)),
            buffers_in: at(2 * page(ring) + page(buffers)),
        };
        for i in 0..u64::from(shape.ring) {
            let step = i * shape.stride as u64;
            side.store(side.tx + i * DESC as u64, side.buffers_out + step);
            let rest = shape.size as u64 | u64::from(EOP) << 24;
            side.store(side.tx + i * DESC as u64 + 8, rest);
            side.store(side.rx + i * DESC as u64, side.buffers_in + step);
        }
        side
    }

    /// The run `at..at + len`, if all of it is there.
    #[inline(always)]
    fn find(&self, at: u64, len: usize) -> Option<NonNull<u8>> {
        let inside = at.wrapping_sub(BASE);
        if inside > self.len as u64 || len as u64 > self.len as u64 - inside {
            return None;
        }
        // SAFETY: `inside` is at most the length of the allocation.
        Some(unsafe { self.memory.add(inside as usize) })
    }

    #[inline(always)]
    fn load(&self, at: u64) -> u64 {
        let Some(at) = self.find(at, 8) else { return 0 };
        // SAFETY: eight bytes are there; descriptors are aligned to them. Another thread may write
        // meanwhile, hence volatile.
        unsafe { at.cast::<u64>().read_volatile() }
    }

    #[inline(always)]
    fn store(&self, at: u64, value: u64) {
        if let Some(at) = self.find(at, 8) {
            // SAFETY: as in `load`.
            unsafe { at.cast::<u64>().write_volatile(value) };
        }
    }

    #[inline(always)]
    fn store_byte(&self, at: u64, value: u8) {
        if let Some(at) = self.find(at, 1) {
            // SAFETY: as in `load`.
            unsafe { at.write_volatile(value) };
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), layout(self.len)) };
    }
}

#[inline(always)]
fn prefetch(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on caches, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            at.as_ptr().cast_const().cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A packet between the stages.
#[derive(Clone, Copy)]
struct Found {
    from: NonNull<u8>,
    len: usize,
    to: u32,
}

impl Found {
    const NOTHING: Found = Found {
        from: NonNull::dangling(),
        len: 0,
        to: 0,
    };
}

#[inline(always)]
fn hash(mac: u64) -> usize {
    (mac.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize & (TABLE - 1)
}

impl Loop {
    /// Two guests with rings and buffers as `shape` says.
    pub fn new(shape: Shape) -> Loop {
        assert!(shape.ring.is_power_of_two() && shape.stride >= shape.size.next_multiple_of(64));
        let sides = [Side::new(&shape), Side::new(&shape)];
        let mut table = vec![(0, 0); TABLE];
        for (port, side) in sides.iter().enumerate() {
            let to = address(1 - port);
            table[hash(address(port))] = (address(port), port as u32 + 1);
            for i in 0..u64::from(shape.ring) {
                side.store(side.buffers_out + i * shape.stride as u64, to);
            }
        }
        Loop {
            shape,
            sides,
            table,
            found: vec![Found::NOTHING; MOST],
            head: 0,
            room: 0,
        }
    }

    /// Moves the next `count` frames (at most [`MOST`]); both rings are taken to be ready for them.
    /// Returns how many arrived.
    #[inline(never)]
    pub fn burst(&mut self, count: usize) -> usize {
        let [from, to] = &self.sides;
        let mask = self.shape.ring - 1;
        let found = &mut self.found;
        let count = count.min(MOST);
        fence(Ordering::Acquire);
        // Gather and prefetch.
        for (i, found) in found[..count].iter_mut().enumerate() {
            let index = u64::from((self.head + i as u32) & mask);
            let at = from.tx + index * DESC as u64;
            let (addr, rest) = (from.load(at), from.load(at + 8));
            let len = (rest & 0xffff) as usize;
            *found = Found::NOTHING;
            let Some(run) = from.find(addr, len.next_multiple_of(64)) else {
                continue;
            };
            prefetch(run);
            let into = u64::from((self.room + i as u32) & mask);
            if let Some(run) = to.find(to.buffers_in + into * self.shape.stride as u64, 64) {
                prefetch(run);
            }
            *found = Found {
                from: run,
                len,
                to: 0,
            };
        }
        // Look up.
        for found in &mut found[..count] {
            if found.len < 14 {
                continue;
            }
            // SAFETY: at least 64 bytes are there.
            let mac = unsafe { found.from.cast::<u64>().read_unaligned() } & 0xffff_ffff_ffff;
            let (known, port) = self.table[hash(mac)];
            if known == mac {
                found.to = port;
            }
        }
        // Copy and write back.
        let mut arrived = 0;
        for (i, found) in found[..count].iter().enumerate() {
            if found.to == 2 {
                let at = to.rx + u64::from(self.room & mask) * DESC as u64;
                let addr = to.load(at);
                let len = found.len;
                if let Some(into) = to.find(addr, len.next_multiple_of(64)) {
                    // SAFETY: both runs have been found to be as long, rounded up to 64; they are of
                    // different allocations.
                    unsafe {
                        if len <= 64 {
                            let bytes = found.from.cast::<[u64; 8]>().read_unaligned();
                            into.cast::<[u64; 8]>().write_unaligned(bytes);
                        } else {
                            ptr::copy_nonoverlapping(found.from.as_ptr(), into.as_ptr(), len);
                        }
                    }
                    to.store(at + 8, len as u64 | u64::from(DONE | 2) << 32);
                    self.room = self.room.wrapping_add(1);
                    arrived += 1;
                }
            }
            let index = u64::from((self.head + i as u32) & mask);
            from.store_byte(from.tx + index * DESC as u64 + 12, DONE);
        }
        fence(Ordering::Release);
        self.head = self.head.wrapping_add(count as u32);
        arrived
    }
}

/// Thread CPU time in nanoseconds per frame: the least of `samples` samples of `frames` frames each.
pub fn alone(shape: Shape, burst: usize, frames: usize, samples: usize) -> f64 {
    let mut it = Loop::new(shape);
    let mut least = f64::INFINITY;
    for _ in 0..=samples {
        least = least.min(it.sample(burst, frames));
    }
    least
}

impl Loop {
    /// Thread CPU time in nanoseconds per frame over at least `frames` frames.
    pub fn sample(&mut self, burst: usize, frames: usize) -> f64 {
        let begun = thread_time();
        let mut done = 0;
        while done < frames {
            done += self.burst(burst).max(1);
        }
        (thread_time() - begun) as f64 / done as f64
    }
}

/// Nanoseconds this thread has run.
pub fn thread_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The address of a guest, as the first bytes of a frame for it read.
fn address(port: usize) -> u64 {
    0x0000_0000_0052 | (port as u64 + 1) << 40
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_arrives_with_its_bytes() {
        for (size, stride) in [(60, 2048), (1514, 2048), (9014, 16384)] {
            let shape = Shape {
                size,
                ring: 8,
                stride,
            };
            let mut it = Loop::new(shape);
            let [from, _] = &it.sides;
            for i in 0..8 {
                from.store(from.buffers_out + i * stride as u64 + 8, 100 + i);
            }
            assert_eq!(it.burst(5), 5);
            assert_eq!(it.burst(5), 5);
            let [from, to] = &it.sides;
            for i in 0..8 {
                assert_eq!(to.load(to.buffers_in + i * stride as u64 + 8), 100 + i);
                assert_eq!(to.load(to.rx + i * 16 + 8), size as u64 | 3 << 32);
                assert_eq!(from.load(from.tx + i * 16 + 8) >> 32, 1);
            }
        }
    }

    #[test]
    fn what_is_outside_of_the_memory_is_not_touched() {
        let shape = Shape {
            size: 60,
            ring: 8,
            stride: 2048,
        };
        let mut it = Loop::new(shape);
        let [from, _] = &it.sides;
        let end = BASE + from.len as u64;
        from.store(from.tx, end - 32);
        from.store(from.tx + 16, u64::MAX);
        assert_eq!(it.burst(4), 2);
    }
}
