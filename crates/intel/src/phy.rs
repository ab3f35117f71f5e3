//! The PHY at address 1. Registers 0 to 15 are those of IEEE 802.3 clause 22; the others are the
//! maker's (8254x manual §11, §13.4.7.1; drivers `e1000_hw.h` and `igb/e1000_phy.h`).

/// Where it answers on the MDIO bus.
pub(crate) const ADDRESS: u32 = 1;

const BMCR: usize = 0;
const BMSR: usize = 1;
const ANAR: usize = 4;
const GCTRL: usize = 9;
const ID: usize = 3;
/// What was negotiated last is kept here; what holds now is made from it when it is read.
pub const PSSR: usize = 17;
const INTERRUPTS_ENABLED: usize = 18;
/// What has happened since it was read last.
pub const EVENTS: usize = 19;

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

/// What the partner at the other end of the emulated cable offers, besides pause.
const PARTNER: u16 = 0x41e1;
/// Pause both ways, and either way alone (IEEE 802.3 table 28B-2).
const PAUSE: u16 = 1 << 10;
const ASYMMETRIC: u16 = 1 << 11;
const PARTNER_GIGABIT: u16 = 0x3c00;

/// Whose PHY it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhyModel {
    /// Marvell's 88E1000 or 88E1011, by the low half of its id.
    M88 {
        /// PHY identifier 2, with the revision.
        id: u16,
    },
    /// Intel's IGP03 inside of the 82576.
    Igp03,
}

/// Of clause 22.
const WRITABLE: [u16; 32] = {
    let mut mask = [0; 32];
    mask[BMCR] =
        LOOPBACK | SPEED_LOW | AN_ENABLE | POWER_DOWN | ISOLATE | DUPLEX | SPEED_HIGH | 1 << 7;
    mask[ANAR] = 0xbfff;
    mask[7] = 0xffff;
    mask[GCTRL] = 0xff00;
    mask
};

const M88_WRITABLE: [u16; 32] = {
    let mut mask = WRITABLE;
    mask[16] = 0xffff;
    mask[INTERRUPTS_ENABLED] = 0xffff;
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

const IGP_WRITABLE: [u16; 32] = {
    let mut mask = WRITABLE;
    mask[igp::PORT_CONFIG] = 0xffff;
    mask[igp::PORT_CONTROL] = 0xffff;
    mask[20] = 0xffff;
    mask[igp::POWER] = 0xffff;
    mask[27] = 0xffff;
    mask[igp::PAGE] = 0xffff;
    mask
};

/// Of clause 22.
const RESET_VALUES: [u16; 32] = {
    let mut value = [0; 32];
    value[BMCR] = AN_ENABLE | DUPLEX | SPEED_HIGH;
    value[ANAR] = 0x01e1;
    value[7] = 0x2001;
    value[GCTRL] = 0x0300;
    value[15] = 0x3000;
    value
};

const M88_RESET: [u16; 32] = {
    let mut value = RESET_VALUES;
    value[2] = 0x0141;
    value[ID] = 0x0c20;
    value[16] = 0x0360;
    value[20] = 0x0d60;
    value[24] = 0x4100;
    value
};

const IGP_RESET: [u16; 32] = {
    let mut value = RESET_VALUES;
    value[2] = 0x02a8;
    value[ID] = 0x0391;
    // Pause both ways is offered by default.
    value[ANAR] |= PAUSE | ASYMMETRIC;
    value[igp::PORT_CONFIG] = 0x0120;
    value[igp::POWER] = 0x008d;
    value
};

impl PhyModel {
    /// Bits per register that keep what is written; 0 for read-only and undefined registers.
    pub const fn writable(self) -> &'static [u16; 32] {
        match self {
            PhyModel::M88 { .. } => &M88_WRITABLE,
            PhyModel::Igp03 => &IGP_WRITABLE,
        }
    }

    /// The registers after a reset.
    pub const fn reset_values(self) -> &'static [u16; 32] {
        match self {
            PhyModel::M88 { .. } => &M88_RESET,
            PhyModel::Igp03 => &IGP_RESET,
        }
    }
}

/// Registers of the IGP03 (driver `igb/e1000_phy.h`).
mod igp {
    pub const PORT_CONFIG: usize = 16;
    pub const PORT_STATUS: usize = 17;
    pub const PORT_CONTROL: usize = 18;
    pub const POWER: usize = 25;
    /// Registers 16 to 30 have pages; what is written here is the page, with the register in its
    /// low bits.
    pub const PAGE: usize = 31;
    /// The gain of a pair's receiver, from which drivers tell the cable's length, is register 17 of
    /// these pages, in bits 15:9.
    pub const GAIN_PAGES: [u16; 4] = [0x11a0, 0x12a0, 0x14a0, 0x18a0];
    /// Of a short cable.
    pub const GAIN: u16 = 12 << 9;
}

/// Bits of [`PSSR`].
mod resolved {
    pub const FULL: u16 = 1 << 13;
    pub const DONE: u16 = 1 << 11;
    pub const LINK: u16 = 1 << 10;
    pub const SEND_PAUSE: u16 = 1 << 3;
    pub const OBEY_PAUSE: u16 = 1 << 2;
}

