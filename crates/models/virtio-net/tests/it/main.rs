//! The device through its registers and rings, driven by a driver made for tests.
#![forbid(unsafe_code)]

mod bare;
mod coalesce;
mod commands;
mod cuts;
mod driver;
mod hostile;
mod in_order;
mod interrupts;
mod journal;
mod moderation;
mod packed;
mod pairs;
mod race;
mod receive;
mod registers;
mod rss;
mod runs;
mod state;
mod stats;
mod transmit;
mod uso;
