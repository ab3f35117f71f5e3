//! Keeper, worker and client as models, which a checker goes through in every order (`stateright`).
//!
//! [`Exchange`] is one client whose worker may die at each step of [`crate::exact`]. [`House`] is a keeper whose worker dies
//! of several NICs in turn; it decides by the code that the keeper decides by.

mod exchange;
mod house;
