//! `hypernic nic`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use control::{
    Guard, NicAdd, NicChange, NicConfig, NicInfo, NicLink, NicList, NicRemove, NicSet, Nics,
};
use program::LogFormat;

use super::place::{Hand, Place, Printed, Terms, changed};
use crate::complete;
use crate::error::Error;

/// `hypernic nic`.
#[derive(Args, Debug)]
pub struct NicCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    #[command(subcommand)]
    what: NicVerb,
}

#[derive(Debug, Subcommand)]
enum NicVerb {
    /// Add a NIC to the running daemon. If it is there already, with the same words, nothing happens.
    Add(Box<Add>),
    /// Change words of a NIC that its guest need not know. Its VMM keeps it, and frames go on.
    Set(Box<Set>),
    /// Pull the cable of a NIC, or put it in. Of a VF: change what it is told of the link.
    Link {
        /// The NIC.
        #[arg(add = complete::nics())]
        name: String,
        /// Whether the cable is in.
        state: Cable,
        #[command(flatten)]
        terms: Terms,
    },
    /// Remove a NIC. Its VMM is disconnected; others notice nothing.
    Remove {
        /// The NIC.
        #[arg(add = complete::nics())]
        name: String,
        /// It is no error if there is none.
        #[arg(long)]
        missing_ok: bool,
        #[command(flatten)]
        terms: Terms,
    },
    /// List NICs.
    List {
        /// One of them; without a name, all.
        #[arg(add = complete::nics())]
        name: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cable {
    Up,
    Down,
}

/// What is absent stays.
#[derive(Args, Debug)]
struct Set {
    /// The NIC.
    #[arg(add = complete::nics())]
    name: String,
    /// It sends from its own address only.
    #[arg(long, value_name = "BOOL")]
    mac_lock: Option<bool>,
    /// Its frames wait where a receiver has no room.
    #[arg(long, value_name = "BOOL")]
    back_pressure: Option<bool>,
    /// Microseconds that its worker may stay awake for it.
    #[arg(long, value_name = "US")]
    busy_poll_us: Option<u64>,
    /// When it interrupts: guest, adaptive or fixed:N.
    #[arg(long, value_name = "MODE")]
    moderation: Option<String>,
    /// A pcapng file of all its frames; none for no file.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// MiB of that file, at which a new one begins.
    #[arg(long, value_name = "MIB", requires = "capture")]
    capture_mib: Option<u64>,
    #[command(flatten)]
    guard: GuardWords,
    #[command(flatten)]
    terms: Terms,
}

/// Limits of a port; what is absent stays.
#[derive(Args, Debug)]
pub(super) struct GuardWords {
    /// The most that it sends, such as 1gbit or 500mbit,100kpps; none for any amount.
    #[arg(long, value_name = "RATE")]
    tx_rate: Option<String>,
    /// The most that it receives; none for any amount.
    #[arg(long, value_name = "RATE")]
    rx_rate: Option<String>,
    /// The most flooded frames per second from it, such as broadcast=100,multicast=100; none for any number.
    #[arg(long, value_name = "LIMITS")]
    storm: Option<String>,
    /// The most addresses that its switch learns; 0 for any number.
    #[arg(long, value_name = "N")]
    max_macs: Option<u64>,
    /// An address that it may send from; may be repeated. All of them anew; none for any address.
    #[arg(long, value_name = "MAC")]
    allow_mac: Vec<String>,
    /// VLANs that it is a member of, such as untagged,10,20-29; none for all.
    #[arg(long)]
    vlans: Option<String>,
    /// It exchanges frames with uplinks only.
    #[arg(long, value_name = "BOOL")]
    private: Option<bool>,
}

impl GuardWords {
    /// The words of a change, if there are some.
    pub fn change(self) -> Option<Guard> {
        let all = (!self.allow_mac.is_empty()).then_some(self.allow_mac);
        let macs = all.map(|macs| match macs.as_slice() {
            [word] if word == NONE => Vec::new(),
            _ => macs,
        });
        let guard = Guard {
            tx_rate: self.tx_rate,
            rx_rate: self.rx_rate,
            storm: self.storm,
            max_macs: self.max_macs,
            allow_macs: macs,
            vlans: self.vlans,
            private: self.private,
        };
        (guard != Guard::default()).then_some(guard)
    }
}

/// The word for a limit, or a file, that is to go.
const NONE: &str = "none";

impl Set {
    fn call(self) -> NicSet {
        let capture = self.capture.map(|file| match file.as_os_str() == NONE {
            true => NONE.to_owned(),
            false => whole(&file),
        });
        let (check, persist, if_generation) = self.terms.words();
        NicSet {
            name: self.name,
            change: NicChange {
                mac_lock: self.mac_lock,
                back_pressure: self.back_pressure,
                guard: self.guard.change(),
                busy_poll_us: self.busy_poll_us,
                moderation: self.moderation,
                capture,
                capture_mib: self.capture_mib,
            },
            check,
            persist,
            if_generation,
        }
    }
}

/// The words are those of `hypernic run --help` and of the configuration file.
#[derive(Args, Debug)]
struct Add {
    /// Its name.
    name: String,
    /// Where its frames go: switch:NAME, user, tap:NAME, stream:PATH …
    #[arg(long)]
    port: String,
    /// The Unix socket for its VMM.
    #[arg(long, value_name = "PATH", required_unless_present = "fd")]
    socket_path: Option<PathBuf>,
    /// In its place an inherited socket, which the daemon is handed.
    #[arg(long, value_name = "N", conflicts_with = "socket_path")]
    fd: Option<i32>,
    /// The chip.
    #[arg(long)]
    model: Option<String>,
    /// vfio-user or vhost-user.
    #[arg(long)]
    transport: Option<String>,
    /// MAC address; made from the name by default.
    #[arg(long)]
    mac: Option<String>,
    /// Whose it is; its own name by default.
    #[arg(long)]
    tenant: Option<String>,
    /// The process that serves it: `main`, or one of its own by that name.
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,
    /// The model revision that its guest sees; the newest without.
    #[arg(long, value_name = "N")]
    model_revision: Option<u16>,
    /// A pcapng file of all its frames.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// MiB of that file, at which a new one begins.
    #[arg(long, value_name = "MIB", requires = "capture")]
    capture_mib: Option<u64>,
    /// Microseconds that its worker may stay awake for it.
    #[arg(long, value_name = "US")]
    busy_poll_us: Option<u64>,
    /// guest, adaptive or fixed:N.
    #[arg(long)]
    moderation: Option<String>,
    /// A file that keeps its EEPROM.
    #[arg(long, value_name = "FILE")]
    eeprom: Option<PathBuf>,
    /// The link partner offers pause frames.
    #[arg(long)]
    pause: bool,
    /// Receive throttling.
    #[arg(long)]
    receive_throttling: bool,
    /// Offer a Communication Status Block.
    #[arg(long)]
    csb: bool,
    /// Pairs of queues of a virtio-net.
    #[arg(long, value_name = "N")]
    queue_pairs: Option<u16>,
    /// A virtio-net offers no packed rings.
    #[arg(long)]
    split_rings: bool,
    /// MTU that a virtio-net tells its driver.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// A virtio-net stands in for another NIC with its address.
    #[arg(long)]
    standby: bool,
    /// A virtio-net tells its driver the hash of each frame's flow.
    #[arg(long)]
    hash_report: bool,
    /// trap or page.
    #[arg(long)]
    doorbell: Option<String>,
    /// It sends from its own address only.
    #[arg(long, value_name = "BOOL")]
    mac_lock: Option<bool>,
    /// Its frames wait where a receiver has no room.
    #[arg(long, value_name = "BOOL")]
    back_pressure: Option<bool>,
    /// The most it sends, such as 1gbit.
    #[arg(long, value_name = "RATE")]
    tx_rate: Option<String>,
    /// The most it receives.
    #[arg(long, value_name = "RATE")]
    rx_rate: Option<String>,
    /// The most flooded frames a second, such as broadcast=100,multicast=100.
    #[arg(long, value_name = "LIMITS")]
    storm: Option<String>,
    /// The most addresses that its switch learns.
    #[arg(long, value_name = "N")]
    max_macs: Option<u64>,
    /// An address that it may send from besides its own; may be repeated.
    #[arg(long, value_name = "MAC")]
    allow_mac: Vec<String>,
    /// VLANs that it is a member of, such as untagged,10,20-29.
    #[arg(long)]
    vlans: Option<String>,
    /// It exchanges frames with uplinks only.
    #[arg(long)]
    private: bool,
    #[command(flatten)]
    terms: Terms,
}

/// The daemon may have another working directory.
pub(crate) fn whole(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy().into_owned()
}

impl Add {
    fn call(self, hand: &mut Hand) -> Result<NicAdd, Error> {
        let on = |flag: bool| flag.then_some(true);
        let guard = Guard {
            tx_rate: self.tx_rate,
            rx_rate: self.rx_rate,
            storm: self.storm,
            max_macs: self.max_macs,
            allow_macs: (!self.allow_mac.is_empty()).then_some(self.allow_mac),
            vlans: self.vlans,
            private: on(self.private),
        };
        let nic = NicConfig {
            name: self.name,
            port: hand.port(self.port)?,
            socket_path: self.socket_path.as_deref().map(whole),
            fd: self.fd.map(|fd| hand.place(fd)).transpose()?,
            model: self.model,
            model_revision: self.model_revision,
            transport: self.transport,
            mac: self.mac,
            tenant: self.tenant,
            cell: self.cell,
            capture: self.capture.as_deref().map(whole),
            capture_mib: self.capture_mib,
            busy_poll_us: self.busy_poll_us,
            moderation: self.moderation,
            eeprom: self.eeprom.as_deref().map(whole),
            pause: on(self.pause),
            receive_throttling: on(self.receive_throttling),
            csb: on(self.csb),
            queue_pairs: self.queue_pairs,
            split_rings: on(self.split_rings),
            mtu: self.mtu,
            standby: on(self.standby),
            hash_report: on(self.hash_report),
            doorbell: self.doorbell,
            mac_lock: self.mac_lock,
            back_pressure: self.back_pressure,
            guard: (guard != Guard::default()).then_some(guard),
            link: None,
        };
        let (check, persist, if_generation) = self.terms.words();
        Ok(NicAdd {
            nic,
            check,
            persist,
            if_generation,
        })
    }
}

impl NicCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let Self {
            place,
            printed,
            what,
        } = self;
        match what {
            NicVerb::Add(add) => {
                let (name, check) = (add.name.clone(), add.terms.check);
                let mut hand = Hand::default();
                let call = add.call(&mut hand)?;
                let reply = hand.ask(&place, &call)?;
                Ok(printed.show(format, &reply, changed(&name, check)))
            }
            NicVerb::Set(set) => {
                let (name, check) = (set.name.clone(), set.terms.check);
                let reply = place.ask(&set.call())?;
                Ok(printed.show(format, &reply, changed(&name, check)))
            }
            NicVerb::Link { name, state, terms } => {
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&NicLink {
                    name: name.clone(),
                    up: state == Cable::Up,
                    check,
                    persist,
                    if_generation,
                })?;
                Ok(printed.show(format, &reply, changed(&name, terms.check)))
            }
            NicVerb::Remove {
                name,
                missing_ok,
                terms,
            } => {
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&NicRemove {
                    name: name.clone(),
                    missing_ok: Some(missing_ok),
                    check,
                    persist,
                    if_generation,
                })?;
                Ok(printed.show(format, &reply, changed(&name, terms.check)))
            }
            NicVerb::List { name } => list(&place, printed, format, name),
        }
    }
}

/// `hypernic list`.
#[derive(Args, Debug)]
pub struct ListCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
}

impl ListCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        list(&self.place, self.printed, format, None)
    }
}

fn list(
    place: &Place,
    printed: Printed,
    format: LogFormat,
    name: Option<String>,
) -> Result<String, Error> {
    let reply = place.ask(&NicList { name })?;
    Ok(printed.show(format, &reply, |nics: &Nics| table(&nics.nics)))
}

fn table(nics: &[NicInfo]) -> String {
    let mut text = String::new();
    for nic in nics {
        let config = &nic.config;
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let state = match (nic.failed, nic.connected, nic.link) {
            (true, ..) => "FAILED",
            (_, true, true) => "connected",
            (_, true, false) => "connected, no link",
            (_, false, _) => "no client",
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{:<16} {:<10} {} {:<18} {}",
            config.name,
            word(&config.model),
            word(&config.mac),
            config.port,
            state,
        );
        if let (Some(chip), Some(vf)) = (&nic.chip, nic.vf) {
            let _ = write!(text, ", VF {vf} of {chip}");
        }
        let _ = writeln!(text);
    }
    text
}
