//! Capabilities of the extended space as bytes with their write masks.

use crate::ecap::ExtendedCapability;
use crate::sriov::Sriov;

/// Extended capability ids (PCI Code and ID Assignment §3).
mod id {
    pub const AER: u16 = 0x01;
    pub const SERIAL: u16 = 0x03;
    pub const ARI: u16 = 0x0e;
}

/// An entry of the list of extended capabilities (PCI Express Base 3.0 §7.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extended {
    /// Advanced error reporting (§7.10).
    Aer(Aer),
    /// Device serial number (§7.12).
    Serial(Serial),
    /// Alternative routing-ID interpretation (§7.23).
    Ari(Ari),
    /// Single root I/O virtualization (SR-IOV 1.1 §3.3).
    Sriov(Sriov),
    /// Anything, as bytes.
    Raw(ExtendedCapability),
}

impl From<Aer> for Extended {
    fn from(aer: Aer) -> Self {
        Self::Aer(aer)
    }
}

impl From<Serial> for Extended {
    fn from(serial: Serial) -> Self {
        Self::Serial(serial)
    }
}

impl From<Ari> for Extended {
    fn from(ari: Ari) -> Self {
        Self::Ari(ari)
    }
}

impl From<Sriov> for Extended {
    fn from(sriov: Sriov) -> Self {
        Self::Sriov(sriov)
    }
}

impl From<ExtendedCapability> for Extended {
    fn from(raw: ExtendedCapability) -> Self {
        Self::Raw(raw)
    }
}

impl Extended {
    pub(crate) fn encode(&self) -> ExtendedCapability {
        match self {
            Self::Aer(aer) => aer.encode(),
            Self::Serial(serial) => serial.encode(),
            Self::Ari(ari) => ari.encode(),
            Self::Sriov(sriov) => sriov.encode(),
            Self::Raw(raw) => raw.clone(),
        }
    }

    pub(crate) fn valid(&self) -> bool {
        match self {
            Self::Aer(_) | Self::Serial(_) | Self::Ari(_) => true,
            Self::Sriov(sriov) => sriov.valid(),
            Self::Raw(raw) => raw.valid(),
        }
    }
}

/// Advanced error reporting of an endpoint: errors can be masked, graded and cleared. Every reset
/// starts it anew, for there is no auxiliary power here that would keep the sticky bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aer;

impl Aer {
    /// The uncorrectable errors an endpoint may report (§7.10.2): data link protocol, poisoned TLP,
    /// flow control, completion timeout, completer abort, unexpected completion, receiver overflow,
    /// malformed TLP, ECRC, unsupported request.
    const UNCORRECTABLE: u32 = 0x001f_f010;
    /// Those that are fatal from the start (§7.10.4): data link protocol, flow control, receiver
    /// overflow, malformed TLP.
    const FATAL: u32 = 0x0006_2010;
    /// The correctable errors (§7.10.5), advisory non-fatal included.
    const CORRECTABLE: u32 = 0x0000_31c1;
    /// Advisory non-fatal errors start masked (§7.10.6).
    const ADVISORY: u32 = 1 << 13;

    fn encode(self) -> ExtendedCapability {
        let mut cap = ExtendedCapability::zero(id::AER, 0x2c);
        cap.clears(0x04, Self::UNCORRECTABLE);
        cap.u32(0x08, 0, Self::UNCORRECTABLE);
        cap.u32(0x0c, Self::FATAL, Self::UNCORRECTABLE);
        cap.clears(0x10, Self::CORRECTABLE);
        cap.u32(0x14, Self::ADVISORY, Self::CORRECTABLE);
        cap
    }
}

/// Device serial number: 64 bits that no other device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Serial(pub u64);

impl Serial {
    /// Bytes of the number, and where they begin.
    pub(crate) const LEN: usize = 8;
    pub(crate) const AT: usize = 4;

    /// That of a card with this address, as Intel's have it: an EUI-64, with FF FF between the
    /// maker's half and the card's.
    pub const fn of_mac(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([a, b, c, 0xff, 0xff, d, e, f]))
    }

    fn encode(self) -> ExtendedCapability {
        let mut cap = ExtendedCapability::zero(id::SERIAL, Self::AT + Self::LEN);
        cap.u32(4, self.0 as u32, 0);
        cap.u32(8, (self.0 >> 32) as u32, 0);
        cap
    }
}

/// Alternative routing-ID interpretation: the function after this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ari {
    /// The next function of the device; 0 for the last one.
    pub next: u8,
}

impl Ari {
    fn encode(self) -> ExtendedCapability {
        let mut cap = ExtendedCapability::zero(id::ARI, 8);
        cap.u16(4, u16::from(self.next) << 8, 0);
        cap
    }
}
