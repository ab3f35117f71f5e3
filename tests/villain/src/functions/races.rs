//! A second processor that rewrites what a function is just reading.

use drivers::Bus;

use super::stage::{
    BASE, Context, Done, HEAD_WB, LEN, ONE_BUFFER, RING, SIZE, SRRCTL, STATUS, Stage, TAIL, XDCTL,
    cmd, data,
};
use crate::races::{beside, flip};

/// Fills the first queue's ring with these, over and over.
fn fill(stage: &mut Stage<'_>, raws: &[super::stage::Raw]) -> Done {
    for (index, raw) in (0..u64::from(RING)).zip(raws.iter().cycle()) {
        let at = stage.tx.iova + index * 16;
        stage.bus.dma_write(at, raw)?;
    }
    Ok(())
}

/// Contexts, data and headers, while packets are cut by them.
pub(crate) fn packets_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let (ring, buffer) = (stage.tx.iova, stage.buffer.iova);
    let command = cmd::EOP | cmd::IFCS | cmd::RS;
    let mut cut = data(buffer, 1400, command | cmd::TSE, 3);
    cut[12..].copy_from_slice(&(1346u32 << 14 | 3 << 8).to_le_bytes());
    let raws = [
        Context::tcp(100).raw(),
        cut,
        data(buffer, 1400, command, 3),
        stage.legacy(600),
    ];
    beside(
        &memory,
        |memory, dice| {
            flip(memory, ring, LEN as usize, dice);
            flip(memory, buffer, 66, dice);
        },
        |round| {
            if round % 8 == 0 {
                fill(&mut stage, &raws)?;
            }
            let tail = stage.txq(0, TAIL);
            stage.bus.write32(tail, (round * 7 + 5) % RING)?;
            stage.bus.read32(STATUS).map(drop)
        },
    )?;
    stage.leave()
}

/// Receive descriptors and split headers, while frames come.
pub(crate) fn buffers_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let (ring, buffer) = (stage.rx.iova, stage.buffer.iova);
    let split = 5 << 25 | 4 << 8 | 1;
    beside(
        &memory,
        |memory, dice| flip(memory, ring, LEN as usize, dice),
        |round| {
            let shape = if round % 2 == 0 { ONE_BUFFER } else { split };
            stage.bus.write32(stage.rxq(0, SRRCTL), shape)?;
            if round % 8 == 0 {
                stage.rx_ring(0, ring, LEN)?;
                stage.post(buffer, buffer + 0x1_0000)?;
            }
            stage.arrive(60 + round as usize)?;
            stage.bus.read32(STATUS).map(drop)
        },
    )?;
    stage.leave()
}

/// Both rings, while where they are, how long they are and whether they run changes.
pub(crate) fn places_rewritten(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let memory = stage.bus.memory();
    let (tx, rx, buffer) = (stage.tx.iova, stage.rx.iova, stage.buffer.iova);
    let raw = stage.data(600);
    beside(
        &memory,
        |memory, dice| {
            flip(memory, tx, LEN as usize, dice);
            flip(memory, rx, LEN as usize, dice);
        },
        |round| {
            fill(&mut stage, &[raw])?;
            stage.post(buffer, buffer)?;
            let home = [tx, rx, buffer, 0x7000_0000][round as usize % 4] as u32;
            for (register, value) in [
                (BASE, home),
                (SIZE, 128 << (round % 4)),
                (HEAD_WB, home | round & 1),
                (XDCTL, (round % 3) << 25),
                (TAIL, round % 40),
            ] {
                stage.bus.write32(stage.txq(0, register), value)?;
                if register != HEAD_WB {
                    stage.bus.write32(stage.rxq(0, register), value)?;
                }
            }
            if round % 10 == 0 {
                stage.arrive(600)?;
            }
            stage.bus.read32(STATUS).map(drop)
        },
    )?;
    stage.bus.write32(stage.txq(0, HEAD_WB), 0)?;
    stage.leave()
}
