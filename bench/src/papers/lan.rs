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
    /// Ours on the built-in switch, as the daemon is by default but for `receive-throttling`.
    Switch,
    /// QEMU's e1000.
    Qemu,
    /// QEMU's virtio-net.
    Virtio,
    /// The same without `VIRTIO_F_EVENT_IDX`.
    NoEventIdx,
    /// Our RTL8168C over TAP, otherwise as `Tap`.
    RtlTap,
    /// Our RTL8168C on the built-in switch.
    RtlVale,
    /// Our virtio-net over TAP, over vfio-user, whose driver is called as its ring says.
    PvTap,
    /// The same, as the daemon is by default.
    PvAdaptive,
    /// Our virtio-net over TAP, over vhost-user, otherwise as `PvTap`.
    PvUser,
    /// The same without `VIRTIO_F_EVENT_IDX`.
    PvNoEventIdx,
    /// Our virtio-net on the built-in switch, otherwise as `PvTap`.
    PvVale,
    /// QEMU's virtio-net with the host's kernel behind it, where that can be.
    Vhost,
}

/// All of them, in the order of their numbers.
pub const LANS: [Lan; 16] = [
    Lan::Tap,
    Lan::Adaptive,
    Lan::Vale,
    Lan::Qemu,
    Lan::Virtio,
    Lan::NoEventIdx,
    Lan::Fixed,
    Lan::Switch,
    Lan::RtlTap,
    Lan::RtlVale,
    Lan::PvTap,
    Lan::PvAdaptive,
    Lan::PvUser,
    Lan::PvNoEventIdx,
    Lan::PvVale,
    Lan::Vhost,
];

/// The door to the kernel's vhost-net.
const VHOST: &str = "/dev/vhost-net";

impl Lan {
    /// Whether this machine can have it.
    pub fn possible(self) -> bool {
        self != Self::Vhost || std::path::Path::new(VHOST).exists()
    }

    /// Whether it is there only for the rows that compare virtio-nets.
    pub fn pv(self) -> bool {
        self.ours_pv() || self == Self::Vhost
    }

    /// Whether the NICs on it are virtio-nets of ours.
    pub fn ours_pv(self) -> bool {
        self.over_vhost_user() || matches!(self, Self::PvTap | Self::PvAdaptive | Self::PvVale)
    }

    /// Whether they are served over vhost-user.
    pub fn over_vhost_user(self) -> bool {
        matches!(self, Self::PvUser | Self::PvNoEventIdx)
    }

    /// Whether their drivers may not ask for late interrupts.
    pub fn without_event_idx(self) -> bool {
        matches!(self, Self::NoEventIdx | Self::PvNoEventIdx)
    }

    /// Its number, part of names and addresses.
    pub fn number(self) -> usize {
        LANS.iter().position(|lan| *lan == self).unwrap_or(0)
    }

    /// Whether the NICs on it are ours.
    pub fn ours(self) -> bool {
        !matches!(
            self,
            Self::Qemu | Self::Virtio | Self::NoEventIdx | Self::Vhost
        )
    }

    /// Whether it is a switch of ours and not a bridge of the host's.
    pub fn switched(self) -> bool {
        matches!(
            self,
            Self::Vale | Self::Switch | Self::RtlVale | Self::PvVale
        )
    }

    /// Its NICs' place on the guests' bus.
    pub fn slot(self) -> usize {
        match self {
            // The line of `Adaptive`, not of QEMU's NIC, which is not to pay for ours.
            Self::Switch => 14,
            Self::RtlVale => 15,
            _ if self.pv() => 6 + self.number(),
            _ => 5 + self.number(),
        }
    }

    /// Whether their interrupts come by the same line, of which a bus has four. A driver then reads a register of one
    /// for each interrupt of the other.
    pub fn disturbs(self, other: Self) -> bool {
        self != other && self.e1000() && other.e1000() && self.slot() % 4 == other.slot() % 4
    }

    /// Whether the guest drives it with its e1000 driver.
    pub fn e1000(self) -> bool {
        self.ours() && !self.realtek() && !self.ours_pv() || self == Self::Qemu
    }

    /// Whether the guest drives it with its r8169 driver.
    pub fn realtek(self) -> bool {
        matches!(self, Self::RtlTap | Self::RtlVale)
    }

    /// Whether its driver is loaded anew for other settings.
    pub fn reloads(self) -> bool {
        self.e1000() || self.realtek()
    }

