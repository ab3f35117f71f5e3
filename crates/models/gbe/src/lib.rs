//! What Intel's gigabit NICs have in common: the PHY behind their MDI control
//! register, and the ways into their register window.
//!
//! Parts of models, without memory, interrupts or time of their own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod io;
pub mod mdio;
pub mod phy;
pub mod window;
