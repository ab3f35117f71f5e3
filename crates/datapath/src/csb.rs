//! The NIC's side of a Communication Status Block (crate `csb`; netmap's `net/paravirt.h`): tails, heads and wishes for calls
//! in a page of the guest's memory in place of register accesses and interrupts. What is here knows no chip.
//!
//! The page is hostile: each word is loaded once and judged on what was loaded. It is found anew in
//! every call that uses it, as all DMA is; when it is out of reach the block is off until the driver
//! gives it again. A register access touches none of it: what its registers and the doorbells ask for is done
//! with the work they note.

mod block;
mod page;
mod receiver;
mod transmitter;

pub use block::{Block, CsbBase, Gate};
pub use page::{At, CsbPage};
pub use receiver::{RxCsb, Settled};
pub use transmitter::{End, TxCsb};
