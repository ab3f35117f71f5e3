//! What only the physical function has: queues for many flows, filters, routes of interrupts, the
//! registers of the VFs, clock, NVM and semaphores. The interrupts of VFs are here too.

use std::time::Duration;

use drivers::Bus;

use super::stage::{
    CTRL, Done, EICR, EICS, EITR, IVAR, IVAR_MISC, LEN, RING, RST, Stage, TAIL, V2PMAILBOX, VMBMEM,
    tcp_frame,
};
use crate::stage::Dice;

const RXCSUM: u32 = 0x5000;
const MRQC: u32 = 0x5818;
const RETA: u32 = 0x5c00;
const RSSRK: u32 = 0x5c80;

/// Every kind of spreading, into queues that are off, have no ring, or do not exist.
pub(crate) fn spreads_into_nothing(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(61);
    let mut stage = Stage::new(bus)?;
    let buffer = stage.buffer.iova + 0x1_0000;
    for mode in 0..8u32 {
        stage.bus.write32(MRQC, 0xffff_0000 | mode << 3 | mode)?;
        stage.bus.write32(RXCSUM, u32::MAX)?;
        for word in 0..32 {
            let at = RETA + 4 * word;
            stage.bus.write32(at, dice.next() as u32)?;
        }
        for word in 0..10 {
            stage.bus.write32(RSSRK + 4 * word, dice.next() as u32)?;
        }
        stage.post(buffer, 0)?;
        for flow in 0..24u8 {
            let mut frame = tcp_frame(60 + usize::from(flow), [2, 0, 0, 0, 0, 0x66]);
            frame[..6].copy_from_slice(&stage.mac);
            frame[34] = flow;
            stage.bus.inject(&frame)?;
            // While its table changes.
            let at = RETA + 4 * u32::from(flow);
            stage.bus.write32(at, u32::MAX)?;
        }
    }
    stage.leave()
}

/// Every route, every moderation and every cause, with frames that have something to say.
pub(crate) fn interrupt_nonsense(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(67);
    let mut stage = Stage::new(bus)?;
    let buffer = stage.buffer.iova + 0x1_0000;
    stage.post(buffer, 0)?;
    for round in 0..1500u32 {
        let value = match dice.below(3) {
            0 => u32::MAX,
            1 => dice.next() as u32,
            _ => 0x8080_8080 | dice.next() as u32,
        };
        let register = match dice.below(8) {
            0 => EICS,
            1 => EICS + 4,
            2 => EICS + 8,
            3 => EICS + 0xc,
            4 => EICS + 0x10,
            5 => IVAR + 4 * dice.below(8) as u32,
            6 => IVAR_MISC,
            _ => EITR + 4 * dice.below(25) as u32,
        };
        stage.bus.write32(register, value)?;
        if round % 5 == 0 {
            stage.bus.read32(EICR)?;
            // GPIE, IAM, ICS, IMS of the port; a VF has nothing there.
            stage.bus.write32(0x1514, dice.next() as u32)?;
            stage.bus.write32(0x1510, dice.next() as u32)?;
            stage.bus.write32(0x1504, dice.next() as u32)?;
            stage.bus.write32(0x1508, dice.next() as u32)?;
        }
        if round % 100 == 0 {
            let raw = stage.data(60);
            stage.send(&[raw; 3])?;
            stage.arrive(60)?;
        }
    }
    stage.bus.write32(EICS + 8, u32::MAX)?;
    stage.leave()
}

/// Noise into every dword of the window.
pub(crate) fn every_dword(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(71);
    let mut stage = Stage::new(bus)?;
    let end = if stage.virtual_one { 0x4000 } else { 0x2_0000 };
    for offset in (0..end).step_by(4) {
        let value = dice.next() as u32;
        // The pins of the NVM and of flash are for others of us; so are a VF's messages and its reset.
        let pins = !stage.virtual_one && (0x10..0x20).contains(&offset);
        let mailbox = stage.virtual_one && [CTRL, V2PMAILBOX].contains(&offset);
        if !pins && !mailbox {
            stage.bus.write32(offset, value)?;
        }
        if offset % 0x80 == 0 {
            stage.bus.read32(offset)?;
        }
    }
    stage.arrive(60)?;
    stage.bus.write32(CTRL, RST)?;
    stage.leave()
}

