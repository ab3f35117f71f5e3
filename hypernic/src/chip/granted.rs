//! What a VF's driver was granted, sealed for the next process.

use pf::Granted;
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State};

#[derive(Serialize, Deserialize)]
struct V1(Granted);

impl State for V1 {
    const KIND: Kind = Kind::new("granted");
    const VERSION: u32 = 1;
}

pub(super) fn seal(granted: Granted) -> Vec<u8> {
    snapshot::seal(&V1(granted))
}

/// `None`: this program cannot read it, and the VF's driver is made to start anew.
pub(super) fn open(sealed: &[u8]) -> Option<Granted> {
    let saved = snapshot::open(V1::KIND, sealed).ok()?;
    saved.decode::<V1>().ok().map(|V1(granted)| granted)
}
