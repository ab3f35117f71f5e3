//! What is read at the end of a script, and which registers count what.

use std::collections::BTreeSet;

use super::Parted;
use super::context::reg;
use super::{IGB, LINK_UP};
use crate::oracle::script::{Op, Script};

/// The free running timer tells the time that each machine has run.
const FRTIMER: u32 = 0x1048;
/// The second half of whom a stamped message is of.
const RXSATRH: u32 = reg::RXSATRL + 4;

/// What is read at the end of a script: every register, and of arrays the first element and those
/// that the script touched. The causes come last, since reading them moves line and masks.
pub(super) fn sweep(script: &Script) -> Vec<u32> {
    let last = [reg::EICR, reg::ICR];
    let mut offsets: BTreeSet<u32> = IGB.registers.iter().map(|r| IGB.home(r.offset)).collect();
    for op in &script.ops {
        if let Op::Write { at, size, .. } = op {
            let end = at.saturating_add(u32::from(*size).saturating_sub(1));
            for at in [at & !3, end & !3] {
                if IGB.writable(at).is_some() {
                    offsets.insert(IGB.home(at));
                }
            }
        }
    }
    let offsets = offsets.into_iter();
    offsets
        .filter(|at| *at != FRTIMER && !last.contains(at))
        .chain(last)
        .collect()
}

/// Whether a statistics register counts what is received.
pub(super) fn counts_received(at: u32) -> bool {
    matches!(at,
        0x4000..=0x4010 | 0x4040 | 0x4048 | 0x4050 | 0x4058..=0x407c | 0x4088..=0x408c
        | 0x40a0..=0x40b4 | 0x40c0..=0x40c4 | 0x40d0 | 0x4104 | 0x4120..=0x412c | 0x4138)
        || (0x1_0010..0x1_0810).contains(&at) && matches!(at & 0xff, 0x10 | 0x18 | 0x38)
}

/// Whether a statistics register counts what is sent.
pub(super) fn counts_sent(at: u32) -> bool {
    matches!(at, 0x403c | 0x404c | 0x4054 | 0x4080 | 0x4090..=0x4094 | 0x40c8..=0x40cc | 0x40d4..=0x40fc
        | 0x4118 | 0x4130..=0x4134)
        || (0x1_0010..0x1_0850).contains(&at) && matches!(at & 0xff, 0x14 | 0x34)
}

/// Bits of a register that belong to halves that have parted.
pub(super) fn parted(halves: Parted, at: u32) -> u64 {
    let choose = |on: bool, bits: u64| if on { bits } else { 0 };
    // A queue's causes may have any vector.
    let any = halves != Parted::default();
    let of_queue = |base: u32| (base..base + 0x400).contains(&at);
    match at {
        reg::ICR | reg::ICS => {
            choose(halves.rx, 0x8000_00d0)
                | choose(halves.tx, 0x8000_0001)
                | choose(halves.link, 0x8000_0004)
                | choose(halves.irq, !0)
        }
        reg::IMC | reg::IAM => choose(halves.irq, !0),
        // Masks follow causes where these clear them.
        reg::EICR | reg::EIMS | reg::IMS | reg::IAC => choose(any, !0),
        reg::STATUS | reg::MDIC | reg::CTRL => choose(halves.link, !0),
        _ if of_queue(0xc000) && at & 0x3f == 0x10 => choose(halves.rx, !0),
        _ if of_queue(0xc000) && at & 0x3f == 0x30 => choose(halves.rx, !0),
        _ if of_queue(0xe000) && at & 0x3f == 0x10 => choose(halves.tx, !0),
        reg::TSYNCTXCTL => choose(halves.tx, 1),
        reg::TSYNCRXCTL => choose(halves.rx, 1),
        reg::RXSATRL | RXSATRH => choose(halves.rx, !0),
        _ if counts_received(at) => choose(halves.rx, !0),
        _ if counts_sent(at) => choose(halves.tx, !0),
        _ => 0,
    }
}

/// Writes that would end the comparison, made harmless for scripts about registers alone: no reset, the
/// link stays, nothing is sent or received.
pub(super) fn harmless(at: u32, value: u32) -> u32 {
    match at {
        reg::CTRL => value & 0x7bff_ffff | LINK_UP,
        reg::RCTL => value & !0xc2,
        reg::TCTL => value & !2,
        _ => value,
    }
}
