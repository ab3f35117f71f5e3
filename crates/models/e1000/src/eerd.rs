//! EERD, the command register that reads the EEPROM (manual §13.4.4).

use crate::eeprom::Eeprom;

const START: u32 = 1;
const DONE: u32 = 1 << 4;

/// Carries out an EERD read at once. Returns what EERD reads afterwards.
pub(crate) fn eerd(eeprom: &Eeprom, value: u32) -> u32 {
    let address = value & 0xff00;
    if value & START == 0 {
        return address;
    }
    let data = eeprom.word((address >> 8) as usize);
    u32::from(data) << 16 | address | DONE
}
