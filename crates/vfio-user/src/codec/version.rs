//! `VERSION`: two numbers and a JSON object.

use serde::{Deserialize, Serialize};

use super::malformed::Malformed;

/// Longest JSON text accepted. Real ones have about 200 bytes.
const MAX_JSON: usize = 64 << 10;

/// The `twin_socket` capability: a second socket for commands from server to client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TwinSocket {
    /// The sender can use one.
    #[serde(default)]
    pub supported: bool,
    /// In a reply, which of the message's file descriptors it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fd_index: Option<u32>,
}

/// The `migration` capability of the first version of migration, which clients still offer: how dirty pages are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationLimits {
    /// Bytes that a bit of a bitmap stands for, at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgsize: Option<u64>,
    /// Bytes of a bitmap, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bitmap_size: Option<u64>,
}

/// Capabilities of one side. Absent ones have the specification's defaults; unknown ones are
/// ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// File descriptors the sender takes in one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_msg_fds: Option<u32>,
    /// Bytes of data the sender takes in one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_data_xfer_size: Option<u32>,
    /// DMA regions that may exist at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_dma_maps: Option<u32>,
    /// Page sizes, or-ed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgsizes: Option<u64>,
    /// The twin socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub twin_socket: Option<TwinSocket>,
    /// Dirty pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationLimits>,
    /// `REGION_WRITE_MULTI` may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_multiple: Option<bool>,
}

#[derive(Default, Serialize, Deserialize)]
struct Document {
    #[serde(default)]
    capabilities: Capabilities,
}

/// `VERSION`, request and reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Major version; must agree.
    pub major: u16,
    /// Minor version; the lower one counts.
    pub minor: u16,
    /// What the sender can do.
    pub capabilities: Capabilities,
}

impl Version {
    /// Reads a payload.
    ///
    /// # Errors
    /// The payload is short, or its text is not NUL-terminated JSON of the right shape.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let (head, text) = payload
            .split_first_chunk::<4>()
            .ok_or(Malformed("Version: the payload is too short"))?;
        let capabilities = match text {
            [] => Capabilities::default(),
            _ if text.len() > MAX_JSON => {
                return Err(Malformed("Version: the text is too long"));
            }
            [text @ .., 0] => {
                let document: Document = serde_json::from_slice(text)
                    .map_err(|_| Malformed("Version: the text is not the JSON expected"))?;
                document.capabilities
            }
            _ => return Err(Malformed("Version: the text does not end with NUL")),
        };
        Ok(Self {
            major: u16::from_ne_bytes([head[0], head[1]]),
            minor: u16::from_ne_bytes([head[2], head[3]]),
            capabilities,
        })
    }

    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.major.to_ne_bytes());
        out.extend_from_slice(&self.minor.to_ne_bytes());
        let document = Document {
            capabilities: self.capabilities,
        };
        // Plain integers and booleans always have a JSON form; without one there is no text, which
        // means the defaults.
        if serde_json::to_writer(&mut out, &document).is_ok() {
            out.push(0);
        } else {
            out.truncate(4);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &[u8]) -> Vec<u8> {
        [&[0, 0, 1, 0], text].concat()
    }

    #[test]
    fn what_qemu_sends_is_understood() {
        let text = b"{\"capabilities\": {\"migration\": {\"pgsize\": 4096, \"max_bitmap_size\": \
            268435456}, \"write_multiple\": true, \"max_msg_fds\": 16, \"max_data_xfer_size\": \
            1048576, \"max_dma_maps\": 65535, \"pgsizes\": 4096}}\0";
        let version = Version::parse(&payload(text)).unwrap();
        assert_eq!(version.capabilities.max_msg_fds, Some(16));
        assert_eq!(version.capabilities.write_multiple, Some(true));
        assert_eq!(version.capabilities.twin_socket, None);
        let limits = version.capabilities.migration;
        assert_eq!(limits.and_then(|m| m.max_bitmap_size), Some(1 << 28));
    }

    #[test]
    fn the_text_may_be_absent_but_not_wrong() {
        assert!(Version::parse(&payload(b"")).is_ok());
        assert!(Version::parse(&payload(b"{}\0")).is_ok());
        for bad in [
            &b"{}"[..],
            b"\0",
            b"{\0",
            b"[]\0x",
            b"{\"capabilities\": 3}\0",
            b"{\"capabilities\": {\"max_msg_fds\": -1}}\0",
            b"{\"capabilities\": {\"max_msg_fds\": \"x\"}}\0",
            b"\xff\xff\0",
        ] {
            assert!(Version::parse(&payload(bad)).is_err(), "{bad:?}");
        }
        assert!(Version::parse(&[0, 0, 0]).is_err());
        let deep = payload(&[vec![b'['; 60000], vec![0]].concat());
        assert!(Version::parse(&deep).is_err());
    }

    #[test]
    fn a_reply_always_has_the_capabilities_object() {
        // The `vfio_user` crate's client refuses a reply without it.
        let bytes = Version::default().to_bytes();
        assert_eq!(&bytes[4..], b"{\"capabilities\":{}}\0");
    }
}
