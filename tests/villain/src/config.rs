//! Configuration space, written as no firmware would.

use drivers::e1000::regs::{self, ctrl};
use drivers::{Bus, BusError};

use crate::stage::{Dice, Done, RING, Stage, tcp_frame};

/// Power state D0 wherever the capability is, and the command register as a driver has it.
fn back_to_normal(bus: &mut dyn Bus) -> Result<(), BusError> {
    if let Some(power) = capability(bus, 1)? {
        bus.config_write(power + 4, &[0, 0])?;
    }
    bus.config_write(4, &7u16.to_le_bytes())
}

/// Where the capability of this id is.
fn capability(bus: &mut dyn Bus, id: u8) -> Result<Option<u16>, BusError> {
    let mut at = [0];
    bus.config_read(0x34, &mut at)?;
    for _ in 0..48 {
        if at[0] < 0x40 {
            break;
        }
        let mut head = [0; 2];
        bus.config_read(at[0].into(), &mut head)?;
        if head[0] == id {
            return Ok(Some(at[0].into()));
        }
        at[0] = head[1];
    }
    Ok(None)
}

pub(crate) fn every_width_and_place(bus: &mut dyn Bus) -> Done {
    for value in [0xff, 0, 0x55, 0xaa] {
        for size in [1, 2, 3, 4, 8, 16] {
            for at in 0..0x100u16 {
                bus.config_write(at, &vec![value; size])?;
                bus.config_read(at, &mut vec![0; size])?;
            }
        }
    }
    back_to_normal(bus)
}

pub(crate) fn beyond_configuration_space(bus: &mut dyn Bus) -> Done {
    for at in [0xfe, 0xff, 0x100, 0xfff, 0x1000, 0x7fff, 0xfffe, 0xffff] {
        for size in [1, 2, 4, 8, 256] {
            bus.config_write(at, &vec![0xff; size])?;
            bus.config_read(at, &mut vec![0; size])?;
        }
    }
    back_to_normal(bus)
}

pub(crate) fn bar_on_top_of_memory(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.legacy(1400).raw();
    for home in [stage.tx.iova, stage.buffer.iova, 0, 0xffff_ffff] {
        let home = (home as u32).to_le_bytes();
        for bar in 0..6 {
            stage.bus.config_write(0x10 + 4 * bar, &home)?;
        }
        stage.bus.config_write(0x30, &[0xff; 4])?;
        stage.post(stage.buffer.iova)?;
        stage.send(&[raw; 4])?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn command_flips(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.legacy(600).raw();
    stage.post(stage.buffer.iova)?;
    for round in 0..500u16 {
        stage.bus.config_write(4, &(round % 8).to_le_bytes())?;
        if round % 3 == 0 {
            stage.send_on(&[raw; 2])?;
        }
        if round % 50 == 0 {
            stage.bus.inject(&tcp_frame(60))?;
        }
    }
    // Off for good, and then something to do.
    stage.bus.config_write(4, &3u16.to_le_bytes())?;
    stage.send(&[raw; 2])?;
    stage.traffic()?;
    back_to_normal(stage.bus)?;
    stage.leave()
}

pub(crate) fn message_signalled_garbage(bus: &mut dyn Bus) -> Done {
    let stage = Stage::new(bus)?;
    let mut dice = Dice::new(29);
    let msi = capability(stage.bus, 5)?.unwrap_or(0xd0);
    stage.bus.write32(regs::IMS, u32::MAX)?;
    for round in 0..200u32 {
        for at in (2..24).step_by(2) {
            let garbage = (dice.next() as u16).to_le_bytes();
            stage.bus.config_write(msi + at, &garbage)?;
        }
        // On and off again, with something to say.
        stage
            .bus
            .config_write(msi + 2, &[(round % 2) as u8 | 0x70, 0])?;
        stage.bus.write32(regs::ICS, u32::MAX)?;
        stage.bus.read32(regs::ICR)?;
    }
    stage.bus.config_write(msi + 2, &[0, 0])?;
    stage.bus.write32(regs::IMC, u32::MAX)?;
    stage.leave()
}

pub(crate) fn power_games(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.legacy(600).raw();
    let Some(power) = capability(stage.bus, 1)? else {
        return stage.leave();
    };
    for round in 0..50u8 {
        stage.post(stage.buffer.iova)?;
        stage.send_on(&[raw; 4])?;
        stage.bus.config_write(power + 4, &[round % 4, 0xff])?;
        stage.bus.write32(regs::TDT, RING - 1)?;
        stage.bus.inject(&tcp_frame(60))?;
        stage.bus.config_write(power + 4, &[0, 0])?;
    }
    back_to_normal(stage.bus)?;
    stage.bus.write32(regs::CTRL, ctrl::RST)?;
    stage.leave()
}
