//! Chips with virtual functions: one `[[nic]]` that stands for many.

use std::collections::HashSet;
use std::path::PathBuf;

use pf::{LinkState, Policy, PolicyError, PortVlan, SoftwarePf};
use registry::Model;
use toml::Spanned;
use wire::MacAddr;

use super::cells::named;
use super::raw::{Fault, RawNic, RawVf, Taken, busy_poll, capture_mib, revision, tenant};
use super::types::{
    Cable, ChipConfig, HostConfig, NicConfig, PfOwner, SocketSpec, VfConfig, Virtio,
};
use crate::guard::{Guard, Storm};
use crate::spec::{NicMac, PortSpec, Transport};

/// Most VFs of a chip. The real one has 7; nothing here is bound to that.
pub const MAX_VFS: u32 = 1000;
/// Where the number stands in `vf-socket-path`.
pub(super) const NUMBER: &str = "{}";

impl RawNic {
    /// Where a word stands that only a chip with VFs understands.
    pub(super) fn vf_word(&self) -> Option<usize> {
        let vfs = self.vfs.as_ref().map(|s| s.span().start);
        let pf = self.pf.as_ref().map(|s| s.span().start);
        let places = self.pf_places_vf_rings.as_ref().map(|s| s.span().start);
        let path = self.vf_socket_path.as_ref().map(|s| s.span().start);
        let rate = self.port_rate.as_ref().map(|s| s.span().start);
        let vf = self.vf.first().map(|s| s.span().start);
        [vfs, pf, places, path, rate, vf]
            .into_iter()
            .flatten()
            .min()
    }
}

impl RawVf {
    fn tenant(&self) -> Option<&Spanned<String>> {
        self.tenant.as_ref()
    }

