//! What can be chosen of a user network, and what is wrong with a choice.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Largest IP packet in either direction, in bytes.
pub const MTU: usize = 1500;

/// A user-mode network. [`UserConfig::default`] needs no set-up by the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserConfig {
    /// The network's address: 10.0.2.0. The host is at `.2`, the name server at `.3`, guests from
    /// `.15` on.
    pub network: Ipv4Addr,
    /// Bits of the network, 8 to 27.
    pub prefix: u8,
    /// Whether guests also get IPv6 addresses (fec0::/64).
    pub ipv6: bool,
    /// Whether guests are kept from everything but the DHCP, DNS and TFTP here and the forwarded
    /// ports.
    pub restrict: bool,
    /// Whether the host's address leads to the host's own loopback services.
    pub host_loopback: bool,
    /// Most connections, UDP and ping flows at once: each is a socket of the network's process.
    pub flows: usize,
    /// Most of them that one NIC has, by its MAC address.
    pub nic_flows: usize,
    /// Name the DHCP server gives to guests.
    pub hostname: Option<String>,
    /// Directory served read-only by TFTP at the host address.
    pub tftp: Option<PathBuf>,
    /// File name in it that DHCP tells guests to boot.
    pub bootfile: Option<String>,
    /// Ports of the host that lead to a guest.
    pub forwards: Vec<Forward>,
}

impl Default for UserConfig {
    fn default() -> Self {
        Self {
            network: Ipv4Addr::new(10, 0, 2, 0),
            prefix: 24,
            ipv6: true,
            restrict: false,
            host_loopback: true,
            flows: 1024,
            nic_flows: 512,
            hostname: None,
            tftp: None,
            bootfile: None,
            forwards: Vec::new(),
        }
    }
}

/// The protocol of a [`Forward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of the host that leads to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Where the host listens.
    pub host: SocketAddrV4,
    /// The guest; the first one by default.
    pub guest: Option<Ipv4Addr>,
    /// Its port.
    pub guest_port: u16,
}

/// The addresses of a network, worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The network itself.
    pub network: Ipv4Addr,
    /// Its mask.
    pub mask: Ipv4Addr,
    /// The host and router.
    pub host: Ipv4Addr,
    /// The name server.
    pub dns: Ipv4Addr,
    /// The first guest.
    pub dhcp_start: Ipv4Addr,
}

impl UserConfig {
    /// The addresses that follow from `network` and `prefix`.
    ///
    /// # Errors
    /// [`UserError::Network`] when they are no network, or one too small.
    pub fn addresses(&self) -> Result<Addresses, UserError> {
        let bad = UserError::Network {
            network: self.network,
            prefix: self.prefix,
        };
        if !(8..=27).contains(&self.prefix) {
            return Err(bad);
        }
        let mask = u32::MAX << (32 - self.prefix);
        let network = u32::from(self.network);
        if network & !mask != 0 {
            return Err(bad);
        }
        Ok(Addresses {
            network: self.network,
            mask: mask.into(),
            host: (network + 2).into(),
            dns: (network + 3).into(),
            dhcp_start: (network + 15).into(),
        })
    }
}

/// Why a user-mode network could not be made.
#[derive(Debug, Error)]
pub enum UserError {
    /// The program has none.
    #[error(
        "this build of hypernic has no user network (a static program has none); use a TAP, or passt by stream:PATH"
    )]
    NotBuilt,
    /// The addresses make no sense.
    #[error(
        "{network}/{prefix} cannot be a user network: give the first address of a network of 8 \
         to 27 bits, such as 10.0.2.0/24"
    )]
    Network {
        /// As configured.
        network: Ipv4Addr,
        /// As configured.
        prefix: u8,
    },
    /// A text with a NUL in it.
    #[error("the {what} of the user network contains a NUL character: remove it")]
    Text {
        /// Which one.
        what: &'static str,
    },
    /// The TFTP directory cannot be used.
    #[error("cannot serve {} by TFTP: {source}; give a directory this user can read", path.display())]
    Tftp {
        /// As configured.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A port of the host cannot be taken.
    #[error(
        "cannot forward {} port {host}: {source}; free the port, or choose another (below 1024 \
         needs privileges)",
        match protocol { Protocol::Tcp => "TCP", Protocol::Udp => "UDP" }
    )]
    Forward {
        /// As configured.
        protocol: Protocol,
        /// As configured.
        host: SocketAddrV4,
        /// What the system said.
        source: io::Error,
    },
    /// libslirp refused.
    #[error("libslirp refused to start: install libslirp 4.2 or later (package libslirp0)")]
    Library,
    /// Its process says that it cannot be.
    #[error("{0}")]
    Refused(String),
    /// The process that starts those of networks does not.
    #[error("no process can be started for it ({0}); start the daemon again")]
    Launcher(io::Error),
    /// The system is out of something.
    #[error("cannot set up the user network: {0}")]
    System(#[from] io::Error),
}
