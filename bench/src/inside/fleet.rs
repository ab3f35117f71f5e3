//! Many guests on one switch, in pairs that send to each other, beside [`Pair`](super::Pair).

use std::time::Instant;

use intel_offsets::e1000::long::TDT;
use vale::{Keeper, Switch, SwitchConfig};

use super::{Guest, RealTime};
use crate::spec::Spec;

/// An even number of guests with an 82540EM each.
pub struct Fleet {
    guests: Vec<Guest>,
    spec: Spec,
    clock: RealTime,
    _keeper: Keeper,
}

impl Fleet {
    /// Sets everything up and has the switch learn all addresses.
    ///
    /// # Panics
    /// When the machine has no memory or thread left.
    pub fn new(guests: u16, spec: Spec) -> Fleet {
        let clock = RealTime(Instant::now());
        let switch = Switch::new(SwitchConfig::default(), clock.of_turns());
        let keeper = Keeper::start(&switch).expect("a thread");
        let number = |at: u16| at + 1;
        let guests = (0..guests / 2 * 2).map(|at| {
            let guest = Guest::new(&switch, number(at), &spec);
            guest.load(number(at), number(at ^ 1), &spec);
            guest
        });
        let mut fleet = Fleet {
            guests: guests.collect(),
            spec,
            clock,
            _keeper: keeper,
        };
        // What finds no way yet is flooded; then all are known, and every buffer has been touched.
        for _ in 0..=spec.ring / spec.burst() {
            fleet.round();
        }
        fleet
    }

    /// Each guest sends a burst, and its partner gives as many buffers back.
    pub fn round(&mut self) {
        let (spec, burst) = (&self.spec, self.spec.burst());
        for pair in self.guests.chunks_exact_mut(2) {
            for (from, to) in [(0, 1), (1, 0)] {
                self.clock.in_turn(|| {
                    let from = &mut pair[from];
                    from.tail = (from.tail + burst) % spec.ring;
                    from.write(TDT, from.tail);
                    pair[to].give(spec, burst);
                });
            }
        }
    }

    /// Frames that have arrived so far.
    pub fn arrived(&self) -> u64 {
        self.guests
            .iter()
            .map(|guest| guest.counter("rx_frames"))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_sent_arrives() {
        let mut fleet = Fleet::new(6, Spec::frames(60, 128, 32));
        let before = fleet.arrived();
        for _ in 0..10 {
            fleet.round();
        }
        assert_eq!(fleet.arrived() - before, 10 * 6 * 32);
    }
}
