//! The loop with a guest's thread beside it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::raw::{BASE, DESC, Loop, MOST, Shape};

#[repr(align(128))]
#[derive(Default)]
struct Index(AtomicU32);

/// Nanoseconds of wall time per frame with the loop on this thread and both guests on another
/// (`c2`), over `length`. Only meaningful with two idle processors.
pub fn across(shape: Shape, burst: usize, length: Duration) -> f64 {
    let mut it = Loop::new(shape);
    let burst = burst.min(MOST).min(shape.ring as usize / 2);
    let (tail, done, stop) = (Index::default(), Index::default(), AtomicBool::new(false));
    let (from, to) = (view(&it, 0), view(&it, 1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut sent, mut seen) = (0u32, 0u32);
            let mask = shape.ring - 1;
            while !stop.load(Ordering::Relaxed) {
                // What has arrived: status and first bytes of each.
                let end = done.0.load(Ordering::Acquire);
                if end == seen && sent.wrapping_sub(seen) + burst as u32 > mask {
                    std::thread::yield_now();
                    continue;
                }
                while seen != end {
                    let i = u64::from(seen & mask);
                    to.touch(i, shape.stride, None);
                    seen = seen.wrapping_add(1);
                }
                if sent.wrapping_sub(seen) + burst as u32 <= mask {
                    for _ in 0..burst {
                        let i = u64::from(sent & mask);
                        from.touch(i, shape.stride, Some(sent));
                        sent = sent.wrapping_add(1);
                    }
                    tail.0.store(sent, Ordering::Release);
                }
            }
        });
        let begun = Instant::now();
        let mut head = 0u32;
        let mut looks = 0u32;
        loop {
            let ready = tail.0.load(Ordering::Acquire).wrapping_sub(head) as usize;
            if ready > 0 {
                let n = it.burst(ready.min(burst));
                head = head.wrapping_add(n as u32);
                done.0.store(head, Ordering::Release);
            } else {
                std::thread::yield_now();
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(256) && begun.elapsed() >= length {
                break;
            }
        }
        let took = begun.elapsed();
        stop.store(true, Ordering::Relaxed);
        took.as_nanos() as f64 / f64::from(head.max(1))
    })
}

/// What a guest's thread needs of a side; the memory lives as long as the loop, which outlives it.
struct Guest {
    memory: usize,
    len: usize,
    ring: usize,
    buffers: usize,
    receives: bool,
}

fn view(it: &Loop, port: usize) -> Guest {
    let side = &it.sides[port];
    let offset = |at: u64| (at - BASE) as usize;
    let receives = port == 1;
    Guest {
        memory: side.memory.as_ptr().expose_provenance(),
        len: side.len,
        ring: offset(if receives { side.rx } else { side.tx }),
        buffers: offset(if receives {
            side.buffers_in
        } else {
            side.buffers_out
        }),
        receives,
    }
}

impl Guest {
    fn at(&self, offset: usize) -> *mut u64 {
        assert!(offset + 8 <= self.len);
        std::ptr::with_exposed_provenance_mut(self.memory + offset)
    }

    /// Fills (`Some`) or drains a descriptor and touches the head of its packet.
    fn touch(&self, index: u64, stride: usize, fill: Option<u32>) {
        let desc = self.at(self.ring + index as usize * DESC + 8);
        let head = self.at(self.buffers + index as usize * stride + 24);
        // SAFETY: both are inside the memory, which lives as long as the loop, and aligned; the
        // other thread reads and writes them volatile too.
        unsafe {
            if let Some(number) = fill {
                head.write_volatile(number.into());
                let old = desc.read_volatile();
                desc.write_volatile(old & 0xffff_ffff);
            } else {
                head.read_volatile();
                desc.write_volatile(0);
            }
        }
        debug_assert_eq!(self.receives, fill.is_none());
    }
}
