//! Capabilities, BARs and the MSI-X table, written as no firmware and no kernel would.

use drivers::{Bus, BusError};

use super::stage::{Done, EICR, EICS, RING, STATUS, Stage, TAIL};
use crate::stage::Dice;

/// BAR of the MSI-X table and its pending bits.
const MSIX_BAR: u8 = 3;

/// Where each capability is, with its id.
fn capabilities(bus: &mut dyn Bus) -> Result<Vec<(u8, u16)>, BusError> {
    let mut found = Vec::new();
    let mut at = [0];
    bus.config_read(0x34, &mut at)?;
    while at[0] >= 0x40 && found.len() < 48 {
        let mut head = [0; 2];
        bus.config_read(at[0].into(), &mut head)?;
        found.push((head[0], u16::from(at[0])));
        at[0] = head[1];
    }
    Ok(found)
}

/// Power state D0, messages off, and the command register as a driver has it.
fn back_to_normal(bus: &mut dyn Bus) -> Result<(), BusError> {
    for (id, at) in capabilities(bus)? {
        match id {
            1 => bus.config_write(at + 4, &[0, 0])?,
            5 | 0x11 => bus.config_write(at + 2, &[0, 0])?,
            _ => {}
        }
    }
    bus.config_write(4, &7u16.to_le_bytes())
}

pub(crate) fn every_place_and_width(bus: &mut dyn Bus) -> Done {
    for value in [0xff, 0, 0x55, 0xaa] {
        for size in [1, 2, 3, 4, 8, 16] {
            for at in 0..0x110u16 {
                bus.config_write(at, &[value; 16][..size])?;
                bus.config_read(at, &mut [0; 16][..size])?;
            }
        }
    }
    back_to_normal(bus)
}

/// All that lies behind the first 256 bytes: errors, serial number, and where SR-IOV would be.
pub(crate) fn extended_space(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(600);
    for value in [u32::MAX, 0, 1, 0x0001_0008] {
        for at in (0x100..0x1000u16).step_by(4) {
            stage.bus.config_write(at, &value.to_le_bytes())?;
            if at % 0x100 == 0 {
                stage.bus.config_read(at, &mut [0; 4])?;
                stage.send_on(&[raw; 2])?;
            }
        }
        // NumVFs and VF enable of a capability at the place the chip has it, in both orders.
        for (at, word) in [(0x170u16, 7u16), (0x168, 0x19), (0x170, 0xffff), (0x168, 0)] {
            stage.bus.config_write(at, &word.to_le_bytes())?;
        }
    }
    for at in [0xfff, 0x1000, 0x7fff, 0xffff] {
        stage.bus.config_write(at, &[0xff; 4])?;
        stage.bus.config_read(at, &mut [0; 4])?;
    }
    back_to_normal(stage.bus)?;
    stage.leave()
}

/// Every word of every capability, under running rings: PM, MSI, MSI-X, PCI Express with its reset.
pub(crate) fn every_capability(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(97);
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(600);
    let found = capabilities(stage.bus)?;
    for round in 0..30u32 {
        let buffer = stage.buffer.iova + 0x1_0000;
        stage.post(buffer, 0)?;
        stage.send_on(&[raw; 3])?;
        for &(_, at) in &found {
            for word in (0..0x30).step_by(2) {
                let value = match round % 3 {
                    0 => u16::MAX,
                    1 => 0,
                    _ => dice.next() as u16,
                };
                stage.bus.config_write(at + word, &value.to_le_bytes())?;
            }
        }
        stage.bus.write32(EICS, u32::MAX)?;
        if round % 10 == 0 {
            stage.arrive(60)?;
        }
    }
    back_to_normal(stage.bus)?;
    stage.leave()
}

/// Power states and function resets, again and again, in mid-flight.
pub(crate) fn power_and_function_resets(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(600);
    let found = capabilities(stage.bus)?;
    for round in 0..60u8 {
        stage.bus.config_write(4, &7u16.to_le_bytes())?;
        stage.send_on(&[raw; RING as usize - 1])?;
        for &(id, at) in &found {
            match id {
                1 => stage.bus.config_write(at + 4, &[round % 4, 0xff])?,
                // Initiate Function Level Reset.
                0x10 => stage.bus.config_write(at + 8, &[0, 0x80])?,
                _ => {}
            }
        }
        stage.bus.write32(stage.txq(0, TAIL), 9)?;
        if round % 10 == 0 {
            stage.arrive(60)?;
        }
    }
    back_to_normal(stage.bus)?;
    stage.leave()
}

/// Wild vectors: addresses and data at random, masks by halves, pending bits, beyond the end.
pub(crate) fn wild_vectors(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(101);
    let stage = Stage::new(bus)?;
    let msix = capabilities(stage.bus)?
        .into_iter()
        .find(|(id, _)| *id == 0x11);
    stage.bus.write32(EICS + 4, u32::MAX)?;
    for round in 0..300u64 {
        for _ in 0..8 {
            let noise = dice.next().to_le_bytes();
            let len = 1 + dice.below(8);
            let at = dice.below(0x200) as u64;
            stage.bus.bar_write(MSIX_BAR, at, &noise[..len])?;
        }
        // Unmasked, masked, enabled, the function masked: with something to say at each step.
        stage
            .bus
            .bar_write(MSIX_BAR, round % 32 * 16 + 12, &[(round % 2) as u8; 4])?;
        if let Some((_, at)) = msix {
            let control = [0xff, (round << 6) as u8];
            stage.bus.config_write(at + 2, &control)?;
        }
        stage.bus.write32(EICS, u32::MAX)?;
        stage.bus.read32(EICR)?;
        let pending = 0x2000 + round % 16;
        stage.bus.bar_write(MSIX_BAR, pending, &[0xff; 8])?;
        stage.bus.bar_read(MSIX_BAR, pending, &mut [0; 8])?;
        stage
            .bus
            .bar_write(MSIX_BAR, 0x3ffc + round % 8, &[0xff; 8])?;
    }
    stage.bus.write32(EICS + 8, u32::MAX)?;
    back_to_normal(stage.bus)?;
    stage.leave()
}

/// BARs sized, put on top of rings, buffers and each other, and moved away, under running rings.
pub(crate) fn bars_on_everything(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(1400);
    let homes = [
        u32::MAX,
        stage.tx.iova as u32,
        stage.buffer.iova as u32,
        0,
        0xfebc_000f,
    ];
    for home in homes {
        for bar in 0..6 {
            let home = home.to_le_bytes();
            stage.bus.config_write(0x10 + 4 * bar, &home)?;
            stage.bus.config_read(0x10 + 4 * bar, &mut [0; 4])?;
        }
        stage.bus.config_write(0x30, &[0xff; 4])?;
        let buffer = stage.buffer.iova;
        stage.rings_back()?;
        stage.post(buffer, buffer)?;
        stage.send(&[raw; 4])?;
        stage.arrive(1400)?;
        stage.bus.read32(STATUS)?;
    }
    back_to_normal(stage.bus)?;
    stage.leave()
}
