//! `hypernic chip`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use control::{
    ChipAdd, ChipChange, ChipConfig, ChipList, ChipRemove, ChipSet, Chips, State, VfConfig,
};
use program::LogFormat;

use super::nic::whole;
use super::place::{Hand, Place, Printed, Terms, changed};
use crate::complete;
use crate::error::Error;
use crate::guard::Storm;
use crate::vf;

/// `hypernic chip`.
#[derive(Args, Debug)]
pub struct ChipCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    #[command(subcommand)]
    what: ChipVerb,
}

#[derive(Debug, Subcommand)]
enum ChipVerb {
    /// Add a chip with its virtual functions to the running daemon: VF 3 of p0 is the NIC p0vf3. If it is there already, with
    /// the same words, nothing happens.
    Add(Box<Add>),
    /// Change a chip. Functions that stay notice nothing, unless --port has the chip made anew.
    Set {
        /// The chip.
        #[arg(add = complete::chips())]
        name: String,
        /// Virtual functions that it has: more come, or the last ones go.
        #[arg(long, value_name = "N")]
        vfs: Option<u32>,
        /// The Unix sockets of those that come, with {} for their numbers.
        #[arg(long, value_name = "PATH")]
        vf_socket_path: Option<PathBuf>,
        /// What the VFs share of the wire, in Mbit/s; 0 for any amount.
        #[arg(long, value_name = "MBIT")]
        port_rate: Option<u32>,
        /// Where its wire leads.
        #[arg(long)]
        port: Option<String>,
        /// VMMs that have functions which go may be disconnected.
        #[arg(long)]
        disconnect: bool,
        #[command(flatten)]
        terms: Terms,
    },
    /// Remove a chip with all its functions. Their VMMs are disconnected.
    Remove {
        /// The chip.
        #[arg(add = complete::chips())]
        name: String,
        /// It is no error if there is none.
        #[arg(long)]
        missing_ok: bool,
        #[command(flatten)]
        terms: Terms,
    },
    /// List chips and their functions.
    List {
        /// One of them; without a name, all.
        #[arg(add = complete::chips())]
        name: Option<String>,
    },
}

/// The words are those of the configuration file.
#[derive(Args, Debug)]
struct Add {
    /// Its name.
    name: String,
    /// Where its wire leads: switch:NAME, user, tap:NAME, stream:PATH …
    #[arg(long)]
    port: String,
    /// Virtual functions that it has.
    #[arg(long, value_name = "N")]
    vfs: u32,
    /// The Unix sockets of the VFs, with {} for their numbers.
    #[arg(long, value_name = "PATH")]
    vf_socket_path: Option<PathBuf>,
    /// The chip.
    #[arg(long)]
    model: Option<String>,
    /// What the VFs share of the wire, in Mbit/s.
    #[arg(long, value_name = "MBIT")]
    port_rate: Option<u32>,
    /// The policy of one VF, in the words of hypernic vf set: "1 vlan 7 trust on". May be repeated.
    #[arg(long, value_name = "N WORD VALUE")]
    vf: Vec<String>,
    /// Whose the VFs are; each its own by default.
    #[arg(long)]
    tenant: Option<String>,
    /// The process that has it and all its functions: one of its own by that name, or main.
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,
    /// guest, adaptive or fixed:N.
    #[arg(long)]
    moderation: Option<String>,
    /// Microseconds that a worker may stay awake for one of them.
    #[arg(long, value_name = "US")]
    busy_poll_us: Option<u64>,
    /// trap or page.
    #[arg(long)]
    doorbell: Option<String>,
    /// Who controls the VFs: daemon or guest.
    #[arg(long, value_name = "WHO")]
    pf: Option<String>,
    /// The Unix socket of the physical function of a guest.
    #[arg(long, value_name = "PATH")]
    socket_path: Option<PathBuf>,
    /// The MAC address of the physical function of a guest.
    #[arg(long)]
    mac: Option<String>,
    #[command(flatten)]
    terms: Terms,
}

