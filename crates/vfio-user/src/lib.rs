//! vfio-user: PCI devices in a process of their own, without C.
//!
//! A VMM (QEMU 10.1 or later with `-device vfio-user-pci`, cloud-hypervisor with `--user-device`)
//! connects to a Unix socket, finds a PCI device there and hands it its guest's memory. This crate
//! is both ends of that socket:
//!
//! - [`codec`]: the messages as bytes, pure.
//! - [`Server`]: serves a [`Device`] described by a [`DeviceDescription`]. The crate answers
//!   configuration space, MSI-X table and option ROM, keeps the map of guest memory ([`Dma`]),
//!   and turns [`Interrupts`] into what the client armed.
//! - [`Client`]: what a VMM does, for tests, drivers and benches.
//!
//! # A device
//!
//! Everything a device must have is here: registers, deferred work, DMA and an interrupt.
//! `examples/timer.rs` is the longer version of it.
//!
//! ```
//! use std::time::Duration;
//! use hypernic_vfio_user::{
//!     Client, Device, DeviceDescription, Dma, EventFd, Interrupts, Listener, ResetCause, Server,
//!     SharedMem, Work, codec::irq, guest_mem::Prot, pci::Bar,
//! };
//!
//! /// Adds one to the word of guest memory whose address is written to its only register.
//! struct Adder { irq: Interrupts, dma: Dma, todo: Option<u64> }
//!
//! impl Device for Adder {
//!     fn bar_read(&mut self, _bar: u8, _offset: u64, data: &mut [u8]) {
//!         self.irq.set_line(false);
//!         data.fill(0);
//!     }
//!     fn bar_write(&mut self, _bar: u8, _offset: u64, data: &[u8]) {
//!         // The access is answered at once; guest memory is for `work`.
//!         self.todo = data.try_into().ok().map(u64::from_le_bytes);
//!     }
//!     fn reset(&mut self, _why: ResetCause) {
//!         self.todo = None;
//!     }
//!     fn work(&mut self) -> Work {
//!         if let Some(iova) = self.todo.take() {
//!             let view = self.dma.memory().view();
//!             let mut word = [0; 4];
//!             if view.read(iova, &mut word).is_ok() {
//!                 let sum = u32::from_le_bytes(word).wrapping_add(1);
//!                 if view.write(iova, &sum.to_le_bytes()).is_ok() {
//!                     self.irq.set_line(true);
//!                 }
//!             }
//!         }
//!         Work::Idle
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("adder.sock");
//! let description = DeviceDescription::new(0x1234, 0x5678)
//!     .class(0x12_00_00)
//!     .bar(0, Bar::memory32(4096))
//!     .intx(1);
//! let mut server = Server::new(description, Listener::bind(&path)?)?;
//! let mut device = Adder { irq: server.interrupts(), dma: server.dma()?, todo: None };
//! let stop = EventFd::new()?;
//!
//! std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
//!     scope.spawn(|| server.run(&mut device, &stop));
//!
//!     // A guest, by our own client.
//!     let ram = SharedMem::new("ram", 0x1000)?;
//!     ram.write(0x10, &41u32.to_le_bytes());
//!     let interrupt = EventFd::new()?;
//!     let mut guest = Client::connect(&path)?;
//!     guest.dma_map(0x8000_0000, &ram, 0, 0x1000, Prot::RW)?;
//!     guest.arm(irq::INTX, 0, &[&interrupt])?;
//!     guest.region_post(0, 0, &0x8000_0010u64.to_le_bytes())?;
//!     interrupt.wait(Duration::from_secs(5)).ok_or("no interrupt")?;
//!
//!     let mut word = [0; 4];
//!     ram.read(0x10, &mut word);
//!     assert_eq!(u32::from_le_bytes(word), 42);
//!     stop.signal();
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # What a client can rely on
//!
//! One read of the socket serves as many messages as have come, their replies leave in one send,
//! and only then does the device [`work`](Device::work). A register access is never answered with
//! an error: what is not there reads as ones, and writes to it vanish. A client that breaks the
//! protocol loses its connection; the device keeps its state and serves the next one.
//!
//! # What is not here
//!
//! `GET_REGION_IO_FDS` answers that there are none; `DMA_UNMAP` gives no dirty bitmap (`ENOTSUP`), which the report of the log
//! does. Of migration's states there are those that a stopped device can be moved by, and not `PRE_COPY`.
#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
mod description;
mod device;
mod dma;
mod doorbell;
mod interrupts;
mod msix;
mod server;
mod stream;

pub use client::{Client, ClientError, ClientOptions};
pub use codec::SparseArea;
pub use description::{DescriptionError, DeviceDescription};
pub use device::{ClientEvent, Device, DmaChange, GoneReason, ResetCause, Work};
pub use dma::{Dma, DmaError, DmaToken};
pub use doorbell::MappedDoorbells;
pub use interrupts::Interrupts;
pub use interrupts::shown::VectorInfo;
pub use peer::stream::Filled;
pub use peer::{
    Area, EventFd, EventSet, ListenError, Listener, MAX_SOCKET_PATH, SharedMem, leave_paths,
};
pub use server::{
    Handover, HandoverError, HoldError, Kept, Lifeline, Look, Progress, Server, ServerError,
    check_state,
};

pub use guest_mem;
pub use pci;
