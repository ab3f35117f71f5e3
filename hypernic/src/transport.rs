//! Which NICs can be served by which protocol.

use registry::{Model, Models};

use crate::spec::{Doorbell, Transport};

/// What was asked for besides.
pub(crate) struct Options {
    pub doorbell: Doorbell,
    pub eeprom: bool,
}

/// Whether a model can be served so, with these options.
///
/// # Errors
/// One line for the operator.
pub(crate) fn fits(
    transport: Transport,
    model: &Model,
    models: Models,
    options: &Options,
) -> Result<(), String> {
    if transport == Transport::VfioUser {
        return Ok(());
    }
    if model.virtio.is_none() {
        let able = models.with_virtio().map_or_else(String::new, |able| {
            format!(", or choose model = \"{}\"", able.name)
        });
        return Err(format!(
            "transport vhost-user serves virtio devices, and the {} is none: leave transport out{able}",
            model.name
        ));
    }
    let refused = |option: &str, why: &str| {
        Err(format!(
            "over vhost-user {why}: leave {option} out, or write transport = \"vfio-user\""
        ))
    };
    if options.doorbell == Doorbell::Page {
        return refused("doorbell", "the driver kicks by eventfd");
    }
    if options.eeprom {
        return refused("eeprom", "the VMM has the NIC's address");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use registry::MODELS;

    use super::*;

    const PLAIN: Options = Options {
        doorbell: Doorbell::Trap,
        eeprom: false,
    };

    fn ask(model: &str, options: &Options) -> Result<(), String> {
        let model = MODELS.parse(model).expect("a model");
        fits(Transport::VfioUser, model, MODELS, options).expect("any NIC");
        fits(Transport::VhostUser, model, MODELS, options)
    }

    #[test]
    fn only_virtio_devices_are_served_over_vhost_user_and_without_what_the_vmm_has() {
        assert_eq!(ask("virtio-net", &PLAIN), Ok(()));
        let error = ask("e1000", &PLAIN).expect_err("no virtio device");
        assert!(error.contains("the e1000 is none"), "{error}");
        assert!(error.contains("model = \"virtio-net\""), "{error}");
        let page = Options {
            doorbell: Doorbell::Page,
            ..PLAIN
        };
        let eeprom = Options {
            eeprom: true,
            ..PLAIN
        };
        for (options, word) in [(page, "doorbell"), (eeprom, "eeprom")] {
            let error = ask("virtio-net", &options).expect_err(word);
            let cure = format!("leave {word} out, or write transport = \"vfio-user\"");
            assert!(error.contains(&cure) && !error.contains('\n'), "{error}");
        }
    }
}
