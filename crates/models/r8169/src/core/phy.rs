//! The PHY, an RTL8211B in the 8168C. Registers 0 to 15 of the first page are those of IEEE 802.3 clause 22.

const BMCR: usize = 0;
const BMSR: usize = 1;
const ID1: usize = 2;
const ID2: usize = 3;
const ANAR: usize = 4;
const ANLPAR: usize = 5;
const ANER: usize = 6;
const GBCR: usize = 9;
const GBSR: usize = 10;
const ESTATUS: usize = 15;
/// Selects the page.
const PAGE: usize = 31;

/// Registers of a page.
pub(crate) const REGISTERS: usize = 32;
/// Pages that drivers of this chip write; numbers beyond fold into them.
pub(crate) const PAGES: usize = 8;

const RESET: u16 = 1 << 15;
const SPEED_LOW: u16 = 1 << 13;
const AN_ENABLE: u16 = 1 << 12;
const POWER_DOWN: u16 = 1 << 11;
const AN_RESTART: u16 = 1 << 9;
const DUPLEX: u16 = 1 << 8;
const SPEED_HIGH: u16 = 1 << 6;

/// All speeds, extended status, auto-negotiation.
const BMSR_FIXED: u16 = 0x7949;
const BMSR_AN_COMPLETE: u16 = 1 << 5;
const BMSR_LINK: u16 = 1 << 2;
/// The partner offers everything but pause.
const PARTNER: u16 = 0x41e1;
const PARTNER_GIGABIT: u16 = 0x3c00;
const GIGABIT: u16 = 0x0300;
const GIGABIT_FULL: u16 = 0x0200;
const M100: u16 = 0x0180;
const M100_FULL: u16 = 0x0100;
const M10_FULL: u16 = 0x0040;

/// Megabits per second, and full duplex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speed {
    pub mbits: u16,
    pub full: bool,
}

/// What a write has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Auto-negotiation begins, if there is a partner.
    Negotiate,
    /// The link may have changed.
    Changed,
}

#[derive(Clone, Debug)]
pub(crate) struct Phy {
    pub registers: Box<[[u16; REGISTERS]; PAGES]>,
    /// The lower half of its id.
    pub id: u16,
    /// 1Fh.
    pub page: u16,
    /// The cable is in.
    pub cable: bool,
    /// Auto-negotiation is complete.
    pub negotiated: bool,
}

/// The bits of the first page that keep what is written.
pub(crate) const WRITABLE: [u16; REGISTERS] = {
    let mut mask = [0xffff; REGISTERS];
    mask[BMCR] = !(RESET | AN_RESTART | 0x3f);
    mask[BMSR] = 0;
    mask[ID1] = 0;
    mask[ID2] = 0;
    mask[ANLPAR] = 0;
    mask[ANER] = 0;
    mask[8] = 0;
    mask[GBCR] = 0xff00;
    mask[GBSR] = 0;
    mask[11] = 0;
    mask[12] = 0;
    mask[ESTATUS] = 0;
    mask[PAGE] = 0;
    mask
};

const fn reset_values(id: u16) -> [u16; REGISTERS] {
    let mut values = [0; REGISTERS];
    values[BMCR] = AN_ENABLE | DUPLEX | SPEED_HIGH;
    values[ID1] = 0x001c;
    values[ID2] = id;
    values[ANAR] = 0x01e1;
    values[7] = 0x2001;
    values[GBCR] = GIGABIT;
    values[ESTATUS] = 0x3000;
    values
}

impl Phy {
    pub fn new(cable: bool, id: u16) -> Self {
        let mut registers = Box::new([[0; REGISTERS]; PAGES]);
        registers[0] = reset_values(id);
        Self {
            registers,
            id,
            page: 0,
            cable,
            negotiated: false,
        }
    }

    fn first(&self) -> &[u16; REGISTERS] {
        &self.registers[0]
    }

    /// Whether auto-negotiation would end.
    pub fn can_negotiate(&self) -> bool {
        let bmcr = self.first()[BMCR];
        self.cable && bmcr & AN_ENABLE != 0 && bmcr & POWER_DOWN == 0
    }

    /// Whether the link stands.
    pub fn link(&self) -> bool {
        let bmcr = self.first()[BMCR];
        let agreed = bmcr & AN_ENABLE == 0 || self.negotiated;
        self.cable && bmcr & POWER_DOWN == 0 && agreed && self.speed().is_some()
    }

    /// The best that both ends offer, or what is forced. `None`: this end offers nothing.
    pub fn speed(&self) -> Option<Speed> {
        let [bmcr, anar, gbcr] = [BMCR, ANAR, GBCR].map(|at| self.first()[at]);
        if bmcr & AN_ENABLE == 0 {
            let mbits = match (bmcr & SPEED_HIGH != 0, bmcr & SPEED_LOW != 0) {
                (true, _) => 1000,
                (false, true) => 100,
                (false, false) => 10,
            };
            let full = bmcr & DUPLEX != 0;
            return Some(Speed { mbits, full });
        }
        let (mbits, full) = if gbcr & GIGABIT != 0 {
            (1000, gbcr & GIGABIT_FULL != 0)
        } else if anar & M100 != 0 {
            (100, anar & M100_FULL != 0)
        } else if anar & 0x60 != 0 {
            (10, anar & M10_FULL != 0)
        } else {
            return None;
        };
        Some(Speed { mbits, full })
    }

    pub fn read(&self, at: usize) -> u16 {
        if at == PAGE {
            return self.page;
        }
        match usize::from(self.page) % PAGES {
            0 => self.read_standard(at),
            page => self.registers[page][at % REGISTERS],
        }
    }

    /// Reads a register of the first page.
    pub fn read_standard(&self, at: usize) -> u16 {
        let stored = self.first()[at % REGISTERS];
        let done = self.negotiated;
        match at {
            BMSR => {
                let complete = if done { BMSR_AN_COMPLETE } else { 0 };
                BMSR_FIXED | complete | if self.link() { BMSR_LINK } else { 0 }
            }
            ANLPAR if done => PARTNER,
            ANER if done => 1,
            GBSR if done => PARTNER_GIGABIT,
            _ => stored,
        }
    }

    pub fn write(&mut self, at: usize, value: u16) -> Effect {
        if at == PAGE {
            self.page = value;
            return Effect::None;
        }
        let page = usize::from(self.page) % PAGES;
        if page != 0 {
            self.registers[page][at % REGISTERS] = value;
            return Effect::None;
        }
        self.write_standard(at, value)
    }

    /// Writes a register of the first page.
    pub fn write_standard(&mut self, at: usize, value: u16) -> Effect {
        if at == BMCR && value & RESET != 0 {
            self.registers[0] = reset_values(self.id);
            return self.renegotiate();
        }
        let mask = WRITABLE[at % REGISTERS];
        let before = self.first()[at % REGISTERS];
        self.registers[0][at % REGISTERS] = before & !mask | value & mask;
        if at != BMCR {
            return Effect::None;
        }
        let changed = before ^ value;
        if value & AN_RESTART != 0 || changed & (AN_ENABLE | POWER_DOWN) != 0 {
            return self.renegotiate();
        }
        Effect::Changed
    }

    /// Auto-negotiation begins anew, or never ends.
    pub fn renegotiate(&mut self) -> Effect {
        self.negotiated = false;
        if self.can_negotiate() {
            Effect::Negotiate
        } else {
            Effect::Changed
        }
    }
}
