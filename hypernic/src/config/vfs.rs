//! Chips with virtual functions: one `[[nic]]` that stands for many.

use std::collections::HashSet;
use std::path::PathBuf;

use serde::Deserialize;
use softpf::{LinkState, Policy, PolicyError, PortVlan, SoftPf};
use toml::Spanned;
use wire::MacAddr;

use super::{DEFAULT_BUSY_POLL, Fault, HostConfig, NicConfig, RawNic, SocketSpec, Taken};
use crate::guard::{Guard, Storm};
use crate::spec::{ModelName, Moderation, NicMac, PortSpec};

/// Most VFs of a chip. The real one has 7; nothing here is bound to that.
pub const MAX_VFS: u32 = 1000;
/// Where the number stands in `vf-socket-path`.
const NUMBER: &str = "{}";

/// A chip: its VFs, what joins them, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChipConfig {
    /// Its name. VF 3 of `p0` is `p0vf3`.
    pub name: String,
    /// Where its wire leads.
    pub port: PortSpec,
    /// What the VFs share of the wire, in megabits a second, if anybody says.
    pub rate: Option<u32>,
}

/// What a NIC is as a virtual function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfConfig {
    /// The name of its chip.
    pub chip: String,
    /// Its number there.
    pub index: u32,
    /// What is laid down for it.
    pub policy: Policy,
}

/// `[[nic.vf]]`: one VF, in the words of `ip link set … vf`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawVf {
    index: Spanned<u32>,
    socket_path: Option<Spanned<PathBuf>>,
    capture: Option<PathBuf>,
    mac: Option<Spanned<NicMac>>,
    vlan: Option<Spanned<u16>>,
    #[serde(default)]
    qos: u8,
    #[serde(default)]
    trust: bool,
    spoofchk: Option<bool>,
    state: Option<Spanned<String>>,
    #[serde(default)]
    max_tx_rate: u32,
    #[serde(default)]
    min_tx_rate: u32,
    storm: Option<Spanned<String>>,
    interrupts: Option<Spanned<u32>>,
    mailbox_rate: Option<Spanned<u32>>,
    #[serde(default)]
    strict: bool,
}

impl RawNic {
    /// Where a word stands that only a chip with VFs understands.
    pub(super) fn vf_word(&self) -> Option<usize> {
        let vfs = self.vfs.as_ref().map(|s| s.span().start);
        let path = self.vf_socket_path.as_ref().map(|s| s.span().start);
        let rate = self.port_rate.as_ref().map(|s| s.span().start);
        let vf = self.vf.first().map(|s| s.span().start);
        [vfs, path, rate, vf].into_iter().flatten().min()
    }
}

impl RawVf {
    fn apply(&self, policy: &mut Policy) -> Result<(), Fault> {
        if let Some(mac) = &self.mac {
            policy.mac = MacAddr(mac.get_ref().0);
            policy.mac_set = true;
        }
        if let Some(vlan) = &self.vlan {
            let (id, qos) = (*vlan.get_ref(), self.qos);
            policy.vlan = (id != 0).then_some(PortVlan { id, qos });
        }
        policy.trust = self.trust;
        policy.spoof_check = self.spoofchk.unwrap_or(true);
        if let Some(state) = &self.state {
            policy.state = match state.get_ref().as_str() {
                "auto" => LinkState::Auto,
                "enable" => LinkState::Enable,
                "disable" => LinkState::Disable,
                other => {
                    let message = format!("state \"{other}\": write auto, enable or disable");
                    return Err(Fault::at(state, message));
                }
            };
        }
        policy.max_tx_rate = self.max_tx_rate;
        policy.min_tx_rate = self.min_tx_rate;
        if let Some(text) = &self.storm {
            let storm: Storm = text.get_ref().parse().map_err(|e| Fault::at(text, e))?;
            if storm.0.unknown.is_some() {
                let message = "nothing is unknown to the switch of a chip: storm limits of a VF are \
                               broadcast=N and multicast=N";
                return Err(Fault::at(text, message.into()));
            }
            policy.storm = softpf::Storm {
                broadcast: storm.0.broadcast,
                multicast: storm.0.multicast,
            };
        }
        let positive = |value: &Option<Spanned<u32>>, what: &str| match value {
            Some(n) if *n.get_ref() == 0 => {
                Err(Fault::at(n, format!("{what} must be at least 1 a second")))
            }
            Some(n) => Ok(Some(*n.get_ref())),
            None => Ok(None),
        };
        policy.interrupts = positive(&self.interrupts, "interrupts")?;
        if let Some(rate) = positive(&self.mailbox_rate, "mailbox-rate")? {
            policy.mailbox_rate = rate;
        }
        policy.strict = self.strict;
        Ok(())
    }
}

