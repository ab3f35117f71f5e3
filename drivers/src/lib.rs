//! The guest side of our NICs as a library: a guest without a guest's noise.
//!
//! [`Bus`] is what a driver sees of the machine: registers, configuration space, DMA memory, an
//! interrupt. [`ModelBus`] puts a bare model behind it, in process, on a clock that moves only by
//! hand; the same driver code runs unchanged over a real vfio-user socket. [`e1000::Driver`] does
//! what the stock drivers do, in poll mode or by interrupt, and allocates nothing per packet.
//!
//! The register layout here is written from the manual and shares nothing with the models, so
//! that two readings of the same manual check each other.
#![forbid(unsafe_code)]

mod bus;
pub mod e1000;
pub mod igb;
pub mod igbpf;
pub mod igbvf;
mod model_bus;
mod socket_bus;
pub mod sriov;

pub use bus::{Bus, BusError, Costs, Dma};
pub use model_bus::{Automask, Meanwhile, ModelBus, Recorded, Recorder};
pub use socket_bus::journey::{Carried, Journey};
pub use socket_bus::{FarEnd, SocketBus};
