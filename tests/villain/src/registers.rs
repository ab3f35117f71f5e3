//! Registers, written as no driver would; pins; resets; interrupts without end.

use std::time::Duration;

use drivers::Bus;
use drivers::e1000::regs::{self, ctrl, mdic, phy, rctl};
use drivers::e1000::{Microwire, write_phy};

use crate::stage::{Dice, Done, RING, Stage, tcp_frame};

pub(crate) fn every_dword(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.post(stage.buffer.iova)?;
    let mut dice = Dice::new(7);
    for offset in (0..0x2_0000).step_by(4) {
        let value = dice.next() as u32;
        // The EEPROM's pins and flash are for others of us.
        if !(regs::EECD..=regs::EERD).contains(&offset) {
            stage.bus.write32(offset, value)?;
        }
        if offset % 0x100 == 0 {
            stage.bus.read32(offset)?;
        }
    }
    stage.traffic()?;
    stage.bus.write32(regs::CTRL, ctrl::RST)?;
    stage.leave()
}

pub(crate) fn registers_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(3);
    let mut stage = Stage::new(bus)?;
    let hot = [
        regs::CTRL,
        regs::RCTL,
        regs::TCTL,
        regs::TDBAL,
        regs::TDBAH,
        regs::TDLEN,
        regs::TDH,
        regs::TDT,
        regs::RDBAL,
        regs::RDBAH,
        regs::RDLEN,
        regs::RDH,
        regs::RDT,
        regs::RDTR,
        regs::TXDCTL,
        regs::ITR,
        regs::ICS,
        regs::IMS,
        regs::IMC,
        regs::PBA,
        regs::RXCSUM,
        regs::VET,
    ];
    for round in 0..4000 {
        let register = hot[dice.below(hot.len())];
        let value = match dice.below(4) {
            0 => dice.next() as u32,
            1 => 1 << dice.below(32),
            2 => stage.tx.iova as u32 + dice.below(0x1000) as u32,
            _ => dice.below(600) as u32,
        };
        stage.bus.write32(register, value)?;
        if round % 100 == 0 {
            stage.traffic()?;
        }
    }
    stage.bus.write32(regs::CTRL, ctrl::RST)?;
    stage.leave()
}

pub(crate) fn statistics_written(bus: &mut dyn Bus) -> Done {
    for offset in (0x4000..0x4100u32).step_by(4) {
        bus.write32(offset, u32::MAX)?;
        for shift in 0..4 {
            bus.bar_read(0, u64::from(offset) + shift, &mut [0; 1])?;
            bus.bar_read(0, u64::from(offset) + shift, &mut [0; 8])?;
        }
    }
    Ok(())
}

pub(crate) fn bells_in_pieces(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.legacy(60).raw();
    stage.send(&[raw; 20])?;
    let tail = u64::from(regs::TDT);
    for shift in 0..4 {
        for size in [1, 2, 3] {
            stage
                .bus
                .bar_write(0, tail + shift, &[0xff, 0xff, 0xff][..size])?;
            stage.settle()?;
        }
    }
    // Head and tail, tail and what follows, and everything around, in one access.
    for start in [tail - 8, tail - 4, tail - 3, tail + 1] {
        for size in [8, 16, 64] {
            stage.bus.bar_write(0, start, &[0x1f; 64][..size])?;
            stage.settle()?;
        }
    }
    stage.leave()
}

pub(crate) fn window_walks(bus: &mut dyn Bus) -> Done {
    let Some(bar) = io_bar(bus)? else {
        return Ok(());
    };
    for address in (0..0x2_0100u32).step_by(0x104) {
        for shift in 0..4 {
            let address = address + shift;
            bus.bar_write(bar, regs::IOADDR, &address.to_le_bytes())?;
            bus.bar_read(bar, regs::IODATA, &mut [0; 4])?;
            bus.bar_read(bar, regs::IODATA + u64::from(shift), &mut [0; 2])?;
        }
    }
    // The window into itself, and the reset through it, half an address at a time.
    for half in [0u8, 0xff] {
        bus.bar_write(bar, regs::IOADDR + 2, &[half])?;
        bus.bar_write(bar, regs::IODATA, &ctrl::RST.to_le_bytes())?;
    }
    bus.bar_write(bar, regs::IOADDR, &[0; 4])?;
    for _ in 0..200 {
        bus.bar_write(bar, regs::IODATA, &ctrl::RST.to_le_bytes())?;
    }
    Ok(())
}

