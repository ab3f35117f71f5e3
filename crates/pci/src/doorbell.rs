//! Registers that may be plain memory, shared with the guest.
//!
//! A write to such memory completes at once and sends no message: the host polls it now and then. That
//! changes what the registers are. The last value wins, the host may miss values in between, and no
//! bit clears itself under the guest's eyes. Ring bases, lengths and tails bear that; a register
//! whose read has an effect does not, and must lie on another page.

use std::ops::Range;

/// Most queues one description may have.
pub const MAX_QUEUES: usize = 64;

/// Registers of one queue, by offset in the BAR; 32 bits each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDoorbell {
    /// What is written before the queue is enabled, in the order in which it is to be applied.
    pub setup: Vec<u32>,
    /// The head, which the device moves.
    pub head: u32,
    /// The register that enables the queue, and its bits that do. It may lie elsewhere in the BAR: then it is no memory, and
    /// says only when the queue can ring.
    pub enable: (u32, u32),
    /// The tail: the doorbell.
    pub tail: u32,
}

impl QueueDoorbell {
    /// All of its registers, in the order in which changes are to be applied: the ring, then whether
    /// it is on, then how far it is filled. All are memory, but for an enabling register that is on no page.
    pub fn registers(&self) -> impl Iterator<Item = u32> + '_ {
        let setup = self.setup.iter().copied();
        setup.chain([self.head, self.enable.0, self.tail])
    }
}

/// Registers of a BAR that may be memory shared with the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doorbells {
    /// The BAR.
    pub bar: u8,
    /// The pages they lie on: offset and bytes, multiples of 4096, in ascending order. Nothing else
    /// that the guest needs is there.
    pub pages: Vec<(u32, u32)>,
    /// The queues, at most [`MAX_QUEUES`].
    pub queues: Vec<QueueDoorbell>,
    /// Other registers on the pages that keep what is written, in the order in which they are to be
    /// applied, before those of the queues.
    pub others: Vec<u32>,
    /// Registers elsewhere in the BAR whose writing changes some on the pages: aliases, resets.
    pub touched_by: Vec<Range<u32>>,
}

impl Doorbells {
    /// Whether a write at `offset` of the BAR may have changed registers on the pages.
    pub fn touches(&self, offset: u64) -> bool {
        let Ok(at) = u32::try_from(offset) else {
            return false;
        };
        self.is_on_page(at) || self.touched_by.iter().any(|range| range.contains(&at))
    }

    /// Whether there is memory at `offset`.
    pub fn is_on_page(&self, offset: u32) -> bool {
        let page = |(page, len): &(u32, u32)| (*page..page.saturating_add(*len)).contains(&offset);
        self.pages.iter().any(page)
    }

    /// All registers that are memory, in the order in which changes are to be applied.
    pub fn registers(&self) -> impl Iterator<Item = u32> + '_ {
        let others = self.others.iter().copied();
        let queues = self.queues.iter().flat_map(|queue| {
            let elsewhere = !self.is_on_page(queue.enable.0);
            let registers = queue.registers();
            registers.filter(move |at| !elsewhere || *at != queue.enable.0)
        });
        others.chain(queues)
    }

    /// Whether the description can be: pages apart and in order, each register on one of them, each
    /// named once; and writes of an enabling register that is on none are known to switch a queue.
    pub fn valid(&self) -> bool {
        const PAGE: u32 = 4096;
        let mut end = 0;
        let pages = self.pages.iter().all(|&(at, len)| {
            let after = at.checked_add(len);
            let good = at >= end && len > 0 && at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
            end = after.unwrap_or(u32::MAX);
            good && after.is_some()
        });
        let mut registers: Vec<u32> = self.registers().collect();
        let on_page = |at: &u32| at.is_multiple_of(4) && self.is_on_page(*at);
        let mut enables = self.queues.iter().map(|queue| queue.enable.0);
        let known = enables.all(|at| at.is_multiple_of(4) && self.touches(at.into()));
        pages && !self.pages.is_empty() && self.queues.len() <= MAX_QUEUES && {
            let placed = registers.iter().all(on_page);
            let count = registers.len();
            registers.sort_unstable();
            registers.dedup();
            known && placed && registers.len() == count
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(at: u32) -> QueueDoorbell {
        QueueDoorbell {
            setup: vec![at, at + 4, at + 8],
            head: at + 0x10,
            enable: (at + 0x28, 1 << 25),
            tail: at + 0x18,
        }
    }

    fn good() -> Doorbells {
        Doorbells {
            bar: 0,
            pages: vec![(0xc000, 0x1000), (0xe000, 0x1000)],
            queues: vec![queue(0xc000), queue(0xc040), queue(0xe000)],
            others: vec![0xc800],
            touched_by: vec![0..4, 0x2800..0x2c00],
        }
    }

    #[test]
    fn a_queue_is_set_up_before_it_is_enabled_and_filled_last() {
        let order: Vec<u32> = queue(0xc000).registers().collect();
        assert_eq!(order, [0xc000, 0xc004, 0xc008, 0xc010, 0xc028, 0xc018]);
    }

    #[test]
    fn writes_that_touch_a_page_are_known() {
        let bells = good();
        for at in [0, 3, 0x2800, 0x2bff, 0xc000, 0xcfff, 0xe018] {
            assert!(bells.touches(at), "{at:#x}");
        }
        for at in [4, 0x2c00, 0xb000, 0xd000, 0xf000, 1 << 32, u64::MAX] {
            assert!(!bells.touches(at), "{at:#x}");
        }
    }

    #[test]
    fn a_queue_may_be_enabled_by_an_access() {
        let mut bells = good();
        bells.queues[0].enable.0 = 0x2800;
        assert!(bells.valid());
        assert!(bells.registers().all(|at| at != 0x2800));
        assert_eq!(bells.registers().count(), good().registers().count() - 1);
        // One register may enable several.
        bells.queues[1].enable.0 = 0x2800;
        assert!(bells.valid());
        bells.queues[1].enable.0 = 0x100;
        assert!(!bells.valid(), "the pages would not follow it");
        bells.queues[1].enable.0 = 0x2802;
        assert!(!bells.valid(), "not aligned");
    }

    #[test]
    fn impossible_descriptions_are_known() {
        assert!(good().valid());
        let bad = |change: fn(&mut Doorbells)| {
            let mut bells = good();
            change(&mut bells);
            !bells.valid()
        };
        assert!(bad(|b| b.pages.clear()));
        assert!(bad(|b| b.pages.reverse()));
        assert!(bad(|b| b.pages[1].1 = 0x800));
        assert!(
            bad(|b| b.pages[1] = (0xffff_f000, 0x1000)),
            "beyond the end"
        );
        assert!(bad(|b| b.queues[0].tail = 0xd000), "not on a page");
        assert!(bad(|b| b.queues[0].tail = 0xc01a), "not aligned");
        assert!(bad(|b| b.queues[0].tail = 0xc010), "named twice");
        assert!(bad(|b| b.others[0] = 0xc018), "named twice");
        assert!(bad(|b| b.queues = vec![QueueDoorbell::default(); 65]));
    }
}
