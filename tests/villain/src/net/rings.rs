//! Split rings that no driver makes, and packets behind headers that lie.

use drivers::Bus;

use super::stage::{
    BUFFER, CTRL, EVENTS, INDIRECT, NEXT, Net, OFFLOADS, PACKED, PLAIN, RX, SIZE, TABLE, TX, WRITE,
};
use crate::races::{beside, flip};
use crate::stage::{Dice, Done, tcp_frame};

const QUEUES: [usize; 3] = [RX, TX, CTRL];

pub(crate) fn index_jumps(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    for queue in QUEUES {
        for ahead in [SIZE + 1, 0x7fff, 0x8000, u16::MAX] {
            net.index(queue, ahead)?;
            net.traffic()?;
            net.bring_up(PLAIN)?;
        }
    }
    net.leave()
}

pub(crate) fn descriptor_loops(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let buffer = net.at(BUFFER);
    let table = net.at(TABLE);
    for queue in QUEUES {
        let write = if queue == RX { WRITE } else { 0 };
        for of in [1, 2, SIZE] {
            for slot in 0..of {
                let desc = (buffer, 16, NEXT | write);
                net.put_slot(queue, slot, desc, (slot + 1) % of)?;
                net.put_desc(table + 16 * u64::from(slot), desc, (slot + 1) % of)?;
            }
            net.offer(queue, 0)?;
            net.traffic()?;
            net.bring_up(PLAIN)?;
            // The same in a table.
            let desc = (table, 16 * u32::from(of), INDIRECT);
            net.put_slot(queue, 0, desc, 0)?;
            net.offer(queue, 0)?;
            net.traffic()?;
            net.bring_up(PLAIN)?;
        }
    }
    net.leave()
}

pub(crate) fn heads_beyond(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let buffer = net.at(BUFFER);
    for queue in QUEUES {
        for beyond in [SIZE, SIZE + 1, 0x8000, u16::MAX] {
            net.offer(queue, beyond)?;
            net.traffic()?;
            net.bring_up(PLAIN)?;
            net.put_slot(queue, 0, (buffer, 16, NEXT), beyond)?;
            net.offer(queue, 0)?;
            net.traffic()?;
            net.bring_up(PLAIN)?;
        }
    }
    net.leave()
}

pub(crate) fn tables_in_tables(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let table = net.at(TABLE);
    let end = net.end();
    for queue in QUEUES {
        for (at, len, flags) in [
            (table, 16, INDIRECT),
            (table, 16, INDIRECT | NEXT),
            (table, 0, INDIRECT),
            (table, 15, INDIRECT),
            (table, 24, INDIRECT),
            (table, 16 * u32::from(SIZE) + 16, INDIRECT),
            (table, u32::MAX, INDIRECT),
            (end - 16, 32, INDIRECT),
            (u64::MAX - 15, 32, INDIRECT),
            (u64::MAX, 16, INDIRECT),
        ] {
            // Each entry is a table again.
            for entry in 0..SIZE {
                let place = table + 16 * u64::from(entry);
                net.put_desc(place, (table, 16, INDIRECT), entry)?;
            }
            net.put_desc(end - 16, (table, 16, NEXT), 1)?;
            net.put_slot(queue, 0, (at, len, flags), 1)?;
            net.offer(queue, 0)?;
            net.traffic()?;
            net.bring_up(PLAIN)?;
        }
    }
    net.leave()
}

pub(crate) fn huge_lengths(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let buffer = net.at(BUFFER);
    for queue in QUEUES {
        let write = if queue == RX { WRITE } else { 0 };
        for len in [0x1_0000, 0x6_0000, 1 << 31, u32::MAX] {
            for parts in [1, 2, usize::from(SIZE)] {
                net.give(queue, &vec![(buffer, len, write); parts])?;
                net.traffic()?;
                net.bring_up(PLAIN)?;
            }
        }
    }
    net.leave()
}

pub(crate) fn rings_nowhere(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let (good, end) = (net.desc(TX), net.end());
    for features in [PLAIN, PACKED] {
        for at in [
            0,
            0xfee0_0000,
            1 << 40,
            end,
            end - 64,
            1 << 63,
            u64::MAX - 15,
        ] {
            for part in 0..3 {
                for queue in QUEUES {
                    net.reset()?;
                    net.bring_up(features)?;
                    net.write(super::stage::QUEUE_SELECT, &(queue as u16).to_le_bytes())?;
                    net.write(super::stage::QUEUE_RESET, &1u16.to_le_bytes())?;
                    let mut ring = [good, good + 0x1000, good + 0x2000];
                    ring[part] = at;
                    net.enable_at(queue, SIZE, ring)?;
                    net.traffic()?;
                }
            }
        }
        // Not aligned, and of sizes that cannot be.
        for (size, off) in [
            (SIZE, 1),
            (SIZE, 8),
            (0, 0),
            (3, 0),
            (0x8000, 0),
            (u16::MAX, 2),
        ] {
            net.bring_up(features)?;
            net.write(super::stage::QUEUE_SELECT, &(TX as u16).to_le_bytes())?;
            net.write(super::stage::QUEUE_RESET, &1u16.to_le_bytes())?;
            let ring = [good + off, good + 0x1000 + off, good + 0x2000 + off];
            net.enable_at(TX, size, ring)?;
            net.traffic()?;
        }
    }
    net.leave()
}

