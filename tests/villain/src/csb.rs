//! A communication status block that lies, moves and goes away.

use csb::{CSBAH, CSBAL, PAGE, at};
use drivers::e1000::regs::{self, ctrl, rctl, tctl};
use drivers::{Bus, BusError};

use crate::stage::{Done, RING, Stage};

/// Gives the NIC a page at `iova`.
fn give(stage: &mut Stage<'_>, iova: u64) -> Done {
    stage.bus.write32(CSBAH, (iova >> 32) as u32)?;
    stage.bus.write32(CSBAL, iova as u32)
}

fn put(stage: &mut Stage<'_>, page: u64, word: u32, value: u32) -> Done {
    stage
        .bus
        .dma_write(page + u64::from(word), &value.to_le_bytes())
}

/// Calls both sides, and has frames come.
fn call(stage: &mut Stage<'_>) -> Done {
    stage.bus.write32(regs::TDT, 0)?;
    stage.bus.write32(regs::RDT, 0)?;
    stage.traffic()
}

/// A stage whose page is in use, with descriptors all over the ring.
fn begin(bus: &mut dyn Bus) -> Result<(Stage<'_>, u64), BusError> {
    let mut stage = Stage::new(bus)?;
    let page = stage.bus.alloc(PAGE)?.iova;
    give(&mut stage, page)?;
    stage.post(stage.buffer.iova)?;
    put(&mut stage, page, at::GUEST_RDT, RING - 1)?;
    put(&mut stage, page, at::GUEST_CSB_ON, 1)?;
    let raw = stage.legacy(600).raw();
    stage.send(&[raw; RING as usize - 1])?;
    Ok((stage, page))
}

/// Takes the page away in good order.
fn end(mut stage: Stage<'_>, page: u64) -> Done {
    give(&mut stage, 0)?;
    let len = PAGE;
    stage.bus.free(drivers::Dma { iova: page, len })?;
    stage.leave()
}

pub(crate) fn block_tails_wild(bus: &mut dyn Bus) -> Done {
    let (mut stage, page) = begin(bus)?;
    for tail in [RING, RING + 1, 0x7fff, 0xffff, 1 << 16, 1 << 31, u32::MAX] {
        put(&mut stage, page, at::GUEST_TDT, tail)?;
        put(&mut stage, page, at::GUEST_RDT, tail)?;
        call(&mut stage)?;
        // And where there is no ring for any tail.
        stage.bus.write32(regs::TDLEN, 0)?;
        stage.bus.write32(regs::RDLEN, 0)?;
        call(&mut stage)?;
        stage.bus.write32(regs::TDLEN, RING * 16)?;
        stage.bus.write32(regs::RDLEN, RING * 16)?;
    }
    end(stage, page)
}

pub(crate) fn block_goes_underway(bus: &mut dyn Bus) -> Done {
    for round in 0..8u32 {
        let (mut stage, page) = begin(bus)?;
        put(&mut stage, page, at::GUEST_TDT, round)?;
        stage.bus.write32(regs::TDT, 0)?;
        let len = PAGE;
        stage.bus.free(drivers::Dma { iova: page, len })?;
        call(&mut stage)?;
        stage.leave()?;
    }
    Ok(())
}

pub(crate) fn block_at_nothing(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let buffer = stage.buffer;
    for page in [
        0x7000_0000,
        0xfebc_0000,
        u64::MAX - 15,
        u64::MAX - PAGE + 1,
        1 << 63 | 16,
        buffer.iova + 2,
        buffer.end() - 0x68,
        buffer.iova - 64,
        stage.rx.end() - 4,
    ] {
        give(&mut stage, page)?;
        call(&mut stage)?;
        // Half of an address.
        stage.bus.write32(CSBAH, 1)?;
        call(&mut stage)?;
    }
    give(&mut stage, 0)?;
    stage.leave()
}

pub(crate) fn block_on_top_of_rings(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    // One region for everything: the page on the rings, the rings in the page, and what is received
    // and sent is the page.
    let all = stage.bus.alloc(4 * PAGE)?;
    for shift in [0, 16, 64, 1024, PAGE - 16] {
        let page = all.iova + PAGE;
        stage.tx_ring(page - PAGE + shift, RING * 16)?;
        stage.rx_ring(page + shift, RING * 16)?;
        for index in 0..u64::from(RING) {
            let mut raw = stage.legacy(200).raw();
            raw[..8].copy_from_slice(&page.to_le_bytes());
            stage
                .bus
                .dma_write(page - PAGE + shift + index * 16, &raw)?;
            stage
                .bus
                .dma_write(page + shift + index * 16, &page.to_le_bytes())?;
        }
        give(&mut stage, page)?;
        for tail in [1, RING - 1, RING / 2, 0] {
            put(&mut stage, page, at::GUEST_CSB_ON, 1)?;
            put(&mut stage, page, at::GUEST_TDT, tail)?;
            put(&mut stage, page, at::GUEST_RDT, tail)?;
            call(&mut stage)?;
        }
        // Looped back, a frame is the page itself.
        stage.receive_control(rctl::LBM)?;
        call(&mut stage)?;
        stage.receive_control(0)?;
    }
    give(&mut stage, 0)?;
    stage.bus.free(all)?;
    stage.leave()
}

pub(crate) fn block_on_and_off(bus: &mut dyn Bus) -> Done {
    let (mut stage, page) = begin(bus)?;
    for round in 0..200u32 {
        let on = u32::from(round % 3 != 0);
        put(&mut stage, page, at::GUEST_CSB_ON, on)?;
        put(&mut stage, page, at::GUEST_TDT, round % RING)?;
        put(&mut stage, page, at::GUEST_RDT, round * 7 % RING)?;
        stage.bus.write32(regs::TDT, round * 5 % RING)?;
        match round % 8 {
            0 => give(&mut stage, 0)?,
            1 | 5 => give(&mut stage, page)?,
            2 => stage.bus.write32(CSBAL, page as u32)?,
            3 => stage.bus.write32(regs::IMS, u32::MAX)?,
            4 => stage.bus.write32(regs::TCTL, tctl::EN | tctl::PSP)?,
            6 => stage.bus.write32(regs::RDT, round % RING)?,
            _ => {
                stage.bus.read32(regs::ICR)?;
            }
        }
        if round % 50 == 49 {
            stage.traffic()?;
            stage.bus.write32(regs::CTRL, ctrl::RST)?;
            stage.bus.write32(regs::CTRL, ctrl::SLU)?;
            let (tx, rx) = (stage.tx.iova, stage.rx.iova);
            stage.tx_ring(tx, RING * 16)?;
            stage.rx_ring(rx, RING * 16)?;
            stage.bus.write32(regs::TCTL, tctl::EN | tctl::PSP)?;
            stage.receive_control(0)?;
        }
    }
    end(stage, page)
}

pub(crate) fn block_never_rests(bus: &mut dyn Bus) -> Done {
    let (mut stage, page) = begin(bus)?;
    put(&mut stage, page, at::HOST_TXCYCLES_LIM, u32::MAX)?;
    // Backwards, each tail is a whole ring more.
    for round in 0..100 {
        put(&mut stage, page, at::GUEST_TDT, RING - 1 - round % RING)?;
        put(&mut stage, page, at::HOST_NEED_TXKICK, round)?;
        put(&mut stage, page, at::HOST_RXKICK_AT, round)?;
        stage.bus.write32(regs::TDT, round % RING)?;
        stage.bus.read32(regs::STATUS)?;
    }
    stage.traffic()?;
    end(stage, page)
}
