//! Registers behind which another memory lies: a command names a place there, and its flag says when it is done. Every
//! command is done at once.

use model::Env;
use regs::Id;

use crate::control::{EPHY, Registers};
use crate::regs as r;
use crate::regs::bits::{FLAG, mii};

/// The first configuration register of the chip that CSIAR reads as PCI has it.
const CSI_IDS: u32 = 0x8168_10ec;
/// What an eFuse that was never written reads.
const EFUSE: u32 = 0xff;

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
        if value & FLAG == 0 {
            let data = self.phy.read(at);
            self.done(r::PHYAR, value, Some(data.into()));
            return;
        }
        let effect = self.phy.write(at, value as u16);
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

    pub(super) fn write_eriar(&mut self, value: u32) {
        if value & FLAG == 0 {
            self.chip.file.set(r::ERIDR, 0);
            self.chip.file.set(r::ERIAR, value | FLAG);
        } else {
            self.done(r::ERIAR, value, None);
        }
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
