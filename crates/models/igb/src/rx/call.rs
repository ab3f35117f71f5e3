//! The state of one call of the receive side that does not change from frame to frame.

use model::Env;

use crate::core::function::{Function, FunctionKind};
use crate::core::ptp::Ptp;
use crate::regs::settings::Settings;

/// Settings and sender, read once.
pub(crate) struct Call<'a> {
    pub function: &'a Function,
    pub env: &'a Env,
    pub settings: Settings,
    /// Frames may have to be timed.
    pub listens: bool,
    /// The pools that a frame is for, if a pool of this function has sent it.
    pub inside: Option<u32>,
    /// Pause frames are recognised.
    pub obeys: bool,
    /// Frames still to come.
    pub expected: usize,
}

impl<'a> Call<'a> {
    pub(crate) fn new(function: &'a Function, env: &'a Env, settings: Settings) -> Self {
        Call {
            function,
            env,
            settings,
            listens: matches!(function.kind, FunctionKind::Pf) && Ptp::listens(&function.file),
            inside: None,
            obeys: function.obeys_pause(),
            expected: 1,
        }
    }
}
