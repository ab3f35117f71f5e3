//! `hypernic port`.

use clap::{Args, Subcommand};
use control::{PortAdd, PortList, PortRemove, Ports};
use program::LogFormat;

use super::place::{Hand, Place, Printed, Terms, changed};
use crate::complete;
use crate::error::Error;

/// `hypernic port`.
#[derive(Args, Debug)]
pub struct PortCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    #[command(subcommand)]
    what: PortVerb,
}

#[derive(Debug, Subcommand)]
enum PortVerb {
    /// Open a port on a switch. If it is there already, nothing happens.
    Add {
        /// The switch.
        #[arg(add = complete::switches())]
        switch: String,
        /// The port: user, tap:NAME, stream:PATH …
        port: String,
        #[command(flatten)]
        terms: Terms,
    },
    /// Close a port of a switch; others notice nothing.
    Remove {
        /// The switch.
        #[arg(add = complete::switches())]
        switch: String,
        /// The port as it was written.
        port: String,
        /// It is no error if there is none.
        #[arg(long)]
        missing_ok: bool,
        #[command(flatten)]
        terms: Terms,
    },
    /// List ports of switches, besides NICs.
    List {
        /// Those of one switch; without a name, all.
        #[arg(add = complete::switches())]
        switch: Option<String>,
    },
}

impl PortCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let (place, printed) = (self.place, self.printed);
        match self.what {
            PortVerb::Add {
                switch,
                port,
                terms,
            } => {
                let what = format!("{switch} {port}");
                let (check, persist, if_generation) = terms.words();
                let mut hand = Hand::default();
                let call = PortAdd {
                    switch,
                    port: hand.port(port)?,
                    check,
                    persist,
                    if_generation,
                };
                let reply = hand.ask(&place, &call)?;
                Ok(printed.show(format, &reply, changed(&what, terms.check)))
            }
            PortVerb::Remove {
                switch,
                port,
                missing_ok,
                terms,
            } => {
                let what = format!("{switch} {port}");
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&PortRemove {
                    switch,
                    port,
                    missing_ok: Some(missing_ok),
                    check,
                    persist,
                    if_generation,
                })?;
                Ok(printed.show(format, &reply, changed(&what, terms.check)))
            }
            PortVerb::List { switch } => {
                let reply = place.ask(&PortList { switch })?;
                Ok(printed.show(format, &reply, table))
            }
        }
    }
}

fn table(ports: &Ports) -> String {
    let line = |port: &control::PortInfo| format!("{:<16} {}\n", port.switch, port.port);
    ports.ports.iter().map(line).collect()
}
