//! Sparing the guest interrupts that cost it more than they bring.
//!
//! On the chip an interrupt is cheap to take, and the driver's settings (ITR, TADV) are made for
//! that. Here taking one costs a guest several messages between processes, so a driver that asks
//! for 20000 a second may do little else. How dear they are is measured: the time from raising the
//! line until the driver reads ICR. From that follow two bounds, both on timing only:
//!
//! - interrupts in a row come at a rate that leaves the guest more than half of its time, while the
//!   first ones after a pause come at once;
//! - a report that only says "sent" waits longer, for company: an interrupt for a received frame
//!   takes it along. It does not wait when so much was sent that the driver could run out of
//!   descriptors.
//!
//! Two things shorten the waits:
//!
//! - *Overflow avoidance* (thesis 002 §IV.D): with bufs = min(ap_bufs, dd_bufs), the buffers of the
//!   application and those of the driver, an interrupt has to come after t_d where
//!   t_d · r = bufs / pps (2), and r > 1 is time for the hypervisor; the interrupt frequency is
//!   IF = max(1 / t_d, lif), and lif bounds the latency of slow traffic. Frames are counted here
//!   rather than their rate sampled once a second: t_d is over when pps · t_d = bufs / r frames have
//!   come, at whatever rate. (The paper prints (3) as pps / (bufs · r), which would make the wait
//!   *longer* by r than the buffers last; (2) is what it means.) Only when the guest spends all its
//!   time on interrupts is it better that frames wait: [`LEAST_PER_COST`].
//! - *Sparse, latency-bound traffic* (the future work of thesis 000): a lone frame that comes after
//!   the guest has answered the last one, and for which the other side will wait again, gains
//!   nothing from company, since none is under way. Such interrupts cost nothing here, so request
//!   and response run as if there were no moderation.

pub use model::Moderation;

/// Nanoseconds of the model's clock.
pub type Nanos = u64;

/// The longest gap and the longest wait of a report, whatever was measured: a guest that is slow
/// to read ICR (or was not running) must not become slower. The gap is 1/lif of the paper.
pub const MOST_GAP: Nanos = 1_000_000;
const MOST_HOLD: Nanos = 2_000_000;
/// Taking an interrupt costs more than its way to ICR; with this an interrupt at every gap takes
/// about a quarter of the guest's time.
const GAP_PER_COST: Nanos = 6;
/// The shortest gap of interrupts in a row, which leaves about half of its time even to a guest that
/// is about to run out of buffers: one that does nothing but take interrupts empties none.
const LEAST_PER_COST: Nanos = 2;
const HOLD_PER_COST: Nanos = 12;
/// Interrupts that may come without a gap after a pause.
const BURST: Nanos = 2;

/// ap_bufs: frames that the application has room for. A socket of Linux has 212992 bytes by default
/// (net.core.rmem_default), and a frame of MTU size takes 2304 of them.
pub const APPLICATION: u32 = 92;
/// r, as two numbers: what the paper calls about 20 % for the hypervisor's intervention.
const REDUNDANCY: (u32, u32) = (6, 5);

/// The most that a request, or its answer, is: buffers received, descriptors sent.
const REQUEST: u32 = 2;
const ANSWER: u32 = 8;

/// Measures, and says when the line may go up. In this order: what each run of frames changes is together.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Adaptive {
    /// Descriptors sent since the driver last acknowledged.
    pub sent: u32,
    /// Buffers filled since the driver last looked at what came.
    pub received: u32,
    /// Too many descriptors were sent to wait any longer.
    pub urgent: bool,
    /// Too many were filled to wait any longer.
    pub crowded: bool,
    /// What was chosen; only with [`Moderation::Adaptive`] does anything here count.
    pub mode: Moderation,
    /// From line to acknowledgement, smoothed.
    pub cost: Nanos,
    /// Since when the line is up, or a message out, and not acknowledged.
    pub raised: Option<Nanos>,
    /// When the interrupts so far will have been paid for, at one per gap.
    pub paid: Nanos,
    /// Since when a report waits.
    pub waiting: Option<Nanos>,
}

