//! A second processor that rewrites what the device is just reading.

use std::sync::atomic::{AtomicBool, Ordering};

use drivers::e1000::desc::{self, Receive, cmd};
use drivers::e1000::regs::{self, rctl};
use drivers::{Bus, BusError};
use guest_mem::Memory;

use crate::stage::{Dice, Done, RING, Stage, segment, tcp_frame, tso_context};

/// Bells rung while the other processor works.
const ROUNDS: u32 = 150;

/// Has `scribble` run on another thread, over and over, while `work` does its rounds.
pub(crate) fn beside(
    memory: &Memory,
    scribble: impl Fn(&Memory, &mut Dice) + Sync,
    mut work: impl FnMut(u32) -> Done,
) -> Done {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice::new(17);
            while !over.load(Ordering::Relaxed) {
                scribble(memory, &mut dice);
                // Where there is one processor only, the device needs it too.
                if dice.below(64) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let result = (0..ROUNDS).try_for_each(&mut work);
        over.store(true, Ordering::Relaxed);
        result
    })
}

/// Writes one byte somewhere in `bytes` from `base` on, if it is there.
pub(crate) fn flip(memory: &Memory, base: u64, bytes: usize, dice: &mut Dice) {
    let value = match dice.below(3) {
        0 => 0,
        1 => 0xff,
        _ => dice.next() as u8,
    };
    // Unmapped just now: then there is nothing to rewrite.
    let _ = memory
        .view()
        .write(base + dice.below(bytes) as u64, &[value]);
}

fn fill_ring(stage: &mut Stage<'_>, raws: &[desc::Raw]) -> Result<(), BusError> {
    for (index, raw) in (0..u64::from(RING)).zip(raws.iter().cycle()) {
        let at = stage.tx.iova + index * desc::SIZE;
        stage.bus.dma_write(at, raw)?;
    }
    Ok(())
}

pub(crate) fn descriptors_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let ring = stage.tx.iova;
    let raws = [
        stage.legacy(600).raw(),
        tso_context(100, 54, 946).raw(),
        stage.data(1000, cmd::TSE, 3).raw(),
    ];
    beside(
        &memory,
        |memory, dice| flip(memory, ring, RING as usize * 16, dice),
        |round| {
            if round % 8 == 0 {
                fill_ring(&mut stage, &raws)?;
            }
            stage.bus.write32(regs::TDT, (round * 7 + 5) % RING)?;
            stage.bus.read32(regs::TDH).map(drop)
        },
    )?;
    stage.leave()
}

pub(crate) fn lengths_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let ring = stage.tx.iova;
    let raw = stage.data(1400, 0, 3).raw();
    fill_ring(&mut stage, &[raw])?;
    beside(
        &memory,
        |memory, dice| {
            // Only lengths and commands, so that every descriptor stays a good one by halves.
            let index = dice.below(RING as usize) as u64;
            let at = ring + index * desc::SIZE + 8 + dice.below(4) as u64;
            let byte = [0u8, 0xff, 0x3b, 0x2b, 0x10][dice.below(5)];
            let _ = memory.view().write(at, &[byte]);
        },
        |round| {
            stage.bus.write32(regs::TDT, (round * 11 + 3) % RING)?;
            stage.bus.read32(regs::TDH).map(drop)
        },
    )?;
    stage.leave()
}

pub(crate) fn contexts_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let ring = stage.tx.iova;
    let context = tso_context(536, 54, 1346).raw();
    let data = stage.data(1400, cmd::TSE, 3).raw();
    fill_ring(&mut stage, &[context, data])?;
    beside(
        &memory,
        |memory, dice| {
            // MSS, HDRLEN and PAYLEN of all contexts, from honest to absurd and back.
            let index = 2 * dice.below(RING as usize / 2) as u64;
            let at = ring + index * desc::SIZE;
            let view = memory.view();
            let wild = [0, 1, 54, 255][dice.below(4)];
            let _ = view.write(at + 13, &[wild, 0x18, wild]);
            let _ = view.write(at + 8, &[wild, wild]);
            let _ = view.write(at, &context);
        },
        |round| {
            stage.bus.write32(regs::TDT, (round * 13 + 1) % RING)?;
            stage.bus.read32(regs::TDH).map(drop)
        },
    )?;
    stage.leave()
}

