//! What is in force for a VF: at the on-chip switch, and at the VF itself.

use eswitch::FunctionPolicy;

use crate::policy::PortVlan;

/// The settings of one VF, as they follow from its policy and from what its driver asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the on-chip switch holds it to: its pool, its rate, its storm limits.
    pub eswitch: FunctionPolicy,
    /// Its link is up.
    pub link: bool,
    /// Put into all it sends, and taken off what it gets (VMVIR).
    pub tag: Option<PortVlan>,
    /// Longest frame it gets, in bytes with FCS and without tag (VMOLR.RLPML).
    pub max_frame: u16,
    /// Most interrupts a second.
    pub interrupts: Option<u32>,
}

impl Settings {
    /// Whether it may send and receive (VFTE, VFRE).
    pub fn enabled(&self) -> bool {
        self.eswitch.pool.enabled
    }
}
