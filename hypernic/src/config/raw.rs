//! The file as it is written, and what is wrong where.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use registry::Model;
use serde::Deserialize;
use toml::Spanned;

use super::types::{
    CAPTURE_MIB, Cable, CellsOf, DEFAULT_BUSY_POLL, DEFAULT_CAPTURE_MIB, LinkLocal, MAX_BUSY_POLL,
    PfOwner, Profile, SocketSpec,
};
use crate::guard::RawGuard;
use crate::spec::{Doorbell, Moderation, NicMac, PortSpec, Transport};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawHost {
    pub(super) workers: Option<Spanned<usize>>,
    pub(super) keeper: Option<bool>,
    #[serde(default)]
    pub(super) profile: Profile,
    pub(super) cells: Option<CellsOf>,
    pub(super) control: Option<PathBuf>,
    #[serde(default)]
    pub(super) control_monitor: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) control_operate: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) control_owner: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) control_persist: bool,
    pub(super) control_group: Option<Spanned<String>>,
    pub(super) control_mode: Option<Spanned<String>>,
    pub(super) socket_group: Option<Spanned<String>>,
    pub(super) socket_mode: Option<Spanned<String>>,
    pub(super) sandbox: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) sandbox_paths: Vec<Spanned<PathBuf>>,
    pub(super) sandbox_network: Option<bool>,
    #[serde(default)]
    pub(super) switch: Vec<RawSwitch>,
    #[serde(default)]
    pub(super) nic: Vec<RawNic>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawSwitch {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) ports: Vec<Spanned<PortSpec>>,
    pub(super) ageing_seconds: Option<Spanned<u64>>,
    pub(super) uplink_guard: Option<Spanned<RawGuard>>,
    #[serde(default)]
    pub(super) link_local: LinkLocal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawNic {
    pub(super) name: Spanned<String>,
    pub(super) tenant: Option<Spanned<String>>,
    pub(super) cell: Option<Spanned<String>>,
    pub(super) model: Option<Spanned<String>>,
    pub(super) model_revision: Option<Spanned<u16>>,
    pub(super) transport: Option<Spanned<Transport>>,
    pub(super) socket_path: Option<Spanned<PathBuf>>,
    pub(super) fd: Option<Spanned<i32>>,
    pub(super) mac: Option<Spanned<NicMac>>,
    pub(super) port: Spanned<PortSpec>,
    pub(super) capture: Option<PathBuf>,
    pub(super) capture_mib: Option<Spanned<u64>>,
    pub(super) busy_poll_us: Option<Spanned<u64>>,
    pub(super) moderation: Option<Moderation>,
    pub(super) eeprom: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) pause: bool,
    #[serde(default)]
    pub(super) receive_throttling: bool,
    /// The word of 0.1 for `receive-throttling`.
    #[serde(default)]
    pub(super) portions: bool,
    #[serde(default)]
    pub(super) csb: bool,
    pub(super) queue_pairs: Option<Spanned<u16>>,
    #[serde(default)]
    pub(super) split_rings: bool,
    pub(super) mtu: Option<Spanned<u16>>,
    #[serde(default)]
    pub(super) standby: bool,
    #[serde(default)]
    pub(super) hash_report: bool,
    #[serde(default)]
    pub(super) doorbell: Doorbell,
    pub(super) mac_lock: Option<bool>,
    pub(super) back_pressure: Option<bool>,
    pub(super) guard: Option<Spanned<RawGuard>>,
    #[serde(default)]
    pub(super) link: Cable,
    pub(super) vfs: Option<Spanned<u32>>,
    pub(super) pf: Option<Spanned<PfOwner>>,
    pub(super) pf_places_vf_rings: Option<Spanned<bool>>,
    pub(super) vf_socket_path: Option<Spanned<String>>,
    pub(super) port_rate: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) vf: Vec<Spanned<RawVf>>,
}

/// `[[nic.vf]]`: one VF, in the words of `ip link set … vf`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawVf {
    pub(super) index: Spanned<u32>,
    pub(super) tenant: Option<Spanned<String>>,
    /// No other than its chip's.
    pub(super) cell: Option<Spanned<String>>,
    pub(super) socket_path: Option<Spanned<PathBuf>>,
    pub(super) capture: Option<PathBuf>,
    pub(super) mac: Option<Spanned<NicMac>>,
    pub(super) vlan: Option<Spanned<u16>>,
    #[serde(default)]
    pub(super) qos: u8,
    #[serde(default)]
    pub(super) trust: bool,
    pub(super) spoofchk: Option<bool>,
    pub(super) state: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) max_tx_rate: u32,
    #[serde(default)]
    pub(super) min_tx_rate: u32,
    pub(super) storm: Option<Spanned<String>>,
    pub(super) interrupts: Option<Spanned<u32>>,
    pub(super) moderation: Option<Moderation>,
    pub(super) mailbox_rate: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) strict: bool,
}

/// The hint for a word that the next release no longer accepts.
pub(crate) fn retired(old: &str, new: &str) -> String {
    format!("{old} is now {new}; the next release no longer accepts {old}")
}

