//! What stands between a vector and its message: EITR (§8.8.12), and what the operator has chosen.

use datapath::Moderation;
use model::{Env, Nanos};

use crate::core::irq::{Irq, Moved, Throttle};
use crate::regs::bits::{eitr, gpie};

/// Unit of EITR's interval, which begins at bit 2.
const EITR_UNIT: Nanos = 1_000;
/// The most credits there are, in EITR's bits 20:16.
pub(crate) const MOST_CREDITS: u32 = eitr::CREDITS;
/// Unit of GPIE's interval from one credit to the next, which begins at bit 7.
const CREDIT_UNIT: Nanos = 4_000;

/// What holds for all vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The shortest gap that a VF's PF leaves it.
    pub least: Nanos,
    /// From one credit to the next; 0 where immediate interrupts cost none.
    pub credit: Nanos,
}

/// What a vector would say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tidings {
    /// That frames were sent, among others.
    pub sent: bool,
    /// And nothing else.
    pub only_sent: bool,
}

impl Throttle {
    /// As EITR says.
    pub fn set(&mut self, eitr: u32) {
        self.gap = Nanos::from((eitr & eitr::INTERVAL) >> eitr::INTERVAL_SHIFT) * EITR_UNIT;
        self.moderated = eitr & eitr::LLI_EN != 0;
    }

    /// The credits it has at `now`.
    pub fn credits(mut self, now: Nanos, credit: Nanos) -> u32 {
        self.earn(now, credit);
        self.credits
    }

    /// Takes saved credits; the next is on its way from now on.
    pub fn load_credits(&mut self, now: Nanos, credits: u32) {
        (self.credits, self.since) = (credits, now);
    }

    /// As if it had not spoken since it was as `before`.
    pub fn keep_times(&mut self, before: &Throttle) {
        (self.last, self.credits, self.since) = (before.last, before.credits, before.since);
    }

    /// Adds the credits that have come due, one each `credit`.
    fn earn(&mut self, now: Nanos, credit: Nanos) {
        if let Some(earned) = now.saturating_sub(self.since).checked_div(credit)
            && earned > 0
        {
            let credits = Nanos::from(self.credits) + earned;
            self.credits = credits.min(MOST_CREDITS.into()) as u32;
            self.since += earned * credit;
        }
    }

    /// The gap from one message to the next, at least `least`.
    fn gap(&self, least: Nanos) -> Nanos {
        self.adaptive.mode.gap().unwrap_or(self.gap).max(least)
    }

    /// Until when it has to wait.
    pub fn wait(&mut self, env: &Env, tidings: Tidings, pace: Pace) -> Option<Nanos> {
        let gap = self.gap(pace.least);
        if gap == 0 {
            return None;
        }
        let now = env.clock.now();
        let until = self.regular(now, gap, tidings);
        if !self.hurried {
            return until;
        }
        // At once, or with the next credit, if the gap is not over before (I210's data sheet, §7.3.6.1).
        let moderated = self.moderated && pace.credit != 0;
        if moderated {
            self.earn(now, pace.credit);
        }
        let next = self.since.saturating_add(pace.credit);
        until
            .filter(|_| moderated && self.credits == 0)
            .map(|at| at.min(next))
    }

    /// The same for what is in no hurry.
    fn regular(&mut self, now: Nanos, gap: Nanos, tidings: Tidings) -> Option<Nanos> {
        let throttled = self.last.map(|last| last + gap).filter(|at| now < *at);
        // A driver that wants no moderation at all (it polls, or is in a boot ROM) gets none.
        if self.adaptive.mode != Moderation::Adaptive || self.gap == 0 {
            return throttled;
        }
        if tidings.sent {
            self.adaptive.reported(now);
        }
        let until = self.adaptive.until(now, self.last, tidings.only_sent);
        throttled.max(until)
    }

    pub fn spoke(&mut self, env: &Env, pace: Pace) {
        let hurried = std::mem::take(&mut self.hurried);
        if self.gap(pace.least) != 0 {
            let now = env.clock.now();
            if hurried && self.moderated && pace.credit != 0 {
                self.earn(now, pace.credit);
                self.credits = self.credits.saturating_sub(1);
            }
            self.last = Some(now);
            if self.adaptive.mode == Moderation::Adaptive {
                self.adaptive.raised(now);
            }
        }
    }

    /// What is pending is an immediate interrupt (§7.3.4.1). What the operator has fixed stands.
    pub fn hurry(&mut self) {
        self.hurried = self.adaptive.mode.gap().is_none();
    }

    /// CTRL.RST: EITR stays.
    pub fn reset(&mut self) {
        self.last = None;
        self.hurried = false;
        self.credits = 0;
        self.adaptive.reset();
    }
}

