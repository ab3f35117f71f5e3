//! A host from its configuration.

use super::Host;
use crate::config::{HostConfig, SwitchConfig};
use crate::error::Error;
use crate::quarantine;
use crate::spec::Transport;

/// A part could not be made again.
fn goes_on_without(error: &Error) {
    tracing::error!("the host goes on without it: {error}");
}

impl Host {
    /// Makes all there is to be. After another worker a part that cannot be made is said to be missing: guests have the others.
    ///
    /// # Errors
    /// The first part that cannot be had, in the first worker.
    pub(super) fn make_all(&mut self, config: &HostConfig) -> Result<(), Error> {
        let again = keeper::current().is_some_and(|page| page.life() > 1);
        let settle = |made: Result<(), Error>| match made {
            Err(error) if again => {
                goes_on_without(&error);
                Ok(())
            }
            made => made,
        };
        for switch in &config.switches {
            match again {
                true => self.make_switch_again(switch),
                false => self.add_switch(switch)?,
            }
        }
        for chip in &config.chips {
            settle(self.add_chip(chip))?;
        }
        // A guest's PF before its VFs: one that goes on without it would be told that it is in reset.
        let (pfs, others): (Vec<_>, Vec<_>) =
            config.nics.iter().partition(|nic| nic.rules.is_some());
        for nic in pfs.into_iter().chain(others) {
            if quarantine::holds(&nic.name) && nic.transport == Transport::VhostUser {
                // There is no answer for a driver of a ring that says "I am not here".
                tracing::error!(nic = %nic.name, "not served: the worker died twice while serving it");
                continue;
            }
            if let Some(gone) = self.has_gone(nic) {
                tracing::error!("{gone}");
                continue;
            }
            settle(self.add_nic(nic))?;
        }
        self.make_moved();
        // A later worker goes on with what ran, and not with what the main process says.
        if !again {
            self.forget_gone(config);
        }
        Ok(())
    }

    /// Makes a switch with those of its ports that can be opened.
    fn make_switch_again(&mut self, config: &SwitchConfig) {
        let alone = SwitchConfig {
            ports: Vec::new(),
            ..config.clone()
        };
        if let Err(error) = self.add_switch(&alone) {
            goes_on_without(&error);
            return;
        }
        for port in &config.ports {
            if let Err(error) = self.add_port(&config.name, port) {
                goes_on_without(&error);
            }
        }
    }
}