/// Writes to what matters, at random, with traffic.
pub(crate) fn registers_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(73);
    let mut stage = Stage::new(bus)?;
    let port = [0x100, 0x400, 0x5000, 0x5004, 0x5008, 0x38, 0x5480, MRQC];
    for round in 0..3000 {
        let queue = dice.below(stage.queues() as usize) as u32;
        let place = 4 * dice.below(16) as u32;
        let register = match dice.below(5) {
            0 | 1 => stage.txq(queue, place),
            2 | 3 => stage.rxq(queue, place),
            _ if stage.virtual_one => 0xf0c,
            _ => port[dice.below(port.len())],
        };
        let value = match dice.below(5) {
            0 => dice.next() as u32,
            1 => 1 << dice.below(32),
            2 => stage.tx.iova as u32 + dice.below(0x1000) as u32,
            3 => 1 << 25,
            _ => dice.below(600) as u32,
        };
        stage.bus.write32(register, value)?;
        if round % 100 == 0 {
            stage.arrive(60)?;
            stage.arrive(1400)?;
        }
    }
    stage.bus.write32(CTRL, RST)?;
    stage.leave()
}

/// Accesses of every size at every alignment, in, across and beyond every BAR.
pub(crate) fn wild_accesses(bus: &mut dyn Bus) -> Done {
    let stage = Stage::new(bus)?;
    let end = if stage.virtual_one { 0x4000 } else { 0x2_0000 };
    for bar in 0..6 {
        for at in [0, 0x7fc, 0x2800, 0x3ff0, end - 8, end, u64::MAX - 8] {
            for shift in 0..8 {
                for size in [1, 2, 3, 4, 7, 8, 16, 64] {
                    let at = at.saturating_add(shift);
                    // The reset and the mailbox are for others of us.
                    if at >= 4 {
                        stage.bus.bar_write(bar, at, &[0x55; 64][..size])?;
                    }
                    stage.bus.bar_read(bar, at, &mut [0; 64][..size])?;
                }
            }
        }
    }
    stage.leave()
}

/// The registers by which the port's driver rules VFs: none leads to one.
pub(crate) fn registers_of_the_vfs(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(79);
    let mut stage = Stage::new(bus)?;
    let software_pf = [
        0x0c80, 0x0c84, 0x0c88, 0x0c8c, 0x0c90, 0x2408, 0x3500, 0x5af0, 0x5bbc, 0x581c,
    ];
    let buffer = stage.buffer.iova + 0x1_0000;
    stage.post(buffer, 0)?;
    for round in 0..40u32 {
        for pool in 0..8 {
            stage.bus.write32(0xc00 + 4 * pool, 0x1f)?;
            stage.bus.write32(0x3700 + 4 * pool, dice.next() as u32)?;
            stage.bus.write32(0x5ad0 + 4 * pool, dice.next() as u32)?;
            stage.bus.write32(VMBMEM + 64 * pool, 0x100)?;
        }
        for register in software_pf {
            let value = if round % 2 == 0 { u32::MAX } else { 0 };
            stage.bus.write32(register, value)?;
            stage.bus.read32(register)?;
        }
        for word in 0..32 {
            stage.bus.write32(0x5d00 + 4 * word, dice.next() as u32)?;
            stage.bus.write32(0xa000 + 4 * word, dice.next() as u32)?;
        }
        let raw = stage.data(600);
        stage.send(&[raw; 3])?;
        stage.arrive(60)?;
    }
    stage.leave()
}

