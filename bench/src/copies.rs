//! What one processor copies, by size and by where the bytes lie: the floor under everything that moves frames.

use std::time::Duration;

use crate::stats::Reading;

/// Bytes of source and destination together, and what of this machine's memory they fit.
pub const SETS: [(usize, &str); 4] = [
    (24 << 10, "L1"),
    (512 << 10, "L2"),
    (8 << 20, "L3"),
    (128 << 20, "DRAM"),
];

/// Sizes copied.
pub const SIZES: [usize; 5] = [60, 256, 1514, 9014, 65_536];

/// Two areas of buffers.
pub struct Copies {
    from: Vec<u8>,
    to: Vec<u8>,
}

/// From one buffer to the next: as packet buffers lie, at their pages' halves.
fn stride(size: usize) -> usize {
    size.next_multiple_of(2048)
}

/// Whether a set holds two buffers of a size on each side.
pub fn fits(set: usize, size: usize) -> bool {
    set / 2 >= 2 * stride(size)
}

impl Copies {
    /// Room for the largest set, touched.
    pub fn new() -> Self {
        let half = SETS[SETS.len() - 1].0 / 2;
        Self {
            from: vec![1; half],
            to: vec![2; half],
        }
    }

    /// Copies for some time; millions of copies a second of this thread's processor time.
    pub fn sample(&mut self, set: usize, size: usize, length: Duration) -> Reading {
        let half = set / 2;
        let (from, to) = (&self.from[..half], &mut self.to[..half]);
        // The first round brings the set to where it fits.
        round(from, to, size);
        let mut copies = 0;
        let begun = crate::machine::thread_time();
        let mut took = 0;
        while took < length.as_nanos() as u64 {
            let lot = (1 << 20) / (half / stride(size) * size.max(64)).max(1);
            for _ in 0..=lot {
                copies += round(from, to, size);
            }
            took = crate::machine::thread_time() - begun;
        }
        Reading::bare(copies as f64 * 1e3 / took as f64)
    }
}

/// One copy of each buffer.
fn round(from: &[u8], to: &mut [u8], size: usize) -> u64 {
    match size {
        // Short ones inline, as a packet path has them.
        60 => each::<64>(from, to, 60),
        256 => each::<256>(from, to, 256),
        _ => any(from, to, size),
    }
}

fn each<const N: usize>(from: &[u8], to: &mut [u8], size: usize) -> u64 {
    let stride = stride(size);
    let mut copies = 0;
    for (from, to) in from.chunks_exact(stride).zip(to.chunks_exact_mut(stride)) {
        if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
            *to = *from;
            copies += 1;
        }
    }
    std::hint::black_box(to);
    copies
}

fn any(from: &[u8], to: &mut [u8], size: usize) -> u64 {
    let stride = stride(size);
    let mut copies = 0;
    for (from, to) in from.chunks_exact(stride).zip(to.chunks_exact_mut(stride)) {
        to[..size].copy_from_slice(&from[..size]);
        copies += 1;
    }
    std::hint::black_box(to);
    copies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_is_copied_once_a_round() {
        for size in SIZES {
            let half = 4 * stride(size);
            let (from, mut to) = (vec![7; half], vec![0; half]);
            assert_eq!(round(&from, &mut to, size), 4, "{size}");
            let arrived = to.iter().filter(|b| **b == 7).count();
            assert_eq!(arrived, 4 * if size == 60 { 64 } else { size });
        }
    }

    #[test]
    fn large_buffers_do_not_fit_small_caches() {
        assert!(fits(SETS[0].0, 60) && !fits(SETS[0].0, 9014) && fits(SETS[1].0, 65_536));
    }
}
