//! Rings, contexts and descriptors of any function: the physical one and virtual ones alike.

use drivers::{Bus, Dma};

use super::stage::{
    BASE, BASE_HIGH, BUFFER, Context, Done, ENABLE, HEAD, HEAD_WB, LEN, ONE_BUFFER, RING, SIZE,
    SRRCTL, Stage, TAIL, XDCTL, cmd, data,
};
use crate::stage::Dice;

/// Where nothing of ours is mapped.
const NOWHERE: u64 = 0xdead_0000_0000;

pub(crate) fn rings_nowhere(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for base in [NOWHERE, u64::MAX - 127, 0, stage.buffer.end() - 128] {
        for queue in 0..stage.queues() {
            stage.tx_ring(queue, base, LEN)?;
            stage.rx_ring(queue, base, LEN)?;
            stage.bus.write32(stage.txq(queue, TAIL), RING - 1)?;
            stage.bus.write32(stage.rxq(queue, TAIL), RING - 1)?;
        }
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn buffers_nowhere(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for addr in [NOWHERE, u64::MAX - 10, stage.buffer.end() - 10, 0] {
        stage.rings_back()?;
        stage.post(addr, addr)?;
        let raw = data(addr, 1400, cmd::EOP | cmd::IFCS | cmd::RS, 0);
        stage.send(&[raw; 4])?;
        stage.traffic()?;
    }
    stage.leave()
}

/// Where drivers of other functions have their memory; nothing of ours is there.
pub(crate) fn memory_of_others(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for at in (0x40_0000u64..0x100_0000).step_by(0x4_0000) {
        stage.rings_back()?;
        stage.post(at, at + 0x800)?;
        stage.send(&[data(at, 1400, cmd::EOP | cmd::IFCS | cmd::RS, 0); 2])?;
        stage.arrive(1400)?;
        // And the rings themselves, the place of heads included.
        stage.bus.write32(stage.txq(0, HEAD_WB), at as u32 | 1)?;
        stage.tx_ring(0, at, LEN)?;
        stage.rx_ring(0, at, LEN)?;
        stage.bus.write32(stage.txq(0, TAIL), 5)?;
        stage.bus.write32(stage.rxq(0, TAIL), RING - 1)?;
        stage.arrive(60)?;
        stage.bus.write32(stage.txq(0, HEAD_WB), 0)?;
    }
    stage.leave()
}

pub(crate) fn rings_that_are_none(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for (size, head, tail) in [
        (LEN, 0, RING),
        (LEN, RING, 1),
        (LEN, 0xffff, 0xffff),
        (0, 0, 1),
        (128, 9, 2),
        (0xf_ff80, 0xffff, 0xfffe),
    ] {
        for queue in 0..stage.queues() {
            for (register, value) in [(SIZE, size), (HEAD, head), (TAIL, tail)] {
                stage.bus.write32(stage.txq(queue, register), value)?;
                stage.bus.write32(stage.rxq(queue, register), value)?;
            }
        }
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn queue_storm(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(600);
    let rx = stage.rx.iova;
    for round in 0..400u32 {
        let buffer = stage.buffer.iova + 0x1_0000;
        stage.post(buffer, buffer)?;
        stage.send_on(&[raw; 3])?;
        // SWFLSH, thresholds of all kinds, off, on.
        for value in [1 << 26, 0x001f_1f1f, 0, ENABLE | 1 << 26, ENABLE] {
            for queue in 0..stage.queues() {
                stage.bus.write32(stage.txq(queue, XDCTL), value)?;
                stage.bus.write32(stage.rxq(queue, XDCTL), value)?;
            }
            if round % 20 == 0 {
                stage.arrive(60)?;
            }
        }
        if round % 50 == 49 {
            stage.rx_ring(0, rx, LEN)?;
        }
    }
    stage.leave()
}

/// Every ring on the same page, which is their buffer and the place of their heads too.
pub(crate) fn rings_are_one(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let page = stage.tx.iova;
    let own = data(page, 512, cmd::EOP | cmd::IFCS | cmd::RS, 0);
    for round in 0..20u32 {
        for index in 0..u64::from(RING) {
            stage.bus.dma_write(page + index * 16, &own)?;
        }
        for queue in 0..stage.queues() {
            stage.tx_ring(queue, page, LEN)?;
            stage.rx_ring(queue, page, LEN)?;
            let home = page as u32 + 4 * (round + queue);
            stage.bus.write32(stage.txq(queue, HEAD_WB), home | 1)?;
            stage.bus.write32(stage.rxq(queue, TAIL), RING - 1)?;
            stage.bus.write32(stage.txq(queue, TAIL), RING - 1)?;
        }
        stage.traffic()?;
    }
    for queue in 0..stage.queues() {
        stage.bus.write32(stage.txq(queue, HEAD_WB), 0)?;
    }
    stage.leave()
}

pub(crate) fn heads_written_oddly(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(60);
    let places = [
        NOWHERE,
        u64::MAX - 3,
        stage.buffer.end() - 2,
        stage.tx.iova,
        stage.tx.iova + 12,
        // A BAR, where no memory is.
        0xfebc_0000 + 0x3818,
        0,
    ];
    for place in places {
        stage.rings_back()?;
        for more in [1, 2, 3] {
            let (low, high) = (place as u32 | more, (place >> 32) as u32);
            stage.bus.write32(stage.txq(0, HEAD_WB), low)?;
            stage.bus.write32(stage.txq(0, HEAD_WB + 4), high)?;
            stage.send(&[raw; 3])?;
        }
    }
    stage.bus.write32(stage.txq(0, HEAD_WB), 0)?;
    stage.leave()
}

pub(crate) fn contexts_wild(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(41);
    let mut stage = Stage::new(bus)?;
    for _ in 0..300 {
        let mut edge = |most: u32| match dice.below(4) {
            0 => 0,
            1 => 1,
            2 => most,
            _ => dice.next() as u32 & most,
        };
        let context = Context {
            maclen: edge(0x7f),
            iplen: edge(0x1ff),
            l4len: edge(0xff),
            mss: edge(0xffff),
            vlan: edge(0xffff),
            l4: edge(3),
            slot: edge(7),
        };
        let len = edge(0xffff).max(1);
        let command = cmd::EOP | cmd::IFCS | cmd::RS | (edge(3) as u8) << 6;
        let mut raw = data(stage.buffer.iova, len, command, edge(3) as u8);
        raw[12..].copy_from_slice(&edge(u32::MAX).to_le_bytes());
        stage.send(&[context.raw(), raw])?;
    }
    stage.leave()
}

pub(crate) fn segments_without_sense(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let command = cmd::EOP | cmd::IFCS | cmd::RS | cmd::TSE;
    for (mss, l4len) in [(0, 20), (1, 20), (1, 0), (0xffff, 255), (1, 255)] {
        let context = Context {
            l4len,
            ..Context::tcp(mss)
        };
        for len in [0, 1, 54, 55, 0xffff] {
            let raw = data(stage.buffer.iova, len, command, 3);
            // What is announced is all there can be.
            let mut most = raw;
            most[14..].fill(0xff);
            stage.send(&[context.raw(), raw, most])?;
        }
    }
    stage.leave()
}

pub(crate) fn contexts_in_midst(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let command = cmd::IFCS | cmd::RS | cmd::TSE;
    for slot in 0..8 {
        let other = |mss, l4len| Context {
            l4len,
            slot,
            ..Context::tcp(mss)
        };
        let open = data(stage.buffer.iova, 0x3000, command, 3);
        let last = data(stage.buffer.iova, 0x1000, command | cmd::EOP, 3);
        stage.send(&[
            other(1000, 20).raw(),
            open,
            other(0, 0).raw(),
            open,
            other(1, 255).raw(),
            last,
        ])?;
    }
    stage.leave()
}

pub(crate) fn no_end_of_packet(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for command in [cmd::RS, 0, cmd::TSE] {
        let open = data(stage.buffer.iova, 0xffff, command, 0);
        for _ in 0..60 {
            stage.send(&[open; RING as usize - 1])?;
        }
        let empty = data(stage.buffer.iova, 0, command, 0);
        for _ in 0..60 {
            stage.send(&[empty; RING as usize - 1])?;
        }
        stage.send(&[stage.data(60)])?;
    }
    stage.leave()
}

pub(crate) fn every_descriptor_type(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for kind in 0..16u8 {
        for block in 0..16u8 {
            let mut raws = Vec::new();
            for low in 0..16u8 {
                let mut raw = stage.data(100);
                raw[10] = kind << 4 | low;
                raw[11] = block << 4 | low;
                raws.push(raw);
            }
            stage.send(&raws)?;
        }
        // Whatever is open ends here.
        stage.send(&[stage.data(60)])?;
    }
    stage.leave()
}

pub(crate) fn descriptors_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(43);
    let mut stage = Stage::new(bus)?;
    for _ in 0..150 {
        let mut raws = Vec::new();
        for _ in 0..16 {
            let mut raw = [0; 16];
            for byte in &mut raw {
                *byte = dice.next() as u8;
            }
            // Often enough of a known type, at an address that is there.
            if dice.below(4) > 0 {
                let at = stage.buffer.iova + dice.below(0x1000) as u64;
                raw[..8].copy_from_slice(&at.to_le_bytes());
                raw[10] = (2 + dice.below(2) as u8) << 4;
                raw[11] |= cmd::DEXT;
            }
            raws.push(raw);
        }
        stage.send(&raws)?;
    }
    stage.leave()
}

pub(crate) fn frames_too_short(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for len in 0..20u16 {
        let mut legacy = stage.legacy(len);
        let mut sums = stage.legacy(len);
        // A checksum to be inserted behind the end, and no FCS of the chip's.
        (sums[10], sums[13]) = (255, 254);
        sums[11] |= cmd::IC | cmd::VLE;
        legacy[11] &= !cmd::IFCS;
        let mut own = stage.data(len.into());
        own[11] &= !cmd::IFCS;
        stage.send(&[legacy, sums, own, stage.data(len.into())])?;
    }
    stage.leave()
}

pub(crate) fn every_buffer_shape(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (rx, buffer) = (stage.rx.iova, stage.buffer.iova);
    let psrtype = if stage.virtual_one { 0xf0c } else { 0x5480 };
    stage.bus.write32(psrtype, u32::MAX)?;
    for kind in 0..8 {
        for more in [0, 1, 0x7f, 0x3f00, 0x3f01, 0x8000_0001, 0x01f0_0001] {
            stage.rx_ring(0, rx, LEN)?;
            stage.bus.write32(stage.rxq(0, SRRCTL), kind << 25 | more)?;
            stage.post(buffer, buffer + 0x1_0000)?;
            for len in [60, 1400, 1518] {
                stage.arrive(len)?;
            }
        }
    }
    stage.leave()
}

pub(crate) fn headers_split_into_nothing(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (rx, buffer) = (stage.rx.iova, stage.buffer.iova);
    let psrtype = if stage.virtual_one { 0xf0c } else { 0x5480 };
    stage.bus.write32(psrtype, u32::MAX)?;
    for header in [NOWHERE, 0, u64::MAX, buffer + BUFFER - 20, rx, rx + 8] {
        for packet in [buffer, 0, NOWHERE, rx] {
            stage.rx_ring(0, rx, LEN)?;
            let split = 5 << 25 | 4 << 8 | 1;
            stage.bus.write32(stage.rxq(0, SRRCTL), split)?;
            stage.post(packet, header)?;
            for len in [60, 1400] {
                stage.arrive(len)?;
            }
        }
    }
    stage.leave()
}

pub(crate) fn rings_go_underway(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (tx, rx) = (stage.tx, stage.rx);
    for round in 0..60u64 {
        let gone: Dma = stage.bus.alloc_at(1 << 42, 0x1000)?;
        let raw = stage.data(1400);
        for index in 0..u64::from(RING) {
            stage.bus.dma_write(gone.iova + index * 16, &raw)?;
        }
        stage.tx_ring(0, gone.iova, LEN)?;
        stage.rx_ring(0, gone.iova, LEN)?;
        stage.bus.write32(stage.rxq(0, TAIL), RING - 1)?;
        stage.bus.write32(stage.txq(0, TAIL), RING - 1)?;
        // Elsewhere, or gone, between the bell and the work.
        if round % 2 == 0 {
            stage.bus.write32(stage.txq(0, BASE), tx.iova as u32)?;
            stage.bus.write32(stage.rxq(0, BASE), rx.iova as u32)?;
            stage.bus.write32(stage.txq(0, BASE_HIGH), 0x77)?;
        }
        stage.bus.free(gone)?;
        stage.bus.write32(stage.txq(0, TAIL), 3)?;
        stage.arrive(1400)?;
    }
    stage.leave()
}

pub(crate) fn bells_in_pieces(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(60);
    stage.send(&[raw; 20])?;
    for queue in 0..stage.queues() {
        let tail = u64::from(stage.txq(queue, TAIL));
        for shift in 0..4 {
            for size in [1, 2, 3] {
                let bytes = &[0xff; 3][..size];
                stage.bus.bar_write(0, tail + shift, bytes)?;
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
    }
    stage.leave()
}

/// The largest rings, of nothing, in every queue at once, and each bell is for all of them.
pub(crate) fn largest_rings(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let ring = stage.bus.alloc(0xf_ff80)?;
    for queue in 0..stage.queues() {
        stage.tx_ring(queue, ring.iova, 0xf_ff80)?;
    }
    for round in 0..6 {
        for queue in 0..stage.queues() {
            let tail = if round % 2 == 0 { 65_527 } else { 65_526 };
            stage.bus.write32(stage.txq(queue, TAIL), tail)?;
        }
        stage.bus.read32(super::stage::STATUS)?;
    }
    stage.settle()?;
    for queue in 0..stage.queues() {
        stage.bus.write32(stage.txq(queue, XDCTL), 0)?;
    }
    stage.settle()?;
    stage.bus.free(ring)?;
    stage.leave()
}

/// Comes up, takes nothing, and is sent to all the same.
pub(crate) fn no_buffer_ever(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for round in 0..40 {
        // Now and then one that is of no use.
        if round % 8 == 7 {
            stage.bus.write32(stage.rxq(0, TAIL), 1)?;
        }
        for len in [60, 1400] {
            stage.arrive(len)?;
        }
    }
    stage.leave()
}

pub(crate) fn no_bus_master(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.data(600);
    let buffer = stage.buffer.iova + 0x1_0000;
    stage.post(buffer, 0)?;
    for round in 0..200u16 {
        stage.bus.config_write(4, &(round % 8).to_le_bytes())?;
        stage.send_on(&[raw; 2])?;
        if round % 20 == 0 {
            stage.arrive(60)?;
        }
    }
    stage.bus.config_write(4, &2u16.to_le_bytes())?;
    stage.send(&[raw; 2])?;
    stage.arrive(60)?;
    stage.bus.config_write(4, &7u16.to_le_bytes())?;
    stage.bus.write32(stage.rxq(0, SRRCTL), ONE_BUFFER)?;
    stage.leave()
}
