//! What can be chosen.

use crate::regs::feature as f;

/// How a device is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Station address.
    pub mac: [u8; 6],
    /// Largest packet that the driver may send, without Ethernet header; none is offered if `None`.
    pub mtu: Option<u16>,
    /// Entries of the receive and of the transmit ring, if the driver takes no fewer.
    pub ring: u16,
    /// The cable is in.
    pub link: bool,
    /// Features that are not offered.
    pub without: u64,
}

/// All features there are.
pub const FEATURES: u64 = f::CSUM
    | f::GUEST_CSUM
    | f::CTRL_GUEST_OFFLOADS
    | f::MAC
    | f::GUEST_TSO4
    | f::GUEST_TSO6
    | f::GUEST_ECN
    | f::HOST_TSO4
    | f::HOST_TSO6
    | f::HOST_ECN
    | f::MRG_RXBUF
    | f::STATUS
    | f::CTRL_VQ
    | f::CTRL_RX
    | f::CTRL_VLAN
    | f::CTRL_RX_EXTRA
    | f::GUEST_ANNOUNCE
    | f::CTRL_MAC_ADDR
    | f::INDIRECT_DESC
    | f::EVENT_IDX
    | f::VERSION_1
    | f::ACCESS_PLATFORM
    | f::PACKED
    | f::IN_ORDER
    | f::NOTIFICATION_DATA
    | f::RING_RESET
    | f::SPEED_DUPLEX;

impl Config {
    /// The usual device with this address.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            mtu: None,
            ring: 1024,
            link: true,
            without: 0,
        }
    }

    /// What it offers.
    pub fn features(&self) -> u64 {
        let mtu = if self.mtu.is_some() { f::MTU } else { 0 };
        (FEATURES | mtu) & !self.without
    }
}
