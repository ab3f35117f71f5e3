//! Rings and descriptors beyond what history knows.

use drivers::Bus;
use drivers::e1000::desc::{self, Context, Legacy, Receive, cmd, popts, tucmd};
use drivers::e1000::regs::{self, ctrl, rctl};

use crate::stage::{BUFFER, Dice, Done, RING, Stage, segment, tcp_frame, tso_context};

/// Bytes of an honest ring.
const LEN: u32 = RING * desc::SIZE as u32;

pub(crate) fn ring_at_the_end_of_all(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for base in [u64::MAX, u64::MAX - 15, u64::MAX - 127, 1 << 63] {
        stage.tx_ring(base, 0xf_ff80)?;
        stage.rx_ring(base, 0xf_ff80)?;
        stage.bus.write32(regs::TDT, 9)?;
        stage.bus.write32(regs::RDT, 9)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn ring_over_two_regions(bus: &mut dyn Bus) -> Done {
    const SEAM: u64 = 1 << 41;
    let mut stage = Stage::new(bus)?;
    let low = stage.bus.alloc_at(SEAM - 0x1000, 0x1000)?;
    let high = stage.bus.alloc_at(SEAM, 0x1000)?;
    let raw = stage.legacy(60).raw();
    for index in 0..u64::from(RING) {
        stage.bus.dma_write(SEAM - 128 + index * desc::SIZE, &raw)?;
    }
    // Whole, it is as good as any; then half of it goes.
    stage.tx_ring(SEAM - 128, LEN)?;
    stage.bus.write32(regs::TDT, RING - 1)?;
    stage.settle()?;
    stage.bus.free(high)?;
    stage.tx_ring(SEAM - 128, LEN)?;
    stage.bus.write32(regs::TDT, RING - 1)?;
    stage.settle()?;
    stage.bus.free(low)?;
    stage.leave()
}

pub(crate) fn rings_on_top_of_each_other(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (tx, buffer) = (stage.tx.iova, stage.buffer.iova);
    for shift in [0, 16, 8, 128, u64::from(LEN) - 16] {
        let raw = stage.legacy(1400).raw();
        stage.rx_ring(tx + shift, LEN)?;
        stage.send(&[raw; RING as usize - 1])?;
        stage.bus.write32(regs::RDT, RING - 1)?;
        stage.traffic()?;
        // Both in the middle of what is sent and received.
        stage.tx_ring(buffer + shift, LEN)?;
        stage.rx_ring(buffer + 2 * shift, LEN)?;
        stage.bus.write32(regs::RDT, RING - 1)?;
        stage.bus.write32(regs::TDT, RING - 1)?;
        stage.traffic()?;
        stage.tx_ring(tx, LEN)?;
    }
    stage.leave()
}

pub(crate) fn largest_ring_each_bell(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // 65,528 descriptors of nothing, and each bell is for all of them.
    let ring = stage.bus.alloc(0xf_ff80)?;
    stage.tx_ring(ring.iova, 0xf_ff80)?;
    for round in 0..20 {
        let tail = if round % 2 == 0 { 65_527 } else { 65_526 };
        stage.bus.write32(regs::TDT, tail)?;
        stage.bus.read32(regs::STATUS)?;
    }
    stage.settle()?;
    stage.bus.free(ring)?;
    stage.leave()
}

pub(crate) fn rings_move_underway(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let other = stage.bus.alloc(u64::from(LEN))?;
    let raw = stage.legacy(600).raw();
    let homes = [stage.tx.iova, other.iova, stage.rx.iova, 0x7000_0000];
    stage.post(stage.buffer.iova)?;
    for round in 0..200usize {
        stage.send_on(&[raw; 5])?;
        let home = homes[round % 4];
        stage.bus.write32(regs::TDBAL, home as u32)?;
        stage
            .bus
            .write32(regs::RDBAL, homes[(round + 1) % 4] as u32)?;
        if round % 10 == 0 {
            stage.bus.inject(&tcp_frame(1400))?;
        }
        stage.bus.write32(regs::TDBAH, (round % 2) as u32)?;
    }
    stage.bus.free(other)?;
    stage.leave()
}

pub(crate) fn empty_descriptors(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let mut open = stage.legacy(0);
    open.cmd = cmd::RS;
    let last = stage.legacy(0).raw();
    for _ in 0..20 {
        stage.send(&[open.raw(); RING as usize - 1])?;
    }
    stage.send(&[last])?;
    let mut open = stage.data(0, cmd::TSE, 3);
    open.cmd &= !cmd::EOP;
    stage.send(&[open.raw(); 20])?;
    stage.send(&[stage.data(0, cmd::TSE, 3).raw()])?;
    stage.leave()
}

pub(crate) fn every_type_and_command(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for kind in 0..16u8 {
        for block in 0..16u8 {
            let mut raws = Vec::new();
            for low in 0..16u8 {
                let mut raw = stage.data(100, 0, 3).raw();
                raw[10] = kind << 4;
                raw[11] = block << 4 | low;
                raws.push(raw);
            }
            stage.send(&raws)?;
        }
        // Whatever is open ends here.
        stage.send(&[stage.legacy(60).raw()])?;
    }
    stage.leave()
}

pub(crate) fn descriptors_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(11);
    let mut stage = Stage::new(bus)?;
    for _ in 0..150 {
        let mut raws = Vec::new();
        for _ in 0..16 {
            let mut raw = [0; 16];
            for byte in &mut raw {
                *byte = dice.next() as u8;
            }
            // Often enough of a known type, at an address that is there, of a length that fits.
            if dice.below(4) > 0 {
                let at = stage.buffer.iova + dice.below(0x1000) as u64;
                raw[..8].copy_from_slice(&at.to_le_bytes());
                raw[9] &= 0x0f;
                raw[10] = (dice.below(3) as u8) << 4;
            }
            raws.push(raw);
        }
        stage.send(&raws)?;
    }
    stage.leave()
}

pub(crate) fn contexts_at_random(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(13);
    let mut stage = Stage::new(bus)?;
    for _ in 0..400 {
        let mut edge = |most: u32| match dice.below(5) {
            0 => 0,
            1 => 1,
            2 => most,
            3 => dice.below(100) as u32 & most,
            _ => dice.next() as u32 & most,
        };
        let context = Context {
            ipcss: edge(0xff) as u8,
            ipcso: edge(0xff) as u8,
            ipcse: edge(0xffff) as u16,
            tucss: edge(0xff) as u8,
            tucso: edge(0xff) as u8,
            tucse: edge(0xffff) as u16,
            paylen: edge(0xf_ffff),
            tucmd: edge(0xff) as u8,
            hdrlen: edge(0xff) as u8,
            mss: edge(0xffff) as u16,
        };
        let len = edge(0x1_ffff).max(1);
        segment(&mut stage, len, context)?;
    }
    stage.leave()
}

pub(crate) fn sums_that_end_before_they_start(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for (start, end) in [(20, 19), (34, 14), (255, 0), (60, 59), (1, 0)] {
        for tse in [0, tucmd::TSE] {
            let context = Context {
                ipcss: start,
                ipcso: 24,
                ipcse: end,
                tucss: start,
                tucse: end,
                tucmd: tucmd::TCP | tucmd::IP | tse,
                ..tso_context(100, 54, 1346)
            };
            let data = stage.data(1400, if tse == 0 { 0 } else { cmd::TSE }, 3);
            stage.send(&[context.raw(), data.raw()])?;
        }
    }
    stage.leave()
}

pub(crate) fn header_in_crumbs(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for (crumbs, hdrlen) in [(20u64, 54), (27, 54), (28, 255)] {
        // The header of a segmented frame, one byte per descriptor; sometimes not all of it.
        let mut raws = vec![tso_context(100, hdrlen, 946).raw()];
        for at in 0..crumbs {
            let mut crumb = stage.data(1, cmd::TSE, popts::IXSM | popts::TXSM);
            crumb.addr += at;
            crumb.cmd &= !cmd::EOP;
            raws.push(crumb.raw());
        }
        let last = stage.data(1000, cmd::TSE, popts::TXSM);
        raws.push(last.raw());
        stage.send(&raws)?;
        // And one in the middle is not there.
        let mut gone = stage.data(1, cmd::TSE, 3);
        gone.addr = 0xdead_0000_0000;
        gone.cmd &= !cmd::EOP;
        raws[10] = gone.raw();
        stage.send(&raws)?;
    }
    stage.leave()
}

pub(crate) fn own_check_sequence_on_short_frames(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for len in 0..24u16 {
        let mut legacy = stage.legacy(len);
        legacy.cmd &= !cmd::IFCS;
        let mut data = stage.data(len.into(), 0, 3);
        data.cmd &= !cmd::IFCS;
        let mut cut = stage.data(len.into(), cmd::TSE, 3);
        cut.cmd &= !cmd::IFCS;
        stage.send(&[legacy.raw(), data.raw(), cut.raw()])?;
    }
    stage.leave()
}

pub(crate) fn segments_of_one_byte(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for len in [2000, 10_000, 0xffff, BUFFER as u32] {
        for hdrlen in [54, 14, 1, 255] {
            segment(
                &mut stage,
                len,
                tso_context(1, hdrlen, len.saturating_sub(54)),
            )?;
        }
    }
    stage.leave()
}

pub(crate) fn udp_and_nothing_segmented(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for command in [0, tucmd::IP, tucmd::TCP, 0xf0] {
        for protocol in [17, 1, 0, 255, 6] {
            let mut frame = tcp_frame(1400);
            frame[23] = protocol;
            stage.bus.dma_write(stage.buffer.iova, &frame)?;
            let context = Context {
                tucmd: command | tucmd::TSE,
                ..tso_context(100, 42, 1358)
            };
            segment(&mut stage, 1400, context)?;
        }
    }
    stage.leave()
}

pub(crate) fn tags_on_everything(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage
        .bus
        .write32(regs::CTRL, ctrl::SLU | ctrl::FD | ctrl::VME)?;
    let mut frame = tcp_frame(1400);
    for at in (12..60).step_by(4) {
        frame[at..at + 4].copy_from_slice(&[0x81, 0, 0xff, 0xff]);
    }
    stage.bus.dma_write(stage.buffer.iova, &frame)?;
    stage.post(stage.buffer.iova + 0x1_0000)?;
    for vet in [0x8100, 0, 0xffff, 0x88a8, 0x0800] {
        stage.bus.write32(regs::VET, vet)?;
        for len in [14, 16, 18, 60, 1400] {
            let mut legacy = stage.legacy(len);
            legacy.cmd |= cmd::VLE;
            legacy.special = 0xffff;
            let mut data = stage.data(len.into(), cmd::VLE, 3);
            data.special = 0xffff;
            let cut = stage.data(len.into(), cmd::VLE | cmd::TSE, 3);
            let context = tso_context(100, 54, 1346).raw();
            stage.send(&[legacy.raw(), data.raw(), context, cut.raw()])?;
            stage.bus.inject(&frame[..len.into()])?;
        }
    }
    stage.leave()
}

pub(crate) fn status_written_to_nowhere(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // The ring goes between the descriptors' reading and their report, again and again.
    for _ in 0..50 {
        let ring = stage.bus.alloc_at(1 << 42, 0x1000)?;
        let raw = stage.legacy(1400).raw();
        for index in 0..u64::from(RING) {
            stage.bus.dma_write(ring.iova + index * desc::SIZE, &raw)?;
        }
        stage.tx_ring(ring.iova, LEN)?;
        stage.bus.write32(regs::TDT, RING - 1)?;
        stage.bus.free(ring)?;
        stage.bus.write32(regs::TDT, 0)?;
    }
    stage.leave()
}

pub(crate) fn every_buffer_size_and_frame(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let rx = stage.rx.iova;
    for size in 0..4 {
        for more in [
            0,
            rctl::BSEX,
            rctl::SBP,
            rctl::SECRC,
            rctl::BSEX | rctl::SBP,
        ] {
            stage.rx_ring(rx, LEN)?;
            let bits = size << rctl::BSIZE_SHIFT | more | rctl::EN | rctl::UPE | rctl::BAM;
            stage.bus.write32(regs::RCTL, bits)?;
            stage.post(stage.buffer.iova)?;
            stage.traffic()?;
            stage.bus.write32(regs::RCTL, bits | rctl::LPE)?;
            for len in [59, 60, 252, 253, 1518, 1519, 1522, 1523, 16_384] {
                stage.bus.inject(&tcp_frame(len))?;
            }
        }
    }
    stage.leave()
}

pub(crate) fn every_other_buffer_null(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.receive_control(3 << rctl::BSIZE_SHIFT)?;
    for round in 0..4 {
        for index in 0..u64::from(RING) {
            let at = stage.rx.iova + index * desc::SIZE;
            let addr = match (index + round) % 4 {
                0 => 0,
                1 => stage.buffer.iova,
                2 => 0x6666_0000,
                _ => u64::MAX - 100,
            };
            stage.bus.dma_write(at, &Receive::empty(addr))?;
        }
        stage
            .bus
            .write32(regs::RDT, (RING - 1 + round as u32) % RING)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn frames_rewrite_their_ring(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let rx = stage.rx.iova;
    // Each buffer is the next descriptors; what comes is descriptors too, which point at the bell,
    // at nothing, or at themselves.
    for target in [rx, rx + 8, 0xfebc_3818, 0, u64::MAX] {
        let mut frame = tcp_frame(512);
        for at in (16..512 - 16).step_by(16) {
            frame[at..at + 8].copy_from_slice(&target.to_le_bytes());
        }
        stage.rx_ring(rx, LEN)?;
        for index in 0..u64::from(RING) {
            let next = rx + (index + 1) % u64::from(RING) * desc::SIZE;
            let at = rx + index * desc::SIZE;
            stage.bus.dma_write(at, &Receive::empty(next))?;
        }
        stage.bus.write32(regs::RDT, RING - 1)?;
        stage.settle()?;
        for _ in 0..RING {
            stage.bus.inject(&frame)?;
        }
    }
    stage.leave()
}

pub(crate) fn no_buffer_ever(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for _ in 0..40 {
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn largest_ring_of_null_buffers(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // Fresh memory is zeros: 65,528 descriptors whose buffers are null.
    let ring = stage.bus.alloc(0xf_ff80)?;
    stage.rx_ring(ring.iova, 0xf_ff80)?;
    for round in 0..10 {
        let tail = if round % 2 == 0 { 65_527 } else { 65_000 };
        stage.bus.write32(regs::RDT, tail)?;
        stage.traffic()?;
    }
    stage.bus.free(ring)?;
    stage.leave()
}

pub(crate) fn a_buffer_now_and_then(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.post(stage.buffer.iova)?;
    for round in 0..40 {
        stage.bus.write32(regs::RDT, (RING - 1 + round) % RING)?;
        for _ in 0..10 {
            stage.bus.inject(&tcp_frame(60))?;
        }
    }
    stage.leave()
}

pub(crate) fn receiver_on_and_off(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for round in 0..100 {
        stage.post(stage.buffer.iova)?;
        stage.bus.inject(&tcp_frame(60))?;
        stage.bus.write32(regs::RCTL, 0)?;
        stage.bus.inject(&tcp_frame(9000))?;
        stage.receive_control(if round % 2 == 0 { 0 } else { rctl::LBM })?;
    }
    stage.leave()
}

pub(crate) fn looped_frames_are_descriptors(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let tx = stage.tx.iova;
    // What is sent is a ring of descriptors, and it is received onto the ring it was sent from.
    let again = Legacy {
        addr: stage.buffer.iova,
        len: RING as u16 * 16,
        cmd: cmd::EOP | cmd::RS | cmd::IFCS,
        ..Legacy::default()
    };
    for index in 0..u64::from(RING) {
        let at = stage.buffer.iova + index * desc::SIZE;
        stage.bus.dma_write(at, &again.raw())?;
    }
    stage.receive_control(rctl::LBM)?;
    for _ in 0..50 {
        let rx = stage.rx.iova;
        stage.rx_ring(rx, LEN)?;
        stage.post(tx)?;
        stage.send(&[again.raw(); RING as usize - 1])?;
    }
    stage.leave()
}

pub(crate) fn context_shrinks_and_loops_back(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.receive_control(rctl::LBM)?;
    for (mss, hdrlen) in [(10, 1), (0, 0), (1, 1), (0xffff, 255)] {
        let rx = stage.rx.iova;
        stage.rx_ring(rx, LEN)?;
        stage.post(stage.buffer.iova + 0x1_0000)?;
        let mut open = stage.data(0x3000, cmd::TSE, 3);
        open.cmd &= !cmd::EOP;
        let raws = [
            tso_context(0x3000, 54, 0x3fb4).raw(),
            open.raw(),
            tso_context(mss, hdrlen, 1).raw(),
            stage.data(0x1000, cmd::TSE, 3).raw(),
        ];
        stage.send(&raws)?;
    }
    stage.leave()
}

pub(crate) fn looped_into_the_bell(bus: &mut dyn Bus) -> Done {
    const BAR: u64 = 0xfebc_0000;
    let mut stage = Stage::new(bus)?;
    stage.bus.config_write(0x10, &(BAR as u32).to_le_bytes())?;
    stage.receive_control(rctl::LBM)?;
    for register in [regs::TDT, regs::RDT, regs::CTRL, regs::ICS] {
        let rx = stage.rx.iova;
        stage.rx_ring(rx, LEN)?;
        stage.post(BAR + u64::from(register))?;
        let raw = stage.legacy(60).raw();
        stage.send(&[raw; 8])?;
    }
    stage.leave()
}