/// Bits of [`PSSR`] that a negotiation leaves.
pub const AGREED: u16 =
    3 << 14 | resolved::FULL | resolved::DONE | resolved::SEND_PAUSE | resolved::OBEY_PAUSE;

/// Bits of [`EVENTS`].
mod event {
    pub const SPEED: u16 = 1 << 14;
    pub const DUPLEX: u16 = 1 << 13;
    pub const PAGE_RECEIVED: u16 = 1 << 12;
    pub const NEGOTIATED: u16 = 1 << 11;
    pub const LINK: u16 = 1 << 10;
}

/// What a register write started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing beyond storing.
    None,
    /// The way the link is made may have changed: look again.
    Link,
    /// Auto-negotiation starts over.
    Restart,
}

/// Speed as STATUS and PSSR encode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// 10 Mb/s.
    M10 = 0,
    /// 100 Mb/s.
    M100 = 1,
    /// 1000 Mb/s.
    M1000 = 2,
}

/// The PHY's registers and what it knows of the cable.
#[derive(Debug)]
pub struct Phy {
    /// As stored; some are made from other things when they are read.
    pub regs: [u16; 32],
    /// Whether the cable leads to a partner.
    pub cable: bool,
    /// Whether the last negotiation came to an end.
    pub negotiated: bool,
    /// A link loss that BMSR has not reported yet.
    pub link_lost: bool,
    /// Whose it is.
    pub kind: PhyModel,
    /// The partner offers pause.
    pub pause: bool,
}

impl Phy {
    /// Powered up a while ago: with a cable, the link stands.
    pub fn new(cable: bool, kind: PhyModel, pause: bool) -> Self {
        let mut phy = Self {
            regs: *kind.reset_values(),
            cable,
            negotiated: cable,
            link_lost: !cable,
            kind,
            pause,
        };
        phy.agree();
        phy
    }

    /// Hardware reset (CTRL.PHY_RST, bus reset): all registers, and negotiation starts over.
    pub fn reset(&mut self) {
        self.regs = *self.kind.reset_values();
        self.drop_link();
    }

    /// Forgets what was negotiated.
    pub fn drop_link(&mut self) {
        self.watch(|phy| phy.negotiated = false);
    }

    /// The cable goes in or out.
    pub fn set_cable(&mut self, cable: bool) {
        self.watch(|phy| {
            phy.cable = cable;
            phy.negotiated = false;
        });
    }

