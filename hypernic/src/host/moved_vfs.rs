//! VFs that an operator moves. A chip keeps the VF: at the source one for nobody stays behind, at the destination one makes place.

use control::{MoveSide, MoveStep};
use pf::Change;

use super::Host;
use crate::config::{NicConfig, PfOwner};
use crate::error::Error;
use crate::moves::Move;
use crate::spec::NicMac;

impl Host {
    /// A VF with another policy than a file or a text says, which may not know of its last move yet.
    pub(super) fn as_moved(&self, nic: &NicConfig) -> Option<NicConfig> {
        let at_hand = nic.vf.as_ref()?;
        let is_as = |other: &NicConfig| other.vf.as_ref() == Some(at_hand);
        if let Some(gone) = self.address_of_gone(nic) {
            let empty = nic.vacated();
            return (nic.mac == gone && !is_as(&empty)).then_some(empty);
        }
        let last = self.moves.of_nic(&nic.name)?;
        let moved = last.said().ok()?.vf?;
        let to = nic.with_policy(&moved.policy).ok()?;
        let was = moved.was.and_then(|was| nic.with_policy(&was).ok());
        match (last.side, last.step) {
            (MoveSide::Source, _) => None,
            (MoveSide::Destination, MoveStep::Prepared) => Some(to),
            (MoveSide::Destination, MoveStep::Committed) => {
                // Something else may have been laid down for it since.
                let is_old = was.as_ref().is_some_and(is_as);
                (last.state.is_some() && is_old).then_some(to)
            }
            (MoveSide::Destination, MoveStep::Aborted) => was,
        }
    }

    /// Whether the daemon controls the VFs of a chip.
    pub(crate) fn is_ruled(&self, chip: &str) -> bool {
        let mut all = self.chip_configs();
        all.any(|its| its.name == chip && its.pf == PfOwner::Daemon)
    }

    /// Makes a VF anew, with another policy.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn renew_vf(&mut self, config: &NicConfig) -> Result<(), Error> {
        self.remove_nic(&config.name);
        self.add_nic(config)
    }

    /// Makes a NIC that stands still, as what another was. A VF comes in place of the one that is there.
    ///
    /// # Errors
    /// It cannot be made, or refuses the state; all is as before then.
    pub(crate) fn put_held(&mut self, config: &NicConfig, state: &[u8]) -> Result<(), Error> {
        let there = self.nic_configuration(&config.name);
        let Some(there) = there.filter(|nic| nic.vf.is_some()) else {
            return self.add_held(config, state);
        };
        self.remove_nic(&config.name);
        self.add_held(config, state).inspect_err(|_| {
            if let Err(error) = self.add_nic(&there) {
                tracing::error!(nic = %there.name, "cannot go back to what was before: {error}");
            }
        })
    }

    /// What is in the place of a VF once it is here no more.
    pub(crate) fn vf_after(&self, one: &Move) -> Option<NicConfig> {
        let mut all = self.nic_configs();
        let nic = all.find(|nic| nic.name == one.nic && nic.vf.is_some())?;
        match one.side {
            MoveSide::Source => Some(nic.vacated()),
            MoveSide::Destination => {
                let was = one.said().ok()?.vf?.was?;
                nic.with_policy(&was).ok()
            }
        }
    }

    /// Whether a text makes another one of a VF that has gone from here.
    pub(super) fn is_another_vf(&self, nic: &NicConfig) -> bool {
        nic.vf.is_some()
            && (nic.vf == nic.vacated().vf || self.address_of_gone(nic) != Some(nic.mac))
    }

    /// The address that a VF had when it went.
    fn address_of_gone(&self, nic: &NicConfig) -> Option<NicMac> {
        let policy = self.moves.away(&nic.name)?.said().ok()?.vf?.policy;
        Some(nic.with_policy(&policy).ok()?.mac)
    }

    /// What a file says does not bring back a NIC that has moved to another host. Another address makes another VF.
    ///
    /// # Errors
    /// It would be the one that has gone.
    pub(super) fn may_come(&self, nic: &NicConfig) -> Result<(), Error> {
        let gone = self.address_of_gone(nic);
        let comes_back = gone == Some(nic.mac) && nic.vf != nic.vacated().vf;
        match self.has_gone(nic) {
            Some(why) => Err(why),
            None if comes_back => Err(has_left(&nic.name, nic.mac)),
            None => Ok(()),
        }
    }

    /// The same of what is to be laid down for a VF, which stays as it is while it stands still.
    ///
    /// # Errors
    /// It stands still for a move, or would be the one that has gone.
    pub(super) fn may_set_vf(&mut self, name: &str, changes: &[Change]) -> Result<(), Error> {
        self.may_change(name)?;
        let nic = self.nic_configs().find(|nic| nic.name == name);
        let gone = nic.and_then(|nic| Some((nic.mac, self.address_of_gone(nic)?)));
        let Some((is, gone)) = gone else {
            return Ok(());
        };
        let address = changes.iter().find_map(|change| match change {
            Change::Mac(mac) => Some(NicMac(mac.0)),
            _ => None,
        });
        if address.unwrap_or(is) == gone {
            return Err(has_left(name, gone));
        }
        self.moves.forget_away(name).map_err(Error::Host)
    }
}

fn has_left(vf: &str, address: NicMac) -> Error {
    Error::Host(format!(
        "{vf} has moved to another host, with the address {address}: give it another one in the file, or say hypernic vf set {vf} if \
         another guest is to have it"
    ))
}