/// Every filter full, empty and at random, under traffic.
pub(crate) fn filters_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(83);
    let mut stage = Stage::new(bus)?;
    let buffer = stage.buffer.iova + 0x1_0000;
    for round in 0..12u32 {
        // MTA, addresses, VFTA; ETQF, and the five-tuple filters.
        let tables = [
            (0x5200, 128),
            (0x5400, 32),
            (0x54e0, 16),
            (0x5600, 128),
            (0x5980, 32),
            (0x5cb0, 8),
        ];
        for (table, words) in tables {
            for word in 0..words {
                let value = match round % 3 {
                    0 => u32::MAX,
                    1 => 0,
                    _ => dice.next() as u32,
                };
                stage.bus.write32(table + 4 * word, value)?;
            }
        }
        // RCTL with neither of the promiscuous bits, VLAN filter and CFI in every way.
        stage.bus.write32(0x100, 1 << 1 | (round & 7) << 18)?;
        let rx = stage.rx.iova;
        stage.rx_ring(0, rx, LEN)?;
        stage.post(buffer, 0)?;
        for tag in [[8u8, 0], [0x81, 0], [0x88, 0xf7], [0xff, 0xff]] {
            let mut frame = stage.frame(200);
            let place = dice.next().to_le_bytes();
            frame[..6].copy_from_slice(&place[..6]);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x66]);
            frame[0] &= 0xfe;
            frame[12..14].copy_from_slice(&tag);
            stage.bus.inject(&frame)?;
            frame[..6].fill(0xff);
            stage.bus.inject(&frame)?;
        }
    }
    stage.leave()
}

/// The clock of IEEE 1588 at every speed, with frames to stamp.
pub(crate) fn clock_games(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let mut raw = stage.data(60);
    // Take the time at which it leaves.
    raw[10] |= 1 << 3;
    for value in [0, 1, u32::MAX, 0x0100_0000, 0xff00_0000, 0x00ff_ffff] {
        for offset in (0xb600..0xb640).step_by(4) {
            stage.bus.write32(offset, value)?;
            stage.bus.read32(offset)?;
        }
        stage.bus.write32(0x5f50, value)?;
        stage.bus.write32(0xb614, 0x10)?;
        stage.bus.write32(0xb620, 0x1e)?;
        stage.send(&[raw; 5])?;
        let mut event = stage.frame(80);
        event[12..16].copy_from_slice(&[0x88, 0xf7, 0, 2]);
        stage.say(&event)?;
        stage.arrive(80)?;
        stage.bus.delay(Duration::from_millis(1))?;
    }
    stage.leave()
}

/// Semaphores taken and never given back, pins of the NVM, and every operation of MDIC.
pub(crate) fn semaphores_and_pins(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(89);
    let stage = Stage::new(bus)?;
    for round in 0..1500u32 {
        stage.bus.read32(0x5b50)?;
        stage.bus.write32(0x5b5c, u32::MAX)?;
        stage.bus.write32(0x10, dice.next() as u32 & 0x77)?;
        stage.bus.write32(0x14, dice.next() as u32)?;
        // Not the PHY's control word: its power is for others of us.
        let phy = dice.next() as u32 | 1 << 16;
        stage.bus.write32(0x20, phy)?;
        if round % 50 == 0 {
            stage.bus.read32(0x20)?;
            stage.bus.read32(0x14)?;
        }
    }
    // A reset of the PHY, by its own register, leaves nothing behind.
    stage.bus.write32(0x20, 1 << 26 | 1 << 21 | 0x9140)?;
    stage.leave()
}

/// Resets of every kind in the middle of work.
pub(crate) fn resets_in_the_middle(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(600);
    for round in 0..300u32 {
        let buffer = stage.buffer.iova + 0x1_0000;
        stage.rings_back()?;
        stage.post(buffer, 0)?;
        stage.send_on(&[raw; RING as usize - 1])?;
        // The port, its PHY, its NVM; a VF has the first alone.
        match round % 4 {
            1 if !stage.virtual_one => stage.bus.write32(CTRL, 1 << 31)?,
            2 if !stage.virtual_one => stage.bus.write32(0x18, 1 << 13)?,
            _ => stage.bus.write32(CTRL, RST)?,
        }
        stage.bus.write32(stage.txq(0, TAIL), 7)?;
        if round % 30 == 0 {
            stage.arrive(600)?;
        }
    }
    stage.bus.write32(CTRL, RST)?;
    stage.leave()
}
