//! Tests that hold for every model with the registers that they name. Each takes a type that says how this
//! chip differs; a model's test of the same name runs it. The registers
//! that they use have the same offsets in all of these chips.

pub mod moderation;
pub mod pause;
pub mod wake;

use intel_offsets::e1000::long as reg;
