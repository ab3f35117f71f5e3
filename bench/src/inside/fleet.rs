//! Many guests on one switch, in pairs that send to each other, beside [`Pair`](super::Pair).

use std::ops::Range;

use ceiling::thread_time;
use frame::{Hot, Lines, Sink};
use intel_offsets::e1000::long::TDT;
use vale::{Keeper, Switch, SwitchConfig};

use super::{Guest, RealTime};
use crate::spec::Spec;

/// What watches each access makes a program about so much slower.
const SLOWED: u32 = 100;

/// An even number of guests with a NIC each.
pub struct Fleet {
    guests: Vec<Guest>,
    /// What a turn of each touches, if that is fetched ahead.
    hot: Vec<Hot>,
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
        Fleet::at(RealTime::begin(), guests, spec)
    }

    /// The same for a program that is watched.
    ///
    /// # Panics
    /// As [`Fleet::new`].
    pub fn watched(guests: u16, spec: Spec) -> Fleet {
        let RealTime(since, _) = RealTime::begin();
        Fleet::at(RealTime(since, SLOWED), guests, spec)
    }

    fn at(clock: RealTime, guests: u16, spec: Spec) -> Fleet {
        let switch = match spec.vf {
            true => Switch::on_chip(SwitchConfig::default(), clock.of_turns()),
            false => Switch::new(SwitchConfig::default(), clock.of_turns()),
        };
        let keeper = Keeper::start(&switch).expect("a thread");
        let number = |at: u16| at + 1;
        let guests = (0..guests / 2 * 2).map(|at| {
            let mut guest = Guest::new(&switch, number(at), &spec);
            // A frame to itself, which makes it known to the switch: a flood from each to each would leave frames behind.
            guest.load(number(at), number(at), &Spec::frames(60, 8, 1));
            guest.tail = 1;
            guest.write(TDT, 1);
            guest.load(number(at), number(at ^ 1), &spec);
            guest
        });
        let mut fleet = Fleet {
            guests: guests.collect(),
            hot: Vec::new(),
            spec,
            clock,
            _keeper: keeper,
        };
        // Then every buffer has been touched.
        for _ in 0..=spec.ring / spec.burst() {
            fleet.round();
        }
        fleet
    }

    /// From now on has the processor fetch what the next turn touches, as the daemon's worker does.
    pub fn look_ahead(&mut self) {
        let hot = |guest: &Guest| {
            let mut hot = Hot::default();
            hot.add(Lines::first(&*guest.nic.control, guest_mem::LINE));
            hot.add(Lines::first(&*guest.nic.transmit, guest_mem::LINE));
            guest.port.hot(&mut hot);
            guest.nic.receive.hot(&mut hot);
            guest.env.memory.hot(&mut hot);
            hot
        };
        self.hot = self.guests.iter().map(hot).collect();
    }

    /// Each guest sends a burst, and its partner gives as many buffers back.
    pub fn round(&mut self) {
        (0..self.guests.len()).for_each(|at| self.turn(at));
    }

    /// One guest does.
    ///
    /// # Panics
    /// When there is no such guest.
    pub fn turn(&mut self, at: usize) {
        let (spec, burst) = (&self.spec, self.spec.burst());
        if !self.hot.is_empty() {
            self.hot[(at + 1) % self.hot.len()].prefetch();
            self.guests[at].port.prefetch();
        }
        let guests = &mut self.guests;
        self.clock.in_turn(|| {
            let from = &mut guests[at];
            from.tail = (from.tail + burst) % spec.ring;
            from.write(TDT, from.tail);
            guests[at ^ 1].give(spec, burst);
        });
    }

    /// Where the guests' memories are.
    pub fn memories(&self) -> Vec<Range<u64>> {
        let of = |guest: &Guest| guest.memory(&self.spec);
        self.guests.iter().flat_map(of).collect()
    }

    /// Nanoseconds of processor time for each of about so many frames.
    pub fn sample(&mut self, frames: u64) -> f64 {
        let before = self.arrived();
        let each = self.guests.len() as u64 * u64::from(self.spec.burst());
        let begun = thread_time();
        (0..frames.div_ceil(each)).for_each(|_| self.round());
        let took = thread_time() - begun;
        took as f64 / (self.arrived() - before).max(1) as f64
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
        let spec = Spec::frames(60, 128, 32);
        for spec in [spec, spec.between_vfs()] {
            let mut fleet = Fleet::new(40, spec);
            let before = fleet.arrived();
            for n in 0..10 {
                if n == 5 {
                    fleet.look_ahead();
                }
                fleet.round();
            }
            assert_eq!(fleet.arrived() - before, 10 * 40 * 32);
            let waited: u64 = fleet.guests.iter().map(|g| g.counter("rx_no_buffer")).sum();
            assert_eq!(waited, 0, "no frame waited for a buffer");
        }
    }
}
