//! What NICs and chips send to.

use std::sync::Arc;

use frame::Sink;
use port::Port;

use super::Host;
use super::member::{ChipMember, port_error};
use crate::chip::RunningChip;
use crate::config::{ChipConfig, NicConfig};
use crate::error::Error;
use crate::ports;
use crate::spec::PortSpec;

/// Where a NIC sends to: a place on its chip or switch, or a port of its own.
pub(super) struct Wire {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) switch: Option<String>,
    pub(super) opened: Option<Port>,
    /// It leads nowhere.
    pub(super) is_cut: bool,
}

impl Host {
    /// A chip on its switch or a port of its own. Guests that have its functions do not lose them if that is not to be had again.
    ///
    /// # Errors
    /// There is none, with the cure.
    pub(super) fn wired_chip(&self, config: &ChipConfig) -> Result<RunningChip, Error> {
        let outer = match &config.port {
            PortSpec::Switch(name) => self.switches.get(name).map(|running| &running.switch),
            _ => None,
        };
        let start = |config: &ChipConfig| {
            RunningChip::start(config, outer, &self.clock, self.gate.as_ref())
        };
        match start(config) {
            Err(error) if self.is_made_again() => {
                tracing::error!("the chip goes on without its port, and its link is down: {error}");
                let cut = ChipConfig {
                    port: PortSpec::Null,
                    ..config.clone()
                };
                start(&cut).inspect(|chip| chip.cut())
            }
            started => started,
        }
    }

    /// Connects a NIC to its chip, its switch or a port of its own. A guest that has it already does not lose it if that is not to be had
    /// again: it goes on without.
    ///
    /// # Errors
    /// There is none, with the cure.
    pub(super) fn wire(
        &self,
        config: &NicConfig,
        member: Option<&ChipMember<'_>>,
        toward_guest: &Arc<dyn Sink>,
    ) -> Result<Wire, Error> {
        match self.find_wire(config, member, toward_guest) {
            Err(message) if member.is_none() && self.is_made_again() => {
                let error = port_error(config, message);
                tracing::error!("the NIC goes on without its port, and its link is down: {error}");
                let port = port_null::missing();
                Ok(Wire {
                    sink: Arc::clone(&port.sink),
                    switch: None,
                    opened: Some(port),
                    is_cut: true,
                })
            }
            found => found.map_err(|message| port_error(config, message)),
        }
    }

    fn find_wire(
        &self,
        config: &NicConfig,
        member: Option<&ChipMember<'_>>,
        toward_guest: &Arc<dyn Sink>,
    ) -> Result<Wire, String> {
        let toward_guest = Arc::clone(toward_guest);
        match (&config.port, member) {
            (_, Some(member)) => Ok(Wire {
                sink: member.attach(toward_guest)?,
                switch: None,
                opened: None,
                is_cut: false,
            }),
            (PortSpec::Switch(name), None) => {
                let running = self
                    .switches
                    .get(name)
                    .ok_or_else(|| format!("there is no switch \"{name}\"; add it first"))?;
                let may = ports::of_nic(config);
                let sink = running.switch.attach(&config.name, toward_guest, may);
                let sink = sink.map_err(|error| error.to_string())?;
                Ok(Wire {
                    sink,
                    switch: Some(name.clone()),
                    opened: None,
                    is_cut: false,
                })
            }
            (spec, None) => {
                let port = ports::open(spec, &format!("nic {}", config.name))?;
                Ok(Wire {
                    sink: Arc::clone(&port.sink),
                    switch: None,
                    opened: Some(port),
                    is_cut: false,
                })
            }
        }
    }
}
