//! Who is on the networks of a peer.

/// The peer's station address.
pub const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0xfe, 0xed, 0x01];

/// The peer's IPv4 address on the network without tags; see [`address`].
pub const IP: &str = "10.9.0.1";

/// The peer's IPv6 address on the network without tags.
pub const IP6: &str = "fd09::1";

/// An IPv4 address on the network of a VLAN (`None`: without tags): host 1 is the peer.
#[must_use]
pub fn address(tag: Option<u16>, host: u8) -> [u8; 4] {
    [10, 9, tag.map_or(0, |t| t as u8), host]
}

/// Who is pinged.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its station address.
    pub mac: [u8; 6],
    /// Its VLAN.
    pub tag: Option<u16>,
    /// Its number on that network.
    pub host: u8,
}
