//! The model of a NIC, as its configuration says.

use model::Nic;
use registry::{Function, Settings};

use crate::config::NicConfig;
use crate::nvm::NvmFile;

fn settings(config: &NicConfig) -> Settings {
    Settings {
        moderation: config.moderation.into(),
        pause: config.pause,
        receive_throttling: config.receive_throttling,
        csb: config.csb,
        csb_poll: config.busy_poll,
        queue_pairs: config.queue_pairs,
        split_rings: config.virtio.split_rings,
        mtu: config.virtio.mtu,
        standby: config.virtio.standby,
        hash_report: config.virtio.hash_report,
        pf_places_vf_rings: config.pf_places_vf_rings,
        revision: config.revision,
        ..Settings::new(config.mac.0)
    }
}

/// The device of a model that is served by a virtio transport.
pub(crate) fn make_virtio(config: &NicConfig) -> Result<virtio_net::Device, String> {
    let settings = settings(config);
    config.model.check(&settings, &Function::Alone)?;
    let name = config.model.name;
    let make = config.model.virtio;
    let make = make.ok_or_else(|| format!("the {name} is no virtio device"))?;
    Ok(make(&settings))
}

/// The model, of the `revision` that a guest has started with or the configuration's, and the file of its EEPROM if it has one.
/// `again`: its guest may go on, and so it waits for no disk.
pub(crate) fn make(
    config: &NicConfig,
    revision: Option<u16>,
    function: &Function,
    again: bool,
) -> Result<(Nic, Option<NvmFile>), String> {
    let mut settings = Settings {
        revision: revision.or(config.revision),
        ..settings(config)
    };
    let file = match function {
        // It has none.
        Function::Vf(_) => None,
        _ => config.eeprom.as_ref(),
    };
    config.model.check(&settings, function)?;
    let Some(path) = file else {
        return Ok((config.model.nic(&settings, function)?, None));
    };
    if let Some(found) = NvmFile::read(path)? {
        if found.len() != config.model.nvm {
            return Err(format!(
                "the EEPROM file {} has {} bytes, this chip's EEPROM has {}; remove the file for a \
                 new one, or choose another",
                path.display(),
                found.len(),
                config.model.nvm,
            ));
        }
        if found[..6] != config.mac.0 {
            let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|i| found[i]);
            tracing::warn!(
                nic = %config.name,
                "the EEPROM file has the address \
                 {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}; it is used instead of {}",
                config.mac
            );
        }
        settings.nvm = Some(found);
    }
    let mut nic = config.model.nic(&settings, function)?;
    let new = nic.control.take_nvm();
    let file = NvmFile::start(path, &config.name, new, again)?;
    Ok((nic, Some(file)))
}