pub(crate) fn headers_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let buffer = stage.buffer.iova;
    let honest = tcp_frame(1400);
    beside(
        &memory,
        |memory, dice| {
            // Addresses and type stay, so that the switch always knows where it goes.
            flip(memory, buffer + 14, 60, dice);
            if dice.below(4) == 0 {
                let _ = memory.view().write(buffer, &honest[..60]);
            }
        },
        |_| segment(&mut stage, 1400, tso_context(100, 54, 1346)),
    )?;
    stage.leave()
}

pub(crate) fn receive_descriptors_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.receive_control(3 << rctl::BSIZE_SHIFT)?;
    let memory = stage.bus.memory();
    let (ring, buffer) = (stage.rx.iova, stage.buffer.iova);
    beside(
        &memory,
        |memory, dice| {
            let at = ring + dice.below(RING as usize) as u64 * desc::SIZE;
            let addr = [buffer, 0, u64::MAX - 7, ring, 0x5555_0000][dice.below(5)];
            let _ = memory.view().write(at, &Receive::empty(addr));
        },
        |round| {
            stage.bus.write32(regs::RDT, (round * 9 + 4) % RING)?;
            stage.bus.inject(&tcp_frame(300 + round as usize * 8))?;
            Ok(())
        },
    )?;
    stage.leave()
}

pub(crate) fn rings_and_bases_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let (tx, rx) = (stage.tx.iova, stage.rx.iova);
    let raw = stage.legacy(1400).raw();
    beside(
        &memory,
        |memory, dice| {
            for ring in [tx, rx] {
                flip(memory, ring, RING as usize * 16, dice);
            }
        },
        |round| {
            stage.send_on(&[raw; 4])?;
            let low = [tx, rx, tx + 16, 0][round as usize % 4];
            stage.bus.write32(regs::TDBAL, low as u32)?;
            stage.bus.write32(regs::TDLEN, 128 << (round % 4))?;
            stage.bus.write32(regs::RDLEN, 128 << (round % 5))?;
            stage.bus.write32(regs::RDT, round % RING)?;
            stage.bus.inject(&tcp_frame(100))?;
            Ok(())
        },
    )?;
    stage.leave()
}

pub(crate) fn block_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let page = stage.bus.alloc(csb::PAGE)?;
    let base = page.iova;
    let raw = stage.legacy(600).raw();
    fill_ring(&mut stage, &[raw])?;
    stage.post(stage.buffer.iova)?;
    stage.bus.write32(csb::CSBAH, (base >> 32) as u32)?;
    stage.bus.write32(csb::CSBAL, base as u32)?;
    beside(
        &memory,
        |memory, dice| {
            // Tails that are some and tails that are none, on and off, calls asked for and not.
            let word = 4 * dice.below(0x60 / 4) as u64;
            let value = [0, 1, 7, RING - 1, RING, u32::MAX][dice.below(6)];
            let _ = memory.view().write(base + word, &value.to_le_bytes());
            flip(memory, base, 0x60, dice);
        },
        |round| {
            stage.bus.write32(regs::TDT, (round * 7 + 5) % RING)?;
            stage.bus.write32(regs::RDT, (round * 5 + 3) % RING)?;
            if round % 10 == 0 {
                stage.bus.inject(&tcp_frame(600))?;
            }
            stage.bus.read32(regs::TDH).map(drop)
        },
    )?;
    stage.bus.write32(csb::CSBAL, 0)?;
    stage.bus.read32(regs::STATUS)?;
    stage.bus.free(page)?;
    stage.leave()
}
