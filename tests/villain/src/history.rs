//! What the security history of emulated NICs knows, done to the 82540EM.

use std::time::Duration;

use crate::stage::{BUFFER, Done, RING, Stage, segment, tcp_frame, tso_context};
use drivers::Bus;
use drivers::e1000::desc::{self, Context, Legacy, cmd, popts, tucmd};
use drivers::e1000::regs::{self, phy, rctl};
use drivers::e1000::write_phy;

pub(crate) fn tso_nothing_at_all(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for mss in [0, 1, 0xffff] {
        for hdrlen in [0, 1, 54, 255] {
            for paylen in [0, 1, 0xf_ffff] {
                for len in [0, 1, 100, BUFFER as u32] {
                    segment(&mut stage, len, tso_context(mss, hdrlen, paylen))?;
                }
            }
        }
    }
    stage.leave()
}

pub(crate) fn head_beyond_ring(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for head in [RING, RING + 3, 0xffff, u32::MAX] {
        stage.bus.write32(regs::TDH, head)?;
        stage.bus.write32(regs::TDT, 3)?;
        stage.bus.write32(regs::RDH, head)?;
        stage.post(stage.buffer.iova)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn length_changes_underway(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.legacy(60).raw();
    for len in [128, 0, 0x80, 0xf_ff80, u32::MAX, 1, RING * 16] {
        stage.send(&[raw; 20])?;
        stage.post(stage.buffer.iova)?;
        stage.traffic()?;
        stage.bus.write32(regs::TDLEN, len)?;
        stage.bus.write32(regs::RDLEN, len)?;
        stage.bus.write32(regs::TDT, RING - 1)?;
        stage.bus.write32(regs::RDT, RING - 1)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn base_wraps(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let top = stage.bus.alloc_at(0xffff_ffff_ffff_f000, 0x1000)?;
    stage.tx_ring(0xffff_ffff_ffff_fff0, 0xf_ff80)?;
    stage.rx_ring(0xffff_ffff_ffff_fff0, 0xf_ff80)?;
    stage.bus.write32(regs::TDT, 0xfff0)?;
    stage.bus.write32(regs::RDT, 0xfff0)?;
    stage.traffic()?;
    // A buffer whose last byte is the last there is, and one that goes on.
    let tx = stage.tx.iova;
    stage.tx_ring(tx, RING * 16)?;
    let legacy = Legacy {
        addr: u64::MAX - 59,
        ..stage.legacy(60)
    };
    let beyond = Legacy { len: 61, ..legacy };
    for (index, raw) in (0..).zip([legacy.raw(), beyond.raw()]) {
        stage.bus.dma_write(tx + index * desc::SIZE, &raw)?;
    }
    stage.bus.write32(regs::TDT, 2)?;
    stage.bus.free(top)?;
    stage.leave()
}

pub(crate) fn never_end_of_packet(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let legacy = Legacy {
        cmd: cmd::RS,
        ..stage.legacy(0xffff)
    };
    for _ in 0..200 {
        stage.send(&[legacy.raw(); RING as usize - 1])?;
    }
    let mut data = stage.data(0xf_ffff, 0, 0);
    data.cmd &= !cmd::EOP;
    for _ in 0..50 {
        stage.send(&[data.raw(); RING as usize - 1])?;
    }
    stage.leave()
}

pub(crate) fn huge_descriptors(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let mut more = stage.data(BUFFER as u32, 0, 0);
    more.cmd &= !cmd::EOP;
    let last = stage.data(BUFFER as u32, 0, 0);
    let mut raws = vec![more.raw(); RING as usize - 2];
    raws.push(last.raw());
    stage.send(&raws)?;
    // The same, segmented: 4 MiB by one payload length of 1 MiB.
    more.cmd |= cmd::TSE;
    let mut raws = vec![tso_context(1460, 54, 0xf_ffff).raw()];
    raws.extend(vec![more.raw(); RING as usize - 3]);
    raws.push(stage.data(BUFFER as u32, cmd::TSE, popts::TXSM).raw());
    stage.send(&raws)?;
    stage.leave()
}

pub(crate) fn context_inside_packet(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for (mss, hdrlen) in [(10, 10), (1, 0), (0, 0), (536, 255)] {
        let mut first = stage.data(700, cmd::TSE, popts::IXSM | popts::TXSM);
        first.cmd &= !cmd::EOP;
        let second = stage.data(700, cmd::TSE, popts::IXSM | popts::TXSM);
        stage.send(&[
            tso_context(536, 54, 1346).raw(),
            first.raw(),
            tso_context(mss, hdrlen, 1).raw(),
            second.raw(),
        ])?;
        // A legacy descriptor in the middle, and a plain end of a segmented frame.
        stage.send(&[
            first.raw(),
            stage.legacy(60).raw(),
            stage.data(60, 0, 0).raw(),
        ])?;
    }
    stage.leave()
}

pub(crate) fn headers_lie(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // Byte of the frame, value: version and IHL, total length, data offset.
    for (at, value) in [
        (14, 0x40),
        (14, 0x4f),
        (14, 0x00),
        (14, 0xff),
        (16, 0),
        (16, 0xff),
        (46, 0),
        (46, 0xf0),
    ] {
        let mut frame = tcp_frame(1400);
        frame[at] = value;
        stage.bus.dma_write(stage.buffer.iova, &frame)?;
        segment(&mut stage, 1400, tso_context(536, 54, 1346))?;
        let context = Context {
            tucmd: tucmd::IP | tucmd::TSE,
            ..tso_context(8, 42, 18)
        };
        segment(&mut stage, 60, context)?;
        // As IPv6.
        let context = Context {
            tucmd: tucmd::TCP | tucmd::TSE,
            ..tso_context(536, 54, 1346)
        };
        segment(&mut stage, 1400, context)?;
        stage.post(stage.buffer.iova + 0x1_0000)?;
        stage.bus.write32(regs::RXCSUM, 0x300)?;
        stage.bus.inject(&frame)?;
        stage.bus.inject(&frame[..60])?;
    }
    stage.leave()
}

pub(crate) fn vlan_on_short_frames(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let control = stage.bus.read32(regs::CTRL)?;
    stage.bus.write32(regs::CTRL, control | regs::ctrl::VME)?;
    stage.receive_control(rctl::VFE)?;
    stage.post(stage.buffer.iova + 0x1_0000)?;
    let mut frame = tcp_frame(60);
    frame[12..18].copy_from_slice(&[0x81, 0, 0, 5, 0x81, 0]);
    stage.bus.dma_write(stage.buffer.iova, &frame)?;
    for len in 1..=17u16 {
        let legacy = Legacy {
            cmd: cmd::EOP | cmd::RS | cmd::VLE,
            special: 0xffff,
            ..stage.legacy(len)
        };
        stage.send(&[legacy.raw(), stage.data(len.into(), cmd::VLE, 3).raw()])?;
        stage.bus.inject(&frame[..len.into()])?;
    }
    stage.bus.inject(&frame)?;
    stage.leave()
}

pub(crate) fn dma_into_own_registers(bus: &mut dyn Bus) -> Done {
    // Where firmware would have put BAR 0.
    const BAR: u64 = 0xfebc_0000;
    let mut stage = Stage::new(bus)?;
    stage.bus.config_write(0x10, &(BAR as u32).to_le_bytes())?;
    let legacy = Legacy {
        addr: BAR + u64::from(regs::TDT),
        ..stage.legacy(60)
    };
    stage.send(&[legacy.raw()])?;
    stage.post(BAR + u64::from(regs::TDT))?;
    stage.traffic()?;
    stage.tx_ring(BAR + 0x3800, RING * 16)?;
    stage.bus.write32(regs::TDT, 4)?;
    stage.leave()
}

pub(crate) fn loopback_into_rings(bus: &mut dyn Bus) -> Done {
    for by_phy in [false, true] {
        let mut stage = Stage::new(bus)?;
        if by_phy {
            // A PHY that refuses has refused; the rest goes on without loopback.
            let _ = write_phy(stage.bus, phy::CONTROL, phy::LOOPBACK | 0x0140);
        } else {
            stage.receive_control(rctl::LBM)?;
        }
        stage.bus.write32(regs::IMS, u32::MAX)?;
        let (tx, rx) = (stage.tx.iova, stage.rx.iova);
        for target in [tx, rx, stage.buffer.iova] {
            stage.rx_ring(rx, RING * 16)?;
            stage.post(target)?;
            let raw = stage.legacy(1400).raw();
            stage.send(&[raw; RING as usize - 1])?;
            let context = tso_context(100, 54, 9946);
            segment(&mut stage, 10_000, context)?;
        }
        stage.bus.write32(regs::IMC, u32::MAX)?;
        if by_phy {
            let _ = write_phy(stage.bus, phy::CONTROL, phy::RESET);
        }
        stage.leave()?;
    }
    Ok(())
}

pub(crate) fn ring_is_its_own_buffer(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (tx, rx) = (stage.tx.iova, stage.rx.iova);
    let legacy = Legacy {
        addr: tx,
        ..stage.legacy((RING * 16) as u16)
    };
    stage.send(&[legacy.raw(); 8])?;
    stage.post(rx)?;
    stage.traffic()?;
    stage.post(tx)?;
    stage.traffic()?;
    stage.bus.write32(regs::TDT, RING - 1)?;
    // Both rings in one place.
    stage.rx_ring(tx, RING * 16)?;
    stage.bus.write32(regs::RDT, RING - 1)?;
    stage.traffic()?;
    stage.bus.write32(regs::TDT, 0)?;
    stage.leave()
}

pub(crate) fn reserved_descriptor_types(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for kind in 0..16u8 {
        let mut raw = stage.data(1400, 0, 0xff).raw();
        raw[10] = kind << 4;
        let mut all = [0xff; 16];
        all[10] = kind << 4 | 0xf;
        stage.send(&[raw, all, raw])?;
    }
    stage.leave()
}

pub(crate) fn wild_access_sizes(bus: &mut dyn Bus) -> Done {
    let bytes = [0xa5; 64];
    for base in [
        0,
        regs::ICR,
        regs::MDIC,
        regs::RDBAL,
        regs::MTA,
        0x1_fff8,
        0x1_fffe,
        0x2_0000,
    ] {
        for shift in 0..8 {
            for size in [0, 1, 2, 3, 4, 5, 7, 8, 16, 64] {
                let at = u64::from(base) + shift;
                bus.bar_read(0, at, &mut [0; 64][..size])?;
                bus.bar_write(0, at, &bytes[..size])?;
            }
        }
    }
    for bar in 0..6 {
        for at in [0x7fff_ffff, u64::MAX - 3, u64::MAX] {
            bus.bar_read(bar, at, &mut [0; 4])?;
            bus.bar_write(bar, at, &bytes[..4])?;
        }
    }
    Ok(())
}

pub(crate) fn io_window_wild(bus: &mut dyn Bus) -> Done {
    for bar in 1..6 {
        for address in [
            0u32,
            0x3818,
            0x1_fffc,
            0x2_0000,
            0x7_ffff,
            0x8_0000,
            0xf_ffff,
            u32::MAX,
        ] {
            bus.bar_write(bar, regs::IOADDR, &address.to_le_bytes())?;
            for size in [1, 2, 4, 8] {
                bus.bar_read(bar, regs::IODATA, &mut [0; 8][..size])?;
                bus.bar_write(bar, regs::IODATA, &[0xff; 8][..size])?;
                bus.bar_write(bar, regs::IOADDR, &[0xff; 8][..size])?;
            }
        }
        for at in 0..40 {
            bus.bar_write(bar, at, &[0xff])?;
            bus.bar_read(bar, at, &mut [0; 4])?;
        }
    }
    Ok(())
}

pub(crate) fn timers_extreme(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.bus.write32(regs::IMS, u32::MAX)?;
    for value in [0, 1, 0xffff, u32::MAX] {
        for timer in [regs::ITR, regs::RDTR, regs::RADV, regs::TIDV, regs::TADV] {
            stage.bus.write32(timer, value)?;
        }
        let rx = stage.rx.iova;
        stage.rx_ring(rx, RING * 16)?;
        stage.post(stage.buffer.iova)?;
        let legacy = Legacy {
            cmd: cmd::EOP | cmd::RS | cmd::IDE,
            ..stage.legacy(60)
        };
        for _ in 0..20 {
            stage.send(&[legacy.raw(); 4])?;
            stage.traffic()?;
            stage.bus.wait_irq(Duration::from_micros(10))?;
            stage.bus.unmask_irq()?;
        }
        stage.bus.read32(regs::ICR)?;
    }
    stage.bus.write32(regs::IMC, u32::MAX)?;
    stage.leave()
}

pub(crate) fn all_registers_all_ones(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.post(stage.buffer.iova)?;
    for value in [u32::MAX, 0, 0x5555_5555, u32::MAX] {
        for offset in (0..0x6000).step_by(4) {
            stage.bus.write32(offset, value)?;
            stage.bus.read32(offset)?;
        }
        stage.traffic()?;
    }
    stage.bus.write32(regs::IMC, u32::MAX)?;
    stage.leave()
}

pub(crate) fn no_bus_master(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.bus.config_write(4, &3u16.to_le_bytes())?;
    let raw = stage.legacy(60).raw();
    stage.send(&[raw; 8])?;
    stage.post(stage.buffer.iova)?;
    stage.traffic()?;
    stage.bus.config_write(4, &0u16.to_le_bytes())?;
    stage.send(&[raw; 8])?;
    stage.leave()
}

pub(crate) fn reset_underway(bus: &mut dyn Bus) -> Done {
    for _ in 0..20 {
        let mut stage = Stage::new(bus)?;
        let raw = stage.legacy(1400).raw();
        stage.post(stage.buffer.iova)?;
        stage.send_on(&[raw; RING as usize - 1])?;
        stage.bus.inject(&tcp_frame(60))?;
        stage.bus.write32(regs::CTRL, regs::ctrl::RST)?;
        stage.bus.inject(&tcp_frame(60))?;
        stage.bus.write32(regs::TDT, 5)?;
        stage.leave()?;
    }
    Ok(())
}
