//! The only door to guest memory.
//!
//! A [`Memory`] is one NIC's view of its guest: the regions the VMM has mapped for DMA, by I/O
//! virtual address (IOVA). Models and the switch take a [`View`] for the length of one batch and
//! read, write or borrow slices through it; an unmap waits for the views in flight and for nothing
//! else, so a reply to `DMA_UNMAP` means that no thread touches the memory any more.
//!
//! The guest may change any byte at any time, so nothing here ever hands out a Rust reference to
//! guest memory: [`ReadSlice`] and [`WriteSlice`] only copy. What must be decided upon is copied
//! out once and decided on the copy.
//!
//! A peer that shrinks the file behind a mapping would make the next access raise `SIGBUS`;
//! [`install_sigbus_guard`] turns that into faults for that peer and a counter.
//!
//! `unsafe` lives here because mapping and copying shared memory cannot be done without it. Each
//! block says what keeps it sound.

mod account;
mod copy;
mod crc;
mod dirty;
mod fault;
mod guard;
mod hot;
mod mapping;
mod memory;
#[cfg(feature = "meter")]
mod meter;
mod places;
pub mod quota;
mod region;
mod remote;
mod slice;
mod sum;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod window;
mod words;
pub mod work;

pub use crc::crc32_short;
pub use dirty::{LARGEST_LOG_PAGE, LOG_PAGE, LogError, MAX_LOG_CHUNKS, MAX_LOG_RANGES, log_bytes};
pub use fault::{Fault, FaultKind};
pub use guard::{MAX_MAPPINGS, install_sigbus_guard};
pub use hot::{Hot, LINE, Lines};
pub use mapping::MapError;
pub use memory::{Memory, RegionInfo, UnmapError};
#[cfg(feature = "meter")]
pub use meter::{Access, Meter, Totals};
pub use places::{Head, ReadPlaces, WritePlaces, copy_lengths, copy_run};
pub use region::Prot;
pub use remote::Remote;
pub use slice::{ReadSlice, WriteSlice};
pub use table::{FileId, Leftovers, MAX_REGIONS, MappedFile};
pub use view::{MAX_RUNS, View};
pub use window::WriteWindow;
pub use words::Words;