impl Add {
    fn call(self, hand: &mut Hand) -> Result<ChipAdd, Error> {
        let vf = self
            .vf
            .iter()
            .map(|words| of_vf(words).map_err(Error::Usage));
        let vf: Vec<_> = vf.collect::<Result<_, _>>()?;
        let chip = ChipConfig {
            name: self.name,
            port: hand.port(self.port)?,
            vfs: self.vfs,
            vf_socket_path: self.vf_socket_path.as_deref().map(whole),
            model: self.model,
            port_rate: self.port_rate,
            vf: (!vf.is_empty()).then_some(vf),
            tenant: self.tenant,
            cell: self.cell,
            moderation: self.moderation,
            busy_poll_us: self.busy_poll_us,
            doorbell: self.doorbell,
            pf: self.pf,
            socket_path: self.socket_path.as_deref().map(whole),
            mac: self.mac,
            ..ChipConfig::default()
        };
        let (check, persist, if_generation) = self.terms.words();
        Ok(ChipAdd {
            chip,
            check,
            persist,
            if_generation,
        })
    }
}

/// `1 vlan 7 trust on`.
fn of_vf(words: &str) -> Result<VfConfig, String> {
    let mut words = words.split_whitespace();
    let index = words.next().and_then(|word| word.parse().ok());
    let index = index.ok_or("--vf begins with the VF's number, such as \"1 vlan 7\"")?;
    let words: Vec<String> = words.map(str::to_owned).collect();
    let change = vf::change(&words)?;
    let storm = change.storm.map(|storm| {
        Storm(eswitch::Storm {
            broadcast: storm.broadcast,
            multicast: storm.multicast,
            unknown: None,
        })
    });
    Ok(VfConfig {
        index,
        mac: change.mac,
        vlan: change.vlan,
        qos: change.qos,
        trust: change.trust,
        spoofchk: change.spoofchk,
        state: change.state.map(State::word).map(str::to_owned),
        max_tx_rate: change.max_tx_rate,
        min_tx_rate: change.min_tx_rate,
        storm: storm
            .filter(|storm| *storm != Storm::default())
            .map(|storm| storm.to_string()),
        interrupts: change.interrupts.filter(|rate| *rate != 0),
        ..VfConfig::default()
    })
}

impl ChipCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let (place, printed) = (self.place, self.printed);
        match self.what {
            ChipVerb::Add(add) => {
                let (name, check) = (add.name.clone(), add.terms.check);
                let mut hand = Hand::default();
                let call = add.call(&mut hand)?;
                let reply = hand.ask(&place, &call)?;
                Ok(printed.show(format, &reply, changed(&name, check)))
            }
            ChipVerb::Set {
                name,
                vfs,
                vf_socket_path,
                port_rate,
                port,
                disconnect,
                terms,
            } => {
                let mut hand = Hand::default();
                let port = port.map(|port| hand.port(port)).transpose()?;
                let (check, persist, if_generation) = terms.words();
                let call = ChipSet {
                    name: name.clone(),
                    change: ChipChange {
                        vfs,
                        vf_socket_path: vf_socket_path.as_deref().map(whole),
                        port_rate,
                        port,
                    },
                    disconnect: disconnect.then_some(true),
                    check,
                    persist,
                    if_generation,
                };
                let reply = hand.ask(&place, &call)?;
                Ok(printed.show(format, &reply, changed(&name, terms.check)))
            }
            ChipVerb::Remove {
                name,
                missing_ok,
                terms,
            } => {
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&ChipRemove {
                    name: name.clone(),
                    missing_ok: Some(missing_ok),
                    check,
                    persist,
                    if_generation,
                })?;
                Ok(printed.show(format, &reply, changed(&name, terms.check)))
            }
            ChipVerb::List { name } => {
                let reply = place.ask(&ChipList { name })?;
                Ok(printed.show(format, &reply, table))
            }
        }
    }
}

fn table(chips: &Chips) -> String {
    let mut text = String::new();
    for chip in &chips.chips {
        let config = &chip.config;
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{}: {}, {} VFs, port {}",
            config.name,
            config.model.as_deref().unwrap_or_default(),
            config.vfs,
            config.port
        );
        if let Some(rate) = config.port_rate {
            let _ = write!(text, ", {rate} Mbit/s");
        }
        if let Some(cell) = &config.cell {
            let _ = write!(text, ", in the cell {cell}");
        }
        if config.pf.is_some() {
            text += ", its physical function is a guest's";
        }
        let _ = writeln!(text, "; NICs {}", chip.nics.join(", "));
    }
    text
}
