//! Leaving a guest time for what it receives.
//!
//! A driver polls until its ring is empty. When frames come faster than it takes them out, that is
//! never: the guest's kernel takes all of them and loses most, since the program they are for does not
//! get the processor (receive livelock; ANCS 2013 §3.4). Interrupts are not the cause and fewer of them
//! no cure. What cures it guarantees programs their part of the time, as the poll of FreeBSD does that
//! the paper praises. The NIC can do the same, for any guest: after as many frames as an application has
//! room for, the next ones wait here, where waiting costs the guest nothing, until the driver has
//! enabled interrupts again and as long again as its poll took ([`REST`]). Frames that wait push back
//! on their sender.
//!
//! A guest that sends anything has time to, and is let alone: a receiver of TCP acknowledges, a router
//! forwards, a server answers. So is a driver that does not disable interrupts while it polls, or takes
//! none, since when its poll ends cannot be seen.
//!
//! Whether programs starve cannot be seen either: a guest that does all its work in the poll, or has other
//! processors for its programs, only loses by it. So it is the operator who asks for it.

use crate::adaptive::{APPLICATION, Nanos};

/// Frames without a word from the guest after which it is taken for one that only receives: more than
/// it leaves unanswered while there is a connection.
const SILENCE: u32 = 512;
/// For as long as a poll took, what the guest's programs have: as two numbers.
const REST: (Nanos, Nanos) = (3, 2);
/// The longest poll that counts: a guest that was not running needs no rest for it.
const MOST_POLL: Nanos = 2_000_000;
/// The longest that frames wait for a poll to end, and so the longest wait at all.
const MOST_WAIT: Nanos = 3_000_000;

/// What is known of the guest's time. In this order: what each run of frames changes is together.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RxThrottle {
    /// Frames since the guest last sent something.
    silent: u32,
    /// Frames since the driver last ended a poll.
    given: u32,
    /// The operator has asked for it.
    pub on: bool,
    /// It is one that disables interrupts while it polls.
    polls: bool,
    /// No frame is given until then.
    pub rest: Option<Nanos>,
    /// When it read the ICR that made it poll.
    began: Option<Nanos>,
}

impl RxThrottle {
    /// As it is at the start; `on`: the operator wants it.
    pub fn new(on: bool) -> Self {
        Self {
            on,
            ..Self::default()
        }
    }

    /// Frames that may be given at once.
    pub fn allowed(&self) -> u32 {
        if self.rest.is_some() {
            0
        } else if self.polls && self.silent >= SILENCE {
            APPLICATION
        } else {
            u32::MAX
        }
    }

    /// `filled` buffers have frames now. Whether that is enough, and a rest is to begin.
    #[inline]
    pub fn received(&mut self, filled: u32) -> bool {
        self.silent = self.silent.saturating_add(filled);
        self.given = self.given.saturating_add(filled);
        let enough = self.polls && self.silent >= SILENCE && self.given >= APPLICATION;
        enough && self.rest.is_none()
    }

    /// No frames until the poll that they make has ended, and some time after that.
    pub fn begin(&mut self, now: Nanos) {
        self.rest = Some(now + MOST_WAIT);
    }

    /// Something was sent.
    pub fn sent(&mut self) {
        self.silent = 0;
    }

    /// The driver has read ICR with the line up.
    pub fn acknowledged(&mut self, now: Nanos) {
        if self.began.replace(now).is_some() {
            // Interrupt after interrupt: this one does not poll.
            self.polls = false;
            self.rest = self.rest.map(|_| now);
        }
    }

    /// It has disabled interrupts for received frames.
    pub fn masked(&mut self) {
        self.polls |= self.began.is_some();
    }

    /// It has enabled interrupts for received frames, which were disabled.
    pub fn ended(&mut self, now: Nanos) {
        let Some(began) = self.began.take() else {
            return;
        };
        self.given = 0;
        if let Some(rest) = &mut self.rest {
            let (times, by) = REST;
            let took = now.saturating_sub(began).min(MOST_POLL);
            *rest = (*rest).min(now + took * times / by);
        }
    }

