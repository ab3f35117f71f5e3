//! EERD, the command register that reads the EEPROM (manual §13.4.4).

use crate::control::eeprom::Eeprom;
use crate::regs::bits::eerd;

/// Carries out an EERD read at once. Returns what EERD reads afterwards.
pub(crate) fn read(eeprom: &Eeprom, value: u32) -> u32 {
    let address = value & eerd::ADDRESS;
    if value & eerd::START == 0 {
        return address;
    }
    let data = eeprom.word((address >> eerd::ADDRESS_SHIFT) as usize);
    u32::from(data) << eerd::DATA_SHIFT | address | eerd::DONE
}
