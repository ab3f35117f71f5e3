//! `hypernic fdb`, `hypernic irq` and `hypernic mem`: what switches and NICs have inside.

use std::fmt::Write as _;

use clap::Args;
use control::{
    Address, Addresses, NicInterrupts, NicMemory, Region, Regions, SwitchAddresses, Vector, Vectors,
};
use program::LogFormat;

use super::place::{Place, Printed};
use crate::error::Error;

/// `hypernic fdb`.
#[derive(Args, Debug)]
pub struct FdbCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// The switch, or the chip with virtual functions; all without.
    switch: Option<String>,
}

/// `hypernic irq`.
#[derive(Args, Debug)]
pub struct IrqCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// The NIC; all without.
    nic: Option<String>,
}

/// `hypernic mem`.
#[derive(Args, Debug)]
pub struct MemCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// The NIC; all without.
    nic: Option<String>,
}

impl FdbCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let reply = self.place.ask(&SwitchAddresses { name: self.switch })?;
        Ok(self.printed.show(format, &reply, table))
    }
}

fn table(told: &Addresses) -> String {
    let mut text = format!(
        "{:<12} {:<17} {:>4} {:>5}  port\n",
        "switch", "address", "VLAN", "age"
    );
    for one in &told.addresses {
        let Address {
            switch,
            mac,
            vlan,
            port,
            seconds,
        } = one;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{switch:<12} {mac:<17} {vlan:>4} {seconds:>4}s  {port}"
        );
    }
    text
}

impl IrqCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let reply = self.place.ask(&NicInterrupts { name: self.nic })?;
        Ok(self.printed.show(format, &reply, vectors))
    }
}

/// Those that were ever used, or could be.
fn vectors(told: &Vectors) -> String {
    let mut text = format!(
        "{:<12} {:<8} {:<22} {:>12} {:>12} {:>12} {:>12}\n",
        "NIC", "vector", "state", "signalled", "held", "merged", "delayed"
    );
    let used = |one: &&Vector| one.armed || one.signalled + one.held + one.merged + one.delayed > 0;
    for one in told.vectors.iter().filter(used) {
        let vector = match one.kind.as_str() {
            "intx" => "intx".to_owned(),
            kind => format!("{kind} {}", one.vector),
        };
        let words = [
            (one.armed, "armed"),
            (one.masked, "masked"),
            (one.pending, "pending"),
        ];
        let state: Vec<_> = words
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, word)| *word)
            .collect();
        let _ = writeln!(
            text,
            "{:<12} {vector:<8} {:<22} {:>12} {:>12} {:>12} {:>12}",
            one.nic,
            state.join(","),
            one.signalled,
            one.held,
            one.merged,
            one.delayed
        );
    }
    text
}

impl MemCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let reply = self.place.ask(&NicMemory { name: self.nic })?;
        Ok(self.printed.show(format, &reply, regions))
    }
}

fn regions(told: &Regions) -> String {
    let mut text = format!("{:<12} {:<18} {:>12}  access\n", "NIC", "address", "KiB");
    for one in &told.regions {
        let Region {
            nic,
            address,
            bytes,
            ..
        } = one;
        let access = match (one.read, one.write) {
            (true, true) => "read, write",
            (true, false) => "read",
            (false, true) => "write",
            (false, false) => "none",
        };
        let how = if one.mapped { "" } else { ", through the VMM" };
        let kib = bytes.div_ceil(1024);
        let _ = writeln!(text, "{nic:<12} {address:#018x} {kib:>12}  {access}{how}");
    }
    let _ = writeln!(
        text,
        "the daemon: {} KiB resident, of which {} KiB are shared with guests",
        told.resident >> 10,
        told.resident_shared >> 10,
    );
    if let Some(open) = told.descriptors {
        let _ = writeln!(text, "{open} descriptors are open");
    }
    text
}
