//! Register offsets and bits of the modelled NICs, for all outside of a model: drivers, fuzzers, oracles and
//! the models' tests.
//!
//! They were written from the manuals and from what drivers do, and not from the models' tables: so a test that uses
//! them is a second opinion. `tests/tests/model/offsets.rs` compares both by name. Only tests of a model may use this
//! crate.
#![forbid(unsafe_code)]

/// A register, or the first of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The manual's name.
    pub name: &'static str,
    /// Byte offset in BAR 0.
    pub offset: u32,
}

/// Constants of 32 bits, the same in `long` with 64, and a list of all.
macro_rules! offsets {
    ($($name:ident $offset:literal $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: u32 = $offset;)*

        /// All of these registers.
        pub const ALL: &[crate::Register] = &[$(crate::Register { name: stringify!($name), offset: $offset }),*];

        /// The same with 64 bits, as a model's `Control` takes offsets.
        pub mod long {
            $(#[doc = $doc] pub const $name: u64 = $offset;)*
        }
    };
}

pub mod e1000;
pub mod igb;
pub mod igbvf;
