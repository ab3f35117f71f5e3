//! What the program prints.
#![forbid(unsafe_code)]

mod instructions;