    /// Notes what `change` does to the link.
    fn watch<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        let before = (self.link(), self.resolved());
        let result = change(self);
        let after = (self.link(), self.resolved());
        let mut events = 0;
        if before.0 != after.0 {
            events |= event::LINK;
            self.link_lost |= before.0;
        }
        if before.1.0 != after.1.0 {
            events |= event::SPEED;
        }
        if before.1.1 != after.1.1 {
            events |= event::DUPLEX;
        }
        self.note(events);
        result
    }

    /// Events have a register in the 88E10xx alone.
    fn note(&mut self, events: u16) {
        if let PhyModel::M88 { .. } = self.kind {
            self.regs[EVENTS] |= events;
        }
    }

    /// Whether its interrupt line is up: something happened that register 18 enables.
    pub fn interrupt(&self) -> bool {
        self.regs[EVENTS] & self.regs[INTERRUPTS_ENABLED] != 0
    }

    /// Whether auto-negotiation has a partner.
    pub fn can_negotiate(&self) -> bool {
        let bmcr = self.regs[BMCR];
        let offers = self.regs[ANAR] & 0x01e0 != 0 || self.regs[GCTRL] & 0x0300 != 0;
        self.cable
            && offers
            && bmcr & AN_ENABLE != 0
            && bmcr & (POWER_DOWN | ISOLATE | LOOPBACK) == 0
    }

    /// Auto-negotiation has ended.
    pub fn negotiation_done(&mut self) {
        self.watch(|phy| {
            phy.negotiated = phy.can_negotiate();
            phy.agree();
        });
        if self.negotiated {
            self.note(event::NEGOTIATED | event::PAGE_RECEIVED);
        }
    }

    /// Whether frames sent come straight back.
    pub fn loopback(&self) -> bool {
        self.regs[BMCR] & LOOPBACK != 0 && self.regs[BMCR] & POWER_DOWN == 0
    }

    /// Whether there is a link now.
    pub fn link(&self) -> bool {
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

    /// Keeps what both sides have agreed on: what the guest offers from now on counts in the next
    /// negotiation (manual §11.1.3, §13.4.7.1).
    fn agree(&mut self) {
        self.regs[PSSR] = 0;
        if self.negotiated {
            let (speed, full) = self.offered();
            let (send, obey) = self.pause_offered();
            self.regs[PSSR] = resolved::DONE
                | (speed as u16) << 14
                | if full { resolved::FULL } else { 0 }
                | if send { resolved::SEND_PAUSE } else { 0 }
                | if obey { resolved::OBEY_PAUSE } else { 0 };
        }
    }

    /// Speed and full duplex, negotiated or forced.
    pub fn resolved(&self) -> (Speed, bool) {
        let bmcr = self.regs[BMCR];
        if bmcr & AN_ENABLE == 0 {
            let speed = match (bmcr & SPEED_HIGH != 0, bmcr & SPEED_LOW != 0) {
                (true, _) => Speed::M1000,
                (false, true) => Speed::M100,
                (false, false) => Speed::M10,
            };
            return (speed, bmcr & DUPLEX != 0);
        }
        let agreed = self.regs[PSSR];
        if !self.negotiated || agreed & resolved::DONE == 0 {
            return self.offered();
        }
        let speed = match agreed >> 14 {
            0 => Speed::M10,
            1 => Speed::M100,
            _ => Speed::M1000,
        };
        (speed, agreed & resolved::FULL != 0)
    }

    /// The best speed and duplex of what the guest offers.
    fn offered(&self) -> (Speed, bool) {
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

    fn partner(&self) -> u16 {
        PARTNER | if self.pause { PAUSE | ASYMMETRIC } else { 0 }
    }

    /// Whether pause frames may be sent, and must be obeyed, by what both offer (IEEE 802.3 table
    /// 28B-3).
    fn pause_offered(&self) -> (bool, bool) {
        let bits = |word: u16| (word & PAUSE != 0, word & ASYMMETRIC != 0);
        let (ours, ours_asymmetric) = bits(self.regs[ANAR]);
        let (theirs, theirs_asymmetric) = bits(self.partner());
        let both = ours && theirs;
        let one_way = ours_asymmetric && theirs_asymmetric;
        (
            both || one_way && !ours && theirs,
            both || one_way && ours && !theirs,
        )
    }

    /// What an IGP03 shows of its own.
    fn igp_register(&self, reg: usize) -> Option<u16> {
        const SPEEDS: [u16; 3] = [1 << 14, 2 << 14, 3 << 14];
        const FULL: u16 = 1 << 9;
        const LINK: u16 = 1 << 10;
        let page = self.regs[igp::PAGE] & !0x1f;
        match reg {
            igp::PAGE => None,
            igp::PORT_STATUS if igp::GAIN_PAGES.contains(&page) => Some(igp::GAIN),
            16.. if page != 0 => Some(0),
            igp::PORT_STATUS => {
                let (speed, full) = self.resolved();
                let link = self.link();
                Some(if link {
                    SPEEDS[speed as usize] | LINK | if full { FULL } else { 0 }
                } else {
                    0
                })
            }
            _ => None,
        }
    }

    /// Reads a register, with what reading it does.
    pub fn read(&mut self, reg: usize) -> u16 {
        if self.kind == PhyModel::Igp03
            && let Some(value) = self.igp_register(reg % 32)
        {
            return value;
        }
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
            ID => match self.kind {
                PhyModel::M88 { id } => id,
                PhyModel::Igp03 => self.regs[ID],
            },
            EVENTS => std::mem::take(&mut self.regs[EVENTS]),
            5 if negotiated => self.partner(),
            6 if negotiated => 0x0003,
            10 if negotiated => PARTNER_GIGABIT,
            PSSR => {
                let (speed, full) = self.resolved();
                let done = link || self.regs[BMCR] & AN_ENABLE == 0;
                let mode =
                    resolved::DONE | (speed as u16) << 14 | if full { resolved::FULL } else { 0 };
                let pause = self.regs[PSSR] & (resolved::SEND_PAUSE | resolved::OBEY_PAUSE);
                (if link { resolved::LINK } else { 0 })
                    | if negotiated { pause } else { 0 }
                    | if done { mode } else { 0 }
            }
            other => self.regs[other],
        }
    }

    /// Writes a register. What it started is the caller's to carry on.
    pub fn write(&mut self, reg: usize, value: u16) -> Effect {
        let reg = reg % 32;
        let paged = self.kind == PhyModel::Igp03 && (16..igp::PAGE).contains(&reg);
        if paged && self.regs[igp::PAGE] & !0x1f != 0 {
            return Effect::None;
        }
        let mask = self.kind.writable()[reg];
        let old = self.regs[reg];
        let new = (old & !mask) | (value & mask);
        if reg != BMCR {
            self.regs[reg] = new;
            return match reg {
                // What has happened already may interrupt now.
                INTERRUPTS_ENABLED if !paged => Effect::Link,
                _ => Effect::None,
            };
        }
        let changed = old ^ new;
        let woke = changed & (POWER_DOWN | ISOLATE | LOOPBACK | AN_ENABLE) != 0;
        let restart = value & (RESET | AN_RESTART) != 0 || woke;
        let had_link = self.link();
        self.watch(|phy| {
            phy.regs[BMCR] = new;
            if restart && new & AN_ENABLE != 0 {
                phy.negotiated = false;
            }
        });
        if had_link && value & RESET != 0 {
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
mod tests;