impl Irq {
    /// Whether it takes liberties with timing that need [`Irq::received`] and [`Irq::sent`].
    pub(crate) fn adapts(&self) -> bool {
        self.throttles[0].adaptive.mode == Moderation::Adaptive
    }

    pub(crate) fn pace(&self) -> Pace {
        Pace {
            least: self.least,
            credit: Nanos::from(self.gpie >> gpie::LL_INTERVAL_SHIFT & gpie::LL_INTERVAL)
                * CREDIT_UNIT,
        }
    }

    /// What a vector may spend on immediate interrupts, as EITR shows it.
    pub(crate) fn credits(&self, env: &Env, vector: u32) -> u32 {
        let credit = self.pace().credit;
        let now = env.clock.now();
        match self.throttles.get(vector as usize) {
            Some(throttle) if throttle.moderated => throttle.credits(now, credit),
            _ => 0,
        }
    }

    /// EITR was written without eitr::CNT_INGR: so many are left.
    pub(crate) fn set_credits(&mut self, env: &Env, vector: u32, credits: u32) {
        if let Some(throttle) = self.throttles.get_mut(vector as usize) {
            throttle.load_credits(env.clock.now(), credits & MOST_CREDITS);
            self.apply(env);
        }
    }

    /// Credits come at another rate from now on; what has come stays.
    pub(super) fn settle_credits(&mut self, env: &Env) {
        let (now, credit) = (env.clock.now(), self.pace().credit);
        for throttle in &mut self.throttles {
            throttle.earn(now, credit);
            throttle.since = now;
        }
    }

    /// The number of the throttle of a queue's entry in IVAR.
    fn throttle_of(&mut self, entry: u8) -> Option<&mut Throttle> {
        let vector = match self.multiple() {
            true => self.vector(entry).trailing_zeros() as usize,
            false => 0,
        };
        self.throttles.get_mut(vector)
    }

    /// Buffers of receive queues were filled.
    pub(crate) fn received(&mut self, moved: &Moved) {
        for (queue, moved) in moved.iter().enumerate().filter(|(_, m)| m.done > 0) {
            if let Some(throttle) = self.throttle_of(self.rx[queue]) {
                throttle.adaptive.received(moved.done, moved.of);
            }
        }
    }

    /// Descriptors of transmit queues were done.
    pub(crate) fn sent(&mut self, moved: &Moved) {
        for (queue, moved) in moved.iter().enumerate().filter(|(_, m)| m.done > 0) {
            if let Some(throttle) = self.throttle_of(self.tx[queue]) {
                throttle.adaptive.sent(moved.done, moved.of);
            }
        }
    }

    /// The driver has given buffers to a receive queue: if it was told of frames there, it has heard.
    pub(crate) fn refilled(&mut self, env: &Env, queue: u32) {
        let Some(entry) = self.rx.get(queue as usize).copied() else {
            return;
        };
        if let Some(throttle) = self.throttle_of(entry)
            && throttle.adaptive.raised.is_some()
        {
            throttle.adaptive.acknowledged(env.clock.now());
        }
    }

    /// The driver has answered these vectors: it has cleared them, or opened their masks again.
    pub(super) fn answered(&mut self, env: &Env, mut vectors: u32) {
        if !self.adapts() {
            return;
        }
        let now = env.clock.now();
        while vectors != 0 {
            let vector = vectors.trailing_zeros() as usize;
            vectors &= vectors - 1;
            if let Some(throttle) = self.throttles.get_mut(vector) {
                throttle.adaptive.acknowledged(now);
            }
        }
    }

    /// The vector of everything that is of no queue; the only one where there is one message.
    pub(super) fn general(&self) -> u32 {
        match self.multiple() {
            true => self.vector(self.other),
            false => 1,
        }
    }

    /// What chooses the time of interrupts, from now on.
    pub(crate) fn moderate(&mut self, how: Moderation) {
        for throttle in &mut self.throttles {
            throttle.adaptive.choose(how);
        }
    }

    /// At least this long from one message of a vector to its next, whatever else is said. As EITR
    /// would have it: whole microseconds, and not beyond its longest.
    pub(crate) fn space(&mut self, env: &Env, gap: Nanos) {
        self.least = least(gap);
        self.apply(env);
    }
}

/// A gap as EITR could say it.
pub(crate) fn least(gap: Nanos) -> Nanos {
    gap.div_ceil(EITR_UNIT)
        .min(Nanos::from(eitr::INTERVAL >> eitr::INTERVAL_SHIFT))
        * EITR_UNIT
}
