//! What the crate does, seen from outside: one module for each subject.

mod frames;
mod hostile;
mod kept;
mod life;
mod rig;
mod room;
