//! The villains of the 82540EM. The first block is what kills or hangs existing models of this
//! NIC; the second is taken from the security history of other emulated NICs.

use std::time::Duration;

use super::Villain;
use super::setup::{BUFFER, RING, Stage, tcp_frame, tso_context};
use crate::bus::{Bus, BusError};
use crate::e1000::desc::{self, Context, Legacy, cmd, popts, tucmd};
use crate::e1000::regs::{self, phy, rctl, tctl};
use crate::e1000::{Microwire, write_phy};

type Done = Result<(), BusError>;

macro_rules! villains {
    ($($id:ident: $name:literal,)*) => {
        pub(super) const ALL: &[Villain] = &[$(
            Villain { id: stringify!($id), name: $name, run: $id },
        )*];
    };
}

villains! {
    tail_beyond_ring: "TDT beyond the ring's length",
    ring_of_length_zero: "TDLEN = 0, then TDT",
    ring_unmapped: "descriptor rings where nothing is mapped",
    ring_runs_out_of_memory: "rings that begin in memory and end outside",
    buffer_unmapped: "transmit and receive buffers where nothing is mapped",
    buffer_runs_out_of_memory: "buffers that begin in memory and end outside",
    one_byte_frame: "a frame of one byte, of none, and of 13",
    legacy_checksum_wild: "legacy checksum insertion at every odd place",
    data_without_context: "offload asked for with no context before it",
    tso_mss_zero: "segmentation with MSS = 0",
    tso_header_beyond_data: "segmentation with a header longer than the data",
    tso_payload_mismatch: "segmentation with PAYLEN that is not what comes",
    checksum_outside_frame: "checksum offsets outside the frame",
    eeprom_other_opcodes: "every EEPROM opcode, and noise on its pins",
    frame_larger_than_buffer: "frames larger than the receive buffers",
    receive_buffer_null: "receive buffers at address 0",
    unmap_then_send: "DMA unmap, then transmit and receive",
    ever_new_buffers: "transmit from ever new addresses",
    tso_nothing_at_all: "segmentation with MSS, HDRLEN and PAYLEN all 0, 1 or most",
    head_beyond_ring: "TDH and RDH beyond their rings",
    length_changes_underway: "ring lengths changed while descriptors are out",
    base_wraps: "a ring that wraps around the address space",
    never_end_of_packet: "descriptors without end of packet, round and round",
    huge_descriptors: "data descriptors of 1 MiB that add up",
    context_inside_packet: "a context descriptor between the data of one frame",
    headers_lie: "IP and TCP header lengths that lie",
    vlan_on_short_frames: "VLAN insertion into frames of 1 to 17 bytes",
    dma_into_own_registers: "descriptors and buffers at the NIC's own BAR",
    loopback_into_rings: "loopback by RCTL and by PHY, received onto the transmit ring",
    ring_is_its_own_buffer: "a receive buffer on the descriptor ring, a frame made of its ring",
    reserved_descriptor_types: "descriptors of types that do not exist",
    wild_access_sizes: "accesses of every size at every alignment, in and beyond the BAR",
    io_window_wild: "I/O BAR accesses of every size and address",
    timers_extreme: "every delay at 0 and at its most, then traffic",
    all_registers_all_ones: "all ones into every register, then all zeros",
    no_bus_master: "bells rung with bus mastering off",
    reset_underway: "reset between the bell and the work, again and again",
}

fn tail_beyond_ring(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for tail in [RING, RING + 1, 0x7fff, 0xffff, u32::MAX] {
        stage.bus.write32(regs::TDT, tail)?;
        stage.bus.write32(regs::RDT, tail)?;
        stage.traffic()?;
        stage.bus.read32(regs::TDH)?;
    }
    stage.leave()
}

