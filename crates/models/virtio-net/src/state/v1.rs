//! Version 1.

use serde::{Deserialize, Serialize};
use snapshot::{Kind, State};

use crate::core::coalesce::Coalesce;
use crate::core::station::Station;
use crate::core::stats::{RxStats, TxStats};
pub use crate::core::steering::{Rss, Spread};

/// What the container calls it.
pub const KIND: Kind = Kind::new("virt-net");

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Entries.
    pub size: u16,
    /// Interrupt vector.
    pub vector: u16,
    /// It is enabled.
    pub enabled: bool,
    /// Its ring is followed; not when it is broken.
    pub followed: bool,
    /// Where its areas are.
    pub desc: u64,
    /// The driver area.
    pub driver: u64,
    /// The device area.
    pub device: u64,
    /// Entry that is taken next.
    pub next: u16,
    /// Entry that is used next.
    pub used: u16,
    /// What that was when the driver was last told, or not.
    pub told: u16,
    /// How often it was notified, and its driver called.
    pub tally: [u64; 2],
    /// When its driver wants to be called.
    pub coalesce: Coalesce,
}

/// The device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct V1 {
    /// What was agreed upon.
    pub features: u64,
    /// Receive offloads that are on.
    pub offloads: u64,
    /// The device status.
    pub status: u8,
    /// The number of the configuration.
    pub generation: u8,
    /// The interrupt status.
    pub isr: u8,
    /// The network status.
    pub net_status: u16,
    /// The bus lets it reach memory.
    pub bus_master: bool,
    /// Interrupts are messages.
    pub msix: bool,
    /// Vector of the configuration.
    pub config_vector: u16,
    /// Selectors: device features, driver features, queue.
    pub selects: (u32, u32, u16),
    /// Features as the driver has written them.
    pub driver: u64,
    /// Pairs that are used.
    pub pairs: u16,
    /// Receive and transmit of each pair, control; those that were not agreed upon are there too.
    pub queues: Vec<Queue>,
    /// When drivers of receive and of transmit queues that are enabled later want to be called.
    pub coalesce: (Coalesce, Coalesce),
    /// The control queue was notified, and its commands are not done.
    pub ctrl_kicked: bool,
    /// What is received.
    pub station: Station,
    /// By which queues.
    pub rss: Rss,
    /// What they have done, by pair.
    pub stats: Vec<(RxStats, TxStats)>,
    /// Commands, and those that were done.
    pub commands: (u64, u64),
}

impl State for V1 {
    const KIND: Kind = KIND;
    const VERSION: u32 = 1;
}
