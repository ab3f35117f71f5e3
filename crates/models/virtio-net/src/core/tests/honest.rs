//! Honest drivers: everything arrives, in order, and neither side waits for the other for ever.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::driver::{Driver, part, take};
use crate::core::ring::{Format, Position, Refused, Ring};

fn formats() -> impl Iterator<Item = Format> {
    [false, true].into_iter().flat_map(|packed| {
        [false, true].into_iter().map(move |event_idx| Format {
            indirect: true,
            event_idx,
            packed,
            in_order: false,
        })
    })
}

/// A step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The driver gives a buffer of so many parts to read and to write.
    Give(usize, usize, bool),
    /// The device takes buffers, gives the last ones back, and uses the others but for the last, which it takes back.
    /// Whether the driver is called may be decided later.
    Serve {
        take: u16,
        back: u16,
        unuse: u16,
        later: bool,
    },
    /// The driver looks.
    Look,
    /// The driver asks to be called.
    Arm(Option<u16>),
    /// The device sleeps if it may.
    Sleep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3usize, 0..3usize, any::<bool>())
            .prop_filter("a buffer has parts", |(r, w, _)| r + w > 0)
            .prop_map(|(r, w, table)| Step::Give(r, w, table)),
        2 => (0..6u16, 0..3u16, 0..3u16, any::<bool>())
            .prop_map(|(take, back, unuse, later)| Step::Serve { take, back, unuse, later }),
        2 => Just(Step::Look),
        1 => proptest::option::of(0..4u16).prop_map(Step::Arm),
        1 => Just(Step::Sleep),
    ]
}

/// What a history has led to.
struct Story {
    driver: Driver,
    ring: Ring,
    /// Given and not yet taken for good: id, parts to read, parts to write.
    given: VecDeque<(u16, usize, usize)>,
    /// Used and not yet seen.
    used: VecDeque<(u16, u32)>,
    /// Since the device slept: slots given, and whether the driver was asked to tell.
    asleep: bool,
    /// Buffers to be used until the driver is called.
    armed: Option<u16>,
    undecided: Undecided,
}

/// Buffers that were shown, and whether to call is not decided.
#[derive(Default)]
struct Undecided {
    all: u16,
    /// Those that the driver has not looked at.
    waited: u16,
}

impl Story {
    fn new(format: Format, size: u16) -> Self {
        let driver = Driver::new(format, size);
        driver.arm(Some(0));
        Self {
            ring: driver.ring(),
            driver,
            given: VecDeque::new(),
            used: VecDeque::new(),
            asleep: false,
            armed: Some(0),
            undecided: Undecided::default(),
        }
    }

    fn tell(&mut self, step: Step) {
        match step {
            Step::Give(read, write, table) => {
                let reads = (0..read).map(|_| (part(10), false));
                let parts: Vec<_> = reads.chain((0..write).map(|_| (part(20), true))).collect();
                if let Some(id) = self.driver.give(&parts, table) {
                    self.given.push_back((id, read, write));
                    let slots = if self.driver.format.packed && !table {
                        parts.len()
                    } else {
                        1
                    };
                    if self.asleep {
                        assert!(
                            self.driver.must_kick(slots as u16),
                            "a device that sleeps is told"
                        );
                        self.asleep = false;
                    }
                }
            }
            Step::Serve {
                take,
                back,
                unuse,
                later,
            } => {
                self.serve(take, back, unuse);
                if !later {
                    self.decide();
                }
            }
            Step::Look => {
                while let Some(found) = self.driver.used() {
                    assert_eq!(Some(found), self.used.pop_front());
                }
                assert!(self.used.is_empty(), "what was shown is seen");
                self.undecided.waited = 0;
                if self.armed.is_some() {
                    self.armed = Some(0);
                    self.driver.arm(Some(0));
                }
            }
            Step::Arm(behind) => {
                // What is there already is looked at first, as drivers do.
                self.tell(Step::Look);
                // In a packed ring the event is a slot, which may be in the middle of a buffer.
                let behind = behind.map(|b| if self.driver.format.packed { 0 } else { b });
                self.driver.arm(behind);
                self.armed = behind;
            }
            Step::Sleep => {
                let more = self
                    .ring
                    .want_kick(&self.driver.memory.view())
                    .expect("honest");
                let known = self.given.is_empty();
                assert!(!more || !known, "there is nothing to find");
                self.asleep = known;
            }
        }
    }