pub(crate) fn buffers_nowhere(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let end = net.end();
    for features in [PLAIN, PACKED] {
        for queue in QUEUES {
            let write = if queue == RX { WRITE } else { 0 };
            for at in [
                0,
                0xfee0_0000,
                1 << 40,
                end,
                end - 40,
                1 << 63,
                u64::MAX - 30,
            ] {
                net.bring_up(features)?;
                let answer = (net.at(BUFFER), 1, WRITE);
                match queue {
                    CTRL => net.give(queue, &[(at, 80, 0), answer])?,
                    _ => net.give(queue, &[(at, 80, write)])?,
                }
                net.traffic()?;
            }
        }
    }
    net.leave()
}

pub(crate) fn wrong_ways(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let buffer = net.at(BUFFER);
    for features in [PLAIN, PACKED] {
        for queue in QUEUES {
            for flags in [[0, 0], [0, WRITE], [WRITE, 0], [WRITE, WRITE]] {
                net.bring_up(features)?;
                net.give(queue, &flags.map(|flags| (buffer, 40, flags)))?;
                net.traffic()?;
            }
        }
    }
    net.leave()
}

pub(crate) fn endless_parts(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let (table, buffer) = (net.at(TABLE), net.at(BUFFER));
    for queue in [RX, TX] {
        let write = if queue == RX { WRITE } else { 0 };
        for _ in 0..8 {
            net.bring_up(PLAIN)?;
            // Tables of parts without bytes, but for the last.
            for entry in 0..SIZE {
                let more = if entry + 1 < SIZE { NEXT } else { 0 };
                let desc = (buffer, u32::from(more == 0), write | more);
                net.put_desc(table + 16 * u64::from(entry), desc, entry + 1)?;
            }
            for _ in 0..SIZE {
                net.give(queue, &[(table, 16 * u32::from(SIZE), INDIRECT)])?;
            }
            net.traffic()?;
        }
    }
    net.leave()
}

/// A header: flags, kind of segmentation, length of headers, segment size, checksum start and offset.
type Header = (u8, u8, u16, u16, u16, u16);

fn send(net: &mut Net<'_>, header: Header, len: u32) -> Done {
    let (flags, gso, headers, size, start, offset) = header;
    let mut bytes = vec![flags, gso];
    for word in [headers, size, start, offset, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(tcp_frame(1400));
    net.put(BUFFER, &bytes)?;
    let part = (net.at(BUFFER), len, 0);
    net.give(TX, &[part])?;
    net.kick(TX)?;
    net.settle()
}

pub(crate) fn headers_lie(bus: &mut dyn Bus) -> Done {
    for features in [PLAIN, OFFLOADS] {
        let mut net = Net::start(bus, features)?;
        for header in [
            (1, 0, 0, 0, 34, 16),
            (1, 0, 0, 0, 1399, 1),
            (1, 0, 0, 0, 0xffff, 0xffff),
            (0, 1, 54, 100, 34, 16),
            (1, 1, 54, 0, 34, 16),
            (1, 1, 0, 100, 34, 16),
            (1, 1, 0xffff, 100, 34, 16),
            (1, 1, 54, 100, 14, 16),
            (1, 4, 54, 100, 34, 16),
            (1, 3, 54, 100, 34, 16),
            (1, 5, 54, 100, 34, 16),
            (1, 0xff, 54, 100, 34, 16),
            (0xff, 0x81, 54, 100, 34, 16),
        ] {
            for len in [0, 11, 12, 20, 25, 60, 1412] {
                send(&mut net, header, len)?;
            }
        }
        net.leave()?;
    }
    Ok(())
}

pub(crate) fn tiny_segments(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, OFFLOADS)?;
    for size in [1, 8, 40, 300] {
        for _ in 0..8 {
            send(&mut net, (1, 1, 54, size, 34, 16), 1412)?;
        }
        // The longest that there is.
        let head = (net.at(BUFFER), 12 + 54, 0);
        let payload = (net.at(BUFFER), 65_000, 0);
        for _ in 0..8 {
            net.give(TX, &[head, payload])?;
            net.kick(TX)?;
            net.settle()?;
        }
    }
    net.leave()
}

