//! A NIC's place on its chip.

use std::sync::Arc;

use eswitch::Owner;
use frame::Sink;
use registry::Function;

use crate::chip::RunningChip;
use crate::config::NicConfig;
use crate::error::Error;
use crate::nic::{Granted, RunningNic};

/// A function with a place on its chip, which is given back if the NIC cannot be started.
pub(super) struct ChipMember<'a> {
    chip: &'a RunningChip,
    config: &'a NicConfig,
    owner: Owner,
    pub(super) function: Function,
    stays: bool,
}

impl<'a> ChipMember<'a> {
    /// The place of a virtual function, or of the physical function that a guest has; `None` for a NIC that
    /// is neither. `ruled` knows the chips whose physical function a guest has already.
    pub(super) fn find(
        chips: impl Fn(&str) -> Option<&'a RunningChip>,
        config: &'a NicConfig,
        ruled: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>, Error> {
        let failed = |message| port_error(config, message);
        let chip =
            |name: &str| chips(name).ok_or_else(|| failed(format!("there is no chip \"{name}\"")));
        let (chip, owner, function) = if let Some(vf) = &config.vf {
            let chip = chip(&vf.chip)?;
            let channel = chip.attach_vf(&config.name, vf).map_err(failed)?;
            (chip, Owner::Vf(vf.index), Function::Vf(channel))
        } else if let Some(name) = &config.rules {
            let chip = chip(name)?;
            if ruled(name) {
                return Err(failed(format!(
                    "\"{name}\" already has a physical function"
                )));
            }
            let hub = chip.hub().map_err(failed)?;
            (chip, Owner::Pf, Function::PfWithVfs(hub))
        } else {
            return Ok(None);
        };
        Ok(Some(ChipMember {
            chip,
            config,
            owner,
            function,
            stays: false,
        }))
    }

    /// Connects it to the chip's switch.
    pub(super) fn attach(&self, toward_guest: Arc<dyn Sink>) -> Result<Arc<dyn Sink>, String> {
        self.chip
            .attach(&self.config.name, self.owner, toward_guest)
    }

    /// What the chip knows of it and no other process does.
    pub(super) fn granted(&self) -> Option<Box<dyn Granted>> {
        self.chip.granted_to(self.owner)
    }

    /// The NIC runs: it keeps its place, and its chip can reach it.
    pub(super) fn stay(mut self, nic: &RunningNic) {
        match &self.function {
            Function::Vf(channel) => {
                channel.set_bell(Some(nic.bell()));
                // For what was granted before there was a bell.
                channel.ring();
            }
            Function::PfWithVfs(_) => self.chip.started(nic.bell(), nic.link_switch()),
            Function::Alone => {}
        }
        self.stays = true;
    }
}

impl Drop for ChipMember<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.chip.remove(&self.config.name, self.owner);
        }
    }
}

/// What is wrong with a NIC's port.
pub(super) fn port_error(config: &NicConfig, message: String) -> Error {
    Error::Port {
        owner: config.name.clone(),
        port: config.port.to_string(),
        message,
    }
}
