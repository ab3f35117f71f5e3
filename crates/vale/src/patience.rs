//! How long one sender waits for slow receivers, when it has others to serve.
//!
//! A sender that waits keeps its frames in order, so what it has for others waits too. The bound of each receiver
//! ([`Port::patience`](crate::port::Port::patience)) limits one wait. This limits their sum: a receiver that takes a
//! frame now and then would otherwise set the pace of all that its senders send. A sender that has one receiver waits
//! as long as that receiver's bound allows, because nothing else waits with it.

use crate::config::Nanos;
use crate::table::PortId;

const SECOND: Nanos = 1_000_000_000;
/// Longest that a sender waits for one receiver in a second.
pub(crate) const FOR_ONE: Nanos = SECOND / 10;
/// Longest that it waits for all of them.
pub(crate) const FOR_ALL: Nanos = SECOND / 4;
/// Receivers that are remembered.
const REMEMBERED: usize = 4;

/// Of one sender. The lock of its deliveries guards it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Patience {
    /// For whom it waits. What each delivery looks at is first.
    waiting: Option<PortId>,
    /// Who got the latest frames.
    last: Option<PortId>,
    /// Since when it waits.
    since: Nanos,
    /// Until when it counts as one with several receivers.
    several_until: Nanos,
    /// When the second began that the sums are of.
    began: Nanos,
    all: Nanos,
    each: [(Option<PortId>, Nanos); REMEMBERED],
}

impl Patience {
    /// A delivery begins: a wait is over. `longest` is what one wait can have been.
    #[inline]
    pub(crate) fn resume(&mut self, now: Nanos, longest: Nanos) {
        if let Some(to) = self.waiting.take() {
            self.charge(to, now.saturating_sub(self.since).min(longest), now);
        }
    }

    #[cold]
    fn charge(&mut self, to: PortId, waited: Nanos, now: Nanos) {
        if now.saturating_sub(self.began) >= SECOND {
            (self.began, self.all, self.each) = (now, 0, Default::default());
        }
        if !self.serves_several(now) {
            return;
        }
        self.all += waited;
        let known = self.each.iter().position(|(id, _)| *id == Some(to));
        let least = || (0..REMEMBERED).min_by_key(|at| self.each[*at].1);
        let at = known.or_else(least).unwrap_or(0);
        if known.is_none() {
            self.each[at] = (Some(to), 0);
        }
        self.each[at].1 += waited;
    }

    /// This receiver gets frames; `alone` when no other does with it.
    #[inline]
    pub(crate) fn serves(&mut self, to: PortId, alone: bool, now: Nanos) {
        if !alone || self.last.is_some_and(|last| last != to) {
            self.several_until = now.saturating_add(SECOND);
        }
        self.last = Some(to);
    }

    /// Who got the latest frames.
    pub(crate) fn last(&self) -> Option<PortId> {
        self.last
    }

    /// Where what each delivery looks at ends.
    #[cfg(test)]
    pub(crate) fn hot_end(&self) -> usize {
        std::ptr::from_ref(&self.since).addr()
    }

    fn serves_several(&self, now: Nanos) -> bool {
        now < self.several_until
    }

    /// Whether it may wait for this receiver.
    pub(crate) fn has_left(&self, to: PortId, now: Nanos) -> bool {
        if now.saturating_sub(self.began) >= SECOND || !self.serves_several(now) {
            return true;
        }
        let mut each = self.each.iter();
        let spent = each.find(|(id, _)| *id == Some(to)).map_or(0, |(_, n)| *n);
        self.all < FOR_ALL && spent < FOR_ONE
    }

    /// It waits for this receiver from now on.
    pub(crate) fn wait(&mut self, to: PortId, now: Nanos) {
        (self.waiting, self.since) = (Some(to), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const LONGEST: Nanos = 20 * MS;

    /// Waits for `slow` as long as it may, in steps of 10 ms, with a frame for `other` after each. Returns the sum.
    fn waits(patience: &mut Patience, slow: &[PortId], other: PortId, now: &mut Nanos) -> Nanos {
        let mut waited = 0;
        for n in 0..100 {
            let slow = slow[n % slow.len()];
            patience.resume(*now, LONGEST);
            patience.serves(slow, true, *now);
            if patience.has_left(slow, *now) {
                patience.wait(slow, *now);
                *now += 10 * MS;
                waited += 10 * MS;
                patience.resume(*now, LONGEST);
            }
            patience.serves(other, true, *now);
        }
        waited
    }

    #[test]
    fn one_receiver_is_waited_for_for_ever() {
        let (mut patience, mut now) = (Patience::default(), SECOND);
        assert_eq!(waits(&mut patience, &[1], 1, &mut now), SECOND);
    }

    #[test]
    fn beside_others_one_has_a_tenth_of_each_second_and_all_have_a_quarter() {
        let (mut patience, mut now) = (Patience::default(), SECOND);
        assert_eq!(waits(&mut patience, &[1], 9, &mut now), FOR_ONE + 10 * MS);
        now += SECOND;
        assert_eq!(waits(&mut patience, &[1], 9, &mut now), FOR_ONE);
        now += SECOND;
        let many = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(waits(&mut patience, &many, 9, &mut now), FOR_ALL);
    }

    #[test]
    fn a_sender_that_was_away_has_not_waited_all_the_time() {
        let mut patience = Patience::default();
        patience.serves(1, true, SECOND);
        patience.serves(2, true, SECOND);
        patience.wait(1, SECOND);
        patience.resume(SECOND + SECOND / 2, LONGEST);
        assert!(patience.has_left(1, SECOND + SECOND / 2));
    }
}
