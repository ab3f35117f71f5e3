//! What a context descriptor sets up for the packets that follow.

use datapath::offload::{L4, Places};

/// What a context descriptor says (§7.2.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// Bytes of the Ethernet header with tags in the packet, 7 bits.
    pub maclen: u8,
    /// Bytes from there to the transport, 9 bits.
    pub iplen: u16,
    /// Bytes of the transport's header.
    pub l4len: u8,
    pub mss: u16,
    /// Tag of packets with VLE.
    pub vlan: u16,
    pub l4: L4,
    pub ipv4: bool,
}

impl Context {
    /// Where headers and checksums of a packet with `paylen` bytes behind its headers are. Nothing of
    /// it is looked up in the packet.
    pub(crate) fn places(&self, paylen: u32) -> Places {
        let ip = u16::from(self.maclen);
        let l4 = ip + self.iplen;
        Places {
            ipcss: ip,
            ipcso: ip + 10,
            ipcse: l4.saturating_sub(1),
            tucss: l4,
            tucso: l4
                + match self.l4 {
                    L4::Tcp => 16,
                    L4::Udp => 6,
                    L4::Sctp => 8,
                },
            tucse: 0,
            hdrlen: l4 + u16::from(self.l4len),
            mss: self.mss,
            paylen,
            l4: self.l4,
            ipv4: self.ipv4,
        }
    }
}
