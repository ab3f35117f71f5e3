//! What the saved states of Intel's NICs have in common: registers, statistics, the PHY, times.
//!
//! The types here are part of released forms, and never change.

use datapath::Nanos;
use regs::{Access, File, Found, Register};
use serde::{Deserialize, Serialize};
use snapshot::{State, StateError};
use wire::MAX_SEGMENTS;

use crate::phy;

/// A register, or an array of equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// Where the first one is.
    pub offset: u32,
    /// What they hold.
    pub values: Vec<u32>,
}

/// One statistics counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Offset of its (low) register.
    pub offset: u32,
    /// Its value.
    pub value: u64,
}

/// The PHY.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phy {
    /// Its 32 registers.
    pub regs: Vec<u16>,
    /// The cable is in.
    pub cable: bool,
    /// Auto-negotiation has succeeded.
    pub negotiated: bool,
    /// A loss of link that has not been reported.
    pub link_lost: bool,
}

/// How far back the past is kept, and how far it may reach: no moderation looks further, and deadlines
/// are met at once when they are over.
pub const PAST: i64 = 1_000_000_000;
/// A pause lasts for 65535 quanta of 512 bits at 10 Mb/s at most: 3.4 s.
pub const PAUSE: i64 = 4_000_000_000;
/// Auto-negotiation ends within this, or within what is configured.
pub const NEGOTIATION: i64 = 3600 * 1_000_000_000;

/// Decodes a state of the one version there is.
///
/// # Errors
/// When it is damaged, of something else, or from the future. The fields are not checked.
pub fn decode<T: State>(blob: &[u8]) -> Result<T, StateError> {
    let saved = snapshot::open(T::KIND, blob)?;
    if saved.version == T::VERSION {
        return saved.decode();
    }
    Err(StateError::Version {
        kind: T::KIND,
        found: saved.version,
        newest: T::VERSION,
    })
}

/// The error about a field.
pub fn field(field: &'static str, value: impl Into<u64>, why: &'static str) -> StateError {
    let value = value.into();
    StateError::Field { field, value, why }
}

/// The error about a field, unless it is `ok`.
///
/// # Errors
/// It is not.
pub fn check(
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

/// The state is of a chip with this device id.
///
/// # Errors
/// It is of another.
pub fn check_device(found: u16, ours: u16) -> Result<(), StateError> {
    if found == ours {
        return Ok(());
    }
    Err(StateError::Device {
        found: format!("8086:{found:04x}"),
        expected: format!("8086:{ours:04x}"),
    })
}

/// Makes `saved` and `of_saved` of a live struct and its plain data, which have these same fields: no more and no
/// fewer, or it does not compile.
#[macro_export]
macro_rules! mirrored {
    ($live:ident as $($plain:ident)::+ { $($field:ident),* $(,)? }) => {
        impl $live {
            /// As plain data.
            pub(crate) fn saved(&self) -> $($plain)::+ {
                let &$live { $($field),* } = self;
                $($plain)::+ { $($field),* }
            }

            /// From plain data. Its values are the caller's to check.
            pub(crate) fn of_saved(state: &$($plain)::+) -> $live {
                let &$($plain)::+ { $($field),* } = state;
                $live { $($field),* }
            }
        }
    };
}

/// Frames of the packet at the head of a ring that have left, as they were saved.
///
/// # Errors
/// More than a packet has.
pub fn frames_taken(name: &'static str, taken: u32) -> Result<usize, StateError> {
    let fits = taken as usize <= MAX_SEGMENTS;
    check(fits, name, taken, "a packet has fewer frames").map(|()| taken as usize)
}

/// A time as it is seen from `now`.
pub fn relative(time: Nanos, now: Nanos) -> i64 {
    i64::try_from(i128::from(time) - i128::from(now))
        .unwrap_or(i64::MAX)
        .max(-PAST)
}

/// A time on our clock, at most `most` ahead. One before its beginning is at its beginning.
///
/// # Errors
/// It is further away, or further in the past than is kept.
pub fn absolute(
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

/// The registers that `keeps` says, in the order of their offsets.
pub fn save_words(file: &File, keeps: impl Fn(&Register) -> bool) -> Vec<Words> {
    let mut list: Vec<_> = file
        .table()
        .registers()
        .iter()
        .filter(|register| keeps(register))
        .filter_map(|register| {
            let id = file.table().find(register.offset)?.id;
            Some(Words {
                offset: register.offset,
                values: (0..register.count).map(|i| file.get_at(id, i)).collect(),
            })
        })
        .collect();
    list.sort_by_key(|words| words.offset);
    list
}

/// Every register is one that `keeps` says, once, and holds what it can hold.
///
/// # Errors
/// One is not, or does not.
pub fn load_words(
    file: &File,
    list: &[Words],
    keeps: impl Fn(&Register) -> bool,
) -> Result<Vec<(Found, u32)>, StateError> {
    let mut words = Vec::new();
    let mut last = None;
    for Words { offset, values } in list {
        check(
            last.is_none_or(|last| last < *offset),
            "registers.offset",
            *offset,
            "not in order",
        )?;
        last = Some(*offset);
        let no_register = || field("registers.offset", *offset, "no register is there");
        let found = file.table().find(*offset).ok_or_else(no_register)?;
        let register = file.table().register(found.id);
        if register.offset != *offset || !keeps(register) {
            return Err(no_register());
        }
        // Those behind one address were one in older states: the first.
        let first = register.stride == 0 && values.len() == 1;
        check(
            first || values.len() == register.count as usize,
            "registers.values",
            values.len() as u64,
            "not as many as there are registers",
        )?;
        for (element, &value) in (0..).zip(values) {
            // What the device writes itself has other bits than what the guest may.
            let strays = match register.access {
                Access::ReadWrite | Access::Write1Set | Access::Write1Clear => {
                    (value ^ register.reset) & !register.mask
                }
                _ => 0,
            };
            check(strays == 0, register.name, value, "bits that cannot change")?;
            let id = found.id;
            words.push((Found { id, element }, value));
        }
    }
    Ok(words)
}

/// The PHY as plain data.
pub fn save_phy(phy: &phy::Phy) -> Phy {
    let phy::Phy {
        regs,
        cable,
        negotiated,
        link_lost,
        kind: _,  // the chip's
        pause: _, // configured
    } = phy;
    Phy {
        regs: regs.to_vec(),
        cable: *cable,
        negotiated: *negotiated,
        link_lost: *link_lost,
    }
}

/// The PHY from plain data; what is configured is as in `ours`.
///
/// # Errors
/// A register holds what it cannot hold.
pub fn load_phy(state: &Phy, ours: &phy::Phy) -> Result<phy::Phy, StateError> {
    let Phy {
        regs,
        cable,
        negotiated,
        link_lost,
    } = state;
    let regs = <[u16; 32]>::try_from(regs.as_slice())
        .map_err(|_| field("phy.regs", regs.len() as u64, "the PHY has 32 registers"))?;
    let fixed = ours.kind.reset_values().iter().zip(ours.kind.writable());
    for (at, (value, (reset, mask))) in regs.iter().zip(fixed).enumerate() {
        let own = match at {
            phy::EVENTS => 0xffff,
            phy::PSSR => phy::AGREED,
            _ => 0,
        };
        let strays = (value ^ reset) & !mask & !own;
        check(strays == 0, "phy.regs", *value, "bits that cannot change")?;
    }
    Ok(phy::Phy {
        regs,
        cable: *cable,
        negotiated: *negotiated,
        link_lost: *link_lost,
        kind: ours.kind,
        pause: ours.pause,
    })
}
