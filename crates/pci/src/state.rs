//! What software wrote into a configuration space, saved and loaded as a versioned type.
//!
//! The whole image is saved, so that a loader can tell whether it is of the same device: every bit
//! that software cannot change must be as it is here. Only then the others are taken over.
//!
//! Two things may be others: the serial number, which is the card's whose NVM goes with the state, and
//! the extended space of a state from before its device had one, which is then as after a reset.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use snapshot::{Kind, State, StateError};

use crate::extended::Serial;
use crate::header::{offset, status};
use crate::space::{ConfigEvents, ConfigSpace};
use crate::sriov;
use crate::sriov::Held;

/// What the container calls it.
pub const KIND: Kind = Kind::new("pci");
/// The version that is saved. Older ones are loaded, newer ones refused.
pub const VERSION: u32 = 1;
/// Where the extended space begins.
const EXTENDED: usize = 0x100;

/// A configuration space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct V1 {
    /// All 256 or 4096 bytes, as software reads them.
    pub bytes: Vec<u8>,
}

impl State for V1 {
    const KIND: Kind = KIND;
    const VERSION: u32 = VERSION;
}

impl ConfigSpace {
    /// Everything that software has written, and the status bits that it can see.
    pub fn save(&self) -> Vec<u8> {
        let ConfigSpace {
            bytes,
            writable: _, // the device's
            w1c: _,      // the device's
            initial: _,  // the device's
            layout: _,   // the device's
        } = self;
        let bytes = bytes.to_vec();
        snapshot::seal(&V1 { bytes })
    }

    /// Takes over what [`ConfigSpace::save`] saved, and says what has changed by that.
    ///
    /// # Errors
    /// A state that is damaged, from a newer program, of another device or with a value that no
    /// software can have written is refused, and nothing has changed.
    pub fn load(&mut self, blob: &[u8]) -> Result<ConfigEvents, StateError> {
        let saved = snapshot::open(KIND, blob)?;
        if saved.version != VERSION {
            return Err(StateError::Version {
                kind: KIND,
                found: saved.version,
                newest: VERSION,
            });
        }
        let V1 { mut bytes } = saved.decode()?;
        self.complete(&mut bytes);
        self.check(&bytes)?;
        let before = self.watched();
        if let Some(serial) = self.serial() {
            self.initial[serial.clone()].copy_from_slice(&bytes[serial]);
        }
        self.bytes.copy_from_slice(&bytes);
        let mut events = ConfigEvents::new();
        self.compare(&before, &mut events);
        Ok(events)
    }

    /// Gives a state that has no extended capabilities those of a new device.
    fn complete(&self, saved: &mut [u8]) {
        let same = saved.len() == self.initial.len();
        let Some(extended) = saved.get_mut(EXTENDED..).filter(|_| same) else {
            return;
        };
        if extended.iter().all(|byte| *byte == 0) {
            extended.copy_from_slice(&self.initial[EXTENDED..]);
        }
    }

    fn serial(&self) -> Option<Range<usize>> {
        self.layout.serial.map(|at| at..at + Serial::LEN)
    }

    fn check(&self, saved: &[u8]) -> Result<(), StateError> {
        let field = |value: usize, why| StateError::Field {
            field: "config",
            value: value as u64,
            why,
        };
        if saved.len() != self.bytes.len() {
            let why = "a configuration space of another size";
            return Err(field(saved.len(), why));
        }
        let id = |bytes: &[u8]| {
            let half = |at| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let (vendor, device) = (half(offset::VENDOR), half(offset::DEVICE));
            let (sub, system) = (half(offset::SUBSYSTEM_VENDOR), half(offset::SUBSYSTEM));
            let revision = bytes[offset::REVISION];
            format!(
                "{vendor:04x}:{device:04x} (revision {revision:x}, subsystem {sub:04x}:{system:04x})"
            )
        };
        let (found, expected) = (id(saved), id(&self.bytes));
        if found != expected {
            return Err(StateError::Device { found, expected });
        }
        for (at, (value, ours)) in saved.iter().zip(&self.initial).enumerate() {
            let free = self.writable[at] | self.w1c[at] | self.owners(at);
            if (value ^ ours) & !free != 0 {
                return Err(field(
                    at,
                    "a bit that software cannot change, at this offset",
                ));
            }
        }
        if let Some(pm) = self.layout.pm {
            let state = saved[pm.at + 4] & 3;
            if state == 1 && !pm.d1 || state == 2 && !pm.d2 {
                return Err(field(state.into(), "a power state that the device has not"));
            }
        }
        if let Some(sriov) = self.layout.sriov {
            let mut settled = saved.to_vec();
            sriov.settle(&mut settled, Held::FRESH);
            if let Some(at) = (0..saved.len()).find(|&at| settled[at] != saved[at]) {
                return Err(field(
                    at,
                    "more VFs, another page or another place than the function can have",
                ));
            }
        }
        Ok(())
    }

    /// Bits that the device itself sets and clears, and those that may be another's.
    fn owners(&self, at: usize) -> u8 {
        let pending = self.layout.msi.and_then(|(cap, msi)| {
            let first = cap + msi.mask_offset()? + 4;
            Some(first..first + 4)
        });
        // Looked at when all is settled.
        let first = self.layout.sriov.map(|sriov| {
            let first = sriov.at + sriov::offset::FIRST_OFFSET;
            first..first + 2
        });
        let theirs = [pending, self.serial(), first];
        if at == offset::STATUS {
            status::INTERRUPT as u8
        } else if theirs.iter().flatten().any(|bytes| bytes.contains(&at)) {
            0xff
        } else {
            0
        }
    }
}
