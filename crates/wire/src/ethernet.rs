//! Ethernet frames and their tags.

use thiserror::Error;

use crate::mac::MacAddr;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET_HEADER: usize = 14;
/// Bytes of one 802.1Q tag.
pub const VLAN_TAG: usize = 4;

/// A tag's control information (IEEE 802.1Q §9.6).
pub mod tci {
    /// The VLAN.
    pub const VLAN_ID: u16 = 0xfff;
    /// The bit between VLAN and priority: CFI, later DEI.
    pub const CFI: u16 = 1 << 12;
    /// The priority is above.
    pub const PRIORITY_SHIFT: u32 = 13;
}

/// The type field of a frame (or its length, below 0x600).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// 802.1Q tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// 802.1ad service tag.
    pub const QINQ: EtherType = EtherType(0x88a8);

    /// Whether a tag follows rather than the payload.
    pub const fn is_tag(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::QINQ)
    }

    /// Whether it is an 802.3 length.
    pub const fn is_length(self) -> bool {
        self.0 < 0x600
    }
}

/// Bytes too short for the header they should begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("frame of {len} bytes is too short for an Ethernet header of {need}")]
pub struct Truncated {
    /// Bytes there are.
    pub len: usize,
    /// Bytes there would have to be.
    pub need: usize,
}

/// A view of an Ethernet frame, or of a copy of its first bytes.
///
/// ```
/// use hypernic_wire::{EtherType, Ethernet, MacAddr};
/// let mut bytes = [0u8; 60];
/// bytes[..6].copy_from_slice(MacAddr::BROADCAST.as_bytes());
/// bytes[12..14].copy_from_slice(&[0x08, 0x06]);
/// let frame = Ethernet::new_checked(&bytes[..])?;
/// assert_eq!(frame.dst(), MacAddr::BROADCAST);
/// assert_eq!(frame.ether_type(), EtherType::ARP);
/// # Ok::<(), hypernic_wire::Truncated>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a> {
    header: &'a [u8; ETHERNET_HEADER],
    rest: &'a [u8],
}

impl<'a> Ethernet<'a> {
    /// A view of `bytes`, if they hold all of the header: 14 bytes, 18 when tagged.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let short = |need| Truncated {
            len: bytes.len(),
            need,
        };
        let (header, rest) = bytes.split_first_chunk().ok_or(short(ETHERNET_HEADER))?;
        let frame = Ethernet { header, rest };
        if frame.outer_type().is_tag() && rest.len() < VLAN_TAG {
            return Err(short(ETHERNET_HEADER + VLAN_TAG));
        }
        Ok(frame)
    }

    /// To whom.
    pub fn dst(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }

    /// From whom.
    pub fn src(&self) -> MacAddr {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }

    /// The type field next to the addresses: that of the outer tag if there is one.
    pub fn outer_type(&self) -> EtherType {
        EtherType(u16::from_be_bytes([self.header[12], self.header[13]]))
    }

    /// Tag control information of the outer tag.
    pub fn vlan(&self) -> Option<u16> {
        if !self.outer_type().is_tag() {
            return None;
        }
        self.rest.first_chunk().map(|tci| u16::from_be_bytes(*tci))
    }

    /// The type behind the outer tag (which may be another tag), or the only one.
    pub fn ether_type(&self) -> EtherType {
        match (self.outer_type().is_tag(), self.rest.get(2..VLAN_TAG)) {
            (true, Some(inner)) => EtherType(u16::from_be_bytes([inner[0], inner[1]])),
            _ => self.outer_type(),
        }
    }

    /// What follows the header and its outer tag.
    pub fn payload(&self) -> &'a [u8] {
        match self.vlan() {
            Some(_) => self.rest.get(VLAN_TAG..).unwrap_or(&[]),
            None => self.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_lengths_and_tags_are_told_apart() {
        assert!(EtherType(0x05ff).is_length() && !EtherType(0x0600).is_length());
        assert!(EtherType::VLAN.is_tag() && EtherType::QINQ.is_tag());
        assert!(!EtherType(0x0800).is_tag());
    }

    #[test]
    fn tags_are_seen() {
        let mut bytes = [0u8; 18];
        bytes[0] = 2;
        bytes[6] = 4;
        bytes[12..].copy_from_slice(&[0x81, 0x00, 0x60, 0x07, 0x08, 0x00]);
        let frame = Ethernet::new_checked(&bytes).expect("long enough");
        assert_eq!(frame.dst(), MacAddr([2, 0, 0, 0, 0, 0]));
        assert_eq!(frame.src(), MacAddr([4, 0, 0, 0, 0, 0]));
        assert_eq!(frame.vlan(), Some(0x6007));
        assert_eq!(frame.ether_type(), EtherType::IPV4);
        assert!(frame.payload().is_empty());
    }

    #[test]
    fn the_gate_is_before_the_last_byte_of_the_header() {
        assert_eq!(
            Ethernet::new_checked(&[0; 13]).map(|_| ()),
            Err(Truncated { len: 13, need: 14 })
        );
        let mut tagged = [0u8; 17];
        tagged[12] = 0x81;
        assert_eq!(
            Ethernet::new_checked(&tagged).map(|_| ()),
            Err(Truncated { len: 17, need: 18 })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_seen_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(frame) = Ethernet::new_checked(&bytes) {
                let header = bytes.len() - frame.payload().len();
                prop_assert_eq!(header, if frame.vlan().is_some() { 18 } else { 14 });
                let last = [bytes[header - 2], bytes[header - 1]];
                prop_assert_eq!(frame.ether_type().0, u16::from_be_bytes(last));
            }
        }
    }
}
