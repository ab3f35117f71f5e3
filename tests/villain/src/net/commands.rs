//! Commands of the control queue that no driver gives, or gives so often.

use drivers::Bus;

use super::stage::{BUFFER, CTRL, Net, PACKED, PLAIN, RX, SIZE, TX, WRITE};
use crate::stage::{Dice, Done};

/// Where a command and its answer are.
const COMMAND: u64 = BUFFER + 0x1_0000;
const ANSWER: u64 = BUFFER + 0x8000;

/// Gives a command with so many bytes of it, and room for so many of its answer.
fn give(net: &mut Net<'_>, bytes: &[u8], len: u32, room: u32) -> Done {
    net.put(COMMAND, bytes)?;
    let (command, answer) = (net.at(COMMAND), net.at(ANSWER));
    net.give(CTRL, &[(command, len, 0), (answer, room, WRITE)])
}

fn command(net: &mut Net<'_>, bytes: &[u8]) -> Done {
    give(net, bytes, bytes.len() as u32, 1)?;
    net.kick(CTRL)?;
    net.settle()
}

pub(crate) fn flood(bus: &mut dyn Bus) -> Done {
    for features in [PLAIN, PACKED] {
        let mut net = Net::start(bus, features)?;
        for round in 0..200u8 {
            for _ in 0..SIZE / 2 {
                give(&mut net, &[0, 0, round & 1], 3, 1)?;
            }
            net.kick(CTRL)?;
            // The ring is full again at once.
            net.settle()?;
        }
        // And notifications of nothing.
        for _ in 0..2000 {
            net.kick(CTRL)?;
        }
        net.settle()?;
        net.leave()?;
    }
    Ok(())
}

pub(crate) fn cut_short(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let whole: [&[u8]; 6] = [
        &[0, 0, 1],
        // An address for each of two tables.
        &[1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0],
        &[1, 1, 2, 0, 0, 0, 0, 9],
        &[2, 0, 5, 0],
        &[4, 0, 1, 0],
        &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    for bytes in whole {
        for len in 0..=bytes.len() {
            give(&mut net, &bytes[..len], len as u32, 1)?;
            net.kick(CTRL)?;
            net.settle()?;
            if net.status()? & 0x40 != 0 {
                net.bring_up(PLAIN)?;
            }
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        command(&mut net, &longer)?;
    }
    // No room for an answer, and none at all.
    for room in [0, 0xffff_ffff] {
        give(&mut net, &[0, 0, 1], 3, room)?;
        net.kick(CTRL)?;
        net.settle()?;
        net.bring_up(PLAIN)?;
    }
    let at = net.at(COMMAND);
    net.give(CTRL, &[(at, 3, 0)])?;
    net.kick(CTRL)?;
    net.settle()?;
    net.leave()
}

pub(crate) fn tables_that_lie(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    for count in [2u32, 64, 65, 0x1000, 0x2aaa_aaab, 1 << 31, u32::MAX] {
        for len in [6usize, 12, 400, 4096, 60_000] {
            let mut bytes = vec![1, 0];
            bytes.extend(count.to_le_bytes());
            bytes.resize(len, 2);
            command(&mut net, &bytes)?;
            // The first is true and the second lies.
            let mut bytes = vec![1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 1];
            bytes.extend(count.to_le_bytes());
            bytes.resize(len.max(16), 2);
            command(&mut net, &bytes)?;
        }
    }
    net.leave()
}

pub(crate) fn at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(3);
    for features in [PLAIN, PACKED, PLAIN | 1 << 53 | 1 << 52 | 1 << 50] {
        let mut net = Net::start(bus, features)?;
        for _ in 0..500 {
            let len = dice.below(80);
            let mut bytes: Vec<u8> = (0..len).map(|_| dice.next() as u8).collect();
            if let [class, number, ..] = &mut bytes[..] {
                (*class, *number) = (*class % 9, *number % 8);
            }
            let room = dice.below(70) as u32;
            give(&mut net, &bytes, len as u32, room)?;
            net.kick(CTRL)?;
            net.settle()?;
            if net.status()? & 0x40 != 0 {
                net.bring_up(features)?;
            }
        }
        net.traffic()?;
        net.leave()?;
    }
    Ok(())
}

pub(crate) fn filters_and_frames(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let buffer = net.at(BUFFER);
    for round in 0..60u8 {
        for mode in 0..6 {
            command(&mut net, &[0, mode, round >> mode & 1])?;
        }
        command(&mut net, &[2, round & 1, round, 0])?;
        command(&mut net, &[1, 1, 2, round, 0, 0, 0, 9])?;
        for queue in [RX, TX] {
            let write = if queue == RX { WRITE } else { 0 };
            net.give(queue, &[(buffer, 2048, write)])?;
        }
        net.traffic()?;
        if round % 20 == 0 {
            net.bring_up(PLAIN)?;
        }
    }
    net.leave()
}
