//! `hypernic inspect` and `hypernic dump`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control::{Client, NicInspect, Register, Registers};
use program::LogFormat;

use super::layout;
use super::place::{Place, Printed, with};
use super::seconds;
use crate::error::Error;

/// `hypernic inspect`.
#[derive(Args, Debug)]
pub struct InspectCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// The NIC.
    nic: String,
    /// A register: its name in the manual, such as RCTL or RDT[3], or its offset, such as 0x100. Without one, all
    /// that are not 0.
    register: Option<String>,
    /// Registers that are 0, too.
    #[arg(long)]
    all: bool,
    /// Look again and again, and show what has changed; until it is interrupted.
    #[arg(long)]
    watch: bool,
    /// Look twice, --interval apart, and show what has changed.
    #[arg(long, conflicts_with = "watch")]
    diff: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds(0.01))]
    interval: f64,
}

impl InspectCommand {
    /// Asks the daemon, and gives what there is to be read to `print`, as often as there is something.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat, print: &mut dyn FnMut(String)) -> Result<(), Error> {
        let mut client = self.place.connect()?;
        let mut last = self.look(&mut client)?;
        if !self.diff {
            let all = self.all || self.register.is_some();
            print(self.printed.show(format, &last, |now| table(now, all)));
        }
        if !self.diff && !self.watch {
            return Ok(());
        }
        loop {
            std::thread::sleep(Duration::from_secs_f64(self.interval));
            let now = self.look(&mut client)?;
            let changed = Registers {
                model: now.model.clone(),
                registers: changes(&last, &now),
            };
            if self.diff || !changed.registers.is_empty() {
                print(self.printed.show(format, &changed, |now| told(&last, now)));
            }
            if self.diff {
                return Ok(());
            }
            last = now;
        }
    }

    fn look(&self, client: &mut Client) -> Result<Registers, Error> {
        with(client.call(&NicInspect {
            name: self.nic.clone(),
            register: self.register.clone(),
        }))
    }
}

fn named(register: &Register) -> String {
    match register.element {
        Some(element) => format!("{}[{element}]", register.name),
        None => register.name.clone(),
    }
}

fn table(registers: &Registers, all: bool) -> String {
    let mut text = String::new();
    let shown = registers.registers.iter().filter(|r| all || r.value != 0);
    for register in shown {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<14} {:05X}  {:08X}  {:<12} {}",
            named(register),
            register.offset,
            register.value,
            register.access,
            register.section
        );
    }
    text
}

/// Those of the second look that differ.
fn changes(before: &Registers, now: &Registers) -> Vec<Register> {
    let value = |at: u32| {
        before
            .registers
            .iter()
            .find(|r| r.offset == at)
            .map(|r| r.value)
    };
    let differs = |register: &&Register| value(register.offset) != Some(register.value);
    now.registers.iter().filter(differs).cloned().collect()
}

fn told(before: &Registers, changed: &Registers) -> String {
    let mut text = String::new();
    for register in &changed.registers {
        let old = before
            .registers
            .iter()
            .find(|r| r.offset == register.offset);
        let old = old.map_or(0, |register| register.value);
        let name = named(register);
        let _ = writeln!(
            text,
            "{name:<14} {:05X}  {old:08X} -> {:08X}",
            register.offset, register.value
        );
    }
    text
}

/// `hypernic dump`.
#[derive(Args, Debug)]
pub struct DumpCommand {
    #[command(flatten)]
    place: Place,
    /// The NIC.
    nic: String,
    /// The file. In a guest with such a NIC, ethtool -d DEV file FILE decodes it.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

impl DumpCommand {
    /// Asks the daemon, and writes the file. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses; a model that has no layout; a file that cannot be written.
    pub fn execute(self) -> Result<String, Error> {
        let registers = self.place.ask(&NicInspect {
            name: self.nic.clone(),
            register: None,
        })?;
        let bytes = layout::dump(&registers).ok_or_else(|| {
            Error::Usage(format!(
                "hypernic knows no layout of ethtool -d for the {}; hypernic inspect {} shows its registers",
                registers.model, self.nic
            ))
        })?;
        let written = std::fs::write(&self.output, &bytes);
        written.map_err(|error| {
            Error::Host(format!("cannot write {}: {error}", self.output.display()))
        })?;
        let file = self.output.display();
        Ok(format!(
            "{file}: {} bytes; ethtool -d DEV file {file} decodes it in a guest with such a NIC\n",
            bytes.len()
        ))
    }
}
