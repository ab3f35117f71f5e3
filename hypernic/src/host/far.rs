//! NICs and chips that other processes of the daemon serve, as this one knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use parking_lot::Mutex;

use crate::config::{ChipConfig, HostConfig, NicConfig};
use crate::spec::PortSpec;

/// How a NIC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicState {
    /// A VMM has it.
    pub connected: bool,
    /// It has a link: the cable is in, and so is that of its port.
    pub link: bool,
    /// Its model panicked and was taken off.
    pub failed: bool,
    /// The revision of its model that its guest sees.
    pub revision: Option<u16>,
}

/// What somebody has lost, and how often: by the kind and the name of what counts it, and the counter.
pub(crate) type Losses = BTreeMap<(&'static str, String, &'static str), u64>;

/// What is served elsewhere.
#[derive(Default)]
pub(super) struct Far {
    pub(super) nics: BTreeMap<String, NicConfig>,
    pub(super) chips: BTreeMap<String, ChipConfig>,
    /// How those NICs were when their cells were last asked.
    pub(super) states: Mutex<BTreeMap<String, NicState>>,
    /// What cells have lost, as they were last asked.
    pub(super) losses: Mutex<BTreeMap<String, Losses>>,
    /// How much of what cells have told of that was not taken.
    pub(super) refused_losses: Mutex<BTreeMap<String, u64>>,
    /// When a monitor looked at that last.
    pub(super) losses_wanted: Mutex<Option<Instant>>,
    /// What the cells were told last.
    pub(super) told: Option<HostConfig>,
    /// Cells that were not there to be told.
    pub(super) stale: Mutex<BTreeSet<String>>,
    /// Cells that may have done steps of moves that are not noted here, and how often they are to be asked still.
    pub(super) unmatched: Mutex<BTreeMap<String, u32>>,
    /// NICs that have gone: their switches, and their cells.
    pub(super) gone: Vec<(String, String)>,
}

impl Far {
    /// A NIC is there no more: the next to have its address is elsewhere.
    pub(super) fn has_gone(&mut self, nic: NicConfig) {
        let chip = nic.vf.and_then(|vf| self.chips.get(&vf.chip));
        let port = chip.map_or(nic.port, |chip| chip.port.clone());
        if let (PortSpec::Switch(switch), Some(cell)) = (port, nic.cell) {
            self.gone.push((switch, cell));
        }
    }

    pub(super) fn state(&self, nic: &str) -> Option<NicState> {
        self.nics.get(nic)?;
        // One that was never asked has no VMM that this process knows of.
        let known = self.states.lock().get(nic).copied();
        Some(known.unwrap_or(NicState {
            connected: false,
            link: false,
            failed: false,
            revision: None,
        }))
    }
}
