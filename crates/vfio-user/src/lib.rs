//! vfio-user: PCI devices in a process of their own.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod client;
pub mod codec;
mod description;
mod device;
mod dma;
mod event;
mod interrupts;
mod msix;
mod server;
mod shared_mem;
mod stream;

pub use client::{Client, ClientError, ClientOptions};
pub use codec::SparseArea;
pub use description::{DescriptionError, DeviceDescription};
pub use device::{ClientEvent, Device, DmaChange, GoneReason, ResetCause, Work};
pub use dma::{Dma, DmaError, DmaToken};
pub use event::EventFd;
pub use interrupts::Interrupts;
pub use server::{ListenError, Listener, Progress, Server, ServerError};
pub use shared_mem::SharedMem;

pub use guest_mem;
pub use pci;
