//! The Communication Status Block of an RTL8168C.

use ::csb::at;
use drivers::Bus;

use super::stage::{BOTH, BUFFERS, CSBAH, CSBAL, EOR, IMR, OWN, PAGE, RING, RX, RXKICK, Rtl, TX};
use crate::races::{beside, flip};
use crate::stage::{Dice, Done};

/// Switches the block on.
fn switch_on(rtl: &mut Rtl<'_>) -> Done {
    word(rtl, at::GUEST_CSB_ON, 1)?;
    let page = rtl.at(PAGE);
    rtl.w32(CSBAH, (page >> 32) as u32)?;
    rtl.w32(CSBAL, page as u32)?;
    rtl.settle()
}

fn word(rtl: &mut Rtl<'_>, offset: u32, value: u32) -> Done {
    rtl.put(PAGE + u64::from(offset), &value.to_le_bytes())
}

pub(crate) fn places_lie(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    switch_on(&mut rtl)?;
    // The end of the ring is known once it was passed.
    for _ in 0..RING {
        rtl.send(60, 0)?;
    }
    rtl.traffic()?;
    for value in [RING, RING + 1, 0x7fff, 0xffff, u32::MAX, 0] {
        for offset in [
            at::GUEST_TDT,
            at::GUEST_RDT,
            at::HOST_TDH,
            at::HOST_RXKICK_AT,
        ] {
            word(&mut rtl, offset, value)?;
            rtl.w32(RXKICK, value)?;
            rtl.traffic()?;
        }
    }
    rtl.leave()
}

pub(crate) fn page_nowhere(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    let end = rtl.end();
    for page in [end, end - 0x800, rtl.at(PAGE) + 2, u64::MAX - 0xffe, 4] {
        rtl.w32(CSBAH, (page >> 32) as u32)?;
        rtl.w32(CSBAL, page as u32)?;
        rtl.send(60, 0)?;
        rtl.traffic()?;
    }
    // And one that goes.
    let page = rtl.bus.alloc(0x1000)?;
    rtl.w32(CSBAH, (page.iova >> 32) as u32)?;
    rtl.w32(CSBAL, page.iova as u32)?;
    rtl.traffic()?;
    rtl.bus.free(page)?;
    rtl.traffic()?;
    rtl.leave()
}

pub(crate) fn page_on_the_rings(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    for base in [TX, RX] {
        let page = rtl.at(base);
        rtl.w32(CSBAH, (page >> 32) as u32)?;
        rtl.w32(CSBAL, page as u32)?;
        for _ in 0..8 {
            rtl.send(60, 0)?;
            rtl.traffic()?;
        }
        rtl.bring_up()?;
    }
    rtl.leave()
}

pub(crate) fn never_a_rest(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    word(&mut rtl, at::HOST_TXCYCLES_LIM, u32::MAX)?;
    switch_on(&mut rtl)?;
    let at = rtl.at(BUFFERS);
    for i in 0..4 * RING {
        // A packet that never becomes whole, and a place that always moves.
        rtl.desc(TX, 0, OWN | (1 << 29) | 60, 0, at)?;
        word(&mut rtl, at::GUEST_TDT, i % RING)?;
        rtl.traffic()?;
    }
    rtl.leave()
}

pub(crate) fn page_rewritten_underway(bus: &mut dyn Bus) -> Done {
    let mut rtl = Rtl::start(bus)?;
    switch_on(&mut rtl)?;
    let (page, memory, buffer) = (rtl.at(PAGE), rtl.bus.memory(), rtl.at(BUFFERS));
    let scribble = |memory: &guest_mem::Memory, dice: &mut Dice| flip(memory, page, 0x68, dice);
    beside(&memory, scribble, |round| {
        for i in 0..RING {
            let end = if i + 1 == RING { EOR } else { 0 };
            rtl.desc(TX, i, BOTH | end | 60, 0, buffer)?;
            rtl.desc(RX, i, OWN | end | 0x800, 0, buffer + 0x1_0000)?;
        }
        rtl.w16(IMR, round as u16)?;
        rtl.w32(RXKICK, round)?;
        rtl.traffic()
    })?;
    rtl.leave()
}
