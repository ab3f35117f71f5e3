//! The PHY, an M88E1011 at address 1 (manual §11, §13.4.7.1; driver `e1000_hw.h`).

/// Where it answers on the MDIO bus.
pub(crate) const ADDRESS: u32 = 1;

const BMCR: usize = 0;
const BMSR: usize = 1;
const ANAR: usize = 4;
const GCTRL: usize = 9;
const PSSR: usize = 17;

const RESET: u16 = 1 << 15;
const LOOPBACK: u16 = 1 << 14;
const SPEED_LOW: u16 = 1 << 13;
const AN_ENABLE: u16 = 1 << 12;
const POWER_DOWN: u16 = 1 << 11;
const ISOLATE: u16 = 1 << 10;
const AN_RESTART: u16 = 1 << 9;
const DUPLEX: u16 = 1 << 8;
const SPEED_HIGH: u16 = 1 << 6;

/// BMSR without its live bits: all speeds, extended status, preamble suppression.
const BMSR_FIXED: u16 = 0x7949;
const BMSR_AN_COMPLETE: u16 = 1 << 5;
const BMSR_LINK: u16 = 1 << 2;

/// What the partner at the other end of the emulated cable offers: everything but pause.
const PARTNER: u16 = 0x41e1;
const PARTNER_GIGABIT: u16 = 0x3c00;

/// Bits per register that keep what is written; 0 for read-only and undefined registers.
pub(crate) const WRITABLE: [u16; 32] = {
    let mut mask = [0; 32];
    mask[BMCR] =
        LOOPBACK | SPEED_LOW | AN_ENABLE | POWER_DOWN | ISOLATE | DUPLEX | SPEED_HIGH | 1 << 7;
    mask[ANAR] = 0xbfff;
    mask[7] = 0xffff;
    mask[GCTRL] = 0xff00;
    mask[16] = 0xffff;
    mask[18] = 0xffff;
    mask[20] = 0xffff;
    mask[22] = 0xffff;
    mask[24] = 0xffff;
    mask[25] = 0xffff;
    mask[26] = 0xffff;
    // Test and page registers; the drivers' loopback test writes them.
    mask[29] = 0xffff;
    mask[30] = 0xffff;
    mask[31] = 0xffff;
    mask
};

pub(crate) const RESET_VALUES: [u16; 32] = {
    let mut value = [0; 32];
    value[BMCR] = AN_ENABLE | DUPLEX | SPEED_HIGH;
    value[2] = 0x0141;
    value[3] = 0x0c20;
    value[ANAR] = 0x01e1;
    value[7] = 0x2001;
    value[GCTRL] = 0x0300;
    value[15] = 0x3000;
    value[16] = 0x0360;
    value[20] = 0x0d60;
    value[24] = 0x4100;
    value
};

/// What a register write started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing beyond storing.
    None,
    /// The way the link is made may have changed: look again.
    Link,
    /// Auto-negotiation starts over.
    Restart,
}

/// Speed as STATUS and PSSR encode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    M10 = 0,
    M100 = 1,
    M1000 = 2,
}

/// The PHY's registers and what it knows of the cable.
#[derive(Debug)]
pub(crate) struct Phy {
    pub(crate) regs: [u16; 32],
    /// Whether the cable leads to somebody.
    pub(crate) cable: bool,
    pub(crate) negotiated: bool,
    /// A link loss that BMSR has not reported yet.
    pub(crate) link_lost: bool,
}

impl Phy {
    /// Powered up a while ago: with a cable, the link stands.
    pub(crate) fn new(cable: bool) -> Self {
        Self {
            regs: RESET_VALUES,
            cable,
            negotiated: cable,
            link_lost: !cable,
        }
    }

    /// Hardware reset (CTRL.PHY_RST, bus reset): all registers, and negotiation starts over.
    pub(crate) fn reset(&mut self) {
        self.regs = RESET_VALUES;
        self.drop_link();
    }

    /// Forgets what was negotiated.
    pub(crate) fn drop_link(&mut self) {
        if self.link() {
            self.link_lost = true;
        }
        self.negotiated = false;
    }

    /// Whether auto-negotiation has somebody to talk to.
    pub(crate) fn can_negotiate(&self) -> bool {
        let bmcr = self.regs[BMCR];
        self.cable && bmcr & AN_ENABLE != 0 && bmcr & (POWER_DOWN | ISOLATE | LOOPBACK) == 0
    }

    /// Auto-negotiation has ended.
    pub(crate) fn negotiation_done(&mut self) {
        self.negotiated = self.can_negotiate();
    }

    /// Whether frames sent come straight back.
    pub(crate) fn loopback(&self) -> bool {
        self.regs[BMCR] & LOOPBACK != 0 && self.regs[BMCR] & POWER_DOWN == 0
    }

    /// Whether there is a link now.
    pub(crate) fn link(&self) -> bool {
        let bmcr = self.regs[BMCR];
        if bmcr & (POWER_DOWN | ISOLATE) != 0 {
            false
        } else if bmcr & LOOPBACK != 0 {
            true
        } else if bmcr & AN_ENABLE != 0 {
            self.cable && self.negotiated
        } else {
            self.cable
        }
    }

