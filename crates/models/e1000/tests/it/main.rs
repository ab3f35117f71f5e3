//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod common;
mod cost;
mod csb;
mod fifo;
mod finishing;
mod hostile;
mod interrupts;
mod leases;
mod loopback;
mod missed;
mod moderation;
mod msi;
mod ops;
mod packet;
mod pause;
mod receive;
mod receive_table;
mod registers;
mod script;
mod segmentation;
mod send;
mod smoke;
mod state;
mod state_scripts;
mod table;
mod tails;
mod threads;
mod timelines;
mod transmit;
mod transmit_stop;
mod turn_bytes;
mod variants;
mod wake;