impl Adaptive {
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

    /// The driver has acknowledged.
    pub fn acknowledged(&mut self, now: Nanos) {
        if let Some(raised) = self.raised.take() {
            let request = (1..=REQUEST).contains(&self.received);
            if request && (1..=ANSWER).contains(&self.sent) {
                self.paid = self.paid.saturating_sub(self.gap());
            }
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
        self.looked();
    }

    /// The driver has looked at what came: it acknowledges, or enables interrupts again when it has
    /// polled until there was no more.
    pub fn looked(&mut self) {
        self.received = 0;
        self.crowded = false;
    }

    /// `done` of `ring` descriptors were sent.
    pub fn sent(&mut self, done: u32, ring: u32) {
        self.sent = self.sent.saturating_add(done);
        self.urgent |= self.sent >= ring - ring / 4;
    }

    /// `filled` buffers have frames now, and `left` are still empty.
    pub fn received(&mut self, filled: u32, left: u32) {
        self.received = self.received.saturating_add(filled);
        let bufs = APPLICATION.min(self.received.saturating_add(left));
        let (times, by) = REDUNDANCY;
        self.crowded |= self.received.saturating_mul(times) >= bufs * by;
    }

    /// A report of sent frames is there.
    pub fn reported(&mut self, now: Nanos) {
        self.waiting.get_or_insert(now);
    }

    /// Until when the line stays down, `last` being when it last went up; `only_sent` when nothing
    /// but such a report is there.
    pub fn until(&self, now: Nanos, last: Option<Nanos>, only_sent: bool) -> Option<Nanos> {
        let gap = self.gap();
        let mut until = self.paid.saturating_sub(BURST * gap);
        if only_sent && !self.urgent {
            let hold = (self.cost * HOLD_PER_COST).min(MOST_HOLD);
            until = until.max(self.waiting.unwrap_or(now) + hold);
        }
        if self.crowded && !only_sent {
            let least = (self.cost * LEAST_PER_COST).min(gap);
            until = until.min(last.map_or(now, |last| last + least));
        }
        (now < until).then_some(until)
    }

    /// The operator has chosen another way. What was gathered on the old one is forgotten; the measure stays, the guest is the
    /// same.
    pub fn choose(&mut self, mode: Moderation) {
        if self.mode != mode {
            self.mode = mode;
            self.reset();
        }
    }

    /// Back to what a fresh device knows; the measure stays, the guest is the same.
    pub fn reset(&mut self) {
        *self = Self {
            mode: self.mode,
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
    fn dear() -> Adaptive {
        let mut adaptive = Adaptive {
            mode: Moderation::Adaptive,
            ..Adaptive::default()
        };
        adaptive.raised(0);
        adaptive.acknowledged(100 * US);
        adaptive
    }

    #[test]
    fn nothing_is_held_back_before_anything_was_measured() {
        let adaptive = Adaptive::default();
        assert_eq!(adaptive.until(5, None, false), None);
        assert_eq!(adaptive.until(5, None, true), None);
    }

    #[test]
    fn sparse_interrupts_go_at_once_and_a_row_of_them_is_spread() {
        let mut adaptive = dear();
        let mut now = 10_000 * US;
        let mut waits = Vec::new();
        for _ in 0..6 {
            let until = adaptive.until(now, None, false).unwrap_or(now);
            waits.push((until - now) / US);
            now = until;
            adaptive.raised(now);
            adaptive.acknowledged(now + 100 * US);
        }
        assert_eq!(waits, [0, 0, 0, 600, 600, 600]);
        now += 10_000 * US;
        assert_eq!(adaptive.until(now, None, false), None);
    }

    #[test]
    fn a_storm_while_nothing_is_moderated_is_soon_forgotten() {
        let mut adaptive = dear();
        for _ in 0..10_000 {
            adaptive.raised(1000 * US);
        }
        assert_eq!(adaptive.until(1000 * US, None, false), Some(1600 * US));
    }

    #[test]
    fn a_report_waits_for_company_unless_the_ring_runs_out() {
        let mut adaptive = dear();
        let now = 10_000 * US;
        adaptive.reported(now);
        adaptive.sent(10, 256);
        assert_eq!(adaptive.until(now, None, true), Some(now + 1200 * US));
        assert_eq!(
            adaptive.until(now, None, false),
            None,
            "company takes it along"
        );
        adaptive.sent(182, 256);
        assert_eq!(adaptive.until(now, None, true), None);
        adaptive.acknowledged(now);
        adaptive.reported(now);
        assert!(adaptive.until(now, None, true).is_some(), "counted anew");
    }

    #[test]
    fn a_guest_that_sleeps_is_not_made_slower_than_the_bounds() {
        let mut adaptive = dear();
        for _ in 0..100 {
            adaptive.raised(0);
            adaptive.acknowledged(3_600_000_000 * US);
        }
        adaptive.paid = 0;
        assert_eq!(adaptive.gap(), MOST_GAP);
        adaptive.reported(0);
        assert_eq!(adaptive.until(0, None, true), Some(MOST_HOLD));
    }

    /// The paper's terms: the frames after which an interrupt must come.
    #[test]
    fn buffers_of_application_and_driver_bound_how_many_frames_are_waited_for() {
        // dd_bufs, and bufs / r rounded up.
        for (ring, due) in [(8, 7), (24, 20), (64, 54), (92, 77), (256, 77), (4096, 77)] {
            let mut adaptive = dear();
            for n in 1..=due {
                assert!(!adaptive.crowded, "{n} of {ring}");
                adaptive.received(1, ring - n);
            }
            assert!(adaptive.crowded, "{due} of {ring}");
            adaptive.looked();
            assert!(!adaptive.crowded && adaptive.received == 0);
        }
        // No buffer at all is left: whatever came is too much.
        let mut adaptive = dear();
        adaptive.received(1, 0);
        assert!(adaptive.crowded);
    }

    #[test]
    fn a_guest_that_runs_out_of_buffers_is_told_sooner_and_still_has_half_of_its_time() {
        let mut adaptive = dear();
        let mut now = 10_000 * US;
        for _ in 0..6 {
            adaptive.raised(now);
            adaptive.acknowledged(now + 100 * US);
            now += 200 * US;
        }
        let last = now - 200 * US;
        now = last + 110 * US;
        assert!(adaptive.until(now, Some(last), false) > Some(last + 500 * US));
        adaptive.received(80, 176);
        assert_eq!(
            adaptive.until(now, Some(last), false),
            Some(last + 200 * US)
        );
        assert_eq!(adaptive.until(last + 200 * US, Some(last), false), None);
    }

    #[test]
    fn request_and_response_are_not_held_back_however_long_they_go_on() {
        let mut adaptive = dear();
        let mut now = 10_000 * US;
        for round in 0..100 {
            adaptive.received(1, 255);
            let held = adaptive.until(now, Some(now - 200 * US), false);
            assert_eq!(held, None, "round {round}");
            adaptive.raised(now);
            now += 100 * US;
            adaptive.acknowledged(now);
            // The answer, and 100 us until the next request.
            adaptive.sent(2, 256);
            now += 100 * US;
        }
        // A stream that is not answered, at the same rate, is.
        let mut now = 100_000 * US;
        let mut held = 0;
        for _ in 0..100 {
            adaptive.received(1, 255);
            if let Some(until) = adaptive.until(now, None, false) {
                held += 1;
                now = until;
            }
            adaptive.raised(now);
            adaptive.acknowledged(now + 100 * US);
            now += 200 * US;
        }
        assert!(held > 90, "{held}");
    }
}
