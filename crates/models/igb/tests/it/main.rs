//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod common;
mod hub;
mod interrupts;
mod moderation;
mod pause;
mod registers;
mod runs;
mod trace;
mod tx_plans;
mod vf_common;
mod vf_state;
mod vf_state_scripts;
mod wake;
