//! Registers of an RTL8168C.

use drivers::Bus;

use super::stage::{BAR, CPCR, CR, DTCCR, EECR, IMR, ISR, MITIGATE, Rtl, TIMER_INT, TX_POLL};
use crate::stage::{Dice, Done};

/// Both windows, and how long that of I/O is.
const IO: u8 = 0;
const WINDOW: u64 = 0x100;

pub(crate) fn every_byte(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(81);
    let mut rtl = Rtl::start(bus)?;
    for bar in [IO, BAR] {
        for at in 0..WINDOW {
            for len in [1usize, 2, 4, 8] {
                if bar == IO && (len == 8 || at + len as u64 > WINDOW) {
                    continue;
                }
                let bytes = dice.next().to_le_bytes();
                rtl.bus.bar_write(bar, at, &bytes[..len])?;
                rtl.bus.bar_read(bar, at, &mut [0; 8][..len])?;
            }
        }
    }
    // DMA may be anywhere now.
    rtl.bring_up()?;
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn the_ring_that_is_not_there(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for _ in 0..200 {
        rtl.w8(TX_POLL, 0xc1)?;
    }
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn statistics_nowhere(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for at in [0, rtl.end() - 32, rtl.end(), u64::MAX] {
        for command in [1, 8, 9] {
            rtl.w32(DTCCR + 4, (at >> 32) as u32)?;
            rtl.w32(DTCCR, at as u32 & !0x3f | command)?;
            rtl.settle()?;
        }
    }
    // Onto the rings.
    let at = rtl.at(0);
    rtl.w32(DTCCR + 4, (at >> 32) as u32)?;
    rtl.w32(DTCCR, at as u32 | 8)?;
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn eeprom_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(93);
    let mut rtl = Rtl::start(bus)?;
    for _ in 0..4000 {
        let (pins, clock) = (dice.next() as u8 & 0xa, 0x80);
        rtl.w8(EECR, clock | 8 | pins)?;
        rtl.w8(EECR, clock | 8 | 4 | pins)?;
        if dice.below(40) == 0 {
            rtl.w8(EECR, clock)?;
        }
    }
    rtl.w8(EECR, 0)?;
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn resets_underway(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for round in 0..300 {
        for _ in 0..8 {
            rtl.send(1000, 0)?;
        }
        rtl.w8(CR, [0x10, 0x8c, 0x1c, 0][round % 4])?;
        rtl.bring_up()?;
    }
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn interrupts_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(14);
    let mut rtl = Rtl::start(bus)?;
    for _ in 0..300 {
        let value = dice.next();
        rtl.w16(MITIGATE, value as u16)?;
        rtl.w16(CPCR, (value >> 16) as u16 | 0x60)?;
        rtl.w32(TIMER_INT, (value >> 32) as u32 & 0xff)?;
        rtl.w16(IMR, (value >> 40) as u16)?;
        rtl.w16(ISR, (value >> 24) as u16)?;
        rtl.send(60, 0)?;
        rtl.traffic()?;
    }
    rtl.leave()
}

pub(crate) fn phy_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(21);
    let mut rtl = Rtl::start(bus)?;
    for _ in 0..1000 {
        rtl.phy(dice.next() as u32 & 0x1f, dice.next() as u16)?;
        rtl.send(60, 0)?;
    }
    rtl.leave()
}
