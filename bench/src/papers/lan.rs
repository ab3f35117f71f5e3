//! The networks there are, how the guests' driver is loaded, and which way packets go.

/// A network, by what the guests' NICs on it are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lan {
    /// Ours over TAP, moderated as the driver's registers say, with a status block on offer.
    Tap,
    /// Ours over TAP, as the daemon is by default.
    Adaptive,
    /// Ours over TAP, with the daemon's own limit of 4000 interrupts a second.
    Fixed,
    /// Ours on the built-in switch, otherwise as `Tap`.
    Vale,
    /// QEMU's e1000.
    Qemu,
    /// QEMU's virtio-net.
    Virtio,
    /// The same without `VIRTIO_F_EVENT_IDX`.
    NoEventIdx,
}

/// All of them, in the order of their numbers.
pub const LANS: [Lan; 7] = [
    Lan::Tap,
    Lan::Adaptive,
    Lan::Vale,
    Lan::Qemu,
    Lan::Virtio,
    Lan::NoEventIdx,
    Lan::Fixed,
];

impl Lan {
    /// Its number, part of names and addresses.
    pub fn number(self) -> usize {
        LANS.iter().position(|lan| *lan == self).unwrap_or(0)
    }

    /// Whether the NICs on it are ours.
    pub fn ours(self) -> bool {
        matches!(self, Self::Tap | Self::Adaptive | Self::Fixed | Self::Vale)
    }

    /// Whether the guest drives it with its e1000 driver.
    pub fn e1000(self) -> bool {
        self.ours() || self == Self::Qemu
    }

    /// Which guests have a NIC there.
    pub fn guests(self) -> usize {
        match self {
            Self::Adaptive | Self::Fixed | Self::NoEventIdx => 1,
            _ => 2,
        }
    }

    /// The TAP of a guest's NIC.
    pub fn tap(self, guest: usize) -> String {
        format!("t{}{guest}", self.number())
    }

    /// The bridge its TAPs stand on.
    pub fn bridge(self) -> String {
        format!("br{}", self.number())
    }

    /// The host's address, which `Vale` has not.
    pub fn host(self) -> String {
        format!("10.12.{}.1", self.number())
    }

    /// A guest's.
    pub fn address(self, guest: usize) -> String {
        format!("10.12.{}.{}", self.number(), guest + 2)
    }

    /// A guest's station address; the switch's third NIC is that of guest 2.
    pub fn mac(self, guest: usize) -> String {
        format!("52:54:00:00:{:02x}:{guest:02x}", 0x20 + self.number())
    }

    /// The host's station address.
    pub fn host_mac(self) -> String {
        format!("02:00:00:00:20:{:02x}", self.number())
    }
}

/// How the guests' e1000 driver is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// As it is.
    Stock,
    /// Without delays of its own on transmit interrupts, as in the papers.
    Plain,
    /// The same with Send Combining.
    Combining,
    /// The same with a status block.
    Csb,
}

/// The driver and the most interrupts a second it asks for: 0 for no moderation, none for its own choice. The 82540EM's
/// driver takes it only when it is loaded (`ethtool -C` is refused for chips before the 82545).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Driver {
    /// The driver.
    pub load: Load,
    /// Interrupts a second.
    pub rate: Option<u32>,
}

impl Driver {
    /// The module's parameters, each with a value for every NIC.
    pub fn parameters(self) -> String {
        let nics = LANS.iter().filter(|lan| lan.e1000()).count();
        let each =
            |name: &str, value: u32| format!("{name}={} ", vec![value.to_string(); nics].join(","));
        let mut words = match self.load {
            Load::Stock => String::new(),
            _ => each("TxIntDelay", 0) + &each("TxAbsIntDelay", 0),
        };
        if let Some(rate) = self.rate {
            words += &each("InterruptThrottleRate", rate);
        }
        words += match self.load {
            Load::Combining => "send_combining=1",
            Load::Csb => "csb=1",
            Load::Stock | Load::Plain => "",
        };
        words
    }
}

/// Which way packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the first guest to the host.
    Out,
    /// From the host to the first guest.
    In,
    /// From the first guest to the second.
    Across,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_gets_a_value_for_every_nic() {
        let driver = |load, rate| Driver { load, rate }.parameters();
        assert_eq!(driver(Load::Stock, None), "");
        let combining = driver(Load::Combining, Some(4000));
        assert!(combining.ends_with("Rate=4000,4000,4000,4000,4000 send_combining=1"));
        assert!(driver(Load::Csb, None).starts_with("TxIntDelay=0,0,0,0,0 "));
    }
}
