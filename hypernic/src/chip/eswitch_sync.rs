//! Eswitch sync: what the registers of a PF say, carried out at the on-chip switch.

use std::collections::BTreeMap;

use eswitch::{Fabric, FunctionPolicy, Owner, StormWindows};
use igb::Enforcer;
use parking_lot::Mutex;
use vale::Switch;

use super::function_port::{FunctionPort, WIRE};

/// Carries out at the switch what registers say of functions.
pub(super) struct EswitchSync {
    switch: Switch,
    known: Mutex<Known>,
}

/// What the registers say, and the ports that it holds for.
#[derive(Default)]
struct Known {
    functions: BTreeMap<Owner, (FunctionPort, FunctionPolicy)>,
    fabric: Fabric<Owner>,
    storm: StormWindows,
}

impl EswitchSync {
    pub(super) fn new(switch: Switch) -> EswitchSync {
        EswitchSync {
            switch,
            known: Mutex::default(),
        }
    }

    /// A function has its port at the switch, or has none any more.
    pub(super) fn joined(&self, owner: Owner, port: Option<&str>) {
        let mut known = self.known.lock();
        let (function, policy) = known.functions.entry(owner).or_default();
        *function = FunctionPort::new(port);
        function.enforce(&self.switch, policy);
        // Mirrors copy from port to port, and this is another.
        if !known.fabric.mirrors.is_empty() {
            self.set_fabric(&known);
        }
    }

    /// Tells the switch what holds for all functions, by the ports that there are.
    fn set_fabric(&self, known: &Known) {
        let port = |owner: &Owner| Some(known.functions.get(owner)?.0.port()?.to_owned());
        self.switch.set_fabric(&known.fabric.resolve(port));
    }
}

impl Enforcer for EswitchSync {
    fn enforce(&self, owner: Owner, policy: &FunctionPolicy) {
        let mut known = self.known.lock();
        let (function, of_function) = known.functions.entry(owner).or_default();
        of_function.clone_from(policy);
        function.enforce(&self.switch, policy);
    }

    fn enforce_all(&self, fabric: &Fabric<Owner>, storm: &StormWindows) {
        let mut known = self.known.lock();
        known.fabric = fabric.clone();
        // Windows that are set begin anew.
        if std::mem::replace(&mut known.storm, *storm) != *storm {
            self.switch.set_windows(WIRE, *storm);
        }
        self.set_fabric(&known);
    }
}