    fn serve(&mut self, most: u16, back: u16, unuse: u16) {
        self.asleep = false;
        self.ring
            .no_kick(&self.driver.memory.view())
            .expect("honest");
        let mut taken = Vec::new();
        for _ in 0..most {
            match take(&self.driver, &mut self.ring) {
                Some(buffer) => {
                    assert_eq!(Some(&buffer), self.given.get(taken.len()));
                    taken.push(buffer);
                }
                None => {
                    assert_eq!(taken.len(), self.given.len(), "all were found");
                    break;
                }
            }
        }
        let back = back.min(taken.len() as u16);
        self.ring.give_back(back);
        taken.truncate(taken.len() - usize::from(back));
        let view = self.driver.memory.view();
        for (at, (id, ..)) in taken.iter().enumerate() {
            self.ring.used(&view, *id, at as u32).expect("honest");
        }
        let unuse = unuse.min(taken.len() as u16);
        self.ring.unused(unuse);
        self.ring.give_back(unuse);
        taken.truncate(taken.len() - usize::from(unuse));
        let shown = self.ring.show(&view).expect("honest");
        assert_eq!(shown as usize, taken.len());
        drop(view);
        for (at, buffer) in taken.into_iter().enumerate() {
            assert_eq!(self.given.pop_front(), Some(buffer));
            self.used.push_back((buffer.0, at as u32));
            self.undecided.all += 1;
            self.undecided.waited += 1;
        }
    }

    /// Whether the driver is called is decided for all that it was shown since the last time.
    fn decide(&mut self) {
        let view = self.driver.memory.view();
        let called = self.ring.decide(&view).expect("honest");
        let n = std::mem::take(&mut self.undecided);
        match self.armed {
            // What it has looked at before it asked needs no call, but may have one.
            None => assert!(!called || n.all > n.waited, "it was told not to call"),
            Some(left) if n.waited > left => {
                assert!(called, "the driver waits for this");
                if self.driver.format.event_idx {
                    self.armed = Some(u16::MAX);
                }
            }
            Some(left) if left != u16::MAX && self.driver.format.event_idx => {
                assert!(!called, "{left} more are to be used first");
                self.armed = Some(left - n.waited);
            }
            Some(_) => assert!(!called || n.all > 0),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn every_buffer_is_taken_and_used_in_order_and_no_side_sleeps_for_ever(
        which in 0..4usize,
        size in 2..5u32,
        odd in 0..3u16,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let format = formats().nth(which).expect("one of four");
        let odd = if format.packed { odd } else { 0 };
        let mut story = Story::new(format, (1 << size) + odd);
        for step in steps {
            story.tell(step);
        }
    }
}

#[test]
fn a_ring_goes_on_where_it_was() {
    for format in formats() {
        let mut driver = Driver::new(format, 8);
        let mut ring = driver.ring();
        for round in 0..50u32 {
            driver.arm(None);
            let id = driver.give(&[(part(1), false), (part(2), true)], false);
            let id = id.expect("room");
            assert_eq!(take(&driver, &mut ring), Some((id, 1, 1)));
            let view = driver.memory.view();
            ring.used(&view, id, round).expect("honest");
            assert!(!ring.publish(&view).expect("honest"), "{format:?}");
            drop(view);
            assert_eq!(driver.used(), Some((id, round)));
            ring = Ring::new(driver.place(), format, ring.position()).expect("it was possible");
            // The call before may have been lost: one is made, whatever the driver asked for.
            assert!(ring.publish(&driver.memory.view()).expect("honest"));
            assert!(!ring.publish(&driver.memory.view()).expect("honest"));
        }
    }
}

#[test]
fn a_packed_ring_cannot_have_come_to_places_that_it_does_not_have() {
    let format = Format {
        packed: true,
        ..Format::default()
    };
    let driver = Driver::new(format, 7);
    let start = Position::start(format);
    let at = |at| Position {
        next: at,
        used: at,
        told: at,
        resumed: true,
    };
    assert!(Ring::new(driver.place(), format, at(6)).is_ok());
    for position in [
        at(7),
        at(0xffff),
        Position { next: 1, ..start },
        Position { told: 7, ..start },
    ] {
        let made = Ring::new(driver.place(), format, position);
        assert_eq!(made.err(), Some(Refused::Position), "{position:?}");
    }
}
