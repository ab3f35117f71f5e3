//! What to paste where.

use std::path::Path;

use crate::config::{HostConfig, NicConfig, Profile, SocketSpec};
use crate::guard::Storm;
use crate::spec::Transport;

/// Milliseconds that QEMU waits for an answer. After its own five seconds it would give the NIC up for good, though the
/// daemon may only have been stopped or swapped out.
const QEMU_PATIENCE_MS: u32 = 60_000;

/// The arguments that connect a VMM to one NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    /// For QEMU; 10.1 or newer over vfio-user.
    pub qemu: String,
    /// For cloud-hypervisor.
    pub cloud_hypervisor: String,
}

/// Guest RAM that another process can reach, as QEMU takes it.
const SHARED: &str = "-object memory-backend-memfd,id=ram0,size=1G,share=on -machine \
                      q35,memory-backend=ram0 -m 1G";

/// Hints for a NIC, if it has a path.
fn of_nic(nic: &NicConfig) -> Option<Hints> {
    let SocketSpec::Path(path) = &nic.socket else {
        return None;
    };
    Some(match nic.transport {
        Transport::VfioUser => for_socket(path),
        Transport::VhostUser => for_vhost_user(nic, path),
    })
}

/// The VMM has the device, and its address: it is the NIC's, which the switch may hold it to.
fn for_vhost_user(nic: &NicConfig, path: &Path) -> Hints {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (path, name, pairs) = (path.to_string_lossy(), &nic.name, nic.queue_pairs);
    // In QEMU's words a comma within a value is written twice.
    let chardev = format!(
        "socket,id={name},path={},reconnect-ms=1000",
        path.replace(',', ",,")
    );
    let (queues, mq) = if pairs > 1 {
        // Vectors of all queues, of the control queue and of the configuration.
        let vectors = 2 * pairs + 2;
        (
            format!(",queues={pairs}"),
            format!(",mq=on,vectors={vectors}"),
        )
    } else {
        (String::new(), String::new())
    };
    Hints {
        qemu: format!(
            "{SHARED} -chardev {} -netdev vhost-user,id={name}-net,chardev={name}{queues} \
             -device virtio-net-pci,netdev={name}-net,mac={}{mq}",
            quoted(&chardev),
            nic.mac
        ),
        cloud_hypervisor: format!(
            "--memory size=1G,shared=on --net vhost_user=true,socket={},mac={},num_queues={}",
            quoted(&path),
            nic.mac,
            2 * pairs
        ),
    }
}

