//! What context descriptors set up for the packets behind them (manual §3.3.6).

use datapath::offload::{L4, Places};

/// PAYLEN has 20 bits.
pub(crate) const PAYLEN: u32 = 0xf_ffff;

/// What a context descriptor sets up (manual §3.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub ipcss: u8,
    pub ipcso: u8,
    pub ipcse: u16,
    pub tucss: u8,
    pub tucso: u8,
    pub tucse: u16,
    pub hdrlen: u8,
    pub mss: u16,
    /// Bytes behind the headers, 20 bits; announced, not relied upon.
    pub paylen: u32,
    /// TUCMD.TCP: TCP rather than UDP.
    pub tcp: bool,
    /// TUCMD.IP: IPv4 rather than IPv6.
    pub ipv4: bool,
}

/// What is kept of the context descriptors that have come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contexts {
    /// The last with TSE and the last without: the chip keeps both.
    pub segmenting: Context,
    pub plain: Context,
}

impl Context {
    /// What it says about the packets that follow.
    #[inline]
    pub(crate) fn places(&self) -> Places {
        Places {
            ipcss: self.ipcss.into(),
            ipcso: self.ipcso.into(),
            ipcse: self.ipcse,
            tucss: self.tucss.into(),
            tucso: self.tucso.into(),
            tucse: self.tucse,
            hdrlen: self.hdrlen.into(),
            mss: self.mss,
            paylen: self.paylen,
            l4: if self.tcp { L4::Tcp } else { L4::Udp },
            ipv4: self.ipv4,
        }
    }
}
