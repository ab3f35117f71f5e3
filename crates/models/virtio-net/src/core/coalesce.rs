//! When a driver is called. One that asked for fewer interrupts (virtio 1.4 §5.1.6.5.9): after so many packets, or so long
//! after the first of them. Any other: as the operator's [`Moderation`] says. What its ring says still vetoes the call.

use datapath::{Adaptive, Moderation};
use guest_mem::View;
use model::{Clock, Nanos};
use serde::{Deserialize, Serialize};

use crate::core::place::Broken;
use crate::core::ring::Ring;

/// Microseconds that are not waited for: no timer is that quick, and to set one takes longer. Linux asks for so many where
/// packets are few (the first profile of its `dim`), so that each is told at once.
const AT_ONCE: u32 = 1;

/// What a driver asks for. No packets, or [`AT_ONCE`]: it is called for each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalesce {
    /// Packets.
    pub packets: u32,
    /// Microseconds.
    pub usecs: u32,
}

/// The packets of a queue for which its driver was not called yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pending {
    /// What is asked for.
    pub asked: Coalesce,
    packets: u32,
    /// When the call is due; `None` when there are none.
    due: Option<Nanos>,
    /// It began to wait for that since it was last asked.
    began: bool,
    /// What calls cost the guest.
    adaptive: Adaptive,
    /// When it was last called.
    last: Option<Nanos>,
    /// When it was last seen busy: it wanted no call, since it looks by itself.
    busy: Nanos,
}

impl Pending {
    /// Adds packets. `true`: it is time to ask the ring whether the driver is called.
    #[inline]
    pub fn add(&mut self, packets: u32, now: impl FnOnce() -> Nanos) -> bool {
        let Coalesce {
            packets: most,
            usecs,
        } = self.asked;
        if most == 0 || usecs <= AT_ONCE {
            return self.end(true);
        }
        if packets > 0 {
            let (now, waited) = (now(), self.due.is_some());
            self.packets = self.packets.saturating_add(packets);
            let due = *self.due.get_or_insert(now + 1000 * u64::from(usecs));
            if now >= due {
                return self.end(true);
            }
            self.began |= !waited && self.packets < most;
        }
        let full = self.packets >= most;
        self.end(full)
    }

    fn end(&mut self, end: bool) -> bool {
        if end {
            self.packets = 0;
            self.due = None;
        }
        end
    }

    /// Time has passed, or what is asked for has changed. `true`: as [`Pending::add`].
    pub fn look(&mut self, now: Nanos) -> bool {
        let due = self.due.is_some_and(|due| now >= due);
        self.end(due)
    }

    /// Whether the driver has said when it wants to be called.
    fn has_asked(&self) -> bool {
        self.asked.packets > 0 && self.asked.usecs > 0
    }

    /// Packets were used, for a driver that is called as the operator says. Returns whether it is called now.
    fn moderate(
        &mut self,
        (mode, sends): (Moderation, bool),
        (ring, view): (&mut Ring, &View<'_>),
        now: Nanos,
        packets: u32,
    ) -> Result<bool, Broken> {
        let wants = ring.wants_call(view)?;
        if wants {
            self.acknowledge(ring.has_events());
        } else {
            self.busy = now;
        }
        if sends {
            self.adaptive.sent(packets, ring.size().into());
        } else {
            self.adaptive.received(packets, ring.known().into());
        }
        let waited = self.due.take().is_some();
        if wants
            && !ring.owes_call()
            && let Some(until) = self.until((mode, sends), now)
        {
            self.due = Some(until);
            self.began |= !waited;
            return Ok(false);
        }
        let call = ring.decide(view)?;
        if call {
            self.last = Some(now);
            self.adaptive.raised(now);
        }
        Ok(call)
    }

    /// The driver wants to be called again. It has seen the last call, at the latest when it was last seen busy. Without
    /// events it may not have come to it yet.
    fn acknowledge(&mut self, has_events: bool) {
        match self.adaptive.raised {
            Some(raised) if self.busy > raised => self.adaptive.acknowledged(self.busy),
            Some(raised) if has_events => self.adaptive.acknowledged(raised),
            _ => {}
        }
    }

    /// Until when a driver that wants to be called waits for it.
    fn until(&mut self, (mode, sends): (Moderation, bool), now: Nanos) -> Option<Nanos> {
        if let Some(gap) = mode.gap() {
            let until = self.last? + gap;
            return (now < until).then_some(until);
        }
        if sends {
            self.adaptive.reported(now);
        }
        self.adaptive.until(now, self.last, sends)
    }

    /// When to look again.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Something else is asked for. What waits is due now.
    pub fn ask(&mut self, asked: Coalesce) {
        self.asked = asked;
        self.due = self.due.map(|_| 0);
    }
}

/// What waits for its time, of all queues of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// When to look.
    pub due: Option<Nanos>,
    /// Pairs that began to wait, a bit for each.
    pub began: u32,
}

/// The same for all queues of one direction.
#[derive(Debug)]
pub struct Calls {
    /// What a queue has when it is enabled.
    pub asked: Coalesce,
    /// By pair.
    pub pending: Vec<Pending>,
    mode: Moderation,
    /// They are transmit queues.
    sends: bool,
}

