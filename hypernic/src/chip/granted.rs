//! What a VF's driver was granted, sealed for the next process.

use std::sync::{Arc, Weak};

use pf::Granted;
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State};

use super::pf_runner::PfRunner;

#[derive(Serialize, Deserialize)]
struct V1(Granted);

impl State for V1 {
    const KIND: Kind = Kind::new("granted");
    const VERSION: u32 = 1;
}

/// What a VF's driver is granted by a runner.
pub(super) struct OfVf {
    runner: Weak<PfRunner>,
    vf: u32,
}

impl OfVf {
    pub(super) fn new(runner: &Arc<PfRunner>, vf: u32) -> Self {
        OfVf {
            runner: Arc::downgrade(runner),
            vf,
        }
    }
}

impl crate::nic::Granted for OfVf {
    fn granted(&self) -> Option<Vec<u8>> {
        self.runner.upgrade()?.granted(self.vf).map(seal)
    }

    fn resume(&self, granted: &[u8]) {
        if let (Some(runner), Some(granted)) = (self.runner.upgrade(), open(granted)) {
            runner.resume(self.vf, granted);
        }
    }
}

pub(super) fn seal(granted: Granted) -> Vec<u8> {
    snapshot::seal(&V1(granted))
}

/// `None`: this program cannot read it, and the VF's driver is made to start anew.
pub(super) fn open(sealed: &[u8]) -> Option<Granted> {
    let saved = snapshot::open(V1::KIND, sealed).ok()?;
    saved.decode::<V1>().ok().map(|V1(granted)| granted)
}
