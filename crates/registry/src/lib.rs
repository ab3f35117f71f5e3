//! The table of NIC models. Whatever lets users name a model (command line, configuration file, embedding
//! API, oracles, fuzzers) asks [`MODELS`]; nothing else matches on names. A new model is a new entry there.
//!
//! ```
//! let model = hypernic_registry::MODELS.find("e1000").expect("an entry");
//! let nic = model.nic(&hypernic_registry::Settings::new([2, 0, 0, 0, 0, 1]), &Default::default());
//! assert_eq!(nic.expect("a NIC").identity.vendor, 0x8086);
//! assert!(hypernic_registry::MODELS.parse("e1001").is_err());
//! ```
#![forbid(unsafe_code)]

mod entry;
mod table;

pub use entry::{Choice, Function, Model, Models, Refusal, Settings};
pub use igb::Moderation;
pub use table::MODELS;