impl Calls {
    /// For so many pairs.
    pub fn new(pairs: usize, mode: Moderation, sends: bool) -> Self {
        Self {
            asked: Coalesce::default(),
            pending: vec![Pending::default(); pairs],
            mode,
            sends,
        }
    }

    /// Whether the operator says when the driver of a pair is called.
    #[inline]
    fn moderates(&self, pair: usize) -> bool {
        match self.mode {
            Moderation::Guest => false,
            Moderation::Adaptive => !self.pending[pair].has_asked(),
            Moderation::Fixed(_) => true,
        }
    }

    /// Shows the driver what was used. Returns whether it is to be called.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn publish(
        &mut self,
        pair: usize,
        ring: &mut Ring,
        view: &View<'_>,
        clock: &dyn Clock,
    ) -> Result<bool, Broken> {
        let shown = ring.show(view)?;
        if self.moderates(pair) {
            let how = (self.mode, self.sends);
            return self.pending[pair].moderate(how, (ring, view), clock.now(), shown);
        }
        let now = self.pending[pair].add(shown, || clock.now()) || ring.owes_call();
        Ok(now && ring.decide(view)?)
    }

    /// Time has passed, a state was loaded, or a driver has asked for something else: returns whether the driver is to be
    /// called.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn look(
        &mut self,
        pair: usize,
        ring: &mut Ring,
        view: &View<'_>,
        clock: &dyn Clock,
    ) -> Result<bool, Broken> {
        let moderates = self.moderates(pair);
        let pending = &mut self.pending[pair];
        if moderates {
            let (how, now) = ((self.mode, self.sends), clock.now());
            if pending.due().is_some_and(|due| now < due) {
                return Ok(false);
            }
            return pending.moderate(how, (ring, view), now, 0);
        }
        let now = pending.due().is_none() || pending.look(clock.now());
        Ok(now && ring.decide(view)?)
    }

    /// When to look again.
    pub fn due(&self) -> Option<Nanos> {
        self.pending.iter().filter_map(Pending::due).min()
    }

    /// Pairs whose call began to wait since the last time, a bit for each.
    fn take_began(&mut self) -> u32 {
        let pending = self.pending.iter_mut().enumerate();
        pending.fold(0, |bits, (pair, pending)| {
            bits | u32::from(std::mem::take(&mut pending.began)) << pair
        })
    }

    /// When to look again, and what began to wait for that.
    pub fn wait(&mut self) -> Wait {
        match self.due() {
            None => Wait::default(),
            due => Wait {
                due,
                began: self.take_began(),
            },
        }
    }

    /// The operator has chosen another way. What waits is due, and looked at by it.
    pub fn choose(&mut self, mode: Moderation) {
        self.mode = mode;
        for pending in &mut self.pending {
            pending.adaptive.reset();
            pending.due = pending.due.map(|_| 0);
        }
    }

    /// All queues are asked for the same.
    pub fn ask_all(&mut self, asked: Coalesce) {
        self.asked = asked;
        for pending in &mut self.pending {
            pending.ask(asked);
        }
    }

    /// Nothing is asked for, and nothing waits.
    pub fn reset(&mut self) {
        *self = Self::new(self.pending.len(), self.mode, self.sends);
    }

    /// A queue begins.
    pub fn begin(&mut self, pair: usize) {
        self.pending[pair] = Pending::default();
        self.pending[pair].ask(self.asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(packets: u32, usecs: u32) -> Pending {
        let mut pending = Pending::default();
        pending.ask(Coalesce { packets, usecs });
        pending
    }

    #[test]
    fn no_packets_or_no_time_to_speak_of_calls_for_each_packet() {
        for (packets, usecs) in [(0, 0), (5, 0), (0, 5), (256, 1)] {
            let mut pending = pending(packets, usecs);
            assert!(pending.add(1, || 0) && pending.add(1, || 0));
            assert_eq!(pending.due(), None);
        }
    }

    #[test]
    fn so_many_packets_or_so_long_after_the_first() {
        let mut pending = pending(3, 10);
        assert!(!pending.add(1, || 100) && std::mem::take(&mut pending.began));
        assert!(!pending.add(1, || 5_000) && !pending.began, "told once");
        assert_eq!(pending.due(), Some(10_100));
        assert!(pending.add(1, || 6_000), "three");
        assert_eq!(pending.due(), None);
        assert!(!pending.add(0, || 7_000) && pending.due().is_none());
        assert!(!pending.add(2, || 8_000));
        assert!(!pending.look(17_999) && pending.look(18_000));
        assert!(!pending.look(30_000), "none waits");
        assert!(!pending.add(1, || 40_000));
        assert!(pending.add(1, || 50_000), "the timer is late");
    }

    #[test]
    fn new_numbers_end_the_wait() {
        let mut pending = pending(3, 10);
        let asked = Coalesce {
            packets: 100,
            usecs: 100,
        };
        pending.ask(asked);
        assert!(!pending.look(5), "none waits");
        assert!(!pending.add(2, || 10));
        pending.ask(asked);
        assert!(pending.look(11) && !pending.look(12));
    }
}
