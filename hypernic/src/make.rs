//! The model of a NIC, as its configuration says.

use std::sync::Arc;

use model::Nic;

use crate::config::NicConfig;
use crate::nvm::NvmFile;
use crate::spec::{ModelName, Moderation};

/// A function's place at its chip.
#[derive(Clone)]
pub(crate) enum Place {
    /// A VF's.
    VfChannel(Arc<igb::VfChannel>),
    /// That of a PF that rules.
    Hub(Arc<igb::Hub>),
}

/// The model, and the file of its EEPROM if it has one.
pub(crate) fn make(
    config: &NicConfig,
    place: Option<&Place>,
) -> Result<(Nic, Option<NvmFile>), String> {
    match (config.model, place) {
        (ModelName::E1000(variant), _) => {
            let chip = e1000::Config {
                pause: config.pause,
                receive_throttling: config.receive_throttling,
                csb: config.csb,
                csb_poll: config.busy_poll,
                moderation: moderation(config.moderation),
                ..e1000::Config::of(variant, config.mac.0)
            };
            with_eeprom(config, |nvm| e1000::new(e1000::Config { nvm, ..chip }))
        }
        (ModelName::I82576, Some(Place::VfChannel(channel))) => {
            let chip = igb::Config {
                moderation: moderation(config.moderation),
                ..igb::Config::new(config.mac.0)
            };
            Ok((igb::vf(&chip, Arc::clone(channel)), None))
        }
        (ModelName::I82576, place) => {
            // Who has VFs obeys no pause frame: one of them may have sent it.
            let rules = matches!(place, Some(Place::Hub(_)));
            for (given, what) in [
                (config.csb, "82576 has no csb"),
                (config.pause && rules, "82576 with VFs has no pause"),
                (config.receive_throttling, "82576 has no receive throttling"),
            ] {
                if given {
                    return Err(format!(
                        "the {what}: leave it out, or choose model = \"e1000\""
                    ));
                }
            }
            let chip = igb::Config {
                pause: config.pause,
                moderation: moderation(config.moderation),
                ..igb::Config::new(config.mac.0)
            };
            with_eeprom(config, |nvm| {
                let chip = igb::Config { nvm, ..chip };
                match place {
                    Some(Place::Hub(hub)) => igb::pf_with_vfs(&chip, Arc::clone(hub)),
                    _ => igb::pf(&chip),
                }
            })
        }
    }
}

/// The same in the words of the models.
fn moderation(said: Moderation) -> e1000::Moderation {
    match said {
        Moderation::Guest => e1000::Moderation::Guest,
        Moderation::Adaptive => e1000::Moderation::Adaptive,
        Moderation::Fixed(rate) => e1000::Moderation::Fixed(rate),
    }
}

/// The model that `make` gives for what the file of its EEPROM holds.
fn with_eeprom<const LEN: usize>(
    config: &NicConfig,
    make: impl FnOnce(Option<[u8; LEN]>) -> Nic,
) -> Result<(Nic, Option<NvmFile>), String> {
    let Some(path) = &config.eeprom else {
        return Ok((make(None), None));
    };
    let mut image = None;
    if let Some(found) = NvmFile::read(path)? {
        let found = <[u8; LEN]>::try_from(found).map_err(|found| {
            format!(
                "the EEPROM file {} has {} bytes, this chip's EEPROM has {LEN}; remove the file for a \
                 new one, or choose another",
                path.display(),
                found.len(),
            )
        })?;
        if found[..6] != config.mac.0 {
            let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|i| found[i]);
            tracing::warn!(
                nic = %config.name,
                "the EEPROM file has the address \
                 {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}; it is used instead of {}",
                config.mac
            );
        }
        image = Some(found);
    }
    let mut nic = make(image);
    let new = nic.control.take_nvm();
    let file = NvmFile::start(path, &config.name, new.as_deref())?;
    Ok((nic, Some(file)))
}
