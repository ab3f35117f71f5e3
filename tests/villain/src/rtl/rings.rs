//! Rings and packets that no driver makes.

use drivers::Bus;
use guest_mem::Memory;

use super::stage::{
    BOTH, BUFFERS, EOR, FS, LS, MOST, OWN, RING, RMS, RX, RX_BASE, Rtl, TX, TX_BASE, TX_POLL,
};
use crate::races::{beside, flip};
use crate::stage::{Dice, Done, tcp_frame};

/// Segmentation of TCP over IPv4, with a header at so many bytes, and the MSS in the second word.
const LARGE: u32 = 1 << 26;
const MSS_SHIFT: u32 = 18;

pub(crate) fn rings_nowhere(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for base in [0, rtl.end(), rtl.end() + 0x1000, u64::MAX - 0xff, 1 << 63] {
        rtl.rings(base, base)?;
        rtl.traffic()?;
    }
    // In memory at first.
    rtl.bring_up()?;
    let last = rtl.end() - 0x100;
    for i in 0..16 {
        let at = rtl.at(BUFFERS);
        rtl.desc(last - rtl.at(0), i, BOTH | 60, 0, at)?;
    }
    rtl.rings(last, last)?;
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn buffers_nowhere(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for addr in [0, rtl.end() - 30, rtl.end(), u64::MAX - 20, u64::MAX] {
        rtl.give(&[(BOTH | 100, 0, addr)])?;
        let more = (OWN | LS | 100, 0, addr);
        let at = rtl.at(BUFFERS);
        rtl.give(&[(OWN | FS | 100, 0, at), more])?;
        for i in 0..RING {
            let end = if i + 1 == RING { EOR } else { 0 };
            rtl.desc(RX, i, OWN | end | 0x800, 0, addr)?;
        }
        rtl.traffic()?;
    }
    rtl.leave()
}

pub(crate) fn packet_without_an_end(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let at = rtl.at(BUFFERS);
    for first in [OWN | FS, OWN] {
        for i in 0..RING {
            let end = if i + 1 == RING { EOR } else { 0 };
            rtl.desc(TX, i, first | end | 1000, 0, at)?;
        }
        for _ in 0..8 {
            rtl.traffic()?;
        }
        rtl.bring_up()?;
    }
    rtl.leave()
}

pub(crate) fn ring_without_an_end(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let at = rtl.at(BUFFERS);
    for len in [60, 0x800] {
        for i in 0..MOST {
            rtl.desc(TX, i, BOTH | len, 0, at)?;
            rtl.desc(RX, i, OWN | len, 0, at + 0x1_0000)?;
        }
        rtl.traffic()?;
        rtl.traffic()?;
        rtl.bring_up()?;
    }
    rtl.leave()
}

pub(crate) fn many_ends(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let at = rtl.at(BUFFERS);
    for gap in [1, 2, 3, 7] {
        // The position is brought behind the first of them.
        for i in 0..RING {
            rtl.desc(TX, i, BOTH | 60, 0, at)?;
        }
        rtl.traffic()?;
        for i in 0..2 * RING {
            let end = if i % gap == 0 { EOR } else { 0 };
            rtl.desc(TX, i, BOTH | end | 60, 0, at)?;
            rtl.desc(RX, i, OWN | end | 0x800, 0, at + 0x1_0000)?;
        }
        rtl.traffic()?;
        rtl.traffic()?;
        rtl.bring_up()?;
    }
    rtl.leave()
}

pub(crate) fn chains_begin_wrongly(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let at = rtl.at(BUFFERS);
    for _ in 0..20 {
        rtl.give(&[(OWN | LS | 60, 0, at)])?;
        rtl.give(&[(OWN | FS | 60, 0, at), (BOTH | 60, 0, at)])?;
        rtl.give(&[(OWN | 60, 0, at), (OWN | LS | 60, 0, at)])?;
        rtl.settle()?;
    }
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn lengths_of_no_frame(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let at = rtl.at(BUFFERS);
    for len in [0, 1, 13, 16_289, 0xffff] {
        rtl.send(len, 0)?;
        rtl.settle()?;
        rtl.send(len, 1 << 17)?;
        rtl.settle()?;
    }
    // Of a ring, more than 64 KiB.
    let mut descs = vec![(OWN | 0xffff, 0, at); RING as usize - 1];
    descs[0].0 |= FS;
    descs.last_mut().expect("some").0 |= LS;
    rtl.give(&descs)?;
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn checksums_of_nothing(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let mut dice = Dice::new(11);
    for second in [1 << 31, 1 << 30, 1 << 29, 1 << 28, 0xf << 28] {
        for offset in [0, 1, 34, 0x3ff] {
            let second = second | offset << 18;
            rtl.put(BUFFERS, &[0x5a; 200])?;
            rtl.send(100, second)?;
            rtl.settle()?;
            let mut frame = tcp_frame(200);
            // IP's lengths and its protocol.
            for at in [14, 16, 17, 23, 46] {
                frame[at] = dice.next() as u8;
            }
            rtl.put(BUFFERS, &frame)?;
            rtl.send(200, second)?;
            rtl.settle()?;
        }
    }
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn segmentation_that_cannot_be(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let mut frame = tcp_frame(1514);
    for mss in [0, 1, 7, 1460, 0x7ff] {
        for bit in [LARGE, LARGE >> 1, LARGE << 1, 7 << 25] {
            for lie in [14, 23, 46] {
                frame[lie] ^= 0x0f;
                rtl.put(BUFFERS, &frame)?;
                frame[lie] ^= 0x0f;
                let at = rtl.at(BUFFERS);
                for len in [20, 54, 55, 1514] {
                    rtl.give(&[(BOTH | bit | len, mss << MSS_SHIFT, at)])?;
                    rtl.settle()?;
                }
            }
        }
    }
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn tiny_segments(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let mut frame = tcp_frame(0xf000);
    frame.truncate(0xf000);
    rtl.put(BUFFERS, &frame)?;
    let at = rtl.at(BUFFERS);
    for mss in [1, 2, 30, 300] {
        for _ in 0..8 {
            rtl.give(&[(BOTH | LARGE | 0xf000, mss << MSS_SHIFT, at)])?;
            rtl.settle()?;
        }
    }
    rtl.leave()
}

pub(crate) fn buffers_without_bytes(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let at = rtl.at(BUFFERS);
    for ring in [RING, MOST] {
        for i in 0..ring {
            let end = if i + 1 == ring { EOR } else { 0 };
            // One byte at the end of many.
            let len = u32::from(i % 100 == 99);
            rtl.desc(RX, i, OWN | end | len, 0, at)?;
        }
        rtl.w16(RMS, 0)?;
        rtl.rings(rtl.at(TX), rtl.at(RX))?;
        for _ in 0..16 {
            rtl.traffic()?;
        }
    }
    rtl.leave()
}

pub(crate) fn no_buffer_ever(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for i in 0..RING {
        rtl.desc(RX, i, if i + 1 == RING { EOR } else { 0 }, 0, 0)?;
    }
    for _ in 0..16 {
        rtl.traffic()?;
    }
    rtl.leave()
}

pub(crate) fn memory_goes(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let (rings, buffers) = (rtl.bus.alloc(0x2000)?, rtl.bus.alloc(0x1000)?);
    rtl.rings(rings.iova, rings.iova + 0x1000)?;
    rtl.traffic()?;
    rtl.bus.free(rings)?;
    rtl.traffic()?;
    rtl.bring_up()?;
    for i in 0..RING {
        rtl.desc(RX, i, OWN | 0x800, 0, buffers.iova)?;
    }
    rtl.give(&[(BOTH | 100, 0, buffers.iova)])?;
    rtl.traffic()?;
    rtl.bus.free(buffers)?;
    rtl.give(&[(BOTH | 100, 0, buffers.iova)])?;
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn ring_is_its_own_buffer(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for shift in [0, 16, 8, 256] {
        let (tx, rx) = (rtl.at(TX), rtl.at(RX));
        for i in 0..RING {
            let end = if i + 1 == RING { EOR } else { 0 };
            rtl.desc(TX, i, BOTH | end | 512, 0, tx + shift)?;
            rtl.desc(RX, i, OWN | end | 0x800, 0, rx + shift)?;
        }
        rtl.traffic()?;
        // Both rings in one place.
        rtl.rings(tx, tx)?;
        rtl.traffic()?;
        rtl.traffic()?;
        rtl.bring_up()?;
    }
    rtl.leave()
}

pub(crate) fn descriptors_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(8168);
    let mut rtl = Rtl::start(bus)?;
    for _ in 0..60 {
        for i in 0..RING {
            for ring in [TX, RX] {
                let addr = match dice.below(4) {
                    0 => dice.next(),
                    1 => rtl.end() - dice.next() % 64,
                    _ => rtl.at(BUFFERS) + dice.next() % 0x1_0000,
                };
                let (first, second) = (dice.next() as u32, dice.next() as u32);
                let own = if dice.below(8) > 0 { OWN } else { 0 };
                rtl.desc(ring, i, first | own, second, addr)?;
            }
        }
        rtl.traffic()?;
        if dice.below(4) == 0 {
            rtl.bring_up()?;
        }
    }
    rtl.leave()
}

pub(crate) fn bases_change_underway(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for round in 0..200u64 {
        rtl.send(60, 0)?;
        let at = rtl.at(round % 3 * 0x100);
        rtl.w32([TX_BASE, RX_BASE][(round % 2) as usize], at as u32)?;
        rtl.w8(TX_POLL, 0x40)?;
        if round % 16 == 15 {
            rtl.traffic()?;
            rtl.bring_up()?;
        }
    }
    rtl.leave()
}

pub(crate) fn rewritten_underway(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let at = rtl.at(BUFFERS);
    rtl.put(BUFFERS, &tcp_frame(1514))?;
    let (tx, rx) = (rtl.at(TX), rtl.at(RX));
    let memory = rtl.bus.memory();
    let ring = 16 * RING as usize;
    let scribble = |memory: &Memory, dice: &mut Dice| {
        for (base, bytes) in [(tx, ring), (rx, ring), (at, 64)] {
            flip(memory, base, bytes, dice);
        }
    };
    beside(&memory, scribble, |round| {
        for i in 0..RING {
            let end = if i + 1 == RING { EOR } else { 0 };
            rtl.desc(TX, i, BOTH | end | 1514, 0xf << 28, at)?;
        }
        if round % 16 == 15 {
            rtl.bring_up()?;
        }
        rtl.traffic()
    })?;
    rtl.leave()
}
