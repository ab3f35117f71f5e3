//! Packed rings whose flags lie.

use drivers::Bus;

use super::stage::{
    AVAIL, BUFFER, CTRL, EVENTS, INDIRECT, NEXT, Net, PACKED, RX, SIZE, TABLE, TX, USED, WRITE,
};
use crate::stage::{Dice, Done};

const QUEUES: [usize; 3] = [RX, TX, CTRL];

pub(crate) fn wraps_lie(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PACKED)?;
    let buffer = net.at(BUFFER);
    for queue in QUEUES {
        let write = if queue == RX { WRITE } else { 0 };
        // Of the other lap, used already, and both of it: all around the ring, with and without an end.
        for flags in [0, USED, AVAIL | USED, AVAIL] {
            for more in [0, NEXT] {
                for slot in 0..SIZE {
                    let desc = (buffer, 100, flags | more | write);
                    net.put_slot(queue, slot, desc, slot)?;
                }
                net.traffic()?;
                net.traffic()?;
                net.bring_up(PACKED)?;
            }
        }
        // The first is available and in the middle there are some of another lap.
        for slot in 0..SIZE {
            let lap = if slot % 3 == 1 { USED } else { AVAIL };
            net.put_slot(queue, slot, (buffer, 100, lap | NEXT | write), 7)?;
        }
        net.traffic()?;
        net.bring_up(PACKED)?;
    }
    net.leave()
}

pub(crate) fn flags_flip(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PACKED)?;
    let buffer = net.at(BUFFER);
    for round in 0..64u16 {
        for queue in QUEUES {
            let write = if queue == RX { WRITE } else { 0 };
            net.give(queue, &[(buffer, 300, write)])?;
            net.kick(queue)?;
            // Taken back, or given once more, while the device looks.
            let flags = [0, USED, AVAIL | NEXT, AVAIL | USED][usize::from(round % 4)];
            net.put_slot(queue, round, (buffer, 300, flags | write), u16::MAX)?;
        }
        net.traffic()?;
        if net.status()? & 0x40 != 0 {
            net.bring_up(PACKED)?;
        }
    }
    net.leave()
}

pub(crate) fn tables(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PACKED)?;
    let (table, end) = (net.at(TABLE), net.end());
    for queue in QUEUES {
        for (at, len, flags) in [
            (table, 16, INDIRECT),
            (table, 16, INDIRECT | NEXT),
            (table, 0, INDIRECT),
            (table, 24, INDIRECT),
            (table, 16 * u32::from(SIZE) + 16, INDIRECT),
            (table, u32::MAX, INDIRECT),
            (end - 16, 32, INDIRECT),
            (u64::MAX - 15, 16, INDIRECT),
        ] {
            for entry in 0..SIZE {
                let place = table + 16 * u64::from(entry);
                net.put_desc(place, (table, 16, INDIRECT), 0)?;
            }
            net.put_slot(queue, 0, (at, len, flags | AVAIL), 0)?;
            net.traffic()?;
            net.bring_up(PACKED)?;
        }
    }
    net.leave()
}

pub(crate) fn events_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(5);
    for features in [PACKED | EVENTS, super::stage::PLAIN | EVENTS] {
        let mut net = Net::start(bus, features)?;
        let buffer = net.at(BUFFER);
        for round in 0..200u64 {
            if round % 40 == 0 {
                net.bring_up(features)?;
            }
            for queue in [RX, TX] {
                let driver = net.desc(queue) + 0x1000;
                let word = (dice.next() as u32).to_le_bytes();
                let at = match features & (1 << 34) {
                    0 => driver + 4 + 2 * u64::from(SIZE),
                    _ => driver,
                };
                net.bus.dma_write(at, &word)?;
                let write = if queue == RX { WRITE } else { 0 };
                net.give(queue, &[(buffer, 200, write)])?;
            }
            net.traffic()?;
        }
        net.leave()?;
    }
    Ok(())
}