/// What is wrong and at which byte of the text.
pub(super) struct Fault(pub(super) Option<usize>, pub(super) String);

impl Fault {
    pub(super) fn at<T>(value: &Spanned<T>, message: String) -> Self {
        Fault(Some(value.span().start), message)
    }
}

/// What each NIC has for itself, and whose it is.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) sockets: HashMap<SocketKey, String>,
    /// By whether they stand in for another NIC with their address.
    pub(super) macs: HashMap<(NicMac, bool), String>,
}

impl Taken {
    pub(super) fn socket(
        &mut self,
        socket: &SocketSpec,
        name: &str,
        at: usize,
    ) -> Result<(), Fault> {
        let key = match socket {
            SocketSpec::Path(path) => SocketKey::Path(path.clone()),
            SocketSpec::Fd(fd) => SocketKey::Fd(*fd),
        };
        match self.sockets.insert(key, name.to_owned()) {
            None => Ok(()),
            Some(other) => Err(Fault(
                Some(at),
                format!("NIC \"{other}\" already has this socket; each NIC needs its own"),
            )),
        }
    }

    /// One that stands in for another has its address.
    pub(super) fn mac(
        &mut self,
        (mac, standby): (NicMac, bool),
        name: &str,
        at: usize,
    ) -> Result<(), Fault> {
        match self.macs.insert((mac, standby), name.to_owned()) {
            None => Ok(()),
            Some(other) => Err(Fault(
                Some(at),
                format!("NIC \"{other}\" already has the MAC {mac}; each NIC needs its own"),
            )),
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
pub(super) enum SocketKey {
    Path(PathBuf),
    Fd(i32),
}

/// How long to stay awake for a NIC's next register access.
pub(super) fn capture_mib(mib: Option<&Spanned<u64>>) -> Result<u64, Fault> {
    let Some(mib) = mib else {
        return Ok(DEFAULT_CAPTURE_MIB);
    };
    Some(*mib.get_ref())
        .filter(|n| CAPTURE_MIB.contains(n))
        .ok_or_else(|| {
            let (least, most) = CAPTURE_MIB.into_inner();
            Fault::at(
                mib,
                format!("capture-mib must be between {least} and {most}"),
            )
        })
}

/// The revision of a model that guests are to see.
pub(super) fn revision(said: Option<&Spanned<u16>>, model: &Model) -> Result<Option<u16>, Fault> {
    let Some(said) = said else {
        return Ok(None);
    };
    let revision = *said.get_ref();
    let known = model.check_revision(revision);
    known.map_err(|why| {
        Fault::at(
            said,
            format!("{why}: leave model-revision out for the newest"),
        )
    })?;
    Ok(Some(revision))
}

/// Pairs of queues.
pub(super) fn queue_pairs(pairs: Option<&Spanned<u16>>) -> Result<u16, Fault> {
    let Some(pairs) = pairs else {
        return Ok(1);
    };
    Some(*pairs.get_ref())
        .filter(|n| (1..=16).contains(n))
        .ok_or_else(|| Fault::at(pairs, "queue-pairs must be between 1 and 16".into()))
}

/// The MTU that a driver is told. With less than 68 it takes none (RFC 791 §3.2).
pub(super) fn mtu(mtu: Option<&Spanned<u16>>) -> Result<Option<u16>, Fault> {
    let possible = |mtu: &Spanned<u16>| {
        Some(*mtu.get_ref())
            .filter(|n| *n >= 68)
            .ok_or_else(|| Fault::at(mtu, "mtu must be between 68 and 65535".into()))
    };
    mtu.map(possible).transpose()
}

pub(super) fn busy_poll(us: Option<&Spanned<u64>>) -> Result<Duration, Fault> {
    let Some(us) = us else {
        return Ok(DEFAULT_BUSY_POLL);
    };
    Some(Duration::from_micros(*us.get_ref()))
        .filter(|time| *time <= MAX_BUSY_POLL)
        .ok_or_else(|| Fault::at(us, "busy-poll-us must be between 0 (off) and 1000".into()))
}

/// Whose a NIC is: what the file says, else its own name.
pub(super) fn tenant(word: Option<&Spanned<String>>, nic: &str) -> Result<String, Fault> {
    let Some(word) = word else {
        return Ok(nic.to_owned());
    };
    check_name(word)?;
    Ok(word.get_ref().clone())
}

pub(super) fn check_name(name: &Spanned<String>) -> Result<(), Fault> {
    let text = name.get_ref();
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(fine) {
        let message = format!("bad name \"{text}\": use 1 to 64 letters, digits, '-', '_' or '.'");
        return Err(Fault::at(name, message));
    }
    Ok(())
}

/// The words that a table may have.
#[cfg(test)]
pub(super) fn names<T: serde::de::DeserializeOwned>() -> Vec<String> {
    let error = toml::from_str::<T>("no-such-word = 1")
        .err()
        .map(|error| error.to_string());
    let error = error.expect("it has no such word");
    let (_, names) = error
        .split_once("expected one of ")
        .expect("it names what there is");
    let names = names.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}
