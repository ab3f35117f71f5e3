//! The virtual functions of a host's chips.

use super::Host;
use crate::chip::RunningChip;
use crate::config::VfConfig;
use crate::error::Error;

impl Host {
    /// The chip and the number of a NIC that is a virtual function.
    pub(super) fn vf(&self, nic: &str) -> Option<(&RunningChip, u32)> {
        let vf = self.nics.get(nic)?.config.vf.as_ref()?;
        Some((&self.chips.get(&vf.chip)?.0, vf.index))
    }

    /// Changes the policy of a virtual function while it runs, as `ip link set … vf` does.
    ///
    /// # Errors
    /// No such function, or a policy that cannot be; nothing changes then.
    pub fn set_vf(&self, nic: &str, change: pf::Change) -> Result<(), Error> {
        self.set_vf_all(nic, &[change])
    }

    /// As [`Host::set_vf`], several things at once: all of them or none.
    ///
    /// # Errors
    /// As [`Host::set_vf`].
    pub fn set_vf_all(&self, nic: &str, changes: &[pf::Change]) -> Result<(), Error> {
        self.of_vf(nic, |chip, vf| chip.set(vf, changes))
    }

    /// Whether [`Host::set_vf_all`] would be done.
    ///
    /// # Errors
    /// As [`Host::set_vf`].
    pub fn check_vf(&self, nic: &str, changes: &[pf::Change]) -> Result<(), Error> {
        self.of_vf(nic, |chip, vf| chip.check(vf, changes))
    }

    /// The virtual functions: their NICs, and what they are.
    pub fn vfs(&self) -> impl Iterator<Item = (&str, &VfConfig)> {
        self.nics
            .iter()
            .filter_map(|(name, nic)| Some((name.as_str(), nic.config.vf.as_ref()?)))
    }

    /// The time of the host's clock, of which [`pf::Record`]s have theirs.
    pub fn now(&self) -> model::Nanos {
        self.clock.now()
    }

    /// Lets a virtual function that was shut down try again.
    ///
    /// # Errors
    /// No such function.
    pub fn revive_vf(&self, nic: &str) -> Result<(), Error> {
        self.of_vf(nic, |chip, vf| chip.revive(vf))
    }

    /// Tells a virtual function that it will be taken away: its link goes, and what it sends goes
    /// nowhere.
    ///
    /// # Errors
    /// No such function.
    pub fn announce_removal(&self, nic: &str) -> Result<(), Error> {
        self.of_vf(nic, |chip, vf| chip.leaving(vf))
    }

    fn of_vf(
        &self,
        nic: &str,
        does: impl FnOnce(&RunningChip, u32) -> Result<(), String>,
    ) -> Result<(), Error> {
        let failed = |message| Error::Port {
            owner: nic.to_owned(),
            port: "its chip".into(),
            message,
        };
        let found = self.vf(nic);
        let (chip, vf) = found.ok_or_else(|| failed("it is not a virtual function".into()))?;
        does(chip, vf).map_err(failed)
    }

    /// What is laid down for a virtual function, what follows from that, and what it was refused.
    pub fn vf_status(&self, nic: &str) -> Option<pf::Status> {
        let (chip, vf) = self.vf(nic)?;
        chip.status(vf)
    }

    /// Resets a chip: its virtual functions are told, and start anew.
    ///
    /// # Errors
    /// There is none of that name, or a guest has its physical function.
    pub fn reset_chip(&self, name: &str) -> Result<(), Error> {
        let chip = self.chips.get(name);
        let done = chip
            .map(|(chip, _)| chip)
            .ok_or_else(|| format!("there is no chip {name} with virtual functions"))
            .and_then(RunningChip::reset);
        done.map_err(|message| Error::Port {
            owner: name.to_owned(),
            port: "chip".into(),
            message,
        })
    }
}
