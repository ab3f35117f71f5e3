//! Which NICs can be served by which protocol.

use registry::{Model, Models};

use crate::spec::{Doorbell, Transport};

/// What was asked for besides.
pub(crate) struct Options {
    pub doorbell: Doorbell,
    pub eeprom: bool,
    pub csb: bool,
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
    let page = options.doorbell == Doorbell::Page;
    if page && options.csb {
        let message = "csb and doorbell \"page\" exclude each other, for a CSB has the tails in the guest's memory already: leave one out";
        return Err(message.into());
    }
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
    if page {
        return refused("doorbell", "the driver kicks by eventfd");
    }
    if options.eeprom {
        return refused("eeprom", "the VMM has the NIC's address");
    }
    Ok(())
}

/// What an operator is to know of a NIC whose doorbells may be memory.
pub(crate) fn hint(name: &str, model: &Model, doorbell: Doorbell) -> Option<String> {
    let hint = model.page_hint.filter(|_| doorbell == Doorbell::Page)?;
    Some(format!("{name}: doorbell = \"page\": {hint}"))
}

#[cfg(test)]
mod tests {
    use registry::MODELS;

    use super::*;

    const PLAIN: Options = Options {
        doorbell: Doorbell::Trap,
        eeprom: false,
        csb: false,
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

    #[test]
    fn a_csb_and_a_doorbell_page_exclude_each_other() {
        let model = MODELS.find("e1000").expect("there");
        let asked = |doorbell, csb| {
            let options = Options {
                doorbell,
                csb,
                ..PLAIN
            };
            fits(Transport::VfioUser, model, MODELS, &options)
        };
        let refused = asked(Doorbell::Page, true).expect_err("both");
        assert!(refused.contains("leave one out"), "{refused}");
        for (doorbell, csb) in [(Doorbell::Page, false), (Doorbell::Trap, true)] {
            asked(doorbell, csb).expect("one of them");
        }
    }

    #[test]
    fn an_operator_is_told_what_a_page_costs_where_drivers_have_intx_only() {
        let told = |model: &str, doorbell| {
            let model = MODELS.find(model).expect("there");
            hint("n0", model, doorbell)
        };
        let of_e1000 = told("e1000", Doorbell::Page).expect("a hint");
        assert!(
            of_e1000.starts_with("n0: ") && of_e1000.contains("INTx"),
            "{of_e1000}"
        );
        assert_eq!(told("e1000", Doorbell::Trap), None);
        assert_eq!(told("82576", Doorbell::Page), None);
    }
}
