//! The RTL8168C by its registers, as drivers see it.
#![forbid(unsafe_code)]

mod common;
mod contract;
mod csb;
mod cuts;
mod drivers;
mod hostile;
mod interrupts;
mod newer;
mod offloads;
mod older;
mod receive;
mod registers;
mod runs;
mod state;
mod statistics;
mod threads;
mod transmit;
mod wake;
