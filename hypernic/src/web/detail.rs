//! All about one NIC.

use control::{
    Client, Method, MetricsGet, NicInspect, NicInterrupts, NicList, Section, SwitchAddresses,
    VfShow,
};
use serde_json::json;

use crate::client::with;
use crate::error::Error;

/// Most addresses that are told.
const ADDRESSES: usize = 64;

/// Asks for it. None of the questions has an effect.
pub(super) fn look(client: &mut Client, name: &str) -> Result<String, Error> {
    let wanted = NicList {
        name: Some(name.to_owned()),
    };
    let nics = with(client.call(&wanted))?.nics;
    let nic = nics.into_iter().next().unwrap_or_default();
    let switch = nic.config.port.strip_prefix("switch:");
    let switch = switch.or(nic.chip.as_deref()).map(str::to_owned);
    let mut things = vec![name.to_owned(), format!("{name}/{}", nic.config.port)];
    things.extend(switch.iter().map(|switch| format!("{switch}/{name}")));
    let sections = with(client.call(&MetricsGet {
        things: Some(things),
        zeros: Some(Vec::new()),
        ..MetricsGet::default()
    }))?;
    let counters = sections.sections.iter().flat_map(|section: &Section| {
        let values = section.values.iter();
        values.map(|(counter, value)| json!([section.kind, section.name, counter, value]))
    });
    let registers = maybe(
        client,
        &NicInspect {
            name: name.to_owned(),
            register: None,
        },
    )?;
    let registers = match registers {
        Ok(told) => {
            let rows = told.registers.iter().filter(|register| register.value != 0);
            let row = |r: &control::Register| {
                json!([r.name, r.element, r.offset, r.value, r.access, r.section])
            };
            json!({ "model": told.model, "rows": rows.map(row).collect::<Vec<_>>() })
        }
        Err(why) => json!({ "why": why }),
    };
    let named = Some(name.to_owned());
    let vectors = with(client.call(&NicInterrupts {
        name: named.clone(),
    }))?
    .vectors;
    let vf = match nic.vf {
        Some(_) => with(client.call(&VfShow { nic: named }))?
            .vfs
            .into_iter()
            .next(),
        None => None,
    };
    let addresses = match switch {
        Some(switch) => maybe(client, &SwitchAddresses { name: Some(switch) })?.ok(),
        None => None,
    };
    let addresses: Vec<_> = addresses
        .into_iter()
        .flat_map(|told| told.addresses)
        .collect();
    let here = addresses
        .into_iter()
        .filter(|address| address.port == name || address.port.ends_with(&format!("/{name}")));
    let told = json!({
        "nic": nic,
        "counters": counters.collect::<Vec<_>>(),
        "vectors": vectors,
        "registers": registers,
        "vf": vf,
        "addresses": here.take(ADDRESSES).collect::<Vec<_>>(),
    });
    Ok(control::without_nulls(told).to_string())
}

/// What this NIC may not have: a refusal is an answer.
fn maybe<M: Method>(client: &mut Client, call: &M) -> Result<Result<M::Reply, String>, Error> {
    match with(client.call(call)) {
        Ok(told) => Ok(Ok(told)),
        Err(Error::Refused(why) | Error::Host(why)) => Ok(Err(why)),
        Err(error) => Err(error),
    }
}
