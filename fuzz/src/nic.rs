//! NICs as the table of models makes them.

use model::Nic;
use registry::{Function, MODELS, Settings};

/// A NIC of this model.
///
/// # Panics
/// The table has no such model, or it does not take what was chosen.
pub(crate) fn nic(model: &str, settings: &Settings, function: &Function) -> Nic {
    MODELS
        .nic(model, settings, function)
        .expect("an entry that takes it")
}