    /// Whether a rest is over.
    pub fn tick(&mut self, now: Nanos) -> bool {
        let over = self.rest.is_some_and(|rest| rest <= now);
        if over {
            self.rest = None;
            self.given = 0;
            // One that goes on although nothing comes is not to be waited for.
            self.polls &= self.began.is_none();
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = 1000;

    /// A driver that polls, and a guest that has been silent for almost long enough.
    fn silent() -> RxThrottle {
        let mut rx_throttle = RxThrottle::new(true);
        rx_throttle.acknowledged(0);
        rx_throttle.masked();
        rx_throttle.received(SILENCE - 1);
        rx_throttle.ended(100 * US);
        rx_throttle
    }

    #[test]
    fn a_silent_guest_gets_its_ration_and_one_and_a_half_times_its_poll() {
        let mut rx_throttle = silent();
        assert_eq!(rx_throttle.allowed(), u32::MAX);
        assert!(!rx_throttle.received(1));
        assert_eq!(rx_throttle.allowed(), APPLICATION);
        rx_throttle.acknowledged(300 * US);
        assert!(rx_throttle.received(APPLICATION - 1));
        rx_throttle.begin(310 * US);
        assert_eq!(rx_throttle.allowed(), 0);
        assert!(!rx_throttle.tick(900 * US), "its poll has not ended");
        rx_throttle.ended(900 * US);
        assert_eq!(rx_throttle.rest, Some(1800 * US));
        assert!(!rx_throttle.tick(1799 * US));
        assert!(rx_throttle.tick(1800 * US));
        assert_eq!(rx_throttle.allowed(), APPLICATION);
    }

    #[test]
    fn whoever_answers_is_let_alone() {
        let mut rx_throttle = silent();
        rx_throttle.received(1);
        rx_throttle.sent();
        assert_eq!(rx_throttle.allowed(), u32::MAX);
        for _ in 0..1000 {
            assert!(!rx_throttle.received(SILENCE - 1));
            rx_throttle.sent();
        }
    }

    #[test]
    fn whoever_takes_no_interrupts_or_leaves_them_on_is_let_alone() {
        let mut rx_throttle = RxThrottle::new(true);
        assert!(!rx_throttle.received(100_000));
        assert_eq!(rx_throttle.allowed(), u32::MAX);
        // Interrupt after interrupt, which also ends what was begun for one that polls.
        let mut rx_throttle = silent();
        rx_throttle.acknowledged(200 * US);
        assert!(rx_throttle.received(APPLICATION));
        rx_throttle.begin(200 * US);
        rx_throttle.acknowledged(300 * US);
        assert!(rx_throttle.tick(300 * US));
        assert!(!rx_throttle.received(100_000));
        assert_eq!(rx_throttle.allowed(), u32::MAX);
    }

    #[test]
    fn a_poll_that_never_ends_is_not_waited_for_for_ever() {
        let mut rx_throttle = silent();
        rx_throttle.acknowledged(200 * US);
        assert!(rx_throttle.received(APPLICATION));
        rx_throttle.begin(300 * US);
        assert!(!rx_throttle.tick(300 * US + MOST_WAIT - 1));
        assert!(rx_throttle.tick(300 * US + MOST_WAIT));
        assert!(!rx_throttle.received(APPLICATION), "nor again");
        assert_eq!(rx_throttle.allowed(), u32::MAX);
        // One that was long does not make the rest long.
        let mut rx_throttle = silent();
        rx_throttle.acknowledged(200 * US);
        let now = 400 * US + MOST_WAIT;
        assert!(rx_throttle.received(APPLICATION));
        rx_throttle.begin(now);
        rx_throttle.ended(now);
        assert_eq!(rx_throttle.rest, Some(now + MOST_POLL * 3 / 2));
    }
}
