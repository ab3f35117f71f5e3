//! A driver for the 82540EM, in the manner of the stock ones.

mod config;
pub mod desc;
mod driver;
mod headers;
mod nvm;
pub mod poll;
pub mod regs;
mod rx;
mod setup;
mod tx;

pub use config::{Config, DriverError, Eeprom, Reset};
pub use driver::Driver;
pub use headers::{Layout, TxOffload};
pub use nvm::{Microwire, read_phy, write_phy};
pub use rx::ring::{RxFrame, RxSums};
pub use tx::ring::{Report, TxOpts};
