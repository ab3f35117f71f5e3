//! Where scripts get their numbers from.

/// A small deterministic source of numbers (splitmix64), the same on every machine.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True in `percent` of 100 cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Each of `bits` with this chance.
    pub(super) fn bits(&mut self, bits: u32, percent: u64) -> u32 {
        (0..32).fold(0, |all, i| {
            let on = bits & 1 << i != 0 && self.chance(percent);
            all | u32::from(on) << i
        })
    }
}
