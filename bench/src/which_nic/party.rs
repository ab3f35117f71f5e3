//! The NICs that are compared.

use std::path::Path;

use rig::{Netdev, Nic};
use serde_json::json;

/// Who emulates a NIC, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ours over vfio-user: the model, whether it is a VF, whether its doorbells are memory.
    Ours {
        /// As in the configuration.
        model: &'static str,
        /// A VF of it, not the NIC itself.
        vf: bool,
        /// `doorbell = "page"`.
        pages: bool,
    },
    /// Our virtio-net over vhost-user.
    VhostUser,
    /// QEMU's virtio-net with the host's kernel behind it (vhost-net).
    Vhost,
    /// QEMU's virtio-net with passt behind it, which makes sockets of the host of what the guest sends.
    Passt,
    /// QEMU's own model; without segments to receive if so.
    Qemu {
        /// QEMU's name for it.
        model: &'static str,
        /// Whether the host may hand over segments to be merged.
        segments: bool,
    },
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Party {
    /// In raw data and plots.
    pub id: &'static str,
    /// In tables.
    pub title: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Whom it has to keep up with: an id.
    pub like: Option<&'static str>,
}

const fn ours(
    id: &'static str,
    title: &'static str,
    model: &'static str,
    like: &'static str,
) -> Party {
    let kind = Kind::Ours {
        model,
        vf: false,
        pages: false,
    };
    Party {
        id,
        title,
        kind,
        like: Some(like),
    }
}

const fn chip(id: &'static str, title: &'static str, vf: bool, pages: bool) -> Party {
    let model = "82576";
    Party {
        id,
        title,
        kind: Kind::Ours { model, vf, pages },
        like: Some("qemu-igb"),
    }
}

const fn qemu(id: &'static str, title: &'static str, model: &'static str, segments: bool) -> Party {
    Party {
        id,
        title,
        kind: Kind::Qemu { model, segments },
        like: None,
    }
}

/// All of them, ours first.
pub const PARTIES: [Party; 14] = [
    ours("82540em", "hypernic 82540EM", "82540em", "qemu-e1000"),
    chip("82576", "hypernic 82576", false, false),
    chip(
        "82576-pages",
        "hypernic 82576, `doorbell = \"page\"`",
        false,
        true,
    ),
    chip("vf", "hypernic 82576 VF", true, false),
    chip(
        "vf-pages",
        "hypernic 82576 VF, `doorbell = \"page\"`",
        true,
        true,
    ),
    ours("rtl8168", "hypernic RTL8168C", "r8168", "qemu-e1000"),
    ours(
        "virtio-vfio",
        "hypernic virtio-net, vfio-user",
        "virtio-net",
        "qemu-virtio",
    ),
    Party {
        id: "virtio-vhost",
        title: "hypernic virtio-net, vhost-user",
        kind: Kind::VhostUser,
        like: Some("qemu-virtio"),
    },
    qemu("qemu-e1000", "QEMU e1000", "e1000", true),
    qemu("qemu-igb", "QEMU igb", "igb", true),
    qemu("qemu-virtio", "QEMU virtio-net", "virtio-net-pci", true),
    qemu(
        "qemu-virtio-rx1500",
        "QEMU virtio-net that receives no segments",
        "virtio-net-pci",
        false,
    ),
    Party {
        id: "qemu-vhost",
        title: "QEMU virtio-net, `vhost=on`",
        kind: Kind::Vhost,
        like: None,
    },
    Party {
        id: "qemu-passt",
        title: "QEMU virtio-net, passt",
        kind: Kind::Passt,
        like: None,
    },
];

/// The door to the kernel's vhost-net.
const VHOST: &str = "/dev/vhost-net";

/// Where a party is in the list.
pub fn index(id: &str) -> Option<usize> {
    PARTIES.iter().position(|party| party.id == id)
}

impl Party {
    /// The TAP of a party.
    pub fn tap(at: usize) -> String {
        format!("t{at}")
    }

