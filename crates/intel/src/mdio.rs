//! MDIC, the command register that leads to the PHY (8254x manual §13.4.7; 82576 datasheet §8.2.4:
//! the same bits).

use crate::phy::{ADDRESS, Effect, Phy};

const OP_WRITE: u32 = 1;
const OP_READ: u32 = 2;
const READY: u32 = 1 << 28;
const INTERRUPT: u32 = 1 << 29;
const ERROR: u32 = 1 << 30;

/// Whether completion of this MDIC command is to raise an interrupt.
pub fn wants_interrupt(value: u32) -> bool {
    value & INTERRUPT != 0
}

/// Carries out an MDIC command at once. Returns what MDIC reads afterwards.
pub fn mdic(phy: &mut Phy, value: u32) -> (u32, Effect) {
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
        // No PHY answers at another address, or to another opcode.
        _ => (value | READY | ERROR, Effect::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phy::PhyModel;

    #[test]
    fn only_the_phys_own_address_answers() {
        let mut phy = Phy::new(true, PhyModel::Igp03, false);
        let read = OP_READ << 26 | 2 << 16;
        assert_eq!(
            mdic(&mut phy, read | ADDRESS << 21).0,
            read | ADDRESS << 21 | READY | 0x02a8
        );
        let (elsewhere, effect) = mdic(&mut phy, read | 2 << 21 | INTERRUPT);
        assert_eq!(elsewhere & (READY | ERROR), READY | ERROR);
        assert_eq!(effect, Effect::None);
        assert!(wants_interrupt(elsewhere));
    }
}