fn io_bar(bus: &mut dyn Bus) -> Result<Option<u8>, drivers::BusError> {
    for bar in 0..6u8 {
        let mut low = [0];
        bus.config_read(0x10 + 4 * u16::from(bar), &mut low)?;
        if low[0] & 1 == 1 {
            return Ok(Some(bar));
        }
    }
    Ok(None)
}

pub(crate) fn interrupts_without_end(bus: &mut dyn Bus) -> Done {
    let stage = Stage::new(bus)?;
    for itr in [0, 1, 0xffff] {
        stage.bus.write32(regs::ITR, itr)?;
        stage.bus.write32(regs::IMS, u32::MAX)?;
        for round in 0..3000u32 {
            stage.bus.write32(regs::ICS, u32::MAX)?;
            if round % 10 == 0 {
                stage.bus.unmask_irq()?;
            }
            if round % 100 == 0 {
                stage.bus.read32(regs::ICR)?;
                stage.bus.wait_irq(Duration::ZERO)?;
            }
        }
    }
    stage.bus.write32(regs::IMC, u32::MAX)?;
    stage.bus.read32(regs::ICR)?;
    stage.leave()
}

pub(crate) fn mask_games(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.post(stage.buffer.iova)?;
    for round in 0..3000u32 {
        stage.bus.write32(regs::IMS, 1 << (round % 32))?;
        stage.bus.write32(regs::ICS, 1 << (round % 31))?;
        stage.bus.write32(regs::IMC, 1 << (round % 30))?;
        if round % 300 == 0 {
            stage.traffic()?;
            stage.bus.unmask_irq()?;
        }
    }
    stage.bus.write32(regs::IMC, u32::MAX)?;
    stage.leave()
}

pub(crate) fn timers_started_over(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.post(stage.buffer.iova)?;
    stage.bus.write32(regs::IMS, u32::MAX)?;
    for round in 0..2000u32 {
        // The shortest delays there are, each started over before it ends, and flushed.
        stage.bus.write32(regs::RDTR, 1)?;
        stage.bus.write32(regs::RADV, 1)?;
        stage.bus.write32(regs::RDTR, 1 | regs::RDTR_FPD)?;
        stage.bus.write32(regs::ITR, round % 3)?;
        if round % 200 == 0 {
            stage.traffic()?;
            stage.bus.unmask_irq()?;
        }
    }
    stage.bus.write32(regs::IMC, u32::MAX)?;
    stage.leave()
}

pub(crate) fn pins_forever(bus: &mut dyn Bus) -> Done {
    use regs::eecd;
    // Clocks without a chip select, selects without a clock, a request that is never given back.
    for bits in [
        0,
        eecd::CS,
        eecd::REQ,
        eecd::REQ | eecd::CS,
        eecd::REQ | eecd::CS | eecd::DI,
    ] {
        for _ in 0..500 {
            bus.write32(regs::EECD, bits | eecd::SK)?;
            bus.write32(regs::EECD, bits)?;
        }
        bus.read32(regs::EECD)?;
    }
    for _ in 0..500 {
        bus.write32(regs::EECD, eecd::REQ | eecd::CS)?;
        bus.write32(regs::EECD, eecd::REQ)?;
    }
    bus.write32(regs::EECD, 0)
}

pub(crate) fn eeprom_worn_out(bus: &mut dyn Bus) -> Done {
    const WRITE_ENABLE: u32 = 0b1_0011;
    const WRITE_DISABLE: u32 = 0b1_0000;
    const WRITE: u32 = 0b101;
    let Ok(mut pins) = Microwire::acquire(bus) else {
        return Ok(());
    };
    let word = pins.read(0x20)?;
    pins.select()?;
    pins.shift_out(WRITE_ENABLE << 4, 9)?;
    // One word, written over and over; at last with what it was.
    for round in (0..200u16).rev() {
        pins.select()?;
        pins.shift_out(WRITE << 6 | 0x20, 9)?;
        pins.shift_out((word ^ round).into(), 16)?;
        // Every other one is read before it can be done.
        if round % 2 == 1 {
            pins.select()?;
            pins.shift_in()?;
        }
    }
    // A chip may still be busy with the last but one.
    for _ in 0..100 {
        pins.select()?;
        pins.shift_out(WRITE << 6 | 0x20, 9)?;
        pins.shift_out(word.into(), 16)?;
        pins.select()?;
        if pins.read(0x20)? == word {
            break;
        }
    }
    pins.select()?;
    pins.shift_out(WRITE_DISABLE << 4, 9)?;
    pins.select()?;
    pins.release()?;
    Ok(())
}

