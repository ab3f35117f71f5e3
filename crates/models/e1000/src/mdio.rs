//! The two command registers: MDIC to the PHY and EERD to the EEPROM (manual §13.4.7, §13.4.4).

use crate::eeprom::Eeprom;
use crate::phy::{ADDRESS, Effect, Phy};

const OP_WRITE: u32 = 1;
const OP_READ: u32 = 2;
const READY: u32 = 1 << 28;
const INTERRUPT: u32 = 1 << 29;
const ERROR: u32 = 1 << 30;

const EERD_START: u32 = 1;
const EERD_DONE: u32 = 1 << 4;

/// Whether completion of this MDIC command is to raise an interrupt.
pub(crate) fn wants_interrupt(value: u32) -> bool {
    value & INTERRUPT != 0
}

/// Carries out an MDIC command at once. Returns what MDIC reads afterwards.
pub(crate) fn mdic(phy: &mut Phy, value: u32) -> (u32, Effect) {
    let value = value & !(READY | ERROR);
    let reg = (value >> 16 & 0x1f) as usize;
    let address = value >> 21 & 0x1f;
    let op = value >> 26 & 3;
    match op {
        OP_WRITE if address == ADDRESS => {
            let effect = phy.write(reg, value as u16);
            (value | READY, effect)
        }
        OP_READ if address == ADDRESS => {
            let data = u32::from(phy.read(reg));
            ((value & !0xffff) | data | READY, Effect::None)
        }
        // Nobody answers at another address, or to another opcode.
        _ => (value | READY | ERROR, Effect::None),
    }
}

/// Carries out an EERD read at once. Returns what EERD reads afterwards.
pub(crate) fn eerd(eeprom: &Eeprom, value: u32) -> u32 {
    let address = value & 0xff00;
    if value & EERD_START == 0 {
        return address;
    }
    let data = eeprom.word((address >> 8) as usize);
    u32::from(data) << 16 | address | EERD_DONE
}