pub(crate) fn no_buffer_ever(bus: &mut dyn Bus) -> Done {
    for features in [PLAIN, PACKED, OFFLOADS] {
        let mut net = Net::start(bus, features)?;
        for _ in 0..8 {
            net.traffic()?;
            // One now and then, too short for anything.
            let part = (net.at(BUFFER), 20, WRITE);
            net.give(RX, &[part])?;
        }
        net.leave()?;
    }
    Ok(())
}

pub(crate) fn memory_goes(bus: &mut dyn Bus) -> Done {
    for features in [PLAIN, PACKED] {
        let mut net = Net::start(bus, features)?;
        let (rings, buffers) = (net.bus.alloc(0x4000)?, net.bus.alloc(0x1000)?);
        for queue in [RX, TX] {
            net.write(super::stage::QUEUE_SELECT, &(queue as u16).to_le_bytes())?;
            net.write(super::stage::QUEUE_RESET, &1u16.to_le_bytes())?;
            let at = rings.iova + 0x2000 * queue as u64;
            net.enable_at(queue, 16, [at, at + 0x800, at + 0x1000])?;
        }
        net.traffic()?;
        net.bus.free(rings)?;
        net.traffic()?;
        net.bring_up(features)?;
        net.give(RX, &[(buffers.iova, 0x1000, WRITE)])?;
        net.kick(RX)?;
        net.give(TX, &[(buffers.iova, 100, 0)])?;
        net.bus.free(buffers)?;
        net.traffic()?;
        net.leave()?;
    }
    Ok(())
}

pub(crate) fn rings_on_one_page(bus: &mut dyn Bus) -> Done {
    let mut net = Net::start(bus, PLAIN)?;
    let at = net.desc(TX);
    for features in [PLAIN, PACKED] {
        for shift in [0u64, 16, 64, 256] {
            net.bring_up(features)?;
            for queue in QUEUES {
                net.write(super::stage::QUEUE_SELECT, &(queue as u16).to_le_bytes())?;
                net.write(super::stage::QUEUE_RESET, &1u16.to_le_bytes())?;
                net.enable_at(queue, SIZE, [at, at + shift, at + 2 * shift])?;
            }
            for slot in 0..SIZE {
                let flags = [0, WRITE][usize::from(slot % 2)];
                net.put_slot(TX, slot, (at, 1000, flags | 1 << 7), slot)?;
            }
            net.traffic()?;
            net.traffic()?;
        }
    }
    net.leave()
}

pub(crate) fn descriptors_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(27);
    let mut net = Net::start(bus, PLAIN)?;
    let (start, end) = (net.at(0), net.end());
    for features in [PLAIN, PACKED, OFFLOADS, PLAIN | EVENTS, PACKED | EVENTS] {
        for _ in 0..40 {
            net.bring_up(features)?;
            for queue in QUEUES {
                for slot in 0..4 {
                    let at = match dice.below(8) {
                        0 => dice.next(),
                        1 => end - dice.below(64) as u64,
                        _ => start + dice.below(0x7_0000) as u64,
                    };
                    let len = match dice.below(4) {
                        0 => dice.next() as u32,
                        1 => 16 * dice.below(70) as u32,
                        _ => dice.below(3000) as u32,
                    };
                    let flags = dice.next() as u16 & 7 | [1 << 7, 1 << 15][dice.below(2)];
                    let other = match features & (1 << 34) {
                        0 => (dice.below(6)) as u16,
                        _ => dice.next() as u16,
                    };
                    let flags = if features & (1 << 34) == 0 {
                        flags & 7
                    } else {
                        flags
                    };
                    net.put_slot(queue, slot, (at, len, flags), other)?;
                    if features & (1 << 34) == 0 {
                        net.offer(queue, dice.below(6) as u16)?;
                    }
                }
            }
            net.traffic()?;
        }
    }
    net.leave()
}

pub(crate) fn rewritten_underway(bus: &mut dyn Bus) -> Done {
    for features in [PLAIN, PACKED, OFFLOADS | EVENTS] {
        let mut net = Net::start(bus, features)?;
        let memory = net.bus.memory();
        let (rings, table, buffer) = (net.at(0), net.at(TABLE), net.at(BUFFER));
        beside(
            &memory,
            |memory, dice| {
                flip(memory, rings, 0x8000, dice);
                flip(memory, table, 0x400, dice);
                flip(memory, buffer, 0x100, dice);
            },
            |round| {
                if round % 8 == 0 {
                    net.bring_up(features)?;
                }
                for _ in 0..4 {
                    net.give(TX, &[(buffer, 12, 0), (buffer + 64, 600, 0)])?;
                    net.give(RX, &[(buffer + 0x1000, 2048, WRITE)])?;
                }
                net.traffic()
            },
        )?;
        net.leave()?;
    }
    Ok(())
}
