//! How a guest's NIC is described to QEMU, on the command line or at run time.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Who plays the NIC.
#[derive(Debug, Clone)]
enum Backend {
    VfioUser {
        socket: PathBuf,
    },
    Qemu {
        model: String,
        netdev: Option<Netdev>,
    },
}

/// The network behind one of QEMU's own NIC models.
#[derive(Debug, Clone)]
pub enum Netdev {
    /// QEMU's user-mode network (10.0.2.0/24, DHCP); `options` are members added to the netdev's JSON.
    User {
        /// Further members, such as `{"tftp": "/dir"}`.
        options: Value,
    },
    /// An existing TAP device, opened by name; the guest must run where it exists ([`crate::GuestConfig::netns`]).
    Tap {
        /// The TAP's name.
        ifname: String,
    },
    /// QEMU's length-prefixed frames over a Unix stream socket.
    Stream {
        /// The socket.
        path: PathBuf,
        /// Whether QEMU listens (true) or connects.
        server: bool,
    },
    /// Any other netdev as QEMU's JSON, without its `id`.
    Json(Value),
}

/// One NIC of a guest: one of QEMU's own models, or a vfio-user device served by another process.
#[derive(Debug, Clone)]
pub struct Nic {
    backend: Backend,
    id: String,
    mac: Option<String>,
    properties: Map<String, Value>,
}

impl Nic {
    /// A device served on a vfio-user socket. `id` is QEMU's name for it.
    #[must_use]
    pub fn vfio_user(id: &str, socket: impl AsRef<Path>) -> Self {
        Self::new(
            id,
            Backend::VfioUser {
                socket: socket.as_ref().to_path_buf(),
            },
        )
    }

    /// One of QEMU's models (`e1000`, `igb`, `virtio-net-pci`, ...) with a network behind it.
    #[must_use]
    pub fn qemu(id: &str, model: &str, netdev: Option<Netdev>) -> Self {
        Self::new(
            id,
            Backend::Qemu {
                model: model.to_owned(),
                netdev,
            },
        )
    }

    fn new(id: &str, backend: Backend) -> Self {
        Self {
            backend,
            id: id.to_owned(),
            mac: None,
            properties: Map::new(),
        }
    }

    /// Sets the MAC address of a QEMU model; a vfio-user device has its own.
    #[must_use]
    pub fn mac(mut self, mac: &str) -> Self {
        self.mac = Some(mac.to_owned());
        self
    }

    /// Plugs into the named bus (`pcie.0`, `rp0`, ...).
    #[must_use]
    pub fn bus(self, bus: &str) -> Self {
        self.property("bus", json!(bus))
    }

    /// Sets the slot (and function) on the bus, such as `5` or `5.1`.
    #[must_use]
    pub fn addr(self, addr: &str) -> Self {
        self.property("addr", json!(addr))
    }

    /// Gives the device an option ROM: a file, or the bare name of one that comes with QEMU (`pxe-e1000.rom` is iPXE);
    /// an empty path takes away the model's own. vfio-user devices have none of their own.
    #[must_use]
    pub fn rom(self, file: impl AsRef<Path>) -> Self {
        self.property("romfile", json!(file.as_ref()))
    }

    /// The firmware's boot order, lowest first.
    #[must_use]
    pub fn boot_index(self, index: u32) -> Self {
        self.property("bootindex", json!(index))
    }

    /// Sets any property of QEMU's device.
    #[must_use]
    pub fn property(mut self, name: &str, value: Value) -> Self {
        self.properties.insert(name.to_owned(), value);
        self
    }

    /// QEMU's name for the device.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn has_bus(&self) -> bool {
        self.properties.contains_key("bus")
    }

    fn netdev_id(&self) -> String {
        format!("net-{}", self.id)
    }

    /// The netdev as QEMU's JSON, if the NIC has one.
    pub(crate) fn netdev_json(&self) -> Option<Value> {
        let Backend::Qemu {
            netdev: Some(netdev),
            ..
        } = &self.backend
        else {
            return None;
        };
        let mut value = match netdev {
            Netdev::User { options } => merge(json!({"type": "user"}), options),
            Netdev::Tap { ifname } => {
                json!({"type": "tap", "ifname": ifname, "script": "no", "downscript": "no"})
            }
            Netdev::Stream { path, server } => json!({
                "type": "stream", "server": server, "addr": {"type": "unix", "path": path}
            }),
            Netdev::Json(value) => value.clone(),
        };
        value["id"] = json!(self.netdev_id());
        Some(value)
    }

    /// The device as QEMU's JSON.
    pub(crate) fn device_json(&self) -> Value {
        let mut value = match &self.backend {
            Backend::VfioUser { socket } => json!({
                "driver": "vfio-user-pci", "socket": {"type": "unix", "path": socket}
            }),
            Backend::Qemu { model, netdev } => {
                let mut value = json!({"driver": model});
                if netdev.is_some() {
                    value["netdev"] = json!(self.netdev_id());
                }
                value
            }
        };
        value["id"] = json!(self.id);
        if let (Some(mac), Backend::Qemu { .. }) = (&self.mac, &self.backend) {
            value["mac"] = json!(mac);
        }
        merge(value, &Value::Object(self.properties.clone()))
    }
}

fn merge(mut value: Value, more: &Value) -> Value {
    for (key, member) in more.as_object().into_iter().flatten() {
        value[key] = member.clone();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vfio_user_as_qemu_wants_it() {
        let nic = Nic::vfio_user("n0", "/run/n0.sock")
            .bus("rp0")
            .boot_index(1);
        assert!(nic.netdev_json().is_none());
        assert_eq!(
            nic.device_json(),
            json!({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": "/run/n0.sock"},
                   "id": "n0", "bus": "rp0", "bootindex": 1})
        );
    }

    #[test]
    fn own_models_get_their_netdev_and_mac() {
        let netdev = Netdev::User {
            options: json!({"tftp": "/t"}),
        };
        let nic = Nic::qemu("n1", "e1000", Some(netdev)).mac("52:54:00:00:00:01");
        assert_eq!(
            nic.netdev_json(),
            Some(json!({"type": "user", "tftp": "/t", "id": "net-n1"}))
        );
        assert_eq!(
            nic.device_json(),
            json!({"driver": "e1000", "netdev": "net-n1", "id": "n1", "mac": "52:54:00:00:00:01"})
        );
        let bare = Nic::qemu("n2", "igb", None);
        assert!(bare.netdev_json().is_none());
        assert_eq!(bare.device_json(), json!({"driver": "igb", "id": "n2"}));
    }
}
