//! A function at the on-chip switch, and the policy in force there.

use eswitch::{FunctionPolicy, Pool, Rate, Storm};
use vale::Switch;

/// The port of the on-chip switch that leads out.
pub const WIRE: &str = "wire";

/// A function and its port, so far as the switch has heard of it.
#[derive(Debug, Default)]
pub(super) struct FunctionPort {
    /// The name of its port.
    port: Option<String>,
    pool: Option<Pool>,
    bounds: (Option<Rate>, Storm),
}

impl FunctionPort {
    /// One whose port has this name, if it has one; nothing is in force yet.
    pub(super) fn new(port: Option<&str>) -> FunctionPort {
        FunctionPort {
            port: port.map(str::to_owned),
            ..FunctionPort::default()
        }
    }

    /// The name of its port.
    pub(super) fn port(&self) -> Option<&str> {
        self.port.as_deref()
    }

    /// Puts a policy in force. The switch hears of what has changed, and again of what it refused: a
    /// port that was not there.
    pub(super) fn enforce(&mut self, switch: &Switch, policy: &FunctionPolicy) {
        let Some(port) = &self.port else { return };
        // Each new pool is a new table for the switch.
        if self.pool.as_ref() != Some(&policy.pool) && switch.set_pool(port, policy.pool.clone()) {
            self.pool = Some(policy.pool.clone());
        }
        // New limits are full: a function whose pool alone changes gets no burst by it.
        let bounds = (policy.rate, policy.storm);
        if self.bounds != bounds && switch.set_bounds(port, policy.rate, policy.storm) {
            self.bounds = bounds;
        }
    }
}
