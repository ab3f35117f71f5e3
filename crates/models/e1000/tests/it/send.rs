//! Packets put into the transmit ring.

use frame::Caps;

use super::common::*;
use super::packet::*;

pub const IXSM: u8 = 1;
pub const TXSM: u8 = 2;

pub fn machine(caps: Caps) -> Machine {
    let mut m = Machine::new(Wire::with(caps));
    m.tx_on(64);
    m
}

/// Puts a packet into the ring as data descriptors of the given lengths, from `index` on, behind a
/// context. Returns the next index; the tail is not moved.
pub fn put(
    m: &Machine,
    index: u32,
    ctx: Option<&Ctx>,
    bytes: &[u8],
    cuts: &[usize],
    desc: D,
) -> u32 {
    let base = TX_BUFFERS + u64::from(index) * 0x1_0000;
    m.poke(base, bytes);
    let mut index = index;
    if let Some(ctx) = ctx {
        let (low, high) = ctx.words();
        m.tx_desc(index, low, high);
        index += 1;
    }
    let mut at = 0;
    let mut lens: Vec<usize> = cuts.to_vec();
    lens.push(bytes.len() - cuts.iter().sum::<usize>());
    for (i, len) in lens.iter().enumerate() {
        let last = i + 1 == lens.len();
        let cmd = desc.cmd | IFCS | if last { EOP | RS } else { 0 };
        // POPTS counts in the first descriptor only; the tag there when segmenting, else in the
        // last.
        let popts = if i == 0 { desc.popts } else { !desc.popts & 3 };
        let counts = if desc.cmd & TSE != 0 { i == 0 } else { last };
        let special = if counts { desc.special } else { 0xffff };
        let high = data(*len as u32, cmd, popts, special);
        m.tx_desc(index, base + at as u64, high);
        at += len;
        index += 1;
    }
    index
}

#[derive(Clone, Copy, Default)]
pub struct D {
    pub cmd: u8,
    pub popts: u8,
    pub special: u16,
}

pub fn send(m: &mut Machine, ctx: Option<&Ctx>, bytes: &[u8], cuts: &[usize], desc: D) {
    let next = put(m, 0, ctx, bytes, cuts, desc);
    m.w(reg::TDT, next);
    assert_eq!(m.r(reg::TDH), next, "all of it is done");
    assert!(m.tx_done(next - 1));
}

pub fn ctx4(l4: u8) -> Ctx {
    Ctx {
        ip: (14, 24, 33),
        tu: (34, if l4 == 6 { 50 } else { 40 }, 0),
        paylen: 0,
        cmd: if l4 == 6 { 3 } else { 2 },
        hdrlen: 0,
        mss: 0,
    }
}

pub fn partial4(protocol: u8, data: &[u8]) -> Vec<u8> {
    let l4 = if protocol == 6 { 20 } else { 8 } + data.len() as u16;
    let mut frame = ethernet(0x0800);
    frame.extend(ipv4(protocol, 20 + l4));
    let seed = pseudo4(protocol, l4);
    if protocol == 6 {
        frame.extend(tcp(0x18, seed));
    } else {
        frame.extend(udp(l4, seed));
    }
    frame.extend(data);
    frame
}
