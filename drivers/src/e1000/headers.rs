//! Where the headers of a frame are, and what a driver puts into them before it asks for offload.

use super::config::DriverError;
use super::desc::{Context, popts, tucmd};

/// What the device shall do to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxOffload {
    /// Nothing: legacy descriptors.
    #[default]
    None,
    /// Nothing, but data descriptors.
    Extended,
    /// A legacy descriptor's checksum: the sum from byte `start` to the end, stored at `store`.
    LegacySum {
        /// CSS.
        start: u8,
        /// CSO.
        store: u8,
    },
    /// Checksums by context.
    Sums {
        /// The IPv4 header's; IPv6 has none.
        ip: bool,
        /// TCP's or UDP's.
        l4: bool,
    },
    /// TCP segmentation.
    Tso {
        /// Payload bytes per segment.
        mss: u16,
    },
}

impl TxOffload {
    pub(super) fn ip_sum(self) -> bool {
        matches!(self, Self::Sums { ip: true, .. } | Self::Tso { .. })
    }

    pub(super) fn l4_sum(self) -> bool {
        matches!(self, Self::Sums { l4: true, .. } | Self::Tso { .. })
    }

    pub(super) fn wants_context(self) -> bool {
        self.ip_sum() || self.l4_sum()
    }
}

/// Longest headers a driver patches: Ethernet, two tags, IPv4 and TCP with all options.
pub(super) const MAX_HEADERS: usize = 14 + 8 + 60 + 60;

/// Offsets of the headers of a TCP or UDP frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// IP header.
    pub l3: usize,
    /// TCP or UDP header.
    pub l4: usize,
    /// End of all headers.
    pub end: usize,
    /// IPv4 rather than IPv6.
    pub ipv4: bool,
    /// TCP rather than UDP.
    pub tcp: bool,
}

impl Layout {
    /// Finds the headers, behind up to two VLAN tags. `None` for anything but TCP and UDP
    /// directly over IP.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let mut at = 12;
        while matches!(half(at)?, 0x8100 | 0x88a8) && at < 20 {
            at += 4;
        }
        let l3 = at + 2;
        let (ipv4, protocol, l4) = match half(at)? {
            0x0800 => {
                let words = usize::from(frame.get(l3)? & 0xf);
                (true, *frame.get(l3 + 9)?, l3 + 4 * words.max(5))
            }
            0x86dd => (false, *frame.get(l3 + 6)?, l3 + 40),
            _ => return None,
        };
        let (tcp, end) = match protocol {
            6 => (true, l4 + 4 * usize::from(frame.get(l4 + 12)? >> 4).max(5)),
            17 => (false, l4 + 8),
            _ => return None,
        };
        (end <= frame.len()).then_some(Self {
            l3,
            l4,
            end,
            ipv4,
            tcp,
        })
    }

    /// Offset of the L4 checksum.
    pub fn l4_checksum(&self) -> usize {
        self.l4 + if self.tcp { 16 } else { 6 }
    }

    /// Sum of the pseudo-header over `l4_len` bytes, not complemented: what the hardware wants
    /// to find in the checksum field (3.5.9; the seed lies in the packet).
    pub fn pseudo_sum(&self, headers: &[u8], l4_len: u32) -> u16 {
        let addresses = if self.ipv4 {
            &headers[self.l3 + 12..self.l3 + 20]
        } else {
            &headers[self.l3 + 8..self.l3 + 40]
        };
        let mut sum = if self.tcp { 6u32 } else { 17 } + (l4_len >> 16) + (l4_len & 0xffff);
        for pair in addresses.chunks_exact(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

/// What the device is told of a packet before its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    /// The context.
    pub context: Context,
    /// Packet options of the data descriptors.
    pub popts: u8,
    /// Bytes of the patched headers.
    pub len: usize,
}

/// Patches a copy of the headers for the offload and describes them to the device. `frame` needs to
/// hold no more than the headers of a frame of `total` bytes.
pub(super) fn prepare(
    frame: &[u8],
    total: usize,
    offload: TxOffload,
    headers: &mut [u8; MAX_HEADERS],
) -> Result<Prepared, DriverError> {
    let layout = Layout::of(frame).ok_or(DriverError::Frame("not TCP or UDP over IP"))?;
    if layout.end > MAX_HEADERS || layout.end > total {
        return Err(DriverError::Frame("headers too long"));
    }
    let headers = &mut headers[..layout.end];
    headers.copy_from_slice(&frame[..layout.end]);
    let l4_checksum = layout.l4_checksum();
    let mut context = Context {
        ipcss: layout.l3 as u8,
        ipcso: (layout.l3 + 10) as u8,
        ipcse: if layout.ipv4 { layout.l4 as u16 - 1 } else { 0 },
        tucss: layout.l4 as u8,
        tucso: l4_checksum as u8,
        ..Context::default()
    };
    if layout.tcp {
        context.tucmd |= tucmd::TCP;
    }
    if layout.ipv4 {
        context.tucmd |= tucmd::IP;
    }
    let l4_len = match offload {
        TxOffload::Tso { mss } => {
            if !layout.tcp {
                return Err(DriverError::Frame("only TCP can be segmented"));
            }
            context.tucmd |= tucmd::TSE;
            context.mss = mss;
            context.hdrlen = layout.end as u8;
            context.paylen = (total - layout.end) as u32;
            // The device fills the lengths in, per segment, and adds them to the seed.
            let (at, len) = if layout.ipv4 { (2, 2) } else { (4, 2) };
            headers[layout.l3 + at..layout.l3 + at + len].fill(0);
            0
        }
        _ => (total - layout.l4) as u32,
    };
    let mut options = 0;
    if layout.ipv4 && offload.ip_sum() {
        options |= popts::IXSM;
        headers[layout.l3 + 10..layout.l3 + 12].fill(0);
    }
    if offload.l4_sum() {
        options |= popts::TXSM;
        let seed = layout.pseudo_sum(headers, l4_len);
        headers[l4_checksum..l4_checksum + 2].copy_from_slice(&seed.to_be_bytes());
    }
    Ok(Prepared {
        context,
        popts: options,
        len: layout.end,
    })
}
