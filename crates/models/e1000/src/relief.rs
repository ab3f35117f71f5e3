//! Sparing the guest interrupts that cost it more than they bring.
//!
//! On the chip an interrupt is cheap to take, and the driver's settings (ITR, TADV) are made for
//! that. Here taking one costs a guest several messages between processes, so a driver that asks
//! for 20000 a second may do little else. How dear they are is measured: the time from raising the
//! line until the driver reads ICR. From that follow two bounds, both on timing only:
//!
//! - interrupts in a row come at a rate that leaves the guest more than half of its time, while the
//!   first ones after a pause come at once (sparse, latency-bound traffic is not touched: the
//!   future work of thesis 000 and 002 §IV.D);
//! - a report that only says "sent" waits longer, for company: an interrupt for a received frame
//!   takes it along. It does not wait when so much was sent that the driver could run out of
//!   descriptors.

use model::Nanos;

/// The longest gap and the longest wait of a report, whatever was measured: a guest that is slow
/// to read ICR (or was not running) must not become slower.
pub(crate) const MOST_GAP: Nanos = 1_000_000;
const MOST_HOLD: Nanos = 2_000_000;
/// Taking an interrupt costs more than its way to ICR; with this an interrupt at every gap takes
/// about a quarter of the guest's time.
const GAP_PER_COST: Nanos = 6;
const HOLD_PER_COST: Nanos = 12;
/// Interrupts that may come without a gap after a pause.
const BURST: Nanos = 2;

/// Measures, and says when the line may go up.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    pub on: bool,
    /// From line to ICR, smoothed.
    pub cost: Nanos,
    /// The line is up, and ICR has not been read.
    pub raised: Option<Nanos>,
    /// When the interrupts so far will have been paid for, at one per gap.
    pub paid: Nanos,
    /// Since when a report waits, and how many descriptors it stands for.
    pub waiting: Option<Nanos>,
    pub sent: u32,
    /// Too many descriptors were sent to wait any longer.
    pub urgent: bool,
}

impl Relief {
    fn gap(&self) -> Nanos {
        (self.cost * GAP_PER_COST).min(MOST_GAP)
    }

    /// The line went up.
    pub fn raised(&mut self, now: Nanos) {
        self.raised = Some(now);
        // Those that went up without asking (ITR was 0) are no debt without end.
        let most = now + BURST * self.gap();
        self.paid = self.paid.clamp(now, most) + self.gap();
    }

    /// The driver has read ICR.
    pub fn acknowledged(&mut self, now: Nanos) {
        if let Some(raised) = self.raised.take() {
            let sample = now.saturating_sub(raised).min(MOST_GAP);
            self.cost = if self.cost == 0 {
                sample
            } else {
                (self.cost * 7 + sample) / 8
            };
        }
        self.waiting = None;
        self.sent = 0;
        self.urgent = false;
    }

    /// `done` of `ring` descriptors were sent.
    pub fn sent(&mut self, done: u32, ring: u32) {
        self.sent = self.sent.saturating_add(done);
        self.urgent |= self.sent >= ring - ring / 4;
    }

    /// A report of sent frames is there.
    pub fn reported(&mut self, now: Nanos) {
        self.waiting.get_or_insert(now);
    }

    /// Until when the line stays down; `only_sent` when nothing but such a report is there.
    pub fn until(&self, now: Nanos, only_sent: bool) -> Option<Nanos> {
        let gap = self.gap();
        let mut until = self.paid.saturating_sub(BURST * gap);
        if only_sent && !self.urgent {
            let hold = (self.cost * HOLD_PER_COST).min(MOST_HOLD);
            until = until.max(self.waiting.unwrap_or(now) + hold);
        }
        (now < until).then_some(until)
    }

    /// Back to what a fresh device knows; the measure stays, the guest is the same.
    pub fn reset(&mut self) {
        *self = Self {
            on: self.on,
            cost: self.cost,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = 1000;

    /// A guest that takes 100 µs from line to ICR.
    fn dear() -> Relief {
        let mut relief = Relief {
            on: true,
            ..Relief::default()
        };
        relief.raised(0);
        relief.acknowledged(100 * US);
        relief
    }

    #[test]
    fn nothing_is_held_back_before_anything_was_measured() {
        let relief = Relief::default();
        assert_eq!(relief.until(5, false), None);
        assert_eq!(relief.until(5, true), None);
    }

    #[test]
    fn sparse_interrupts_go_at_once_and_a_row_of_them_is_spread() {
        let mut relief = dear();
        let mut now = 10_000 * US;
        let mut waits = Vec::new();
        for _ in 0..6 {
            let until = relief.until(now, false).unwrap_or(now);
            waits.push((until - now) / US);
            now = until;
            relief.raised(now);
            relief.acknowledged(now + 100 * US);
        }
        assert_eq!(waits, [0, 0, 0, 600, 600, 600]);
        now += 10_000 * US;
        assert_eq!(relief.until(now, false), None);
    }

    #[test]
    fn a_storm_while_nothing_is_moderated_is_soon_forgotten() {
        let mut relief = dear();
        for _ in 0..10_000 {
            relief.raised(1000 * US);
        }
        assert_eq!(relief.until(1000 * US, false), Some(1600 * US));
    }

    #[test]
    fn a_report_waits_for_company_unless_the_ring_runs_out() {
        let mut relief = dear();
        let now = 10_000 * US;
        relief.reported(now);
        relief.sent(10, 256);
        assert_eq!(relief.until(now, true), Some(now + 1200 * US));
        assert_eq!(relief.until(now, false), None, "company takes it along");
        relief.sent(182, 256);
        assert_eq!(relief.until(now, true), None);
        relief.acknowledged(now);
        relief.reported(now);
        assert!(relief.until(now, true).is_some(), "counted anew");
    }

    #[test]
    fn a_guest_that_sleeps_is_not_made_slower_than_the_bounds() {
        let mut relief = dear();
        for _ in 0..100 {
            relief.raised(0);
            relief.acknowledged(3_600_000_000 * US);
        }
        relief.paid = 0;
        assert_eq!(relief.gap(), MOST_GAP);
        relief.reported(0);
        assert_eq!(relief.until(0, true), Some(MOST_HOLD));
    }
}
