//! Who wants a turn, and when a worker may sleep.
//!
//! A worker serves many items (NICs). Any thread may *call* an item: raise a bit for it. The first
//! bit puts the item on its worker's [`ReadyList`]; further ones until its turn cost one atomic
//! operation. A worker that finds its ready_list empty goes to sleep in a way that loses no call: it
//! says that it sleeps, then a full barrier, then it looks once more; a caller lists its item, then
//! a full barrier, then looks whether the worker sleeps. One of the two sees the other. Only a
//! caller that finds the worker asleep has to wake it by a system call.
//!
//! Each item has one [`TaskTimer`], and each worker one [`TimerQueue`], in place of a timer in the kernel
//! per item. Moving an timer to a later time costs one store.
//!
//! All of it is checked in every order its steps can take (`make loom`).
#![forbid(unsafe_code)]

mod ready_list;
mod sync;
mod timer;
mod wake_flags;

pub use ready_list::ReadyList;
pub use timer::{HasTimer, TaskTimer, TimerQueue};
pub use wake_flags::WakeFlags;
