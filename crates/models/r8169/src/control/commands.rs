//! Registers behind which another memory lies: a command names a place there, and its flag says when it is done. Every
//! command is done at once.

use model::Env;
use regs::Id;

use crate::control::{EPHY, Registers};
use crate::regs as r;
use crate::regs::bits::{FLAG, eri, mii, ocp};

/// The first configuration register of the chip that CSIAR reads as PCI has it.
const CSI_IDS: u32 = 0x8168_10ec;
/// What an eFuse that was never written reads.
const EFUSE: u32 = 0xff;

/// Where a register of this page of the PHY is in OCP: behind the first page's, eight to a page.
fn paged(page: u16, at: usize) -> Option<u16> {
    let among = at.checked_sub(16).filter(|among| *among < 8)?;
    (page != 0 && page < 0x1000).then(|| page << 4 | (among * 2) as u16)
}

impl Registers {
    /// Where a command of PHYAR or EPHYAR goes.
    fn place(value: u32) -> usize {
        (value >> mii::REGISTER_SHIFT & mii::REGISTER) as usize
    }

    /// The command is done. `read`: this was read.
    fn done(&self, id: Id, value: u32, read: Option<u32>) {
        let value = match read {
            None => value & !FLAG,
            Some(data) => value & !mii::DATA | FLAG | data,
        };
        self.chip.file.set(id, value);
    }

    pub(super) fn write_phyar(&mut self, env: &Env, value: u32) {
        let value = value & (FLAG | mii::REGISTER << mii::REGISTER_SHIFT | mii::DATA);
        let at = Self::place(value);
        let behind = paged(self.phy.page, at);
        if value & FLAG == 0 {
            let data = match &self.ocp {
                Some(ocp) if let Some(address) = behind => ocp.read_phy(&self.phy, address),
                _ => self.phy.read(at),
            };
            self.done(r::PHYAR, value, Some(data.into()));
            return;
        }
        let effect = match &mut self.ocp {
            Some(ocp) if let Some(address) = behind => {
                ocp.write_phy(&mut self.phy, address, value as u16)
            }
            _ => self.phy.write(at, value as u16),
        };
        self.done(r::PHYAR, value, None);
        self.phy_effect(env, effect);
    }

    pub(super) fn write_ephyar(&mut self, value: u32) {
        let value = value & (FLAG | mii::REGISTER << mii::REGISTER_SHIFT | mii::DATA);
        let register = &mut self.ephy[Self::place(value) % EPHY];
        let read = if value & FLAG == 0 {
            Some((*register).into())
        } else {
            *register = value as u16;
            None
        };
        self.done(r::EPHYAR, value, read);
    }

    pub(super) fn write_csiar(&mut self, value: u32) {
        if value & FLAG == 0 {
            let at = value & 0xffc;
            let data = if at == 0 { CSI_IDS } else { 0 };
            self.chip.file.set(r::CSIDR, data);
            self.chip.file.set(r::CSIAR, value | FLAG);
        } else {
            self.done(r::CSIAR, value, None);
        }
    }

    /// In the 8168C nothing is behind it.
    pub(super) fn write_eriar(&mut self, value: u32) {
        let address = (value & eri::ADDRESS) as u16;
        let ours = value & eri::SPACE == 0;
        let ocp = self.ocp.as_mut().filter(|_| ours);
        if value & FLAG == 0 {
            let data = ocp.map_or(0, |ocp| ocp.eri(address));
            self.chip.file.set(r::ERIDR, data);
            self.chip.file.set(r::ERIAR, value | FLAG);
            return;
        }
        if let Some(ocp) = ocp {
            let lanes = (value >> eri::LANES_SHIFT & 0xf) as u8;
            ocp.write_eri(address, self.chip.file.get(r::ERIDR), lanes);
            self.ask_to_wake();
        }
        self.done(r::ERIAR, value, None);
    }

    /// A register of the MAC of an 8168H.
    pub(super) fn write_ocpdr(&mut self, value: u32) {
        let Some(ocp) = &mut self.ocp else {
            return;
        };
        let address = (value >> ocp::ADDRESS_SHIFT & ocp::ADDRESS) as u16;
        if value & FLAG == 0 {
            // Drivers wait for no flag: what they read is the data.
            let data = ocp.read_mac(address);
            let value = value & !mii::DATA | u32::from(data);
            self.chip.file.set(r::OCPDR, value);
        } else {
            ocp.write_mac(address, value as u16);
            self.done(r::OCPDR, value, None);
        }
    }

    /// A register of its PHY.
    pub(super) fn write_gphy_ocp(&mut self, env: &Env, value: u32) {
        let Some(ocp) = &mut self.ocp else {
            return;
        };
        let address = (value >> ocp::ADDRESS_SHIFT & ocp::ADDRESS) as u16;
        if value & FLAG == 0 {
            let data = ocp.read_phy(&self.phy, address);
            self.done(r::GPHY_OCP, value, Some(data.into()));
            return;
        }
        let effect = ocp.write_phy(&mut self.phy, address, value as u16);
        self.done(r::GPHY_OCP, value, None);
        self.phy_effect(env, effect);
    }

    pub(super) fn write_efusear(&mut self, value: u32) {
        if value & FLAG == 0 {
            let value = value & !0xff | EFUSE;
            self.chip.file.set(r::EFUSEAR, value | FLAG);
        } else {
            self.done(r::EFUSEAR, value, None);
        }
    }
}
