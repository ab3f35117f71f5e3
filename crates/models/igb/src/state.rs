//! A whole physical function as plain data: saved, checked and loaded.
//!
//! [`model::Control::save`] and [`model::Control::load`] carry a [`State`] in the container of the
//! crate `snapshot`. Each part of the live function is taken apart beside it, field by field and
//! without `..`, so that a new field cannot be forgotten without the compiler saying so.
//!
//! What is in it: everything the guest can find out, now or later. What is not: what the operator
//! configured, what PCI configuration says (its owner saves that), counters for people, and who waits
//! for room.
//!
//! *Time* is relative to the moment of saving: nanoseconds, negative for the past.
//!
//! *Consistency*: both take the locks of all queues, the transmit sides first, so a state lies between
//! two batches. A packet whose descriptors are not complete is still in the guest's ring, before the
//! head; of one that was sent in part, the number of frames that left is known.

#[cfg(test)]
mod tests;
pub(crate) mod v1;
pub mod vf;

use model::Nanos;
pub use snapshot::{Kind, StateError};
pub use v1::{
    Clock, Context, Count, Flow, Interrupts, Nvm, Phase, Phy, Queue, QueueCounts, Stamp, V1, Words,
};

/// The state as this program saves it.
pub type State = V1;

/// What the container calls it.
pub const KIND: Kind = Kind::new("82576");
/// The version that is saved. Older ones are loaded, newer ones refused.
pub const VERSION: u32 = 1;

/// PCI device id of what is saved.
pub(crate) const DEVICE: u16 = 0x10c9;
/// How far back the past is kept, and how far it may reach: no moderation looks further.
const PAST: i64 = 1_000_000_000;
/// A pause lasts for 65535 quanta of 512 bits at 10 Mb/s at most: 3.4 s.
pub(crate) const PAUSE: i64 = 4_000_000_000;
/// Auto-negotiation ends within this, or within what is configured.
pub(crate) const NEGOTIATION: i64 = 3600 * 1_000_000_000;

/// Reads a state of any known version without loading it.
///
/// # Errors
/// When it is damaged, of something else, or from the future. The fields are not checked.
pub fn read(blob: &[u8]) -> Result<State, StateError> {
    let saved = snapshot::open(KIND, blob)?;
    match saved.version {
        1 => saved.decode::<V1>(),
        found => Err(StateError::Version {
            kind: KIND,
            found,
            newest: VERSION,
        }),
    }
}

/// Encodes a state as [`model::Control::save`] does.
pub fn write(state: &State) -> Vec<u8> {
    snapshot::seal(state)
}

pub(crate) fn field(field: &'static str, value: impl Into<u64>, why: &'static str) -> StateError {
    let value = value.into();
    StateError::Field { field, value, why }
}

pub(crate) fn check(
    ok: bool,
    name: &'static str,
    value: impl Into<u64>,
    why: &'static str,
) -> Result<(), StateError> {
    if ok {
        Ok(())
    } else {
        Err(field(name, value, why))
    }
}

/// A time as it is seen from `now`.
pub(crate) fn relative(time: Nanos, now: Nanos) -> i64 {
    i64::try_from(i128::from(time) - i128::from(now))
        .unwrap_or(i64::MAX)
        .max(-PAST)
}

/// A time on our clock, at most `most` ahead.
pub(crate) fn absolute(
    name: &'static str,
    relative: i64,
    most: i64,
    now: Nanos,
) -> Result<Nanos, StateError> {
    check(
        (-PAST..=most).contains(&relative),
        name,
        relative.unsigned_abs(),
        "too far from the moment of saving",
    )?;
    Ok(now.saturating_add_signed(relative))
}