    /// Its NIC's address.
    pub fn mac(at: usize) -> String {
        format!("52:54:00:00:0a:{at:02x}")
    }

    /// Whether it is served by our daemon.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Ours { .. } | Kind::VhostUser)
    }

    /// Why this machine does not have it; passt is asked for elsewhere.
    pub fn refused(&self) -> Option<String> {
        let missing = self.kind == Kind::Vhost && !Path::new(VHOST).exists();
        missing.then(|| format!("there is no `{VHOST}`"))
    }

    /// Whether it does what a scene asks for. What comes for a guest behind passt comes to a port of the host's, not to its
    /// address.
    pub fn does(&self, scene: &str) -> bool {
        self.kind != Kind::Passt || scene != "small_rx"
    }

    /// The daemon's configuration for it; `None` for QEMU's own.
    pub fn config(&self, at: usize, socket: &Path) -> Option<String> {
        let (tap, mac) = (Self::tap(at), Self::mac(at));
        let head = |model: &str| {
            format!("[[nic]]\nname = \"n{at}\"\nport = \"tap:{tap}\"\nmodel = \"{model}\"\n")
        };
        let path = format!("socket-path = {socket:?}\nmac = \"{mac}\"\n");
        let text = match self.kind {
            Kind::Qemu { .. } | Kind::Vhost | Kind::Passt => return None,
            Kind::VhostUser => head("virtio-net") + &path + "transport = \"vhost-user\"\n",
            Kind::Ours { model, vf, pages } => {
                let doorbell = if pages { "doorbell = \"page\"\n" } else { "" };
                let rest = if vf {
                    format!("vfs = 1\n{doorbell}[[nic.vf]]\nindex = 0\n{path}")
                } else {
                    path + doorbell
                };
                head(model) + &rest
            }
        };
        Some(text)
    }

    /// The guest's side of it, and what else QEMU has to be told.
    pub fn nic(&self, at: usize, socket: &Path) -> (Nic, Vec<String>) {
        let id = format!("n{at}");
        let mac = Self::mac(at);
        match self.kind {
            Kind::Ours { .. } => (Nic::vfio_user(&id, socket), Vec::new()),
            Kind::VhostUser => {
                let front = format!("front{at}");
                let netdev = json!({"type": "vhost-user", "chardev": front});
                let nic = Nic::qemu(&id, "virtio-net-pci", Some(Netdev::Json(netdev)));
                let chardev = format!("socket,id={front},path={}", socket.display());
                (nic.mac(&mac).rom(""), vec!["-chardev".to_owned(), chardev])
            }
            Kind::Vhost => {
                let tap = json!({
                    "type": "tap", "ifname": Self::tap(at), "script": "no", "downscript": "no", "vhost": true,
                });
                let nic = Nic::qemu(&id, "virtio-net-pci", Some(Netdev::Json(tap)));
                (nic.mac(&mac).rom(""), Vec::new())
            }
            Kind::Passt => {
                let stream = Netdev::Stream {
                    path: socket.to_owned(),
                    server: false,
                };
                let nic = Nic::qemu(&id, "virtio-net-pci", Some(stream));
                (nic.mac(&mac).rom(""), Vec::new())
            }
            Kind::Qemu { model, segments } => {
                let tap = Netdev::Tap {
                    ifname: Self::tap(at),
                };
                let nic = Nic::qemu(&id, model, Some(tap)).mac(&mac).rom("");
                // Without these a host may not hand over segments to be merged, nor may it cut what it has.
                let off = ["guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"];
                let off = off.iter().filter(|_| !segments);
                let nic = off.fold(nic, |nic, name| nic.property(name, json!(false)));
                (nic, Vec::new())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_each_has_to_keep_up_with_is_there_and_not_ours() {
        for party in PARTIES {
            assert_eq!(party.is_ours(), party.like.is_some(), "{}", party.id);
            if let Some(like) = party.like {
                assert!(!PARTIES[index(like).unwrap()].is_ours());
            }
        }
    }
}
