//! What the NIC is made of: its rings, its PHY and EEPROM, enables and counters.

pub(crate) mod chip;
pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod eeprom;
pub(crate) mod irq;
pub(crate) mod kept;
pub(crate) mod ocp;
pub(crate) mod phy;
pub(crate) mod queues;
pub(crate) mod row;
pub(crate) mod stats;
pub(crate) mod wake;
