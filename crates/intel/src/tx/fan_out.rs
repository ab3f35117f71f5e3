//! How many receivers copy what is sent, and what follows for a turn.

use frame::work;

/// Fewest frames offered at once, however many copy them.
const FEWEST: usize = 16;
/// One part in so many of what was learned is forgotten with each batch that says less.
const FORGETS: usize = 8;

/// Copies that were made of each frame lately.
#[derive(Clone, Copy, Debug)]
pub struct FanOut {
    copies: usize,
}

impl Default for FanOut {
    fn default() -> Self {
        FanOut { copies: 1 }
    }
}

impl FanOut {
    /// Frames to offer at once, of a budget of `budget` copies.
    #[inline]
    pub fn frames(&self, budget: usize) -> usize {
        if self.copies == 1 {
            return budget;
        }
        (budget / self.copies).max(FEWEST).min(budget)
    }

    /// One frame was, as [`FanOut::learn`] has it.
    #[inline]
    pub fn learn_one(&mut self) -> usize {
        match work::take() {
            0 | 1 if self.copies == 1 => 1,
            made => self.learn_made(1, usize::try_from(made).unwrap_or(usize::MAX)),
        }
    }

    /// `taken` frames were. Returns what they cost of a budget: a copy each, or those that were made.
    #[inline]
    pub fn learn(&mut self, taken: usize) -> usize {
        self.learn_made(taken, usize::try_from(work::take()).unwrap_or(usize::MAX))
    }

    fn learn_made(&mut self, taken: usize, made: usize) -> usize {
        if made <= taken && self.copies == 1 {
            return taken;
        }
        let each = (made / taken.max(1)).max(1);
        self.copies = each.max(self.copies - self.copies.div_ceil(FORGETS)).max(1);
        made.max(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_makes_batches_small_until_it_is_over() {
        let mut fan = FanOut::default();
        assert_eq!((fan.frames(256), fan.learn(200)), (256, 200));
        work::add(256 * 60);
        assert_eq!(fan.learn(256), 256 * 60);
        assert_eq!((fan.frames(256), fan.frames(7)), (16, 7));
        work::add(16 * 4);
        assert_eq!(fan.learn(16), 16 * 4);
        let batches = (0..).take_while(|_| {
            fan.learn(16);
            fan.frames(256) < 256
        });
        assert!(batches.count() < 64);
    }
}
