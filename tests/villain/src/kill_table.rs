//! What kills or hangs existing models of the 82540EM.

use crate::stage::{Done, RING, Stage, segment, tso_context};
use drivers::Bus;
use drivers::e1000::Microwire;
use drivers::e1000::desc::{self, Context, Legacy, cmd, popts, tucmd};
use drivers::e1000::regs::{self, rctl, tctl};

pub(crate) fn tail_beyond_ring(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for tail in [RING, RING + 1, 0x7fff, 0xffff, u32::MAX] {
        stage.bus.write32(regs::TDT, tail)?;
        stage.bus.write32(regs::RDT, tail)?;
        stage.traffic()?;
        stage.bus.read32(regs::TDH)?;
    }
    stage.leave()
}

pub(crate) fn ring_of_length_zero(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (tx, rx) = (stage.tx.iova, stage.rx.iova);
    stage.tx_ring(tx, 0)?;
    stage.rx_ring(rx, 0)?;
    for tail in [1, 0, 5] {
        stage.bus.write32(regs::TDT, tail)?;
        stage.bus.write32(regs::RDT, tail)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn ring_unmapped(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for base in [0, 0x8000_0000, 0xffff_ffff_ffff_f000, 0x00ff_0000_0000_0000] {
        stage.tx_ring(base, RING * 16)?;
        stage.rx_ring(base, RING * 16)?;
        stage.bus.write32(regs::TDT, RING - 1)?;
        stage.bus.write32(regs::RDT, RING - 1)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn ring_runs_out_of_memory(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // Eight descriptors in memory, the rest beyond its end.
    let (tx, rx) = (stage.tx.end() - 128, stage.rx.end() - 128);
    let (raw, buffer) = (stage.legacy(60).raw(), stage.buffer.iova);
    for index in 0..8 {
        stage.bus.dma_write(tx + index * desc::SIZE, &raw)?;
        stage
            .bus
            .dma_write(rx + index * desc::SIZE, &buffer.to_le_bytes())?;
    }
    stage.tx_ring(tx, RING * 16)?;
    stage.rx_ring(rx, RING * 16)?;
    stage.bus.write32(regs::TDT, RING - 1)?;
    stage.bus.write32(regs::RDT, RING - 1)?;
    stage.traffic()?;
    stage.traffic()?;
    stage.leave()
}

pub(crate) fn buffer_unmapped(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for addr in [0x4000_0000, u64::MAX, 0xdead_beef_0000_0000] {
        let legacy = Legacy {
            addr,
            ..stage.legacy(1400)
        };
        stage.send(&[legacy.raw(), stage.legacy(60).raw()])?;
        stage.post(addr)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn buffer_runs_out_of_memory(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let addr = stage.buffer.end() - 100;
    let legacy = Legacy {
        addr,
        ..stage.legacy(1400)
    };
    stage.send(&[legacy.raw()])?;
    stage.post(addr)?;
    stage.traffic()?;
    stage.leave()
}

pub(crate) fn one_byte_frame(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for len in [1, 0, 13, 14] {
        let raws = [
            stage.legacy(len).raw(),
            stage.data(len.into(), 0, 0).raw(),
            stage
                .data(len.into(), cmd::VLE, popts::IXSM | popts::TXSM)
                .raw(),
        ];
        stage.send(&raws)?;
        stage.bus.write32(regs::TCTL, tctl::EN)?;
    }
    for len in [0, 1, 13, 14] {
        stage.bus.inject(&vec![0xff; len])?;
    }
    stage.leave()
}

pub(crate) fn legacy_checksum_wild(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for len in [1, 2, 60, 256] {
        for (css, cso) in [
            (0, 0),
            (14, 24),
            (255, 0),
            (0, 255),
            (59, 59),
            (60, 58),
            (255, 255),
        ] {
            let legacy = Legacy {
                css,
                cso,
                cmd: cmd::EOP | cmd::IFCS | cmd::RS | cmd::IC,
                ..stage.legacy(len)
            };
            stage.send(&[legacy.raw()])?;
        }
    }
    stage.leave()
}

pub(crate) fn data_without_context(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for command in [0, cmd::TSE, cmd::TSE | cmd::VLE] {
        let raw = stage.data(1400, command, popts::IXSM | popts::TXSM).raw();
        stage.send(&[raw])?;
    }
    stage.leave()
}

pub(crate) fn tso_mss_zero(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    segment(&mut stage, 1400, tso_context(0, 54, 1346))?;
    segment(&mut stage, 1400, tso_context(1, 54, 1346))?;
    segment(&mut stage, 0xf_ffff, tso_context(1, 54, 0xf_ffff))?;
    stage.leave()
}

pub(crate) fn tso_header_beyond_data(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for (len, hdrlen) in [
        (60, 255),
        (54, 54),
        (53, 54),
        (1, 255),
        (20, 34),
        (1400, 0),
        (1400, 1),
    ] {
        segment(&mut stage, len, tso_context(100, hdrlen, 1000))?;
    }
    stage.leave()
}

pub(crate) fn tso_payload_mismatch(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for paylen in [0, 1, 100, 1345, 1347, 0xf_ffff] {
        segment(&mut stage, 1400, tso_context(536, 54, paylen))?;
    }
    stage.leave()
}

pub(crate) fn checksum_outside_frame(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let places = [0u8, 1, 13, 53, 58, 59, 60, 61, 254, 255];
    for &start in &places {
        for &store in &places {
            let context = Context {
                ipcss: start,
                ipcso: store,
                ipcse: u16::from(store),
                tucss: store,
                tucso: start,
                tucse: 0xffff,
                tucmd: tucmd::TCP | tucmd::IP,
                ..Context::default()
            };
            let data = stage.data(60, 0, popts::IXSM | popts::TXSM);
            stage.send(&[context.raw(), data.raw()])?;
            // The same for segmentation.
            let context = Context {
                tucmd: context.tucmd | tucmd::TSE,
                mss: 100,
                hdrlen: 54,
                paylen: 346,
                ..context
            };
            segment(&mut stage, 400, context)?;
        }
    }
    // Ends before starts.
    let context = Context {
        ipcss: 40,
        ipcse: 20,
        tucss: 50,
        tucse: 30,
        ..tso_context(100, 54, 346)
    };
    segment(&mut stage, 400, context)?;
    stage.leave()
}

pub(crate) fn eeprom_other_opcodes(bus: &mut dyn Bus) -> Done {
    const WRITE_ENABLE: u32 = 19; // start bit, opcode 00, address 11....
    const WRITE_DISABLE: u32 = 16; // start bit, opcode 00, address 00....
    const WRITE: u32 = 0b101;
    let Ok(mut pins) = Microwire::acquire(bus) else {
        return Ok(());
    };
    // Every command but write enable, so that nothing is lost; each goes on for 40 clocks.
    for opcode in (16..32).filter(|&opcode| opcode != WRITE_ENABLE) {
        pins.select()?;
        pins.shift_out(opcode, 5)?;
        pins.shift_out(0xdead_beef, 32)?;
        pins.shift_in()?;
    }
    // Write enabled: a word is replaced by itself, and a write is broken off.
    let word = pins.read(0x20)?;
    pins.select()?;
    pins.shift_out(WRITE_ENABLE << 4, 9)?;
    pins.select()?;
    pins.shift_out(WRITE << 6 | 0x20, 9)?;
    pins.shift_out(word.into(), 16)?;
    pins.select()?;
    pins.shift_out(WRITE << 6 | 0x20, 9)?;
    pins.shift_out(0, 7)?;
    pins.select()?;
    pins.shift_out(WRITE_DISABLE << 4, 9)?;
    pins.release()?;
    // Pins without a request, and every pattern of them.
    for bits in 0..0x400u32 {
        bus.write32(regs::EECD, bits)?;
    }
    for command in [0, u32::MAX, 1 | 0xff << 8, 1 | 0x40 << 8] {
        bus.write32(regs::EERD, command)?;
        bus.read32(regs::EERD)?;
        bus.write32(regs::MDIC, command)?;
        bus.read32(regs::MDIC)?;
    }
    bus.write32(regs::EECD, 0)
}

pub(crate) fn frame_larger_than_buffer(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for bits in [
        3 << rctl::BSIZE_SHIFT,
        2 << rctl::BSIZE_SHIFT,
        0,
        rctl::BSEX,
        rctl::BSEX | 3 << rctl::BSIZE_SHIFT,
        rctl::SBP | 3 << rctl::BSIZE_SHIFT,
        rctl::SECRC | 3 << rctl::BSIZE_SHIFT,
    ] {
        let rx = stage.rx.iova;
        stage.rx_ring(rx, RING * 16)?;
        stage.receive_control(bits)?;
        stage.post(stage.buffer.iova)?;
        stage.traffic()?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn receive_buffer_null(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.post(0)?;
    stage.traffic()?;
    // And the ring going round with nothing but null buffers.
    for tail in [0, RING / 2, RING - 1, 0] {
        stage.bus.write32(regs::RDT, tail)?;
        stage.traffic()?;
    }
    stage.leave()
}

pub(crate) fn unmap_then_send(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let raw = stage.legacy(1400).raw();
    stage.send(&[raw; 4])?;
    stage.post(stage.buffer.iova)?;
    stage.traffic()?;
    stage.bus.free(stage.buffer)?;
    stage.send(&[raw; 4])?;
    stage.traffic()?;
    stage.bus.free(stage.tx)?;
    stage.bus.free(stage.rx)?;
    stage.bus.write32(regs::TDT, RING - 1)?;
    stage.bus.write32(regs::RDT, 0)?;
    stage.traffic()
}

pub(crate) fn ever_new_buffers(bus: &mut dyn Bus) -> Done {
    const SPAN: u64 = 16 << 20;
    let mut stage = Stage::new(bus)?;
    let span = stage.bus.alloc(SPAN)?;
    let mut addr = span.iova;
    for _ in 0..1000 {
        let mut raws = [[0; 16]; RING as usize / 2];
        for raw in &mut raws {
            let legacy = Legacy {
                addr,
                ..stage.legacy(60)
            };
            *raw = legacy.raw();
            // Odd, so that no two are alike.
            addr += 1049;
        }
        stage.send(&raws)?;
    }
    stage.bus.free(span)?;
    stage.leave()
}