/// One `[[nic]]` with VFs as a chip and its NICs.
pub(super) fn expand(
    raw: RawNic,
    host: &mut HostConfig,
    names: &mut HashSet<String>,
    taken: &mut Taken,
) -> Result<(), Fault> {
    let name = raw.name.get_ref().clone();
    let Some(vfs) = raw.vfs.as_ref() else {
        let message =
            format!("NIC \"{name}\" needs vfs = N: its physical function is the daemon's");
        return Err(Fault::at(&raw.name, message));
    };
    let count = *vfs.get_ref();
    if !(1..=MAX_VFS).contains(&count) {
        let message = format!("vfs must lie between 1 and {MAX_VFS}");
        return Err(Fault::at(vfs, message));
    }
    if raw.socket_path.is_some() || raw.fd.is_some() {
        let message = format!(
            "NIC \"{name}\" has VFs, and its physical function is the daemon's: name their sockets, \
             vf-socket-path = \"/run/{name}-vf{NUMBER}.sock\""
        );
        return Err(Fault::at(&raw.name, message));
    }
    if let Some(rate) = raw.port_rate.as_ref().filter(|rate| *rate.get_ref() == 0) {
        return Err(Fault::at(
            rate,
            "port-rate must be at least 1 Mbit/s".into(),
        ));
    }
    let rate = raw.port_rate.as_ref().map(|rate| *rate.get_ref());
    let mut said: Vec<Option<&RawVf>> = vec![None; count as usize];
    for vf in &raw.vf {
        let vf = vf.get_ref();
        let index = *vf.index.get_ref();
        let Some(place) = said.get_mut(index as usize) else {
            let message = format!("there is no VF {index}: vfs = {count}");
            return Err(Fault::at(&vf.index, message));
        };
        if place.replace(vf).is_some() {
            let message = format!("there are two [[nic.vf]] with index {index}");
            return Err(Fault::at(&vf.index, message));
        }
    }
    // What one policy cannot be beside the others is found by who will rule them.
    let mut ruler = SoftPf::new(rate);
    for (index, vf) in said.into_iter().enumerate() {
        let index = index as u32;
        let own = format!("{name}vf{index}");
        let at = vf.map_or(vfs.span().start, |vf| vf.index.span().start);
        if !names.insert(own.clone()) {
            return Err(Fault(
                Some(at),
                format!("\"{own}\" is already a NIC; names must differ"),
            ));
        }
        let default = NicMac::from_name(&own);
        let mut policy = Policy::new(MacAddr(default.0));
        if let Some(vf) = vf {
            vf.apply(&mut policy)?;
        }
        let mac = NicMac(policy.mac.0);
        taken.mac(mac, &own, at)?;
        ruler
            .add(index, policy.clone(), 0)
            .map_err(|error: PolicyError| Fault(Some(at), format!("VF {index}: {error}")))?;
        let socket = SocketSpec::Path(path(&raw, vf, index, at)?);
        taken.socket(&socket, &own, at)?;
        host.nics.push(NicConfig {
            name: own,
            model: ModelName::I82576,
            socket,
            mac,
            port: PortSpec::Switch(name.clone()),
            capture: vf.and_then(|vf| vf.capture.clone()),
            busy_poll: DEFAULT_BUSY_POLL,
            moderation: Moderation::Guest,
            eeprom: None,
            pause: false,
            portions: false,
            csb: false,
            doorbell: raw.doorbell,
            mac_lock: false,
            guard: Guard::default(),
            vf: Some(VfConfig {
                chip: name.clone(),
                index,
                policy,
            }),
        });
    }
    host.chips.push(ChipConfig {
        name,
        port: raw.port.into_inner(),
        rate,
    });
    Ok(())
}

/// A VF's socket: its own word, or that of all with its number.
fn path(raw: &RawNic, vf: Option<&RawVf>, index: u32, at: usize) -> Result<PathBuf, Fault> {
    if let Some(path) = vf.and_then(|vf| vf.socket_path.as_ref()) {
        return Ok(path.get_ref().clone());
    }
    match &raw.vf_socket_path {
        Some(all) if all.get_ref().contains(NUMBER) => {
            Ok(all.get_ref().replace(NUMBER, &index.to_string()).into())
        }
        Some(all) => {
            let message = format!("vf-socket-path has no {NUMBER}, where each VF's number goes");
            Err(Fault::at(all, message))
        }
        None => {
            let name = raw.name.get_ref();
            let message = format!(
                "VF {index} of \"{name}\" has no socket; add vf-socket-path = \
                 \"/run/{name}-vf{NUMBER}.sock\""
            );
            Err(Fault(Some(at), message))
        }
    }
}