    /// Speed and full duplex, negotiated or forced.
    pub(crate) fn resolved(&self) -> (Speed, bool) {
        let bmcr = self.regs[BMCR];
        if bmcr & AN_ENABLE == 0 {
            let speed = match (bmcr & SPEED_HIGH != 0, bmcr & SPEED_LOW != 0) {
                (true, _) => Speed::M1000,
                (false, true) => Speed::M100,
                (false, false) => Speed::M10,
            };
            return (speed, bmcr & DUPLEX != 0);
        }
        let gigabit = self.regs[GCTRL];
        let base = self.regs[ANAR];
        if gigabit & 0x0300 != 0 {
            (Speed::M1000, gigabit & 0x0200 != 0)
        } else if base & 0x0180 != 0 {
            (Speed::M100, base & 0x0100 != 0)
        } else {
            (Speed::M10, base & 0x0040 != 0)
        }
    }

    pub(crate) fn read(&mut self, reg: usize) -> u16 {
        let link = self.link();
        let negotiated = link && self.regs[BMCR] & AN_ENABLE != 0;
        match reg % 32 {
            BMSR => {
                // Latched low: a loss is reported once even if the link is back.
                let shown = link && !self.link_lost;
                self.link_lost = !link;
                BMSR_FIXED
                    | if negotiated { BMSR_AN_COMPLETE } else { 0 }
                    | if shown { BMSR_LINK } else { 0 }
            }
            5 if negotiated => PARTNER,
            6 if negotiated => 0x0003,
            10 if negotiated => PARTNER_GIGABIT,
            PSSR => {
                let (speed, full) = self.resolved();
                let resolved = link || self.regs[BMCR] & AN_ENABLE == 0;
                let mode = (speed as u16) << 14 | u16::from(full) << 13;
                u16::from(resolved) << 11 | u16::from(link) << 10 | if resolved { mode } else { 0 }
            }
            other => self.regs[other],
        }
    }

    pub(crate) fn write(&mut self, reg: usize, value: u16) -> Effect {
        let reg = reg % 32;
        let old = self.regs[reg];
        let had_link = self.link();
        self.regs[reg] = (old & !WRITABLE[reg]) | (value & WRITABLE[reg]);
        if reg != BMCR {
            return Effect::None;
        }
        let changed = old ^ self.regs[BMCR];
        let woke = changed & (POWER_DOWN | ISOLATE | LOOPBACK | AN_ENABLE) != 0;
        let restart = value & (RESET | AN_RESTART) != 0 || woke;
        if restart && self.regs[BMCR] & AN_ENABLE != 0 {
            self.negotiated = false;
        }
        if had_link && (!self.link() || value & RESET != 0) {
            self.link_lost = true;
        }
        if restart && self.can_negotiate() {
            Effect::Restart
        } else {
            Effect::Link
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_phy_the_drivers_look_for() {
        let mut phy = Phy::new(true);
        assert_eq!(phy.read(2), 0x0141);
        assert_eq!(phy.read(3) & 0xfff0, 0x0c20);
        assert_eq!(phy.read(PSSR), 0xac00);
        assert_eq!(phy.read(BMSR) & 0x24, 0x24);
        assert_eq!(phy.write(2, 0xffff), Effect::None);
        assert_eq!(phy.read(2), 0x0141);
        phy.write(29, 0x001a);
        assert_eq!(phy.read(29), 0x001a);
    }

    #[test]
    fn link_loss_is_latched_until_read() {
        let mut phy = Phy::new(true);
        assert_eq!(phy.write(BMCR, 0x1340), Effect::Restart);
        assert!(!phy.link());
        phy.negotiation_done();
        assert!(phy.link());
        assert_eq!(phy.read(BMSR) & BMSR_LINK, 0);
        assert_eq!(phy.read(BMSR) & BMSR_LINK, BMSR_LINK);
    }

    #[test]
    fn the_loopback_test_of_the_drivers_finds_its_values() {
        let mut phy = Phy::new(false);
        phy.write(16, 0x0808);
        phy.write(BMCR, 0x9140);
        phy.write(BMCR, 0x8140);
        assert_eq!(phy.read(BMCR), 0x0140);
        assert!(!phy.link());
        assert_eq!(phy.write(BMCR, 0x4140), Effect::Link);
        assert!(phy.link() && phy.loopback());
        assert_eq!(phy.resolved(), (Speed::M1000, true));
    }

    #[test]
    fn power_down_takes_the_link_and_power_up_negotiates_again() {
        let mut phy = Phy::new(true);
        assert_eq!(phy.write(BMCR, 0x1940), Effect::Link);
        assert!(!phy.link());
        assert_eq!(phy.write(BMCR, 0x1140), Effect::Restart);
        assert!(!phy.link());
        phy.negotiation_done();
        assert!(phy.link());
    }

    #[test]
    fn advertising_less_gives_less() {
        let mut phy = Phy::new(true);
        phy.write(GCTRL, 0);
        assert_eq!(phy.resolved(), (Speed::M100, true));
        phy.write(ANAR, 0x0021);
        assert_eq!(phy.resolved(), (Speed::M10, false));
        phy.write(BMCR, 0x2000);
        assert_eq!(phy.resolved(), (Speed::M100, false));
    }
}