fn ring_of_length_zero(bus: &mut dyn Bus) -> Done {
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

fn ring_unmapped(bus: &mut dyn Bus) -> Done {
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

fn ring_runs_out_of_memory(bus: &mut dyn Bus) -> Done {
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

fn buffer_unmapped(bus: &mut dyn Bus) -> Done {
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

fn buffer_runs_out_of_memory(bus: &mut dyn Bus) -> Done {
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

fn one_byte_frame(bus: &mut dyn Bus) -> Done {
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

fn legacy_checksum_wild(bus: &mut dyn Bus) -> Done {
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

fn data_without_context(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for command in [0, cmd::TSE, cmd::TSE | cmd::VLE] {
        let raw = stage.data(1400, command, popts::IXSM | popts::TXSM).raw();
        stage.send(&[raw])?;
    }
    stage.leave()
}

/// Sends the buffer's first `len` bytes by these contexts, segmented.
fn segment(stage: &mut Stage<'_>, len: u32, context: Context) -> Done {
    let data = stage.data(len, cmd::TSE, popts::IXSM | popts::TXSM);
    stage.send(&[context.raw(), data.raw()])
}

fn tso_mss_zero(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    segment(&mut stage, 1400, tso_context(0, 54, 1346))?;
    segment(&mut stage, 1400, tso_context(1, 54, 1346))?;
    segment(&mut stage, 0xf_ffff, tso_context(1, 54, 0xf_ffff))?;
    stage.leave()
}

fn tso_header_beyond_data(bus: &mut dyn Bus) -> Done {
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

fn tso_payload_mismatch(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for paylen in [0, 1, 100, 1345, 1347, 0xf_ffff] {
        segment(&mut stage, 1400, tso_context(536, 54, paylen))?;
    }
    stage.leave()
}

fn checksum_outside_frame(bus: &mut dyn Bus) -> Done {
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

fn eeprom_other_opcodes(bus: &mut dyn Bus) -> Done {
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

fn frame_larger_than_buffer(bus: &mut dyn Bus) -> Done {
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

fn receive_buffer_null(bus: &mut dyn Bus) -> Done {
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

fn unmap_then_send(bus: &mut dyn Bus) -> Done {
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

fn ever_new_buffers(bus: &mut dyn Bus) -> Done {
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

fn tso_nothing_at_all(bus: &mut dyn Bus) -> Done {
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

fn head_beyond_ring(bus: &mut dyn Bus) -> Done {
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

fn length_changes_underway(bus: &mut dyn Bus) -> Done {
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

fn base_wraps(bus: &mut dyn Bus) -> Done {
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

fn never_end_of_packet(bus: &mut dyn Bus) -> Done {
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

fn huge_descriptors(bus: &mut dyn Bus) -> Done {
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

fn context_inside_packet(bus: &mut dyn Bus) -> Done {
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

fn headers_lie(bus: &mut dyn Bus) -> Done {
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

fn vlan_on_short_frames(bus: &mut dyn Bus) -> Done {
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

fn dma_into_own_registers(bus: &mut dyn Bus) -> Done {
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

fn loopback_into_rings(bus: &mut dyn Bus) -> Done {
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

fn ring_is_its_own_buffer(bus: &mut dyn Bus) -> Done {
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

fn reserved_descriptor_types(bus: &mut dyn Bus) -> Done {
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

fn wild_access_sizes(bus: &mut dyn Bus) -> Done {
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

fn io_window_wild(bus: &mut dyn Bus) -> Done {
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

fn timers_extreme(bus: &mut dyn Bus) -> Done {
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

fn all_registers_all_ones(bus: &mut dyn Bus) -> Done {
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

fn no_bus_master(bus: &mut dyn Bus) -> Done {
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

fn reset_underway(bus: &mut dyn Bus) -> Done {
    for _ in 0..20 {
        let mut stage = Stage::new(bus)?;
        let raw = stage.legacy(1400).raw();
        stage.post(stage.buffer.iova)?;
        stage.send(&[raw; RING as usize - 1])?;
        stage.bus.inject(&tcp_frame(60))?;
        stage.bus.write32(regs::CTRL, regs::ctrl::RST)?;
        stage.bus.inject(&tcp_frame(60))?;
        stage.bus.write32(regs::TDT, 5)?;
        stage.leave()?;
    }
    Ok(())
}
