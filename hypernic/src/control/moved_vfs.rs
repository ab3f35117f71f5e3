//! Moves of VFs: what a chip and a file say of them.

use control::{Failure, MigrateLoad, VfConfig};

use super::vfs;
use crate::config::NicConfig;
use crate::config::edit::Edit;
use crate::host::Host;
use crate::moves::{Move, VfWords};
use crate::quarantine;

/// Why a function of a chip cannot move.
pub(super) fn stays(host: &Host, nic: &NicConfig) -> Option<String> {
    let chip = nic.of_chip()?;
    (nic.vf.is_none() || !host.is_ruled(chip)).then(|| {
        format!(
            "is a function of the chip {chip}, whose physical function a guest drives: what that driver has set up for it is there and not \
             in the NIC. Shut its guest down, or give the guest a virtio-net over vhost-user"
        )
    })
}

/// What is laid down for a VF, to go along with it.
pub(super) fn leaving(nic: &NicConfig) -> Option<VfWords> {
    Some(VfWords {
        policy: Box::new(nic.vf_words()?),
        was: None,
    })
}

/// The VF of this host that another comes in place of, as it is to be then.
pub(super) fn coming(
    host: &Host,
    call: &MigrateLoad,
    policy: &VfConfig,
) -> Result<NicConfig, Failure> {
    let name = &call.nic.name;
    vfs::known(host, name)?;
    let is = host.configuration();
    let wanted = is.vf_beside(name, policy).map_err(Failure::invalid)?;
    let model = wanted.model.name;
    if let Some(its) = call.nic.model.as_ref().filter(|its| *its != model) {
        return Err(Failure::invalid(format!(
            "{name} is a VF of an {model}, and a VF of an {its} comes: name another one (--name)"
        )));
    }
    Ok(wanted)
}

/// What the VF is now that makes place, if it can.
pub(super) fn makes_place(host: &Host, name: &str) -> Result<Option<VfConfig>, Failure> {
    let there = host.nic_configuration(name);
    let was = there.and_then(|nic| nic.vf_words());
    let in_use = |by: &str, message: String| Failure::InUse {
        kind: "NIC".into(),
        name: name.into(),
        by: vec![by.into()],
        message,
    };
    if host.nic_state(name).is_some_and(|nic| nic.connected) {
        let message = format!(
            "a VMM has {name}, in whose place the VF would come: name another one (--name)"
        );
        return Err(in_use("VMM", message));
    }
    if quarantine::holds(name) {
        let message = format!(
            "{name} is in quarantine, and nothing can come in its place: name another one (--name)"
        );
        return Err(in_use("quarantine", message));
    }
    Ok(was)
}

/// A VF's place in a file, and what a move that is committed has it say.
pub(super) struct Place {
    chip: String,
    index: u32,
    policy: toml::Table,
}

impl Place {
    /// None of a NIC that is no VF.
    pub fn of(host: &Host, one: &Move) -> Option<Self> {
        let nic = host.nic_configuration(&one.nic)?;
        let vf = nic.vf.as_ref()?;
        let to = match one.side {
            control::MoveSide::Source => nic.vacated(),
            control::MoveSide::Destination => nic.clone(),
        };
        Some(Self {
            chip: vf.chip.clone(),
            index: vf.index,
            policy: to.policy_table()?,
        })
    }

    pub fn edit(&self) -> Edit<'_> {
        Edit::PutVf(&self.chip, self.index, &self.policy)
    }
}
