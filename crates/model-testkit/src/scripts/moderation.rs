//! An operator who chooses another moderation under traffic.

use std::num::NonZeroU32;

use model::{Moderation, Nanos};

use crate::Machine;

/// A guest that is only told of frames by interrupts.
#[derive(Clone, Copy, Debug)]
pub struct Hearing<T> {
    /// Its machine.
    pub machine: fn(&mut T) -> &mut Machine,
    /// A frame comes.
    pub comes: fn(&mut T),
    /// Whether it was told since it was asked last, or is being told.
    pub told: fn(&mut T) -> bool,
    /// It acknowledges, looks at all that came, and wants to be told again.
    pub answers: fn(&mut T),
    /// The longest gap that its own registers ask for.
    pub longest: Nanos,
}

const MS: Nanos = 1_000_000;
/// Times that it is chosen.
const ROUNDS: u32 = 160;

fn fixed(rate: u32) -> Moderation {
    Moderation::Fixed(NonZeroU32::new(rate).expect("a rate"))
}

/// Frames come in small bursts, the guest answers sooner or later, and the operator chooses anew at any moment. Whatever was
/// held back by the old way is told within the longest gap of the new one, and nothing is told of which there is nothing.
///
/// # Panics
/// It is not so.
pub fn choose_while_frames_come<T>(guest: &mut T, how: &Hearing<T>) {
    let modes = [
        (Moderation::Guest, how.longest),
        // What is measured is 1 ms at most.
        (Moderation::Adaptive, MS),
        (fixed(1000), MS),
        (fixed(50), 20 * MS),
    ];
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 33) % below
    };
    let (mut held, mut at_once) = (0, 0);
    (how.answers)(guest);
    (how.told)(guest);
    for round in 0..ROUNDS {
        // Frames that it does not know of yet, and whether it was told of some.
        let (mut there, mut told) = (0, false);
        for _ in 0..=random(3) {
            (how.comes)(guest);
            there += 1;
            told |= (how.told)(guest);
            (how.machine)(guest).sleep(random(100_000));
            told |= (how.told)(guest);
            if told && random(2) == 0 {
                (how.answers)(guest);
                (there, told) = (0, (how.told)(guest));
            }
        }
        let (mode, longest) = modes[random(modes.len() as u64) as usize];
        let waits = there > 0 && !told;
        (how.machine)(guest).moderate(mode);
        if waits {
            held += 1;
            if (how.told)(guest) {
                at_once += 1;
                told = true;
            } else {
                (how.machine)(guest).sleep(longest);
                told = (how.told)(guest);
            }
        }
        assert!(told || there == 0, "round {round}: {mode:?} loses a frame");
        (how.answers)(guest);
        if random(4) == 0 {
            (how.told)(guest);
            (how.machine)(guest).sleep(1000 * MS);
            assert!(
                !(how.told)(guest),
                "round {round}: {mode:?} tells of nothing"
            );
        }
    }
    assert!(held > 10, "{held} times something was held back");
    assert!(at_once > 0, "some ways hold nothing back");
}
