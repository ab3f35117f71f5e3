//! What the crate does, seen from outside: one module for each subject.

mod against_etherparse;
mod hostile;
mod simple;