    /// Which guests have a NIC there.
    pub fn guests(self) -> usize {
        match self {
            Self::Adaptive | Self::Fixed | Self::NoEventIdx | Self::Switch => 1,
            Self::PvAdaptive | Self::PvNoEventIdx => 1,
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

    /// The host's address, which switches have not.
    pub fn host(self) -> String {
        format!("10.12.{}.1", self.number())
    }

    /// A guest's.
    pub fn address(self, guest: usize) -> String {
        format!("10.12.{}.{}", self.number(), guest + 2)
    }

    /// A guest's station address; a switch's third NIC is that of guest 2.
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
    /// With both.
    Both,
    /// `Plain` without moderation on all NICs but those whose daemon moderates, where it is `Stock`.
    Mixed,
}

/// How a guest has set its NIC up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setup {
    /// As it comes.
    #[default]
    Usual,
    /// A ring of 4096 for received frames, the largest there is (`ethtool -G`).
    Ring,
    /// The driver polls in a thread, to which the kernel gives no more of the processor than to others.
    Threaded,
    /// A virtio-net's driver asks to be called after 64 received packets, or 250 us after the first (`ethtool -C`).
    Coalesced,
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
        // In the order in which the driver finds them.
        let mut nics: Vec<Lan> = LANS.into_iter().filter(|lan| lan.e1000()).collect();
        nics.sort_by_key(|lan| lan.slot());
        let moderates = |lan: Lan| matches!(lan, Lan::Adaptive | Lan::Fixed | Lan::Switch);
        let each = |name: &str, value: u32, stock: u32| {
            let one = |lan: &Lan| match self.load {
                Load::Mixed if moderates(*lan) => stock.to_string(),
                _ => value.to_string(),
            };
            let all: Vec<String> = nics.iter().map(one).collect();
            format!("{name}={} ", all.join(","))
        };
        let mut words = match self.load {
            Load::Stock => String::new(),
            _ => each("TxIntDelay", 0, 8) + &each("TxAbsIntDelay", 0, 32),
        };
        if let Some(rate) = self.rate {
            words += &each("InterruptThrottleRate", rate, 3);
        }
        words += self.patches();
        words
    }

    /// The parameters of what both drivers are patched with, which is all that r8169 has.
    pub fn patches(self) -> &'static str {
        match self.load {
            Load::Combining => "send_combining=1",
            Load::Csb => "csb=1",
            Load::Both => "send_combining=1 csb=1",
            Load::Stock | Load::Plain | Load::Mixed => "",
        }
    }

    /// The delay that r8169 is given with `ethtool -C` in place of the rate, in microseconds; it has no choice of its own.
    pub fn usecs(self) -> u32 {
        // Rounded to the chip's units of 5 us, which suffice to 75.
        let delay = self.rate.and_then(|rate| 1_000_000_u32.checked_div(rate));
        delay.unwrap_or(0).next_multiple_of(5)
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
        assert!(combining.ends_with("Rate=4000,4000,4000,4000,4000,4000 send_combining=1"));
        assert!(driver(Load::Csb, None).starts_with("TxIntDelay=0,0,0,0,0,0 "));
        // Adaptive, Fixed and Switch are the second, the fifth and the last on the bus.
        assert!(driver(Load::Mixed, Some(0)).contains("Rate=0,3,0,0,3,3 "));
    }

    #[test]
    fn every_nic_has_a_slot_of_its_own() {
        let mut slots: Vec<usize> = LANS.into_iter().map(Lan::slot).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), LANS.len());
        assert!(slots.iter().all(|slot| (5..30).contains(slot)));
    }

    #[test]
    fn r8169_gets_a_delay_in_its_units() {
        let usecs = |rate| {
            let load = Load::Plain;
            Driver { load, rate }.usecs()
        };
        assert_eq!([None, Some(0), Some(16_000)].map(usecs), [0, 0, 65]);
    }

    #[test]
    fn whom_an_interrupt_disturbs() {
        let disturbed = |lan: Lan| {
            LANS.into_iter()
                .filter(|o| lan.disturbs(*o))
                .collect::<Vec<_>>()
        };
        assert_eq!(disturbed(Lan::Vale), [Lan::Fixed]);
        assert_eq!(disturbed(Lan::Switch), [Lan::Adaptive]);
        assert!(
            [Lan::Tap, Lan::Qemu, Lan::Virtio]
                .into_iter()
                .all(|lan| disturbed(lan).is_empty())
        );
    }
}
