//! What the registers say to the transmitter, worked out once per generation of the set-up.

use frame::Caps;
use intel::RingPlace;
use intel::tx::Settings;

use crate::core::chip::Chip;
use crate::core::tx_queue::{RING, TxPlan};
use crate::regs as r;
use crate::regs::bits::{ctrl, tctl, txdctl};

impl TxPlan {
    #[cold]
    pub(crate) fn make(chip: &Chip) -> TxPlan {
        let file = &chip.file;
        let tags = file.get(r::CTRL) & ctrl::VME != 0;
        TxPlan {
            on: chip.tx_enabled(),
            loopback: chip.comes_back(),
            pad: file.get(r::TCTL) & tctl::PSP != 0,
            vlan: tags.then(|| file.get(r::VET) as u16),
            place: RingPlace::of(file, &RING, 0),
            low: (file.get(r::TXDCTL) >> txdctl::LWTHRESH_SHIFT) * txdctl::LWTHRESH_UNIT,
        }
    }

    /// What it says about all packets of a batch for a sink of these abilities.
    #[inline]
    pub(crate) fn settings(&self, caps: Caps, fast_path: bool) -> Settings {
        Settings {
            caps,
            pad: self.pad,
            vlan: self.vlan,
            tag: None,
            fast_path,
        }
    }
}