    /// A word that lays something down for the VF.
    fn policy_word(&self) -> Option<&'static str> {
        let said = [
            ("mac", self.mac.is_some()),
            ("vlan", self.vlan.is_some()),
            ("qos", self.qos != 0),
            ("trust", self.trust),
            ("spoofchk", self.spoofchk.is_some()),
            ("state", self.state.is_some()),
            ("max-tx-rate", self.max_tx_rate != 0),
            ("min-tx-rate", self.min_tx_rate != 0),
            ("storm", self.storm.is_some()),
            ("interrupts", self.interrupts.is_some()),
            ("mailbox-rate", self.mailbox_rate.is_some()),
            ("strict", self.strict),
        ];
        said.iter().find(|(_, is)| *is).map(|(word, _)| *word)
    }

    /// Lays down what is said.
    ///
    /// # Errors
    /// A word that cannot be.
    pub(super) fn apply(&self, policy: &mut Policy) -> Result<(), Fault> {
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
                let message = "the switch of a chip knows all addresses: storm limits of a VF are \
                               broadcast=N and multicast=N";
                return Err(Fault::at(text, message.into()));
            }
            policy.storm = storm.0;
        }
        let positive = |value: &Option<Spanned<u32>>, what: &str| match value {
            Some(n) if *n.get_ref() == 0 => Err(Fault::at(
                n,
                format!("{what} must be at least 1 per second"),
            )),
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

/// What contradicts a PF of a guest's, which rules by registers and as many VFs as the chip has.
fn check_guest(raw: &RawNic, model: &Model, vfs: &Spanned<u32>) -> Result<(), Fault> {
    let most = model.vfs.unwrap_or(0);
    if *vfs.get_ref() > most {
        let message = format!(
            "a guest controls at most {most} VFs, as on the chip: write vfs = {most}, or leave out pf"
        );
        return Err(Fault::at(vfs, message));
    }
    let refused = |word: &str| {
        format!(
            "{word} is for VFs that the daemon controls; with pf = \"guest\" the guest's driver \
             does: leave out one of them"
        )
    };
    if let Some(rate) = &raw.port_rate {
        return Err(Fault::at(rate, refused("port-rate")));
    }
    if let Some(guard) = &raw.guard {
        return Err(Fault::at(guard, refused("guard")));
    }
    if raw.mac_lock == Some(true) {
        return Err(Fault::at(&raw.name, refused("mac-lock")));
    }
    for vf in &raw.vf {
        if let Some(word) = vf.get_ref().policy_word() {
            return Err(Fault::at(&vf.get_ref().index, refused(word)));
        }
    }
    Ok(())
}

/// What is for a NIC that a guest has, and a chip whose PF is the daemon's is none.
fn check_daemon(raw: &RawNic) -> Result<(), Fault> {
    let name = raw.name.get_ref();
    if raw.socket_path.is_some() || raw.fd.is_some() {
        let message = format!(
            "the daemon controls the physical function of \"{name}\", so it has no socket: name the VFs' \
             sockets, vf-socket-path = \"/run/{name}-vf{NUMBER}.sock\", or write pf = \"guest\""
        );
        return Err(Fault::at(&raw.name, message));
    }
    if let Some(places) = &raw.pf_places_vf_rings {
        let message = "pf-places-vf-rings is for a physical function that a guest has: write pf = \"guest\", or \
                       leave it out";
        return Err(Fault::at(places, message.into()));
    }
    let said = [
        ("mac", raw.mac.is_some()),
        ("capture", raw.capture.is_some()),
        ("eeprom", raw.eeprom.is_some()),
        ("pause", raw.pause),
        ("receive-throttling", raw.receive_throttling || raw.portions),
        ("csb", raw.csb),
        ("queue-pairs", raw.queue_pairs.is_some()),
        ("split-rings", raw.split_rings),
        ("mtu", raw.mtu.is_some()),
        ("standby", raw.standby),
        ("hash-report", raw.hash_report),
        ("mac-lock", raw.mac_lock == Some(true)),
        ("guard", raw.guard.is_some()),
        ("link (as state)", raw.link == Cable::Down),
    ];
    let Some((word, _)) = said.iter().find(|(_, is)| *is) else {
        return Ok(());
    };
    let message = format!(
        "{word} is for a NIC of a guest, but the daemon controls the physical function of \"{name}\": \
         set it for each VF in its [[nic.vf]], or leave it out"
    );
    Err(Fault::at(&raw.name, message))
}

/// What is said of single VFs, each at its number.
fn by_number(raw: &RawNic, count: u32) -> Result<Vec<Option<&RawVf>>, Fault> {
    let mut said: Vec<Option<&RawVf>> = vec![None; count as usize];
    for vf in &raw.vf {
        let vf = vf.get_ref();
        let index = *vf.index.get_ref();
        let Some(place) = said.get_mut(index as usize) else {
            let message = format!("there is no VF {index}: vfs = {count}");
            return Err(Fault::at(&vf.index, message));
        };
        is_with_its_chip(vf, raw)?;
        if place.replace(vf).is_some() {
            let message = format!("there are two [[nic.vf]] with index {index}");
            return Err(Fault::at(&vf.index, message));
        }
    }
    Ok(said)
}

/// A VF is where its chip is.
fn is_with_its_chip(vf: &RawVf, chip: &RawNic) -> Result<(), Fault> {
    let said = |word: &Option<Spanned<String>>| word.as_ref().map(|word| word.get_ref().clone());
    let Some(word) = vf
        .cell
        .as_ref()
        .filter(|_| said(&vf.cell) != said(&chip.cell))
    else {
        return Ok(());
    };
    let message = format!(
        "VF {} is in the cell of its chip, as all its functions are: say cell = \"…\" beside vfs, and leave it out here",
        vf.index.get_ref()
    );
    Err(Fault::at(word, message))
}

/// One `[[nic]]` with VFs as a chip and its NICs, without the PF. Returns the owner of the PF.
pub(super) fn expand(
    raw: &RawNic,
    model: &'static Model,
    host: &mut HostConfig,
    names: &mut HashSet<String>,
    taken: &mut Taken,
) -> Result<PfOwner, Fault> {
    let name = raw.name.get_ref().clone();
    let Some(vfs) = raw.vfs.as_ref() else {
        let message = format!("NIC \"{name}\" has settings for VFs but no VFs: add vfs = N");
        return Err(Fault::at(&raw.name, message));
    };
    let pf = raw.pf.as_ref().map_or(PfOwner::Daemon, |pf| *pf.get_ref());
    let count = *vfs.get_ref();
    if !(1..=MAX_VFS).contains(&count) {
        let message = format!("vfs must be between 1 and {MAX_VFS}");
        return Err(Fault::at(vfs, message));
    }
    match pf {
        PfOwner::Guest => check_guest(raw, model, vfs)?,
        PfOwner::Daemon => check_daemon(raw)?,
    }
    if let Some(rate) = raw.port_rate.as_ref().filter(|rate| *rate.get_ref() == 0) {
        return Err(Fault::at(
            rate,
            "port-rate must be at least 1 Mbit/s".into(),
        ));
    }
    let busy_poll = busy_poll(raw.busy_poll_us.as_ref())?;
    let capture_mib = capture_mib(raw.capture_mib.as_ref())?;
    let rate = raw.port_rate.as_ref().map(|rate| *rate.get_ref());
    let said = by_number(raw, count)?;
    // The software PF, which will apply the policies, finds those that contradict each other.
    let mut software_pf = SoftwarePf::new(rate);
    for (index, vf) in said.into_iter().enumerate() {
        let index = index as u32;
        let own = format!("{name}vf{index}");
        let at = vf.map_or(vfs.span().start, |vf| vf.index.span().start);
        if !names.insert(own.clone()) {
            let message = format!("\"{own}\" is already a NIC; names must differ");
            return Err(Fault(Some(at), message));
        }
        let of_all = raw.moderation.unwrap_or(model.moderation.into());
        let moderation = vf.and_then(|vf| vf.moderation).unwrap_or(of_all);
        let default = NicMac::from_name(&own);
        let mut policy = Policy::new(MacAddr(default.0));
        if let Some(vf) = vf {
            vf.apply(&mut policy)?;
        }
        let mac = NicMac(policy.mac.0);
        taken.mac((mac, false), &own, at)?;
        software_pf
            .add(index, policy.clone(), 0)
            .map_err(|error: PolicyError| Fault(Some(at), format!("VF {index}: {error}")))?;
        let socket = SocketSpec::Path(path(raw, vf, index, at)?);
        taken.socket(&socket, &own, at)?;
        host.nics.push(NicConfig {
            cell: None,
            stays: false,
            tenant: tenant(vf.and_then(RawVf::tenant).or(raw.tenant.as_ref()), &own)?,
            name: own,
            model,
            revision: revision(raw.model_revision.as_ref(), model)?,
            socket,
            mac,
            port: PortSpec::Switch(name.clone()),
            capture: vf.and_then(|vf| vf.capture.clone()),
            capture_mib,
            busy_poll,
            moderation,
            eeprom: None,
            pause: false,
            receive_throttling: false,
            csb: false,
            queue_pairs: 1,
            transport: Transport::VfioUser,
            virtio: Virtio::default(),
            doorbell: raw.doorbell,
            mac_lock: false,
            back_pressure: true,
            guard: Guard::default(),
            cable: Cable::Up,
            vf: Some(VfConfig {
                chip: name.clone(),
                index,
                policy,
            }),
            rules: None,
            pf_places_vf_rings: false,
        });
    }
    host.chips.push(ChipConfig {
        name,
        cell: named(raw.cell.as_ref())?,
        stays: false,
        port: raw.port.get_ref().clone(),
        vfs: count,
        pf,
        rate,
        vf_sockets: raw
            .vf_socket_path
            .as_ref()
            .map(|path| path.get_ref().clone()),
    });
    Ok(pf)
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