pub(crate) fn management_bus_noise(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(5);
    for address in 0..32u32 {
        for op in 0..4u32 {
            for register in 0..32u32 {
                let value = op << 26 | address << mdic::PHY_SHIFT | register << mdic::REG_SHIFT;
                // Power down and loopback are left to others of us.
                let data = if address == phy::ADDRESS && op == 1 {
                    0x1140
                } else {
                    dice.next() as u32 & 0xffff
                };
                bus.write32(regs::MDIC, value | data | mdic::INT)?;
            }
        }
        bus.read32(regs::MDIC)?;
    }
    let _ = write_phy(bus, phy::CONTROL, phy::RESET);
    Ok(())
}

pub(crate) fn link_flaps(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.post(stage.buffer.iova)?;
    let raw = stage.legacy(60).raw();
    const POWER_DOWN: u16 = 1 << 11;
    for round in 0..100u16 {
        let _ = match round % 5 {
            0 => write_phy(stage.bus, phy::CONTROL, POWER_DOWN),
            1 => write_phy(stage.bus, phy::CONTROL, phy::RESET),
            2 => write_phy(
                stage.bus,
                phy::CONTROL,
                phy::RESTART_AUTONEG | phy::AUTONEG_EN,
            ),
            3 => write_phy(stage.bus, phy::AUTONEG_ADV, round),
            _ => write_phy(stage.bus, phy::CONTROL, 0x2100),
        };
        let force = [
            0,
            ctrl::SLU,
            ctrl::SLU | ctrl::FRCSPD | ctrl::FRCDPX,
            ctrl::ASDE | ctrl::SLU,
        ];
        stage
            .bus
            .write32(regs::CTRL, force[usize::from(round) % 4] | ctrl::FD)?;
        stage.send(&[raw])?;
        stage.bus.inject(&tcp_frame(60))?;
    }
    let _ = write_phy(stage.bus, phy::CONTROL, phy::RESET);
    stage.leave()
}

pub(crate) fn resets_in_a_row(bus: &mut dyn Bus) -> Done {
    for _ in 0..3000 {
        bus.write32(regs::CTRL, ctrl::RST)?;
    }
    for _ in 0..200 {
        bus.write32(regs::CTRL, ctrl::PHY_RST | ctrl::RST)?;
        bus.write32(regs::CTRL, ctrl::PHY_RST)?;
    }
    bus.read32(regs::STATUS)?;
    Ok(())
}

pub(crate) fn reset_in_every_state(bus: &mut dyn Bus) -> Done {
    use drivers::e1000::desc::{cmd, popts};
    for state in 0..8 {
        let mut stage = Stage::new(bus)?;
        let mut open = stage.data(700, cmd::TSE, popts::IXSM | popts::TXSM);
        open.cmd &= !cmd::EOP;
        let context = crate::stage::tso_context(100, 54, 1346).raw();
        let whole = stage.legacy(1400).raw();
        match state {
            0 => stage.send(&[context])?,
            1 => stage.send(&[context, open.raw()])?,
            2 => stage.send_on(&[whole; RING as usize - 1])?,
            3 => stage.post(stage.buffer.iova)?,
            4 => stage.receive_control(rctl::LBM)?,
            5 => {
                stage.receive_control(rctl::LBM)?;
                stage.send_on(&[whole; 8])?;
            }
            6 => {
                stage.bus.write32(regs::IMS, u32::MAX)?;
                stage.bus.write32(regs::ICS, u32::MAX)?;
            }
            _ => {
                stage.bus.write32(regs::RDTR, 0xffff)?;
                stage.post(stage.buffer.iova)?;
                stage.traffic()?;
            }
        }
        stage.bus.write32(regs::CTRL, ctrl::RST)?;
        stage.bus.write32(regs::TDT, 3)?;
        stage.bus.inject(&tcp_frame(60))?;
        stage.leave()?;
    }
    Ok(())
}
