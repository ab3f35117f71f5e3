//! What NICs and switches have inside: tables, interrupts, memory.

use control::{
    Address, Addresses, Decision, Failure, NicTrace, Region, Regions, Traced, Vector, Vectors,
};

use super::changes::{no_nic, no_switch};
use crate::hex;
use crate::host::Host;

/// The NICs that are meant.
fn meant<'a>(host: &'a Host, name: Option<&'a str>) -> Result<Vec<&'a str>, Failure> {
    let all: Vec<&str> = host.nic_names().collect();
    match name {
        None => Ok(all),
        Some(name) if all.contains(&name) => Ok(vec![name]),
        Some(name) => Err(no_nic(host, name)),
    }
}

pub(super) fn vectors(host: &Host, name: Option<&str>) -> Result<Vectors, Failure> {
    let mut vectors = Vec::new();
    for nic in meant(host, name)? {
        let all = host.vectors(nic).into_iter();
        vectors.extend(all.map(|info| Vector {
            nic: nic.to_owned(),
            kind: info.kind.into(),
            vector: info.vector,
            armed: info.armed,
            masked: info.masked,
            pending: info.pending,
            signalled: info.signalled,
            held: info.held,
            merged: info.merged,
            delayed: info.delayed,
        }));
    }
    Ok(Vectors { vectors })
}

pub(super) fn regions(host: &Host, name: Option<&str>) -> Result<Regions, Failure> {
    let mut regions = Vec::new();
    for nic in meant(host, name)? {
        let all = host.regions(nic).into_iter();
        regions.extend(all.map(|info| Region {
            nic: nic.to_owned(),
            address: info.iova,
            bytes: info.len,
            read: info.prot.read,
            write: info.prot.write,
            mapped: info.mapped,
        }));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or(0)
            << 10
    };
    // The size of the folder is how many there are; kernels before 6.2 do not tell.
    let open = std::fs::metadata("/proc/self/fd").map_or(0, |folder| folder.len());
    Ok(Regions {
        regions,
        resident: kib("VmRSS:"),
        resident_shared: kib("RssShmem:"),
        descriptors: Some(open).filter(|open| *open > 0),
    })
}

pub(super) fn addresses(host: &Host, name: Option<&str>) -> Result<Addresses, Failure> {
    let mut addresses = Vec::new();
    let mut found = false;
    host.each_switch(&mut |switch, inside| {
        if name.is_some_and(|name| name != switch) {
            return;
        }
        found = true;
        let all = inside.macs().into_iter();
        addresses.extend(all.map(|info| Address {
            switch: switch.to_owned(),
            mac: info.mac.to_string(),
            vlan: info.vlan,
            port: info.port,
            seconds: info.age.as_secs(),
        }));
    });
    // Its cell tells.
    let is_far = |name: &str| host.far_chip(name).is_some();
    match name {
        Some(name) if !found && !is_far(name) => Err(no_switch(&host.as_is(), name)),
        _ => Ok(Addresses { addresses }),
    }
}

/// Most bytes of a frame that is followed.
const LONGEST: usize = 16 << 10;

pub(super) fn trace(host: &Host, call: &NicTrace) -> Result<Traced, Failure> {
    let frame = hex::bytes(&call.frame).filter(|frame| (1..=LONGEST).contains(&frame.len()));
    let frame = frame.ok_or_else(|| {
        Failure::invalid(format!(
            "a frame is an even number of hexadecimal digits, of at most {LONGEST} bytes"
        ))
    })?;
    let Some((steps, reached)) = host.trace(&call.name, &frame, call.received == Some(true)) else {
        return Err(no_nic(host, &call.name));
    };
    let steps = steps.into_iter().map(|step| Decision {
        at: step.at,
        what: step.what,
        counter: step.counter.map(str::to_owned),
    });
    Ok(Traced {
        steps: steps.collect(),
        reached,
    })
}
