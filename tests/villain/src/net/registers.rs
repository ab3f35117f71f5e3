//! Registers of a virtio-net.

use drivers::Bus;

use super::stage::{
    BAR, BUFFER, NOTIFY, Net, PACKED, PLAIN, QUEUE_ENABLE, QUEUE_RESET, QUEUE_SELECT, RX, STATUS,
    TX, WRITE,
};
use crate::stage::{Dice, Done};

pub(crate) fn every_dword(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(41);
    let mut net = Net::start(bus, PLAIN)?;
    for at in (0..BAR).step_by(4) {
        let page = at % 0x1000;
        // Most of a page is empty.
        if page >= 0x100 && page % 0x80 != 0 {
            continue;
        }
        for len in [1usize, 2, 4, 8] {
            let bytes = dice.next().to_le_bytes();
            net.write(at, &bytes[..len])?;
            let mut read = [0; 8];
            net.bus.bar_read(0, at, &mut read[..len])?;
        }
    }
    net.bring_up(PLAIN)?;
    net.traffic()?;
    net.leave()
}

pub(crate) fn notices_of_nothing(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    for at in (NOTIFY..BAR).step_by(4) {
        for value in [0u32, 3, 0xffff, u32::MAX] {
            net.write(at, &(value as u16).to_le_bytes())?;
            net.write(at, &value.to_le_bytes())?;
        }
        net.settle()?;
    }
    net.traffic()?;
    net.leave()
}

pub(crate) fn resets_underway(bus: &mut dyn Bus) -> Done {
    for features in [PLAIN, PACKED] {
        let mut net = Net::start(bus, features)?;
        let buffer = net.at(BUFFER);
        for round in 0..150u16 {
            for _ in 0..8 {
                net.give(TX, &[(buffer, 1000, 0)])?;
                net.give(RX, &[(buffer + 0x1000, 2048, WRITE)])?;
            }
            net.kick(TX)?;
            net.kick(RX)?;
            if round % 3 == 0 {
                net.write(STATUS, &[0])?;
                net.bring_up(features)?;
                continue;
            }
            let queue = [RX, TX][usize::from(round % 2)];
            net.write(QUEUE_SELECT, &(queue as u16).to_le_bytes())?;
            net.write(QUEUE_RESET, &1u16.to_le_bytes())?;
            net.enable(queue)?;
            // Once more, and off, which no driver may say.
            for value in [1u16, 0, 2, u16::MAX] {
                net.write(QUEUE_ENABLE, &value.to_le_bytes())?;
            }
            let other = [TX, RX][usize::from(round % 2)];
            net.write(QUEUE_SELECT, &(other as u16).to_le_bytes())?;
            net.write(QUEUE_RESET, &1u16.to_le_bytes())?;
            net.enable(other)?;
        }
        net.leave()?;
    }
    Ok(())
}

pub(crate) fn status_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(8);
    let mut net = Net::start(bus, PLAIN)?;
    let buffer = net.at(BUFFER);
    for _ in 0..400 {
        net.write(STATUS, &[dice.next() as u8])?;
        net.bus.config_write(4, &[dice.next() as u8 & 7, 0])?;
        net.put_slot(TX, 0, (buffer, 100, 0), 0)?;
        net.offer(TX, 0)?;
        net.traffic()?;
    }
    net.bus.config_write(4, &7u16.to_le_bytes())?;
    net.leave()
}
