//! `hypernic switch`.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use control::{
    SwitchAdd, SwitchChange, SwitchConfig, SwitchList, SwitchRemove, SwitchSet, Switches,
};
use program::LogFormat;

use super::nic::GuardWords;
use super::place::{Hand, Place, Printed, Terms, changed};
use crate::complete;
use crate::error::Error;

/// `hypernic switch`.
#[derive(Args, Debug)]
pub struct SwitchCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    #[command(subcommand)]
    what: SwitchVerb,
}

#[derive(Debug, Subcommand)]
enum SwitchVerb {
    /// Add a switch to the running daemon. If it is there already, with the same words, nothing happens.
    Add {
        /// Its name.
        name: String,
        /// A port besides NICs: user, tap:NAME, stream:PATH … May be repeated.
        #[arg(long)]
        port: Vec<String>,
        /// Seconds that an address is remembered.
        #[arg(long, value_name = "SECONDS")]
        ageing_seconds: Option<u64>,
        /// drop or pass: what becomes of frames for groups that no bridge forwards.
        #[arg(long, value_name = "HOW")]
        link_local: Option<String>,
        #[command(flatten)]
        terms: Terms,
    },
    /// Change words of a switch. NICs on it notice nothing.
    Set {
        /// The switch.
        #[arg(add = complete::switches())]
        name: String,
        /// Seconds that an address is remembered.
        #[arg(long, value_name = "SECONDS")]
        ageing_seconds: Option<u64>,
        /// drop or pass: what becomes of frames for groups that no bridge forwards.
        #[arg(long, value_name = "HOW")]
        link_local: Option<String>,
        /// What each of its ports besides NICs may do.
        #[command(flatten)]
        uplink_guard: Box<GuardWords>,
        #[command(flatten)]
        terms: Terms,
    },
    /// Remove a switch that no NIC is on.
    Remove {
        /// The switch.
        #[arg(add = complete::switches())]
        name: String,
        /// It is no error if there is none.
        #[arg(long)]
        missing_ok: bool,
        #[command(flatten)]
        terms: Terms,
    },
    /// List switches.
    List {
        /// One of them; without a name, all.
        #[arg(add = complete::switches())]
        name: Option<String>,
    },
}

impl SwitchCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let (place, printed) = (self.place, self.printed);
        match self.what {
            SwitchVerb::Add {
                name,
                port,
                ageing_seconds,
                link_local,
                terms,
            } => {
                let mut hand = Hand::default();
                let ports = port.into_iter().map(|port| hand.port(port));
                let ports: Vec<_> = ports.collect::<Result<_, _>>()?;
                let switch = SwitchConfig {
                    name: name.clone(),
                    ports: (!ports.is_empty()).then_some(ports),
                    ageing_seconds,
                    uplink_guard: None,
                    link_local,
                };
                let (check, persist, if_generation) = terms.words();
                let call = SwitchAdd {
                    switch,
                    check,
                    persist,
                    if_generation,
                };
                let reply = hand.ask(&place, &call)?;
                Ok(printed.show(format, &reply, changed(&name, terms.check)))
            }
            SwitchVerb::Set {
                name,
                ageing_seconds,
                link_local,
                uplink_guard,
                terms,
            } => {
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&SwitchSet {
                    name: name.clone(),
                    change: SwitchChange {
                        ageing_seconds,
                        link_local,
                        uplink_guard: uplink_guard.change(),
                    },
                    check,
                    persist,
                    if_generation,
                })?;
                Ok(printed.show(format, &reply, changed(&name, terms.check)))
            }
            SwitchVerb::Remove {
                name,
                missing_ok,
                terms,
            } => {
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&SwitchRemove {
                    name: name.clone(),
                    missing_ok: Some(missing_ok),
                    check,
                    persist,
                    if_generation,
                })?;
                Ok(printed.show(format, &reply, changed(&name, terms.check)))
            }
            SwitchVerb::List { name } => {
                let reply = place.ask(&SwitchList { name })?;
                Ok(printed.show(format, &reply, table))
            }
        }
    }
}

fn table(switches: &Switches) -> String {
    let mut text = String::new();
    let list = |words: &[String]| match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    };
    for switch in &switches.switches {
        let ports = switch.config.ports.as_deref().unwrap_or(&[]);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: ports {}; NICs {}",
            switch.config.name,
            list(ports),
            list(&switch.nics)
        );
        if !switch.chips.is_empty() {
            let _ = writeln!(text, "  chips {}", list(&switch.chips));
        }
    }
    text
}
