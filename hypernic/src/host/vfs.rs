//! The virtual functions of a host's chips.

use pf::{Policy, SoftwarePf};

use super::Host;
use crate::chip::{RunningChip, not_ours};
use crate::config::{PfOwner, VfConfig};
use crate::error::Error;
use crate::spec::NicMac;

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

    /// The same of a virtual function that another process may have, which is told when the host settles.
    ///
    /// # Errors
    /// As [`Host::set_vf`].
    pub(crate) fn set_any_vf(&mut self, nic: &str, changes: &[pf::Change]) -> Result<(), Error> {
        let Some(policy) = self.check_far_vf(nic, changes) else {
            return self.set_vf_all(nic, changes);
        };
        let policy = policy?;
        if let Some(far) = self.far.nics.get_mut(nic)
            && let Some(vf) = &mut far.vf
        {
            far.mac = NicMac(policy.mac.0);
            vf.policy = policy;
        }
        Ok(())
    }

    /// Whether [`Host::set_any_vf`] would be done.
    ///
    /// # Errors
    /// As [`Host::set_vf`].
    pub fn check_vf(&self, nic: &str, changes: &[pf::Change]) -> Result<(), Error> {
        if let Some(checked) = self.check_far_vf(nic, changes) {
            return checked.map(drop);
        }
        self.of_vf(nic, |chip, vf| chip.check(vf, changes))
    }

    /// The policy that changes would lead to of a virtual function that another process has; `None` of all others.
    fn check_far_vf(&self, nic: &str, changes: &[pf::Change]) -> Option<Result<Policy, Error>> {
        let vf = self.far.nics.get(nic)?.vf.as_ref()?;
        let chip = self.far.chips.get(&vf.chip)?;
        if chip.pf == PfOwner::Guest {
            return Some(Err(failed(nic, not_ours())));
        }
        let mut pf = SoftwarePf::new(chip.rate);
        let beside = self.far.nics.values().filter_map(|nic| nic.vf.as_ref());
        for one in beside.filter(|one| one.chip == vf.chip) {
            // They are together, so they can be.
            let _ = pf.add(one.index, one.policy.clone(), 0);
        }
        let policy = pf.check_all(vf.index, changes);
        Some(policy.map_err(|error| failed(nic, error.to_string())))
    }

    /// The virtual functions, those too that other processes have: their NICs, and what they are.
    pub fn vfs(&self) -> impl Iterator<Item = (&str, &VfConfig)> {
        let all = self.nic_configs();
        all.filter_map(|nic| Some((nic.name.as_str(), nic.vf.as_ref()?)))
    }

    /// What is laid down for a virtual function.
    pub(crate) fn vf_policy(&self, nic: &str) -> Option<Policy> {
        let far = || Some(self.far.nics.get(nic)?.vf.as_ref()?.policy.clone());
        let own = self.vf_status(nic).map(|status| status.policy);
        own.or_else(far)
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
        let found = self.vf(nic);
        let no_vf = || failed(nic, "it is not a virtual function".into());
        let (chip, vf) = found.ok_or_else(no_vf)?;
        does(chip, vf).map_err(|message| failed(nic, message))
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

fn failed(nic: &str, message: String) -> Error {
    Error::Port {
        owner: nic.to_owned(),
        port: "its chip".into(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostConfig;

    #[test]
    fn a_vf_elsewhere_is_checked_with_those_of_its_chip_and_no_others() {
        let mut text = String::from("control = \"/run/c\"\n[[switch]]\nname = \"lan\"\n");
        for (chip, last) in [("p", 1), ("q", 3)] {
            text += &format!(
                "[[nic]]\nname = \"{chip}\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = \"/run/{chip}{{}}\"\n\
                 port = \"switch:lan\"\ncell = \"x\"\n"
            );
            for index in 0..2 {
                let mac = last + index;
                text += &format!("[[nic.vf]]\nindex = {index}\nmac = \"02:00:00:00:07:0{mac}\"\n");
            }
        }
        let config = HostConfig::parse("host.toml".as_ref(), &text).expect("good");
        let mut host = Host::start(&HostConfig::default()).expect("a host");
        for chip in &config.chips {
            host.far.chips.insert(chip.name.clone(), chip.clone());
        }
        for nic in &config.nics {
            host.far.nics.insert(nic.name.clone(), nic.clone());
        }
        let address = |nic: &str| {
            let vf = host.far.nics[nic].vf.as_ref().expect("a function");
            pf::Change::Mac(vf.policy.mac)
        };
        let refused = host.check_vf("pvf0", &[address("pvf1")]);
        let said = refused.expect_err("taken").to_string();
        assert!(said.contains("VF 1 already has the address"), "{said}");
        for nic in ["pvf0", "qvf1"] {
            host.check_vf("pvf0", &[address(nic)]).expect(nic);
        }
    }
}
