//! Words of what runs that change while VMMs have it.

use super::Host;
use crate::config::{Cable, ChipConfig, NicConfig, SwitchConfig};
use crate::error::Error;
use crate::ports;

impl Host {
    /// Changes words of a NIC; its VMM keeps it, and frames go on. What else the words say means nothing.
    ///
    /// # Errors
    /// There is no such NIC, or its capture file cannot be made; nothing has changed.
    pub fn set_nic(&mut self, to: &NicConfig) -> Result<(), Error> {
        if let Some(far) = self.far.nics.get_mut(&to.name) {
            far.clone_from(to);
            return Ok(());
        }
        let attached = self.nics.get_mut(&to.name);
        let attached = attached.ok_or_else(|| unknown("NIC", &to.name))?;
        let is = &attached.config;
        let capture = (&is.capture, is.capture_mib) != (&to.capture, to.capture_mib);
        if capture {
            let failed = |message| Error::Port {
                owner: to.name.clone(),
                port: "capture".into(),
                message,
            };
            let file = to.capture.as_deref().map(|file| (file, to.capture_mib));
            attached.capture.set(file, &to.name).map_err(failed)?;
        }
        attached.nic.set_busy_poll(to.busy_poll);
        attached.nic.plug(to.cable == Cable::Up);
        if is.moderation != to.moderation {
            attached.nic.moderate(to.moderation.into());
        }
        let is = &mut attached.config;
        is.capture.clone_from(&to.capture);
        is.capture_mib = to.capture_mib;
        is.busy_poll = to.busy_poll;
        is.cable = to.cable;
        is.moderation = to.moderation;
        is.mac_lock = to.mac_lock;
        is.back_pressure = to.back_pressure;
        is.guard.clone_from(&to.guard);
        if let Some(running) = attached.switch.as_ref().and_then(|s| self.switches.get(s)) {
            running.switch.set_port(&to.name, &ports::of_nic(is));
        }
        Ok(())
    }

    /// Changes words of a switch, but not its ports; NICs notice nothing.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn set_switch(&mut self, to: &SwitchConfig) -> Result<(), Error> {
        let running = self.switches.get_mut(&to.name);
        let running = running.ok_or_else(|| unknown("switch", &to.name))?;
        running.set(to);
        Ok(())
    }

    /// Changes words of a chip; functions come and go by themselves.
    ///
    /// # Errors
    /// There is no such chip, or its VFs are promised more than it would have.
    pub fn set_chip(&mut self, to: &ChipConfig) -> Result<(), Error> {
        if let Some(far) = self.far.chips.get_mut(&to.name) {
            far.clone_from(to);
            return Ok(());
        }
        let chip = self.chips.get_mut(&to.name);
        let (running, is) = chip.ok_or_else(|| unknown("chip", &to.name))?;
        let failed = |message| Error::Port {
            owner: to.name.clone(),
            port: "port-rate".into(),
            message,
        };
        running.set_rate(to.rate).map_err(failed)?;
        is.rate = to.rate;
        is.vfs = to.vfs;
        is.vf_sockets.clone_from(&to.vf_sockets);
        Ok(())
    }
}

fn unknown(kind: &str, name: &str) -> Error {
    Error::Host(format!("there is no {kind} \"{name}\""))
}
