//! PCI configuration space as data: 256 or 4096 bytes, each with a mask of the bits software may
//! write and a mask of the bits that a written one clears.
//!
//! The space knows the header (PCI Local Bus 3.0 §6.1), base address registers with their sizing
//! protocol (§6.2.5), the capability chain (power management, MSI, MSI-X, PCI Express, anything
//! raw) and the chain of extended capabilities (PCI Express Base §7.9), with advanced error
//! reporting, serial number, ARI and SR-IOV among them. It does no I/O: a write returns what changed
//! as [`ConfigEvent`]s, and the owner reacts.
//!
//! ```
//! use hypernic_pci::{Bar, Capability, ConfigBuilder, ConfigEvent, Msi};
//!
//! let mut config = ConfigBuilder::new(0x8086, 0x100e)
//!     .class(0x02_00_00)
//!     .bar(0, Bar::memory32(128 << 10))
//!     .interrupt_pin(1)
//!     .capability(Capability::Msi(Msi::new(1).address64()))
//!     .build()
//!     .unwrap();
//!
//! // The sizing protocol: write ones, read back the size.
//! config.write(0x10, &u32::MAX.to_le_bytes());
//! assert_eq!(config.read_u32(0x10), !((128 << 10) - 1));
//!
//! let events = config.write(0x04, &[0x06, 0x04]);
//! assert!(matches!(
//!     events[0],
//!     ConfigEvent::Command { mem: true, io: false, master: true, intx_disable: true }
//! ));
//! ```
#![forbid(unsafe_code)]

mod bar;
mod builder;
mod caps;
pub mod doorbell;
mod ecap;
mod extended;
mod header;
mod msix;
mod space;
pub mod sriov;
pub mod state;
#[cfg(test)]
mod tests;
mod vfs;

pub use bar::{Bar, BarKind};
pub use builder::{BuildError, ConfigBuilder};
pub use caps::{Capability, Msi, Msix, Pcie, PowerManagement, Raw, Window};
pub use doorbell::{Doorbells, QueueDoorbell};
pub use ecap::ExtendedCapability;
pub use extended::{Aer, Ari, Extended, Serial};
pub use header::{command, offset, status};
pub use msix::{Delivery, Message, MsixTable};
pub use snapshot::StateError;
pub use space::{ConfigEvent, ConfigEvents, ConfigSpace, Pme, PmeWrite, PowerState, WindowAccess};
pub use sriov::Sriov;
