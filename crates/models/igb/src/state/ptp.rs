//! The clock as plain data.

use model::Nanos;
use regs::Found;

use crate::core::ptp::{Ptp, Stamp};
use crate::ptp::TICK;
use crate::state::{Clock, StateError, check};
use crate::{regs as r, state};

/// Longest that the clock stands between two steps: its period has eight bits.
const LONGEST: u64 = 255 * TICK;

intel::mirrored!(Stamp as state::Stamp { time, source, sequence });

impl Ptp {
    pub(crate) fn save(&self, now: Nanos) -> Clock {
        let mut copy = Ptp { ..*self };
        let time = copy.time(now);
        let Ptp {
            base: _, // it is the time
            since,
            increment: _, // TIMINCA
            period: _,
            high,
            sent,
            received,
            adjust_low,
        } = copy;
        Clock {
            time,
            since: now.saturating_sub(since),
            high,
            sent,
            received: received.map(|stamp| stamp.saved()),
            adjust_low,
        }
    }

    /// One of a PF whose registers will hold `words`.
    pub(crate) fn load(
        state: &Clock,
        words: &[(Found, u32)],
        now: Nanos,
    ) -> Result<Ptp, StateError> {
        let Clock {
            time,
            since,
            high,
            sent,
            received,
            adjust_low,
        } = state;
        check(
            *since <= LONGEST,
            "clock.since",
            *since,
            "longer than it stands",
        )?;
        let mut ptp = Ptp::default();
        let rate = words.iter().find(|(found, _)| found.id == r::TIMINCA);
        ptp.set_timinca(now, rate.map_or(0, |(_, value)| *value));
        ptp.base = *time;
        ptp.since = now.saturating_sub(*since);
        ptp.high = *high;
        ptp.sent = *sent;
        ptp.received = received.map(|stamp| Stamp::of_saved(&stamp));
        ptp.adjust_low = *adjust_low;
        Ok(ptp)
    }
}
