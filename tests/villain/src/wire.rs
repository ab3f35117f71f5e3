//! Frames made to trouble the switch and those who hang on it.

use drivers::Bus;
use drivers::e1000::regs;

use crate::stage::{Dice, Done, RING, Stage, tcp_frame};

/// Sends `count` frames made by `make`, a ring at a time.
fn flood(stage: &mut Stage<'_>, count: usize, mut make: impl FnMut(usize, &mut [u8; 60])) -> Done {
    let mut frame = [0; 60];
    frame.copy_from_slice(&tcp_frame(60));
    let many = RING as usize - 1;
    for first in (0..count).step_by(many) {
        let mut raws = Vec::new();
        for n in first..(first + many).min(count) {
            make(n, &mut frame);
            let mut one = stage.legacy(60);
            one.addr += (n % many) as u64 * 64;
            stage.bus.dma_write(one.addr, &frame)?;
            raws.push(one.raw());
        }
        stage.send(&raws)?;
    }
    Ok(())
}

/// An address of the villain's own invention.
fn invented(n: u64) -> [u8; 6] {
    let [a, b, c, d, ..] = (n as u32).to_be_bytes();
    [0x06, 0x66, a, b, c, d]
}

pub(crate) fn ever_new_senders(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    flood(&mut stage, 3000, |n, frame| {
        frame[..6].copy_from_slice(&invented(1 << 24));
        frame[6..12].copy_from_slice(&invented(n as u64));
    })?;
    stage.leave()
}

pub(crate) fn ever_new_receivers(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    flood(&mut stage, 3000, |n, frame| {
        frame[..6].copy_from_slice(&invented(n as u64 | 1 << 25));
    })?;
    stage.leave()
}

pub(crate) fn broadcast_storm(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    flood(&mut stage, 3000, |_, _| {})?;
    stage.leave()
}

pub(crate) fn multicast_storm(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let mut dice = Dice::new(19);
    flood(&mut stage, 3000, |_, frame| {
        for byte in &mut frame[..6] {
            *byte = dice.next() as u8;
        }
        frame[0] |= 1;
    })?;
    stage.leave()
}

pub(crate) fn a_group_as_sender(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    flood(&mut stage, 200, |n, frame| {
        frame[6..12].copy_from_slice(&[0xff; 6]);
        if n % 2 == 0 {
            frame[6..12].copy_from_slice(&[1, 0, 0x5e, 0, 0, n as u8]);
        }
    })?;
    stage.leave()
}

pub(crate) fn bridge_and_pause_frames(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    flood(&mut stage, 320, |n, frame| {
        frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, (n % 16) as u8]);
        // The longest pause there is.
        frame[12..18].copy_from_slice(&[0x88, 0x08, 0, 1, 0xff, 0xff]);
    })?;
    stage.leave()
}

pub(crate) fn to_itself(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // The address it was given is the one that the switch surely has a place for.
    let (low, high) = (stage.bus.read32(regs::RAL)?, stage.bus.read32(regs::RAH)?);
    let mut own = [0; 6];
    own[..4].copy_from_slice(&low.to_le_bytes());
    own[4..].copy_from_slice(&high.to_le_bytes()[..2]);
    flood(&mut stage, 200, |_, frame| {
        frame[..6].copy_from_slice(&own);
        frame[6..12].copy_from_slice(&own);
    })?;
    stage.leave()
}

pub(crate) fn all_zeros_as_address(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    flood(&mut stage, 100, |n, frame| {
        frame[6..12].fill(0);
        if n % 2 == 0 {
            frame[..6].fill(0);
        }
    })?;
    stage.leave()
}

pub(crate) fn jumbo_storm(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.legacy(16_288).raw();
    for _ in 0..20 {
        stage.send(&[raw; RING as usize - 1])?;
    }
    stage.leave()
}

pub(crate) fn noise_storm(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let mut dice = Dice::new(23);
    flood(&mut stage, 3000, |_, frame| {
        for byte in &mut frame[12..] {
            *byte = dice.next() as u8;
        }
    })?;
    stage.leave()
}

pub(crate) fn takes_one_frame_at_a_time(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // The switch learns where it is, so that frames for it wait rather than flood.
    flood(&mut stage, 1, |_, frame| {
        frame[6..12].copy_from_slice(&invented(7));
    })?;
    let mut frame = tcp_frame(60);
    frame[..6].copy_from_slice(&invented(7));
    stage.post(stage.buffer.iova)?;
    for tail in 0..20u32 {
        stage.bus.write32(regs::RDT, tail)?;
        stage.settle()?;
        for _ in 0..4 {
            stage.bus.inject(&frame)?;
        }
    }
    stage.leave()
}

pub(crate) fn in_the_name_of_others(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (low, high) = (stage.bus.read32(regs::RAL)?, stage.bus.read32(regs::RAH)?);
    let mut own = [0; 6];
    own[..4].copy_from_slice(&low.to_le_bytes());
    own[4..].copy_from_slice(&high.to_le_bytes()[..2]);
    // Neighbours' addresses are like one's own but for the last byte.
    flood(&mut stage, 2000, |n, frame| {
        frame[6..12].copy_from_slice(&own);
        frame[11] = (n % 16) as u8;
    })?;
    stage.leave()
}