/// Hints for a NIC at `socket`.
///
/// Guest RAM must be shared (`share=on`, `shared=on`): the NIC reads and writes it from its own
/// process. The device argument is JSON because QEMU refuses a dotted `socket.type`.
pub fn for_socket(socket: &Path) -> Hints {
    let path = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let json = serde_json::json!({
        "driver": "vfio-user-pci",
        "socket": { "type": "unix", "path": path.to_string_lossy() },
        "x-msg-timeout": QEMU_PATIENCE_MS,
    });
    Hints {
        qemu: format!("{SHARED} -device {}", quoted(&json.to_string())),
        cloud_hypervisor: format!(
            "--memory size=1G,shared=on --user-device socket={}",
            quoted(&path.to_string_lossy())
        ),
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.=,:+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The lines printed on start.
pub fn banner(host: &HostConfig) -> String {
    let mut text = profile(host);
    for nic in &host.nics {
        let Some(hints) = of_nic(nic) else {
            continue;
        };
        let since = match nic.transport {
            Transport::VfioUser => "QEMU >= 10.1:",
            Transport::VhostUser => "QEMU >= 9.2:",
        };
        text += &format!(
            "NIC {} ({}, {}, {})\n  {since:<19}{}\n  cloud-hypervisor:  {}\n",
            nic.name, nic.model.name, nic.mac, nic.port, hints.qemu, hints.cloud_hypervisor
        );
        if let Some(note) = on_the_move(nic) {
            text += &format!("  if the VM moves:   {note}\n");
        }
    }
    text
}

/// What becomes of a NIC whose VM is migrated, where that is not what one expects.
fn on_the_move(nic: &NicConfig) -> Option<&'static str> {
    (nic.transport == Transport::VfioUser).then_some(
        "QEMU and cloud-hypervisor lose this NIC without a word: use virtio-net over vhost-user, or unplug it first \
         (hypernic help moving)",
    )
}

/// What a profile has made of NICs whose file says less.
fn profile(host: &HostConfig) -> String {
    if host.profile == Profile::SingleTenant {
        return String::new();
    }
    let mut text = format!("profile multi-tenant, {} tenants:\n", host.tenants());
    for nic in &host.nics {
        let storm = match &nic.vf {
            Some(vf) => Storm(vf.policy.storm),
            None => nic.guard.storm,
        };
        let rate = nic.guard.tx_rate;
        let rate = rate.map_or_else(|| "as its chip says".to_owned(), |rate| rate.to_string());
        let lock = if nic.vf.is_some() || nic.rules.is_some() {
            "by its chip"
        } else if nic.mac_lock {
            "on"
        } else {
            "OFF"
        };
        text += &format!(
            "  {}: tenant {}, port {}, mac-lock {lock}, tx-rate {rate}, storm {storm}\n",
            nic.name, nic.tenant, nic.port
        );
    }
    for switch in &host.switches {
        let ports: Vec<_> = switch.ports.iter().map(ToString::to_string).collect();
        text += &format!("  switch {}: ports {}\n", switch.name, ports.join(", "));
    }
    text
}

/// The same for programs: one JSON object.
pub fn banner_json(host: &HostConfig) -> serde_json::Value {
    let nics: Vec<_> = host
        .nics
        .iter()
        .map(|nic| {
            let mut value = serde_json::json!({
                "name": nic.name,
                "model": nic.model.name,
                "transport": nic.transport.to_string(),
                "mac": nic.mac.to_string(),
                "port": nic.port.to_string(),
            });
            if let Some(hints) = of_nic(nic) {
                value["qemu"] = hints.qemu.into();
                value["cloud_hypervisor"] = hints.cloud_hypervisor.into();
                if let Some(note) = on_the_move(nic) {
                    value["migration"] = note.into();
                }
            }
            value
        })
        .collect();
    serde_json::json!({ "serving": nics })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_absolute_shared_and_quoted() {
        let hints = for_socket(Path::new("/run/it's n0.sock"));
        assert!(hints.qemu.contains("share=on"));
        assert!(hints.qemu.contains(r#"'{"driver":"vfio-user-pci","socket":{"path":"/run/it'\''s n0.sock","type":"unix"},"x-msg-timeout":60000}'"#), "{}", hints.qemu);
        assert!(
            hints
                .cloud_hypervisor
                .ends_with(r"--user-device socket='/run/it'\''s n0.sock'")
        );
        assert!(
            for_socket(Path::new("n0.sock"))
                .cloud_hypervisor
                .contains("socket=/")
        );
    }
    #[test]
    fn hints_over_vhost_user_have_the_address_and_the_pairs() {
        let text = "[[nic]]\nname = \"n0\"\nmodel = \"virtio-net\"\ntransport = \"vhost-user\"\n\
                    socket-path = \"/run/a,b.sock\"\nmac = \"52:54:00:00:00:01\"\nqueue-pairs = 2\nport = \"null\"";
        let host = HostConfig::parse("h.toml".as_ref(), text).expect("good");
        let hints = of_nic(&host.nics[0]).expect("a path");
        assert_eq!(
            hints.qemu,
            format!(
                "{SHARED} -chardev socket,id=n0,path=/run/a,,b.sock,reconnect-ms=1000 -netdev \
                 vhost-user,id=n0-net,chardev=n0,queues=2 -device \
                 virtio-net-pci,netdev=n0-net,mac=52:54:00:00:00:01,mq=on,vectors=6"
            )
        );
        assert!(hints.cloud_hypervisor.ends_with(
            "--net vhost_user=true,socket=/run/a,b.sock,mac=52:54:00:00:00:01,num_queues=4"
        ));
        assert!(banner(&host).contains("  QEMU >= 9.2:       -object"));
        assert!(!banner(&host).contains("hypernic help moving"));
        assert_eq!(banner_json(&host)["serving"][0]["transport"], "vhost-user");
        assert_eq!(banner_json(&host)["serving"][0].get("migration"), None);
        let text = text
            .replace("vhost-user", "vfio-user")
            .replace("queue-pairs = 2\n", "");
        let host = HostConfig::parse("h.toml".as_ref(), &text).expect("good");
        assert!(banner(&host).contains("lose this NIC without a word"));
        assert!(banner_json(&host)["serving"][0]["migration"].is_string());
    }
}
