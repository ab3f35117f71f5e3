//! The software PF of an 82576, where no driver runs on its physical function.
//!
//! SR-IOV splits the work between the driver of the physical function (PF) and the I/O
//! virtualization manager beside it ("High Performance Network Virtualization with SR-IOV",
//! §III.A). In a daemon that owns the chip both are a policy that the operator has written.
//! [`SoftwarePf`] keeps it: it answers the mailbox of every VF as Linux's igb driver does, tells VFs what happens to the
//! port (§III.B), and keeps each of them within what it may do (§III.C).
//!
//! It is a pure state machine. It is told what happened and when, and [`SoftwarePf::drain`] says what is
//! to be done: messages to put into mailboxes, settings to put in force at the on-chip
//! switch and at the VF ([`SoftwarePf::settings`]). Everything it keeps for a VF is bounded, whatever that VF sends.
//!
//! ```
//! use hypernic_pf::{Effect, Policy, SoftwarePf};
//! use wire::MacAddr;
//!
//! let mut pf = SoftwarePf::new(None);
//! let mac = MacAddr([0x52, 0x54, 0, 0, 0, 1]);
//! pf.add(0, Policy::new(mac), 0)?;
//! pf.link(true);
//! pf.drain().for_each(drop);
//! // The VF's driver resets and asks for its address.
//! pf.reset(0);
//! let mut words = [0; 16];
//! words[0] = 1;
//! pf.request(0, &words, 2);
//! let replied = pf.drain().any(|effect| matches!(effect, Effect::Reply { vf: 0, message }
//!     if message.words()[0] == 0x8000_0001));
//! assert!(replied);
//! assert_eq!(pf.settings(0).map(|settings| settings.eswitch.pool.macs.clone()), Some(vec![mac]));
//! # Ok::<(), hypernic_pf::PolicyError>(())
//! ```
#![forbid(unsafe_code)]

mod granted;
mod message;
mod policy;
mod record;
mod settings;
mod software_pf;
mod vf;

pub use granted::Granted;
pub use message::{Message, WORDS};
pub use policy::{Change, LinkState, Misdeeds, Policy, PolicyError, PortVlan};
pub use record::{Down, Record, What};
pub use settings::Settings;
pub use software_pf::{Effect, SoftwarePf, Status, VfId};
